#include "support/random_graph.h"

#include <stdio.h>
#include <string.h>

#include "autodiff/autodiff.h"
#include "base/alloc.h"
#include "graph/builder.h"
#include "optim/optimizer.h"
#include "rewrite/rewrite.h"
#include "support/golden.h"

enum { MAX_VALUES = 64, MAX_PARAMS = 48 };

struct maker {
    struct builder b;
    struct rng rng;
    value_id open[MAX_VALUES]; /* values to build on, all [rows, columns] */
    int n_open;
    bool read[MAX_VALUES];
    value_id params[MAX_PARAMS];
    int n_params;
    value_id random; /* generator state for dropout */
};

static int below(struct maker *m, int n)
{
    return (int)rng_below(&m->rng, (uint64_t)n);
}

static void add(struct maker *m, value_id v)
{
    if (m->n_open == MAX_VALUES || v == VALUE_NONE)
        return;
    m->read[m->n_open] = false;
    m->open[m->n_open++] = v;
}

/* Often the newest, so that graphs are deep; sometimes any, so that they are wide. */
static value_id pick(struct maker *m)
{
    int i = below(m, 3) ? m->n_open - 1 - below(m, MIN(m->n_open, 3)) : below(m, m->n_open);
    m->read[i] = true;
    return m->open[i];
}

static struct shape shape(struct maker *m, value_id v)
{
    return *build_shape(&m->b, v);
}

/* A parameter of that shape: a new one, or one that exists already. */
static value_id param(struct maker *m, struct shape s)
{
    for (int i = 0; i < m->n_params && below(m, 3) == 0; i++) {
        if (shape_equal(build_shape(&m->b, m->params[i]), &s))
            return m->params[i];
    }
    for (int i = 0; i < m->n_params && m->n_params == MAX_PARAMS; i++) {
        if (shape_equal(build_shape(&m->b, m->params[i]), &s))
            return m->params[i];
    }
    if (m->n_params == MAX_PARAMS)
        return VALUE_NONE;
    char name[32];
    (void)snprintf(name, sizeof(name), "w%d", m->n_params);
    value_id v = build_value(&m->b, name, ROLE_PARAMETER, DTYPE_F32, s);
    m->params[m->n_params++] = v;
    return v;
}

