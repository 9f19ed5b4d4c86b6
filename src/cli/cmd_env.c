/* cmd_env.c: this build and this machine. */
#include <stdio.h>

#include "cli/cli.h"

static const struct option options[] = {
    {"ops", 0, OPTION_FLAG, offsetof(struct args, ops), NULL,
     "also the table of ops: what each computes, and its kernels"},
    {"measure", 0, OPTION_FLAG, offsetof(struct args, measure), NULL,
     "measure products, memory, links and disk, for a few seconds, and keep the figures"},
    {"require-gpu", 0, OPTION_FLAG, offsetof(struct args, require_gpu), NULL,
     "exit status 2 (3 when others have filled it) unless there is a GPU this build can use"},
};

static enum snug_status run(struct cli *cli)
{
    char *text;
    const struct snug_env_options o = {.ops = cli->args.ops,
                                       .measure = cli->args.measure,
                                       .cache_folder = cli->settings.cache_folder};
    enum snug_status status = cli->args.json ? snug_env_json(&o, &text) : snug_env_text(&o, &text);
    if (status != SNUG_OK)
        return status;
    if (cli->args.json) {
        status = print_json(cli, text);
    } else {
        (void)fputs(text, stdout);
        snug_free(text);
    }
    if (status == SNUG_OK && cli->args.require_gpu)
        status = snug_env_require_gpu();
    return status;
}

const struct command cmd_env = {
    .name = "env",
    .usage = "env [--ops] [--measure] [--require-gpu] [--json]",
    .summary = "this build and this machine, for bug reports",
    .text =
        "Version, compiler, optional features, processor, memory, and rates measured now. Of a\n"
        "GPU: name, compute capability and whether this build has code for it, driver and\n"
        "library versions, memory, who else holds some of it, what a process needs beside its\n"
        "arenas; or, in one line, why it cannot be used. --measure times products by shape,\n"
        "memory, copies between host and device one way and both ways, the disk, and keeps the\n"
        "figures with their date and spread; without it they are shown with their age. Figures\n"
        "that other programs disturbed do not take the place of better ones.",
    .examples = "  snug env --json\n"
                "  snug env --measure\n"
                "  snug env --require-gpu",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .run = run,
};
