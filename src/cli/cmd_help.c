/* cmd_help.c: help on everything or on one command. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static enum snug_status print_keys(void)
{
    char *text;
    enum snug_status status = snug_config_keys_text(&text);
    return status == SNUG_OK ? print_text(text) : status;
}

static void print_gpus(void)
{
    const char *name;
    for (size_t i = 0; (name = snug_gpu_name(i)); i++)
        (void)printf("%s\n", name);
}

static enum snug_status run(struct cli *cli)
{
    if (cli->args.words.n == 0) {
        print_overview();
        return SNUG_OK;
    }
    if (strcmp(cli->args.words.items[0], "keys") == 0)
        return print_keys();
    if (strcmp(cli->args.words.items[0], "gpus") == 0) {
        print_gpus();
        return SNUG_OK;
    }
    const struct command *c = find_command(cli->args.words.items[0]);
    if (!c)
        return usage_error("there is no command '%s'; see snug help", cli->args.words.items[0]);
    print_command_help(c);
    return SNUG_OK;
}

const struct command cmd_help = {
    .name = "help",
    .usage = "help [COMMAND|keys|gpus]",
    .summary = "this overview, the help of one command, all keys of a config, all GPU names",
    .text = "Prints an overview, or what a command does with all its options, or (`keys`) every\n"
            "key of a config: key=default, the words it takes where there are such, its meaning;\n"
            "or (`gpus`) the names that snug plan --gpu takes.",
    .max_words = 1,
    .run = run,
};
