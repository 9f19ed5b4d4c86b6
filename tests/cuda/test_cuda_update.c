/* Updates on a GPU: many tensors in one launch give the bits of one by one, also when recorded, and
 * so do slices of one; what is rounded by chance is rounded as on the CPU; scale 0 changes nothing.
 *
 * Skipped without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/support/ref.h"
#include "device/device.h"
#include "ops/update_support.h"
#include "support/gpu.h"
#include "support/raw_copy.h"

enum { MAX_TENSORS = 200, MAX_IN = 10, MAX_OUT = 6, CODES_IN_A_BLOCK = 256 };
static const int64_t arena_bytes = (int64_t)6 << 30, host_bytes = (int64_t)256 << 20;

static struct device gpu; /* one device for the whole program; opening it is slow */
static char *arena, *host;
static int64_t n_taken; /* bytes of the arena, and of the host's image of it */

static void must(enum status s)
{
    if (s != OK)
        fail_msg("%s (%s)", status_message(), status_place());
}

static void copy(void *dst, const void *src, int64_t n_bytes)
{
    raw_copy(&gpu, QUEUE_COMPUTE, dst, src, n_bytes);
    must(gpu.ops->sync(&gpu));
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The dtypes of one kind of update; image DTYPE_NONE: without a master. */
struct kind {
    enum op_id op;
    enum dtype param, grad, state;
    bool seeded;
};

static const struct kind kinds[] = {
    {OP_adamw, DTYPE_F32, DTYPE_F32, DTYPE_F32, false},
    {OP_adamw, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, true},
    {OP_adamw, DTYPE_BF16, DTYPE_F32, DTYPE_F32, true},
    {OP_adamw, DTYPE_BF16, DTYPE_BF16, DTYPE_F32, true},
    {OP_adamw, DTYPE_F32, DTYPE_BF16, DTYPE_BF16, true},
    {OP_adamw, DTYPE_BF16, DTYPE_F16, DTYPE_BF16, true}, /* not among the known dtypes */
    {OP_adamw_master, DTYPE_BF16, DTYPE_F32, DTYPE_F32, false},
    {OP_adamw_master, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, true},
    {OP_adamw_master, DTYPE_F16, DTYPE_F32, DTYPE_F32, false},
    {OP_adamw_master, DTYPE_F16, DTYPE_F32, DTYPE_BF16, true},
    {OP_adamw_8bit, DTYPE_F32, DTYPE_F32, DTYPE_U8, false},
    {OP_adamw_8bit, DTYPE_BF16, DTYPE_BF16, DTYPE_U8, true},
    {OP_adamw_8bit, DTYPE_BF16, DTYPE_F16, DTYPE_U8, true}, /* not among the known dtypes */
    {OP_adamw_8bit_master, DTYPE_BF16, DTYPE_BF16, DTYPE_U8, false},
    {OP_adamw_8bit_master, DTYPE_F16, DTYPE_F32, DTYPE_U8, false},
    {OP_lion, DTYPE_F32, DTYPE_F32, DTYPE_F32, false},
    {OP_lion, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, true},
    {OP_lion_master, DTYPE_BF16, DTYPE_F32, DTYPE_F32, false},
    {OP_lion_8bit, DTYPE_F32, DTYPE_F32, DTYPE_U8, false},
    {OP_lion_8bit, DTYPE_BF16, DTYPE_BF16, DTYPE_U8, true},
    {OP_lion_8bit_master, DTYPE_BF16, DTYPE_BF16, DTYPE_U8, false},
    {OP_sgd, DTYPE_BF16, DTYPE_F32, DTYPE_NONE, true},
    {OP_sgd_momentum, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, true},
    {OP_sgd_momentum, DTYPE_F32, DTYPE_F32, DTYPE_F32, false},
    {OP_accumulate, DTYPE_F32, DTYPE_BF16, DTYPE_NONE, false},
};

/* One call in both memories: data pointers go to the arena, at the offsets of the host's image. */
struct update {
    struct tensor in[MAX_IN], out[MAX_OUT];
    struct attr attrs[ADAMW_ATTRS];
    struct op_call call;
};

static struct update updates[MAX_TENSORS];
static const struct op_call *calls[MAX_TENSORS];

static struct tensor take(enum dtype d, struct shape s)
{
    struct tensor t = {d, s, arena + n_taken};
    n_taken += align_up(tensor_bytes(&t), ARENA_ALIGN);
    assert_true(n_taken <= host_bytes);
    return t;
}

/* The same tensor in the host's image. */
static struct tensor on_host(const struct tensor *t)
{
    struct tensor h = *t;
    h.data = host + ((char *)t->data - arena);
    return h;
}

static void fill(const struct tensor *t, uint64_t stream, double low, double high)
{
    struct tensor h = on_host(t);
    for (int64_t i = 0; i < shape_elems(&t->shape); i++) {
        uint32_t bits = philox(3, stream, (uint64_t)i / 4).v[i % 4];
        ref_set(&h, i, low + (high - low) * (double)rng_uniform(bits));
    }
}

static struct tensor number(enum dtype d, double x)
{
    struct tensor t = take(d, shape_of(1, (int64_t)1)), h = on_host(&t);
    ref_set(&h, 0, x);
    return t;
}

/* Of the blocks of codes that were added last. */
static void add_scales(struct update *u, int64_t n, uint64_t stream)
{
    struct tensor t = take(DTYPE_F32, shape_of(1, (n + CODES_IN_A_BLOCK - 1) / CODES_IN_A_BLOCK));
    fill(&t, stream, 0.1, 1);
    u->in[u->call.n_in++] = u->out[u->call.n_out++] = t;
}

static bool is_lion(enum op_id op)
{
    return op == OP_lion || op == OP_lion_master || op == OP_lion_8bit || op == OP_lion_8bit_master;
}

static bool has_master(enum op_id op)
{
    return op == OP_adamw_master || op == OP_adamw_8bit_master || op == OP_lion_master ||
           op == OP_lion_8bit_master;
}

static void add_streams(struct update *u, const struct kind *k, struct shape s, int i)
{
    uint64_t stream = (uint64_t)i * 8;
    u->in[0] = take(k->param, s);
    u->in[1] = take(k->grad, s);
    fill(&u->in[0], stream, -1, 1);
    fill(&u->in[1], stream + 1, -1, 1);
    u->out[0] = u->in[0];
    u->call = (struct op_call){
        .op = k->op, .n_in = 2, .n_out = 1, .in = u->in, .out = u->out, .attrs = u->attrs};
    for (int m = 0; m < 2 && k->state != DTYPE_NONE && k->op != OP_sgd; m++) {
        if (m == 1 && (k->op == OP_sgd_momentum || is_lion(k->op)))
            break;
        struct tensor t = take(k->state, s);
        if (k->state == DTYPE_U8)
            fill(&t, stream + 2 + (uint64_t)m, 0, 255.9);
        else
            fill(&t, stream + 2 + (uint64_t)m, m ? 0.1 : -1, 1);
        u->in[u->call.n_in++] = u->out[u->call.n_out++] = t;
        if (k->state == DTYPE_U8)
            add_scales(u, shape_elems(&s), stream + 6 + (uint64_t)m);
    }
}

static void make_update(struct update *u, const struct kind *k, int64_t n, int i,
                        const struct tensor *scalars)
{
    struct shape s = shape_of(1, n);
    *u = (struct update){0};
    add_streams(u, k, s, i);
    for (int m = 0; m < 3 && k->op != OP_accumulate; m++)
        u->in[u->call.n_in++] = scalars[m];
    int64_t seed = k->seeded ? 1000 + i : 0;
    double decay = i % 2 ? 0.1 : 0.0;
    if (has_master(k->op)) {
        struct tensor master = take(DTYPE_F32, s);
        fill(&master, (uint64_t)i * 8 + 5, -1, 1);
        u->in[u->call.n_in++] = u->out[u->call.n_out++] = master;
    }
    if (k->op == OP_sgd) {
        u->attrs[0].f = decay;
        u->attrs[1].i = seed;
    } else if (k->op == OP_sgd_momentum) {
        u->attrs[0].f = 0.9;
        u->attrs[2].f = decay;
        u->attrs[3].i = seed;
    } else if (is_lion(k->op)) {
        u->attrs[LION_BETA1].f = 0.9;
        u->attrs[LION_BETA2].f = 0.95;
        u->attrs[LION_WEIGHT_DECAY].f = decay;
        u->attrs[LION_SEED].i = seed;
    } else if (k->op != OP_accumulate) {
        u->attrs[ADAMW_BETA1].f = 0.9;
        u->attrs[ADAMW_BETA2].f = 0.95;
        u->attrs[ADAMW_EPSILON].f = 1e-8;
        u->attrs[ADAMW_WEIGHT_DECAY].f = decay;
        u->attrs[ADAMW_SEED].i = seed;
    }
}

/* 150 tensors of odd sizes, so that several launches are needed and chunks end anywhere; of n_kinds
 * kinds in turns. */
static int make_updates(const struct kind *k, int n_kinds, double scale)
{
    static const int64_t sizes[] = {1, 7, 8, 9, 2047, 2048, 2049, 768, 3, 50000, 4096, 12289};
    enum { N = 150 };
    n_taken = 0;
    struct tensor scalars[3] = {number(DTYPE_F32, 1e-2), number(DTYPE_I32, 37),
                                number(DTYPE_F32, scale)};
    for (int i = 0; i < N; i++) {
        make_update(&updates[i], &k[i % n_kinds], sizes[i % (int)ARRAY_LEN(sizes)], i, scalars);
        calls[i] = &updates[i].call;
    }
    return N;
}

static const struct kernel *kernel_of(enum op_id op)
{
    const char *why = NULL;
    const struct kernel *k = kernel_pick(gpu.ops->kernels(op), calls[0], &gpu.env, &why);
    assert_non_null(k);
    return k;
}

static struct kernel_ctx context(void)
{
    return (struct kernel_ctx){.env = gpu.env, .queue = gpu.ops->queue(&gpu, QUEUE_COMPUTE)};
}

static void run_one_by_one(const struct kernel *k, int n)
{
    struct kernel_ctx x = context();
    for (int i = 0; i < n; i++)
        must(k->run(&x, calls[i]));
    must(gpu.ops->sync(&gpu));
}

static void run_together(const struct kernel *k, int n, bool recorded)
{
    struct kernel_ctx x = context();
    kernel_batch *batch = gpu.ops->batch(k);
    void *recording = NULL;
    assert_non_null(batch);
    if (recorded)
        must(gpu.ops->capture_begin(&gpu));
    must(batch(&x, calls, n));
    if (recorded) {
        must(gpu.ops->capture_end(&gpu, &recording));
        must(gpu.ops->replay(&gpu, recording));
    }
    must(gpu.ops->sync(&gpu));
    if (recorded)
        gpu.ops->capture_free(&gpu, recording);
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void together_gives_the_bits_of_one_by_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        int n = make_updates(&kinds[i], 1, 0.5);
        const struct kernel *k = kernel_of(kinds[i].op);
        char *single = test_malloc((size_t)n_taken), *many = test_malloc((size_t)n_taken);
        for (int recorded = 0; recorded <= 1; recorded++) {
            copy(arena, host, n_taken);
            run_one_by_one(k, n);
            copy(single, arena, n_taken);
            copy(arena, host, n_taken);
            run_together(k, n, recorded);
            copy(many, arena, n_taken);
            assert_memory_equal(single, many, (size_t)n_taken);
            assert_memory_not_equal(single, host, (size_t)n_taken);
        }
        test_free(single);
        test_free(many);
    }
}

