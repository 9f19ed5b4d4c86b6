#include "model/layers/objective.h"

#include <math.h>
#include <string.h>

#include "model/layers/loss_kinds.h"
#include "model/losses.h"

/* Targets of a batch that vary less are the same: rounding alone makes them differ. */
#define LEAST_VARIANCE 1e-12

/* ---- reading --------------------------------------------------------------------------------- */

/* gamma is a power that is taken by multiplying. */
static void parse_number(struct keys *k, struct loss_term *t)
{
    const struct loss_kind *kind = t->kind;
    bool is_focal = strcmp(kind->name, "focal") == 0;
    if (!kind->number)
        return;
    t->number = keys_float(k, kind->number, kind->preset, is_focal ? 0 : 1e-30, is_focal ? 8 : 1e9);
    if (is_focal && floor(t->number) != t->number)
        KEYS_FAIL(k, "gamma", ERR_UNSUPPORTED, "key '%sgamma' is %g; only whole powers are there",
                  k->path, t->number);
    if (is_focal)
        t->alpha = keys_float(k, "alpha", 0.25, 0, 1);
}

static void parse_over(struct keys *k, struct loss_term *t)
{
    const char *over = keys_text(k, "over", NULL);
    t->over_std = over && strcmp(over, "batch_std") == 0;
    if (over && !t->over_std)
        KEYS_FAIL(k, "over", ERR_CONFIG,
                  "key '%sover' is '%s'; a loss is divided by batch_std or by nothing", k->path,
                  over);
}

static void parse_keys(struct keys *k, struct loss_term *t)
{
    t->weight = keys_float(k, "weight", 1.0, 0, 1e9);
    parse_number(k, t);
    if (!t->kind->coupling) {
        t->hardest = keys_float(k, "hardest", 0, 0, 1);
        t->hardest_factor = keys_float(k, "hardest_factor", 1.5, 0, 1e9);
    }
    if (t->kind->of_classes)
        t->smoothing = keys_float(k, "label_smoothing", 0, 0, 0.999);
    else
        parse_over(k, t);
}

/* One loss: its name, or {name: {keys}}. */
static enum status parse_term(const struct layer_reader *r, struct keys *k, const json_t *value,
                              const char *path, struct loss_term *t)
{
    json_t *object = (json_t *)(uintptr_t)value;
    const json_t *inner = NULL;
    const char *name = json_string_value(value);
    if (json_object_size(value) == 1) {
        name = json_object_iter_key(json_object_iter(object));
        inner = json_object_iter_value(json_object_iter(object));
    }
    t->kind = name ? loss_kind_find(name) : NULL;
    if (!t->kind || (inner && !json_is_object(inner))) {
        KEYS_FAIL(k, path, ERR_CONFIG,
                  "%s: expected a loss such as mse or {huber: {delta: 0.5}}; "
                  "there are: %s",
                  path, loss_kind_names());
        return OK;
    }
    struct keys own;
    json_t *none = json_object();
    const char *inside = pool_printf(r->pool, "%s.%s.", path, name);
    if (none && inside) {
        keys_init_inner(&own, k, inner ? inner : none, inside);
        parse_keys(&own, t);
        keys_finish_inner(&own);
    }
    json_decref(none);
    return none && inside ? OK : FAIL(ERR_MEMORY, "out of memory for a loss");
}

enum status objective_parse(const struct layer_reader *r, struct keys *k, const json_t *value,
                            const char *path, const char *name, struct objective *out)
{
    bool several = json_is_array(value) && json_array_size(value) > 0;
    size_t n = several ? json_array_size(value) : 1;
    *out = (struct objective){0};
    TRY(pool_try(r->pool, &out->terms, n * sizeof(*out->terms)));
    for (size_t i = 0; i < n; i++) {
        struct loss_term *t = &out->terms[out->n_terms++];
        const char *one = several ? pool_printf(r->pool, "%s.%zu", path, i) : path;
        if (!one)
            return pool_status(r->pool);
        TRY(parse_term(r, k, several ? json_array_get(value, i) : value, one, t));
        t->name = !several || !t->kind ? name : pool_printf(r->pool, "%s_%s", name, t->kind->name);
        if (!t->name)
            return pool_status(r->pool);
    }
    return OK;
}

struct loss_term objective_term(const char *kind, const char *name, double weight)
{
    struct loss_term t = {
        .kind = loss_kind_find(kind), .name = name, .weight = weight, .alpha = 0.25};
    if (t.kind)
        t.number = t.kind->preset;
    return t;
}

/* ---- writing --------------------------------------------------------------------------------- */

static value_id one_number(struct writer *w, value_id x)
{
    return build_reshape(w->b, build(w->b, OP_sum, IN(x), NO_ATTRS), shape_of(1, INT64_C(1)));
}

/* Which samples count, and the place of their number in the sums. */
static int count_samples(struct writer *w)
{
    if (w->valid != VALUE_NONE)
        return 0;
    w->valid = build_value(w->b, "valid", ROLE_INPUT, DTYPE_F32, shape_of(1, w->r->batch));
    return losses_add_sum(w->b, w->out, "count", one_number(w, w->valid));
}

