/* Attention and its gradient through cuDNN in parts of every size, grouped heads as they are and
 * with keys and values repeated, against the CPU's reference; run, then captured in a CUDA graph
 * and replayed, with the same bits. Exits 77 without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/gpu.h"

#ifdef SNUG_HAVE_CUDA

#include <cuda_runtime_api.h>

#include "base/alloc.h"
#include "device/cuda/attention/sdpa.h"
#include "device/cuda/attention/sdpa_plan.h"
#include "device/cuda/cuda_kernels.h"
#include "device/cuda/cuda_libraries.h"
#include "support/attention_calls.h"

static const struct attention_case cases[] = {
    {4, 256, 4, 2, 64, 0, true, 0.0, 0.0, 0.0},   /* groups of two */
    {2, 128, 8, 4, 128, 50, true, 0.0, 0.0, 0.0}, /* window */
    {3, 256, 6, 6, 64, 0, false, 0.0, 0.0, 0.0},  /* not causal */
    {2, 384, 4, 4, 128, 0, true, 0.3, 0.0, 0.0},  /* a scale of its own */
    {3, 128, 14, 2, 64, 0, true, 0.0, 0.0, 0.0},  /* groups of seven */
    {2, 256, 8, 1, 64, 0, true, 0.0, 0.0, 0.0},   /* one group of eight */
    {2, 128, 16, 2, 128, 0, true, 0.0, 0.0, 0.0}, /* groups of eight, long heads */
    {3, 128, 7, 1, 128, 0, true, 0.0, 0.0, 0.0},  /* one group of seven, long heads */
};

static struct sdpa_shape sdpa_shape_of(const struct attention_case *s, enum dtype dtype,
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
    int n_runs;
};

static enum status run_plan(const struct plan_call *t)
{
    return sdpa_plan_run(t->plan, &t->whole, cuda_libraries_of(&t->d->env)->cudnn,
                         t->d->ops->queue(t->d, QUEUE_COMPUTE), &t->p);
}

static enum status replay_plan(const struct plan_call *t)
{
    cudaStream_t stream = t->d->ops->queue(t->d, QUEUE_COMPUTE);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    enum status status = ERR_FAILED;
    if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess)
        return FAIL(ERR_FAILED, "cannot begin to capture");
    status = run_plan(t);
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess ||
        cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess ||
        cudaGraphLaunch(exec, stream) != cudaSuccess ||
        cudaStreamSynchronize(stream) != cudaSuccess)
        status = FAIL(ERR_FAILED, "cannot replay: %s", cudaGetErrorString(cudaGetLastError()));
    if (exec)
        (void)cudaGraphExecDestroy(exec);
    if (graph)
        (void)cudaGraphDestroy(graph);
    return status;
}

/* The first time as it is, then from a CUDA graph. */
static enum status run_or_replay(void *data)
{
    struct plan_call *t = data;
    return t->n_runs++ == 0 ? run_plan(t) : replay_plan(t);
}

/* Parts of n groups, whatever their workspace; false when cuDNN has no plan. */
static bool plan_open(struct plan_call *t, const struct device_call *g,
                      const struct sdpa_shape *whole, int64_t n)
{
    struct sdpa_shape part = sdpa_part_shape(whole, n);
    *t = (struct plan_call){.d = g->device, .whole = *whole};
    if (sdpa_plan_new(&t->plan, cuda_libraries_of(&t->d->env)->cudnn, &part, (int64_t)16 << 30) !=
        OK)
        return false;
    if (whole->kind == SDPA_FORWARD)
        t->p = (struct sdpa_pointers){
            .qkv = g->in[0].data, .out = g->out[0].data, .lse = g->out[1].data};
    else
        t->p = (struct sdpa_pointers){.qkv = g->in[1].data,
                                      .out = g->in[2].data,
                                      .lse = g->in[3].data,
                                      .dout = g->in[0].data,
                                      .dqkv = g->out[0].data};
    t->p.workspace = device_call_alloc(t->d, sdpa_plan_bytes(t->plan));
    return true;
}

static void plan_close(struct plan_call *t)
{
    device_call_free(t->d, t->p.workspace, sdpa_plan_bytes(t->plan));
    sdpa_plan_free(t->plan);
}

struct tally {
    int n_bad, n_plans[2][2], n_none[2][2]; /* by backward and repeated */
};

static void check_part(struct tally *tally, struct device *d, const struct op_call *c,
                       const struct sdpa_shape *whole, int64_t n, const struct tensor *want,
                       const char *label)
{
    const struct kernel no_workspace = {.name = "parts"};
    bool backward = whole->kind != SDPA_FORWARD;
    struct device_call g;
    struct plan_call t;
    char name[192];
    (void)snprintf(name, sizeof name, "%s%s, parts of %lld groups", label,
                   whole->repeated ? " repeated" : "", (long long)n);
    device_call_open(&g, d, c, &no_workspace);
    if (plan_open(&t, &g, whole, n)) {
        tally->n_plans[backward][whole->repeated]++;
        tally->n_bad +=
            !device_call_agrees(&g, run_or_replay, &t, want, attention_limit(whole->dtype), name);
        plan_close(&t);
    } else {
        tally->n_none[backward][whole->repeated]++;
        print_message("%s%s: %s\n", name, backward ? ", gradient" : "", status_message());
    }
    device_call_close(&g);
}

