/* conv_cuda.c: how fast convolutions and their gradients run on the GPU, and with how much
 * workspace.
 *
 *     bench_conv_cuda [NAME] [--plans N] [--plain] [--samples]
 *
 * NAME: only the cases whose name contains it; --plans: up to N of cuDNN's plans beside the one
 * that training takes, whatever their workspace, in cuDNN's order, with the bias or the sum in the
 * graph ("whole") and without ("bare"); --plain: the kernels without a library, too; --samples:
 * instead of all that, which of the ops' samples cuDNN takes in f32, bf16 and f16, with how much
 * workspace, or why it does not. Times are of a replayed CUDA graph. TFLOP/s counts a
 * multiplication and an addition for each weight at each place of the output.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "base/compiler.h"
#include "base/machine.h"
#include "base/status.h"
#include "device/cuda/convolution/conv_plan.h"
#include "device/cuda/cuda_kernels.h"
#include "device/cuda/cuda_libraries.h"
#include "device/device.h"
#include "graph/sample.h"

static const int64_t arena_bytes = (int64_t)24 << 30, most_workspace = (int64_t)8 << 30;
static const double MIB = 1048576.0;

struct bench_case {
    const char *name, *op, *text;
};

#define PADDED2 "pad_before=[1,1], pad_after=[1,1]"
#define PADDED3 "pad_before=[1,1,1], pad_after=[1,1,1]"

/* The first two are what TARGETS compares with PyTorch; the others are layers of a residual network
 * and of a U-Net, and what engines find hard: three channels, a channel for each group, f32. */
static const struct bench_case cases[] = {
    {"3d-32", "conv", "bf16[2,16,720,1280,32], bf16[32,3,3,3,32], bf16[32] {" PADDED3 "}"},
    {"3d-32", "conv_grad_input",
     "bf16[2,16,720,1280,32], bf16[32,3,3,3,32] {" PADDED3 ", size=[16,720,1280]}"},
    {"3d-32", "conv_grad_weight",
     "bf16[2,16,720,1280,32], bf16[2,16,720,1280,32] {" PADDED3 ", kernel=[3,3,3]}"},
    {"2d-64-128", "conv", "bf16[100,220,320,64], bf16[128,3,3,64], bf16[128] {" PADDED2 "}"},
    {"2d-64-128", "conv_grad_input",
     "bf16[100,220,320,128], bf16[128,3,3,64] {" PADDED2 ", size=[220,320]}"},
    {"2d-64-128", "conv_grad_weight",
     "bf16[100,220,320,64], bf16[100,220,320,128] {" PADDED2 ", kernel=[3,3]}"},
    {"2d-64-128-sum", "conv_grad_input",
     "bf16[100,220,320,128], bf16[128,3,3,64], bf16[100,220,320,64] {" PADDED2 ", size=[220,320]}"},
    {"2d-64-128-sum", "conv_grad_weight",
     "bf16[100,220,320,64], bf16[100,220,320,128], f32[128,3,3,64] {" PADDED2
     ", kernel=[3,3], dtype=f32}"},
    {"stem", "conv",
     "bf16[64,224,224,3], bf16[64,7,7,3] {stride=[2,2], pad_before=[3,3], pad_after=[3,3]}"},
    {"stem", "conv_grad_weight",
     "bf16[64,224,224,3], bf16[64,112,112,64] {stride=[2,2], pad_before=[3,3], pad_after=[3,3], "
     "kernel=[7,7]}"},
    {"few", "conv", "bf16[20,440,640,1], bf16[64,3,3,1], bf16[64] {" PADDED2 "}"},
    {"few", "conv_grad_weight",
     "bf16[20,440,640,1], bf16[20,440,640,64] {" PADDED2 ", kernel=[3,3]}"},
    {"few", "conv", "bf16[20,440,640,1], bf16[1,3,3,1], bf16[1] {" PADDED2 "}"},
    {"stride", "conv", "bf16[64,56,56,128], bf16[256,3,3,128] {stride=[2,2], " PADDED2 "}"},
    {"stride", "conv_grad_input",
     "bf16[64,28,28,256], bf16[256,3,3,128] {stride=[2,2], " PADDED2 ", size=[56,56]}"},
    {"stride", "conv_grad_weight",
     "bf16[64,56,56,128], bf16[64,28,28,256] {stride=[2,2], " PADDED2 ", kernel=[3,3]}"},
    {"up", "conv_grad_input",
     "bf16[16,64,64,256], bf16[256,2,2,128] {stride=[2,2], size=[128,128]}"},
    {"depthwise", "conv", "bf16[64,56,56,128], bf16[128,3,3,1] {" PADDED2 ", groups=128}"},
    {"depthwise", "conv_grad_input",
     "bf16[64,56,56,128], bf16[128,3,3,1] {" PADDED2 ", groups=128, size=[56,56]}"},
    {"depthwise", "conv_grad_weight",
     "bf16[64,56,56,128], bf16[64,56,56,128] {" PADDED2 ", groups=128, kernel=[3,3]}"},
    {"f32", "conv", "f32[16,112,112,64], f32[64,3,3,64], f32[64] {" PADDED2 "}"},
    {"f32", "conv_grad_input", "f32[16,112,112,64], f32[64,3,3,64] {" PADDED2 ", size=[112,112]}"},
    {"f32", "conv_grad_weight",
     "f32[16,112,112,64], f32[16,112,112,64] {" PADDED2 ", kernel=[3,3]}"},
};

