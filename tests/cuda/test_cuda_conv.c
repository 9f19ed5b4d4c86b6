/* Convolutions and their gradients at the sizes of real layers: cuDNN takes them, and what it gives
 * agrees with the plain kernels; so do calls with more elements than cuDNN counts, which run in
 * parts. Skipped without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/gpu.h"

#ifdef SNUG_HAVE_CUDA

#include "base/alloc.h"
#include "base/compiler.h"
#include "device/cpu/support/ref.h"
#include "device/cuda/cuda_kernels.h"
#include "device/cuda/declared/convolution.h"
#include "graph/sample.h"
#include "support/device_call.h"
#include "support/raw_copy.h"

static struct device gpu;

/* A call on the GPU with random inputs. */
struct gpu_call {
    struct sample sample;
    struct op_call call;
    struct tensor in[SAMPLE_MAX_INPUTS], out[MAX_OUTPUTS];
};

static void open_call(struct gpu_call *g, enum op_id op, const char *text)
{
    memset(g, 0, sizeof(*g));
    assert_int_equal(sample_parse(&g->sample, op_get(op), text), OK);
    g->call = (struct op_call){.op = op,
                               .n_in = g->sample.n_in,
                               .n_out = 1,
                               .in = g->in,
                               .out = g->out,
                               .attrs = g->sample.attrs};
    for (int i = 0; i < g->call.n_in; i++)
        g->in[i] = (struct tensor){g->sample.in[i].dtype, g->sample.in[i].shape, NULL};
    assert_int_equal(op_get(op)->infer(&g->call), OK);
    for (int i = 0; i < g->call.n_in; i++) {
        g->in[i].data = device_call_alloc(&gpu, tensor_bytes(&g->in[i]));
        assert_int_equal(gpu.ops->fill(&gpu, &g->in[i], (struct index_rule){0}), OK);
    }
    g->out[0].data = device_call_alloc(&gpu, tensor_bytes(&g->out[0]));
}

static void close_call(struct gpu_call *g)
{
    for (int i = 0; i < g->call.n_in; i++)
        device_call_free(&gpu, g->in[i].data, tensor_bytes(&g->in[i]));
    device_call_free(&gpu, g->out[0].data, tensor_bytes(&g->out[0]));
}

static void run_kernel(struct gpu_call *g, const struct kernel *k)
{
    int64_t n_bytes = k->workspace ? k->workspace(&g->call, &gpu.env) : 0;
    struct kernel_ctx x = {.env = gpu.env,
                           .workspace = device_call_alloc(&gpu, n_bytes),
                           .queue = gpu.ops->queue(&gpu, QUEUE_COMPUTE)};
    if (k->run(&x, &g->call) != OK || gpu.ops->sync(&gpu) != OK)
        fail_msg("%s: %s", k->name, status_message());
    device_call_free(&gpu, x.workspace, n_bytes);
}

/* n elements of the output from `first` on, as doubles. */
static void read_out(const struct gpu_call *g, int64_t first, int64_t n, double *to)
{
    struct tensor t = {g->out[0].dtype, shape_of(1, n), NULL};
    const char *from = (const char *)g->out[0].data + first * dtype_size(t.dtype);
    t.data = mem_alloc((size_t)tensor_bytes(&t));
    assert_non_null(t.data);
    raw_copy(&gpu, QUEUE_COMPUTE, t.data, from, tensor_bytes(&t));
    assert_int_equal(gpu.ops->sync(&gpu), OK);
    for (int64_t i = 0; i < n; i++)
        to[i] = ref_get(&t, i);
    mem_free(t.data);
}

static const struct kernel *kernel_named(enum op_id op, const char *name)
{
    for (const struct kernel *k = cuda_kernels(op); k->name; k++) {
        if (strcmp(k->name, name) == 0)
            return k;
    }
    fail_msg("%s has no kernel named %s", op_get(op)->name, name);
    return NULL;
}

