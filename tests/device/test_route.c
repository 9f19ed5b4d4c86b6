/* Routing: the laws of the order of rows by expert, with ties, experts without rows, all rows at
 * one expert, and every expert for every token; by the fast kernel and the reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "graph/builder.h"
#include "support/eval.h"
#include "support/golden.h"

enum { MOST_SLOTS = 4096, MOST_EXPERTS = 64 };

static const char *const kernels[] = {"rows", "reference"};

struct routed {
    int64_t n, n_experts, k;
    float weights[MOST_SLOTS];
    int32_t ids[MOST_SLOTS], order[MOST_SLOTS], place[MOST_SLOTS], offsets[MOST_EXPERTS + 1];
};

static void copy_out(void *to, const struct eval *e, value_id v)
{
    struct tensor t = eval_tensor(e, v);
    memcpy(to, t.data, (size_t)tensor_bytes(&t));
}

static void route(struct routed *r, const float *p, bool normalize, const char *kernel)
{
    struct graph *g;
    struct builder b;
    struct eval *e;
    expect_ok(graph_new(&g, "route"));
    builder_init(&b, g);
    value_id in = build_value(&b, "p", ROLE_INPUT, DTYPE_F32, shape_of(2, r->n, r->n_experts));
    value_id weights =
        build(&b, OP_route, IN(in),
              ATTRS({.name = "k", .i = r->k}, {.name = "normalize", .i = normalize}));
    value_id out[] = {weights, build_output(&b, 1), build_output(&b, 2), build_output(&b, 3),
                      build_output(&b, 4)};
    expect_ok(builder_status(&b));
    expect_ok(eval_new(&e, g, &(struct eval_options){.kernel = kernel, .n_threads = 2}));
    memcpy(eval_tensor(e, in).data, p, sizeof(float) * (size_t)(r->n * r->n_experts));
    expect_ok(eval_run(e));
    copy_out(r->weights, e, out[0]);
    copy_out(r->ids, e, out[1]);
    copy_out(r->order, e, out[2]);
    copy_out(r->place, e, out[3]);
    copy_out(r->offsets, e, out[4]);
    eval_free(e);
    graph_free(g);
}

/* What holds of every routing. */
static void expect_laws(const struct routed *r, const float *p)
{
    int64_t n_slots = r->n * r->k;
    assert_int_equal(r->offsets[0], 0);
    assert_int_equal(r->offsets[r->n_experts], n_slots);
    for (int64_t i = 0; i < n_slots; i++) {
        int32_t id = r->ids[i], row = r->place[i];
        assert_in_range(id, 0, r->n_experts - 1);
        assert_int_equal(r->order[row], i); /* each other's inverse */
        assert_true(r->offsets[id] <= row && row < r->offsets[id + 1]);
        for (int64_t j = i / r->k * r->k; j < i; j++) {
            float before = p[i / r->k * r->n_experts + r->ids[j]];
            float own = p[i / r->k * r->n_experts + id];
            assert_int_not_equal(r->ids[j], id);
            assert_true(before > own || (before == own && r->ids[j] < id));
        }
    }
    for (int64_t row = 1; row < n_slots; row++) { /* stable */
        bool same = r->ids[r->order[row - 1]] == r->ids[r->order[row]];
        assert_true(!same || r->order[row - 1] < r->order[row]);
    }
}

static void check(struct routed *r, const float *p)
{
    for (size_t i = 0; i < ARRAY_LEN(kernels); i++) {
        for (int normalize = 0; normalize < 2; normalize++) {
            route(r, p, normalize, kernels[i]);
            expect_laws(r, p);
            for (int64_t n = 0; n < r->n; n++) {
                float sum = 0.0f;
                for (int64_t j = 0; j < r->k; j++)
                    sum += r->weights[n * r->k + j];
                if (normalize)
                    assert_float_equal(sum, 1.0f, 1e-5f);
                else
                    assert_float_equal(r->weights[n * r->k], p[n * r->n_experts + r->ids[n * r->k]],
                                       0.0f);
            }
        }
    }
}

static void random_routings_keep_the_laws(void **state)
{
    static float p[MOST_SLOTS * 4];
    static struct routed r;
    static const int64_t sizes[][3] = {
        {1, 1, 1}, {300, 8, 2}, {77, 64, 6}, {513, 3, 3}, {40, 16, 1}};
    struct rng random = {.key = 11};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        r = (struct routed){.n = sizes[i][0], .n_experts = sizes[i][1], .k = sizes[i][2]};
        for (int64_t k = 0; k < r.n * r.n_experts; k++) /* few values: ties abound */
            p[k] = 0.125f * (float)(1 + rng_below(&random, 8));
        check(&r, p);
    }
}

