/* cmd_env.c: this build and this machine. */
#include <stdio.h>

#include "cli/cli.h"

static const struct option options[] = {
    {"ops", 0, OPTION_FLAG, offsetof(struct args, ops), NULL,
     "also the table of ops: what each computes, and its kernels"},
};

static enum snug_status run(struct cli *cli)
{
    char *text;
    enum snug_status status =
        cli->args.json ? snug_env_json(cli->args.ops, &text) : snug_env_text(cli->args.ops, &text);
    if (status != SNUG_OK)
        return status;
    if (cli->args.json)
        return print_json(cli, text);
    (void)fputs(text, stdout);
    snug_free(text);
    return SNUG_OK;
}

const struct command cmd_env = {
    .name = "env",
    .usage = "env [--ops] [--json]",
    .summary = "this build and this machine, for bug reports",
    .text = "Version, compiler, optional features, processor, memory, and rates measured now.",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .run = run,
};