/* Elements [first, first + n) of a call's tensor: of the whole, or of its scales. */
static struct tensor part_of(const struct op_call *c, const struct tensor *t, int64_t first,
                             int64_t n)
{
    int64_t all = shape_elems(&c->in[0].shape), own = shape_elems(&t->shape);
    int64_t each = own == all ? 1 : CODES_IN_A_BLOCK;
    struct tensor part = *t;
    part.shape = shape_of(1, (n + each - 1) / each);
    part.data = (char *)t->data + first / each * dtype_size(t->dtype);
    return part;
}

static void run_in_slices(const struct kernel *k, const struct op_call *c, int64_t n_granules)
{
    const struct op_def *d = op_get(c->op);
    struct kernel_ctx x = context();
    struct tensor in[MAX_IN], out[MAX_OUT];
    int64_t all = shape_elems(&c->in[0].shape), most = n_granules * d->granule;
    assert_true(d->granule > 0);
    for (int64_t first = 0; first < all; first += most) {
        struct op_call slice = *c;
        int64_t n = MIN(most, all - first);
        for (int i = 0; i < c->n_in; i++)
            in[i] = d->whole_inputs >> i & 1u ? c->in[i] : part_of(c, &c->in[i], first, n);
        for (int o = 0; o < c->n_out; o++)
            out[o] = part_of(c, &c->out[o], first, n);
        slice.in = in;
        slice.out = out;
        slice.first_element = first;
        must(k->run(&x, &slice));
    }
}

