/* cmd_generate.c: text from a model. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

#define AT(field) offsetof(struct args, field)

static const struct option options[] = {
    {"prompt", 'p', OPTION_TEXT, AT(prompt), "TEXT",
     "what to continue, - for standard input; default: the beginning of a document"},
    {"stop", 0, OPTION_TEXT, AT(stop_text), "TEXT", "end before this text"},
    {"max-new-tokens", 'n', OPTION_INT, AT(max_new_tokens), "N", "at most this many; default 100"},
    {"temperature", 't', OPTION_FLOAT, AT(temperature), "X",
     "below 1 likelier tokens gain; 0: always the likeliest; default 0.8"},
    {"top-k", 0, OPTION_INT, AT(top_k), "K", "choose among the K likeliest; default 0: all"},
    {"top-p", 0, OPTION_FLOAT, AT(top_p), "P",
     "choose among the likeliest that make up probability P; default 1: all"},
    {"seed", 0, OPTION_INT, AT(seed), "N", "the same seed gives the same text; default 0"},
    {"checkpoint", 'c', OPTION_TEXT, AT(checkpoint), "PATH",
     "weights: a folder, `last`, `best`, or `none` for the model as configured; default: the "
     "newest "
     "checkpoint in output_dir if there is one"},
    {"no-echo", 0, OPTION_FLAG, AT(no_echo), NULL, "print the new text only, not the prompt"},
};

static enum snug_status generate(struct cli *cli, const struct snug_config *config,
                                 const struct snug_generate_request *request)
{
    struct snug_generator *g;
    struct snug_generation made;
    char *json = NULL;
    bool streams = !cli->args.json;
    enum snug_status status =
        snug_generator_open(&g, config, &cli->settings, cli->args.checkpoint, request);
    if (status != SNUG_OK)
        return status;
    if (streams && !cli->args.no_echo)
        status = print_piece(NULL, request->prompt, strlen(request->prompt));
    if (status == SNUG_OK)
        status = snug_generate(g, streams ? print_piece : NULL, NULL, cli->stop, &made);
    if (status == SNUG_OK && streams)
        status = print_piece(NULL, "\n", 1);
    if (status == SNUG_OK)
        show_generation(&made);
    if (status == SNUG_OK && cli->args.json)
        status = snug_generation_json(request, &made, &json);
    if (status == SNUG_OK)
        status = print_json(cli, json);
    snug_generator_close(g);
    return status;
}

static enum snug_status run(struct cli *cli)
{
    const struct args *a = &cli->args;
    enum { DEFAULT_NEW = 100 };
    const char *prompt;
    enum snug_status status = read_prompt(cli, &prompt);
    if (status != SNUG_OK)
        return status;
    struct snug_generate_request request = {
        .prompt = prompt ? prompt : "",
        .stop = a->stop_text,
        .max_new_tokens = a->max_new_tokens == NOT_GIVEN ? DEFAULT_NEW : a->max_new_tokens,
        .temperature = a->temperature,
        .top_k = a->top_k,
        .top_p = a->top_p,
        .seed = (uint64_t)a->seed,
    };
    struct snug_config *config;
    status = load_model_config(cli, &config);
    if (status != SNUG_OK)
        return status;
    status = generate(cli, config, &request);
    snug_config_free(config);
    return status;
}

const struct command cmd_generate = {
    .name = "generate",
    .usage = "generate CONFIG|FOLDER [--prompt TEXT|-] [--max-new-tokens N] [--temperature X]\n"
             "            [--top-k K] [--top-p P] [--seed N] [--stop TEXT]\n"
             "            [--checkpoint PATH|last|best|none] [--json]",
    .summary = "continue a text with a model",
    .text = "Streams text to stdout until the model ends it, max-new-tokens are made, or the\n"
            "model's context is full. Weights, key/value cache and everything else are planned\n"
            "inside device_memory, as in training. FOLDER is a model's, a checkpoint or a run's\n"
            "output_dir.",
    .examples = "  snug generate configs/demo.yaml --prompt 'Once upon a time' --seed 1\n"
                "  snug generate out/demo/checkpoint-400 -p Hello -n 40 -t 0",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .min_words = 1,
    .max_words = 1,
    .takes_overrides = true,
    .run = run,
};
