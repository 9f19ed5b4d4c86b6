/* Attention, its gradient, cached attention and rotary embedding on the GPU: every kernel that
 * takes a call against the CPU's reference in double, over shapes where nothing is a multiple of
 * anything; twice, since the bits must agree. With --speed: TFLOP/s of every kernel, and of cuDNN's
 * plans, at the sizes of real models. Exits 77 without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/cpu_ref.h"
#include "device/device.h"
#include "graph/op.h"

#ifdef SNUG_HAVE_CUDA

#include <cuda_runtime_api.h>

#include "device/cuda/cuda_kernels.h"
#include "device/cuda/cuda_libraries.h"
#include "device/cuda/cuda_sdpa_plan.h"

enum { MAX_TENSORS = 4 };

/* A call with its tensors in host memory. */
struct host_call {
    struct op_call call;
    struct tensor in[MAX_TENSORS], out[MAX_TENSORS];
    struct attr attrs[8];
};

struct shape_case {
    int64_t batch, tokens, heads, kv_heads, head_dim, window;
    bool causal;
    double scale;
};

static const struct shape_case cases[] = {
    {1, 1, 1, 1, 8, 0, true, 0.0},       /* one token */
    {2, 33, 3, 3, 5, 0, true, 0.0},      /* an odd head */
    {1, 67, 2, 1, 9, 0, true, 0.7},      /* a scale of its own */
    {2, 130, 4, 2, 64, 0, true, 0.0},    /* two more than two tiles of keys; grouped heads */
    {1, 128, 2, 2, 64, 0, true, 0.0},    /* exact tiles */
    {1, 257, 3, 1, 64, 70, true, 0.0},   /* window larger than a tile */
    {2, 200, 2, 2, 64, 3, true, 0.0},    /* window smaller than a tile */
    {1, 150, 2, 2, 64, 0, false, 0.0},   /* not causal */
    {1, 129, 8, 2, 128, 0, true, 0.0},   /* one more than a tile of queries; groups of four */
    {1, 256, 2, 1, 128, 0, true, 0.0},   /* what cuDNN likes best */
    {2, 190, 2, 2, 128, 100, true, 0.0}, /* window */
    {1, 100, 1, 1, 128, 0, false, 0.2},  /* not causal */
    {1, 75, 2, 1, 128, 1, true, 0.0},    /* a query sees itself only */
    {1, 99, 2, 1, 80, 0, true, 0.0},     /* a head between the fast sizes */
    {1, 140, 2, 1, 96, 33, true, 0.0},   /* another */
    {1, 70, 2, 1, 200, 0, true, 0.0},    /* longer heads */
    {1, 40, 1, 1, 300, 0, true, 0.0},    /* too long for tiles */
};

/* Largest error over the largest value: f32 arithmetic; 16-bit storage and probabilities. */
static double limit_of(enum dtype d)
{
    return d == DTYPE_F32 ? 1e-5 : d == DTYPE_F16 ? 1e-3 : 8e-3;
}

/* ---- tensors ----------------------------------------------------------------------------------
 */

static struct tensor tensor_new(enum dtype dtype, struct shape shape)
{
    struct tensor t = {dtype, shape, NULL};
    t.data = mem_calloc(1, (size_t)tensor_bytes(&t) + 64);
    assert_non_null(t.data);
    return t;
}

static struct tensor random_tensor(enum dtype dtype, struct shape shape, uint64_t seed)
{
    struct tensor t = tensor_new(dtype, shape);
    for (int64_t i = 0; i < shape_elems(&t.shape); i++) {
        struct philox4 p = philox(seed, 0, (uint64_t)i);
        float x, y;
        rng_normal2(p.v[0], p.v[1], &x, &y);
        ref_set(&t, i, (double)x);
    }
    return t;
}

static void set_attrs(struct host_call *h, const struct shape_case *s)
{
    h->attrs[0].i = s->heads;
    h->attrs[1].i = s->kv_heads;
    h->attrs[2].i = s->head_dim;
    h->attrs[3].i = s->causal;
    h->attrs[4].i = s->window;
    h->attrs[5].f = s->scale;
}

static void bind(struct host_call *h, enum op_id op, int n_in, int n_out)
{
    h->call = (struct op_call){op, n_in, n_out, h->in, h->out, h->attrs};
}

