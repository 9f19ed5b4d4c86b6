/* The tiled attention kernels against attention written down directly: the whole matrix of scores
 * in double, gradients by the chain rule. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "device/cpu/support/ref.h"
#include "graph/builder.h"
#include "support/eval.h"

struct shape_case {
    int64_t batch, tokens, heads, kv_heads, head_dim, window;
    bool causal;
    int n_threads;
    double dropout, softcap;
    int64_t block; /* of the window; 0: of tokens */
};

static const struct shape_case cases[] = {
    {1, 1, 1, 1, 8, 0, true, 1, 0.0, 0.0, 0},      /* one token */
    {2, 33, 3, 3, 5, 0, true, 2, 0.0, 0.0, 0},     /* nothing is a multiple of anything */
    {1, 97, 4, 2, 64, 0, true, 2, 0.0, 0.0, 0},    /* one more than a tile; grouped heads */
    {1, 200, 2, 1, 80, 0, true, 3, 0.0, 0.0, 0},   /* fewer units than threads */
    {2, 130, 2, 2, 32, 40, true, 2, 0.0, 0.0, 0},  /* window smaller than a tile */
    {1, 300, 2, 2, 16, 120, true, 1, 0.0, 0.0, 0}, /* window larger than a tile */
    {1, 500, 1, 1, 16, 1, true, 2, 0.0, 0.0, 0},   /* a query sees itself only */
    {1, 110, 2, 2, 12, 0, false, 2, 0.0, 0.0, 0},  /* not causal */
    {1, 450, 1, 1, 40, 0, true, 2, 0.0, 0.0, 0},   /* more than one block of queries */
    {2, 33, 3, 3, 5, 0, true, 2, 0.5, 0.0, 0},     /* with dropout from here on */
    {1, 97, 4, 2, 64, 0, true, 2, 0.1, 0.0, 0},    /* grouped heads */
    {1, 200, 2, 1, 80, 0, true, 3, 0.2, 0.0, 0},   /* fewer units than threads */
    {2, 130, 2, 2, 32, 40, true, 2, 0.3, 0.0, 0},  /* window that begins within a square of draws */
    {1, 470, 1, 1, 16, 75, true, 2, 0.3, 0.0, 0},  /* more than one block of queries, window */
    {1, 110, 2, 2, 12, 0, false, 2, 0.9, 0.0, 0},  /* not causal, little left */
    {1, 97, 4, 2, 64, 0, true, 2, 0.0, 2.0, 0},    /* a cap on scores from here on */
    {1, 200, 2, 1, 80, 0, true, 3, 0.0, 0.5, 0},
    {1, 470, 1, 1, 16, 75, true, 2, 0.0, 50.0, 0},
    {1, 110, 2, 2, 12, 0, false, 2, 0.3, 1.0, 0},
    {1, 300, 2, 1, 16, 96, true, 2, 0.0, 0.0, 32},  /* windows of blocks from here on */
    {1, 470, 1, 1, 16, 128, true, 2, 0.3, 0.0, 64}, /* more than one block of queries */
};

/* One case as a graph: qkv, dout -> out, lse, dqkv. */
struct run {
    struct graph *g;
    struct eval *e;
    value_id qkv, dout, rng, out, lse, dqkv;
};

static const int64_t random_state[] = {INT64_C(0x123456789abcdef), 41};
enum { SEED = 5 };

static void fill_normal(struct tensor t, uint64_t seed, double size)
{
    for (int64_t i = 0; i < shape_elems(&t.shape); i++) {
        struct philox4 p = philox(seed, 0, (uint64_t)i);
        float x, y;
        rng_normal2(p.v[0], p.v[1], &x, &y);
        ref_set(&t, i, size * (double)x);
    }
}

