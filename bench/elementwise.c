/* elementwise.c: how near the kernels that only move memory come to the speed of a copy, at the
 * shapes of real models.
 *
 *     bench_elementwise [NAME]        only the ops whose name contains NAME
 *
 * One line per op and shape: microseconds of a call inside a replayed CUDA graph, gigabytes per
 * second (each input read once, each output written once), and the share of what copying 256 MB
 * from one place of the GPU's memory to another reaches in the same run. Calls take turns over as
 * much memory as the L2 cannot hold, as in training, where a layer's data is gone from it when the
 * next pass comes.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "base/compiler.h"
#include "base/status.h"
#include "device/device.h"
#include "graph/sample.h"

enum { MAX_OUT = 8, MOST_COPIES = 32 };

static const int64_t arena_bytes = (int64_t)8 << 30;
static const int64_t rotation_bytes = (int64_t)512 << 20; /* ten times the L2 of an H200 */
static const int64_t copy_bytes = (int64_t)256 << 20;

/* n_bytes 0: inputs and outputs once each. Otherwise what the op cannot do without. */
struct bench_case {
    const char *op, *text;
    double n_bytes;
};

/* GPT-2 124M with 32 sequences of 1024 tokens, GPT-2 1558M with 8, a Llama of 1.1B with 8 of 2048.
 * A gradient of embeddings reads and writes the rows of the table that it meets: of 32768 draws
 * from 50304 about 24000 are different. Weights of norms and biases of GELU are f32, as beside f32
 * masters. */