static void release(struct host_call *h)
{
    for (int i = 0; i < MAX_TENSORS; i++) {
        mem_free(h->in[i].data);
        mem_free(h->out[i].data);
    }
}

static const struct kernel *reference_of(enum op_id op)
{
    const struct kernel *k = cpu_kernels(op);
    while (k[1].name)
        k++;
    return k;
}

/* The reference on the call's inputs; outputs may be wider than the call says. */
static void run_reference(const struct op_call *c)
{
    const struct kernel *k = reference_of(c->op);
    struct kernel_ctx x = {.env = {.n_threads = 1}};
    int64_t n_bytes = k->workspace ? k->workspace(c, &x.env) : 0;
    x.workspace = mem_calloc(1, (size_t)n_bytes + 64);
    assert_int_equal(k->run(&x, c), OK);
    mem_free(x.workspace);
}

/* ---- a call on the GPU ------------------------------------------------------------------------
 */

struct gpu_call {
    struct device *device;
    struct op_call call;
    struct tensor in[MAX_TENSORS], out[MAX_TENSORS];
    void *workspace;
    int64_t n_workspace;
};

static void *gpu_alloc(struct device *d, int64_t n_bytes)
{
    void *p = NULL;
    assert_int_equal(d->ops->memory_alloc(d, TIER_DEVICE, n_bytes + ARENA_ALIGN, &p), OK);
    return p;
}

static void gpu_copy(struct device *d, void *dst, const void *src, int64_t n_bytes)
{
    if (n_bytes > 0)
        assert_int_equal(d->ops->copy(d, QUEUE_COMPUTE, dst, src, n_bytes), OK);
    assert_int_equal(d->ops->sync(d), OK);
}

/* Inputs copied; outputs poisoned with NaN. */
static void gpu_open(struct gpu_call *g, struct device *d, const struct op_call *c,
                     const struct kernel *k)
{
    *g = (struct gpu_call){.device = d, .call = *c};
    for (int i = 0; i < c->n_in; i++) {
        g->in[i] = c->in[i];
        g->in[i].data = gpu_alloc(d, tensor_bytes(&c->in[i]));
        gpu_copy(d, g->in[i].data, c->in[i].data, tensor_bytes(&c->in[i]));
    }
    for (int i = 0; i < c->n_out; i++) {
        int64_t n_bytes = tensor_bytes(&c->out[i]);
        void *poison = mem_alloc((size_t)n_bytes + 64);
        assert_non_null(poison);
        memset(poison, 0xff, (size_t)n_bytes);
        g->out[i] = c->out[i];
        g->out[i].data = gpu_alloc(d, n_bytes);
        gpu_copy(d, g->out[i].data, poison, n_bytes);
        mem_free(poison);
    }
    g->call.in = g->in;
    g->call.out = g->out;
    g->n_workspace = k->workspace ? k->workspace(&g->call, &d->env) : 0;
    g->workspace = gpu_alloc(d, g->n_workspace);
}

static enum status gpu_run(struct gpu_call *g, const struct kernel *k)
{
    struct kernel_ctx x = {.env = g->device->env,
                           .workspace = g->workspace,
                           .queue = g->device->ops->queue(g->device, QUEUE_COMPUTE)};
    return k->run(&x, &g->call);
}

static void gpu_close(struct gpu_call *g)
{
    struct device *d = g->device;
    for (int i = 0; i < g->call.n_in; i++)
        d->ops->memory_free(d, TIER_DEVICE, g->in[i].data, tensor_bytes(&g->in[i]) + ARENA_ALIGN);
    for (int i = 0; i < g->call.n_out; i++)
        d->ops->memory_free(d, TIER_DEVICE, g->out[i].data, tensor_bytes(&g->out[i]) + ARENA_ALIGN);
    d->ops->memory_free(d, TIER_DEVICE, g->workspace, g->n_workspace + ARENA_ALIGN);
}

/* Largest error over the largest value; infinite where a NaN shows. */
static double error_of(const struct tensor *got, const struct tensor *want)
{
    double worst = 0.0, size = 1e-30;
    for (int64_t i = 0; i < shape_elems(&want->shape); i++) {
        double error = fabs(ref_get(got, i) - ref_get(want, i));
        worst = error <= worst ? worst : isnan(error) ? (double)INFINITY : error;
        size = fmax(size, fabs(ref_get(want, i)));
    }
    return worst / size;
}

typedef enum status run_function(void *data);