static struct run run_case(const struct shape_case *s, enum dtype dtype)
{
    struct run r;
    struct builder b;
    int64_t width = (s->heads + 2 * s->kv_heads) * s->head_dim;
    assert_int_equal(graph_new(&r.g, "attention"), OK);
    builder_init(&b, r.g);
    r.qkv = build_value(&b, "qkv", ROLE_INPUT, dtype, shape_of(3, s->batch, s->tokens, width));
    r.dout = build_value(&b, "dout", ROLE_INPUT, dtype,
                         shape_of(3, s->batch, s->tokens, s->heads * s->head_dim));
    r.rng = build_value(&b, "rng", ROLE_INPUT, DTYPE_I64, shape_of(1, (int64_t)2));
    r.out = build(&b, OP_attention, IN(r.qkv, r.rng),
                  ATTRS({"heads", .i = s->heads}, {"kv_heads", .i = s->kv_heads},
                        {"causal", .i = s->causal}, {"window", .i = s->window},
                        {"dropout", .f = s->dropout}, {"seed", .i = SEED},
                        {"softcap", .f = s->softcap}, {"block", .i = s->block}));
    r.lse = build_output(&b, 1);
    r.dqkv = build(&b, OP_attention_grad, IN(r.dout, r.qkv, r.out, r.lse, r.rng),
                   ATTRS({"heads", .i = s->heads}, {"kv_heads", .i = s->kv_heads},
                         {"causal", .i = s->causal}, {"window", .i = s->window},
                         {"dropout", .f = s->dropout}, {"seed", .i = SEED},
                         {"softcap", .f = s->softcap}, {"block", .i = s->block}));
    assert_int_equal(builder_status(&b), OK);
    struct eval_options options = {.n_threads = s->n_threads, .poison = 0xff};
    assert_int_equal(eval_new(&r.e, r.g, &options), OK);
    fill_normal(eval_tensor(r.e, r.qkv), 1, 1.5);
    fill_normal(eval_tensor(r.e, r.dout), 2, 1.0);
    memcpy(eval_tensor(r.e, r.rng).data, random_state, sizeof(random_state));
    enum status status = eval_run(r.e);
    if (status != OK)
        fail_msg("%s", status_message());
    return r;
}

static void run_release(struct run *r)
{
    eval_free(r->e);
    graph_free(r->g);
}

/* What the definitions give, in double. */
struct want {
    double *out, *lse, *dqkv;
};

/* What dropout multiplies the weights of one head by: 0, or 1 / (1 - p). The draws are those of
 * ops/attention_dropout.h, written down pair by pair. */
static void multipliers(const struct shape_case *s, int64_t head, double *m)
{
    int64_t side = (s->tokens + 15) / 16;
    for (int64_t e = 0; e < s->tokens * s->tokens; e++) {
        int64_t i = e / s->tokens, j = e % s->tokens;
        int64_t square = (head * side + i / 16) * side + j / 16;
        struct philox4 r =
            philox_rounds((uint64_t)random_state[0], ((uint64_t)random_state[1] << 20) + SEED,
                          (uint64_t)(square * 32 + i % 8 * 4 + j % 8 / 2), 7);
        uint32_t word = r.v[i / 8 % 2 * 2 + j / 8 % 2];
        double uniform = (double)(j % 2 ? word >> 16 : word & 0xffff) / 65536.0;
        m[e] = uniform + 0.5 / 65536.0 > s->dropout ? 1.0 / (1.0 - s->dropout) : 0.0;
    }
}

/* Weights p[tokens, tokens] of one head, 0 where masked; and its log-sum-exp. */
static void weights(const struct shape_case *s, const struct tensor *qkv, int64_t q, int64_t k,
                    int64_t width, double *p, double *lse)
{
    for (int64_t i = 0; i < s->tokens; i++) {
        double top = (double)-INFINITY, sum = 0.0;
        for (int64_t j = 0; j < s->tokens; j++) {
            double score = 0.0;
            for (int64_t e = 0; e < s->head_dim; e++)
                score += ref_get(qkv, q + i * width + e) * ref_get(qkv, k + j * width + e);
            int64_t from = s->block ? i / s->block * s->block + s->block - 1 : i;
            bool sees = (!s->causal || j <= i) && (s->window == 0 || j > from - s->window);
            score /= sqrt((double)s->head_dim);
            if (s->softcap > 0.0)
                score = s->softcap * tanh(score / s->softcap);
            p[i * s->tokens + j] = sees ? score : (double)-INFINITY;
            top = fmax(top, p[i * s->tokens + j]);
        }
        for (int64_t j = 0; j < s->tokens; j++)
            sum += exp(p[i * s->tokens + j] - top);
        lse[i] = top + log(sum);
        for (int64_t j = 0; j < s->tokens; j++)
            p[i * s->tokens + j] = exp(p[i * s->tokens + j] - lse[i]);
    }
}

