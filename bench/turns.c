/* turns.c: plans of one config against each other, by turns in one process.
 *
 *     bench_turns [ranks=N] [rounds=N] [warm=N] [turn=N] CONFIG [key=value...] [-- key=value...]...
 *
 * The plans are the N best of the config, and what each group of further settings makes of it
 * (other levers; nothing that changes the numbers). A process differs from the next by a percent,
 * and a device gets slower as it gets warm, so plans that are as close as that are only told apart
 * in one process: each has a turn of a few steps there (1 2 3) and one back (3 2 1), and those that
 * come close to the fastest have more such rounds. Each turn begins with a changeover, from a plan
 * to itself, too: steps after one are not like later ones. One JSON object a plan: what was
 * predicted, the median of each turn's steps after the first (warm=) ones, and all steps. Kernel
 * times come from the cache of `snug`, and go there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "random_batch.h"

enum { MOST_PLANS = 32, MOST_TURNS = 64, MOST_STEPS = 64, N_FIRST = 12 };
static const double CLOSE = 1.01; /* of the fastest's time: what has more than one round */

struct contender {
    const char *name;
    struct config *config; /* that decisions point into; NULL: the session's */
    struct decisions decisions;
    const struct contender *same; /* as that one; NULL: as none */
    double planned_s;
    int64_t n_bytes[TIER_COUNT];
    double turns[MOST_TURNS];             /* seconds a step */
    double steps[MOST_TURNS][MOST_STEPS]; /* of each, those that do not count first */
    int n_turns;
};

struct turns {
    struct session session;
    struct pool pool; /* of the decisions */
    struct contender all[MOST_PLANS];
    int n;
    int32_t step;
    int n_ranks, n_rounds, n_warm, n_timed;
};

/* ---- plans ----------------------------------------------------------------------------------- */

/* Programs that take as long and as much are one. */
static const struct contender *find_same(const struct turns *x, const struct contender *c)
{
    for (int i = 0; i < x->n; i++) {
        const struct contender *o = &x->all[i];
        if (!o->same && o->planned_s == c->planned_s &&
            memcmp(o->n_bytes, c->n_bytes, sizeof(c->n_bytes)) == 0)
            return o;
    }
    return NULL;
}

static enum status add_plan(struct turns *x, const char *name, const struct engine *e)
{
    struct contender *c = &x->all[x->n];
    c->name = name;
    c->planned_s = e->forecast.step_s;
    memcpy(c->n_bytes, e->work.n_bytes, sizeof(c->n_bytes));
    c->same = find_same(x, c);
    TRY(decisions_keep(&e->settings.decisions, &x->pool, &c->decisions));
    x->n++;
    return OK;
}

static enum status add_replanned(struct turns *x, const char *name, const struct replan *r)
{
    struct engine next;
    enum status status = engine_replan(&x->session.engine, r, &next);
    if (status != OK) {
        (void)fprintf(stderr, "%s: %s\n", name, status_message());
        config_free(x->all[x->n].config);
        x->all[x->n].config = NULL;
        return status == ERR_FIT ? OK : status;
    }
    status = add_plan(x, name, &next);
    engine_discard(&next);
    return status;
}

/* The best of the config: what runs, and the next of the list. */
static enum status add_ranks(struct turns *x)
{
    static const char *const names[MAX_FINDINGS] = {"plan 1", "plan 2", "plan 3", "plan 4",
                                                    "plan 5"};
    const struct engine *e = &x->session.engine;
    TRY(add_plan(x, names[0], e));
    for (int i = 1; i < MIN(x->n_ranks, e->report.n_findings); i++)
        TRY(add_replanned(x, names[i],
                          &(struct replan){.limits = e->settings.limits,
                                           .known = &e->report.findings[i].decisions,
                                           .rank = i + 1}));
    return OK;
}

