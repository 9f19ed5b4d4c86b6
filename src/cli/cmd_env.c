/* cmd_env.c: this build and this machine. */
#include <stdio.h>

#include "cli/cli.h"

static const struct option options[] = {
    {"ops", 0, OPTION_FLAG, offsetof(struct args, ops), NULL,
     "also the table of ops: what each computes, and its kernels"},
    {"require-gpu", 0, OPTION_FLAG, offsetof(struct args, require_gpu), NULL,
     "exit status 2 (3 when others have filled it) unless there is a GPU this build can use"},
};

static enum snug_status run(struct cli *cli)
{
    char *text;
    enum snug_status status =
        cli->args.json ? snug_env_json(cli->args.ops, &text) : snug_env_text(cli->args.ops, &text);
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
    .usage = "env [--ops] [--require-gpu] [--json]",
    .summary = "this build and this machine, for bug reports",
    .text =
        "Version, compiler, optional features, processor, memory, and rates measured now. Of a\n"
        "GPU: name, compute capability and whether this build has code for it, driver and\n"
        "library versions, memory, who else holds some of it, what a process needs beside its\n"
        "arenas; or, in one line, why it cannot be used.",
    .examples = "  snug env --json\n"
                "  snug env --require-gpu",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .run = run,
};
