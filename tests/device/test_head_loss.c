/* The chunked output projection with cross entropy against the definition in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "device/cpu/support/ref.h"
#include "graph/builder.h"
#include "support/eval.h"

enum { ROWS = 70, WORDS = 1100, COLUMNS = 40, IGNORED = -7 };

struct options {
    enum dtype dtype, dw_dtype;
    int64_t chunks;
    double smoothing, z_loss;
    bool accumulates;
    int n_threads;
};

struct run {
    struct graph *g;
    struct eval *e;
    value_id x, w, targets, d_loss, acc;
    value_id loss, count, grad_loss, grad_count, dx, dw;
};

static void fill_normal(struct tensor t, uint64_t seed, double size)
{
    for (int64_t i = 0; i < shape_elems(&t.shape); i++) {
        struct philox4 p = philox(seed, 0, (uint64_t)i);
        float x, y;
        rng_normal2(p.v[0], p.v[1], &x, &y);
        ref_set(&t, i, size * (double)x);
    }
}

static struct run run_new(const struct options *o)
{
    struct run r = {.acc = VALUE_NONE};
    struct builder b;
    int64_t rows = ROWS, words = WORDS, columns = COLUMNS;
    assert_int_equal(graph_new(&r.g, "head"), OK);
    builder_init(&b, r.g);
    r.x = build_value(&b, "x", ROLE_INPUT, o->dtype, shape_of(2, rows, columns));
    r.w = build_value(&b, "w", ROLE_PARAMETER, o->dtype, shape_of(2, words, columns));
    r.targets = build_value(&b, "targets", ROLE_INPUT, DTYPE_I32, shape_of(1, rows));
    r.d_loss = build_value(&b, "d_loss", ROLE_INPUT, DTYPE_F32, shape_of(1, (int64_t)1));
    enum dtype dw_dtype = o->dw_dtype != DTYPE_NONE ? o->dw_dtype : o->dtype;
    if (o->accumulates)
        r.acc = build_value(&b, "acc", ROLE_GRADIENT, dw_dtype, shape_of(2, words, columns));
    r.loss = build(&b, OP_linear_cross_entropy, IN(r.x, r.w, r.targets),
                   ATTRS({"chunks", .i = o->chunks}, {"ignore_index", .i = IGNORED},
                         {"label_smoothing", .f = o->smoothing}, {"z_loss", .f = o->z_loss}));
    r.count = build_output(&b, 1);
    r.grad_loss = build(&b, OP_linear_cross_entropy_grad, IN(r.x, r.w, r.targets, r.d_loss, r.acc),
                        ATTRS({"chunks", .i = o->chunks}, {"ignore_index", .i = IGNORED},
                              {"label_smoothing", .f = o->smoothing}, {"z_loss", .f = o->z_loss},
                              {"dtype", .i = o->dw_dtype}));
    r.grad_count = build_output(&b, 1);
    r.dx = build_output(&b, 2);
    r.dw = build_output(&b, 3);
    assert_int_equal(builder_status(&b), OK);
    struct eval_options options = {.n_threads = o->n_threads, .poison = 0xff};
    assert_int_equal(eval_new(&r.e, r.g, &options), OK);
    fill_normal(eval_tensor(r.e, r.x), 1, 1.0);
    fill_normal(eval_tensor(r.e, r.w), 2, 0.5);
    if (o->accumulates)
        fill_normal(eval_tensor(r.e, r.acc), 3, 0.1);
    for (int i = 0; i < ROWS; i++)
        ((int32_t *)eval_tensor(r.e, r.targets).data)[i] = i % 9 == 4 ? IGNORED : i * 131 % WORDS;
    *(float *)eval_tensor(r.e, r.d_loss).data = 0.25f;
    return r;
}

static void run_release(struct run *r)
{
    eval_free(r->e);
    graph_free(r->g);
}

struct want {
    double loss, count;
    double *dx, *dw;
};

/* One row by the definition; z has room for its logits. */
static void want_row(const struct options *o, const struct run *r, int64_t i, double *z,
                     struct want *want)
{
    struct tensor x = eval_tensor(r->e, r->x), w = eval_tensor(r->e, r->w);
    int32_t target = ((int32_t *)eval_tensor(r->e, r->targets).data)[i];
    double sum = 0.0, avg = 0.0;
    if (target == IGNORED)
        return;
    for (int64_t v = 0; v < WORDS; v++) {
        z[v] = 0.0;
        for (int64_t k = 0; k < COLUMNS; k++)
            z[v] += ref_get(&x, i * COLUMNS + k) * ref_get(&w, v * COLUMNS + k);
        sum += exp(z[v]);
        avg += z[v] / WORDS;
    }
    double lse = log(sum), e = o->smoothing;
    want->loss += lse - (1.0 - e) * z[target] - e * avg + o->z_loss * lse * lse;
    want->count += 1.0;
    for (int64_t v = 0; v < WORDS; v++) {
        double g = exp(z[v] - lse) * (1.0 + 2.0 * o->z_loss * lse) - e / WORDS;
        g = 0.25 * (v == target ? g - (1.0 - e) : g);
        for (int64_t k = 0; k < COLUMNS; k++) {
            want->dx[i * COLUMNS + k] += g * ref_get(&w, v * COLUMNS + k);
            want->dw[v * COLUMNS + k] += g * ref_get(&x, i * COLUMNS + k);
        }
    }
}