/* What a cap leaves of the gradient of the score that weight p came from. */
static double slope_under_cap(const struct shape_case *s, double p, double lse)
{
    double share = s->softcap > 0.0 && p > 0.0 ? (log(p) + lse) / s->softcap : 0.0;
    return 1.0 - share * share;
}

/* Adds one head's gradients into w->dqkv; m are the multipliers of its weights p. */
static void add_gradients(const struct shape_case *s, const struct tensor *qkv,
                          const struct tensor *dout, int64_t q, int64_t k, int64_t v, int64_t o,
                          int64_t width, const double *p, const double *lse, const double *m,
                          struct want *w)
{
    int64_t out_width = s->heads * s->head_dim;
    for (int64_t i = 0; i < s->tokens; i++) {
        double delta = 0.0;
        for (int64_t e = 0; e < s->head_dim; e++)
            delta += ref_get(dout, o + i * out_width + e) * w->out[o + i * out_width + e];
        for (int64_t j = 0; j < s->tokens; j++) {
            double dp = 0.0, weight = p[i * s->tokens + j], multiplier = m[i * s->tokens + j];
            for (int64_t e = 0; e < s->head_dim; e++)
                dp += ref_get(dout, o + i * out_width + e) * ref_get(qkv, v + j * width + e);
            double ds = weight * (multiplier * dp - delta) / sqrt((double)s->head_dim) *
                        slope_under_cap(s, weight, lse[i]);
            for (int64_t e = 0; e < s->head_dim; e++) {
                w->dqkv[q + i * width + e] += ds * ref_get(qkv, k + j * width + e);
                w->dqkv[k + j * width + e] += ds * ref_get(qkv, q + i * width + e);
                w->dqkv[v + j * width + e] +=
                    multiplier * weight * ref_get(dout, o + i * out_width + e);
            }
        }
    }
}

static struct want want_of(const struct shape_case *s, const struct tensor *qkv,
                           const struct tensor *dout)
{
    int64_t width = (s->heads + 2 * s->kv_heads) * s->head_dim, out_width = s->heads * s->head_dim;
    size_t n_rows = (size_t)(s->batch * s->tokens);
    struct want w = {mem_calloc(n_rows * (size_t)out_width, sizeof(double)),
                     mem_calloc(n_rows * (size_t)s->heads, sizeof(double)),
                     mem_calloc(n_rows * (size_t)width, sizeof(double))};
    double *p = mem_calloc((size_t)(s->tokens * s->tokens), sizeof(double));
    double *m = mem_calloc((size_t)(s->tokens * s->tokens), sizeof(double));
    assert_true(w.out && w.lse && w.dqkv && p && m);
    for (int64_t h = 0; h < s->batch * s->heads; h++) {
        int64_t row = h / s->heads * s->tokens, head = h % s->heads;
        int64_t kv = s->heads + head / (s->heads / s->kv_heads);
        int64_t q = row * width + head * s->head_dim, k = row * width + kv * s->head_dim;
        int64_t v = k + s->kv_heads * s->head_dim, o = row * out_width + head * s->head_dim;
        weights(s, qkv, q, k, width, p, w.lse + h * s->tokens);
        multipliers(s, h, m);
        for (int64_t i = 0; i < s->tokens; i++) {
            for (int64_t j = 0; j < s->tokens; j++) {
                for (int64_t e = 0; e < s->head_dim; e++)
                    w.out[o + i * out_width + e] += m[i * s->tokens + j] * p[i * s->tokens + j] *
                                                    ref_get(qkv, v + j * width + e);
            }
        }
        add_gradients(s, qkv, dout, q, k, v, o, width, p, w.lse + h * s->tokens, m, &w);
    }
    mem_free(p);
    mem_free(m);
    return w;
}

