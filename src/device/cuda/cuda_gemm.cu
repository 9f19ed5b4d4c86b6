#include "device/cuda/cuda_gemm.cuh"

#include <string.h>

#include "base/alloc.h"

enum { CACHE_SLOTS = 1024, WORKSPACE_MOST = 32 << 20, BUFFER_ALIGN = 256 };

/* What the choice of an algorithm depends on. Compared as bytes: no padding may stay undefined. */
struct key {
    int64_t m, n, k, a_row, b_row, c_row;
    int32_t a_align, b_align, c_align;
    int32_t dtype, c_dtype;
    int32_t flags; /* 1 a transposed, 2 b transposed, 4 bias, 8 add */
};

struct choice {
    struct key key;
    bool used, found; /* found: the library has an algorithm */
    int64_t workspace;
    cublasLtMatmulAlgo_t algorithm;
};

struct cuda_gemm_cache {
    struct choice slots[CACHE_SLOTS];
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

/* Largest power of two, up to BUFFER_ALIGN, that divides the byte offset. */
static int32_t alignment(int64_t offset, enum dtype d)
{
    int64_t n_bytes = offset * dtype_size(d);
    int32_t align = BUFFER_ALIGN;
    while (n_bytes % align != 0)
        align /= 2;
    return align;
}

static struct key key_of(const struct cuda_gemm *g)
{
    struct key k;
    memset(&k, 0, sizeof(k));
    k.m = g->m;
    k.n = g->n;
    k.k = g->k;
    k.a_row = g->a.row;
    k.b_row = g->b.row;
    k.c_row = g->c_row;
    k.a_align = alignment(g->a.offset, g->dtype);
    k.b_align = alignment(g->b.offset, g->dtype);
    k.c_align = alignment(g->c_offset, g->c_dtype);
    k.dtype = (int32_t)g->dtype;
    k.c_dtype = (int32_t)g->c_dtype;
    k.flags = (g->a.transposed ? 1 : 0) | (g->b.transposed ? 2 : 0) | (g->bias ? 4 : 0) |
              (g->add ? 8 : 0);
    return k;
}

static uint64_t hash(const struct key *k)
{
    const unsigned char *p = (const unsigned char *)k;
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < sizeof(*k); i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h;
}

static cudaDataType_t library_type(enum dtype d)
{
    return d == DTYPE_F32 ? CUDA_R_32F : d == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* The library's descriptions of one product. The library is column-major: it sees every matrix
 * transposed, so it is asked for c^T = b^T a^T, where b's memory is its first operand. */
struct described {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t first, second, result;
};

static enum status describe(const struct cuda_gemm *g, struct described *d)
{
    cublasOperation_t first = g->b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = g->a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cudaDataType_t in = library_type(g->dtype), out = library_type(g->c_dtype);
    uint64_t first_rows = (uint64_t)(g->b.transposed ? g->k : g->n);
    uint64_t first_columns = (uint64_t)(g->b.transposed ? g->n : g->k);
    uint64_t second_rows = (uint64_t)(g->a.transposed ? g->m : g->k);
    uint64_t second_columns = (uint64_t)(g->a.transposed ? g->k : g->m);
    CUBLAS_TRY(cublasLtMatmulDescInit(&d->product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CUBLAS_TRY(cublasLtMatmulDescSetAttribute(&d->product, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                              sizeof(first)));
    CUBLAS_TRY(cublasLtMatmulDescSetAttribute(&d->product, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                              sizeof(second)));
    CUBLAS_TRY(cublasLtMatrixLayoutInit(&d->first, in, first_rows, first_columns, g->b.row));
    CUBLAS_TRY(cublasLtMatrixLayoutInit(&d->second, in, second_rows, second_columns, g->a.row));
    CUBLAS_TRY(cublasLtMatrixLayoutInit(&d->result, out, (uint64_t)g->n, (uint64_t)g->m, g->c_row));
    if (!g->bias)
        return OK;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    CUBLAS_TRY(cublasLtMatmulDescSetAttribute(&d->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                              sizeof(epilogue)));
    CUBLAS_TRY(cublasLtMatmulDescSetAttribute(&d->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                              &g->bias, sizeof(g->bias)));
    return OK;
}

static enum status prefer(const struct cuda_gemm *g, const struct key *k,
                          cublasLtMatmulPreferenceOpaque_t *p)
{
    uint64_t most = WORKSPACE_MOST;
    uint32_t first = (uint32_t)k->b_align, second = (uint32_t)k->a_align;
    uint32_t result = (uint32_t)k->c_align;
    /* Parts of a split sum are added in f32, never in a 16-bit result. */
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (g->c_dtype == DTYPE_F32)
        schemes |= CUBLASLT_REDUCTION_SCHEME_INPLACE;
    CUBLAS_TRY(cublasLtMatmulPreferenceInit(p));
    CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                    &most, sizeof(most)));
    CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                    &schemes, sizeof(schemes)));
    CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                                    &first, sizeof(first)));
    CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                                    &second, sizeof(second)));
    CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                                    &result, sizeof(result)));
    CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                                                    &result, sizeof(result)));
    return OK;
}

