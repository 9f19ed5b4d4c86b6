/* advice.c: which settings to change.
 *
 * First what keeps the mathematics: recomputing, then smaller micro-batches with more of them.
 * Then, with these and without, sets of changes to the numerics, from the mildest to the harshest.
 * A set is planned only if its weights and states alone would fit: that is known without planning,
 * and rules out whatever does not save what there is most of.
 */
#include "train/advice.h"

#include <stdio.h>
#include <string.h>

#include "base/machine.h"

#define SEARCH_S 3.0

/* ---- changes ----------------------------------------------------------------------------------
 */

static bool to_bf16(struct config *c, const struct pipeline *p)
{
    bool can = c->bf16 == CONFIG_TRISTATE_FALSE && !c->fp16 && !p->device->lacks_bf16;
    c->bf16 = CONFIG_TRISTATE_TRUE;
    return can;
}

static bool to_bf16_gradients(struct config *c, const struct pipeline *p)
{
    (void)p;
    bool can = c->bf16 == CONFIG_TRISTATE_TRUE && c->gradient_dtype != CONFIG_BF16;
    c->gradient_dtype = CONFIG_BF16;
    return can;
}

static bool to_bf16_states(struct config *c, const struct pipeline *p)
{
    (void)p;
    bool has_states = c->optim != CONFIG_OPTIM_SGD || c->momentum > 0;
    bool can = has_states && c->optim_state_dtype != CONFIG_BF16;
    c->optim_state_dtype = CONFIG_BF16;
    return can;
}

static bool to_bf16_masters(struct config *c, const struct pipeline *p)
{
    (void)p;
    bool can = c->bf16 == CONFIG_TRISTATE_TRUE && c->master_dtype != CONFIG_BF16;
    c->master_dtype = CONFIG_BF16;
    return can;
}

/* Without a norm to wait for, each gradient goes into its update at once. */
static bool to_no_clipping(struct config *c, const struct pipeline *p)
{
    (void)p;
    bool can = c->max_grad_norm > 0 && c->gradient_accumulation_steps == 1;
    c->max_grad_norm = 0;
    return can;
}

/* Helps where what depends on the sequences is most of it. */
static bool to_half_length(struct config *c, const struct pipeline *p)
{
    const int64_t *b = p->forecast.breakdown;
    int64_t by_length =
        b[MEMORY_ACTIVATIONS] + b[MEMORY_RECOMPUTE] + b[MEMORY_LOGITS] + b[MEMORY_WORKSPACE];
    bool can = c->max_seq_length >= 2 && 2 * by_length > p->forecast.arena_bytes;
    c->max_seq_length /= 2;
    return can;
}

static bool to_sgd(struct config *c, const struct pipeline *p)
{
    (void)p;
    bool can = c->optim != CONFIG_OPTIM_SGD;
    c->optim = CONFIG_OPTIM_SGD;
    return can;
}

static const struct change {
    const char *text; /* %lld: the length */
    int harshness;
    bool for_evaluation; /* does something without an optimizer */
    bool (*apply)(struct config *c, const struct pipeline *p); /* false: it cannot be made */
} changes[] = {
    {"bf16: true", 1, true, to_bf16},
    {"gradient_dtype: bf16", 2, false, to_bf16_gradients},
    {"optim_state_dtype: bf16", 3, false, to_bf16_states},
    {"max_grad_norm: 0", 3, false, to_no_clipping},
    {"master_dtype: bf16", 4, false, to_bf16_masters},
    {"max_seq_length: %lld", 7, true, to_half_length},
    {"optim: sgd", 12, false, to_sgd},
};

/* ---- trials -----------------------------------------------------------------------------------
 */

struct search {
    const struct pipeline *p;
    struct pipeline_options options;
    enum tier tier;
    int64_t limit;
    double deadline;
    int64_t fitted, least; /* bytes: of the last plan that fits; of all that were looked at */
    struct advice *out;
};

/* Bytes that no plan with these settings gets below: what every parameter has beside it. */
static int64_t least_bytes(const struct search *s, const struct config *c)
{
    struct precision x;
    if (precision_from_config(c, s->p->device, &x) != OK)
        return INT64_MAX;
    int64_t bytes = dtype_size(x.weights);
    if (s->options.train) {
        int n_moments = c->optim == CONFIG_OPTIM_SGD ? c->momentum > 0 : 2;
        bool all_gradients =
            c->gradient_accumulation_steps > 1 || c->max_grad_norm > 0 || x.loss_scaling;
        bytes += (x.masters ? dtype_size(DTYPE_F32) : 0) + n_moments * dtype_size(x.states) +
                 (all_gradients ? dtype_size(x.gradients) : 0);
    }
    return bytes * s->p->forecast.n_params;
}

/* Plans with these settings, unless it is clear without; s->fitted is what the last plan that fits
 * takes. */
static bool fits(struct search *s, const struct config *c)
{
    struct pipeline trial;
    int64_t n_bytes = s->tier == TIER_DEVICE ? least_bytes(s, c) : 0;
    if (n_bytes <= s->limit) {
        if (now_s() > s->deadline ||
            pipeline_build(&trial, c, s->p->model, s->p->device, &s->options) != OK)
            return false;
        n_bytes = pipeline_needs(&trial, s->tier);
        pipeline_release(&trial);
    }
    s->least = MIN(s->least, n_bytes);
    if (n_bytes > s->limit)
        return false;
    s->fitted = n_bytes;
    return true;
}

