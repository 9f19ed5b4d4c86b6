/* cuda_gemm over all that it can be asked for (dtypes, transposed operands, bias, sums, padded
 * rows, odd sizes) against the plain tiled kernels: equal up to rounding, the same bits in a second
 * run, nothing written outside. Then what the library does by itself is printed, and tf32 is seen
 * to change f32 products and no others.
 *
 * Skipped without a GPU or without CUDA. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "support/gpu.h"
#include "support/raw_copy.h"

#ifdef SNUG_HAVE_CUDA

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "device/cpu/support/ref.h"
#include "device/cuda/products/gemm.h"
#include "device/device.h"

enum { SLOT_BYTES = 8 << 20, WORKSPACE_BYTES = 64 << 20 };

/* One buffer each, SLOT_BYTES apart. */
enum slot { A, B, RESIDUAL, BIAS, C_OLD, C, N_SLOTS };

/* Who computes a product. */
enum way { PLAIN, BIAS_APART, LIBRARY, N_WAYS };

static struct {
    struct device device;
    char *arena, *host; /* host: [3][SLOT_BYTES] */
    int n_cases, n_failures;
    int n_by_way[N_WAYS];
} gpu; /* one device for the whole program; opening it is slow */

static const char *const ways[] = {
    [PLAIN] = "plain kernels",
    [BIAS_APART] = "the library, the bias by a kernel after it",
    [LIBRARY] = "the library",
};

static enum way way_of(const struct cuda_gemm *g)
{
    if (cuda_gemm_declines(&gpu.device.env, g))
        return PLAIN;
    return g->bias && !cuda_gemm_adds_bias(&gpu.device.env, g) ? BIAS_APART : LIBRARY;
}

static void must(enum status s)
{
    if (s != OK)
        fail_msg("%s (%s)", status_message(), status_place());
}

static char *slot(enum slot s)
{
    return gpu.arena + (size_t)s * SLOT_BYTES;
}

/* Noise, different everywhere, into `n_slots` slots. */
static void fill_slots(enum slot first, int n_slots, enum dtype d)
{
    int64_t n = (int64_t)n_slots * SLOT_BYTES / dtype_size(d);
    struct tensor t = {.dtype = d, .shape = {.rank = 1, .dim = {n}}, .data = slot(first)};
    must(gpu.device.ops->fill(&gpu.device, &t, (struct index_rule){0}));
}

struct combination {
    enum dtype dtype, c_dtype;
    int64_t m, n, k, pad;
    bool a_transposed, b_transposed, bias;
    int before; /* 0 nothing, 1 add, 2 residual */
};

static struct cuda_gemm product_of(const struct combination *c)
{
    struct cuda_gemm g = {.m = c->m, .n = c->n, .k = c->k};
    g.a =
        (struct cuda_matrix){slot(A), 0, (c->a_transposed ? c->m : c->k) + c->pad, c->a_transposed};
    g.b =
        (struct cuda_matrix){slot(B), 0, (c->b_transposed ? c->k : c->n) + c->pad, c->b_transposed};
    g.dtype = c->dtype;
    g.c_dtype = c->c_dtype;
    g.c = slot(C);
    g.c_row = c->n + c->pad;
    g.add = c->before == 1;
    g.residual = c->before == 2 ? slot(RESIDUAL) : NULL;
    g.bias = c->bias ? slot(BIAS) : NULL;
    return g;
}

static int64_t result_bytes(const struct combination *c)
{
    /* And a piece of what lies behind. */
    return c->m * (c->n + c->pad) * dtype_size(c->c_dtype) + 256;
}

/* The old contents back into what will be written, then the product; its result to the host. */
static void run_once(const struct combination *c, bool tiled, char *result)
{
    struct device *d = &gpu.device;
    struct cuda_gemm g = product_of(c);
    struct kernel_ctx x = {.env = d->env, .queue = d->ops->queue(d, QUEUE_COMPUTE)};
    x.workspace = slot(N_SLOTS);
    assert_true(cuda_gemm_workspace(&d->env, &g) <= WORKSPACE_BYTES);
    raw_copy(d, QUEUE_COMPUTE, slot(C), slot(C_OLD), result_bytes(c));
    must(tiled ? cuda_gemm_tiled(&x, &g) : cuda_gemm(&x, x.workspace, &g));
    raw_copy(d, QUEUE_COMPUTE, result, slot(C), result_bytes(c));
    must(d->ops->sync(d));
}

