/* The CUDA kernels against the CPU's reference, over op_table x samples, in f32, bf16 and f16:
 * equal up to rounding; the same bits in a second run, with other bytes in memory before, in memory
 * that nobody has written, when recorded and replayed, and when outputs take inputs' memory; no
 * byte outside outputs and workspace changes.
 *
 * A first argument names the ops to run the laws on, with commas between. With `once` as the second
 * every kernel runs once per sample, for checkers that take long. Skipped without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/support/ref.h"
#include "device/device.h"
#include "support/gpu.h"
#include "support/law.h"
#include "support/raw_copy.h"

#ifdef SNUG_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

enum { ZONE_BYTES = 512, ZONE_BYTE = 0xC7, MAX_OUT = 8 };
static const int64_t arena_bytes = (int64_t)512 << 20;

/* The GPU and an image of the region a call lives in, on both sides:
 *
 *     | zone | input 0 | zone | input 1 | zone | output 0 | zone | ... | workspace | zone |
 */
struct gpu {
    struct device device;
    void *arena, *image, *result; /* device, host (uploaded), host (downloaded) */
    bool once;
};

static struct gpu gpu; /* one device for the whole program; opening it is slow */

struct placed {
    struct tensor in[SAMPLE_MAX_INPUTS], out[MAX_OUT];
    int64_t in_at[SAMPLE_MAX_INPUTS], out_at[MAX_OUT]; /* offsets; -1: absent */
    bool shares[MAX_OUT];                              /* lies over an input */
    struct op_call call;
    int64_t workspace_at, workspace_bytes, n_bytes;
};

/* ---- placing -------------------------------------------------------------------------------- */

static int64_t take(struct placed *p, int64_t n_bytes)
{
    int64_t at = p->n_bytes + ZONE_BYTES;
    p->n_bytes = align_up(at + n_bytes, ARENA_ALIGN);
    return at;
}

/* The input whose memory output o takes: by an update rule, or by a rule that `overlays` turns on.
 */
static int shared_input(const struct law_case *c, const struct node *n, int o, uint32_t overlays)
{
    const struct alias_rule *a = node_alias(n, o);
    if (a)
        return a->in;
    a = c->def->aliases;
    for (int r = 0; a && a[r].kind != ALIAS_NONE && r < 32; r++) {
        bool on = (overlays >> r & 1u) && a[r].kind == ALIAS_MAY && a[r].out == o;
        if (on && a[r].in < n->n_in && n->in[a[r].in] != VALUE_NONE &&
            value_bytes(c->g, n->out[o]) <= value_bytes(c->g, n->in[a[r].in]))
            return a[r].in;
    }
    return -1;
}

static bool place(const struct law_case *c, const struct kernel *k, uint32_t overlays,
                  struct placed *p)
{
    const struct node *n = graph_node(c->g, 0);
    *p = (struct placed){0};
    node_call(c->g, n, p->in, p->out, &p->call);
    for (int i = 0; i < n->n_in; i++) {
        p->in_at[i] = n->in[i] == VALUE_NONE ? -1 : take(p, tensor_bytes(&p->in[i]));
        if (p->in_at[i] >= 0)
            p->in[i].data = (char *)gpu.arena + p->in_at[i];
    }
    for (int o = 0; o < n->n_out; o++) {
        int from = shared_input(c, n, o, overlays);
        p->shares[o] = from >= 0;
        p->out_at[o] = from >= 0 ? p->in_at[from] : take(p, tensor_bytes(&p->out[o]));
        p->out[o].data = (char *)gpu.arena + p->out_at[o];
    }
    p->workspace_bytes = k->workspace ? k->workspace(&p->call, &gpu.device.env) : 0;
    if (p->workspace_bytes < 0 || p->workspace_bytes > arena_bytes / 2) {
        law_failed(c, "declares %lld bytes of workspace", (long long)p->workspace_bytes);
        return false;
    }
    p->workspace_at = take(p, p->workspace_bytes);
    p->n_bytes += ZONE_BYTES;
    if (p->n_bytes > arena_bytes) {
        law_failed(c, "needs %lld bytes", (long long)p->n_bytes);
        return false;
    }
    return true;
}

/* ---- running -------------------------------------------------------------------------------- */

/* The region before the call. */
static void draw_image(const struct law_case *c, const struct placed *p, int poison)
{
    char *image = gpu.image;
    struct tensor t;
    memset(image, ZONE_BYTE, (size_t)p->n_bytes);
    for (int o = 0; o < p->call.n_out; o++) {
        if (!p->shares[o])
            memset(image + p->out_at[o], poison, (size_t)tensor_bytes(&p->out[o]));
    }
    memset(image + p->workspace_at, poison, (size_t)p->workspace_bytes);
    for (int i = 0; i < p->call.n_in; i++) {
        if (p->in_at[i] < 0)
            continue;
        t = p->in[i];
        t.data = image + p->in_at[i];
        law_case_fill_input(c, i, &t);
    }
}

