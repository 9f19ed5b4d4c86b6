#include "train/control.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"

enum { MOST_BACKOFF = 8 };

struct control_state control_begin(const struct config *cfg)
{
    return (struct control_state){.is_on = cfg->predicted_gradients != CONFIG_PREDICTION_NONE,
                                  .backoff = 1};
}

/* ---- measuring ------------------------------------------------------------------------------- */

struct control_record control_judge(const struct control_moments *x, const struct config *cfg,
                                    double cost_ratio)
{
    double n = (double)cfg->gradient_accumulation_steps, m = (double)cfg->true_micro_batches;
    struct control_record r = {.variance_ratio = n / m, .cost_ratio = cost_ratio};
    if (x->gradient > 0 && x->predicted > 0) {
        r.correlation = x->product / sqrt(x->gradient * x->predicted);
        r.coefficient = x->product / x->predicted;
        r.variance_ratio = 1.0 + (n / m - 1.0) * (1.0 - r.correlation * r.correlation);
    }
    r.predicts = r.variance_ratio * r.cost_ratio < cfg->control_threshold;
    return r;
}

bool control_is_due(const struct control_state *c, int64_t step)
{
    return c->is_on && step >= c->next;
}

void control_take(struct control_state *c, const struct config *cfg, int64_t step,
                  const struct control_record *r)
{
    c->predicts = r->predicts;
    c->coefficient = r->coefficient;
    c->n_measured++;
    c->n_paid += r->predicts;
    c->variance_ratios += r->variance_ratio;
    c->next = step + cfg->control_steps * (r->predicts ? 1 : c->backoff);
    c->backoff = r->predicts ? 1 : MIN(2 * c->backoff, (int64_t)MOST_BACKOFF);
}

/* ---- the draw -------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* A number below n from 64 random bits: of the few that would make some likelier none is taken. */
static int64_t below(uint64_t seed, uint64_t step, uint64_t *counter, int64_t n)
{
    uint64_t bound = (uint64_t)n, least = (0 - bound) % bound, x;
    do {
        struct philox4 r = philox(seed ^ UINT64_C(0x636f6e74726f6c), step, (*counter)++);
        x = (uint64_t)r.v[0] << 32 | r.v[1];
    } while (x < least);
    return (int64_t)(x % bound);
}

void control_draw(uint64_t seed, int64_t step, int64_t n, int64_t m, int64_t *order)
{
    uint64_t counter = 0;
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t i = 0; i < m; i++) {
        int64_t k = i + below(seed, (uint64_t)step, &counter, n - i), other = order[k];
        order[k] = order[i];
        order[i] = other;
    }
    qsort(order, (size_t)m, sizeof(*order), compare);
}

/* ---- in checkpoints -------------------------------------------------------------------------- */

json_t *control_json(const struct control_state *c)
{
    return json_pack("{s:b, s:I, s:I, s:f, s:I, s:I, s:I, s:f}", "predicts", (int)c->predicts,
                     "next", (json_int_t)c->next, "backoff", (json_int_t)c->backoff, "coefficient",
                     c->coefficient, "measured", (json_int_t)c->n_measured, "paid",
                     (json_int_t)c->n_paid, "predicted", (json_int_t)c->n_predicted,
                     "variance_ratios", c->variance_ratios);
}

enum status control_read(struct control_state *c, const json_t *o)
{
    const struct {
        const char *key;
        int64_t *to, least, most;
    } counts[] = {
        {"next", &c->next, 0, INT64_MAX},
        {"backoff", &c->backoff, 1, MOST_BACKOFF},
        {"measured", &c->n_measured, 0, INT64_MAX},
        {"paid", &c->n_paid, 0, INT64_MAX},
        {"predicted", &c->n_predicted, 0, INT64_MAX},
    };
    const json_t *predicts = json_object_get(o, "predicts");
    const json_t *coefficient = json_object_get(o, "coefficient");
    const json_t *ratios = json_object_get(o, "variance_ratios");
    if (!o || !c->is_on)
        return OK;
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        const json_t *x = json_object_get(o, counts[i].key);
        if (!json_is_integer(x) || json_integer_value(x) < counts[i].least ||
            json_integer_value(x) > counts[i].most)
            return FAIL(ERR_CHECKPOINT,
                        "state.json: 'control' has no '%s', or one that no run writes",
                        counts[i].key);
        *counts[i].to = json_integer_value(x);
    }
    if (!json_is_boolean(predicts) || !json_is_number(coefficient) || !json_is_number(ratios))
        return FAIL(ERR_CHECKPOINT, "state.json: 'control' is of no run with these settings");
    c->predicts = json_is_true(predicts);
    c->coefficient = json_number_value(coefficient);
    c->variance_ratios = json_number_value(ratios);
    return OK;
}