/* Another open value of the same shape as v, or v itself. */
static value_id same_shape(struct maker *m, value_id v)
{
    struct shape s = shape(m, v);
    int start = below(m, m->n_open);
    for (int k = 0; k < m->n_open; k++) {
        int i = (start + k) % m->n_open;
        if (shape_equal(build_shape(&m->b, m->open[i]), &s)) {
            m->read[i] = true;
            return m->open[i];
        }
    }
    return v;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void unary(struct maker *m)
{
    static const enum op_id ops[] = {OP_relu, OP_gelu, OP_silu, OP_tanh, OP_sigmoid, OP_softmax};
    add(m, build(&m->b, ops[below(m, (int)ARRAY_LEN(ops))], IN(pick(m)), NO_ATTRS));
}

static void scale(struct maker *m)
{
    add(m, build(&m->b, OP_scale, IN(pick(m)), ATTRS({"factor", .f = 0.5})));
}

static void binary(struct maker *m)
{
    static const enum op_id ops[] = {OP_add, OP_mul, OP_sub, OP_add};
    value_id x = pick(m);
    add(m, build(&m->b, ops[below(m, (int)ARRAY_LEN(ops))], IN(x, same_shape(m, x)), NO_ATTRS));
}

static void divide(struct maker *m)
{
    value_id x = pick(m);
    value_id bottom =
        build(&m->b, OP_exp, IN(build(&m->b, OP_tanh, IN(same_shape(m, x)), NO_ATTRS)), NO_ATTRS);
    add(m, build(&m->b, OP_div, IN(x, bottom), NO_ATTRS));
}

static void bias(struct maker *m)
{
    value_id x = pick(m), b = param(m, shape_of(1, shape(m, x).dim[1]));
    if (b != VALUE_NONE)
        add(m, build(&m->b, below(m, 2) ? OP_add : OP_mul, IN(x, b), NO_ATTRS));
}

static void linear(struct maker *m)
{
    value_id x = pick(m);
    int64_t n_out = 4 + 4 * below(m, 8);
    value_id w = param(m, shape_of(2, n_out, shape(m, x).dim[1]));
    if (w == VALUE_NONE)
        return;
    value_id b = below(m, 2) ? param(m, shape_of(1, n_out)) : VALUE_NONE;
    add(m, b == VALUE_NONE ? build(&m->b, OP_linear, IN(x, w), NO_ATTRS)
                           : build(&m->b, OP_linear, IN(x, w, b), NO_ATTRS));
}

static void norm(struct maker *m)
{
    value_id x = pick(m), w = param(m, shape_of(1, shape(m, x).dim[1]));
    if (w == VALUE_NONE)
        return;
    add(m, below(m, 2) ? build(&m->b, OP_rms_norm, IN(x, w), NO_ATTRS)
                       : build(&m->b, OP_layer_norm, IN(x, w), NO_ATTRS));
}

static void reshape(struct maker *m)
{
    value_id x = pick(m);
    struct shape s = shape(m, x);
    if (s.dim[1] % 2 == 0 && s.dim[1] > 4 && below(m, 2))
        add(m, build_reshape(&m->b, x, shape_of(2, s.dim[0] * 2, s.dim[1] / 2)));
    else if (s.dim[0] % 2 == 0 && s.dim[1] < 40)
        add(m, build_reshape(&m->b, x, shape_of(2, s.dim[0] / 2, s.dim[1] * 2)));
}

static void transpose(struct maker *m)
{
    add(m, build(&m->b, OP_transpose, IN(pick(m)), ATTRS({"axes", .n_ints = 2, .ints = {1, 0}})));
}

static void concat(struct maker *m)
{
    value_id x = pick(m), y = same_shape(m, x);
    if (shape(m, x).dim[1] < 40)
        add(m, build(&m->b, OP_concat, IN(x, y), ATTRS({"axis", .i = 1})));
}

static void slice(struct maker *m)
{
    value_id x = pick(m);
    int64_t n = shape(m, x).dim[1];
    if (n >= 4)
        add(m, build(&m->b, OP_slice, IN(x),
                     ATTRS({"axis", .i = 1}, {"start", .i = n / 4}, {"length", .i = n / 2})));
}

/* A reduction whose result comes back as a broadcast operand. */
static void reduce(struct maker *m)
{
    value_id x = pick(m);
    value_id row = build(&m->b, below(m, 2) ? OP_mean : OP_sum, IN(x),
                         ATTRS({"axes", .n_ints = 1, .ints = {0}}));
    row = build(&m->b, OP_tanh, IN(row), NO_ATTRS);
    add(m, build(&m->b, OP_add, IN(same_shape(m, x), row), NO_ATTRS));
}

static void dropout(struct maker *m)
{
    add(m, build(&m->b, OP_dropout, IN(pick(m), m->random),
                 ATTRS({"p", .f = 0.25}, {"seed", .i = m->n_open})));
}

static void (*const steps[])(struct maker *) = {
    unary,   scale,     binary, divide, bias,   linear,  linear, norm,
    reshape, transpose, concat, slice,  reduce, dropout, binary,
};

/* ---- the graph ------------------------------------------------------------------------------- */

static value_id mean_of(struct maker *m, value_id v)
{
    value_id mean = build(&m->b, OP_mean, IN(v), NO_ATTRS);
    return build_reshape(&m->b, mean, shape_of(1, (int64_t)1));
}

/* Everything nobody reads adds to the loss, and so does the first layer, whose parameter always has
 * a gradient then; tanh keeps it finite. */
static value_id loss_of(struct maker *m)
{
    value_id loss = VALUE_NONE;
    m->b.block = BLOCK_NONE;
    for (int i = 0; i < m->n_open; i++) {
        if (m->read[i] && i != 1)
            continue;
        value_id term = mean_of(m, build(&m->b, OP_tanh, IN(m->open[i]), NO_ATTRS));
        loss = loss == VALUE_NONE ? term : build(&m->b, OP_add, IN(loss, term), NO_ATTRS);
    }
    return loss;
}

static void optimize(struct random_graph *r, struct maker *m, value_id loss, bool fused)
{
    struct optimizer_param params[MAX_PARAMS];
    value_id grads[MAX_PARAMS], seed, count;
    seed = build_value(&m->b, "loss_seed", ROLE_INPUT, DTYPE_F32, shape_of(1, (int64_t)1));
    count = build_value(&m->b, "count_in", ROLE_INPUT, DTYPE_F32, shape_of(1, (int64_t)1));
    expect_ok(builder_status(&m->b));
    expect_ok(autodiff(r->g, loss, seed, m->params, (size_t)m->n_params, grads));
    for (int i = 0; i < m->n_params; i++)
        params[i] = (struct optimizer_param){.name = graph_value(r->g, m->params[i])->name,
                                             .value = m->params[i],
                                             .grad = grads[i],
                                             .decay = i % 2};
    struct optimizer_options o = {
        .kind = below(m, 2) ? OPTIMIZER_ADAMW : OPTIMIZER_SGD,
        .beta1 = 0.9,
        .beta2 = 0.99,
        .epsilon = 1e-6,
        .momentum = below(m, 2) ? 0.9 : 0.0,
        .weight_decay = 0.01,
        .max_grad_norm = below(m, 2) ? 1.0 : 0.0,
        .n_micro = r->n_micro,
        .nominal_count = 1.0,
        .precision = precision_f32(),
    };
    if (below(m, 2)) { /* states that are rounded by chance: what is drawn depends on the element */
        o.precision.states = FORMAT_BF16;
        o.seed = 1;
    }
    const struct graph_output outputs[] = {{"loss", loss}, {"count", count}};
    const struct optimizer_sums sums = {outputs, 2, 1};
    expect_ok(optimizer_apply(r->g, &o, params, (size_t)m->n_params, &sums));
    if (fused)
        expect_ok(rewrite_apply(r->g, REWRITE_GRADIENT));
    if (r->n_micro == 1)
        expect_ok(schedule_updates_early(r->g));
    expect_ok(graph_check(r->g));
}

/* Layers whose gradients are many times what they are made from: these can be made in slices. */
static void wide(struct maker *m)
{
    const int64_t width = 64 + 32 * below(m, 2);
    value_id up = param(m, shape_of(2, width, (int64_t)16));
    value_id across = param(m, shape_of(2, (int64_t)128, width));
    value_id x = build(&m->b, OP_linear, IN(m->open[0], up), NO_ATTRS);
    x = build(&m->b, OP_gelu, IN(x), NO_ATTRS);
    add(m, build(&m->b, OP_linear, IN(x, across), NO_ATTRS));
    add(m, build(&m->b, OP_slice, IN(m->open[m->n_open - 1]),
                 ATTRS({"axis", .i = 1}, {"start", .i = 8}, {"length", .i = 24})));
}

void random_graph_init(struct random_graph *r, uint64_t seed)
{
    enum { FEW_ARE_WIDE = 16 };
    struct maker m = {.rng = {.key = seed, .stream = 1}};
    expect_ok(graph_new(&r->g, "random"));
    builder_init(&m.b, r->g);
    r->n_micro = 1 + below(&m, 2);
    m.random = build_value(&m.b, "rng", ROLE_INPUT, DTYPE_I64, shape_of(1, (int64_t)2));
    bool is_wide = seed % FEW_ARE_WIDE == 0;
    int64_t rows = 2 + 2 * below(&m, is_wide ? 2 : 8);
    add(&m, build_value(&m.b, "x", ROLE_INPUT, DTYPE_F32, shape_of(2, rows, (int64_t)16)));
    m.b.block = 0;
    linear(&m); /* at least one parameter reaches the loss */
    if (is_wide)
        wide(&m);
    int n_steps = 4 + below(&m, 40);
    for (int i = 0; i < n_steps; i++) {
        if (below(&m, 6) == 0)
            m.b.block++;
        steps[below(&m, (int)ARRAY_LEN(steps))](&m);
        expect_ok(builder_status(&m.b));
    }
    value_id loss = loss_of(&m);
    bool fused = below(&m, 2);
    if (fused)
        expect_ok(rewrite_apply(r->g, REWRITE_FORWARD));
    optimize(r, &m, loss, fused);
}

void random_graph_release(struct random_graph *r)
{
    graph_free(r->g);
    r->g = NULL;
}

void random_plan(struct plan *p, const struct graph *g, uint64_t seed)
{
    struct rng rng = {.key = seed, .stream = 2};
    uint64_t bias = rng_below(&rng, 4); /* some plans mostly keep, recompute or move */
    for (value_id v = 0; (size_t)v < g->values.n; v++) {
        enum treatment t = (enum treatment)rng_below(&rng, 3);
        if (bias < 3 && rng_below(&rng, 2))
            t = (enum treatment)bias;
        if (plan_allows(p, g, v, t))
            p->treat[v] = t;
        if (plan_allows(p, g, v, FORM) && rng_below(&rng, 2))
            p->treat[v] = FORM;
        if (p->treat[v] == MOVE || rng_below(&rng, 2))
            p->home[v] = TIER_HOST;
    }
    static const int64_t rings[] = {0, 64, 512, 4096, INT64_MAX / 4};
    p->ahead_bytes = rings[rng_below(&rng, ARRAY_LEN(rings))];
    p->behind_bytes = rings[rng_below(&rng, ARRAY_LEN(rings))];
    static const int64_t slices[] = {0, 64, 200, 1024, 4096};
    p->slice_bytes = slices[rng_below(&rng, ARRAY_LEN(slices))];
}

void random_plan_disk(struct plan *p, const struct graph *g, uint64_t seed)
{
    struct rng rng = {.key = seed, .stream = 3};
    for (value_id v = 0; (size_t)v < g->values.n; v++) {
        if (p->home[v] == TIER_HOST && rng_below(&rng, 2))
            p->home[v] = TIER_DISK;
    }
    static const int64_t halfway[] = {0, 64, 512, 4096, INT64_MAX / 4};
    p->halfway_bytes = halfway[rng_below(&rng, ARRAY_LEN(halfway))];
}