static void equal_probabilities_go_to_the_lower_number(void **state)
{
    static struct routed r;
    static float p[16 * 8];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(p); i++)
        p[i] = 0.125f;
    r = (struct routed){.n = 16, .n_experts = 8, .k = 3};
    check(&r, p);
    for (int64_t i = 0; i < 48; i++)
        assert_int_equal(r.ids[i], i % 3);
    assert_int_equal(r.offsets[3], 48); /* nothing for the other five */
    assert_int_equal(r.offsets[4], 48);
}

static void all_rows_may_go_to_one_expert(void **state)
{
    static struct routed r;
    static float p[50 * 5];
    (void)state;
    for (int64_t i = 0; i < 250; i++)
        p[i] = i % 5 == 3 ? 0.9f : 0.025f;
    r = (struct routed){.n = 50, .n_experts = 5, .k = 1};
    check(&r, p);
    for (int64_t e = 0; e <= 5; e++)
        assert_int_equal(r.offsets[e], e > 3 ? 50 : 0);
    for (int64_t i = 0; i < 50; i++)
        assert_int_equal(r.order[i], i);
}

/* ---- grouped products ------------------------------------------------------------------------ */

enum { ROWS = 37, WIDTH = 8, GROUPS = 4 };

/* y = x w[e]^T with w[e] = (e + 1) times the unit matrix: a row times the number of its group. */
static void expect_group_numbers(const int32_t *offsets)
{
    for (size_t i = 0; i < 2; i++) {
        struct graph *g;
        struct builder b;
        struct eval *e;
        expect_ok(graph_new(&g, "grouped"));
        builder_init(&b, g);
        value_id x =
            build_value(&b, "x", ROLE_INPUT, DTYPE_F32, shape_of(2, (int64_t)ROWS, (int64_t)WIDTH));
        value_id w = build_value(&b, "w", ROLE_INPUT, DTYPE_F32,
                                 shape_of(3, (int64_t)GROUPS, (int64_t)WIDTH, (int64_t)WIDTH));
        value_id at =
            build_value(&b, "offsets", ROLE_INPUT, DTYPE_I32, shape_of(1, (int64_t)GROUPS + 1));
        value_id y = build(&b, OP_grouped_linear, IN(x, w, at), NO_ATTRS);
        value_id dw = build(&b, OP_grouped_linear_grad_weight, IN(y, x, at), NO_ATTRS);
        expect_ok(builder_status(&b));
        expect_ok(eval_new(
            &e, g, &(struct eval_options){.kernel = i ? "reference" : "product", .poison = 0xFF}));
        float *in = eval_tensor(e, x).data, *weights = eval_tensor(e, w).data;
        for (int k = 0; k < ROWS * WIDTH; k++)
            in[k] = (float)(k % 7) - 3.0f;
        for (int k = 0; k < GROUPS * WIDTH * WIDTH; k++)
            weights[k] = k / WIDTH % WIDTH == k % WIDTH ? (float)(k / WIDTH / WIDTH + 1) : 0.0f;
        memcpy(eval_tensor(e, at).data, offsets, sizeof(int32_t) * (GROUPS + 1));
        expect_ok(eval_run(e));
        const float *out = eval_tensor(e, y).data, *grad = eval_tensor(e, dw).data;
        for (int group = 0; group < GROUPS; group++) {
            float sum = 0.0f;
            for (int k = offsets[group] * WIDTH; k < offsets[group + 1] * WIDTH; k++) {
                assert_float_equal(out[k], in[k] * (float)(group + 1), 0.0f);
                sum += k % WIDTH == 0 ? out[k] * in[k] : 0.0f;
            }
            assert_float_equal(grad[group * WIDTH * WIDTH], sum, 1e-3f); /* 0 without rows */
        }
        eval_free(e);
        graph_free(g);
    }
}

static void groups_may_be_empty_or_hold_all_rows(void **state)
{
    static const int32_t cases[][GROUPS + 1] = {{0, 10, 20, 30, 37},
                                                {0, 0, 37, 37, 37},
                                                {0, 0, 0, 0, 37},
                                                {0, 37, 37, 37, 37},
                                                {0, 1, 1, 36, 37}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        expect_group_numbers(cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_routings_keep_the_laws),
        cmocka_unit_test(equal_probabilities_go_to_the_lower_number),
        cmocka_unit_test(all_rows_may_go_to_one_expert),
        cmocka_unit_test(groups_may_be_empty_or_hold_all_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