static value_id target_of(struct writer *w, const struct loss_kind *kind, value_id output,
                          const char *name)
{
    const struct shape *y = build_shape(w->b, output);
    struct model_field f = {.name = name, .is_target = true, .draw = kind->draw};
    f.shape.rank = MAX(y->rank - (kind->of_classes ? 2 : 1), 0);
    for (int i = 0; i < f.shape.rank; i++)
        f.shape.dim[i] = y->dim[i + 1];
    if (kind->of_classes)
        f.n_classes = shape_last(y);
    return writer_input(w, &f);
}

/* The numbers of the samples that count; of the others 0. */
static value_id counted(struct writer *w, value_id of_samples)
{
    return build(w->b, OP_mul, IN(of_samples, w->valid), NO_ATTRS);
}

/* 1 / the standard deviation of the targets of all samples that count; 1 where they are the same.
 */
static value_id one_over_std(struct writer *w, value_id y)
{
    value_id variance = batch_variance(w, y), unit = writer_number(w, 1.0);
    value_id same =
        build(w->b, OP_sub, IN(unit, batch_differs(w, variance, LEAST_VARIANCE)), NO_ATTRS);
    value_id std =
        build(w->b, OP_sqrt, IN(build(w->b, OP_add, IN(variance, same), NO_ATTRS)), NO_ATTRS);
    return build(w->b, OP_div, IN(unit, std), NO_ATTRS);
}

static value_id in_f32(struct writer *w, value_id x)
{
    return build(w->b, OP_cast, IN(x), ATTRS({.name = "dtype", .i = DTYPE_F32}));
}

/* Counts the samples with the largest losses more often. Which they are has no gradient. */
static value_id weigh_hardest(struct writer *w, const struct loss_term *t, value_id loss)
{
    struct builder *b = w->b;
    int64_t k = (int64_t)(t->hardest * (double)w->r->batch);
    if (k == 0 || w->r->purpose != MODEL_TRAIN)
        return loss;
    value_id mask = build(b, OP_top_k_mask, IN(loss), ATTRS({.name = "k", .i = k}));
    value_id extra = build(b, OP_scale, IN(build(b, OP_mul, IN(loss, mask), NO_ATTRS)),
                           ATTRS({.name = "factor", .f = t->hardest_factor - 1.0}));
    return build(b, OP_add, IN(loss, extra), NO_ATTRS);
}

static void note_coupling(struct writer *w, const struct loss_term *t)
{
    if (t->kind->coupling)
        w->coupling = t->kind->coupling;
    else if (t->hardest > 0)
        w->coupling = "the hardest samples of a loss are chosen among all samples of a batch";
    else if (t->over_std)
        w->coupling = "over: batch_std divides by the deviation of all targets of a batch";
}

static void write_term(struct writer *w, const struct loss_term *t, value_id x, value_id y,
                       int count)
{
    struct builder *b = w->b;
    if (!t->kind->of_classes)
        x = in_f32(w, x);
    value_id loss = t->kind->of_samples(w, t, x, y);
    value_id total = one_number(w, weigh_hardest(w, t, counted(w, loss)));
    if (t->over_std)
        total = build(b, OP_scale, IN(total, one_over_std(w, y)), NO_ATTRS);
    note_coupling(w, t);
    losses_add(b, w->out, t->name, t->weight, total, count);
}

/* Of how many samples the label is what the output says is likeliest. */
static void write_hits(struct writer *w, const struct objective *o, value_id x, const char *target)
{
    struct builder *b = w->b;
    for (int i = 0; i < o->n_terms; i++) {
        if (!o->terms[i].kind->of_classes || w->r->purpose != MODEL_EVAL)
            continue;
        value_id y = writer_find(w, target);
        (void)build(b, OP_softmax_cross_entropy, IN(x, y), NO_ATTRS);
        value_id hits = build_output(b, 2);
        struct attr_set axes = {.name = "axes"};
        int rank = build_shape(b, hits)->rank;
        for (int k = 1; k < rank; k++)
            axes.ints[axes.n_ints++] = k;
        if (axes.n_ints)
            hits = build(b, OP_mean, IN(hits), &axes, 1);
        losses_add_sum(b, w->out, "correct", one_number(w, counted(w, hits)));
        return;
    }
}

void objective_write(struct writer *w, const struct objective *o, value_id output,
                     const char *target)
{
    int count = count_samples(w);
    for (int i = 0; i < o->n_terms && w->b->status == OK; i++)
        write_term(w, &o->terms[i], output, target_of(w, o->terms[i].kind, output, target), count);
    if (w->b->status == OK)
        write_hits(w, o, output, target);
}

void objective_write_to(struct writer *w, const struct objective *o, value_id output,
                        value_id target)
{
    int count = count_samples(w);
    value_id y = in_f32(w, target); /* it may be an input that meets weights */
    for (int i = 0; i < o->n_terms && w->b->status == OK; i++)
        write_term(w, &o->terms[i], output, y, count);
}