/* Runs f, which is a call's way to g's outputs, twice: the errors of all outputs against `want`,
 * and the same bits the second time. */
static bool outputs_agree(struct gpu_call *g, run_function *f, void *data,
                          const struct tensor *want, double limit, const char *label)
{
    struct device *d = g->device;
    struct tensor got[MAX_TENSORS];
    bool good = true;
    for (int run = 0; run < 2; run++) {
        if (f(data) != OK || d->ops->sync(d) != OK) {
            print_error("%s: %s\n", label, status_message());
            return false;
        }
        for (int i = 0; i < g->call.n_out; i++) {
            int64_t n_bytes = tensor_bytes(&g->out[i]);
            struct tensor t = tensor_new(g->out[i].dtype, g->out[i].shape);
            gpu_copy(d, t.data, g->out[i].data, n_bytes);
            if (run == 0) {
                got[i] = t;
                continue;
            }
            double error = error_of(&got[i], &want[i]);
            bool same = memcmp(got[i].data, t.data, (size_t)n_bytes) == 0;
            if (error > limit || !same)
                print_error("%s: output %d error %.2e (limit %.1e)%s\n", label, i, error, limit,
                            same ? "" : ", and other bits the second time");
            good = good && error <= limit && same;
            mem_free(got[i].data);
            mem_free(t.data);
        }
    }
    return good;
}

struct kernel_call {
    struct gpu_call *g;
    const struct kernel *k;
};

static enum status run_kernel(void *data)
{
    struct kernel_call *t = data;
    return gpu_run(t->g, t->k);
}

static bool kernel_agrees(struct device *d, const struct op_call *c, const struct kernel *k,
                          const struct tensor *want, double limit, const char *label)
{
    struct gpu_call g;
    struct kernel_call t = {&g, k};
    char name[192];
    (void)snprintf(name, sizeof name, "%s %s", label, k->name);
    gpu_open(&g, d, c, k);
    bool good = outputs_agree(&g, run_kernel, &t, want, limit, name);
    gpu_close(&g);
    return good;
}

static int check_kernels(struct device *d, const struct op_call *c, const struct tensor *want,
                         double limit, const char *label)
{
    int n_bad = 0;
    for (const struct kernel *k = cuda_kernels(c->op); k->name; k++) {
        if (!k->declines || !k->declines(c))
            n_bad += !kernel_agrees(d, c, k, want, limit, label);
    }
    return n_bad;
}

/* ---- attention --------------------------------------------------------------------------------
 */

/* Outputs in f64, as the reference computes them. */
static void widen(struct tensor *wide, const struct tensor *t, int n)
{
    for (int i = 0; i < n; i++)
        wide[i] = tensor_new(DTYPE_F64, t[i].shape);
}

static void narrow(struct tensor *t, const struct tensor *wide)
{
    for (int64_t i = 0; i < shape_elems(&t->shape); i++)
        ref_set(t, i, ref_get(wide, i));
}

static void forward_call(struct host_call *h, const struct shape_case *s, enum dtype dtype)
{
    int64_t width = (s->heads + 2 * s->kv_heads) * s->head_dim;
    *h = (struct host_call){0};
    set_attrs(h, s);
    h->in[0] = random_tensor(dtype, shape_of(3, s->batch, s->tokens, width), 7);
    h->out[0] = tensor_new(dtype, shape_of(3, s->batch, s->tokens, s->heads * s->head_dim));
    h->out[1] = tensor_new(DTYPE_F32, shape_of(3, s->batch, s->heads, s->tokens));
    bind(h, OP_attention, 1, 2);
}

/* A call forwards and backwards with what the reference says; the reference's own outputs, rounded,
 * are inputs backwards. */
struct both_calls {
    struct host_call f, b;
    struct tensor wide[2], wide_grad;
    char label[128];
};

