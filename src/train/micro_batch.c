#include "train/micro_batch.h"

#include <string.h>

#include "base/alloc.h"
#include "io/checkpoint.h"

bool micro_batch_is_open(const struct config *cfg)
{
    return cfg->per_device_train_batch_size == CONFIG_AUTO;
}

/* ---- what a checkpoint says ------------------------------------------------------------------ */

/* Of the newest in the run's folder: all of a run were made with one micro-batch. */
static enum status add_newest(const char *output_dir, struct str *path)
{
    struct pool pool;
    struct checkpoint_entries list;
    pool_init(&pool);
    enum status status = checkpoint_entries(&pool, output_dir, &list);
    if (status == OK && list.n > 0)
        str_addf(path, "%s/checkpoint-%lld", output_dir, (long long)list.items[list.n - 1].step);
    pool_release(&pool);
    return status;
}

static enum status peek(const struct config *cfg, json_t **state)
{
    const char *spec = cfg->resume_from_checkpoint;
    struct str path = {0};
    enum status status;
    if (strcmp(spec, "last") == 0 || strcmp(spec, "auto") == 0)
        TRY_GOTO(add_newest(cfg->output_dir, &path), out);
    else
        str_add(&path, spec);
    TRY_GOTO(str_status(&path), out);
    status = path.n ? checkpoint_peek(str_text(&path), state) : OK;
    if (status == OK && !*state && path.n) { /* inside output_dir */
        str_clear(&path);
        str_addf(&path, "%s/%s", cfg->output_dir, spec);
        TRY_GOTO(str_status(&path), out);
        status = checkpoint_peek(str_text(&path), state);
    }
out:
    str_release(&path);
    return status;
}

bool micro_batch_may_change(const struct session *s)
{
    return s->options.train && s->config->dynamic_batch;
}

static bool divides(const struct config *cfg, json_int_t micro)
{
    return micro > 0 && micro <= cfg->train_batch_size / cfg->n_ranks &&
           cfg->train_batch_size % (micro * cfg->n_ranks) == 0;
}

/* *micro: of the run that is resumed; *last: where it has changed, what it was in the end. 0: none
 * is resumed, or its batch was another. */
static enum status find_resumed(const struct session *s, int64_t *micro, int64_t *last)
{
    const struct config *cfg = s->config;
    json_t *state = NULL;
    *micro = *last = 0;
    if (!s->options.train || !cfg->resume_from_checkpoint)
        return OK;
    TRY(peek(cfg, &state));
    const json_t *config = json_object_get(json_object_get(state, "settings"), "config");
    json_int_t n = json_integer_value(json_object_get(config, "per_device_train_batch_size"));
    json_int_t steps = json_integer_value(json_object_get(config, "gradient_accumulation_steps"));
    if (n > 0 && steps > 0 && n <= cfg->train_batch_size / steps &&
        n * steps * cfg->n_ranks == cfg->train_batch_size)
        *micro = (int64_t)n;
    json_int_t now = json_integer_value(json_object_get(state, "micro_batch"));
    if (micro_batch_may_change(s) && divides(cfg, now))
        *last = (int64_t)now;
    json_decref(state);
    return OK;
}

/* ---- choosing -------------------------------------------------------------------------------- */

struct config micro_batch_config(const struct config *cfg, int64_t batch)
{
    struct config with = *cfg;
    with.per_device_train_batch_size = batch;
    with.gradient_accumulation_steps = cfg->train_batch_size / (batch * cfg->n_ranks);
    if (cfg->per_device_eval_batch_size == CONFIG_AUTO)
        with.per_device_eval_batch_size = batch;
    return with;
}

/* The session's config becomes its own, with this micro-batch. */
static void settle(struct session *s, const struct config *cfg, int64_t micro)
{
    s->own_config = micro_batch_config(cfg, micro);
    s->config = s->engine.config = &s->own_config;
}

struct choice {
    const struct config *config; /* with the micro-batch open */
    struct settings settings;    /* before any plan */
    enum status (*plan)(struct session *s);
    int64_t micro; /* the best so far; 0: nothing was planned */
    bool fits;
    double step_s;
};

static enum status plan_with(struct session *s, const struct choice *c, int64_t micro)
{
    workload_release(&s->engine.work);
    s->engine.settings = c->settings;
    s->engine.report = (struct search_report){0};
    settle(s, c->config, micro);
    return c->plan(s);
}

/* Is what was planned last better than what was before it? */
static bool is_better(const struct session *s, const struct choice *c)
{
    const struct forecast *f = &s->engine.forecast;
    if (c->micro == 0 || f->fits != c->fits)
        return c->micro == 0 || f->fits;
    return f->fits && f->step_s < c->step_s;
}

/* Larger ones need more memory and fewer launches: when two in a row are no better, none will be.
 */
static enum status try_all(struct session *s, struct choice *c)
{
    int64_t total = c->config->train_batch_size / c->config->n_ranks;
    int n_worse = 0;
    for (int64_t micro = 1; total % micro == 0 && (n_worse < 2 || !c->fits); micro *= 2) {
        TRY(plan_with(s, c, micro));
        s->n_batches_planned++;
        n_worse++;
        if (!is_better(s, c))
            continue;
        c->micro = micro;
        c->fits = s->engine.forecast.fits;
        c->step_s = s->engine.forecast.step_s;
        n_worse = 0;
    }
    return OK;
}

/* The order of sums is all that may depend on the choice. */
static enum status check_samples(const struct session *s)
{
    const struct model *m = s->engine.model;
    if (!m || !m->samples.has_batch_norm)
        return OK;
    const char *key =
        micro_batch_is_open(s->config) ? "per_device_train_batch_size" : "dynamic_batch";
    return FAIL(ERR_CONFIG,
                "%s: %s leaves the micro-batch open, but batch norm takes its statistics from one: "
                "another size trains another network. Give a number%s",
                config_where(s->config, key), key,
                micro_batch_is_open(s->config) ? "" : ", and leave dynamic_batch out");
}

/* What was chosen, or given, is what the run began with; one that is resumed may be elsewhere. */
static enum status go_on(struct session *s, const struct choice *c, int64_t first, int64_t last)
{
    s->first_batch = first;
    if (last == 0 || last == s->config->per_device_train_batch_size)
        return OK;
    return plan_with(s, c, last);
}

enum status micro_batch_choose(struct session *s, enum status (*plan)(struct session *s))
{
    enum { EVALUATED = 8 }; /* sequences at a time, where nothing is trained */
    struct choice c = {.config = s->config, .settings = s->engine.settings, .plan = plan};
    int64_t micro, last, total = c.config->train_batch_size / c.config->n_ranks;
    TRY(check_samples(s));
    TRY(find_resumed(s, &micro, &last));
    if (!micro_batch_is_open(c.config))
        micro = c.config->per_device_train_batch_size;
    for (int64_t n = EVALUATED; !s->options.train && micro == 0; n /= 2)
        micro = total % n == 0 ? n : 0;
    if (micro > 0) {
        TRY(plan_with(s, &c, last > 0 ? last : micro));
        return go_on(s, &c, micro, last);
    }
    TRY(try_all(s, &c));
    if (s->config->per_device_train_batch_size != c.micro)
        TRY(plan_with(s, &c, c.micro));
    return go_on(s, &c, c.micro, last);
}