/* The largest difference over the largest value, in windows of the output: its beginning, its
 * middle, its end. */
static double difference(struct gpu_call *g)
{
    enum { N_WINDOWS = 3, WINDOW = 1 << 16 };
    int64_t n = shape_elems(&g->out[0].shape), length = MIN(n, (int64_t)WINDOW);
    const int64_t first[N_WINDOWS] = {0, (n - length) / 2, n - length};
    double *a = mem_calloc((size_t)(2 * N_WINDOWS * length), sizeof(double)), worst = 0, top = 0;
    assert_non_null(a);
    double *b = a + N_WINDOWS * length;
    run_kernel(g, kernel_named(g->call.op, "cudnn"));
    for (int w = 0; w < N_WINDOWS; w++)
        read_out(g, first[w], length, a + w * length);
    run_kernel(g, kernel_named(g->call.op, "plain"));
    for (int w = 0; w < N_WINDOWS; w++)
        read_out(g, first[w], length, b + w * length);
    for (int64_t i = 0; i < N_WINDOWS * length; i++) {
        worst = fmax(worst, fabs(a[i] - b[i]));
        top = fmax(top, fabs(b[i]));
        if (isnan(a[i]) || isnan(b[i]))
            worst = INFINITY;
    }
    mem_free(a);
    return worst / top;
}

/* false, and a line, when cuDNN does not take the call or gives something else. */
static bool agrees(enum op_id op, const char *text, double limit)
{
    struct gpu_call g;
    open_call(&g, op, text);
    const char *why = kernel_named(op, "cudnn")->declines(&g.call, &gpu.env);
    double d = why ? 0.0 : difference(&g);
    if (why)
        print_message("%s %s: declined: %s\n", op_get(op)->name, text, why);
    else if (!(d <= limit))
        print_message("%s %s: differs by %g of the largest value\n", op_get(op)->name, text, d);
    close_call(&g);
    return !why && d <= limit;
}

struct conv_case {
    enum op_id op;
    const char *text;
};

static int count_wrong(const struct conv_case *cases, size_t n, double limit)
{
    int n_wrong = 0;
    for (size_t i = 0; i < n; i++)
        n_wrong += !agrees(cases[i].op, cases[i].text, limit);
    return n_wrong;
}

#define PADDED "pad_before=[1,1], pad_after=[1,1]"