static void failed(const struct combination *c, const char *what, int64_t at, double got,
                   double want)
{
    struct cuda_gemm g = product_of(c);
    if (gpu.n_failures++ < 20)
        (void)fprintf(stderr,
                      "%s->%s %lldx%lldx%lld pad %lld a%s b%s bias %d before %d (%s): %s, element "
                      "%lld is %.9g, tiled %.9g\n",
                      dtype_name(c->dtype), dtype_name(c->c_dtype), (long long)c->m,
                      (long long)c->n, (long long)c->k, (long long)c->pad,
                      c->a_transposed ? "^T" : "", c->b_transposed ? "^T" : "", c->bias, c->before,
                      ways[way_of(&g)], what, (long long)at, got, want);
}

static double tolerance_of(enum dtype d, bool tf32)
{
    if (d == DTYPE_F32)
        return tf32 ? 4e-3 : 4e-5;
    return d == DTYPE_BF16 ? 1.0 / 64 : 1.0 / 512;
}

static void compare(const struct combination *c, const char *got, const char *want, bool tf32)
{
    int64_t n = result_bytes(c) / dtype_size(c->c_dtype);
    struct tensor x = {.dtype = c->c_dtype, .data = (void *)(uintptr_t)want};
    struct tensor y = {.dtype = c->c_dtype, .data = (void *)(uintptr_t)got};
    double sum = 0;
    for (int64_t e = 0; e < n; e++)
        sum += ref_get(&x, e) * ref_get(&x, e);
    double scale = sqrt(sum / (double)n), tolerance = tolerance_of(c->c_dtype, tf32);
    for (int64_t e = 0; e < n; e++) {
        double a = ref_get(&x, e), b = ref_get(&y, e);
        if (!(fabs(a - b) <= tolerance * (fabs(a) + scale))) {
            failed(c, "c", e, b, a);
            return;
        }
    }
}

/* Between rows and behind the last one nothing has changed. */
static void check_padding(const struct combination *c, const char *result)
{
    struct device *d = &gpu.device;
    char *old = gpu.host + 2 * (size_t)SLOT_BYTES;
    int64_t size = dtype_size(c->c_dtype), row = c->n + c->pad;
    raw_copy(d, QUEUE_COMPUTE, old, slot(C_OLD), result_bytes(c));
    must(d->ops->sync(d));
    for (int64_t at = 0; at < result_bytes(c); at++) {
        bool inside = at / size < c->m * row && at / size % row < c->n;
        if (!inside && old[at] != result[at]) {
            failed(c, "padding of c", at, 1, 0);
            return;
        }
    }
}

static void check(const struct combination *c)
{
    char *got = gpu.host, *want = gpu.host + SLOT_BYTES;
    struct cuda_gemm g = product_of(c);
    gpu.n_cases++;
    gpu.n_by_way[way_of(&g)]++;
    if (way_of(&g) == PLAIN)
        return; /* the library has nothing to compare */
    run_once(c, true, want);
    run_once(c, false, got);
    compare(c, got, want, false);
    check_padding(c, got);
    run_once(c, false, want);
    if (memcmp(got, want, (size_t)result_bytes(c)) != 0)
        failed(c, "the bits of a second run differ", 0, 0, 0);
}

static void fill_all(enum dtype dtype, enum dtype c_dtype)
{
    fill_slots(A, C, c_dtype);
    fill_slots(A, 2, dtype);
    must(gpu.device.ops->sync(&gpu.device));
}

static const enum dtype pairs[][2] = {
    {DTYPE_F32, DTYPE_F32}, {DTYPE_BF16, DTYPE_BF16}, {DTYPE_BF16, DTYPE_F32},
    {DTYPE_F16, DTYPE_F16}, {DTYPE_F16, DTYPE_F32},
};

/* What comes around a product: 2 x 3 combinations. */
static void check_all_around(struct combination c)
{
    for (int i = 0; i < 2 * 3; i++) {
        c.bias = i % 2;
        c.before = i / 2;
        check(&c);
    }
}

