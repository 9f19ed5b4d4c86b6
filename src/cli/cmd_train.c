/* cmd_train.c: trains. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/output.h"
#include "cli/cli.h"

enum { DEFAULT_TIMED_STEPS = 3 }; /* of --profile and --html */

static const struct option options[] = {
    {"resume", 0, OPTION_FLAG, offsetof(struct args, resume), NULL,
     "go on from the newest complete checkpoint in output_dir (resume_from_checkpoint=last)"},
    {"dry-run", 0, OPTION_FLAG, offsetof(struct args, dry_run), NULL,
     "plan only, as snug plan does: exit status 0 when it fits, 3 when not"},
    {"fast-dev-run", 0, OPTION_POSITIVE, offsetof(struct args, fast_dev_run), "N",
     "a rehearsal: N steps, an evaluation if there is data for one, a checkpoint that is read "
     "back; in output_dir/fast-dev-run"},
    {"profile", 0, OPTION_OPTIONAL, offsetof(struct args, profile), "FILE",
     "time every instruction of a few steps: a table at the end, and a trace for Perfetto or "
     "chrome://tracing in FILE (output_dir/profile.json)"},
    {"html", 0, OPTION_TEXT, offsetof(struct args, html), "FILE",
     "time a few steps as a profile does, and write the page of snug plan with what was measured "
     "beside what was predicted"},
    {"serve", 0, OPTION_OPTIONAL, offsetof(struct args, serve), "[HOST:]PORT",
     "show the run in a browser while it trains, at 127.0.0.1:7007 unless said otherwise"},
    {"profile-steps", 0, OPTION_POSITIVE, offsetof(struct args, profile_steps), "N",
     "how many steps a profile times, from the fourth on (3)"},
    {"replan", 0, OPTION_FLAG, offsetof(struct args, replan), NULL,
     "search for the plan again, also where it is kept from the last time"},
};

static enum snug_status add(struct args *args, const char *key, const char *value)
{
    const char *text = pool_printf(&args->pool, "%s=%s", key, value);
    if (!text || vec_push(&args->overrides, text) != OK)
        return memory_error();
    return SNUG_OK;
}

/* Overrides that make a rehearsal out of the config, which is loaded once to see what it has. */
static enum snug_status shorten(struct cli *cli)
{
    struct args *a = &cli->args;
    struct snug_config *config;
    char steps[32];
    (void)snprintf(steps, sizeof(steps), "%lld", (long long)a->fast_dev_run);
    enum snug_status status = load_config(cli, &config);
    if (status != SNUG_OK)
        return status;
    const char *folder = pool_printf(&a->pool, "%s/fast-dev-run", snug_config_output_dir(config));
    bool evaluates =
        snug_config_is_set(config, "eval_datasets") || snug_config_is_set(config, "val_set_size");
    snug_config_free(config);
    const struct {
        const char *key, *value;
    } changes[] = {
        {"max_steps", steps},           {"output_dir", folder ? folder : ""},
        {"logging_steps", "1"},         {"save_strategy", "steps"},
        {"save_steps", steps},          {"eval_strategy", evaluates ? "steps" : "no"},
        {"eval_steps", steps},          {"eval_max_batches", "1"},
        {"resume_from_checkpoint", ""}, {"overwrite_output_dir", "true"},
    };
    for (size_t i = 0; i < ARRAY_LEN(changes) && status == SNUG_OK; i++)
        status = add(a, changes[i].key, changes[i].value);
    return status;
}

/* What is written after steps is not found out to be impossible after them. */
static enum snug_status check_outputs(const struct args *a)
{
    const char *const paths[] = {a->html, a->profile && *a->profile ? a->profile : NULL};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        if (paths[i] && output_check(paths[i]) != OK)
            return SNUG_ERR_IO;
    }
    return SNUG_OK;
}

static enum snug_status prepare(struct cli *cli, struct snug_config **config)
{
    const struct args *a = &cli->args;
    if (a->fast_dev_run > 0 && a->resume)
        return usage_error("--fast-dev-run starts fresh: leave --resume out");
    enum snug_status status = check_outputs(a);
    if (a->resume && status == SNUG_OK)
        status = add(&cli->args, "resume_from_checkpoint", "last");
    if (a->fast_dev_run > 0 && status == SNUG_OK)
        status = shorten(cli);
    return status == SNUG_OK ? load_config(cli, config) : status;
}

/* A rehearsal ends with reading its checkpoint back. */
static enum snug_status read_back(const struct snug_run *run)
{
    struct snug_train_result r;
    snug_run_result(run, &r);
    if (!r.last_checkpoint)
        return SNUG_OK;
    enum snug_status status = snug_checkpoint_verify(r.last_checkpoint);
    if (status == SNUG_OK)
        log_info("%s reads back whole", r.last_checkpoint);
    return status;
}

