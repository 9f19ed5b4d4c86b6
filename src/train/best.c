#include "train/best.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "train/rate.h"

/* ---- the metric ------------------------------------------------------------------------------ */

static const char *metric_of(const struct config *cfg)
{
    const char *name = cfg->metric_for_best_model;
    return strncmp(name, "eval_", 5) == 0 ? name + 5 : name;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* Unless it is said: losses and what is made of them go down. */
static bool is_greater_better(const struct config *cfg)
{
    const char *name = metric_of(cfg);
    if (cfg->greater_is_better != CONFIG_TRISTATE_AUTO)
        return cfg->greater_is_better == CONFIG_TRISTATE_TRUE;
    return !ends_with(name, "loss") && !ends_with(name, "perplexity");
}

static double metric_value(const struct config *cfg, const struct evaluation *e)
{
    const char *name = metric_of(cfg);
    for (int i = 0; i < e->n_values; i++) {
        if (strcmp(e->values[i].name, name) == 0)
            return e->values[i].value;
    }
    return e->loss;
}

static bool is_name(const struct session *s, const char *name, struct str *known)
{
    const struct model_graph *io = &s->eval->io;
    const struct task_def *task = s->engine.task.def;
    bool found = strcmp(name, "loss") == 0;
    str_add(known, "eval_loss");
    for (int i = 0; i < io->n_losses && io->n_losses > 1; i++) {
        found |= strcmp(losses_name(io, i), name) == 0;
        str_addf(known, ", eval_%s", losses_name(io, i));
    }
    for (int i = 0; i < task->n_metrics; i++) {
        found |= strcmp(task->metrics[i].name, name) == 0;
        str_addf(known, ", eval_%s", task->metrics[i].name);
    }
    return found;
}

enum status best_check(const struct session *s)
{
    const struct config *cfg = s->config;
    struct str known = {0};
    enum status status = OK;
    if (!best_is_wanted(cfg) || !s->eval)
        return OK;
    if (!is_name(s, metric_of(cfg), &known))
        status = FAIL(ERR_CONFIG, "%s: metric_for_best_model: evaluations have no '%s', but %s",
                      config_where(cfg, "metric_for_best_model"), metric_of(cfg), str_text(&known));
    str_release(&known);
    return status;
}

/* ---- evaluations ----------------------------------------------------------------------------- */

bool best_is_wanted(const struct config *cfg)
{
    return cfg->load_best_model_at_end || cfg->early_stopping_patience > 0 || rate_has_plateau(cfg);
}

struct best_state best_begin(const struct config *cfg)
{
    return (struct best_state){.value = (double)NAN,
                               .plateau = {.lr = cfg->learning_rate, .best = (double)NAN}};
}

bool best_take(struct best_state *b, const struct config *cfg, const struct evaluation *e,
               int64_t step, bool due)
{
    double value = metric_value(cfg, e), by;
    bool greater = is_greater_better(cfg), is_first = isnan(b->value);
    if (!best_is_wanted(cfg))
        return false;
    by = greater ? value - b->value : b->value - value;
    if (due) {
        struct plateau plateau = rate_plateau(cfg, greater);
        bool improves = is_first || by > cfg->early_stopping_threshold;
        b->n_worse = improves ? 0 : b->n_worse + 1;
        plateau_step(&plateau, &b->plateau, value);
    }
    if (isnan(value) || !(is_first || by > 0))
        return false;
    b->value = value;
    b->step = step;
    return true;
}

bool best_stops(const struct best_state *b, const struct config *cfg)
{
    return cfg->early_stopping_patience > 0 && b->n_worse >= cfg->early_stopping_patience;
}

/* ---- in checkpoints -------------------------------------------------------------------------- */

json_t *best_json(const struct best_state *b)
{
    return json_pack("{s:o, s:I, s:I, s:o, s:o, s:I, s:I}", "value", json_finite(b->value), "step",
                     (json_int_t)b->step, "worse", (json_int_t)b->n_worse, "lr",
                     json_finite(b->plateau.lr), "plateau", json_finite(b->plateau.best), "bad",
                     (json_int_t)b->plateau.n_bad, "cooling", (json_int_t)b->plateau.n_cooling);
}

static double number(const json_t *o, const char *key)
{
    const json_t *x = json_object_get(o, key);
    return json_is_number(x) ? json_number_value(x) : (double)NAN;
}

enum status best_read(struct best_state *b, const json_t *o)
{
    static const char *const counts[] = {"step", "worse", "bad", "cooling"};
    if (!o)
        return OK;
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        const json_t *x = json_object_get(o, counts[i]);
        if (!json_is_integer(x) || json_integer_value(x) < 0)
            return FAIL(ERR_CHECKPOINT, "state.json: 'best' has no '%s', or a negative one",
                        counts[i]);
    }
    b->value = number(o, "value");
    b->step = json_integer_value(json_object_get(o, "step"));
    b->n_worse = json_integer_value(json_object_get(o, "worse"));
    b->plateau =
        (struct plateau_state){.lr = number(o, "lr"),
                               .best = number(o, "plateau"),
                               .n_bad = json_integer_value(json_object_get(o, "bad")),
                               .n_cooling = json_integer_value(json_object_get(o, "cooling"))};
    if (isnan(b->plateau.lr))
        return FAIL(ERR_CHECKPOINT, "state.json: 'best' has no 'lr'");
    return OK;
}
