/* cmd_init.c: writes a config to start from. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/cli.h"

static const struct option options[] = {
    {"preset", 0, OPTION_TEXT, offsetof(struct args, preset), "NAME",
     "where to start from: a card (snug help gpus), cpu, colab, or one of the examples"},
    {"model", 0, OPTION_TEXT, offsetof(struct args, model), "NAME",
     "tiny, gpt2-124m, gpt2-350m, gpt2-1558m, llama-1b, llama-7b, qwen2.5-7b, a folder, or "
     "ORG/NAME"},
    {"data", 0, OPTION_TEXT, offsetof(struct args, data), "PATH",
     "what to train on; made-up data otherwise"},
    {"card", 0, OPTION_TEXT, offsetof(struct args, card), "NAME",
     "the GPU it is for (snug help gpus), or cpu"},
    {"goal", 0, OPTION_TEXT, offsetof(struct args, goal), "WORD",
     "pretrain, finetune, lora or qlora"},
    {"output-dir", 0, OPTION_TEXT, offsetof(struct args, output_dir), "FOLDER",
     "output_dir of the run (out/ and the file's name)"},
    {"force", 0, OPTION_FLAG, offsetof(struct args, force), NULL, "replace a file that is there"},
};

/* ---- questions ------------------------------------------------------------------------------- */

/* A line of standard input without its end; what is offered where there is none. */
static enum snug_status ask(struct cli *cli, const char *question, const char *offered,
                            const char **answer)
{
    char line[1024];
    log_info("%s [%s]", question, offered);
    *answer = *offered ? offered : NULL;
    if (!fgets(line, sizeof(line), stdin))
        return SNUG_OK;
    size_t n = strlen(line);
    while (n > 0 && isspace((unsigned char)line[n - 1]))
        line[--n] = '\0';
    const char *from = line + strspn(line, " \t");
    if (!*from)
        return SNUG_OK;
    *answer = pool_strdup(&cli->args.pool, from);
    return *answer ? SNUG_OK : memory_error();
}

static enum snug_status ask_all(struct cli *cli, struct snug_init *in)
{
    enum snug_status status =
        ask(cli, "Which card? cpu, or one of snug help gpus: t4, rtx4090, a100-40 ...", "cpu",
            &in->card);
    if (status == SNUG_OK)
        status = ask(cli, "What for? pretrain, finetune, lora, qlora", "pretrain", &in->goal);
    if (status == SNUG_OK)
        status = ask(cli,
                     "Which model? tiny, gpt2-124m, llama-1b ..., a folder, ORG/NAME; nothing: "
                     "one that suits the card",
                     "", &in->model);
    if (status == SNUG_OK)
        status =
            ask(cli, "What to train on? a file or folder; nothing: made-up data", "", &in->data);
    return status;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* out/NAME of NAME.yaml. */
static const char *run_folder(struct cli *cli, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    int n = (int)(dot && dot > name ? (size_t)(dot - name) : strlen(name));
    return pool_printf(&cli->args.pool, "out/%.*s", n, name);
}

static enum snug_status write_config(struct cli *cli, const struct snug_init *in, const char *path)
{
    char *text;
    enum snug_status status = snug_init_config(in, &text);
    if (status != SNUG_OK)
        return status;
    const char *gpu = strstr(text, " --gpu ");
    int n_gpu = gpu ? (int)(7 + strcspn(gpu + 7, " \n")) : 0;
    enum status written = file_write_atomic(path, text, strlen(text));
    if (written == OK) {
        log_info("wrote     %s", path);
        log_info("next      snug plan %s%.*s", path, n_gpu, gpu ? gpu : "");
        log_info("          snug train %s --serve", path);
    }
    snug_free(text);
    if (written != OK)
        return SNUG_ERR_IO;
    if (!cli->args.json)
        return SNUG_OK;
    struct str json = {0};
    str_addf(&json, "{\"config\": \"%s\", \"output_dir\": \"%s\"}", path, in->output_dir);
    return str_status(&json) == OK ? print_json(cli, str_take(&json)) : memory_error();
}

static enum snug_status run(struct cli *cli)
{
    const struct args *a = &cli->args;
    const char *path = a->words.n > 0 ? a->words.items[0] : "snug.yaml";
    struct snug_init in = {.preset = a->preset,
                           .model = a->model,
                           .data = a->data,
                           .card = a->card,
                           .goal = a->goal,
                           .output_dir = a->output_dir ? a->output_dir : run_folder(cli, path)};
    if (!in.output_dir)
        return memory_error();
    if (strpbrk(path, "\"\\\n"))
        return usage_error("%s: choose a name without quotes and backslashes", path);
    if (file_exists(path) && !a->force)
        return usage_error("%s is there already: give another name, or --force to replace it",
                           path);
    if (!in.preset && !in.model && !in.data && !in.card && !in.goal) {
        enum snug_status status = ask_all(cli, &in);
        if (status != SNUG_OK)
            return status;
    }
    return write_config(cli, &in, path);
}

const struct command cmd_init = {
    .name = "init",
    .usage = "init [FILE] [--preset NAME] [--model NAME] [--data PATH] [--card NAME] [--goal WORD] "
             "[--output-dir FOLDER] [--force]",
    .summary = "write a config to start from",
    .text =
        "Writes a commented config into FILE (snug.yaml) for a model, data, a card and a goal, "
        "from\n"
        "flags; without any it asks. Presets are the cards of snug help gpus, and:\n\n"
        "  cpu              a small model on the processor\n"
        "  colab            a notebook with a T4 and 12 GiB of its own\n"
        "  three-branch     the three-branch network in 39 GiB\n"
        "  deepspeed        the same with optimizer states on the host (ZeRO-2 with offload)\n"
        "  accelerate       the same placed over GPU and host by the planner\n"
        "  qlora            4-bit weights of an 8B model with adapters\n"
        "  experts          a mixture of experts of 317 million parameters\n"
        "  per-frame        the per-frame network in full; per-frame-small: half its channels\n"
        "  autoencoder      the wide autoencoder of 8.5 billion parameters\n\n"
        "A preset's card can be another: --preset qlora --card t4. Data that is not given is made\n"
        "up. snug plan FILE then says what it takes, before anything runs.",
    .examples = "  snug init\n"
                "  snug init my.yaml --preset t4 --data text.txt\n"
                "  snug init chat.yaml --preset qlora --model ORG/NAME --data chats.jsonl\n"
                "  snug init small.yaml --card cpu --model tiny",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .min_words = 0,
    .max_words = 1,
    .run = run,
};
