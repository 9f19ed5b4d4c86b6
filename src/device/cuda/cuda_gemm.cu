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

void cuda_gemm_cache_clear(struct cuda_gemm_cache *c)
{
    memset(c, 0, sizeof(*c));
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
static enum status ask(const struct cuda_libraries *l, const struct cuda_gemm *g,
                       const struct gemm_key *k, struct gemm_choice *out)
{
    int forms[GEMM_FORMS], n_forms = gemm_forms(g, forms);
    memset(out, 0, sizeof(*out));
    out->key = *k;
    out->used = true;
    for (int i = 0; i < n_forms && !out->found; i++) {
        cublasLtMatmulHeuristicResult_t result;
        int n = 0;
        TRY(gemm_propose(l, g, forms[i], &result, 1, &n));
        if (n > 0)
            gemm_choice_set(out, forms[i], &result);
    }
    return OK;
}

static enum status check(const struct cuda_gemm *g)
{
    if (g->add && g->residual)
        return FAIL(ERR_INTERNAL, "a matrix product is added to its result and to a residual");
    if (g->epilogue == CUDA_EPILOGUE_GELU_GRAD && !g->aux)
        return FAIL(ERR_INTERNAL, "a matrix product times GELU's slope without GELU's input");
    return OK;
}

/* From the cache, or asked and put there while there is room. A search is for planning: what is
 * planned is in the cache when it runs, and what finds no room there is never searched for. */
static enum status choose(const struct kernel_env *env, const struct cuda_gemm *g, bool planning,
                          struct gemm_choice *out)
{
    struct cuda_libraries *l = cuda_libraries_of(env);
    struct gemm_key k = gemm_key_of(l, g);
    uint64_t at = hash(&k) % CACHE_SLOTS;
    TRY(check(g));
    for (int i = 0; i < CACHE_SLOTS; i++, at = (at + 1) % CACHE_SLOTS) {
        struct gemm_choice *slot = &l->gemm_cache->slots[at];
        if (!slot->used) {
            TRY(ask(l, g, &k, out));
            if (planning && l->search)
                TRY(gemm_search(env, g, out));
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

int64_t gemm_choice_workspace(const struct kernel_env *env, const struct cuda_gemm *g,
                              const struct gemm_choice *c)
{
    return c->workspace + (sums_apart(g, c) ? gemm_bias_grad_workspace(env, g) : 0);
}

int64_t cuda_gemm_workspace(const struct kernel_env *env, const struct cuda_gemm *g)
{
    struct gemm_choice c;
    return choose(env, g, true, &c) == OK ? gemm_choice_workspace(env, g, &c) : 0;
}

int cuda_gemm_fused(const struct kernel_env *env, const struct cuda_gemm *g)
{
    struct gemm_choice c;
    return choose(env, g, true, &c) == OK && c.found ? c.inside : -1;
}

/* ---- running -------------------------------------------------------------------------------- */

enum status gemm_run(const struct kernel_ctx *x, void *workspace, const struct cuda_gemm *g,
                     const struct gemm_choice *c)
{
    TRY(gemm_library_run(cuda_libraries_of(&x->env), g, c, workspace, cuda_stream(x)));
    int left = gemm_parts(g) & ~c->inside;
    TRY(gemm_finish(x, g, left & CUDA_GEMM_BIAS, left & CUDA_GEMM_EPILOGUE));
    return sums_apart(g, c) ? gemm_bias_grad(x, (char *)workspace + c->workspace, g) : OK;
}

enum status cuda_gemm(const struct kernel_ctx *x, void *workspace, const struct cuda_gemm *g)
{
    struct gemm_choice chosen;
    if (g->m == 0 || g->n == 0)
        return OK;
    TRY(choose(&x->env, g, false, &chosen));
    return chosen.found ? gemm_run(x, workspace, g, &chosen) : cuda_gemm_tiled(x, workspace, g);
}
