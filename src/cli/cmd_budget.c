/* cmd_budget.c: other budgets for a run that goes on. */
#include "cli/cli.h"

static enum snug_status run(struct cli *cli)
{
    const struct args *a = &cli->args;
    char *answer;
    signals_finish(true);
    enum snug_status status =
        snug_budget(a->words.items[0], a->overrides.items, a->overrides.n, cli->stop, &answer);
    return status == SNUG_OK ? print_text(answer) : status;
}

const struct command cmd_budget = {
    .name = "budget",
    .usage = "budget OUTPUT_DIR key=value ...",
    .summary = "give a run that is at work more memory or less",
    .text =
        "The run in OUTPUT_DIR changes over, between two steps, to programs planned for the new\n"
        "device_memory, host_memory or disk_memory (a size, or auto), and its losses stay the\n"
        "same to the bit. Memory that is no longer needed goes back to the system. Where nothing\n"
        "fits the run goes on as it was, and the exit status is 3 with the reason.",
    .examples = "  snug budget out/demo device_memory=48MiB\n"
                "  snug budget out/demo device_memory=auto",
    .min_words = 1,
    .max_words = 1,
    .takes_overrides = true,
    .run = run,
};