static enum status call_kernel(const struct kernel *k, const struct placed *p)
{
    const struct device_ops *ops = gpu.device.ops;
    struct kernel_ctx x = {.env = gpu.device.env,
                           .workspace = (char *)gpu.arena + p->workspace_at,
                           .queue = ops->queue(&gpu.device, QUEUE_COMPUTE)};
    return k->run(&x, &p->call);
}

static enum status call_recorded(const struct kernel *k, const struct placed *p)
{
    const struct device_ops *ops = gpu.device.ops;
    void *recording = NULL;
    TRY(ops->capture_begin(&gpu.device));
    enum status status = call_kernel(k, p);
    if (status != OK) {
        (void)ops->capture_end(&gpu.device, NULL);
        return status;
    }
    TRY(ops->capture_end(&gpu.device, &recording));
    status = ops->replay(&gpu.device, recording);
    if (status == OK)
        status = ops->sync(&gpu.device);
    ops->capture_free(&gpu.device, recording);
    return status;
}

static enum status run_call(const struct kernel *k, const struct placed *p, bool recorded)
{
    const struct device_ops *ops = gpu.device.ops;
    raw_copy(&gpu.device, QUEUE_COMPUTE, gpu.arena, gpu.image, p->n_bytes);
    TRY(ops->sync(&gpu.device));
    TRY(recorded ? call_recorded(k, p) : call_kernel(k, p));
    TRY(ops->sync(&gpu.device));
    raw_copy(&gpu.device, QUEUE_COMPUTE, gpu.result, gpu.arena, p->n_bytes);
    return ops->sync(&gpu.device);
}

/* ---- checking ------------------------------------------------------------------------------- */

/* Where the call may write: 1; elsewhere the image must be unchanged. */
static void check_untouched(const struct law_case *c, const struct placed *p)
{
    const unsigned char *before = gpu.image, *after = gpu.result;
    for (int64_t at = 0; at < p->n_bytes; at++) {
        if (before[at] == after[at])
            continue;
        bool allowed = at >= p->workspace_at && at < p->workspace_at + p->workspace_bytes;
        for (int o = 0; o < p->call.n_out; o++)
            allowed |= at >= p->out_at[o] && at < p->out_at[o] + tensor_bytes(&p->out[o]);
        if (!allowed) {
            law_failed(c,
                       "byte %lld was changed, which is neither output nor workspace "
                       "(workspace %lld..%lld)",
                       (long long)at, (long long)p->workspace_at,
                       (long long)(p->workspace_at + p->workspace_bytes));
            return;
        }
    }
}

static double rms(const struct tensor *t)
{
    int64_t n = shape_elems(&t->shape), n_finite = 0;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = ref_get(t, i);
        if (isfinite(x)) {
            sum += x * x;
            n_finite++;
        }
    }
    return n_finite ? sqrt(sum / (double)n_finite) : 0.0;
}

/* Kernels round to 16 bits inside (probabilities, logit gradients) as well as at the end. Where
 * that is the logits, an error of one part in 256 of a logit of size 8 moves its probability by as
 * much as 1/32: the price PyTorch's autocast pays too. */
static double tolerance_of(const struct law_case *c)
{
    double narrow = 0.0;
    for (int i = 0; i < c->sample.n_in; i++) {
        if (c->sample.in[i].dtype == DTYPE_BF16)
            narrow = fmax(narrow, 1.0 / 128);
        if (c->sample.in[i].dtype == DTYPE_F16)
            narrow = fmax(narrow, 1.0 / 1024);
    }
    if (op_get(graph_node(c->g, 0)->op)->workspace_is_logits)
        narrow *= 8;
    return fmax(c->tolerance, narrow);
}

static double two_ulp(enum dtype d, double x)
{
    if (d == DTYPE_BF16)
        return ldexp(fabs(x), -6);
    return d == DTYPE_F16 ? ldexp(fabs(x), -9) + ldexp(1.0, -23) : 0.0;
}

static bool is_code(const struct law_case *c, int o, const struct tensor *t)
{
    return t->dtype == DTYPE_U8 && (c->def->coded_outputs >> o & 1u);
}

