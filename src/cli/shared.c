/* shared.c: what several commands do. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/cli.h"

/* A file that the command is to write must not be the config it reads. */
static enum snug_status refuse_output(const char *config, const char *output)
{
    if (output && file_is_same(config, output) && !file_is_folder(config))
        return usage_error("%s: the output is the config itself; give another name", output);
    return SNUG_OK;
}

/* log_level of the config, unless the command line says how much to show. */
static void apply_log_level(const struct args *a, const struct snug_config *config)
{
    static const struct {
        const char *word;
        enum log_level level;
    } levels[] = {
        {"debug", LOG_DEBUG}, {"info", LOG_INFO}, {"warning", LOG_WARN}, {"error", LOG_ERROR}};
    for (size_t i = 0; i < ARRAY_LEN(levels) && !a->quiet && !a->verbose; i++) {
        if (strcmp(levels[i].word, snug_config_log_level(config)) == 0)
            log_set_level(levels[i].level);
    }
}

static enum snug_status load(const struct args *a, struct snug_config **out)
{
    const char *const outputs[] = {a->output, a->svg, a->html, a->snapshot, a->profile};
    for (size_t i = 0; i < ARRAY_LEN(outputs); i++) {
        enum snug_status status = refuse_output(a->words.items[0], outputs[i]);
        if (status != SNUG_OK)
            return status;
    }
    return snug_config_load(out, a->words.items[0], a->overrides.items, a->overrides.n);
}

enum snug_status load_config(struct cli *cli, struct snug_config **out)
{
    enum snug_status status = load(&cli->args, out);
    if (status == SNUG_OK)
        apply_log_level(&cli->args, *out);
    return status;
}

enum snug_status load_model_config(struct cli *cli, struct snug_config **out)
{
    enum log_level level = log_get_level();
    if (level == LOG_INFO)
        log_set_level(LOG_WARN);
    enum snug_status status = load(&cli->args, out);
    log_set_level(level);
    if (status == SNUG_OK)
        apply_log_level(&cli->args, *out);
    return status;
}

/* Takes over the bytes. */
static enum snug_status write_file(char *bytes, size_t n_bytes, const char *path)
{
    enum status status = file_write_atomic(path, bytes, n_bytes);
    if (status == OK)
        log_info("wrote %s", path);
    snug_free(bytes);
    return status == OK ? SNUG_OK : SNUG_ERR_IO;
}

static enum snug_status write_svg(const struct snug_run *run, const char *path)
{
    char *text;
    enum snug_status status = snug_run_timeline_svg(run, &text);
    return status == SNUG_OK ? write_file(text, strlen(text), path) : status;
}

static enum snug_status write_snapshot(const struct snug_run *run, const char *path)
{
    char *bytes;
    size_t n_bytes;
    enum snug_status status = snug_run_snapshot(run, &bytes, &n_bytes);
    return status == SNUG_OK ? write_file(bytes, n_bytes, path) : status;
}

enum snug_status write_page(const struct snug_run *run, enum snug_status status, const char *path)
{
    char *text;
    enum snug_status made = snug_run_page(run, status, &text);
    if (made == SNUG_OK)
        made = write_file(text, strlen(text), path);
    return made == SNUG_OK ? status : made;
}

/* --dump WHAT: stdout belongs to that text. */
static enum snug_status check_dump(const struct args *args)
{
    if (args->dump && args->json)
        return usage_error("--dump and --json both print on stdout: give one of them");
    if (args->dump && strcmp(args->dump, "graph") != 0 && strcmp(args->dump, "program") != 0)
        return usage_error("--dump is '%s'; it must be graph or program", args->dump);
    return SNUG_OK;
}

static enum snug_status print_dump(const struct snug_run *run, const char *what)
{
    char *text;
    bool graph = strcmp(what, "graph") == 0;
    enum snug_status status =
        snug_run_dump(run, graph ? SNUG_DUMP_GRAPH : SNUG_DUMP_PROGRAM, &text);
    return status == SNUG_OK ? print_text(text) : status;
}

enum snug_status run_plan(struct cli *cli, const struct snug_config *config)
{
    struct snug_run *run;
    char *json = NULL;
    enum snug_status status = check_dump(&cli->args);
    if (status == SNUG_OK)
        status = snug_run_open(&run, config, &cli->settings, SNUG_TRAIN);
    if (status != SNUG_OK)
        return status;
    show_plan(run);
    status = show_timeline(run);
    if (status == SNUG_OK && cli->args.svg)
        status = write_svg(run, cli->args.svg);
    if (status == SNUG_OK && cli->args.snapshot)
        status = write_snapshot(run, cli->args.snapshot);
    if (status == SNUG_OK && cli->args.dump)
        status = print_dump(run, cli->args.dump);
    if (status == SNUG_OK)
        status = snug_run_require_fit(run);
    if (status == SNUG_OK && cli->args.what_if)
        status = show_prospects(run);
    if (cli->args.html && (status == SNUG_OK || status == SNUG_ERR_FIT))
        status = write_page(run, status, cli->args.html);
    if (cli->args.json && snug_run_json(run, status, &json) == SNUG_OK)
        (void)print_json(cli, json);
    snug_run_close(run);
    return status;
}