/* What comes of the config with more settings. */
static enum status add_group(struct turns *x, const char *path, const char *const *settings,
                             size_t n_common, const char *const *more, size_t n_more)
{
    const char *all[256];
    struct config **cfg = &x->all[x->n].config;
    struct str name = {0};
    if (n_common + n_more > ARRAY_LEN(all) || x->n == MOST_PLANS)
        return FAIL(ERR_USAGE, "more than %zu settings or %d plans", ARRAY_LEN(all), MOST_PLANS);
    for (size_t i = 0; i < n_common; i++)
        all[i] = settings[i];
    for (size_t i = 0; i < n_more; i++) {
        all[n_common + i] = more[i];
        str_addf(&name, "%s%s", i ? " " : "", more[i]);
    }
    char *kept = str_status(&name) == OK ? pool_strdup(&x->pool, str_text(&name)) : NULL;
    enum status status = kept ? config_load(cfg, path, all, n_common + n_more)
                              : FAIL(ERR_MEMORY, "no memory for a name");
    if (status == OK)
        status = config_resolve(*cfg, 1);
    if (status == OK)
        status = add_replanned(
            x, kept, &(struct replan){.limits = x->session.engine.settings.limits, .config = *cfg});
    str_release(&name);
    return status;
}

/* ---- turns ----------------------------------------------------------------------------------- */