struct options {
    const char *only;
    int n_plans;
    bool plain, samples;
};

struct bench {
    struct device *d;
    char *arena;
    int64_t n_taken; /* bytes of the arena */
    struct sample sample;
    struct op_call call;
    struct tensor in[SAMPLE_MAX_INPUTS], out[MAX_OUTPUTS];
};

/* ---- calls ----------------------------------------------------------------------------------- */

static enum status take(struct bench *b, int64_t n_bytes, void **p)
{
    *p = b->arena + b->n_taken;
    b->n_taken += align_up(n_bytes, ARENA_ALIGN);
    return b->n_taken <= arena_bytes ? OK : FAIL(ERR_MEMORY, "the case takes too much memory");
}

/* A sum lies where it is added to: input 2, where a gradient has one. */
static enum status place_call(struct bench *b, const struct bench_case *k)
{
    enum op_id op;
    if (!op_find(k->op, &op))
        return FAIL(ERR_DATA, "there is no op named %s", k->op);
    TRY(sample_parse(&b->sample, op_get(op), k->text));
    b->n_taken = 0;
    b->call = (struct op_call){.op = op,
                               .n_in = b->sample.n_in,
                               .n_out = 1,
                               .in = b->in,
                               .out = b->out,
                               .attrs = b->sample.attrs};
    for (int i = 0; i < b->call.n_in; i++)
        b->in[i] = (struct tensor){b->sample.in[i].dtype, b->sample.in[i].shape, NULL};
    TRY(op_get(op)->infer(&b->call));
    for (int i = 0; i < b->call.n_in; i++) {
        TRY(take(b, tensor_bytes(&b->in[i]), &b->in[i].data));
        TRY(b->d->ops->fill(b->d, &b->in[i], (struct index_rule){0}));
    }
    if (op != OP_conv && b->call.n_in == 3) {
        b->out[0].data = b->in[2].data;
        return OK;
    }
    return take(b, tensor_bytes(&b->out[0]), &b->out[0].data);
}