static const struct bench_case cases[] = {
    {"layer_norm", "bf16[32768,768], f32[768], f32[768]", 0},
    {"layer_norm", "bf16[8192,1600], f32[1600], f32[1600]", 0},
    {"rms_norm", "bf16[16384,2048], f32[2048]", 0},
    {"rms_norm", "bf16[8192,4096], f32[4096]", 0},
    {"layer_norm_grad",
     "bf16[32768,768], bf16[32768,768], f32[768], f32[32768], f32[32768]+ {dtype=f32}", 0},
    {"layer_norm_grad",
     "bf16[32768,768], bf16[32768,768], f32[768], f32[32768], f32[32768]+, bf16[32768,768] "
     "{dtype=f32}",
     0},
    {"layer_norm_grad",
     "bf16[8192,1600], bf16[8192,1600], f32[1600], f32[8192], f32[8192]+ {dtype=f32}", 0},
    {"layer_norm_grad",
     "bf16[8192,1600], bf16[8192,1600], f32[1600], f32[8192], f32[8192]+, bf16[8192,1600] "
     "{dtype=f32}",
     0},
    {"rms_norm_grad", "bf16[16384,2048], bf16[16384,2048], f32[2048], f32[16384]+ {dtype=f32}", 0},
    {"rms_norm_grad",
     "bf16[16384,2048], bf16[16384,2048], f32[2048], f32[16384]+, bf16[16384,2048] {dtype=f32}", 0},
    {"rms_norm_grad",
     "bf16[8192,4096], bf16[8192,4096], f32[4096], f32[8192]+, bf16[8192,4096] {dtype=f32}", 0},
    {"sum_rows", "bf16[8192,1600], f32[1600] {dtype=f32}", 0},
    {"sum_rows", "bf16[8192,4800], f32[4800] {dtype=f32}", 0},
    {"sum_rows", "bf16[8192,6400], f32[6400] {dtype=f32}", 0},
    {"sum_rows", "bf16[32768,768], f32[768] {dtype=f32}", 0},
    {"sum_rows", "bf16[32768,2304], f32[2304] {dtype=f32}", 0},
    {"sum_rows", "bf16[32768,3072], f32[3072] {dtype=f32}", 0},
    {"gelu", "bf16[32768,3072] {approximate=true}", 0},
    {"gelu_bias", "bf16[32768,3072], f32[3072] {approximate=true}", 0},
    {"gelu_bias", "bf16[8192,6400], f32[6400] {approximate=true}", 0},
    {"gelu_grad", "bf16[32768,3072], bf16[32768,3072] {approximate=true}", 0},
    {"gelu_bias_grad",
     "bf16[32768,3072], bf16[32768,3072], f32[3072], f32[3072] {approximate=true, dtype=f32}", 0},
    {"gelu_bias_grad",
     "bf16[8192,6400], bf16[8192,6400], f32[6400], f32[6400] {approximate=true, dtype=f32}", 0},
    {"gelu_bias_grad", "bf16[8192,6400], bf16[8192,6400], f32[6400], f32[6400] {dtype=f32}", 0},
    {"gelu_bias_with_grad",
     "bf16[32768,3072], bf16[32768,3072], f32[3072], f32[3072] {approximate=true, dtype=f32}", 0},
    {"gelu_bias_with_grad",
     "bf16[8192,6400], bf16[8192,6400], f32[6400], f32[6400] {approximate=true, dtype=f32}", 0},
    {"gelu_bias_with_grad", "bf16[8192,6400], bf16[8192,6400], f32[6400], f32[6400] {dtype=f32}",
     0},
    {"silu_gate", "bf16[16384,11264]", 0},
    {"silu_gate_grad", "bf16[16384,5632], bf16[16384,11264]", 0},
    {"silu_gate_with_grad", "bf16[16384,5632], bf16[16384,11264]", 0},
    {"add", "bf16[32768,768], bf16[32768,768]", 0},
    {"add", "bf16[8192,1600], bf16[8192,1600]", 0},
    {"add", "bf16[16384,2048], bf16[16384,2048]", 0},
    {"rotary", "bf16[8,2048,2560], f32[32] {heads=32, kv_heads=4, head_dim=64}", 0},
    {"embedding_grad", "bf16[32768,768], i32[32768]~50304, f32[50304,768] {rows=50304, dtype=f32}",
     32768 * 768 * 2.0 + 24000 * 768 * 8.0},
    {"embedding_grad", "bf16[8192,1600], i32[8192]~50304, f32[50304,1600] {rows=50304, dtype=f32}",
     8192 * 1600 * 2.0 + 7550 * 1600 * 8.0},
    {"batch_norm", "bf16[16,224,224,64], f32[64], f32[64]", 0},
    {"batch_norm", "bf16[64,28,28,512], f32[512], f32[512]", 0},
    {"batch_norm_grad",
     "bf16[16,224,224,64], bf16[16,224,224,64], f32[64], f32[64], f32[64]+ {dtype=f32}", 0},
    {"batch_norm_inference", "bf16[16,224,224,64], f32[64], f32[64], f32[64], f32[64]+", 0},
    /* A frame of the per-frame network, 20 samples: as one op, and as the ops that it is made of.
     */
    {"batch_norm_activation",
     "bf16[20,440,640,64], f32[64], f32[64], bf16[20,64], bf16[20,64] {slope=0.01}", 0},
    {"batch_norm_activation", "bf16[20,220,320,128], f32[128], f32[128] {slope=0.01}", 0},
    {"batch_norm_activation", "bf16[16,224,224,64], f32[64], f32[64] {silu=true}", 0},
    {"batch_norm_film_grad",
     "bf16[20,440,640,64], bf16[20,440,640,64], f32[64], f32[64], f32[64], f32[64]+, bf16[20,64] "
     "{slope=0.01, dtype=f32}",
     0},
    {"batch_norm_activation_grad",
     "bf16[20,220,320,128], bf16[20,220,320,128], f32[128], f32[128], f32[128], f32[128]+ "
     "{slope=0.01, dtype=f32}",
     0},
    {"batch_norm_activation_grad",
     "bf16[16,224,224,64], bf16[16,224,224,64], f32[64], f32[64], f32[64], f32[64]+ {silu=true, "
     "dtype=f32}",
     0},
    {"batch_norm", "bf16[20,440,640,64], f32[64], f32[64]", 0},
    {"batch_norm_grad",
     "bf16[20,440,640,64], bf16[20,440,640,64], f32[64], f32[64], f32[64]+ {dtype=f32}", 0},
    {"leaky_relu", "bf16[20,440,640,64] {slope=0.01}", 0},
    {"leaky_relu_grad", "bf16[20,440,640,64], bf16[20,440,640,64] {slope=0.01}", 0},
    {"film", "bf16[20,440,640,64], bf16[20,64], bf16[20,64]", 0},
    {"film_grad", "bf16[20,440,640,64], bf16[20,440,640,64], bf16[20,64]", 0},
    {"group_norm", "bf16[16,224,224,64], f32[64], f32[64] {groups=8}", 0},
    {"group_norm_grad",
     "bf16[16,224,224,64], bf16[16,224,224,64], f32[64], f32[16,8], f32[16,8]+ {groups=8, "
     "dtype=f32}",
     0},
    {"max_pool", "bf16[16,224,224,64] {kernel=[2,2], stride=[2,2]}", 0},
    {"max_pool_grad",
     "bf16[16,112,112,64], u8[16,112,112,64]~4 {kernel=[2,2], stride=[2,2], size=[224,224]}", 0},
    {"max_pool",
     "bf16[16,224,224,64] {kernel=[3,3], stride=[2,2], pad_before=[1,1], pad_after=[1,1]}", 0},
    {"avg_pool", "bf16[16,224,224,64] {kernel=[2,2], stride=[2,2]}", 0},
    {"avg_pool_grad", "bf16[16,112,112,64] {kernel=[2,2], stride=[2,2], size=[224,224]}", 0},
    {"resize", "bf16[16,112,112,64] {out=[224,224], linear=true}", 0},
    {"resize_grad", "bf16[16,224,224,64] {size=[112,112], linear=true}", 0},
    {"resize", "bf16[2,8,128,128,32] {out=[16,256,256], linear=true}", 0},
    {"sum_squares", "bf16[38633472]", 0},
    {"adamw_master",
     "bf16[38633472], bf16[38633472], f32[38633472], f32[38633472]+, f32[1]=0.001, i32[1]=1000, "
     "f32[1]=1, f32[38633472]",
     38633472 * 28.0}, /* the parameter is written, not read */
    {"adamw",
     "bf16[38633472], bf16[38633472], bf16[38633472], bf16[38633472]+, f32[1]=0.001, i32[1]=1000, "
     "f32[1]=1 {seed=1}",
     0},
    {"adamw_8bit_master",
     "bf16[38633472], bf16[38633472], u8[38633472]~256, f32[150912]+, u8[38633472]~256, "
     "f32[150912]+, f32[1]=0.001, i32[1]=1000, f32[1]=1, f32[38633472]",
     38633472 * 16.0 + 150912 * 16.0}, /* the parameter is written, not read */
    {"adamw_8bit",
     "bf16[38633472], bf16[38633472], u8[38633472]~256, f32[150912]+, u8[38633472]~256, "
     "f32[150912]+, f32[1]=0.001, i32[1]=1000, f32[1]=1 {seed=1}",
     0},
};

