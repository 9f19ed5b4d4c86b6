/* The plans of the shapes asked for so far, in a list per op that the device releases. A shape
 * without a plan keeps its place in the list, so that cuDNN is asked once. */
#include "device/cuda/attention/sdpa.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "device/cuda/attention/sdpa_plan.h"
#include "device/cuda/cuda_libraries.h"
#include "device/cuda/declared/attention.h"

struct entry {
    struct entry *next;
    struct sdpa_shape shape;
    struct sdpa_plan *plan; /* of the shape or of its parts; NULL: there is none */
};

static void release_entries(void *data)
{
    for (struct entry *e = data, *next; e; e = next) {
        next = e->next;
        sdpa_plan_free(e->plan);
        mem_free(e);
    }
}

static bool same_shape(const struct sdpa_shape *a, const struct sdpa_shape *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->batch == b->batch &&
           a->n_tokens == b->n_tokens && a->heads == b->heads && a->kv_heads == b->kv_heads &&
           a->head_dim == b->head_dim && a->window == b->window && a->causal == b->causal &&
           memcmp(&a->scale, &b->scale, sizeof a->scale) == 0;
}

/* A plan of the part with n groups; NULL when cuDNN has none, with the reason in the debug log. */
static struct sdpa_plan *part_plan(const struct cuda_libraries *l, const struct sdpa_shape *whole,
                                   int64_t n, int64_t most_bytes)
{
    struct sdpa_plan *plan = NULL;
    struct sdpa_shape part = sdpa_part_shape(whole, n);
    if (sdpa_plan_new(&plan, l->cudnn, &part, most_bytes) == OK)
        return plan;
    log_debug("attention%s B%lld T%lld H%lld KV%lld D%lld%s: no plan: %s",
              whole->kind == SDPA_FORWARD ? "" : "_grad", (long long)part.batch,
              (long long)part.n_tokens, (long long)part.heads, (long long)part.kv_heads,
              (long long)part.head_dim, part.repeated ? " repeated" : "", status_message());
    return NULL;
}

/* Any plan, to learn the workspace from: that of a row of the batch says what a group needs, where
 * the plan of a large call may be refused for its size alone. Forwards there is little to bound:
 * there the whole call comes first. */
static struct sdpa_plan *probe_plan(const struct cuda_libraries *l, const struct sdpa_shape *whole,
                                    int64_t *n)
{
    int64_t all = sdpa_part_whole(whole), least = sdpa_part_next(whole, 0);
    int64_t row = MAX(whole->kv_heads, least);
    const int64_t sizes[2][3] = {{all, row, least}, {row, least, all}};
    const int64_t *order = sizes[whole->kind != SDPA_FORWARD];
    for (int i = 0; i < 3; i++) {
        bool asked = (i > 0 && order[i] == order[0]) || (i > 1 && order[i] == order[1]);
        struct sdpa_plan *plan = asked ? NULL : part_plan(l, whole, order[i], INT64_MAX);
        *n = order[i];
        if (plan)
            return plan;
    }
    return NULL;
}

/* The largest acceptable part of the call, or else the smallest larger one that fits at all. */
static struct sdpa_plan *new_plan(const struct cuda_libraries *l, const struct sdpa_shape *whole)
{
    const struct sdpa_machine machine = {l->gpu.n_multiprocessors, l->gpu.memory_bytes};
    int64_t all = sdpa_part_whole(whole), n_probe = 0;
    int64_t most = sdpa_part_most_bytes(whole, &machine);
    struct sdpa_plan *plan = probe_plan(l, whole, &n_probe);
    if (!plan)
        return NULL;
    int64_t group_bytes = sdpa_plan_bytes(plan) / n_probe;
    int64_t chosen = sdpa_part_choose(whole, group_bytes * all, &machine);
    if (chosen == n_probe)
        return plan;
    sdpa_plan_free(plan);
    plan = NULL;
    for (int64_t n = chosen; n > 0 && !plan; n = sdpa_part_previous(whole, n))
        plan = part_plan(l, whole, n, most);
    for (int64_t n = sdpa_part_next(whole, chosen); n > 0 && chosen > 0 && !plan;
         n = n * group_bytes <= most ? sdpa_part_next(whole, n) : 0)
        plan = part_plan(l, whole, n, most);
    return plan;
}

/* Grouped heads as they are where cuDNN has a plan for them, else with keys and values repeated. */
static struct sdpa_plan *best_plan(const struct cuda_libraries *l, const struct sdpa_shape *whole)
{
    struct sdpa_shape repeated = *whole;
    struct sdpa_plan *plan = new_plan(l, whole);
    if (plan || whole->heads == whole->kv_heads)
        return plan;
    repeated.repeated = true;
    return new_plan(l, &repeated);
}