static void compare_output(const struct law_case *c, int o, const struct tensor *want,
                           const struct tensor *got)
{
    double scale = rms(want), tolerance = tolerance_of(c);
    for (int64_t i = 0; i < shape_elems(&want->shape); i++) {
        double x = ref_get(want, i), y = ref_get(got, i);
        double allowed = dtype_is_float(want->dtype) ? tolerance * (fabs(x) + scale) + 1e-30 : 0.0;
        allowed += two_ulp(want->dtype, x) + (is_code(c, o, want) ? 1.0 : 0.0);
        bool same = isfinite(x) ? fabs(x - y) <= allowed : (isnan(x) ? isnan(y) : x == y);
        if (!same) {
            law_failed(c, "output %d (%s), element %lld is %.9g, the CPU's reference gives %.9g", o,
                       dtype_name(want->dtype), (long long)i, y, x);
            return;
        }
    }
}

static void compare_outputs(const struct law_case *c, const struct placed *p,
                            const struct eval *reference)
{
    const struct node *n = graph_node(c->g, 0);
    for (int o = 0; o < n->n_out; o++) {
        struct tensor want = eval_tensor(reference, n->out[o]), got = p->out[o];
        got.data = (char *)gpu.result + p->out_at[o];
        compare_output(c, o, &want, &got);
    }
}

/* All outputs one after the other, to compare bits between runs that place them differently. */
static char *copy_outputs(const struct placed *p, size_t *n_bytes)
{
    *n_bytes = 0;
    for (int o = 0; o < p->call.n_out; o++)
        *n_bytes += (size_t)tensor_bytes(&p->out[o]);
    char *all = test_malloc(*n_bytes + 1);
    size_t at = 0;
    for (int o = 0; o < p->call.n_out; o++) {
        memcpy(all + at, (char *)gpu.result + p->out_at[o], (size_t)tensor_bytes(&p->out[o]));
        at += (size_t)tensor_bytes(&p->out[o]);
    }
    return all;
}

static void expect_bits(const struct law_case *c, const struct placed *p, const char *bits,
                        const char *what)
{
    size_t n_bytes;
    char *again = copy_outputs(p, &n_bytes);
    if (memcmp(bits, again, n_bytes) != 0)
        law_failed(c, "its bits differ %s", what);
    test_free(again);
}

/* ---- the laws ------------------------------------------------------------------------------- */

struct variant {
    const char *what;
    int poison;
    bool recorded;
    uint32_t overlays;
};

static bool run_variant(const struct law_case *c, const struct kernel *k, const struct variant *v,
                        struct placed *p)
{
    if (!place(c, k, v->overlays, p))
        return false;
    draw_image(c, p, v->poison);
    enum status status = run_call(k, p, v->recorded);
    if (status != OK) {
        law_failed(c, "%s (%s)", status_message(), v->what);
        return false;
    }
    check_untouched(c, p);
    return true;
}

static void check_variants(const struct law_case *c, const struct kernel *k, const char *bits)
{
    struct variant variants[2 + 8] = {
        {"with other bytes in memory before", 0x3C, false, 0},
        {"when recorded and replayed", 0xFF, true, 0},
    };
    int n = 2;
    const struct alias_rule *a = c->def->aliases;
    for (int r = 0; a && a[r].kind != ALIAS_NONE && n < 10; r++) {
        if (a[r].kind == ALIAS_MAY)
            variants[n++] =
                (struct variant){"when it takes an input's memory", 0xFF, false, 1u << r};
    }
    for (int i = 0; i < n; i++) {
        struct placed p;
        if (run_variant(c, k, &variants[i], &p))
            expect_bits(c, &p, bits, variants[i].what);
    }
}

/* ---- memory that nobody has written ---------------------------------------------------------- */

#ifdef SNUG_HAVE_CUDA

static enum status copy_inputs(const struct placed *p)
{
    for (int i = 0; i < p->call.n_in; i++) {
        if (p->in_at[i] >= 0 && tensor_bytes(&p->in[i]) > 0)
            raw_copy(&gpu.device, QUEUE_COMPUTE, p->in[i].data, (char *)gpu.image + p->in_at[i],
                     tensor_bytes(&p->in[i]));
    }
    return OK;
}

static enum status copy_results(const struct placed *p)
{
    const struct device_ops *ops = gpu.device.ops;
    for (int o = 0; o < p->call.n_out; o++) {
        if (tensor_bytes(&p->out[o]) > 0)
            raw_copy(&gpu.device, QUEUE_COMPUTE, (char *)gpu.result + p->out_at[o], p->out[o].data,
                     tensor_bytes(&p->out[o]));
    }
    return ops->sync(&gpu.device);
}

static enum status run_unwritten(const struct kernel *k, const struct placed *p)
{
    TRY(copy_inputs(p));
    TRY(call_kernel(k, p));
    return copy_results(p);
}

/* Outputs and workspace as the driver gives them. The arenas of a device are zeroed, so this is
 * what a sanitizer that looks for such reads (initcheck) sees them by. */
