/* What attention drops: the share it says, nothing at a rate of 0, and other pairs for every run,
 * step, node, batch entry and head.
 *
 * Queries and keys are 0 and the value of token j is the unit vector j, so that out[i, j] is the
 * weight of query i and key j after dropout: (1 / (i + 1)) / (1 - p), or 0. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/cpu_kernels.h"
#include "ops/attention_dropout.h"

enum { BATCH = 2, HEADS = 3, TOKENS = 100 };
enum { N_PAIRS = TOKENS * TOKENS, N_WEIGHTS = BATCH * HEADS * N_PAIRS, N_ROWS = BATCH * TOKENS };

struct fixture {
    float qkv[N_ROWS * 3 * HEADS * TOKENS];
    float out[N_ROWS * HEADS * TOKENS], lse[N_ROWS * HEADS];
    float weights[N_WEIGHTS], other[N_WEIGHTS]; /* [batch, head, query, key] */
    int64_t rng[2], seed;
    double rate;
    char workspace[16 << 20];
};

static struct fixture *new_fixture(double rate)
{
    struct fixture *f = test_calloc(1, sizeof(*f));
    f->rng[0] = INT64_C(0x1234567890abcdef);
    f->rng[1] = 17;
    f->seed = 3;
    f->rate = rate;
    for (int row = 0; row < N_ROWS; row++) {
        for (int head = 0; head < HEADS; head++)
            f->qkv[(row * 3 * HEADS + 2 * HEADS + head) * TOKENS + row % TOKENS] = 1.0f;
    }
    return f;
}

/* n_in = 1: without a random state. */
static void run(struct fixture *f, const char *name, int n_in, float *weights)
{
    const struct attr attrs[ATTENTION_N_ATTRS] = {
        [QKV_HEADS] = {.i = HEADS},           [QKV_KV_HEADS] = {.i = HEADS},
        [QKV_HEAD_DIM] = {.i = TOKENS},       [ATTENTION_CAUSAL] = {.i = true},
        [ATTENTION_DROPOUT] = {.f = f->rate}, [ATTENTION_SEED] = {.i = f->seed},
    };
    const int64_t width = (int64_t)HEADS * TOKENS;
    const struct tensor in[] = {
        {DTYPE_F32, shape_of(3, (int64_t)BATCH, (int64_t)TOKENS, 3 * width), f->qkv},
        {DTYPE_I64, shape_of(1, (int64_t)2), f->rng}};
    struct tensor out[] = {
        {DTYPE_F32, shape_of(3, (int64_t)BATCH, (int64_t)TOKENS, width), f->out},
        {DTYPE_F32, shape_of(3, (int64_t)BATCH, (int64_t)HEADS, (int64_t)TOKENS), f->lse}};
    const struct op_call call = {
        .op = OP_attention, .n_in = n_in, .n_out = 2, .in = in, .out = out, .attrs = attrs};
    const struct kernel_ctx ctx = {.env = {.n_threads = 2}, .workspace = f->workspace};
    const struct kernel *k = cpu_kernels(OP_attention);
    while (strcmp(k->name, name) != 0)
        k++;
    assert_true(k->workspace(&call, &ctx.env) <= (int64_t)sizeof(f->workspace));
    assert_int_equal(k->run(&ctx, &call), OK);
    for (int64_t e = 0; e < N_WEIGHTS; e++) {
        int64_t j = e % TOKENS, i = e / TOKENS % TOKENS, head = e / N_PAIRS;
        int64_t row = head / HEADS * TOKENS + i;
        weights[e] = f->out[(row * HEADS + head % HEADS) * TOKENS + j];
    }
}

static bool is_seen(int64_t e)
{
    return e % TOKENS <= e / TOKENS % TOKENS;
}

static int n_seen(int64_t n)
{
    int sum = 0;
    for (int64_t e = 0; e < n; e++)
        sum += is_seen(e);
    return sum;
}

/* Two independent choices agree on a share p^2 + (1 - p)^2 of the pairs. */
static void expect_independent(const float *a, const float *b, int64_t n, double p)
{
    double share = p * p + (1.0 - p) * (1.0 - p), n_pairs = n_seen(n), n_same = 0;
    for (int64_t e = 0; e < n; e++)
        n_same += is_seen(e) && (a[e] != 0.0f) == (b[e] != 0.0f);
    assert_true(fabs(n_same - n_pairs * share) < 4.0 * sqrt(n_pairs * share * (1.0 - share)));
}