static void layers_of_real_networks_run_on_cudnn(void **state)
{
    (void)state;
    static const struct conv_case cases[] = {
        {OP_conv, "bf16[4,56,56,64], bf16[128,3,3,64], bf16[128] {" PADDED "}"},
        {OP_conv, "f16[4,56,56,64], f16[128,3,3,64], f16[128] {" PADDED "}"},
        {OP_conv, "bf16[4,112,112,3], bf16[64,7,7,3] {stride=[2,2], pad_before=[3,3], "
                  "pad_after=[3,3]}"},
        {OP_conv, "bf16[4,56,56,96], bf16[96,3,3,1], bf16[96] {" PADDED ", groups=96}"},
        {OP_conv, "bf16[4,28,28,256], bf16[256,3,3,8] {" PADDED ", groups=32}"},
        {OP_conv, "bf16[2,8,40,40,32], bf16[32,3,3,3,32], bf16[32] {pad_before=[1,1,1], "
                  "pad_after=[1,1,1]}"},
        {OP_conv, "bf16[8,400,64], bf16[64,5,64] {pad_before=[2], pad_after=[2]}"},
        {OP_conv_grad_input, "bf16[4,56,56,128], bf16[128,3,3,64] {" PADDED ", size=[56,56]}"},
        {OP_conv_grad_input,
         "bf16[4,56,56,128], bf16[128,3,3,64], bf16[4,56,56,64] {" PADDED ", size=[56,56]}"},
        {OP_conv_grad_input,
         "bf16[4,28,28,128], bf16[128,3,3,64] {stride=[2,2], " PADDED ", size=[56,56]}"},
        {OP_conv_grad_input, "bf16[4,32,32,128], bf16[128,2,2,64] {stride=[2,2], size=[64,64]}"},
        {OP_conv_grad_input, "bf16[2,8,40,40,32], bf16[32,3,3,3,32] {pad_before=[1,1,1], "
                             "pad_after=[1,1,1], size=[8,40,40]}"},
        {OP_conv_grad_weight, "bf16[4,56,56,64], bf16[4,56,56,128] {" PADDED ", kernel=[3,3]}"},
        {OP_conv_grad_weight, "bf16[4,56,56,64], bf16[4,56,56,128], f32[128,3,3,64] {" PADDED
                              ", kernel=[3,3], dtype=f32}"},
        {OP_conv_grad_weight, "bf16[4,112,112,3], bf16[4,56,56,64] {stride=[2,2], "
                              "pad_before=[3,3], pad_after=[3,3], kernel=[7,7]}"},
        {OP_conv_grad_weight,
         "bf16[4,56,56,96], bf16[4,56,56,96] {" PADDED ", groups=96, kernel=[3,3]}"},
        {OP_conv_grad_weight, "bf16[2,8,40,40,32], bf16[2,8,40,40,32] {pad_before=[1,1,1], "
                              "pad_after=[1,1,1], kernel=[3,3,3]}"},
    };
    assert_int_equal(count_wrong(cases, ARRAY_LEN(cases), 1.0 / 64), 0);
}

static void f32_keeps_its_digits(void **state)
{
    (void)state;
    static const struct conv_case cases[] = {
        {OP_conv, "f32[4,28,28,64], f32[64,3,3,64], f32[64] {" PADDED "}"},
        {OP_conv_grad_input,
         "f32[4,28,28,64], f32[64,3,3,64], f32[4,28,28,64] {" PADDED ", size=[28,28]}"},
        {OP_conv_grad_weight,
         "f32[4,28,28,64], f32[4,28,28,64], f32[64,3,3,64] {" PADDED ", kernel=[3,3]}"},
    };
    assert_int_equal(count_wrong(cases, ARRAY_LEN(cases), 1e-5), 0);
}

static int64_t free_bytes(void)
{
    struct device_room room;
    assert_int_equal(gpu.ops->room(&gpu, &room), OK);
    return room.free_bytes;
}

/* Three samples of 2^30 elements. */
static void calls_beyond_32_bits_agree_with_the_plain_kernels(void **state)
{
    (void)state;
    static const struct conv_case cases[] = {
        {OP_conv, "bf16[3,8192,16384,8], bf16[8,1,3,8], bf16[8] {pad_before=[0,1], "
                  "pad_after=[0,1]}"},
        {OP_conv_grad_input, "bf16[3,8192,16384,8], bf16[8,1,3,8] {pad_before=[0,1], "
                             "pad_after=[0,1], size=[8192,16384]}"},
        {OP_conv_grad_weight, "bf16[3,8192,16384,8], bf16[3,8192,16384,8] {pad_before=[0,1], "
                              "pad_after=[0,1], kernel=[1,3], dtype=f32}"},
    };
    if (free_bytes() < (int64_t)24 << 30) {
        print_message("too little memory is free\n");
        skip();
    }
    assert_int_equal(count_wrong(cases, ARRAY_LEN(cases), 1.0 / 64), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_of_real_networks_run_on_cudnn),
        cmocka_unit_test(f32_keeps_its_digits),
        cmocka_unit_test(calls_beyond_32_bits_agree_with_the_plain_kernels),
    };
    if (!gpu_open(&gpu))
        return GPU_SKIPPED;
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_close(&gpu);
    return n_failed;
}

#else

int main(void)
{
    print_message("skipped: built without CUDA\n");
    return GPU_SKIPPED;
}

#endif