/* Asks the library; a refusal leaves out->found false, and the plain kernel does the work. */
static enum status ask(struct cuda_libraries *l, const struct cuda_gemm *g, const struct key *k,
                       struct choice *out)
{
    struct described d;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t result;
    int n = 0;
    memset(out, 0, sizeof(*out));
    out->key = *k;
    out->used = true;
    TRY(describe(g, &d));
    TRY(prefer(g, k, &preference));
    cublasStatus_t answer =
        cublasLtMatmulAlgoGetHeuristic(l->cublaslt, &d.product, &d.first, &d.second, &d.result,
                                       &d.result, &preference, 1, &result, &n);
    if (answer == CUBLAS_STATUS_SUCCESS && n > 0 && result.state == CUBLAS_STATUS_SUCCESS) {
        out->found = true;
        out->algorithm = result.algo;
        out->workspace =
            ((int64_t)result.workspaceSize + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN;
    }
    return OK;
}

/* From the cache, or asked and put there while there is room. */
static enum status choose(struct cuda_libraries *l, const struct cuda_gemm *g, struct choice *out)
{
    struct key k = key_of(g);
    uint64_t at = hash(&k) % CACHE_SLOTS;
    for (int i = 0; i < CACHE_SLOTS; i++, at = (at + 1) % CACHE_SLOTS) {
        struct choice *slot = &l->gemm_cache->slots[at];
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

int64_t cuda_gemm_workspace(const struct kernel_env *env, const struct cuda_gemm *g)
{
    struct choice c;
    return choose(cuda_libraries_of(env), g, &c) == OK && c.found ? c.workspace : 0;
}

/* ---- the plain kernel ----------------------------------------------------------------------- */

enum { TILE = 16 };

struct strides {
    int64_t row, column;
};

/* One 16 x 16 tile of c per block; tiles run along n first. */
template <typename T, typename C>
static __global__ void tiled(int64_t m, int64_t n, int64_t k, const T *a, struct strides sa,
                             const T *b, struct strides sb, C *c, int64_t c_row, const C *bias,
                             bool add)
{
    __shared__ float as[TILE][TILE + 1], bs[TILE][TILE + 1];
    int64_t tiles_n = (n + TILE - 1) / TILE;
    int64_t i = (int64_t)(blockIdx.x / tiles_n) * TILE + threadIdx.y;
    int64_t j = (int64_t)(blockIdx.x % tiles_n) * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int64_t first = 0; first < k; first += TILE) {
        int64_t ka = first + threadIdx.x, kb = first + threadIdx.y;
        as[threadIdx.y][threadIdx.x] =
            i < m && ka < k ? to_f32(a[i * sa.row + ka * sa.column]) : 0.0f;
        bs[threadIdx.y][threadIdx.x] =
            j < n && kb < k ? to_f32(b[kb * sb.row + j * sb.column]) : 0.0f;
        __syncthreads();
#pragma unroll
        for (int p = 0; p < TILE; p++)
            sum += as[threadIdx.y][p] * bs[p][threadIdx.x];
        __syncthreads();
    }
    if (i < m && j < n) {
        if (bias)
            sum += to_f32(bias[j]);
        if (add)
            sum += to_f32(c[i * c_row + j]);
        c[i * c_row + j] = from_f32<C>(sum);
    }
}

static struct strides strides_of(const struct cuda_matrix *x)
{
    struct strides s = {x->row, 1};
    if (x->transposed)
        s = {1, x->row};
    return s;
}

template <typename T, typename C>
static void launch_tiled(const struct kernel_ctx *x, const struct cuda_gemm *g)
{
    int64_t tiles = ceil_div(g->m, TILE) * ceil_div(g->n, TILE);
    tiled<T, C><<<(unsigned)tiles, dim3(TILE, TILE), 0, cuda_stream(x)>>>(
        g->m, g->n, g->k, (const T *)g->a.data + g->a.offset, strides_of(&g->a),
        (const T *)g->b.data + g->b.offset, strides_of(&g->b), (C *)g->c + g->c_offset, g->c_row,
        (const C *)g->bias, g->add);
}

enum status cuda_gemm_tiled(const struct kernel_ctx *x, const struct cuda_gemm *g)
{
    if (g->m == 0 || g->n == 0)
        return OK;
    if (ceil_div(g->m, TILE) * ceil_div(g->n, TILE) > 0x7fffffff)
        return FAIL(ERR_UNSUPPORTED, "a matrix product of %lld x %lld is too large for this GPU",
                    (long long)g->m, (long long)g->n);
    CUDA_DISPATCH_FLOAT(g->dtype, T,
                        CUDA_DISPATCH_FLOAT(g->c_dtype, C, (launch_tiled<T, C>(x, g))));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- running -------------------------------------------------------------------------------- */

enum status cuda_gemm(const struct kernel_ctx *x, void *workspace, const struct cuda_gemm *g)
{
    struct cuda_libraries *l = cuda_libraries_of(&x->env);
    struct choice chosen;
    struct described d;
    if (g->m == 0 || g->n == 0)
        return OK;
    TRY(choose(l, g, &chosen));
    if (!chosen.found)
        return cuda_gemm_tiled(x, g);
    TRY(describe(g, &d));
    const float one = 1.0f, beta = g->add ? 1.0f : 0.0f;
    int64_t in_size = dtype_size(g->dtype);
    char *c = (char *)g->c + g->c_offset * dtype_size(g->c_dtype);
    CUBLAS_TRY(cublasLtMatmul(
        l->cublaslt, &d.product, &one, (const char *)g->b.data + g->b.offset * in_size, &d.first,
        (const char *)g->a.data + g->a.offset * in_size, &d.second, &beta, c, &d.result, c,
        &d.result, &chosen.algorithm, workspace, (size_t)chosen.workspace, cuda_stream(x)));
    return OK;
}