static void want_release(struct want *w)
{
    mem_free(w->out);
    mem_free(w->lse);
    mem_free(w->dqkv);
}

static void compare(const char *name, size_t i_case, struct tensor got, const double *want,
                    double tolerance)
{
    for (int64_t i = 0; i < shape_elems(&got.shape); i++) {
        double x = ref_get(&got, i);
        if (!(fabs(x - want[i]) <= tolerance * (1.0 + fabs(want[i]))))
            fail_msg("case %zu, %s[%lld]: %.9g, want %.9g", i_case, name, (long long)i, x, want[i]);
    }
}

static void check_case(size_t i_case, enum dtype dtype, double tolerance)
{
    const struct shape_case *s = &cases[i_case];
    struct run r = run_case(s, dtype);
    struct tensor qkv = eval_tensor(r.e, r.qkv), dout = eval_tensor(r.e, r.dout);
    struct want w = want_of(s, &qkv, &dout);
    compare("out", i_case, eval_tensor(r.e, r.out), w.out, tolerance);
    compare("lse", i_case, eval_tensor(r.e, r.lse), w.lse, tolerance);
    compare("dqkv", i_case, eval_tensor(r.e, r.dqkv), w.dqkv, tolerance);
    want_release(&w);
    run_release(&r);
}

static void tiles_give_what_the_full_matrix_gives(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_case(i, DTYPE_F32, 2e-5);
}

static void bf16_storage_costs_only_its_rounding(void **state)
{
    (void)state;
    for (size_t i = 0; i < 5; i++)
        check_case(i, DTYPE_BF16, 6e-2);
    for (size_t i = 9; i < 13; i++)
        check_case(i, DTYPE_BF16, 8e-2);
}

/* Whole units per thread and the two finer passes sum in different orders, but each is fixed. */
static void results_do_not_change_from_run_to_run(void **state)
{
    (void)state;
    for (size_t i = 2; i < 4; i++) {
        struct run a = run_case(&cases[i], DTYPE_F32), b = run_case(&cases[i], DTYPE_F32);
        struct tensor x = eval_tensor(a.e, a.dqkv), y = eval_tensor(b.e, b.dqkv);
        assert_memory_equal(x.data, y.data, (size_t)tensor_bytes(&x));
        run_release(&a);
        run_release(&b);
    }
}

static void huge_scores_neither_overflow_nor_turn_to_nan(void **state)
{
    (void)state;
    struct shape_case s = {1, 100, 1, 1, 8, 0, true, 1, 0.0, 0.0, 0};
    struct run r = run_case(&s, DTYPE_F32);
    fill_normal(eval_tensor(r.e, r.qkv), 3, 100.0);
    assert_int_equal(eval_run(r.e), OK);
    struct tensor out = eval_tensor(r.e, r.out), dqkv = eval_tensor(r.e, r.dqkv);
    for (int64_t i = 0; i < shape_elems(&out.shape); i++)
        assert_true(isfinite(ref_get(&out, i)));
    for (int64_t i = 0; i < shape_elems(&dqkv.shape); i++)
        assert_true(isfinite(ref_get(&dqkv, i)));
    run_release(&r);
}

/* ---- the cache ---------------------------------------------------------------------------- */

struct cached {
    struct graph *g;
    struct eval *e;
    value_id qkv, cache, position, out;
};

