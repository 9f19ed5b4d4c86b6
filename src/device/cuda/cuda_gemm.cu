#include "device/cuda/cuda_gemm_library.cuh"

#include <string.h>

#include "base/alloc.h"

enum { CACHE_SLOTS = 1024 };

struct cuda_gemm_cache {
    struct gemm_choice slots[CACHE_SLOTS];
};

struct cuda_gemm_cache *cuda_gemm_cache_new(void)
{
    return (struct cuda_gemm_cache *)mem_calloc(1, sizeof(struct cuda_gemm_cache));
}

void cuda_gemm_cache_free(struct cuda_gemm_cache *c)
{
    mem_free(c);
}

/* ---- the choice ----------------------------------------------------------------------------- */

static uint64_t hash(const struct gemm_key *k)
{
    const unsigned char *p = (const unsigned char *)k;
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < sizeof(*k); i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h;
}

/* Asks for as much as possible done by the library itself, then for less. When it has no algorithm
 * for the product alone, out->found stays false and the plain kernels do the work. */
static enum status ask(struct cuda_libraries *l, const struct cuda_gemm *g,
                       const struct gemm_key *k, struct gemm_choice *out)
{
    const int parts = gemm_parts(g);
    const int tries[] = {parts, parts & ~CUDA_GEMM_BIAS_GRAD, parts & CUDA_GEMM_BIAS, 0};
    memset(out, 0, sizeof(*out));
    out->key = *k;
    out->used = true;
    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]) && !out->found; i++) {
        cublasLtMatmulHeuristicResult_t result;
        int n = 0;
        if (!gemm_can_be_inside(g, tries[i]) || (i > 0 && tries[i] == tries[i - 1]))
            continue;
        TRY(gemm_propose(l, g, tries[i], &result, 1, &n));
        if (n == 0)
            continue;
        out->found = true;
        out->inside = tries[i];
        out->algorithm = result.algo;
        out->workspace = ceil_div((int64_t)result.workspaceSize, GEMM_ALIGN) * GEMM_ALIGN;
    }
    return OK;
}

/* From the cache, or asked and put there while there is room. */
static enum status choose(struct cuda_libraries *l, const struct cuda_gemm *g,
                          struct gemm_choice *out)
{
    struct gemm_key k = gemm_key_of(l, g);
    uint64_t at = hash(&k) % CACHE_SLOTS;
    if (g->add && g->residual)
        return FAIL(ERR_FAILED, "a matrix product is added to its result and to a residual");
    if (g->epilogue == CUDA_EPILOGUE_GELU_GRAD && !g->aux)
        return FAIL(ERR_FAILED, "a matrix product times GELU's slope without GELU's input");
    for (int i = 0; i < CACHE_SLOTS; i++, at = (at + 1) % CACHE_SLOTS) {
        struct gemm_choice *slot = &l->gemm_cache->slots[at];
        if (!slot->used) {
            TRY(ask(l, g, &k, out));
            *slot = *out;
            return OK;
        }
        if (memcmp(&slot->key, &k, sizeof(k)) == 0) {
            *out = *slot;
            return OK;
        }
    }
    return ask(l, g, &k, out);
}

static bool sums_apart(const struct cuda_gemm *g, const struct gemm_choice *c)
{
    return g->bias_grad && !(c->found && (c->inside & CUDA_GEMM_BIAS_GRAD));
}

int64_t cuda_gemm_workspace(const struct kernel_env *env, const struct cuda_gemm *g)
{
    struct gemm_choice c;
    if (choose(cuda_libraries_of(env), g, &c) != OK)
        return 0;
    return c.workspace + (sums_apart(g, &c) ? gemm_bias_grad_workspace(env, g) : 0);
}

int cuda_gemm_fused(const struct kernel_env *env, const struct cuda_gemm *g)
{
    struct gemm_choice c;
    return choose(cuda_libraries_of(env), g, &c) == OK && c.found ? c.inside : -1;
}

/* ---- running -------------------------------------------------------------------------------- */

enum status cuda_gemm(const struct kernel_ctx *x, void *workspace, const struct cuda_gemm *g)
{
    struct cuda_libraries *l = cuda_libraries_of(&x->env);
    struct gemm_choice chosen;
    if (g->m == 0 || g->n == 0)
        return OK;
    TRY(choose(l, g, &chosen));
    if (!chosen.found)
        return cuda_gemm_tiled(x, workspace, g);
    TRY(gemm_library_run(l, g, &chosen, workspace, cuda_stream(x)));
    int left = gemm_parts(g) & ~chosen.inside;
    TRY(gemm_finish(x, g, left & CUDA_GEMM_BIAS, left & CUDA_GEMM_EPILOGUE));
    return sums_apart(g, &chosen) ? gemm_bias_grad(x, (char *)workspace + chosen.workspace, g) : OK;
}