static void both_open(struct both_calls *t, const struct shape_case *s, enum dtype dtype)
{
    struct host_call *f = &t->f, *b = &t->b;
    *t = (struct both_calls){0};
    forward_call(f, s, dtype);
    (void)snprintf(t->label, sizeof t->label, "B%lld T%lld H%lld KV%lld D%lld window %lld%s %s",
                   (long long)s->batch, (long long)s->tokens, (long long)s->heads,
                   (long long)s->kv_heads, (long long)s->head_dim, (long long)s->window,
                   s->causal ? "" : " full", dtype_name(dtype));
    widen(t->wide, f->out, 2);
    struct op_call reference = f->call;
    reference.out = t->wide;
    run_reference(&reference);

    set_attrs(b, s);
    b->in[0] = random_tensor(dtype, f->out[0].shape, 8);
    b->in[1] = f->in[0];
    b->in[2] = f->out[0];
    b->in[3] = f->out[1];
    narrow(&b->in[2], &t->wide[0]);
    narrow(&b->in[3], &t->wide[1]);
    b->out[0] = tensor_new(dtype, f->in[0].shape);
    bind(b, OP_attention_grad, 4, 1);
    widen(&t->wide_grad, b->out, 1);
    reference = b->call;
    reference.out = &t->wide_grad;
    run_reference(&reference);
}

static void both_close(struct both_calls *t)
{
    mem_free(t->b.in[0].data);
    mem_free(t->b.out[0].data);
    mem_free(t->wide[0].data);
    mem_free(t->wide[1].data);
    mem_free(t->wide_grad.data);
    release(&t->f);
}

/* Forward and backward of one shape; returns how many kernels were wrong. */
static int check_case(struct device *d, const struct shape_case *s, enum dtype dtype)
{
    struct both_calls t;
    both_open(&t, s, dtype);
    int n_bad = check_kernels(d, &t.f.call, t.wide, limit_of(dtype), t.label);
    n_bad += check_kernels(d, &t.b.call, &t.wide_grad, limit_of(dtype), t.label);
    both_close(&t);
    return n_bad;
}

static void attention_and_its_gradient_equal_the_reference(void **state)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    int n_bad = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (size_t k = 0; k < ARRAY_LEN(dtypes); k++)
            n_bad += check_case(*state, &cases[i], dtypes[k]);
    }
    assert_int_equal(n_bad, 0);
}

/* ---- parts ------------------------------------------------------------------------------------
 */

static const struct shape_case part_cases[] = {
    {4, 256, 4, 2, 64, 0, true, 0.0},   /* grouped heads */
    {2, 128, 8, 4, 128, 50, true, 0.0}, /* window */
    {3, 256, 6, 6, 64, 0, false, 0.0},  /* not causal */
    {2, 384, 4, 4, 128, 0, true, 0.3},  /* a scale of its own */
};

static struct sdpa_shape sdpa_shape_of(const struct shape_case *s, enum dtype dtype,
                                       enum sdpa_kind kind)
{
    double scale = s->scale > 0.0 ? s->scale : 1.0 / sqrt((double)s->head_dim);
    return (struct sdpa_shape){.kind = kind,
                               .dtype = dtype,
                               .batch = s->batch,
                               .n_tokens = s->tokens,
                               .heads = s->heads,
                               .kv_heads = s->kv_heads,
                               .head_dim = s->head_dim,
                               .row_heads = s->heads,
                               .row_kv_heads = s->kv_heads,
                               .window = s->window,
                               .causal = s->causal,
                               .scale = (float)scale};
}

/* A plan of parts of a call on the GPU. */
struct plan_call {
    struct device *d;
    struct sdpa_shape whole;
    struct sdpa_plan *plan;
    struct sdpa_pointers p;
};

static enum status run_plan(void *data)
{
    struct plan_call *t = data;
    return sdpa_plan_run(t->plan, &t->whole, cuda_libraries_of(&t->d->env)->cudnn,
                         t->d->ops->queue(t->d, QUEUE_COMPUTE), &t->p);
}

/* Parts of n groups, whatever their workspace, over g's tensors; false, with a message, when cuDNN
 * has no plan. */
static bool plan_open(struct plan_call *t, const struct gpu_call *g, const struct sdpa_shape *whole,
                      int64_t n)
{
    struct sdpa_shape part = sdpa_part_shape(whole, n);
    bool backward = whole->kind != SDPA_FORWARD;
    *t = (struct plan_call){.d = g->device, .whole = *whole};
    if (sdpa_plan_new(&t->plan, cuda_libraries_of(&t->d->env)->cudnn, &part, (int64_t)16 << 30) !=
        OK)
        return false;
    if (g->call.op == OP_attention_grad)
        t->p = (struct sdpa_pointers){.qkv = g->in[1].data,
                                      .out = g->in[2].data,
                                      .lse = g->in[3].data,
                                      .dout = backward ? g->in[0].data : NULL,
                                      .dqkv = backward ? g->out[0].data : NULL};
    else
        t->p = (struct sdpa_pointers){
            .qkv = g->in[0].data, .out = g->out[0].data, .lse = g->out[1].data};
    t->p.workspace = gpu_alloc(t->d, sdpa_plan_bytes(t->plan));
    return true;
}

