/* cmd_chat.c: a conversation with a model, one message or many. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"

#define AT(field) offsetof(struct args, field)

static const struct option options[] = {
    {"prompt", 'p', OPTION_TEXT, AT(prompt), "TEXT",
     "one message to answer, - for standard input; default: messages are asked for"},
    {"system", 's', OPTION_TEXT, AT(system), "TEXT", "the system message"},
    {"max-new-tokens", 'n', OPTION_INT, AT(max_new_tokens), "N",
     "at most this many in an answer; default 512"},
    {"context", 0, OPTION_POSITIVE, AT(context), "N",
     "tokens that a conversation may have; default 4096, or what the model has positions for"},
    {"temperature", 't', OPTION_FLOAT, AT(temperature), "X",
     "below 1 likelier tokens gain; 0: always the likeliest; default 0.8"},
    {"top-k", 0, OPTION_INT, AT(top_k), "K", "choose among the K likeliest; default 0: all"},
    {"top-p", 0, OPTION_FLOAT, AT(top_p), "P",
     "choose among the likeliest that make up probability P; default 1: all"},
    {"seed", 0, OPTION_INT, AT(seed), "N", "the same seed gives the same answers; default 0"},
    {"stop", 0, OPTION_TEXT, AT(stop_text), "TEXT", "end answers before this text too"},
    {"checkpoint", 'c', OPTION_TEXT, AT(checkpoint), "PATH",
     "weights: a folder, `last`, `best`, or `none` for the model as configured; default: the "
     "newest "
     "checkpoint in output_dir if there is one"},
};

static enum snug_status say(struct cli *cli, struct snug_chat *chat, const char *text,
                            struct snug_generation *made)
{
    bool streams = !cli->args.json;
    enum snug_status status =
        snug_chat_say(chat, text, streams ? print_piece : NULL, NULL, cli->stop, made);
    if (status == SNUG_OK && streams)
        status = print_piece(NULL, "\n", 1);
    return status;
}

static enum snug_status say_once(struct cli *cli, struct snug_chat *chat,
                                 const struct snug_generate_request *request)
{
    struct snug_generation made;
    char *json = NULL;
    enum snug_status status = say(cli, chat, request->prompt, &made);
    if (status != SNUG_OK)
        return status;
    show_generation(&made);
    if (cli->args.json)
        status = snug_generation_json(request, &made, &json);
    return status == SNUG_OK ? print_json(cli, json) : status;
}

/* ---- many ------------------------------------------------------------------------------------ */

/* A line of standard input without its end; false when there are no more. */
static bool read_line(struct str *line)
{
    str_clear(line);
    for (int c = getchar(); c != '\n'; c = getchar()) {
        if (c == EOF)
            return line->n > 0;
        const char byte = (char)c;
        str_add_n(line, &byte, 1);
    }
    return !line->failed;
}

static void ask(void)
{
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
        (void)fputs("> ", stdout);
        (void)fflush(stdout);
    }
}

/* A conversation that has become too long does not end the program. */
static enum snug_status take_line(struct cli *cli, struct snug_chat *chat, const char *line)
{
    struct snug_generation made;
    if (strcmp(line, "/reset") == 0) {
        snug_chat_reset(chat);
        return SNUG_OK;
    }
    if (!*line)
        return SNUG_OK;
    enum snug_status status = say(cli, chat, line, &made);
    if (status == SNUG_ERR_USAGE) {
        log_warn("%s", snug_error_message());
        return SNUG_OK;
    }
    return status;
}

static enum snug_status converse(struct cli *cli, struct snug_chat *chat)
{
    struct str line = {0};
    enum snug_status status = SNUG_OK;
    if (isatty(STDIN_FILENO))
        log_info("a line is a message; /reset begins anew, /quit or Ctrl-D ends");
    for (ask(); status == SNUG_OK && read_line(&line); ask()) {
        if (strcmp(str_text(&line), "/quit") == 0)
            break;
        status = take_line(cli, chat, str_text(&line));
    }
    str_release(&line);
    return status;
}

static enum snug_status run_with(struct cli *cli, const struct snug_generate_request *request)
{
    struct snug_config *config;
    struct snug_chat *chat;
    enum snug_status status = load_model_config(cli, &config);
    if (status != SNUG_OK)
        return status;
    status = snug_chat_open(&chat, config, &cli->settings, cli->args.checkpoint, request,
                            cli->args.system, cli->args.context);
    if (status == SNUG_OK)
        status = request->prompt ? say_once(cli, chat, request) : converse(cli, chat);
    snug_chat_close(chat);
    snug_config_free(config);
    return status;
}

static enum snug_status run(struct cli *cli)
{
    enum { DEFAULT_CONTEXT = 4096, DEFAULT_NEW = 512 };
    struct args *a = &cli->args;
    const char *prompt;
    enum snug_status status = read_prompt(cli, &prompt);
    if (status != SNUG_OK)
        return status;
    if (a->json && !prompt)
        return usage_error("--json is about one answer: give --prompt TEXT");
    a->context = a->context ? a->context : DEFAULT_CONTEXT;
    const struct snug_generate_request request = {
        .prompt = prompt,
        .stop = a->stop_text,
        .max_new_tokens = a->max_new_tokens == NOT_GIVEN ? DEFAULT_NEW : a->max_new_tokens,
        .temperature = a->temperature,
        .top_k = a->top_k,
        .top_p = a->top_p,
        .seed = (uint64_t)a->seed,
    };
    return run_with(cli, &request);
}

const struct command cmd_chat = {
    .name = "chat",
    .usage = "chat CONFIG|FOLDER [--prompt TEXT|-] [--system TEXT] [--max-new-tokens N]\n"
             "        [--context N] [--temperature X] [--top-k K] [--top-p P] [--seed N]\n"
             "        [--stop TEXT] [--checkpoint PATH|last|best|none] [--json]",
    .summary = "talk to a model in its chat template",
    .text = "Messages are lines of standard input, or one is given with --prompt; answers stream\n"
            "to stdout until the model ends its turn. How conversations are written is the\n"
            "tokenizer's chat template, or the family that chat_template=NAME names. The line\n"
            "/reset begins a new conversation, /quit ends. FOLDER is a model's, a checkpoint or a\n"
            "run's output_dir.",
    .examples = "  snug chat models/Qwen2.5-0.5B-Instruct\n"
                "  snug chat out/checkpoint-400 -s 'Be brief.' -p 'What is a tensor?'\n"
                "  git diff | snug chat models/qwen -p - -s 'Explain this change.'",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .min_words = 1,
    .max_words = 1,
    .takes_overrides = true,
    .run = run,
};