static struct cached cached_new(int64_t n_tokens, int64_t n_slots, int64_t window)
{
    struct cached c;
    struct builder b;
    assert_int_equal(graph_new(&c.g, "cached"), OK);
    builder_init(&b, c.g);
    c.qkv = build_value(&b, "qkv", ROLE_INPUT, DTYPE_F32,
                        shape_of(3, (int64_t)2, n_tokens, (int64_t)8 * 20));
    c.cache = build_value(&b, "cache", ROLE_STATE, DTYPE_F32,
                          shape_of(5, (int64_t)2, (int64_t)2, n_slots, (int64_t)2, (int64_t)20));
    c.position = build_value(&b, "position", ROLE_INPUT, DTYPE_I32, shape_of(1, (int64_t)1));
    c.out = build(&b, OP_attention_cached, IN(c.qkv, c.cache, c.position),
                  ATTRS({"heads", .i = 4}, {"kv_heads", .i = 2}, {"window", .i = window}));
    assert_int_equal(builder_status(&b), OK);
    assert_int_equal(eval_new(&c.e, c.g, &(struct eval_options){.n_threads = 2}), OK);
    struct tensor cache = eval_tensor(c.e, c.cache);
    memset(cache.data, 0, (size_t)tensor_bytes(&cache));
    return c;
}

static void cached_release(struct cached *c)
{
    eval_free(c->e);
    graph_free(c->g);
}

/* Feeds tokens in calls of n_step tokens; their outputs must be those of attention over all. */
static void check_decoding(int64_t n_tokens, int64_t n_step, int64_t window)
{
    struct shape_case s = {2, n_tokens, 4, 2, 20, window, true, 2, 0.0, 0.0, 0};
    struct run whole = run_case(&s, DTYPE_F32);
    struct cached c = cached_new(n_step, n_tokens, window);
    struct tensor all = eval_tensor(whole.e, whole.qkv), want = eval_tensor(whole.e, whole.out);
    struct tensor some = eval_tensor(c.e, c.qkv), got = eval_tensor(c.e, c.out);
    for (int64_t t = 0; t < n_tokens; t += n_step) {
        *(int32_t *)eval_tensor(c.e, c.position).data = (int32_t)t;
        for (int64_t i = 0; i < shape_elems(&some.shape); i++) {
            int64_t batch = i / (n_step * 160), rest = i % (n_step * 160);
            ref_set(&some, i, ref_get(&all, (batch * n_tokens + t) * 160 + rest));
        }
        assert_int_equal(eval_run(c.e), OK);
        for (int64_t i = 0; i < shape_elems(&got.shape); i++) {
            int64_t batch = i / (n_step * 80), rest = i % (n_step * 80);
            double x = ref_get(&got, i), y = ref_get(&want, (batch * n_tokens + t) * 80 + rest);
            if (!(fabs(x - y) <= 2e-5))
                fail_msg("token %lld: %.9g, want %.9g", (long long)t, x, y);
        }
    }
    cached_release(&c);
    run_release(&whole);
}

static void decoding_with_a_cache_is_attention_over_all_tokens(void **state)
{
    (void)state;
    check_decoding(24, 1, 0);
    check_decoding(24, 3, 5);
    check_decoding(120, 12, 0);
    check_decoding(120, 40, 17);
}

static void a_full_cache_is_an_error(void **state)
{
    (void)state;
    struct cached c = cached_new(3, 10, 0);
    struct tensor qkv = eval_tensor(c.e, c.qkv);
    fill_normal(qkv, 5, 1.0);
    *(int32_t *)eval_tensor(c.e, c.position).data = 7;
    assert_int_equal(eval_run(c.e), OK);
    *(int32_t *)eval_tensor(c.e, c.position).data = 8;
    assert_int_equal(eval_run(c.e), ERR_SHAPE);
    *(int32_t *)eval_tensor(c.e, c.position).data = -1;
    assert_int_equal(eval_run(c.e), ERR_SHAPE);
    cached_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_give_what_the_full_matrix_gives),
        cmocka_unit_test(bf16_storage_costs_only_its_rounding),
        cmocka_unit_test(results_do_not_change_from_run_to_run),
        cmocka_unit_test(huge_scores_neither_overflow_nor_turn_to_nan),
        cmocka_unit_test(decoding_with_a_cache_is_attention_over_all_tokens),
        cmocka_unit_test(a_full_cache_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