static void plan_close(struct plan_call *t)
{
    int64_t n_bytes = sdpa_plan_bytes(t->plan) + ARENA_ALIGN;
    t->d->ops->memory_free(t->d, TIER_DEVICE, t->p.workspace, n_bytes);
    sdpa_plan_free(t->plan);
}

/* Counts the plans that cuDNN has. */
static bool part_agrees(struct device *d, const struct op_call *c, const struct sdpa_shape *whole,
                        int64_t n, const struct tensor *want, const char *label, int *n_plans)
{
    const struct kernel no_workspace = {.name = "parts"};
    struct gpu_call g;
    struct plan_call t;
    char name[192];
    bool good = true;
    (void)snprintf(name, sizeof name, "%s, parts of %lld groups", label, (long long)n);
    gpu_open(&g, d, c, &no_workspace);
    if (plan_open(&t, &g, whole, n)) {
        ++*n_plans;
        good = outputs_agree(&g, run_plan, &t, want, limit_of(whole->dtype), name);
        plan_close(&t);
    }
    gpu_close(&g);
    return good;
}

static void attention_in_parts_of_any_size_equals_the_reference(void **state)
{
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F16};
    struct device *d = *state;
    int n_bad = 0, n_grad = 0, n_forward = 0;
    for (size_t i = 0; i < 2 * ARRAY_LEN(part_cases); i++) {
        const struct shape_case *s = &part_cases[i / 2];
        struct both_calls t;
        both_open(&t, s, dtypes[i % 2]);
        struct sdpa_shape forward = sdpa_shape_of(s, dtypes[i % 2], SDPA_FORWARD), grad = forward;
        grad.kind = SDPA_GRAD;
        for (int64_t n = sdpa_part_next(&grad, 0); n > 0; n = sdpa_part_next(&grad, n)) {
            n_bad += !part_agrees(d, &t.f.call, &forward, n, t.wide, t.label, &n_forward);
            n_bad += !part_agrees(d, &t.b.call, &grad, n, &t.wide_grad, t.label, &n_grad);
        }
        both_close(&t);
    }
    print_message("compared %d plans of attention and %d of its gradient\n", n_forward, n_grad);
    assert_int_equal(n_bad, 0);
    if (n_grad == 0)
        skip(); /* cuDNN has no deterministic gradient for this GPU */
}

/* ---- rotary and cached ------------------------------------------------------------------------
 */

static void rotary_equals_the_reference_far_from_the_beginning(void **state)
{
    struct host_call h = {0};
    const struct shape_case s = {2, 37, 6, 2, 64, 0, true, 0.0};
    set_attrs(&h, &s);
    h.attrs[3].i = 1;   /* inverse */
    h.attrs[4].f = 1.5; /* scale */
    h.in[0] = random_tensor(DTYPE_F32, shape_of(3, s.batch, s.tokens, (int64_t)640), 9);
    h.in[1] = tensor_new(DTYPE_F32, shape_of(1, s.head_dim / 2));
    h.in[2] = tensor_new(DTYPE_I32, shape_of(1, s.tokens));
    for (int64_t i = 0; i < s.head_dim / 2; i++)
        ref_set(&h.in[1], i, pow(500000.0, -2.0 * (double)i / (double)s.head_dim));
    for (int64_t i = 0; i < s.tokens; i++)
        ((int32_t *)h.in[2].data)[i] = (int32_t)(130000 - 17 * i);
    h.out[0] = tensor_new(DTYPE_F32, h.in[0].shape);
    bind(&h, OP_rotary, 3, 1);
    struct tensor wide;
    widen(&wide, h.out, 1);
    struct op_call reference = h.call;
    reference.out = &wide;
    run_reference(&reference);
    assert_int_equal(check_kernels(*state, &h.call, &wide, 1e-6, "rotary"), 0);
    mem_free(wide.data);
    release(&h);
}

