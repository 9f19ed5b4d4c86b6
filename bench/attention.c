/* attention.c: how fast attention and its gradient run on the GPU at the sizes of real models, and
 * with how much workspace.
 *
 *     bench_attention [NAME] [--all] [--dropout]
 *
 * NAME: only the models whose name contains it; --all: the kernels that no model would use, too;
 * --dropout: the kernels with dropout instead, as GPT-2 has it by default.
 *
 * Under "forward" and "backward": the kernels as training runs them; for cuDNN, how it takes the
 * call. Under "plans": cuDNN's plans whatever their workspace, in parts of every size, grouped
 * heads as they are and with keys and values repeated: what the choices cost. Times are of a
 * replayed CUDA graph, the median of eleven. TFLOP/s counts the products of visible pairs: two
 * forwards, five backwards.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/half.h"
#include "base/rng.h"
#include "base/status.h"
#include "device/cuda/attention/sdpa.h"
#include "device/cuda/attention/sdpa_plan.h"
#include "device/cuda/cuda_kernels.h"
#include "device/cuda/cuda_libraries.h"
#include "device/device.h"
#include "ops/layer_support.h"

enum { MAX_TENSORS = 5, N_TIMES = 11, N_PIECE = 1 << 20 };

static const double MIB = 1048576.0, DROPOUT = 0.1;

struct choice {
    const char *only;
    bool all, dropout;
};

struct model {
    const char *name;
    int64_t batch, tokens, heads, kv_heads, head_dim;
};

static const struct model models[] = {
    {"gpt2-124m-b32", 32, 1024, 12, 12, 64}, {"gpt2-124m-b4", 4, 1024, 12, 12, 64},
    {"gpt2-1558m-b8", 8, 1024, 25, 25, 64},  {"llama-1b-b8", 8, 2048, 32, 4, 64},
    {"llama-7b-b4", 4, 2048, 32, 32, 128},   {"qwen-7b-b16", 16, 1024, 28, 4, 128},
};

/* One call on the GPU, with random contents. */
struct bench {
    struct device *d;
    const struct model *m;
    bool backward;
    struct op_call call;
    struct tensor in[MAX_TENSORS], out[MAX_TENSORS];
    struct attr attrs[ATTENTION_N_ATTRS];
    double flops;
};

/* ---- memory ---------------------------------------------------------------------------------- */

static enum status gpu_alloc(struct device *d, int64_t n_bytes, void **p)
{
    return d->ops->memory_alloc(d, TIER_DEVICE, n_bytes + ARENA_ALIGN, p);
}

static void gpu_free(struct device *d, void *p, int64_t n_bytes)
{
    if (p)
        d->ops->memory_free(d, TIER_DEVICE, p, n_bytes + ARENA_ALIGN);
}

/* Zeroes would run faster than data does: a short random piece over and over. */
static enum status gpu_fill(struct device *d, const struct tensor *t)
{
    int64_t n_bytes = tensor_bytes(t), n_piece = N_PIECE * dtype_size(t->dtype);
    enum status status = OK;
    void *piece = mem_alloc((size_t)n_piece);
    if (!piece)
        return FAIL(ERR_MEMORY, "no memory for a piece of random numbers");
    for (int64_t i = 0; i < N_PIECE; i++) {
        struct philox4 p = philox(3, 0, (uint64_t)i);
        float x, y;
        rng_normal2(p.v[0], p.v[1], &x, &y);
        if (t->dtype == DTYPE_BF16)
            ((uint16_t *)piece)[i] = bf16_from_f32(x);
        else
            ((float *)piece)[i] = x;
    }
    const struct memory to = {.tier = TIER_DEVICE, .base = t->data, .n_bytes = n_bytes};
    const struct memory from = memory_of_host(piece, n_piece);
    for (int64_t at = 0; at < n_bytes; at += n_piece)
        TRY_GOTO(device_copy(d, QUEUE_COMPUTE, (struct place){&to, at}, (struct place){&from, 0},
                             MIN(n_piece, n_bytes - at)),
                 out);
    TRY_GOTO(d->ops->sync(d), out);
out:
    mem_free(piece);
    return status;
}