/* 17 granules are no multiple of 16 bytes: nothing but the first slice can be had in vectors. */
static void slices_give_the_bits_of_the_whole(void **state)
{
    static const int64_t sizes[] = {17, 2048};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        int n = make_updates(&kinds[i], 1, 0.5);
        const struct kernel *k = kernel_of(kinds[i].op);
        char *whole = test_malloc((size_t)n_taken), *parts = test_malloc((size_t)n_taken);
        copy(arena, host, n_taken);
        run_one_by_one(k, n);
        copy(whole, arena, n_taken);
        for (size_t size = 0; size < ARRAY_LEN(sizes); size++) {
            copy(arena, host, n_taken);
            for (int c = 0; c < n; c++)
                run_in_slices(k, calls[c], sizes[size]);
            copy(parts, arena, n_taken);
            assert_memory_equal(whole, parts, (size_t)n_taken);
        }
        test_free(whole);
        test_free(parts);
    }
}

/* Masters and parameters that need none, in turns, share launches. */
static void with_and_without_masters_in_one_batch_give_the_same_bits(void **state)
{
    static const struct kind mixed[][2] = {
        {{OP_adamw_master, DTYPE_BF16, DTYPE_F32, DTYPE_F32, false},
         {OP_adamw, DTYPE_F32, DTYPE_F32, DTYPE_F32, false}},
        {{OP_adamw, DTYPE_F32, DTYPE_BF16, DTYPE_BF16, true},
         {OP_adamw_master, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, true}},
        {{OP_adamw_master, DTYPE_F16, DTYPE_F32, DTYPE_BF16, true},
         {OP_adamw, DTYPE_F32, DTYPE_F32, DTYPE_BF16, true}},
        {{OP_adamw_8bit_master, DTYPE_BF16, DTYPE_F32, DTYPE_U8, false},
         {OP_adamw_8bit, DTYPE_F32, DTYPE_F32, DTYPE_U8, false}},
        {{OP_adamw_master, DTYPE_F16, DTYPE_F32, DTYPE_F32, false}, /* nothing to share */
         {OP_adamw_master, DTYPE_BF16, DTYPE_F32, DTYPE_F32, false}},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(mixed); i++) {
        int n = make_updates(mixed[i], 2, 0.5);
        char *single = test_malloc((size_t)n_taken), *many = test_malloc((size_t)n_taken);
        const struct kernel *k[2] = {kernel_of(mixed[i][0].op), kernel_of(mixed[i][1].op)};
        struct kernel_ctx x = context();
        assert_true(gpu.ops->batch(k[0]) == gpu.ops->batch(k[1]));
        copy(arena, host, n_taken);
        for (int c = 0; c < n; c++)
            must(k[c % 2]->run(&x, calls[c]));
        copy(single, arena, n_taken);
        copy(arena, host, n_taken);
        run_together(k[0], n, false);
        copy(many, arena, n_taken);
        assert_memory_equal(single, many, (size_t)n_taken);
        test_free(single);
        test_free(many);
    }
}

