#include "device/cuda/products/gemm_search.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/kvfile.h"
#include "base/log.h"
#include "base/str.h"
#include "device/cuda/products/gemm_trial.cuh"

enum { PROPOSALS = GEMM_TRIAL_MOST / 2 }; /* with the bias, and as many without it */

/* ---- candidates ----------------------------------------------------------------------------- */

struct candidates {
    struct gemm_choice items[GEMM_TRIAL_MOST];
    int n;
};

/* Tells algorithms apart; also the name of one in the file. */
static uint64_t name_of(const struct gemm_choice *c)
{
    return hash_bytes(&c->algorithm, sizeof(c->algorithm)) + (uint64_t)c->bias_inside;
}

/* The library's proposals with the bias and without it, its first choice first. */
static enum status gather(const struct cuda_libraries *l, const struct cuda_gemm *g,
                          struct candidates *out)
{
    out->n = 0;
    for (int inside = g->bias ? 1 : 0; inside >= 0; inside--) {
        cublasLtMatmulHeuristicResult_t results[PROPOSALS];
        int n = 0;
        TRY(gemm_propose(l, g, inside, results, PROPOSALS, &n));
        for (int i = 0; i < n; i++) {
            if (results[i].state == CUBLAS_STATUS_SUCCESS &&
                (int64_t)results[i].workspaceSize <= gemm_workspace_most(l, g))
                gemm_choice_set(&out->items[out->n++], inside, &results[i]);
        }
    }
    return OK;
}

enum status cuda_gemm_search_try(const struct kernel_env *env, cudaStream_t stream,
                                 const struct cuda_gemm *g, struct cuda_gemm_found *out)
{
    struct candidates all;
    int best;
    TRY(gather(cuda_libraries_of(env), g, &all));
    return gemm_trial(env, stream, g, all.items, all.n, out, &best);
}

/* ---- what is kept --------------------------------------------------------------------------- */

struct cuda_gemm_search {
    struct kvfile *file;
    bool kept; /* the file has a path */
    bool said; /* that a search is on */
    uint64_t identity;
    cudaStream_t stream;
};

enum status cuda_gemm_search_open(struct cuda_libraries *l, const char *identity,
                                  cudaStream_t stream)
{
    struct str path = {};
    struct cuda_gemm_search *s = (struct cuda_gemm_search *)mem_calloc(1, sizeof(*s));
    if (!s)
        return FAIL(ERR_MEMORY, "out of memory for the search among matrix products");
    s->kept = l->cache_folder != NULL;
    s->identity = hash_text(identity);
    s->stream = stream;
    if (s->kept)
        str_addf(&path, "%s/products", l->cache_folder);
    enum status status = str_status(&path);
    if (status == OK)
        status = kvfile_open(&s->file, str_text(&path));
    str_release(&path);
    if (status != OK) {
        cuda_gemm_search_free(s);
        return status;
    }
    cuda_gemm_search_free(l->gemm_search);
    l->gemm_search = s;
    return OK;
}

void cuda_gemm_search_free(struct cuda_gemm_search *s)
{
    if (!s)
        return;
    kvfile_free(s->file);
    mem_free(s);
}

static void print_key(const struct cuda_gemm_search *s, const struct gemm_key *k, char *out,
                      size_t n_out)
{
    (void)snprintf(out, n_out,
                   "%016" PRIx64 " %lldx%lldx%lld rows %lld,%lld,%lld align %d,%d,%d "
                   "%s->%s flags %d",
                   s->identity, (long long)k->m, (long long)k->n, (long long)k->k,
                   (long long)k->a_row, (long long)k->b_row, (long long)k->c_row, k->a_align,
                   k->b_align, k->c_align, dtype_name((enum dtype)k->dtype),
                   dtype_name((enum dtype)k->c_dtype), k->flags);
}

/* The candidate of that name; none when the file says nothing or something else. */
static const struct gemm_choice *remembered(const char *text, const struct candidates *all)
{
    uint64_t name;
    if (!text || sscanf(text, "%16" SCNx64, &name) != 1)
        return NULL;
    for (int i = 0; i < all->n; i++) {
        if (name_of(&all->items[i]) == name)
            return &all->items[i];
    }
    return NULL;
}

/* A file that cannot be written costs the next run its time to search, no more. */
static void remember(struct cuda_gemm_search *s, const char *key, const struct gemm_choice *c,
                     const struct cuda_gemm_found *found)
{
    char value[96];
    (void)snprintf(value, sizeof(value), "%016" PRIx64 " %lld ns, first %lld ns", name_of(c),
                   (long long)(found->best_s * 1e9), (long long)(found->first_s * 1e9));
    enum status status = kvfile_put(s->file, key, value);
    if (status == OK && s->kept)
        status = kvfile_save(s->file);
    if (status != OK)
        log_debug("the search for a product is not kept: %s", status_message());
}

enum status gemm_search(const struct kernel_env *env, const struct cuda_gemm *g,
                        struct gemm_choice *choice)
{
    struct cuda_libraries *l = cuda_libraries_of(env);
    struct cuda_gemm_search *s = l->gemm_search;
    struct cuda_gemm_found found = {};
    struct candidates all;
    char key[KVFILE_KEY_MOST];
    int best;
    if (!s || !choice->found)
        return OK;
    TRY(gather(l, g, &all));
    print_key(s, &choice->key, key, sizeof(key));
    const struct gemm_choice *known = remembered(kvfile_get(s->file, key), &all);
    if (known) {
        gemm_choice_take(choice, known);
        return OK;
    }
    if (!s->said)
        log_info(
            "compile: max-autotune tries the algorithms of each matrix product, about a second "
            "each, once on this machine");
    s->said = true;
    TRY(gemm_trial(env, s->stream, g, all.items, all.n, &found, &best));
    if (best < 0)
        return OK;
    gemm_choice_take(choice, &all.items[best]);
    log_debug("%s: %.1f us, the library's first choice %.1f us, %d tried", key, found.best_s * 1e6,
              found.first_s * 1e6, found.n_tried);
    remember(s, key, choice, &found);
    return OK;
}