static void cached_attention_equals_the_reference(void **state)
{
    struct host_call h = {0};
    const struct shape_case s = {2, 3, 6, 2, 64, 0, true, 0.0};
    set_attrs(&h, &s);
    h.attrs[3].i = 150; /* window */
    h.attrs[4].f = 0.0; /* scale */
    h.in[0] = random_tensor(DTYPE_F32, shape_of(3, s.batch, s.tokens, (int64_t)640), 10);
    h.in[1] = random_tensor(
        DTYPE_F32, shape_of(5, (int64_t)2, s.batch, (int64_t)300, s.kv_heads, s.head_dim), 11);
    h.in[2] = tensor_new(DTYPE_I32, shape_of(1, (int64_t)1));
    *(int32_t *)h.in[2].data = 290;
    h.out[0] = tensor_new(DTYPE_F32, shape_of(3, s.batch, s.tokens, s.heads * s.head_dim));
    h.out[1] = tensor_new(DTYPE_F32, h.in[1].shape);
    bind(&h, OP_attention_cached, 3, 2);
    run_reference(&h.call);
    struct tensor want[2] = {h.out[0], h.out[1]};
    assert_int_equal(check_kernels(*state, &h.call, want, 1e-5, "cached"), 0);
    release(&h);
}

/* ---- speed ------------------------------------------------------------------------------------
 */

static const struct shape_case models[] = {
    {32, 1024, 12, 12, 64, 0, true, 0.0}, /* GPT-2 124M */
    {4, 2048, 32, 32, 128, 0, true, 0.0}, /* Llama 7B */
    {16, 1024, 28, 4, 128, 0, true, 0.0}, /* Qwen 2.5 7B */
};

/* A zero tensor would run faster than data does: a short random piece over and over. */
static void gpu_fill(struct device *d, const struct tensor *t)
{
    int64_t n_piece = 1 << 20, n_bytes = tensor_bytes(t);
    struct tensor piece = random_tensor(t->dtype, shape_of(1, n_piece), 3);
    for (int64_t at = 0; at < n_bytes; at += tensor_bytes(&piece))
        gpu_copy(d, (char *)t->data + at, piece.data, MIN(tensor_bytes(&piece), n_bytes - at));
    mem_free(piece.data);
}

/* Median of ten, after three to warm up. */
static double time_ms(struct device *d, run_function *f, void *data)
{
    cudaStream_t stream = d->ops->queue(d, QUEUE_COMPUTE);
    cudaEvent_t from, to;
    float ms[10];
    if (cudaEventCreate(&from) != cudaSuccess || cudaEventCreate(&to) != cudaSuccess)
        return (double)NAN;
    for (int i = -3; i < 10; i++) {
        (void)cudaEventRecord(from, stream);
        if (f(data) != OK)
            return (double)NAN;
        (void)cudaEventRecord(to, stream);
        if (cudaEventSynchronize(to) != cudaSuccess)
            return (double)NAN;
        if (i >= 0)
            (void)cudaEventElapsedTime(&ms[i], from, to);
    }
    for (int i = 0; i < 10; i++) {
        for (int k = i; k > 0 && ms[k] < ms[k - 1]; k--) {
            float t = ms[k];
            ms[k] = ms[k - 1];
            ms[k - 1] = t;
        }
    }
    (void)cudaEventDestroy(from);
    (void)cudaEventDestroy(to);
    return (double)ms[5];
}

static void print_speed(const char *name, double ms, double flops, int64_t n_workspace)
{
    print_message("  %-28s %8.3f ms %8.1f TFLOP/s  workspace %.1f MiB\n", name, ms,
                  flops / ms / 1e9, (double)n_workspace / 1048576.0);
}

static void speed_of_part(const struct gpu_call *g, const struct sdpa_shape *whole, int64_t n,
                          const char *name, double flops)
{
    struct plan_call t;
    if (!plan_open(&t, g, whole, n)) {
        print_message("  %-28s none: %s\n", name, status_message());
        return;
    }
    print_speed(name, time_ms(g->device, run_plan, &t), flops, sdpa_plan_bytes(t.plan));
    plan_close(&t);
}

/* cuDNN's plans whatever their workspace, the one with atomics too: what the choice costs. Then the
 * deterministic one in parts of every size. */