static void every_combination_equals_the_plain_kernels(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {
        {96, 64, 128, 0}, {200, 136, 72, 8}, {37, 29, 53, 0}, {70, 45, 31, 3}};
    for (size_t p = 0; p < ARRAY_LEN(pairs); p++) {
        fill_all(pairs[p][0], pairs[p][1]);
        for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
            for (int t = 0; t < 4; t++) {
                struct combination c = {.dtype = pairs[p][0], .c_dtype = pairs[p][1]};
                c.m = shapes[s][0];
                c.n = shapes[s][1];
                c.k = shapes[s][2];
                c.pad = shapes[s][3];
                c.a_transposed = t & 1;
                c.b_transposed = t & 2;
                check_all_around(c);
            }
        }
    }
    (void)fprintf(stderr, "%d cases\n", gpu.n_cases);
    for (size_t i = 0; i < ARRAY_LEN(ways); i++)
        (void)fprintf(stderr, "%d by %s\n", gpu.n_by_way[i], ways[i]);
    assert_int_equal(gpu.n_failures, 0);
}

/* Long sums: the library splits them and adds the parts. */
static void long_sums_equal_the_plain_kernels(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{64, 48, 20000}, {1000, 768, 1024}, {768, 8, 30001}};
    for (size_t p = 0; p < ARRAY_LEN(pairs); p++) {
        fill_all(pairs[p][0], pairs[p][1]);
        for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
            struct combination c = {.dtype = pairs[p][0], .c_dtype = pairs[p][1]};
            c.m = shapes[s][0];
            c.n = shapes[s][1];
            c.k = shapes[s][2];
            if (MAX(c.m, c.n) * c.k * dtype_size(c.dtype) > SLOT_BYTES)
                c.k = SLOT_BYTES / dtype_size(c.dtype) / MAX(c.m, c.n);
            c.a_transposed = true;
            check(&c);
            c.before = 1;
            check(&c);
        }
    }
    assert_int_equal(gpu.n_failures, 0);
}

/* The layers of GPT-2 124M: printed; other GPUs and libraries may do less. */
static void the_library_says_what_it_does_itself(void **state)
{
    (void)state;
    struct combination up = {DTYPE_BF16, DTYPE_BF16, 1024, 3072, 768, 0, false, true, true, 0};
    struct combination proj = {DTYPE_BF16, DTYPE_BF16, 1024, 768, 3072, 0, false, true, true, 2};
    struct combination dx = {DTYPE_BF16, DTYPE_BF16, 1024, 3072, 768, 0, false, false, false, 0};
    struct combination dw = {DTYPE_BF16, DTYPE_F32, 3072, 768, 1024, 0, true, false, false, 1};
    const struct {
        const char *what;
        const struct combination *c;
    } cases[] = {
        {"bias", &up},
        {"bias and residual", &proj},
        {"gradient of the input", &dx},
        {"gradient of the weight, f32", &dw},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct cuda_gemm g = product_of(cases[i].c);
        enum way way = way_of(&g);
        (void)fprintf(stderr, "%s: %s\n", cases[i].what, ways[way]);
        assert_int_not_equal(way, PLAIN);
    }
}

static void tf32_rounds_factors_of_f32_products_only(void **state)
{
    (void)state;
    struct cuda_libraries *l = cuda_libraries_of(&gpu.device.env);
    struct combination c = {DTYPE_F32, DTYPE_F32, 256, 256, 512, 0, false, true, false, 0};
    char *got = gpu.host, *want = gpu.host + SLOT_BYTES;
    if (l->gpu.major < 8)
        return;
    fill_all(DTYPE_F32, DTYPE_F32);
    run_once(&c, false, want);
    l->tf32 = true;
    run_once(&c, false, got);
    compare(&c, got, want, true);
    assert_int_equal(gpu.n_failures, 0);
    assert_true(memcmp(got, want, (size_t)(c.m * c.n) * sizeof(float)) != 0);
    l->tf32 = false;
    run_once(&c, false, got);
    assert_memory_equal(got, want, (size_t)(c.m * c.n) * sizeof(float));
    c.dtype = c.c_dtype = DTYPE_BF16;
    fill_all(DTYPE_BF16, DTYPE_BF16);
    run_once(&c, false, want);
    l->tf32 = true;
    run_once(&c, false, got);
    l->tf32 = false;
    assert_memory_equal(got, want, (size_t)(c.m * c.n) * 2);
}