/* One line: the time of a kernel, or why there is none. */
static void print_time(struct bench *b, const struct kernel *k, int64_t n_bytes)
{
    int64_t taken = b->n_taken;
    struct kernel_ctx x = {.env = b->d->env, .queue = b->d->ops->queue(b->d, QUEUE_COMPUTE)};
    const struct timed_calls t = {.kernel = k, .contexts = &x, .calls = &b->call, .n = 1};
    struct call_time timing;
    enum status status = take(b, n_bytes, &x.workspace);
    if (status == OK)
        status = b->d->ops->time_calls(b->d, &t, &timing);
    if (status == OK)
        printf("  %-12s %8.3f ms %7.1f TFLOP/s %9.3f MiB\n", k->name, timing.seconds * 1e3,
               call_flops(&b->call) / timing.seconds * 1e-12, (double)n_bytes / MIB);
    else
        printf("  %-12s %s\n", k->name, status_message());
    (void)fflush(stdout);
    b->n_taken = taken;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void time_kernels(struct bench *b, bool plain)
{
    for (const struct kernel *k = cuda_kernels(b->call.op); k->name; k++) {
        bool is_plain = strcmp(k->name, "plain") == 0;
        double before = now_s();
        const char *why = k->declines ? k->declines(&b->call, &b->d->env) : NULL;
        double asked = now_s() - before;
        if (why)
            printf("  %-12s declines: %s\n", k->name, why);
        else if (plain || !is_plain)
            print_time(b, k, k->workspace ? k->workspace(&b->call, &b->d->env) : 0);
        if (!is_plain)
            printf("  %-12s %8.3f ms to ask for\n", "", asked * 1e3);
    }
}

/* ---- plans ----------------------------------------------------------------------------------- */

static const struct conv_plan *timed_plan; /* of run_plan, which is called as a kernel */

static enum status run_plan(const struct kernel_ctx *x, const struct op_call *c)
{
    cudnnHandle_t handle = cuda_libraries_of(&x->env)->cudnn;
    void *first = c->in[0].data, *second = c->in[1].data, *out = c->out[0].data;
    struct conv_tensors t = {first, second, out, call_has(c, 2) ? c->in[2].data : NULL};
    if (c->op == OP_conv_grad_input)
        t = (struct conv_tensors){out, second, first, NULL};
    if (c->op == OP_conv_grad_weight)
        t = (struct conv_tensors){first, out, second, NULL};
    if (cudnnSetStream(handle, (cudaStream_t)x->queue) != CUDNN_STATUS_SUCCESS)
        return FAIL(ERR_FAILED, "cuDNN does not take the stream");
    return conv_plan_run(timed_plan, handle, &t, x->workspace);
}

static void time_plans(struct bench *b, enum conv_form form, int n_most)
{
    const struct cuda_libraries *l = cuda_libraries_of(&b->d->env);
    struct conv_shape shape = conv_shape_of(&b->call);
    for (int i = 0; i < n_most; i++) {
        const struct conv_wish wish = {
            .form = form, .most_bytes = most_workspace, .tf32 = l->tf32, .n_passed_over = i};
        const struct kernel k = {form == CONV_WHOLE ? "plan, whole" : "plan, bare", NULL, NULL,
                                 run_plan};
        struct conv_plan *plan = NULL;
        if (conv_plan_new(&plan, l->cudnn, &shape, &wish) != OK) {
            if (i == 0)
                printf("  %-12s %s\n", k.name, status_message());
            return;
        }
        timed_plan = plan;
        print_time(b, &k, conv_plan_bytes(plan));
        conv_plan_free(plan);
    }
}

/* ---- samples --------------------------------------------------------------------------------- */

/* The call of a sample text in another float dtype, without memory. */
static enum status bind_sample(struct bench *b, enum op_id op, const char *text, enum dtype dtype)
{
    TRY(sample_parse(&b->sample, op_get(op), text));
    b->call = (struct op_call){.op = op,
                               .n_in = b->sample.n_in,
                               .n_out = 1,
                               .in = b->in,
                               .out = b->out,
                               .attrs = b->sample.attrs};
    for (int i = 0; i < b->call.n_in; i++) {
        bool present = b->sample.in[i].dtype != DTYPE_NONE;
        b->in[i] = (struct tensor){present ? dtype : DTYPE_NONE, b->sample.in[i].shape, NULL};
    }
    return op_get(op)->infer(&b->call);
}

static void ask_for_sample(struct bench *b, enum op_id op, const char *text, enum dtype dtype)
{
    const struct cuda_libraries *l = cuda_libraries_of(&b->d->env);
    if (bind_sample(b, op, text, dtype) != OK)
        return; /* of mixed dtypes */
    struct conv_shape shape = conv_shape_of(&b->call);
    printf("%s %s %s\n", dtype_name(dtype), op_get(op)->name, text);
    for (int form = CONV_WHOLE; form <= CONV_BARE; form++) {
        const struct conv_wish wish = {
            .form = (enum conv_form)form, .most_bytes = most_workspace, .tf32 = l->tf32};
        struct conv_plan *plan = NULL;
        if (conv_plan_new(&plan, l->cudnn, &shape, &wish) == OK)
            printf("  %s: %lld bytes, allowance %lld\n", form == CONV_WHOLE ? "whole" : "bare",
                   (long long)conv_plan_bytes(plan),
                   (long long)conv_allowance(b->d->env.gpu, &shape));
        else
            printf("  %s: %s\n", form == CONV_WHOLE ? "whole" : "bare", status_message());
        conv_plan_free(plan);
    }
    (void)fflush(stdout);
}

static void ask_for_samples(struct bench *b)
{
    static const enum op_id ops[] = {OP_conv, OP_conv_grad_input, OP_conv_grad_weight};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (size_t o = 0; o < ARRAY_LEN(ops); o++) {
        const struct op_def *def = op_get(ops[o]);
        for (int i = 0; i < def->n_samples; i++) {
            for (size_t t = 0; t < ARRAY_LEN(dtypes); t++)
                ask_for_sample(b, ops[o], def->samples[i].text, dtypes[t]);
        }
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void run_case(struct bench *b, const struct bench_case *k, const struct options *o)
{
    printf("%s %s %s\n", k->name, k->op, k->text);
    if (place_call(b, k) != OK || b->d->ops->sync(b->d) != OK) {
        printf("  %s\n", status_message());
        return;
    }
    time_kernels(b, o->plain);
    bool more = call_has(&b->call, 2); /* a bias or a sum */
    if (o->n_plans > 0)
        time_plans(b, CONV_WHOLE, o->n_plans);
    if (o->n_plans > 0 && more)
        time_plans(b, CONV_BARE, o->n_plans);
}

static enum status run_cases(struct device *d, const struct options *o)
{
    static struct bench b; /* too much for a stack */
    void *arena = NULL;
    TRY(d->ops->memory_alloc(d, TIER_DEVICE, arena_bytes, &arena));
    b.d = d;
    b.arena = arena;
    if (o->samples)
        ask_for_samples(&b);
    for (size_t i = 0; i < ARRAY_LEN(cases) && !o->samples; i++) {
        if (strstr(cases[i].name, o->only))
            run_case(&b, &cases[i], o);
    }
    d->ops->memory_free(d, TIER_DEVICE, arena, arena_bytes);
    return OK;
}

int main(int argc, char **argv)
{
    struct options o = {.only = ""};
    struct device d;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--plans") == 0 && i + 1 < argc)
            o.n_plans = (int)strtol(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--plain") == 0)
            o.plain = true;
        else if (strcmp(argv[i], "--samples") == 0)
            o.samples = true;
        else
            o.only = argv[i];
    }
    if (device_open_cuda(&d, 0) != OK) {
        (void)fprintf(stderr, "bench_conv_cuda: %s\n", status_message());
        return 77;
    }
    printf("%s, cuDNN %zu\n", d.description, cudnnGetVersion());
    enum status status = run_cases(&d, &o);
    if (status != OK)
        (void)fprintf(stderr, "bench_conv_cuda: %s\n", status_message());
    device_close(&d);
    return status == OK ? 0 : 1;
}