static void check_unwritten(const struct law_case *c, const struct kernel *k, const char *bits)
{
    struct placed p;
    void *arena = gpu.arena, *fresh = NULL;
    if (!place(c, k, 0, &p))
        return;
    if (cudaMalloc(&fresh, (size_t)p.n_bytes) != cudaSuccess) {
        law_failed(c, "no memory that nobody has written");
        return;
    }
    gpu.arena = fresh;
    if (place(c, k, 0, &p)) {
        draw_image(c, &p, 0xFF);
        enum status status = run_unwritten(k, &p);
        if (status != OK)
            law_failed(c, "%s (in memory that nobody has written)", status_message());
        else
            expect_bits(c, &p, bits, "in memory that nobody has written");
    }
    gpu.arena = arena;
    (void)cudaFree(fresh);
}

#else

static void check_unwritten(const struct law_case *c, const struct kernel *k, const char *bits)
{
    (void)c;
    (void)k;
    (void)bits;
}

#endif

static void check_kernel(struct law_case *c, const struct eval *reference)
{
    struct placed p;
    size_t n_bytes;
    if (!run_variant(c, c->kernel, &(struct variant){"first run", 0xFF, false, 0}, &p))
        return;
    compare_outputs(c, &p, reference);
    if (gpu.once)
        return;
    char *bits = copy_outputs(&p, &n_bytes);
    check_variants(c, c->kernel, bits);
    check_unwritten(c, c->kernel, bits);
    test_free(bits);
}

static bool is_pure_view(const struct node *n)
{
    for (int i = 0; i < n->n_out; i++) {
        const struct alias_rule *a = node_alias(n, i);
        if (!a || a->kind != ALIAS_VIEW)
            return false;
    }
    return true;
}

static void check_case(struct law_case *c)
{
    const struct kernel *list = gpu.device.ops->kernels(c->op);
    const struct node *n = graph_node(c->g, 0);
    struct tensor in[SAMPLE_MAX_INPUTS], out[MAX_OUT];
    struct op_call call;
    int n_accepting = 0;
    if (!list || is_pure_view(n))
        return;
    node_call(c->g, n, in, out, &call);
    struct eval *reference =
        law_run(c, &(struct eval_options){.kernel = "reference", .poison = 0xFF});
    for (const struct kernel *k = list; reference && k->name; k++) {
        if (k->declines && k->declines(&call, &gpu.device.env))
            continue;
        n_accepting++;
        c->kernel = k;
        check_kernel(c, reference);
    }
    c->kernel = NULL;
    bool has_f64 = false;
    for (int i = 0; i < call.n_in; i++)
        has_f64 |= in[i].dtype == DTYPE_F64;
    for (int i = 0; i < call.n_out; i++)
        has_f64 |= out[i].dtype == DTYPE_F64;
    if (n_accepting == 0 && !has_f64)
        law_failed(c, "no CUDA kernel accepts it");
    eval_free(reference);
}

static void cuda_kernels_keep_the_laws(void **state)
{
    struct law_report r = {.only = *state};
    law_for_each_case(&r, LAW_ALL, check_case);
    law_report_finish(&r);
}

/* What is not there is said, so that a run's output tells what was tested. */
static void list_missing(void)
{
    int n = 0;
    for (enum op_id op = 0; op < OP_COUNT; op++) {
        if (!gpu.device.ops->kernels(op))
            (void)fprintf(stderr, "%s%s", n++ ? ", " : "no CUDA kernels yet: ", op_get(op)->name);
    }
    if (n)
        (void)fprintf(stderr, "\n");
}

int main(int argc, char **argv)
{
    void *only = argc > 1 ? argv[1] : NULL;
    gpu.once = argc > 2 && strcmp(argv[2], "once") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(cuda_kernels_keep_the_laws, only),
    };
    if (!gpu_open(&gpu.device))
        return GPU_SKIPPED;
    (void)fprintf(stderr, "%s\n", gpu.device.description);
    const struct device_ops *ops = gpu.device.ops;
    if (ops->memory_alloc(&gpu.device, TIER_DEVICE, arena_bytes, &gpu.arena) != OK ||
        ops->memory_alloc(&gpu.device, TIER_HOST, arena_bytes, &gpu.image) != OK ||
        ops->memory_alloc(&gpu.device, TIER_HOST, arena_bytes, &gpu.result) != OK) {
        (void)fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    list_missing();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ops->memory_free(&gpu.device, TIER_DEVICE, gpu.arena, arena_bytes);
    ops->memory_free(&gpu.device, TIER_HOST, gpu.image, arena_bytes);
    ops->memory_free(&gpu.device, TIER_HOST, gpu.result, arena_bytes);
    device_close(&gpu.device);
    return failed;
}