static void scale_zero_changes_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (kinds[i].op == OP_accumulate)
            continue;
        int n = make_updates(&kinds[i], 1, 0.0);
        char *after = test_malloc((size_t)n_taken);
        copy(arena, host, n_taken);
        run_together(kernel_of(kinds[i].op), n, false);
        copy(after, arena, n_taken);
        assert_memory_equal(after, host, (size_t)n_taken);
        test_free(after);
    }
}

/* ---- as on the CPU --------------------------------------------------------------------------- */

/* Outputs of call i on the GPU (in `after`) against the CPU's, which are in the host's image. */
static void compare(const struct op_call *c, const char *after, int64_t *n_other, int64_t *n_all)
{
    for (int o = 0; o < c->n_out; o++) {
        struct tensor want = on_host(&c->out[o]), got = want;
        got.data = (void *)(after + ((char *)c->out[o].data - arena));
        for (int64_t e = 0; e < shape_elems(&want.shape); e++) {
            double x = ref_get(&want, e), y = ref_get(&got, e);
            double ulp = want.dtype == DTYPE_BF16 ? 1.0 / 128 : want.dtype == DTYPE_F16 ? 1e-3 : 0;
            double code = want.dtype == DTYPE_U8 ? 1.0 : 0.0; /* on a border: either */
            /* Decoded moments are products themselves: one rounding more in each. */
            double error = c->n_in > 2 && c->in[2].dtype == DTYPE_U8 ? 1e-5 : 2e-6;
            if (!(fabs(x - y) <= (error + ulp) * (fabs(x) + 0.02) + code))
                fail_msg("output %d, element %lld: %.9g on the GPU, %.9g on the CPU", o,
                         (long long)e, y, x);
            if (dtype_size(want.dtype) == 2) {
                *n_all += 1;
                *n_other += x < y || x > y;
            }
        }
    }
}