static void check_case(struct tally *tally, struct device *d, const struct attention_case *s,
                       enum dtype dtype)
{
    struct attention_calls t;
    attention_calls_open(&t, s, dtype);
    for (int repeated = 0; repeated <= (s->heads != s->kv_heads); repeated++) {
        struct sdpa_shape forward = sdpa_shape_of(s, dtype, SDPA_FORWARD);
        forward.repeated = repeated;
        struct sdpa_shape grad = forward;
        grad.kind = SDPA_GRAD;
        for (int64_t n = sdpa_part_next(&grad, 0); n > 0; n = sdpa_part_next(&grad, n)) {
            check_part(tally, d, &t.forward.call, &forward, n, t.want, t.label);
            check_part(tally, d, &t.backward.call, &grad, n, &t.want_grad, t.label);
        }
    }
    attention_calls_close(&t);
}

static void attention_in_parts_of_any_size_equals_the_reference(void **state)
{
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F16};
    static const char *const names[2][2] = {{"attention", "attention, repeated"},
                                            {"its gradient", "its gradient, repeated"}};
    struct tally tally = {0};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (size_t k = 0; k < ARRAY_LEN(dtypes); k++)
            check_case(&tally, *state, &cases[i], dtypes[k]);
    }
    for (int i = 0; i < 4; i++)
        print_message("%s: %d plans compared, %d refused\n", names[i / 2][i % 2],
                      tally.n_plans[i / 2][i % 2], tally.n_none[i / 2][i % 2]);
    assert_int_equal(tally.n_bad, 0);
    if (tally.n_plans[1][0] + tally.n_plans[1][1] == 0)
        skip(); /* cuDNN has no deterministic gradient for this GPU */
}

/* A call whose engine wants more bytes than fit in 32 bits still gets a plan, for a row of it. */
static void a_large_call_with_grouped_heads_has_a_plan(void **state)
{
    const struct attention_case s = {8, 2048, 32, 4, 64, 0, true, 0.0, 0.0, 0.0};
    struct device *d = *state;
    struct host_call h = {0};
    char text[128];
    attention_attrs(&h, &s);
    h.in[0] = (struct tensor){DTYPE_BF16, shape_of(3, s.batch, s.tokens, (int64_t)2048), NULL};
    h.in[1] = (struct tensor){DTYPE_BF16, shape_of(3, s.batch, s.tokens, (int64_t)2560), NULL};
    h.in[2] = h.in[0];
    h.in[3] = (struct tensor){DTYPE_F32, shape_of(3, s.batch, s.heads, s.tokens), NULL};
    h.out[0] = h.in[1];
    host_call_bind(&h, OP_attention_grad, 4, 1);
    int64_t n_bytes = cuda_sdpa_workspace(&h.call, &d->env);
    cuda_sdpa_describe(&h.call, &d->env, text, sizeof text);
    print_message("gradient of B8 T2048 H32 KV4 D64: %s; %.1f MiB\n", text,
                  (double)n_bytes / 1048576.0);
    if (d->env.gpu->major != 9)
        skip(); /* other GPUs' engines are not known here */
    assert_true(n_bytes > 0);
    assert_true(n_bytes <= MAX((int64_t)320 << 20, d->env.gpu->memory_bytes / 64));
}

/* A library's kernel runs what was planned for it, and nothing else in its place. */
static void a_call_that_was_not_planned_is_an_error(void **state)
{
    const struct attention_case s = {3, 384, 2, 2, 64, 0, true, 0.0, 0.0, 0.0};
    struct device *d = *state;
    struct attention_calls t;
    struct kernel_ctx x = {.env = d->env, .queue = d->ops->queue(d, QUEUE_COMPUTE)};
    attention_calls_open(&t, &s, DTYPE_BF16);
    assert_int_equal(cuda_sdpa_run(&x, &t.forward.call), ERR_INTERNAL);
    assert_int_equal(cuda_sdpa_grad_run(&x, &t.backward.call), ERR_INTERNAL);
    attention_calls_close(&t);
}

/* What is planned is what the library says it will run, with its workspace alone. */
static void the_library_is_picked_where_it_has_a_plan(void **state)
{
    const struct attention_case s = {2, 256, 12, 12, 64, 0, true, 0.0, 0.0, 0.0};
    struct device *d = *state;
    struct attention_calls t;
    const char *why = NULL;
    attention_calls_open(&t, &s, DTYPE_BF16);
    const struct op_call *calls[] = {&t.forward.call, &t.backward.call};
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        const char *declined = cuda_sdpa_declines(calls[i], &d->env);
        const struct kernel *k =
            kernel_pick(d->ops->kernels(calls[i]->op), calls[i], &d->env, &why);
        assert_non_null(k);
        print_message("%s: %s%s%s\n", op_get(calls[i]->op)->name, k->name,
                      declined ? ", cuDNN: " : "", declined ? declined : "");
        assert_int_equal(strcmp(k->name, "cudnn") == 0, !declined);
        if (!declined)
            assert_int_equal(k->workspace(calls[i], &d->env),
                             cuda_sdpa_workspace(calls[i], &d->env));
        if (d->env.gpu->major == 9)
            assert_null(declined);
    }
    attention_calls_close(&t);
}

int main(void)
{
    struct device d;
    if (!gpu_open(&d))
        return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(attention_in_parts_of_any_size_equals_the_reference, &d),
        cmocka_unit_test_prestate(a_large_call_with_grouped_heads_has_a_plan, &d),
        cmocka_unit_test_prestate(a_call_that_was_not_planned_is_an_error, &d),
        cmocka_unit_test_prestate(the_library_is_picked_where_it_has_a_plan, &d),
    };
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_close(&d);
    return n_failed;
}

#else

int main(void)
{
    print_message("skipped: built without CUDA\n");
    return GPU_SKIPPED;
}

#endif