static struct entry *find(const struct cuda_keep *keep, const struct sdpa_shape *s)
{
    for (struct entry *e = keep->data; e; e = e->next) {
        if (same_shape(&e->shape, s))
            return e;
    }
    return NULL;
}

/* The entry of a shape, made when there is none yet; NULL when memory is short. */
static struct entry *find_or_make(struct cuda_libraries *l, struct cuda_keep *keep,
                                  const struct sdpa_shape *s)
{
    struct entry *e = find(keep, s);
    if (e)
        return e;
    e = mem_calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->shape = *s;
    e->next = keep->data;
    keep->data = e;
    keep->release = release_entries;
    e->plan = best_plan(l, s);
    return e;
}

/* An attention or attention_grad call as cuDNN sees it: its shape, and where its plan is kept. */
struct question {
    struct sdpa_shape shape;
    struct cuda_keep *keep; /* NULL: there is no cuDNN to ask */
};

static struct question question_of(const struct op_call *c, const struct kernel_env *env)
{
    struct cuda_libraries *l = cuda_libraries_of(env);
    bool backward = c->op == OP_attention_grad;
    struct question q = {.shape = sdpa_shape_of(c)};
    if (l && l->cudnn)
        q.keep = backward ? &l->attention_grad : &l->attention;
    return q;
}

/* The plan of a call, built when it is first asked for; NULL, with the reason, where there is none.
 */
static const struct sdpa_plan *plan_of(const struct op_call *c, const struct kernel_env *env,
                                       const char **why)
{
    struct cuda_libraries *l = cuda_libraries_of(env);
    struct question q = question_of(c, env);
    *why = q.keep ? sdpa_known_limit(&l->gpu, &q.shape, cudnnGetVersion())
                  : "there is no cuDNN without a GPU";
    if (*why)
        return NULL;
    struct entry *e = find_or_make(l, q.keep, &q.shape);
    *why = !e ? "out of memory" : !e->plan ? "cuDNN has no plan for it on this GPU" : NULL;
    return *why ? NULL : e->plan;
}

/* Only plans whose workspace was planned for may run. */
static enum status run(const struct kernel_ctx *x, struct cuda_keep *keep,
                       const struct sdpa_shape *s, const struct sdpa_pointers *p)
{
    struct entry *e = keep ? find(keep, s) : NULL;
    if (!e || !e->plan)
        return FAIL(ERR_INTERNAL,
                    "attention: cuDNN has no plan for a call that was planned for it");
    return sdpa_plan_run(e->plan, s, cuda_libraries_of(&x->env)->cudnn, (cudaStream_t)x->queue, p);
}

static void describe(const struct entry *e, char *text, size_t n_bytes)
{
    if (!e || !e->plan) {
        (void)snprintf(text, n_bytes, "none");
        return;
    }
    const struct sdpa_shape *part = sdpa_plan_shape(e->plan), *whole = &e->shape;
    (void)snprintf(text, n_bytes, "%s, %lld of %lld rows, %lld of %lld heads",
                   part->repeated ? "keys and values repeated" : "as it is", (long long)part->batch,
                   (long long)whole->batch, (long long)part->heads, (long long)whole->heads);
}

void cuda_sdpa_describe(const struct op_call *c, const struct kernel_env *env, char *text,
                        size_t n_bytes)
{
    struct question q = question_of(c, env);
    describe(q.keep ? find(q.keep, &q.shape) : NULL, text, n_bytes);
}

const char *cuda_sdpa_declines(const struct op_call *c, const struct kernel_env *env)
{
    const char *why;
    (void)plan_of(c, env, &why);
    return why;
}

int64_t cuda_sdpa_workspace(const struct op_call *c, const struct kernel_env *env)
{
    const char *why;
    const struct sdpa_plan *plan = plan_of(c, env, &why);
    return plan ? sdpa_plan_bytes(plan) : 0;
}

enum status cuda_sdpa_run(const struct kernel_ctx *x, const struct op_call *c)
{
    struct question q = question_of(c, &x->env);
    struct sdpa_pointers p = {
        .qkv = c->in[0].data,
        .out = c->out[0].data,
        .lse = c->out[1].data,
        .workspace = x->workspace,
    };
    return run(x, q.keep, &q.shape, &p);
}

enum status cuda_sdpa_grad_run(const struct kernel_ctx *x, const struct op_call *c)
{
    struct question q = question_of(c, &x->env);
    struct sdpa_pointers p = {
        .qkv = c->in[1].data,
        .out = c->in[2].data,
        .lse = c->in[3].data,
        .dout = c->in[0].data,
        .dqkv = c->out[0].data,
        .workspace = x->workspace,
    };
    return run(x, q.keep, &q.shape, &p);
}
