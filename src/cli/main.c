/* main.c: finds the command, reads the environment, reports how it ended. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"

const struct command *const commands[] = {
    &cmd_init, &cmd_plan, &cmd_train,    &cmd_monitor, &cmd_budget, &cmd_eval, &cmd_generate,
    &cmd_chat, &cmd_data, &cmd_tokenize, &cmd_export,  &cmd_env,    &cmd_help, NULL};

const struct command *find_command(const char *name)
{
    for (size_t i = 0; commands[i]; i++) {
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    }
    return NULL;
}

enum snug_status usage_error(const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    (void)FAIL(ERR_USAGE, "%s", text);
    return SNUG_ERR_USAGE;
}

enum snug_status memory_error(void)
{
    (void)FAIL(ERR_MEMORY, "out of memory for the command line");
    return SNUG_ERR_MEMORY;
}

static enum snug_status unknown_command(const char *name)
{
    const char *names[16];
    size_t n = 0;
    for (; commands[n]; n++)
        names[n] = commands[n]->name;
    const char *near = suggest(name, names, n);
    return usage_error("there is no command '%s'%s%s%s; see snug help", name,
                       near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

/* ---- environment ----------------------------------------------------------------------------- */

/* A variable that is set to something. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* The number of threads that programs commonly are told this way: the first of a list by levels of
 * nesting. What is no such number is as good as unset. */
static int threads_of(const char *text)
{
    char *end;
    long n = text ? strtol(text, &end, 10) : 0;
    return n > 0 && n <= 4096 && (*end == '\0' || *end == ',') ? (int)n : 0;
}

static void read_environment(struct cli *cli)
{
    const char *cache = variable("HF_HUB_CACHE"), *root = variable("HF_HOME");
    const char *home = variable("HOME");
    if (cache)
        str_add(&cli->hub_folder, cache);
    else if (root)
        str_addf(&cli->hub_folder, "%s/hub", root);
    else if (home)
        str_addf(&cli->hub_folder, "%s/.cache/huggingface/hub", home);
    cli->settings.hub_folder = cli->hub_folder.text;
    const char *caches = variable("XDG_CACHE_HOME");
    if (caches)
        str_addf(&cli->cache_folder, "%s/snug", caches);
    else if (home)
        str_addf(&cli->cache_folder, "%s/.cache/snug", home);
    cli->settings.cache_folder = cli->cache_folder.text;
    cli->settings.logging_dir = variable("TENSORBOARD_LOGGING_DIR");
    cli->settings.num_threads = threads_of(variable("OMP_NUM_THREADS"));
    if (variable("NO_COLOR"))
        log_set_colour(0);
}

/* ---- standard files -------------------------------------------------------------------------- */

/* A file opened later must not get the number of a standard one that came closed: log lines would
 * go into it. What stands there instead can be neither read (0) nor written (1, 2), so that output
 * is missed as it would be otherwise. */
static void hold_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static void apply_common(const struct args *args)
{
    if (args->no_color)
        log_set_colour(0);
    if (args->quiet)
        log_set_level(LOG_WARN);
    if (args->verbose)
        log_set_level(LOG_DEBUG);
}

/* Several mistakes are a line each; lines that are indented belong to the one above, and stay as
 * they are: settings that can be pasted. */
static const char *end_of_mistake(const char *line)
{
    const char *end = line + strcspn(line, "\n");
    while (end[0] == '\n' && end[1] == ' ')
        end += 1 + strcspn(end + 1, "\n");
    return end;
}

/* Prints the error for people, and for machines unless the command has printed its object. */
static int report(struct cli *cli, bool json, enum snug_status status)
{
    bool interrupted = status == SNUG_ERR_INTERRUPTED || status == SNUG_ERR_TERMINATED ||
                       status == SNUG_ERR_HANGUP;
    const char *end;
    for (const char *line = snug_error_message(); line; line = *end ? end + 1 : NULL) {
        end = end_of_mistake(line);
        if (interrupted)
            log_warn("%.*s", (int)(end - line), line);
        else
            log_error("%.*s", (int)(end - line), line);
    }
    log_debug("%s at %s", snug_status_name(status), snug_error_place());
    if (json && !cli->printed_json) {
        char *text = NULL;
        if (snug_error_json(status, &text) == SNUG_OK)
            (void)print_json(cli, text);
    }
    return snug_exit_code(status);
}

static enum snug_status run_command(struct cli *cli, const struct command *c, int argc, char **argv)
{
    enum snug_status status = parse_args(c, argc, argv, &cli->args);
    if (status != SNUG_OK)
        return status;
    apply_common(&cli->args);
    if (!cli->args.help)
        return c->run(cli);
    print_command_help(c);
    return SNUG_OK;
}

static enum snug_status dispatch(struct cli *cli, int argc, char **argv)
{
    if (argc < 2)
        return usage_error("no command given; snug help lists them");
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        (void)printf("snug %s\n", snug_version());
        return SNUG_OK;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    const struct command *c = find_command(name);
    return c ? run_command(cli, c, argc - 2, argv + 2) : unknown_command(name);
}

/* True when the arguments ask for JSON, also when they cannot be parsed. */
static bool wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    struct cli cli = {
        .stop = signals_stop(),
        .args = {.max_new_tokens = NOT_GIVEN, .temperature = 0.8, .top_p = 1.0, .n_samples = 3}};
    hold_standard_files();
    log_set_level(LOG_INFO);
    pool_init(&cli.args.pool);
    signals_owe_json(wants_json(argc, argv));
    catch_signals();
    read_environment(&cli);
    enum snug_status status = dispatch(&cli, argc, argv);
    int code = status == SNUG_OK ? 0 : report(&cli, wants_json(argc, argv), status);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        log_error("stdout could not be written");
        code = code == 0 ? 1 : code;
    }
    args_release(&cli.args);
    str_release(&cli.hub_folder);
    str_release(&cli.cache_folder);
    return code;
}