/* One case over several pieces of memory. */
struct bench {
    struct device *d;
    char *arena;
    int64_t n_taken; /* bytes of the arena */
    struct sample sample;
    struct op_call calls[MOST_COPIES];
    struct kernel_ctx contexts[MOST_COPIES];
    struct tensor in[MOST_COPIES][SAMPLE_MAX_INPUTS], out[MOST_COPIES][MAX_OUT];
};

/* ---- calls ----------------------------------------------------------------------------------- */

static enum status take(struct bench *b, int64_t n_bytes, void **p)
{
    *p = b->arena + b->n_taken;
    b->n_taken += align_up(n_bytes, ARENA_ALIGN);
    return b->n_taken <= arena_bytes ? OK : FAIL(ERR_MEMORY, "the case takes too much memory");
}

/* The input whose memory output o is, or -1. */
static int updated_input(const struct op_call *c, int o)
{
    const struct alias_rule *a = op_get(c->op)->aliases;
    for (; a && a->kind != ALIAS_NONE; a++) {
        if (a->kind == ALIAS_UPDATE && a->out == o && call_has(c, a->in))
            return a->in;
    }
    return -1;
}

static enum status place_call(struct bench *b, enum op_id op, int copy)
{
    struct op_call *c = &b->calls[copy];
    *c = (struct op_call){.op = op,
                          .n_in = b->sample.n_in,
                          .n_out = op_get(op)->n_out,
                          .in = b->in[copy],
                          .out = b->out[copy],
                          .attrs = b->sample.attrs};
    memset(b->in[copy], 0, sizeof(b->in[copy]));
    memset(b->out[copy], 0, sizeof(b->out[copy]));
    for (int i = 0; i < c->n_in; i++) {
        b->in[copy][i].dtype = b->sample.in[i].dtype;
        b->in[copy][i].shape = b->sample.in[i].shape;
    }
    TRY(op_get(op)->infer(c));
    for (int i = 0; i < c->n_in; i++) {
        struct tensor *t = &b->in[copy][i];
        if (!tensor_present(t))
            continue;
        TRY(take(b, tensor_bytes(t), &t->data));
        TRY(b->d->ops->fill(b->d, t, (struct index_rule){.limit = b->sample.in[i].high}));
    }
    for (int o = 0; o < c->n_out; o++) {
        int in = updated_input(c, o);
        if (in >= 0)
            b->out[copy][o].data = b->in[copy][in].data;
        else
            TRY(take(b, tensor_bytes(&b->out[copy][o]), &b->out[copy][o].data));
    }
    return OK;
}

/* ---- times ----------------------------------------------------------------------------------- */