static enum status run_step(struct turns *x, const struct stage *train, double *seconds)
{
    double began = now_s();
    int32_t *step = engine_input(&x->session.engine, train, "step");
    if (step) /* with loss scaling the program counts by itself */
        *step = ++x->step;
    TRY(engine_run(&x->session.engine, train, "step"));
    *seconds = now_s() - began;
    return OK;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum status change_to(struct turns *x, int i)
{
    struct engine next, *e = &x->session.engine;
    struct replan r = {.limits = e->settings.limits, .known = &x->all[i].decisions, .rank = 1};
    struct changeover over = {.folder = "."};
    TRY(engine_replan(e, &r, &next));
    enum status status = engine_change_over(e, &next, &over);
    engine_discard(&next);
    return status;
}

static enum status take_turn(struct turns *x, int i)
{
    struct contender *c = &x->all[i];
    const int n_before = x->step == 0 ? N_FIRST : 0, n_steps = x->n_warm + x->n_timed;
    double *steps = c->steps[c->n_turns], counted[MOST_STEPS], ignored;
    TRY(change_to(x, i));
    const struct stage *train = engine_stage(&x->session.engine, STAGE_TRAIN);
    fill_random_batch(&x->session, train);
    for (int k = 0; k < n_before; k++)
        TRY(run_step(x, train, &ignored));
    for (int k = 0; k < n_steps; k++)
        TRY(run_step(x, train, &steps[k]));
    memcpy(counted, steps + x->n_warm, sizeof(*counted) * (size_t)x->n_timed);
    qsort(counted, (size_t)x->n_timed, sizeof(*counted), compare_doubles);
    c->turns[c->n_turns++] = (counted[(x->n_timed - 1) / 2] + counted[x->n_timed / 2]) / 2;
    return OK;
}

static double mean_of(const struct contender *c)
{
    double sum = 0;
    for (int k = 0; k < c->n_turns; k++)
        sum += c->turns[k];
    return sum / c->n_turns;
}

/* Does it have another round? Those do that have had all so far, and came close; and the one plan
 * that the others are held against, where none is chosen by its turns. */
static bool is_in(const struct turns *x, const struct contender *c)
{
    double fastest = 0;
    int most = 0;
    if (x->n_ranks == 1 && c == &x->all[0])
        return true;
    for (int i = 0; i < x->n; i++)
        most = MAX(most, x->all[i].n_turns);
    if (c->same || most == 0)
        return !c->same;
    for (int i = 0; i < x->n; i++) {
        const struct contender *o = &x->all[i];
        if (o->n_turns == most && (fastest == 0 || mean_of(o) < fastest))
            fastest = mean_of(o);
    }
    return c->n_turns == most && mean_of(c) <= CLOSE * fastest;
}

static enum status run_rounds(struct turns *x)
{
    for (int round = 0; round < x->n_rounds; round++) {
        int in[MOST_PLANS], n = 0;
        for (int i = 0; i < x->n; i++) {
            if (is_in(x, &x->all[i]))
                in[n++] = i;
        }
        for (int k = 0; k < 2 * n; k++)
            TRY(take_turn(x, in[k < n ? k : 2 * n - 1 - k]));
    }
    return OK;
}

static void print_steps(const double *seconds, int n, bool is_next)
{
    (void)printf("%s[", is_next ? ", " : "");
    for (int k = 0; k < n; k++)
        (void)printf("%s%.3f", k ? ", " : "", 1e3 * seconds[k]);
    (void)printf("]");
}

static void print_results(const struct turns *x)
{
    for (int i = 0; i < x->n; i++) {
        const struct contender *c = &x->all[i];
        (void)printf("{\"plan\": \"%s\", \"planned_ms\": %.4f, \"arena_bytes\": %lld, ", c->name,
                     1e3 * c->planned_s, (long long)c->n_bytes[TIER_DEVICE]);
        if (c->same)
            (void)printf("\"same_as\": \"%s\", ", c->same->name);
        (void)printf("\"turns_ms\": [");
        for (int k = 0; k < c->n_turns; k++)
            (void)printf("%s%.4f", k ? ", " : "", 1e3 * c->turns[k]);
        (void)printf("], \"steps_ms\": [");
        for (int k = 0; k < c->n_turns; k++)
            print_steps(c->steps[k], x->n_warm + x->n_timed, k > 0);
        (void)printf("]}\n");
    }
}

/* ---- the command line ------------------------------------------------------------------------ */

/* An option of this program, in front of the config. */
static bool take_option(struct turns *x, const char *text)
{
    return sscanf(text, "ranks=%d", &x->n_ranks) == 1 ||   // NOLINT(cert-err34-c)
           sscanf(text, "rounds=%d", &x->n_rounds) == 1 || // NOLINT(cert-err34-c)
           sscanf(text, "warm=%d", &x->n_warm) == 1 ||     // NOLINT(cert-err34-c)
           sscanf(text, "turn=%d", &x->n_timed) == 1;      // NOLINT(cert-err34-c)
}

/* The settings from argv[i] on, up to the next group of them. */
static int group_length(char **argv, int i, int argc)
{
    int n = 0;
    while (i + n < argc && strcmp(argv[i + n], "--") != 0)
        n++;
    return n;
}

static enum status compare(struct turns *x, const char *path, char **argv, int argc)
{
    const char *const *settings = (const char *const *)argv;
    int n_common = group_length(argv, 0, argc);
    TRY(add_ranks(x));
    for (int i = n_common + 1; i < argc;) {
        int n = group_length(argv, i, argc);
        TRY(add_group(x, path, settings, (size_t)n_common, settings + i, (size_t)n));
        i += n + 1;
    }
    TRY(run_rounds(x));
    print_results(x);
    return OK;
}

static enum status open_and_compare(struct turns *x, const char *path, char **argv, int argc)
{
    const char *caches = getenv("XDG_CACHE_HOME");
    struct str folder = {0};
    struct config *cfg = NULL;
    if (caches)
        str_addf(&folder, "%s/snug", caches);
    enum status status =
        config_load(&cfg, path, (const char *const *)argv, (size_t)group_length(argv, 0, argc));
    if (status == OK)
        status = config_resolve(cfg, 1);
    if (status == OK)
        status =
            session_open(&x->session, cfg,
                         &(struct session_options){
                             .train = true, .cache_folder = caches ? str_text(&folder) : NULL});
    if (status == OK) {
        status = session_start(&x->session);
        if (status == OK)
            status = compare(x, path, argv, argc);
        session_close(&x->session);
    }
    config_free(cfg);
    str_release(&folder);
    return status;
}

/* Do the numbers make sense, and fit the tables? */
static bool are_sound(const struct turns *x)
{
    return x->n_timed >= 1 && x->n_warm >= 0 && x->n_warm + x->n_timed <= MOST_STEPS &&
           x->n_rounds >= 1 && 2 * x->n_rounds <= MOST_TURNS;
}

int main(int argc, char **argv)
{
    static struct turns x = {.n_ranks = 3, .n_rounds = 3, .n_warm = 6, .n_timed = 6};
    int i = 1;
    while (i < argc && take_option(&x, argv[i]))
        i++;
    pool_init(&x.pool);
    enum status status =
        i == argc || !are_sound(&x)
            ? FAIL(ERR_USAGE, "usage: bench_turns [ranks=N] [rounds=N] [warm=N] [turn=N] "
                              "CONFIG [key=value...] [-- key=value...]...")
            : open_and_compare(&x, argv[i], argv + i + 1, argc - i - 1);
    for (i = 0; i < MOST_PLANS; i++)
        config_free(x.all[i].config);
    pool_release(&x.pool);
    if (status != OK)
        (void)fprintf(stderr, "error: %s\n", status_message());
    return status_exit_code(status);
}