/* Where the trace goes; NULL: none is wanted. */
static enum snug_status profile_path(struct cli *cli, const struct snug_config *config,
                                     const char **path)
{
    struct args *a = &cli->args;
    *path = a->profile;
    if (a->profile_steps > 0 && !a->profile && !a->html)
        return usage_error("--profile-steps is for --profile or --html; neither is there");
    if (!a->profile || *a->profile)
        return SNUG_OK;
    *path = pool_printf(&a->pool, "%s/profile.json", snug_config_output_dir(config));
    return *path ? SNUG_OK : memory_error();
}

static void show_profile(const struct snug_run *run, const char *path)
{
    struct snug_train_result r;
    snug_run_result(run, &r);
    if (!r.profile)
        return;
    log_info("where the time of a step went (mean of the profiled steps):");
    for (const char *line = r.profile; *line;) {
        size_t n = strcspn(line, "\n");
        log_info("  %.*s", (int)n, line);
        line += n + (line[n] == '\n');
    }
    if (path)
        log_info("wrote     %s: open it at https://ui.perfetto.dev or in chrome://tracing", path);
}

static enum snug_status train(struct cli *cli, const struct snug_config *config)
{
    struct snug_run *run;
    char *json = NULL;
    struct snug_train_options o = {
        .stop = cli->stop, .terminal = !cli->args.quiet, .profile_steps = cli->args.profile_steps};
    enum snug_status asked = profile_path(cli, config, &o.profile);
    if (asked != SNUG_OK)
        return asked;
    if (cli->args.html && !o.profile_steps)
        o.profile_steps = DEFAULT_TIMED_STEPS;
    enum snug_status status = snug_run_open(&run, config, &cli->settings, SNUG_TRAIN);
    if (status != SNUG_OK)
        return status;
    show_banner(run);
    signals_finish(true);
    status = snug_run_train(run, &o);
    show_summary(run, status);
    if (status == SNUG_OK)
        show_profile(run, o.profile);
    if (status == SNUG_OK && cli->args.html)
        status = write_page(run, status, cli->args.html);
    if (status == SNUG_OK && cli->args.fast_dev_run > 0)
        status = read_back(run);
    if (cli->args.json && snug_run_json(run, status, &json) == SNUG_OK) {
        enum snug_status printed = print_json(cli, json);
        status = status == SNUG_OK ? printed : status;
    }
    snug_run_close(run);
    return status;
}

/* The page comes first: it is served by a process that is split off while this one is small. */
static enum snug_status open_page(struct cli *cli, const struct snug_config *config,
                                  struct snug_server **page)
{
    *page = NULL;
    if (!cli->args.serve)
        return SNUG_OK;
    enum snug_status status = snug_server_open(page, snug_config_output_dir(config),
                                               cli->args.serve, &cli->settings, NULL);
    if (status == SNUG_OK)
        status = snug_server_start(*page);
    if (status == SNUG_OK)
        log_info("page      %s", snug_server_url(*page));
    return status;
}

static enum snug_status train_watched(struct cli *cli, const struct snug_config *config)
{
    struct snug_server *page;
    enum snug_status status = open_page(cli, config, &page);
    if (status == SNUG_OK)
        status = train(cli, config);
    snug_server_close(page);
    return status;
}

static enum snug_status run(struct cli *cli)
{
    struct snug_config *config = NULL;
    cli->settings.replans = cli->args.replan;
    enum snug_status status = prepare(cli, &config);
    if (status != SNUG_OK)
        return status;
    status = cli->args.dry_run ? run_plan(cli, config) : train_watched(cli, config);
    snug_config_free(config);
    return status;
}

const struct command cmd_train = {
    .name = "train",
    .usage = "train CONFIG [key=value ...] [--resume] [--dry-run] [--fast-dev-run N] "
             "[--profile[=FILE]] [--html FILE] [--serve[=[HOST:]PORT]] [--replan] [--json]",
    .summary = "train a model inside the memory given",
    .text =
        "Plans as snug plan does, refuses (exit status 3) what does not fit, and trains. Each\n"
        "line shows loss, gradient norm, learning rate, speed, and memory: the arena measured\n"
        "against predicted, the process measured against predicted. output_dir receives\n"
        "checkpoints (Hugging Face model folders with everything a run needs to go on),\n"
        "config.yaml, metrics.jsonl and TensorBoard events.\n\n"
        "A folder that another run has used is refused: --resume goes on with that run,\n"
        "overwrite_output_dir=true starts over.\n\n"
        "Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 finish the step, save a checkpoint and exit with\n"
        "130 (143 for SIGTERM, 129 for SIGHUP); a second Ctrl-C ends at once. `touch\n"
        "output_dir/SAVE` saves after the step, `touch output_dir/STOP` saves and ends, and while\n"
        "output_dir/PAUSE is there the run waits. snug monitor OUTPUT_DIR watches it.",
    .examples = "  snug train configs/demo.yaml\n"
                "  snug train configs/demo.yaml max_steps=50 learning_rate=3e-4\n"
                "  snug train configs/demo.yaml --resume\n"
                "  snug train configs/demo.yaml --fast-dev-run 3 --json\n"
                "  snug train configs/demo.yaml max_steps=6 --profile",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .min_words = 1,
    .max_words = 1,
    .takes_overrides = true,
    .run = run,
};