static enum status copy_run(const struct kernel_ctx *x, const struct op_call *c)
{
    cudaError_t e = cudaMemcpyAsync(c->out[0].data, c->in[0].data, (size_t)tensor_bytes(&c->in[0]),
                                    cudaMemcpyDeviceToDevice, (cudaStream_t)x->queue);
    return e == cudaSuccess ? OK : FAIL(ERR_FAILED, "CUDA: %s", cudaGetErrorString(e));
}

/* Bytes per second of a copy, read and written. */
static enum status time_copy(struct bench *b, double *rate)
{
    static const struct kernel copy = {"copy", NULL, NULL, copy_run};
    struct call_time timing;
    b->n_taken = 0;
    TRY(sample_parse(&b->sample, op_get(OP_gelu), "bf16[134217728]"));
    for (int i = 0; i < 4; i++) {
        TRY(place_call(b, OP_gelu, i));
        b->contexts[i] = (struct kernel_ctx){.env = b->d->env};
    }
    TRY(b->d->ops->sync(b->d));
    const struct timed_calls t = {
        .kernel = &copy, .contexts = b->contexts, .calls = b->calls, .n = 4};
    TRY(b->d->ops->time_calls(b->d, &t, &timing));
    *rate = 2.0 * (double)copy_bytes / timing.seconds;
    return OK;
}

static enum status time_case(struct bench *b, const struct bench_case *k, double copy_rate)
{
    enum op_id op;
    const char *why = NULL;
    struct call_time timing;
    int n = 0;
    if (!op_find(k->op, &op))
        return FAIL(ERR_DATA, "there is no op named %s", k->op);
    TRY(sample_parse(&b->sample, op_get(op), k->text));
    b->n_taken = 0;
    const struct kernel *kernel = NULL;
    for (; n < 2 || (b->n_taken < rotation_bytes && n < MOST_COPIES); n++) {
        TRY(place_call(b, op, n));
        kernel = kernel_pick(b->d->ops->kernels(op), &b->calls[n], &b->d->env, &why);
        if (!kernel)
            return FAIL(ERR_UNSUPPORTED, "%s: %s", k->op, why ? why : "no kernel takes it");
        int64_t workspace = kernel->workspace ? kernel->workspace(&b->calls[n], &b->d->env) : 0;
        b->contexts[n] = (struct kernel_ctx){.env = b->d->env};
        TRY(take(b, workspace, &b->contexts[n].workspace));
    }
    TRY(b->d->ops->sync(b->d));
    const struct timed_calls t = {
        .kernel = kernel, .contexts = b->contexts, .calls = b->calls, .n = n};
    TRY(b->d->ops->time_calls(b->d, &t, &timing));
    double rate = (k->n_bytes > 0 ? k->n_bytes : call_bytes(&b->calls[0])) / timing.seconds;
    (void)printf("%-16s %-9s %8.1f %7.0f %5.0f%%  %s\n", k->op, kernel->name, timing.seconds * 1e6,
                 rate * 1e-9, 100.0 * rate / copy_rate, k->text);
    (void)fflush(stdout);
    return OK;
}

static enum status run_cases(struct bench *b, const char *name)
{
    double copy_rate;
    TRY(time_copy(b, &copy_rate));
    (void)printf("%s\ncopy: %.0f GB/s read and written\n\n", b->d->description, copy_rate * 1e-9);
    (void)printf("%-16s %-9s %8s %7s %6s  %s\n", "op", "kernel", "us", "GB/s", "copy", "call");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (name && !strstr(cases[i].op, name))
            continue;
        if (time_case(b, &cases[i], copy_rate) != OK)
            (void)printf("%-16s %s: %s\n", cases[i].op, cases[i].text, status_message());
    }
    return OK;
}

int main(int argc, char **argv)
{
    static struct bench b; /* too much for a stack */
    struct device d;
    void *arena = NULL;
    enum status status = device_open_cuda(&d, 0);
    if (status != OK) {
        (void)fprintf(stderr, "bench_elementwise: %s\n", status_message());
        return 1;
    }
    b.d = &d;
    TRY_GOTO(d.ops->memory_alloc(&d, TIER_DEVICE, arena_bytes, &arena), out);
    b.arena = arena;
    TRY_GOTO(run_cases(&b, argc > 1 ? argv[1] : NULL), out);
out:
    if (status != OK)
        (void)fprintf(stderr, "bench_elementwise: %s\n", status_message());
    if (arena)
        d.ops->memory_free(&d, TIER_DEVICE, arena, arena_bytes);
    device_close(&d);
    return status == OK ? 0 : 1;
}
