/* cmd_help.c: help on everything or on one command. */
#include <string.h>

#include "cli/cli.h"

static enum snug_status print_keys(void)
{
    char *text;
    enum snug_status status = snug_config_keys_text(&text);
    return status == SNUG_OK ? print_text(text) : status;
}

static enum snug_status run(struct cli *cli)
{
    if (cli->args.words.n == 0) {
        print_overview();
        return SNUG_OK;
    }
    if (strcmp(cli->args.words.items[0], "keys") == 0)
        return print_keys();
    const struct command *c = find_command(cli->args.words.items[0]);
    if (!c)
        return usage_error("there is no command '%s'; see snug help", cli->args.words.items[0]);
    print_command_help(c);
    return SNUG_OK;
}

const struct command cmd_help = {
    .name = "help",
    .usage = "help [COMMAND|keys]",
    .summary = "this overview, the help of one command, or all keys of a config",
    .text = "Prints an overview, or what a command does with all its options, or (`keys`) every\n"
            "key of a config: key=default, the words it takes where there are such, its meaning.",
    .max_words = 1,
    .run = run,
};