static void bench_close(struct bench *b)
{
    for (int i = 0; i < MAX_TENSORS; i++) {
        gpu_free(b->d, b->in[i].data, tensor_bytes(&b->in[i]));
        gpu_free(b->d, b->out[i].data, tensor_bytes(&b->out[i]));
    }
}

/* The random state is the last input; other calls leave it out. */
static void bind_call(struct bench *b, bool dropout)
{
    int n_in = b->backward ? 4 : 1;
    if (dropout) {
        b->attrs[6].f = DROPOUT;
        b->attrs[7].i = 1;
        b->in[n_in++] = (struct tensor){DTYPE_I64, shape_of(1, (int64_t)2), NULL};
    }
    b->call = (struct op_call){.op = b->backward ? OP_attention_grad : OP_attention,
                               .n_in = n_in,
                               .n_out = b->backward ? 1 : 2,
                               .in = b->in,
                               .out = b->out,
                               .attrs = b->attrs};
}

static enum status bench_open(struct bench *b, struct device *d, const struct model *m,
                              bool backward, bool dropout)
{
    int64_t width = (m->heads + 2 * m->kv_heads) * m->head_dim;
    struct tensor qkv = {DTYPE_BF16, shape_of(3, m->batch, m->tokens, width), NULL};
    struct tensor out = {DTYPE_BF16, shape_of(3, m->batch, m->tokens, m->heads * m->head_dim), 0};
    struct tensor lse = {DTYPE_F32, shape_of(3, m->batch, m->heads, m->tokens), NULL};
    double pairs = 0.5 * (double)(m->batch * m->heads * m->tokens) * (double)(m->tokens + 1);
    *b = (struct bench){.d = d, .m = m, .backward = backward};
    b->flops = (backward ? 10.0 : 4.0) * pairs * (double)m->head_dim;
    b->attrs[0].i = m->heads;
    b->attrs[1].i = m->kv_heads;
    b->attrs[2].i = m->head_dim;
    b->attrs[3].i = true;
    b->in[0] = backward ? out : qkv;
    if (backward) {
        b->in[1] = qkv;
        b->in[2] = out;
        b->in[3] = lse;
    }
    b->out[0] = backward ? qkv : out;
    b->out[1] = lse;
    bind_call(b, dropout);
    for (int i = 0; i < b->call.n_in; i++) {
        TRY(gpu_alloc(d, tensor_bytes(&b->in[i]), &b->in[i].data));
        TRY(gpu_fill(d, &b->in[i]));
    }
    for (int i = 0; i < b->call.n_out; i++)
        TRY(gpu_alloc(d, tensor_bytes(&b->out[i]), &b->out[i].data));
    return OK;
}

/* ---- time ------------------------------------------------------------------------------------ */

typedef enum status work_function(void *data);

static enum status cuda_failed(cudaError_t e)
{
    return e == cudaSuccess ? OK : FAIL(ERR_FAILED, "CUDA: %s", cudaGetErrorString(e));
}

static enum status capture(cudaStream_t stream, work_function *f, void *data, cudaGraphExec_t *exec)
{
    cudaGraph_t graph = NULL;
    TRY(f(data)); /* once as it is: what is set up at the first launch may not be captured */
    TRY(cuda_failed(cudaStreamSynchronize(stream)));
    TRY(cuda_failed(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)));
    enum status status = f(data);
    cudaError_t e = cudaStreamEndCapture(stream, &graph);
    if (status == OK)
        status = cuda_failed(e);
    if (status == OK)
        status = cuda_failed(cudaGraphInstantiate(exec, graph, 0));
    if (graph)
        (void)cudaGraphDestroy(graph);
    return status;
}

static float median(float *ms, int n)
{
    for (int i = 0; i < n; i++) {
        for (int k = i; k > 0 && ms[k] < ms[k - 1]; k--) {
            float t = ms[k];
            ms[k] = ms[k - 1];
            ms[k - 1] = t;
        }
    }
    return ms[n / 2];
}