/* ---- what keeps the mathematics ---------------------------------------------------------------
 */

static int64_t *batch_of(const struct search *s, struct config *c)
{
    return s->options.train ? &c->per_device_train_batch_size : &c->per_device_eval_batch_size;
}

static void cut_batch(const struct search *s, struct config *c, int64_t parts)
{
    int64_t batch = *batch_of(s, c) / parts;
    *batch_of(s, c) = batch;
    c->per_device_eval_batch_size = MIN(c->per_device_eval_batch_size, batch);
    if (s->options.train)
        c->gradient_accumulation_steps *= parts;
}

/* The mildest way that these settings fit: as they are, recomputing, in smaller micro-batches. The
 * harshest of them goes first: where that does not fit, none does. */
static bool fits_somehow(struct search *s, struct config *c)
{
    struct config as_is = *c;
    int64_t batch = *batch_of(s, c);
    if (s->options.train)
        c->gradient_checkpointing = "true";
    if (fits(s, c)) {
        if (fits(s, &as_is))
            *c = as_is;
        return true;
    }
    struct config whole = *c;
    cut_batch(s, c, batch);
    if (batch == 1 || !fits(s, c))
        return false;
    for (int64_t parts = 2; parts < batch; parts++) {
        struct config cut = whole;
        cut_batch(s, &cut, parts);
        if (batch % parts == 0 && fits(s, &cut)) {
            *c = cut;
            return true;
        }
    }
    return true;
}

/* ---- words ------------------------------------------------------------------------------------
 */

static void add_part(struct str *out, const char *joint, const char *text)
{
    str_addf(out, "%s%s", out->n ? joint : "", text);
}

static void describe(const struct search *s, const struct config *c, unsigned set, struct str *out)
{
    const struct config *before = s->p->config;
    char text[160];
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        if (!(set >> i & 1))
            continue;
        bool has_number = strchr(changes[i].text, '%') != NULL;
        (void)snprintf(text, sizeof(text), "%.*s%lld", (int)strcspn(changes[i].text, "%"),
                       changes[i].text, (long long)c->max_seq_length);
        add_part(out, ", ", has_number ? text : changes[i].text);
    }
    if (set)
        str_add(out, (set & (set - 1)) ? " (which change the numerics)"
                                       : " (which changes the numerics)");
    if (strcmp(before->gradient_checkpointing, c->gradient_checkpointing) != 0)
        add_part(out, " and ", "gradient_checkpointing: true");
    int64_t batch = *batch_of(s, (struct config *)(uintptr_t)c);
    if (batch == *batch_of(s, (struct config *)(uintptr_t)before))
        return;
    if (s->options.train)
        (void)snprintf(text, sizeof(text),
                       "per_device_train_batch_size: %lld with gradient_accumulation_steps: %lld",
                       (long long)batch, (long long)c->gradient_accumulation_steps);
    else
        (void)snprintf(text, sizeof(text), "per_device_eval_batch_size: %lld", (long long)batch);
    add_part(out, " and ", text);
}

/* ---- the search -------------------------------------------------------------------------------
 */

/* All changes of a set, or false when one of them cannot be made. */
static bool make_changes(const struct search *s, unsigned set, struct config *c)
{
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        if (!(set >> i & 1))
            continue;
        if ((!s->options.train && !changes[i].for_evaluation) || !changes[i].apply(c, s->p))
            return false;
    }
    return true;
}

static int harshness_of(unsigned set)
{
    int sum = 0;
    for (size_t i = 0; i < ARRAY_LEN(changes); i++)
        sum += set >> i & 1 ? changes[i].harshness : 0;
    return sum;
}

static bool try_set(struct search *s, unsigned set)
{
    struct config c = *s->p->config;
    struct str text = {0};
    if (!make_changes(s, set, &c) || !fits_somehow(s, &c))
        return false;
    describe(s, &c, set, &text);
    (void)snprintf(s->out->text, sizeof(s->out->text), "%s", str_text(&text));
    str_release(&text);
    s->out->found = true;
    return true;
}

static enum memory_class largest_part(const struct pipeline *p)
{
    int most = MEMORY_WEIGHTS;
    for (int c = 0; c < MEMORY_CLASS_COUNT; c++)
        most = p->forecast.breakdown[c] > p->forecast.breakdown[most] ? c : most;
    return (enum memory_class)most;
}

static bool try_all_sets(struct search *s)
{
    const unsigned n_sets = 1u << ARRAY_LEN(changes);
    for (int harshness = 0; harshness <= harshness_of(n_sets - 1); harshness++) {
        for (unsigned set = 0; set < n_sets; set++) {
            if (harshness_of(set) == harshness && try_set(s, set))
                return true;
        }
    }
    return false;
}

void advice_find(const struct pipeline *p, const struct pipeline_options *o, enum tier tier,
                 int64_t n_bytes, struct advice *out)
{
    struct search s = {.p = p,
                       .options = *o,
                       .tier = tier,
                       .limit = n_bytes,
                       .deadline = now_s() + SEARCH_S,
                       .least = pipeline_needs(p, tier),
                       .out = out};
    s.options.times = NULL; /* bytes are all that is asked for */
    *out = (struct advice){.most = largest_part(p)};
    out->most_bytes = p->forecast.breakdown[out->most];
    out->n_bytes = try_all_sets(&s) ? s.fitted : s.least;
}
