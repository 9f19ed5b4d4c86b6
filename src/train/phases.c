#include "train/phases.h"

#include <math.h>

#include "base/compiler.h"

/* What the confidence begins with and how much of it the last jump is; how short a jump may be; how
 * much longer Full gets. */
#define FIRST_CONFIDENCE 0.7
#define CONFIDENCE_RATE  0.25
enum { SHORTEST = 10, MOST_BACKOFF = 8 };

const char *phase_name(enum phase_kind kind)
{
    static const char *const names[] = {
        [PHASE_WARMUP] = "warmup", [PHASE_FULL] = "full", [PHASE_CORRECT] = "correct"};
    return names[kind];
}

static void enter(struct phase_state *p, enum phase_kind kind)
{
    p->kind = kind;
    p->n_done = 0;
}

static void enter_full(struct phase_state *p, const struct config *cfg, int64_t times)
{
    enter(p, PHASE_FULL);
    p->n_full = times * cfg->full_steps;
    p->slots = 0;
}

struct phase_state phases_begin(const struct config *cfg)
{
    struct phase_state p = {.confidence = FIRST_CONFIDENCE, .backoff = 1};
    if (cfg->predictive_phases == CONFIG_PHASES_NONE)
        return p;
    enter_full(&p, cfg, 1);
    if (cfg->phase_warmup_steps > 0)
        enter(&p, PHASE_WARMUP);
    return p;
}

/* The document's length of Predict, by a confidence that was earned. */
static double length_of(const struct phase_state *p, const struct config *cfg, bool caution)
{
    double most = (double)cfg->max_predict_steps;
    double n = fmax(floor(most * p->confidence * p->confidence), SHORTEST);
    return fmin(n, most) * (caution ? 0.5 : 1.0);
}

/* The slot of the snapshot that is due with so many steps of Full left; -1: none is. */
static int slot_of(const struct config *cfg, int64_t n_left)
{
    int64_t ahead = n_left / cfg->snapshot_steps;
    bool due = n_left % cfg->snapshot_steps == 0 && ahead < cfg->snapshot_count;
    return due ? (int)(cfg->snapshot_count - 1 - ahead) : -1;
}

static struct phase_action after_full(struct phase_state *p, const struct config *cfg,
                                      enum divergence_level level)
{
    struct phase_action a = {.snapshot = slot_of(cfg, p->n_full - p->n_done)};
    if (p->n_done == p->n_full && level >= DIVERGENCE_WARNING) {
        p->n_withheld++;
        enter_full(p, cfg, p->backoff);
        return (struct phase_action){.snapshot = -1, .withheld = true};
    }
    if (a.snapshot >= 0)
        p->slots |= 1u << a.snapshot;
    if (p->n_done == p->n_full)
        a.n_steps = length_of(p, cfg, level == DIVERGENCE_CAUTION);
    return a;
}

/* A warning ends Correct with twice the steps of Full, what is critical undoes the jump first. */
static struct phase_action after_correct(struct phase_state *p, const struct config *cfg,
                                         enum divergence_level level)
{
    struct phase_action a = {.snapshot = -1, .undo = level == DIVERGENCE_CRITICAL};
    if (a.undo) {
        p->n_undone++;
        p->confidence /= 2;
    }
    if (level >= DIVERGENCE_WARNING)
        enter_full(p, cfg, 2);
    else if (p->n_done >= cfg->correct_steps)
        enter_full(p, cfg, 1);
    return a;
}

struct phase_action phases_step(struct phase_state *p, const struct config *cfg, double loss,
                                double grad_norm)
{
    enum divergence_level level = DIVERGENCE_NONE;
    if (p->kind == PHASE_NONE)
        return (struct phase_action){.snapshot = -1};
    if (!isnan(loss))
        level = divergence_step(&p->divergence, cfg->divergence_sigma, loss, grad_norm);
    p->n_done++;
    if (p->kind == PHASE_FULL)
        return after_full(p, cfg, level);
    if (p->kind == PHASE_CORRECT)
        return after_correct(p, cfg, level);
    if (p->n_done >= cfg->phase_warmup_steps)
        enter_full(p, cfg, 1);
    return (struct phase_action){.snapshot = -1};
}

void phases_jumped(struct phase_state *p, const struct config *cfg, double n_steps, double length,
                   double difference)
{
    p->confidence += CONFIDENCE_RATE * (length / n_steps - p->confidence);
    p->backoff = length > 0 ? 1 : MIN(2 * p->backoff, (int64_t)MOST_BACKOFF);
    if (!(length > 0)) {
        p->n_rejected++;
        enter_full(p, cfg, p->backoff);
        return;
    }
    p->n_accepted++;
    p->n_jumped += length;
    divergence_expect(&p->divergence, difference);
    enter_full(p, cfg, 1);
    if (cfg->correct_steps > 0) {
        enter(p, PHASE_CORRECT);
        p->slots = 1u << (cfg->snapshot_count - 1); /* where the weights jumped from */
    }
}

/* ---- in checkpoints -------------------------------------------------------------------------- */

json_t *phases_json(const struct phase_state *p)
{
    return json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o}", "phase",
                     (int)p->kind, "done", (json_int_t)p->n_done, "full", (json_int_t)p->n_full,
                     "backoff", (json_int_t)p->backoff, "slots", (json_int_t)p->slots, "accepted",
                     (json_int_t)p->n_accepted, "rejected", (json_int_t)p->n_rejected, "withheld",
                     (json_int_t)p->n_withheld, "undone", (json_int_t)p->n_undone, "jumped",
                     p->n_jumped, "confidence", p->confidence, "divergence",
                     divergence_json(&p->divergence));
}

static enum status read_counts(const json_t *o, struct phase_state *p, int64_t *kind,
                               int64_t *slots)
{
    const struct {
        const char *key;
        int64_t *to, most;
    } counts[] = {
        {"phase", kind, PHASE_CORRECT},
        {"done", &p->n_done, INT64_MAX},
        {"full", &p->n_full, INT64_MAX},
        {"backoff", &p->backoff, MOST_BACKOFF},
        {"slots", slots, UINT16_MAX},
        {"accepted", &p->n_accepted, INT64_MAX},
        {"rejected", &p->n_rejected, INT64_MAX},
        {"withheld", &p->n_withheld, INT64_MAX},
        {"undone", &p->n_undone, INT64_MAX},
    };
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        const json_t *x = json_object_get(o, counts[i].key);
        if (!json_is_integer(x) || json_integer_value(x) < 0 ||
            json_integer_value(x) > counts[i].most)
            return FAIL(ERR_CHECKPOINT,
                        "state.json: 'phases' has no '%s', or one that no run writes",
                        counts[i].key);
        *counts[i].to = json_integer_value(x);
    }
    return OK;
}

enum status phases_read(struct phase_state *p, const struct config *cfg, const json_t *o)
{
    int64_t kind = 0, slots = 0;
    const json_t *jumped = json_object_get(o, "jumped");
    const json_t *confidence = json_object_get(o, "confidence");
    if (!o || p->kind == PHASE_NONE)
        return OK;
    TRY(read_counts(o, p, &kind, &slots));
    if (kind == PHASE_NONE || slots >> cfg->snapshot_count || !json_is_number(jumped) ||
        !json_is_number(confidence))
        return FAIL(ERR_CHECKPOINT, "state.json: 'phases' is of no run with these settings");
    p->kind = (enum phase_kind)kind;
    p->slots = (unsigned)slots;
    p->n_jumped = json_number_value(jumped);
    p->confidence = json_number_value(confidence);
    return divergence_read(&p->divergence, json_object_get(o, "divergence"));
}
