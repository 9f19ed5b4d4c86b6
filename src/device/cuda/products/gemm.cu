/* gemm.cu: which algorithm a product gets, kept from its planning on, and running it. */
#include "device/cuda/products/gemm.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "device/cuda/products/gemm_library.cuh"

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

/* Asks for the product with its bias, then for the product alone. When the library has no algorithm
 * for either, out->found stays false. */
static enum status ask(const struct cuda_libraries *l, const struct cuda_gemm *g,
                       const struct gemm_key *k, struct gemm_choice *out)
{
    memset(out, 0, sizeof(*out));
    out->key = *k;
    out->used = true;
    for (int inside = g->bias ? 1 : 0; inside >= 0 && !out->found; inside--) {
        cublasLtMatmulHeuristicResult_t result;
        int n = 0;
        TRY(gemm_propose(l, g, inside, &result, 1, &n));
        if (n > 0)
            gemm_choice_set(out, inside, &result);
    }
    return OK;
}

/* From the cache, or asked and put there while there is room. A search is for planning: what is
 * planned is in the cache when it runs, and what finds no room there is never searched for. */
static enum status choose(const struct kernel_env *env, const struct cuda_gemm *g, bool planning,
                          struct gemm_choice *out)
{
    struct cuda_libraries *l = cuda_libraries_of(env);
    struct gemm_key k = gemm_key_of(l, g);
    uint64_t at = hash_bytes(&k, sizeof(k)) % CACHE_SLOTS;
    if (g->add && g->residual)
        return FAIL(ERR_INTERNAL, "a matrix product is added to its result and to a residual");
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

const char *cuda_gemm_declines(const struct kernel_env *env, const struct cuda_gemm *g)
{
    struct gemm_choice c;
    if (choose(env, g, true, &c) != OK)
        return "cuBLASLt does not understand the product";
    return c.found ? NULL : "cuBLASLt has no algorithm for it on this GPU";
}

int64_t cuda_gemm_workspace(const struct kernel_env *env, const struct cuda_gemm *g)
{
    const struct cuda_libraries *l = cuda_libraries_of(env);
    struct gemm_choice c;
    if (!l->search)
        return product_allowance(&l->gpu, g);
    return choose(env, g, true, &c) == OK ? c.workspace : 0;
}

bool cuda_gemm_adds_bias(const struct kernel_env *env, const struct cuda_gemm *g)
{
    struct gemm_choice c;
    return choose(env, g, true, &c) == OK && c.found && c.bias_inside;
}

/* ---- running -------------------------------------------------------------------------------- */

enum status cuda_gemm(const struct kernel_ctx *x, void *workspace, const struct cuda_gemm *g)
{
    struct gemm_choice chosen;
    if (g->m == 0 || g->n == 0)
        return OK;
    TRY(choose(&x->env, g, false, &chosen));
    if (!chosen.found)
        return FAIL(ERR_INTERNAL,
                    "cuBLASLt has no algorithm for a product of %lld x %lld x %lld that was "
                    "planned for it",
                    (long long)g->m, (long long)g->n, (long long)g->k);
    return gemm_run(x, workspace, g, &chosen);
}