static enum status time_graph(cudaStream_t stream, cudaGraphExec_t exec, double *result)
{
    cudaEvent_t from = NULL, to = NULL;
    enum status status = OK;
    float ms[N_TIMES];
    TRY_GOTO(cuda_failed(cudaEventCreate(&from)), out);
    TRY_GOTO(cuda_failed(cudaEventCreate(&to)), out);
    for (int i = -3; i < N_TIMES; i++) {
        TRY_GOTO(cuda_failed(cudaEventRecord(from, stream)), out);
        TRY_GOTO(cuda_failed(cudaGraphLaunch(exec, stream)), out);
        TRY_GOTO(cuda_failed(cudaEventRecord(to, stream)), out);
        TRY_GOTO(cuda_failed(cudaEventSynchronize(to)), out);
        TRY_GOTO(cuda_failed(cudaEventElapsedTime(&ms[MAX(i, 0)], from, to)), out);
    }
    *result = (double)median(ms, N_TIMES);
out:
    if (from)
        (void)cudaEventDestroy(from);
    if (to)
        (void)cudaEventDestroy(to);
    return status;
}

/* Prints one line: the time of f, or why there is none. */
static void print_speed(const struct bench *b, const char *name, int64_t n_workspace,
                        work_function *f, void *data, const char *remark)
{
    cudaStream_t stream = b->d->ops->queue(b->d, QUEUE_COMPUTE);
    cudaGraphExec_t exec = NULL;
    double ms = 0.0;
    enum status status = capture(stream, f, data, &exec);
    if (status == OK)
        status = time_graph(stream, exec, &ms);
    if (status == OK)
        printf("  %-34s %8.3f ms %7.1f TFLOP/s %8.1f MiB  %s\n", name, ms, b->flops / ms / 1e9,
               (double)n_workspace / MIB, remark);
    else
        printf("  %-34s failed: %s\n", name, status_message());
    if (exec)
        (void)cudaGraphExecDestroy(exec);
    (void)fflush(stdout);
}

/* ---- kernels --------------------------------------------------------------------------------- */

struct kernel_work {
    const struct kernel *k;
    const struct op_call *call;
    struct kernel_ctx x;
};

static enum status run_kernel(void *data)
{
    struct kernel_work *w = data;
    return w->k->run(&w->x, w->call);
}

static enum status bench_kernels(struct bench *b, bool all)
{
    for (const struct kernel *k = cuda_kernels(b->call.op); k->name; k++) {
        struct kernel_work w = {.k = k, .call = &b->call, .x = {.env = b->d->env}};
        char remark[128] = "";
        bool is_slow = strcmp(k->name, "tiles") == 0 || strcmp(k->name, "plain") == 0;
        if ((is_slow && !all) || (k->declines && k->declines(&b->call, &b->d->env)))
            continue;
        int64_t n_bytes = k->workspace ? k->workspace(&b->call, &b->d->env) : 0;
        if (strcmp(k->name, "cudnn") == 0)
            cuda_sdpa_describe(&b->call, &b->d->env, remark, sizeof remark);
        TRY(gpu_alloc(b->d, n_bytes, &w.x.workspace));
        w.x.queue = b->d->ops->queue(b->d, QUEUE_COMPUTE);
        print_speed(b, k->name, n_bytes, run_kernel, &w, remark);
        gpu_free(b->d, w.x.workspace, n_bytes);
    }
    return OK;
}

/* ---- plans ----------------------------------------------------------------------------------- */

struct plan_work {
    struct sdpa_plan *plan;
    const struct sdpa_shape *whole;
    struct device *d;
    struct sdpa_pointers p;
};

static enum status run_plan(void *data)
{
    struct plan_work *w = data;
    return sdpa_plan_run(w->plan, w->whole, cuda_libraries_of(&w->d->env)->cudnn,
                         w->d->ops->queue(w->d, QUEUE_COMPUTE), &w->p);
}