static char *read_products(const char *folder)
{
    char path[96], *text = NULL;
    size_t n_bytes = 0;
    (void)snprintf(path, sizeof(path), "%s/products", folder);
    must(file_read(path, &text, &n_bytes));
    return text;
}

/* The same file with every value after its key replaced. */
static void spoil_products(const char *folder, const char *value)
{
    char path[96], *text = read_products(folder);
    struct str out = {0};
    for (char *line = text; line && *line;) {
        char *end = strchr(line, '\n'), *tab = strchr(line, '\t');
        bool entry = tab && end && tab < end;
        str_add_n(&out, line, (size_t)((entry ? tab + 1 : end + 1) - line));
        if (entry)
            str_addf(&out, "%s\n", value);
        line = end + 1;
    }
    must(str_status(&out));
    (void)snprintf(path, sizeof(path), "%s/products", folder);
    must(file_write_atomic(path, out.text, out.n));
    str_release(&out);
    mem_free(text);
}

static void tune(bool search)
{
    must(device_tune(&gpu.device, &(struct device_tuning){.search = search}));
}

static void check_searched(void)
{
    struct combination up = {DTYPE_BF16, DTYPE_BF16, 512, 1024, 768, 0, false, true, true, 0};
    struct combination dw = {DTYPE_BF16, DTYPE_F32, 768, 512, 2048, 0, true, false, false, 1};
    struct combination odd = {DTYPE_BF16, DTYPE_BF16, 257, 129, 65, 0, false, true, true, 2};
    fill_all(DTYPE_BF16, DTYPE_BF16);
    check(&up);
    check(&odd);
    fill_all(DTYPE_BF16, DTYPE_F32);
    check(&dw);
    assert_int_equal(gpu.n_failures, 0);
}

static void a_search_is_kept_and_a_spoilt_file_is_not_believed(void **state)
{
    (void)state;
    struct cuda_libraries *l = cuda_libraries_of(&gpu.device.env);
    char folder[] = "/tmp/snug-gemm-XXXXXX";
    char *before = l->cache_folder;
    assert_non_null(mkdtemp(folder));
    l->cache_folder = folder;
    tune(true);
    check_searched();
    char *found = read_products(folder);
    (void)fprintf(stderr, "%s", found);
    tune(true); /* what was found is read, not measured: the file stays */
    check_searched();
    char *again = read_products(folder);
    assert_string_equal(found, again);
    mem_free(again);
    static const char *const spoilt[] = {"ffffffffffffffff 1 ns", "what", "0"};
    for (size_t i = 0; i < ARRAY_LEN(spoilt); i++) {
        spoil_products(folder, spoilt[i]);
        tune(true);
        check_searched();
        again = read_products(folder);
        assert_null(strstr(again, "what"));
        mem_free(again);
    }
    mem_free(found);
    tune(false);
    l->cache_folder = before;
    must(file_remove_tree(folder));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_equals_the_plain_kernels),
        cmocka_unit_test(long_sums_equal_the_plain_kernels),
        cmocka_unit_test(the_library_says_what_it_does_itself),
        cmocka_unit_test(tf32_rounds_factors_of_f32_products_only),
        cmocka_unit_test(a_search_is_kept_and_a_spoilt_file_is_not_believed),
    };
    if (!gpu_open(&gpu.device))
        return GPU_SKIPPED;
    const struct device_ops *ops = gpu.device.ops;
    void *arena = NULL, *host = NULL;
    const int64_t arena_bytes = (int64_t)N_SLOTS * SLOT_BYTES + WORKSPACE_BYTES;
    const int64_t host_bytes = (int64_t)3 * SLOT_BYTES;
    if (ops->memory_alloc(&gpu.device, TIER_DEVICE, arena_bytes, &arena) != OK ||
        ops->memory_alloc(&gpu.device, TIER_HOST, host_bytes, &host) != OK) {
        (void)fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    gpu.arena = arena;
    gpu.host = host;
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    ops->memory_free(&gpu.device, TIER_DEVICE, arena, arena_bytes);
    ops->memory_free(&gpu.device, TIER_HOST, host, host_bytes);
    device_close(&gpu.device);
    return result;
}

#else

int main(void)
{
    (void)fprintf(stderr, "skipped: a build without CUDA\n");
    return GPU_SKIPPED;
}

#endif
