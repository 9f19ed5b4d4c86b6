/* cmd_help.c: help on everything or on one command. */
#include "cli/cli.h"

static enum snug_status run(struct cli *cli)
{
    if (cli->args.words.n == 0) {
        print_overview();
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
    .usage = "help [COMMAND]",
    .summary = "this overview, or the help of one command",
    .text = "Prints an overview, or what a command does with all its options.",
    .max_words = 1,
    .run = run,
};