static void run_on_cpu(const struct op_call *c)
{
    struct tensor in[MAX_IN], out[MAX_OUT];
    struct op_call h = *c;
    struct kernel_ctx x = {.env = {.n_threads = 4}};
    for (int i = 0; i < c->n_in; i++)
        in[i] = on_host(&c->in[i]);
    for (int o = 0; o < c->n_out; o++)
        out[o] = on_host(&c->out[o]);
    h.in = in;
    h.out = out;
    must(team_new(&x.env.team, x.env.n_threads));
    const struct kernel *k = cpu_kernels(c->op);
    if (k->workspace)
        x.workspace = test_malloc((size_t)k->workspace(&h, &x.env));
    must(k->run(&x, &h));
    test_free(x.workspace);
    team_free(x.env.team);
}

/* f32 results may differ in their last place, and then a draw goes the other way: rarely. */
static void what_is_rounded_by_chance_is_rounded_as_on_the_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        int64_t n_other = 0, n_all = 0;
        int n = make_updates(&kinds[i], 1, 0.5);
        char *after = test_malloc((size_t)n_taken);
        copy(arena, host, n_taken);
        run_together(kernel_of(kinds[i].op), n, false);
        copy(after, arena, n_taken);
        for (int c = 0; c < n; c++)
            run_on_cpu(calls[c]);
        for (int c = 0; c < n; c++)
            compare(calls[c], after, &n_other, &n_all);
        print_message("%s, kind %d: %lld of %lld elements of 16 bits differ\n",
                      op_get(kinds[i].op)->name, (int)i, (long long)n_other, (long long)n_all);
        assert_true(500 * n_other <= n_all);
        test_free(after);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(together_gives_the_bits_of_one_by_one),
        cmocka_unit_test(with_and_without_masters_in_one_batch_give_the_same_bits),
        cmocka_unit_test(slices_give_the_bits_of_the_whole),
        cmocka_unit_test(scale_zero_changes_nothing),
        cmocka_unit_test(what_is_rounded_by_chance_is_rounded_as_on_the_cpu),
    };
    void *a = NULL, *h = NULL;
    if (!gpu_open(&gpu))
        return GPU_SKIPPED;
    if (gpu.ops->memory_alloc(&gpu, TIER_DEVICE, arena_bytes, &a) != OK ||
        gpu.ops->memory_alloc(&gpu, TIER_HOST, host_bytes, &h) != OK) {
        (void)fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    arena = a;
    host = h;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gpu.ops->memory_free(&gpu, TIER_DEVICE, arena, arena_bytes);
    gpu.ops->memory_free(&gpu, TIER_HOST, host, host_bytes);
    device_close(&gpu);
    return failed;
}
