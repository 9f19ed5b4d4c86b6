/* cmd_monitor.c: watches a run from a second terminal. */
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"

static const struct option options[] = {
    {"once", 0, OPTION_FLAG, offsetof(struct args, once), NULL,
     "print what is seen now as text, and end"},
    {"advise", 0, OPTION_FLAG, offsetof(struct args, advise), NULL,
     "plan what the run could go on with in less memory: settings with bytes and time, for seconds "
     "or minutes"},
    {"serve", 0, OPTION_OPTIONAL, offsetof(struct args, serve), "[HOST:]PORT",
     "a page for a browser instead, at 127.0.0.1:7007 unless said otherwise, until it is stopped"},
    {"thresholds", 0, OPTION_TEXT, offsetof(struct args, thresholds), "NAME",
     "when memory is short: balanced (warning at 92%, critical 95%, emergency 97%), aggressive "
     "(94, 96, 98) or conservative (88, 92, 95)"},
};

enum { TEXT_COLUMNS = 80, TEXT_ROWS = 24 };

static enum snug_status print_once(struct cli *cli, const struct snug_monitor *m)
{
    char *text;
    bool terminal = isatty(STDOUT_FILENO) == 1;
    int n_columns = terminal && log_columns() > 0 ? log_columns() : TEXT_COLUMNS;
    enum snug_status status =
        cli->args.json
            ? snug_monitor_json(m, &text)
            : snug_monitor_text(m, n_columns, TEXT_ROWS, terminal && log_use_colour() != 0, &text);
    if (status != SNUG_OK)
        return status;
    return cli->args.json ? print_json(cli, text) : print_text(text);
}

static enum snug_status serve(struct cli *cli)
{
    struct snug_server *s;
    const struct args *a = &cli->args;
    enum snug_status status =
        snug_server_open(&s, a->words.items[0], a->serve, &cli->settings, a->thresholds);
    if (status != SNUG_OK)
        return status;
    log_info("page      %s", snug_server_url(s));
    signals_finish(true);
    status = snug_server_run(s, cli->stop);
    signals_finish(false);
    snug_server_close(s);
    return status;
}

static enum snug_status run(struct cli *cli)
{
    struct snug_monitor *m;
    const struct args *a = &cli->args;
    if (a->serve)
        return serve(cli);
    enum snug_status status =
        snug_monitor_open(&m, a->words.items[0], &cli->settings, a->thresholds);
    if (status == SNUG_OK && a->advise)
        status = snug_monitor_advise(m);
    bool screen = !a->once && !a->json && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    if (status == SNUG_OK && screen) {
        signals_finish(true); /* the terminal is given back as it was */
        status = snug_monitor_screen(m, log_use_colour() != 0 || !a->no_color, cli->stop);
        signals_finish(false);
    } else if (status == SNUG_OK) {
        status = print_once(cli, m);
    }
    snug_monitor_close(m);
    return status;
}

const struct command cmd_monitor = {
    .name = "monitor",
    .usage = "monitor OUTPUT_DIR [--once] [--serve[=[HOST:]PORT]] [--advise] [--thresholds NAME] "
             "[--json]",
    .summary = "watch a run from another terminal",
    .text =
        "Shows a run that trains in OUTPUT_DIR: loss, speed measured beside predicted, time\n"
        "left, and its memory. What the run holds is planned for every instruction, so it is\n"
        "shown to the byte for the one that runs; what others hold of the machine and the GPU\n"
        "is asked for once a second. The run is not slowed.\n\n"
        "Health is about what the run needs of its budget, or of what others leave it:\n"
        "underutilised, healthy, warning, critical, emergency. Alerts say who grows and how\n"
        "long what is free will last; with them come settings that need less, each planned.\n\n"
        "On a terminal it fills the screen: q ends it, s saves a checkpoint, p pauses the run\n"
        "and lets it go on, x stops it after the step. Elsewhere, or with --once, it prints\n"
        "one look as text; --json one object.\n\n"
        "--serve shows it in a browser. Whoever reaches the port sees the run; to save, pause or\n"
        "stop it takes the token that is part of the address.",
    .examples = "  snug monitor out/demo\n"
                "  snug monitor out/demo --once\n"
                "  snug monitor out/demo --serve\n"
                "  snug monitor out/demo --json --advise",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
