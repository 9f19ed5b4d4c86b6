#include "device/cuda/cuda_gemm_search.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/kvfile.h"
#include "base/log.h"
#include "base/str.h"
#include "device/cuda/cuda_gemm_library.cuh"
#include "device/cuda/cuda_noise.cuh"

enum {
    PROPOSALS = 16, /* with the bias, and without it */
    CANDIDATES_MOST = 2 * PROPOSALS,
    COPIES_MOST = 8,
    ROUNDS = 5,
    RUNS_MOST = 32,
};
#define ROUND_S  1e-3 /* a round of runs takes about so long */
#define HOPELESS 1.5
#define SURE_S   100e-6 /* a single run of this length tells */
#define AT_LEAST 0.99   /* of the favourite's time: a smaller gain may be noise */

/* ---- candidates ----------------------------------------------------------------------------- */

struct candidates {
    struct gemm_choice items[CANDIDATES_MOST];
    int n;
};

/* Tells algorithms apart; also the name of one in the file. */
static uint64_t name_of(const struct gemm_choice *c)
{
    return hash_bytes(&c->algorithm, sizeof(c->algorithm)) + (uint64_t)c->bias_inside;
}

/* The library's proposals with the bias and without it, its own favourite first. */
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
                results[i].workspaceSize <= GEMM_WORKSPACE_MOST)
                gemm_choice_set(&out->items[out->n++], inside, &results[i]);
        }
    }
    return OK;
}

/* ---- scratch -------------------------------------------------------------------------------- */

/* The product's buffers, several times over, so that a run finds its operands in memory and not in
 * the cache. */
struct scratch {
    char *base;
    int64_t copy_bytes;
    int n_copies;
    struct cuda_gemm products[COPIES_MOST];
    char *workspace;
};

static int64_t aligned(int64_t n_bytes)
{
    return ceil_div(n_bytes, GEMM_ALIGN) * GEMM_ALIGN;
}

static int64_t extent(int64_t n_rows, int64_t n_columns, int64_t row, int64_t offset, enum dtype d)
{
    return aligned((offset + (n_rows - 1) * row + n_columns) * dtype_size(d));
}

/* Only the alignment of an offset matters to a timing. */
static int64_t small_offset(int64_t offset)
{
    return offset % GEMM_ALIGN;
}

/* Puts the product's buffers one after the other from `at` on; returns their bytes. */
static int64_t place(const struct cuda_gemm *g, char *at, struct cuda_gemm *out)
{
    const char *start = at;
    *out = *g;
    out->a.offset = small_offset(g->a.offset);
    out->b.offset = small_offset(g->b.offset);
    out->c_offset = small_offset(g->c_offset);
    out->a.data = at;
    at += g->a.transposed ? extent(g->k, g->m, g->a.row, out->a.offset, g->dtype)
                          : extent(g->m, g->k, g->a.row, out->a.offset, g->dtype);
    out->b.data = at;
    at += g->b.transposed ? extent(g->n, g->k, g->b.row, out->b.offset, g->dtype)
                          : extent(g->k, g->n, g->b.row, out->b.offset, g->dtype);
    int64_t c_bytes = extent(g->m, g->n, g->c_row, out->c_offset, g->c_dtype);
    out->c = at;
    at += c_bytes;
    out->residual = g->residual ? at : NULL;
    at += g->residual ? c_bytes : 0;
    out->bias = g->bias ? at : NULL;
    at += g->bias ? aligned(g->n * dtype_size(g->c_dtype)) : 0;
    return at - start;
}

/* Noise of the factors' type everywhere: zeros would run faster. Two 16-bit numbers seen as one of
 * 32 bits are still an ordinary number. */
static enum status scratch_fill(struct scratch *s, enum dtype d, cudaStream_t stream)
{
    int64_t n = s->copy_bytes * s->n_copies / dtype_size(d);
    CUDA_DISPATCH_FLOAT(d, T, (fill_noise<T><<<1024, 256, 0, stream>>>((T *)s->base, n)));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* *enough says whether there was memory for one copy at least. */
static enum status scratch_open(struct scratch *s, const struct cuda_libraries *l,
                                const struct cuda_gemm *g, int64_t workspace_bytes,
                                cudaStream_t stream, bool *enough)
{
    size_t free_bytes = 0, total = 0;
    struct cuda_gemm unused;
    *s = {};
    s->copy_bytes = place(g, NULL, &unused);
    CUDA_TRY(cudaMemGetInfo(&free_bytes, &total));
    int64_t room = (int64_t)free_bytes - workspace_bytes - ((int64_t)64 << 20);
    int64_t n = ceil_div(3 * l->l2_bytes, s->copy_bytes);
    n = n < room / s->copy_bytes ? n : room / s->copy_bytes;
    s->n_copies = n < COPIES_MOST ? (int)n : (int)COPIES_MOST;
    *enough = s->n_copies >= 1;
    if (!*enough)
        return OK;
    void *base = NULL;
    cudaError_t e = cudaMalloc(&base, (size_t)(s->copy_bytes * s->n_copies + workspace_bytes));
    *enough = e == cudaSuccess;
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return OK;
    }
    CUDA_TRY(e);
    s->base = (char *)base;
    s->workspace = s->base + s->copy_bytes * s->n_copies;
    for (int i = 0; i < s->n_copies; i++)
        (void)place(g, s->base + i * s->copy_bytes, &s->products[i]);
    return scratch_fill(s, g->dtype, stream);
}