static void speed_of_plans(const struct shape_case *s, const struct gpu_call *g, double flops)
{
    static const char *const names[] = {"plan", "plan, gradient", "plan, gradient, atomics"};
    struct sdpa_shape whole = sdpa_shape_of(s, DTYPE_BF16, SDPA_FORWARD);
    int64_t all = sdpa_part_whole(&whole);
    for (int kind = SDPA_FORWARD; kind <= SDPA_GRAD_ATOMIC; kind++) {
        whole.kind = (enum sdpa_kind)kind;
        speed_of_part(g, &whole, all, names[kind], kind == SDPA_FORWARD ? flops : 2.5 * flops);
    }
    whole.kind = SDPA_GRAD;
    for (int64_t n = sdpa_part_next(&whole, 0); n < all; n = sdpa_part_next(&whole, n)) {
        struct sdpa_shape part = sdpa_part_shape(&whole, n);
        char name[64];
        (void)snprintf(name, sizeof name, "gradient in parts: B%lld H%lld", (long long)part.batch,
                       (long long)part.heads);
        speed_of_part(g, &whole, n, name, 2.5 * flops);
    }
}

/* Shapes only: the tensors are made on the GPU. */
static void speed_of_op(struct device *d, const struct shape_case *s, bool backward)
{
    int64_t width = (s->heads + 2 * s->kv_heads) * s->head_dim;
    struct tensor qkv = {DTYPE_BF16, shape_of(3, s->batch, s->tokens, width), NULL};
    struct tensor out = {DTYPE_BF16, shape_of(3, s->batch, s->tokens, s->heads * s->head_dim), 0};
    struct tensor lse = {DTYPE_F32, shape_of(3, s->batch, s->heads, s->tokens), NULL};
    double flops =
        2.0 * (double)(s->batch * s->heads * s->tokens) * (double)((s->tokens + 1) * s->head_dim);
    enum op_id op = backward ? OP_attention_grad : OP_attention;
    for (const struct kernel *k = cuda_kernels(op); k->name; k++) {
        struct host_call h = {0};
        struct gpu_call g = {.device = d};
        set_attrs(&h, s);
        g.in[0] = backward ? out : qkv;
        g.in[1] = qkv;
        g.in[2] = out;
        g.in[3] = lse;
        g.out[0] = backward ? qkv : out;
        g.out[1] = lse;
        g.call = (struct op_call){op, backward ? 4 : 1, backward ? 1 : 2, g.in, g.out, h.attrs};
        if (strcmp(k->name, "plain") == 0 || (k->declines && k->declines(&g.call)))
            continue;
        for (int i = 0; i < g.call.n_in; i++) {
            g.in[i].data = gpu_alloc(d, tensor_bytes(&g.in[i]));
            gpu_fill(d, &g.in[i]);
        }
        for (int i = 0; i < g.call.n_out; i++)
            g.out[i].data = gpu_alloc(d, tensor_bytes(&g.out[i]));
        g.n_workspace = k->workspace ? k->workspace(&g.call, &d->env) : 0;
        g.workspace = gpu_alloc(d, g.n_workspace);
        struct kernel_call t = {&g, k};
        print_speed(k->name, time_ms(d, run_kernel, &t), backward ? 2.5 * flops : flops,
                    g.n_workspace);
        if (backward && strcmp(k->name, "tiles") == 0)
            speed_of_plans(s, &g, flops);
        gpu_close(&g);
    }
}

static void print_all_speeds(struct device *d)
{
    print_message("%s\n", d->description);
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        const struct shape_case *s = &models[i];
        print_message("B%lld T%lld H%lld KV%lld D%lld, causal, bf16\n", (long long)s->batch,
                      (long long)s->tokens, (long long)s->heads, (long long)s->kv_heads,
                      (long long)s->head_dim);
        print_message(" forward\n");
        speed_of_op(d, s, false);
        print_message(" backward\n");
        speed_of_op(d, s, true);
    }
}

int main(int argc, char **argv)
{
    struct device d;
    if (device_open_cuda(&d, 0) != OK) {
        print_message("skipped: %s\n", status_message());
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(attention_and_its_gradient_equal_the_reference, &d),
        cmocka_unit_test_prestate(attention_in_parts_of_any_size_equals_the_reference, &d),
        cmocka_unit_test_prestate(rotary_equals_the_reference_far_from_the_beginning, &d),
        cmocka_unit_test_prestate(cached_attention_equals_the_reference, &d),
    };
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (argc > 1 && strcmp(argv[1], "--speed") == 0)
        print_all_speeds(&d);
    device_close(&d);
    return n_failed;
}

#else

int main(void)
{
    print_message("skipped: built without CUDA\n");
    return 77;
}

#endif
