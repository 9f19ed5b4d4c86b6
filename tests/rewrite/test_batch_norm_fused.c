/* A batch norm with what stands behind it, as one node and as several: the same results and the
 * same gradients, for every activation, in f32 and in bf16. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/autodiff.h"
#include "base/rng.h"
#include "device/cpu/support/ref.h"
#include "graph/builder.h"
#include "rewrite/rewrite.h"
#include "support/eval.h"
#include "support/golden.h"

enum { X, GAMMA, BETA, SCALE, SHIFT, WANTED, Y = WANTED, RESULTS };
static const int64_t samples = 3, places = 70, channels = 32;

struct run {
    struct graph *g;
    struct eval *eval;
    value_id in[WANTED], seed, result[RESULTS]; /* gradients, and y */
    int n_wanted;
};

/* What is compared: the activation, and whether FiLM comes after it. */
struct behind {
    enum op_id op;
    bool film;
};

static void write_graph(struct run *r, const struct behind *what, enum dtype dtype)
{
    struct shape x = shape_of(3, samples, places, channels), each = shape_of(2, samples, channels);
    struct shape weight = shape_of(1, channels);
    struct builder b;
    expect_ok(graph_new(&r->g, "net"));
    builder_init(&b, r->g);
    r->n_wanted = what->film ? WANTED : SCALE;
    r->in[X] = build_value(&b, "x", ROLE_PARAMETER, dtype, x);
    r->in[GAMMA] = build_value(&b, "gamma", ROLE_PARAMETER, DTYPE_F32, weight);
    r->in[BETA] = build_value(&b, "beta", ROLE_PARAMETER, DTYPE_F32, weight);
    r->in[SCALE] = build_value(&b, "scale", ROLE_PARAMETER, dtype, each);
    r->in[SHIFT] = build_value(&b, "shift", ROLE_PARAMETER, dtype, each);
    r->seed = build_value(&b, "seed", ROLE_INPUT, dtype, x);
    value_id y = build(&b, OP_batch_norm, IN(r->in[X], r->in[GAMMA], r->in[BETA]), NO_ATTRS);
    y = build(&b, what->op, IN(y), NO_ATTRS);
    if (what->film)
        y = build(&b, OP_film, IN(y, r->in[SCALE], r->in[SHIFT]), NO_ATTRS);
    expect_ok(builder_status(&b));
    r->result[Y] = y;
}

/* Numbers of both signs that depend on the value alone. */
static void fill(const struct run *r, value_id v)
{
    struct tensor t = eval_tensor(r->eval, v);
    for (int64_t i = 0; i < shape_elems(&t.shape); i++) {
        struct philox4 bits = philox(5, (uint64_t)v, (uint64_t)i);
        ref_set(&t, i, 2.0 * (double)rng_uniform(bits.v[0]) - 0.75);
    }
}

static void run_init(struct run *r, const struct behind *what, enum dtype dtype, bool fused)
{
    write_graph(r, what, dtype);
    expect_ok(graph_add_output(r->g, "y", r->result[Y]));
    if (fused)
        expect_ok(rewrite_apply(r->g, REWRITE_FORWARD));
    size_t n_forward = r->g->nodes.n;
    assert_int_equal(n_forward, fused ? 1 : what->film ? 3 : 2);
    expect_ok(autodiff(r->g, r->result[Y], r->seed, r->in, (size_t)r->n_wanted, r->result));
    assert_int_equal(r->g->nodes.n, 2 * n_forward);
    expect_ok(graph_check(r->g));
    expect_ok(eval_new(&r->eval, r->g, &(struct eval_options){.n_threads = 2}));
    for (int i = 0; i < WANTED; i++)
        fill(r, r->in[i]);
    fill(r, r->seed);
    expect_ok(eval_run(r->eval));
}

static void run_release(struct run *r)
{
    eval_free(r->eval);
    graph_free(r->g);
}

/* The length of the difference in parts of the length. */
static double distance(struct tensor a, struct tensor b)
{
    double difference = 0.0, all = 0.0;
    for (int64_t i = 0; i < shape_elems(&a.shape); i++) {
        double x = ref_get(&a, i), y = ref_get(&b, i);
        difference += (x - y) * (x - y);
        all += x * x;
    }
    return sqrt(difference / all);
}

static void one_node_gives_what_several_give(void **state)
{
    static const struct behind all[] = {
        {OP_leaky_relu, true}, {OP_relu, false}, {OP_silu, false}, {OP_relu, true}};
    static const struct {
        enum dtype dtype;
        double tolerance;
    } cases[] = {{DTYPE_F32, 2e-6}, {DTYPE_BF16, 1e-2}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all) * ARRAY_LEN(cases); i++) {
        const struct behind *what = &all[i / ARRAY_LEN(cases)];
        struct run plain, fused;
        run_init(&plain, what, cases[i % ARRAY_LEN(cases)].dtype, false);
        run_init(&fused, what, cases[i % ARRAY_LEN(cases)].dtype, true);
        for (int k = 0; k < RESULTS; k++) {
            if (k >= plain.n_wanted && k != Y)
                continue;
            double off = distance(eval_tensor(plain.eval, plain.result[k]),
                                  eval_tensor(fused.eval, fused.result[k]));
            if (!(off <= cases[i % ARRAY_LEN(cases)].tolerance))
                fail_msg("%s%s: result %d is off by %g", op_get(what->op)->name,
                         what->film ? " and film" : "", k, off);
        }
        run_release(&plain);
        run_release(&fused);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_node_gives_what_several_give)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