/* ---- timing --------------------------------------------------------------------------------- */

struct timing {
    struct kernel_ctx x;
    cudaEvent_t start, stop;
    struct scratch scratch;
};

/* `n` runs one after the other, copy by copy. False: the library refuses after all. */
static bool run_times(struct timing *t, const struct gemm_choice *c, int n, double *seconds)
{
    cudaStream_t stream = cuda_stream(&t->x);
    float ms = 0.0f;
    bool good = cudaEventRecord(t->start, stream) == cudaSuccess;
    for (int i = 0; i < n && good; i++)
        good = gemm_run(&t->x, t->scratch.workspace, &t->scratch.products[i % t->scratch.n_copies],
                        c) == OK;
    good = good && cudaEventRecord(t->stop, stream) == cudaSuccess;
    good = cudaStreamSynchronize(stream) == cudaSuccess && good;
    good = good && cudaEventElapsedTime(&ms, t->start, t->stop) == cudaSuccess;
    (void)cudaGetLastError();
    *seconds = (double)ms * 1e-3 / (double)n;
    return good;
}

/* The best of several rounds: everything that disturbs a round makes it longer. A choice that is
 * far behind the best so far (0: none yet) is not looked at again. */
static bool time_choice(struct timing *t, const struct gemm_choice *c, double best_so_far,
                        double *best)
{
    double seconds = 0.0;
    if (!run_times(t, c, 1, &seconds) || !run_times(t, c, 1, &seconds))
        return false;
    if (best_so_far > 0 && seconds > HOPELESS * best_so_far && seconds > SURE_S) {
        *best = seconds;
        return true;
    }
    int n = (int)(ROUND_S / (seconds > 1e-7 ? seconds : 1e-7));
    n = n < 1 ? 1 : n > RUNS_MOST ? RUNS_MOST : n;
    *best = 1e30;
    for (int i = 0; i < ROUNDS; i++) {
        if (!run_times(t, c, n, &seconds))
            return false;
        *best = seconds < *best ? seconds : *best;
    }
    return true;
}

static int64_t most_workspace(const struct candidates *all)
{
    int64_t most = 0;
    for (int i = 0; i < all->n; i++)
        most = all->items[i].workspace > most ? all->items[i].workspace : most;
    return most;
}

static void time_all(struct timing *t, const struct candidates *all, struct cuda_gemm_found *found,
                     struct gemm_choice *best)
{
    for (int i = 0; i < all->n; i++) {
        const struct gemm_choice *c = &all->items[i];
        double seconds = 0.0;
        if (!time_choice(t, c, found->best_s, &seconds))
            continue;
        if (found->n_tried++ == 0) {
            found->first_s = found->best_s = seconds;
            gemm_choice_take(best, c);
        } else if (seconds < found->best_s && seconds < AT_LEAST * found->first_s) {
            found->best_s = seconds;
            gemm_choice_take(best, c);
        }
    }
}

/* *best is left as it is when nothing could be timed. */
static enum status search(const struct kernel_env *env, cudaStream_t stream,
                          const struct cuda_gemm *g, const struct candidates *all,
                          struct cuda_gemm_found *found, struct gemm_choice *best)
{
    struct timing t = {};
    bool enough = false;
    enum status status;
    *found = {};
    t.x.env = *env;
    t.x.queue = stream;
    TRY_GOTO(
        scratch_open(&t.scratch, cuda_libraries_of(env), g, most_workspace(all), stream, &enough),
        out);
    if (!enough) {
        log_info("no room to search for the fastest product of %lld x %lld x %lld", (long long)g->m,
                 (long long)g->n, (long long)g->k);
        goto out;
    }
    if (cudaEventCreate(&t.start) == cudaSuccess && cudaEventCreate(&t.stop) == cudaSuccess)
        time_all(&t, all, found, best);
out:
    if (t.start)
        (void)cudaEventDestroy(t.start);
    if (t.stop)
        (void)cudaEventDestroy(t.stop);
    if (t.scratch.base)
        (void)cudaFree(t.scratch.base);
    (void)cudaGetLastError();
    return status;
}

enum status cuda_gemm_search_try(const struct kernel_env *env, cudaStream_t stream,
                                 const struct cuda_gemm *g, struct cuda_gemm_found *out)
{
    struct candidates all;
    struct gemm_choice best = {};
    TRY(gather(cuda_libraries_of(env), g, &all));
    return search(env, stream, g, &all, out, &best);
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
        log_info("compile: max-autotune tries the algorithms of each matrix product");
    s->said = true;
    TRY(search(env, s->stream, g, &all, &found, choice));
    if (found.n_tried == 0)
        return OK;
    log_debug("%s: %.1f us, the library's first choice %.1f us, %d tried", key, found.best_s * 1e6,
              found.first_s * 1e6, found.n_tried);
    remember(s, key, choice, &found);
    return OK;
}