static struct want want_of(const struct options *o, const struct run *r)
{
    struct want want = {.dx = mem_calloc(ROWS * COLUMNS, sizeof(double)),
                        .dw = mem_calloc(WORDS * COLUMNS, sizeof(double))};
    double *z = mem_calloc(WORDS, sizeof(double));
    assert_true(want.dx && want.dw && z);
    for (int64_t i = 0; o->accumulates && i < WORDS * COLUMNS; i++) {
        struct tensor acc = eval_tensor(r->e, r->acc);
        want.dw[i] = ref_get(&acc, i);
    }
    for (int64_t i = 0; i < ROWS; i++)
        want_row(o, r, i, z, &want);
    mem_free(z);
    return want;
}

static void compare(const char *name, struct tensor got, const double *want, double tolerance)
{
    for (int64_t i = 0; i < shape_elems(&got.shape); i++) {
        double x = ref_get(&got, i);
        if (!(fabs(x - want[i]) <= tolerance * (0.1 + fabs(want[i]))))
            fail_msg("%s[%lld]: %.9g, want %.9g", name, (long long)i, x, want[i]);
    }
}

static void check(const struct options *o, double tolerance)
{
    struct run r = run_new(o);
    struct want want = want_of(o, &r);
    if (eval_run(r.e) != OK)
        fail_msg("%s", status_message());
    compare("loss", eval_tensor(r.e, r.loss), &want.loss, tolerance);
    compare("count", eval_tensor(r.e, r.count), &want.count, 0.0);
    compare("the gradient op's loss", eval_tensor(r.e, r.grad_loss), &want.loss, tolerance);
    compare("the gradient op's count", eval_tensor(r.e, r.grad_count), &want.count, 0.0);
    compare("dx", eval_tensor(r.e, r.dx), want.dx, tolerance);
    compare("dw", eval_tensor(r.e, r.dw), want.dw, tolerance);
    mem_free(want.dx);
    mem_free(want.dw);
    run_release(&r);
}

static void chunks_give_what_the_definition_gives(void **state)
{
    (void)state;
    const int64_t chunks[] = {0, 1, 3, 70, 1000};
    for (size_t i = 0; i < ARRAY_LEN(chunks); i++)
        check(&(struct options){.dtype = DTYPE_F32, .chunks = chunks[i], .n_threads = 2}, 2e-5);
}

static void smoothing_and_z_loss_enter_loss_and_gradient(void **state)
{
    (void)state;
    check(&(struct options){.dtype = DTYPE_F32, .smoothing = 0.1, .n_threads = 1}, 2e-5);
    check(&(struct options){.dtype = DTYPE_F32, .z_loss = 0.02, .chunks = 4, .n_threads = 2}, 2e-5);
}

static void gradients_are_added_to_the_accumulator(void **state)
{
    (void)state;
    check(&(struct options){.dtype = DTYPE_F32, .chunks = 5, .accumulates = true, .n_threads = 2},
          2e-5);
    check(&(struct options){.dtype = DTYPE_BF16,
                            .dw_dtype = DTYPE_F32,
                            .chunks = 5,
                            .accumulates = true,
                            .n_threads = 2},
          2e-2);
}

/* Seventy roundings to bf16, one per row, would show: the sum has one. */
static void a_16_bit_gradient_is_rounded_once_however_many_chunks(void **state)
{
    (void)state;
    check(&(struct options){.dtype = DTYPE_BF16, .chunks = 70, .n_threads = 2}, 1e-2);
}

static void the_number_of_chunks_does_not_change_the_loss(void **state)
{
    (void)state;
    float first = 0.0f;
    for (int64_t chunks = 1; chunks <= 8; chunks++) {
        struct run r = run_new(&(struct options){.dtype = DTYPE_F32, .chunks = chunks});
        assert_int_equal(eval_run(r.e), OK);
        float loss = *(float *)eval_tensor(r.e, r.loss).data;
        if (chunks == 1)
            first = loss;
        assert_memory_equal(&loss, &first, sizeof(loss));
        run_release(&r);
    }
}

static void targets_outside_the_vocabulary_are_refused(void **state)
{
    (void)state;
    const int32_t wrong[] = {WORDS, -1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct run r = run_new(&(struct options){.dtype = DTYPE_F32});
        ((int32_t *)eval_tensor(r.e, r.targets).data)[3] = wrong[i];
        assert_int_equal(eval_run(r.e), ERR_DATA);
        run_release(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_give_what_the_definition_gives),
        cmocka_unit_test(smoothing_and_z_loss_enter_loss_and_gradient),
        cmocka_unit_test(gradients_are_added_to_the_accumulator),
        cmocka_unit_test(a_16_bit_gradient_is_rounded_once_however_many_chunks),
        cmocka_unit_test(the_number_of_chunks_does_not_change_the_loss),
        cmocka_unit_test(targets_outside_the_vocabulary_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