static enum status bench_part(struct bench *b, const struct sdpa_shape *whole, int64_t n)
{
    struct sdpa_shape part = sdpa_part_shape(whole, n);
    struct plan_work w = {.whole = whole, .d = b->d};
    char name[96];
    (void)snprintf(name, sizeof name, "B%lld H%lld%s", (long long)part.batch, (long long)part.heads,
                   whole->repeated ? ", repeated" : "");
    if (sdpa_plan_new(&w.plan, cuda_libraries_of(&b->d->env)->cudnn, &part, (int64_t)16 << 30) !=
        OK) {
        printf("  %-34s none: %s\n", name, status_message());
        return OK;
    }
    int64_t n_bytes = sdpa_plan_bytes(w.plan);
    w.p = (struct sdpa_pointers){.qkv = b->in[1].data,
                                 .out = b->in[2].data,
                                 .lse = b->in[3].data,
                                 .dout = b->in[0].data,
                                 .dqkv = b->out[0].data};
    enum status status = gpu_alloc(b->d, n_bytes, &w.p.workspace);
    if (status == OK)
        print_speed(b, name, n_bytes, run_plan, &w, "");
    gpu_free(b->d, w.p.workspace, n_bytes);
    sdpa_plan_free(w.plan);
    return status;
}

/* Of the gradient. */
static enum status bench_plans(struct bench *b)
{
    const struct model *m = b->m;
    struct sdpa_shape whole = {.kind = SDPA_GRAD,
                               .dtype = DTYPE_BF16,
                               .batch = m->batch,
                               .n_tokens = m->tokens,
                               .heads = m->heads,
                               .kv_heads = m->kv_heads,
                               .head_dim = m->head_dim,
                               .row_heads = m->heads,
                               .row_kv_heads = m->kv_heads,
                               .causal = true,
                               .scale = (float)(1.0 / sqrt((double)m->head_dim))};
    for (int repeated = 0; repeated <= (m->heads != m->kv_heads); repeated++) {
        whole.repeated = repeated;
        for (int64_t n = sdpa_part_next(&whole, 0); n > 0; n = sdpa_part_next(&whole, n))
            TRY(bench_part(b, &whole, n));
    }
    return OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static enum status bench_model(struct device *d, const struct model *m, const struct choice *c)
{
    printf("%s: B%lld T%lld H%lld KV%lld D%lld, causal, bf16\n", m->name, (long long)m->batch,
           (long long)m->tokens, (long long)m->heads, (long long)m->kv_heads,
           (long long)m->head_dim);
    for (int backward = 0; backward < 2; backward++) {
        struct bench b;
        enum status status = bench_open(&b, d, m, backward, c->dropout);
        printf(" %s%s\n", backward ? "backward" : "forward", c->dropout ? ", dropout" : "");
        if (status == OK)
            status = bench_kernels(&b, c->all);
        if (status == OK && backward && !c->dropout) { /* cuDNN is not asked to drop */
            printf(" plans\n");
            status = bench_plans(&b);
        }
        bench_close(&b);
        TRY(status);
    }
    return OK;
}

int main(int argc, char **argv)
{
    struct choice c = {.only = ""};
    struct device d;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--all") == 0)
            c.all = true;
        else if (strcmp(argv[i], "--dropout") == 0)
            c.dropout = true;
        else
            c.only = argv[i];
    }
    if (device_open_cuda(&d, 0) != OK) {
        (void)fprintf(stderr, "bench_attention: %s\n", status_message());
        return 77;
    }
    printf("%s, cuDNN %zu\n", d.description, cudnnGetVersion());
    enum status status = OK;
    for (size_t i = 0; i < ARRAY_LEN(models) && status == OK; i++) {
        if (strstr(models[i].name, c.only))
            status = bench_model(&d, &models[i], &c);
    }
    if (status != OK)
        (void)fprintf(stderr, "bench_attention: %s\n", status_message());
    device_close(&d);
    return status == OK ? 0 : 1;
}
