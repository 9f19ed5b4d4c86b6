/* cmd_plan.c: what a run will need, before it runs. */
#include <string.h>

#include "cli/cli.h"

static const struct option options[] = {
    {"what-if", 0, OPTION_FLAG, offsetof(struct args, what_if), NULL,
     "say what binds a plan that fits, and plan what more memory or other settings would buy"},
    {"html", 0, OPTION_TEXT, offsetof(struct args, html), "FILE",
     "write a page for a browser: memory over the step, every buffer, every queue"},
    {"svg", 0, OPTION_TEXT, offsetof(struct args, svg), "FILE",
     "draw the memory timeline into this file"},
    {"snapshot", 0, OPTION_TEXT, offsetof(struct args, snapshot), "FILE",
     "write the plan as a memory snapshot of PyTorch, for pytorch.org/memory_viz"},
    {"gpu", 0, OPTION_TEXT, offsetof(struct args, gpu), "NAME",
     "plan for that GPU, here or not (rtx4090, h100, ...; a wrong name lists them), or for "
     "all of them, a line each"},
    {"sweep", 0, OPTION_TEXT, offsetof(struct args, sweep), "RANGE",
     "tokens per second over budgets, device_memory=4GiB..24GiB; --svg draws it"},
    {"dump", 0, OPTION_TEXT, offsetof(struct args, dump), "WHAT",
     "print the step's graph or program on stdout, as text that can be read back"},
    {"replan", 0, OPTION_FLAG, offsetof(struct args, replan), NULL,
     "search for the plan again, also where it is kept from the last time"},
};

/* Plans side by side have no page, timeline or program of their own. */
static enum snug_status check_options(const struct args *a, bool all)
{
    if (all && a->sweep)
        return usage_error("--sweep is for one GPU: give --gpu a name");
    if ((all || a->sweep) && (a->html || a->snapshot || a->dump))
        return usage_error("--html, --snapshot and --dump are of one plan, not of several");
    if ((all || a->sweep) && a->what_if)
        return usage_error("--what-if is of one plan, not of several");
    if (all && a->svg)
        return usage_error("--svg draws one plan, or a --sweep");
    return SNUG_OK;
}

static enum snug_status run(struct cli *cli)
{
    struct snug_config *config;
    bool all = cli->args.gpu && strcmp(cli->args.gpu, "all") == 0;
    enum snug_status status = check_options(&cli->args, all);
    if (status == SNUG_OK)
        status = load_config(cli, &config);
    if (status != SNUG_OK)
        return status;
    cli->settings.gpu = cli->args.gpu;
    cli->settings.replans = cli->args.replan;
    status = all               ? run_plan_cards(cli)
             : cli->args.sweep ? run_plan_sweep(cli)
                               : run_plan(cli, config);
    snug_config_free(config);
    return status;
}

const struct command cmd_plan = {
    .name = "plan",
    .usage =
        "plan CONFIG [key=value ...] [--gpu NAME|all] [--sweep RANGE] [--html FILE] [--svg FILE] "
        "[--snapshot FILE] [--dump graph|program] [--what-if] [--replan] [--json]",
    .summary = "say what every byte and second of a training step will be, and whether it fits",
    .text =
        "Builds the training step, lays it out in memory to the byte, checks it, and prints\n"
        "what every byte is for, how long a step will take, what binds, and the memory over\n"
        "the step. Nothing is trained and no large memory is taken (on a GPU, kernels of shapes\n"
        "that were never planned there before are timed for a moment). When the plan does not\n"
        "fit the memory given (device_memory, host_memory), it names settings with which it\n"
        "would, each with what it needs, how fast it is and what it costs, and exits with 3.\n\n"
        "--gpu NAME plans for a GPU that need not be here, without a driver: its memory to the\n"
        "byte, its time as an estimate. --gpu all says in a line each how it would run on every\n"
        "card there is a name for. --sweep plans for one budget after the other.",
    .examples = "  snug plan configs/gpt2-124m.yaml device_memory=2GiB\n"
                "  snug plan configs/demo.yaml --json | jq .predicted.arena_bytes\n"
                "  snug plan configs/gpt2-124m.yaml device_memory=1GiB --what-if\n"
                "  snug plan configs/demo.yaml --html plan.html\n"
                "  snug plan configs/demo.yaml --svg memory.svg\n"
                "  snug plan configs/qwen2.5-7b.yaml --gpu rtx4090 host_memory=64GiB\n"
                "  snug plan configs/gpt2-1558m.yaml --gpu all bf16=true\n"
                "  snug plan configs/gpt2-1558m.yaml --gpu h200 --sweep device_memory=4GiB..24GiB\n"
                "  snug plan configs/demo.yaml --quiet --dump program | less",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .min_words = 1,
    .max_words = 1,
    .takes_overrides = true,
    .run = run,
};