static void drops_the_share_it_says_and_scales_the_rest(void **state)
{
    static const double rates[] = {0.1, 0.5, 0.9};
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(rates); k++) {
        struct fixture *f = new_fixture(rates[k]);
        double p = rates[k], n = n_seen(N_WEIGHTS), n_kept = 0;
        run(f, "tiles", 2, f->weights);
        for (int64_t e = 0; e < N_WEIGHTS; e++) {
            double want = is_seen(e) ? 1.0 / (double)(e / TOKENS % TOKENS + 1) / (1.0 - p) : 0.0;
            n_kept += f->weights[e] != 0.0f;
            assert_true(f->weights[e] == 0.0f || fabs((double)f->weights[e] - want) < 1e-4 * want);
        }
        assert_true(fabs(n_kept - n * (1.0 - p)) < 4.0 * sqrt(n * p * (1.0 - p)));
        test_free(f);
    }
}

static void every_kernel_drops_the_pairs_of_the_definition(void **state)
{
    struct fixture *f = new_fixture(0.3);
    (void)state;
    const struct attr attrs[ATTENTION_N_ATTRS] = {
        [ATTENTION_DROPOUT] = {.f = 0.3}, [ATTENTION_SEED] = {.i = 3}};
    const struct tensor rng = {DTYPE_I64, shape_of(1, (int64_t)2), f->rng};
    const struct op_call call = {
        .op = OP_attention, .n_in = 1, .n_out = 0, .in = &rng, .out = NULL, .attrs = attrs};
    struct attention_dropout d = attention_dropout_of(&call, 0, TOKENS);
    run(f, "tiles", 2, f->weights);
    run(f, "reference", 2, f->other);
    for (int64_t e = 0; e < N_WEIGHTS; e++) {
        bool kept = dropout_keeps_pair(&d, e / N_PAIRS, e / TOKENS % TOKENS, e % TOKENS);
        assert_int_equal(f->weights[e] != 0.0f, is_seen(e) && kept);
        assert_int_equal(f->other[e] != 0.0f, is_seen(e) && kept);
    }
    test_free(f);
}

static void a_rate_of_zero_changes_no_bit(void **state)
{
    struct fixture *f = new_fixture(0.0);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(f->qkv); i++) {
        struct philox4 r = philox(1, 0, i);
        float unused;
        rng_normal2(r.v[0], r.v[1], &f->qkv[i], &unused);
    }
    run(f, "tiles", 1, f->weights);
    run(f, "tiles", 2, f->other);
    assert_memory_equal(f->weights, f->other, sizeof(f->weights));
    test_free(f);
}

static void the_choice_changes_with_run_step_and_seed(void **state)
{
    const double p = 0.5;
    struct fixture *f = new_fixture(p);
    (void)state;
    run(f, "tiles", 2, f->weights);
    run(f, "tiles", 2, f->other);
    assert_memory_equal(f->weights, f->other, sizeof(f->weights));
    f->rng[0]++;
    run(f, "tiles", 2, f->other);
    expect_independent(f->weights, f->other, N_WEIGHTS, p);
    f->rng[0]--;
    f->rng[1]++;
    run(f, "tiles", 2, f->other);
    expect_independent(f->weights, f->other, N_WEIGHTS, p);
    f->rng[1]--;
    f->seed++;
    run(f, "tiles", 2, f->other);
    expect_independent(f->weights, f->other, N_WEIGHTS, p);
    test_free(f);
}

static void heads_and_batch_entries_drop_other_pairs(void **state)
{
    const double p = 0.5;
    struct fixture *f = new_fixture(p);
    (void)state;
    run(f, "tiles", 2, f->weights);
    for (int a = 0; a < BATCH * HEADS; a++) {
        for (int b = 0; b < a; b++)
            expect_independent(f->weights + (int64_t)a * N_PAIRS, f->weights + (int64_t)b * N_PAIRS,
                               N_PAIRS, p);
    }
    test_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drops_the_share_it_says_and_scales_the_rest),
        cmocka_unit_test(every_kernel_drops_the_pairs_of_the_definition),
        cmocka_unit_test(a_rate_of_zero_changes_no_bit),
        cmocka_unit_test(the_choice_changes_with_run_step_and_seed),
        cmocka_unit_test(heads_and_batch_entries_drop_other_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
