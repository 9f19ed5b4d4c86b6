/* cli.h: inside cli/: commands, options, and what they share.
 *
 * The command line is a user of the library: it knows snug.h, and from base/ only text, errors and
 * the log. Machine output goes to stdout, people's to stderr (except that `env`, `help` and
 * `generate` are asked for their text: it goes to stdout unless --json).
 */
#ifndef SNUG_CLI_CLI_H
#define SNUG_CLI_CLI_H

#include <snug.h>

#include "base/pool.h"
#include "base/str.h"
#include "base/vec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A number that is not, where zero would be one. */
#define NOT_GIVEN INT64_MIN

/* Every option of every command; a command's table says which it has. */
struct args {
    bool help, json, no_color, quiet, verbose;
    bool resume, dry_run, force, merge, no_echo, ops, version, require_gpu, measure, what_if;
    bool once, advise, replan;
    int64_t profile_steps, fast_dev_run, max_new_tokens, top_k, seed, n_columns, n_samples, context;
    double temperature, top_p;
    const char *profile, *svg, *html, *snapshot, *dump, *gpu, *sweep, *prompt, *system, *stop_text,
        *checkpoint, *output, *dtype, *export_format, *thresholds, *serve, *preset, *model, *data,
        *card, *goal, *output_dir;
    VEC(const char *) words;     /* what is neither option nor override, in order */
    VEC(const char *) overrides; /* key=value */
    struct pool pool;            /* overrides made out of --key value */
};

/* An OPTIONAL is a flag that may carry a text: --name, --name=TEXT, or --name TEXT where TEXT can
 * be nothing else. */
enum option_kind {
    OPTION_FLAG,
    OPTION_TEXT,
    OPTION_INT,
    OPTION_POSITIVE, /* a whole number from 1 on; left out it is 0 */
    OPTION_FLOAT,
    OPTION_OPTIONAL
};

struct option {
    const char *name; /* "max-new-tokens" */
    char letter;      /* 'o'; 0: none */
    enum option_kind kind;
    size_t offset;          /* in struct args */
    const char *value_name; /* "N"; NULL for flags */
    const char *help;
};

/* What a command gets: its arguments and what the environment says. */
struct cli {
    struct args args;
    struct snug_settings settings;
    struct str hub_folder, cache_folder; /* settings point into them */
    bool printed_json;                   /* the command has put its object on stdout, or tried to */
    volatile sig_atomic_t *stop;         /* number of the signal that asked to stop; 0: none */
};

struct command {
    const char *name;
    const char *usage;   /* after "snug " */
    const char *summary; /* one line */
    const char *text;    /* what it does, for its --help */
    const char *examples;
    const struct option *options;
    size_t n_options;
    size_t min_words, max_words;
    bool takes_overrides;
    enum snug_status (*run)(struct cli *cli);
};

/* One file each: cmd_<name>.c. */
extern const struct command cmd_plan, cmd_train, cmd_eval, cmd_generate, cmd_chat, cmd_data,
    cmd_tokenize, cmd_export, cmd_budget, cmd_monitor, cmd_init, cmd_env, cmd_help;

/* main.c */
extern const struct command *const commands[]; /* NULL-terminated */
const struct command *find_command(const char *name);
/* Sets the thread's error and returns SNUG_ERR_USAGE. */
enum snug_status usage_error(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* The same for arguments that there is no memory for. */
enum snug_status memory_error(void);

/* signals.c */
void catch_signals(void);
volatile sig_atomic_t *signals_stop(void);
/* Whether a signal asks the command to finish, by cli->stop, instead of ending it at once. */
void signals_finish(bool finish);
/* Whether an ending at once has to put the object of its error on stdout. */
void signals_owe_json(bool owed);

/* options.c */
extern const struct option common_options[];
extern const size_t n_common_options;
/* argv[0] is the first argument after the command's name. */
enum snug_status parse_args(const struct command *c, int argc, char **argv,
                            struct args *args) SNUG_MUST_CHECK;
void args_release(struct args *args);

/* help.c */
void print_overview(void);
void print_command_help(const struct command *c);

/* report_line.c */
/* A line for people; where the terminal is too narrow it goes on in the next, indented. */
void show_line(int indent, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* output.c: everything that is printed about a plan or a run */
enum snug_status print_text(char *text); /* a line or more on stdout; takes over text */
enum snug_status print_json(struct cli *cli, char *text); /* takes over text; NULL: does nothing */
void show_plan(const struct snug_run *run);               /* the whole report */
void show_banner(const struct snug_run *run);             /* the short one of `train` */
/* What binds the plan, and what would make it faster. */
enum snug_status show_prospects(const struct snug_run *run);
enum snug_status show_timeline(const struct snug_run *run);
void show_summary(const struct snug_run *run, enum snug_status status);

/* shared.c */
/* The config the first word names, with all overrides. */
enum snug_status load_config(struct cli *cli, struct snug_config **out) SNUG_MUST_CHECK;
/* The same for commands that only want the model: without remarks about training data. */
enum snug_status load_model_config(struct cli *cli, struct snug_config **out) SNUG_MUST_CHECK;
/* The text of --prompt, where - is standard input, into memory of the arguments; NULL: none is
 * given.
 */
enum snug_status read_prompt(struct cli *cli, const char **out) SNUG_MUST_CHECK;
/* Text as it comes, on stdout. */
enum snug_status print_piece(void *user, const char *text, size_t n_bytes) SNUG_MUST_CHECK;
/* What a generation took, for people. */
void show_generation(const struct snug_generation *g);
/* Plans side by side (points.h): on every card; over a range of budgets. */
enum snug_status run_plan_cards(struct cli *cli) SNUG_MUST_CHECK;
enum snug_status run_plan_sweep(struct cli *cli) SNUG_MUST_CHECK;
/* The page of --html. A plan that does not fit has one too: it ends as `status` says, unless the
 * page cannot be made. */
enum snug_status write_page(const struct snug_run *run, enum snug_status status,
                            const char *path) SNUG_MUST_CHECK;
/* Plan only: prints the report, or the JSON object; SNUG_ERR_FIT when it does not fit. */
enum snug_status run_plan(struct cli *cli, const struct snug_config *config) SNUG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
