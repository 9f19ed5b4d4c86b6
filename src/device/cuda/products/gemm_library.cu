/* gemm_library.cu: products described to cuBLASLt, its proposals, and running one of them. */
#include "device/cuda/products/gemm_library.cuh"

#include <string.h>

/* ---- the key -------------------------------------------------------------------------------- */

/* Largest power of two, up to GEMM_ALIGN, that divides the byte offset. */
static int32_t alignment(int64_t offset, enum dtype d)
{
    int64_t n_bytes = offset * dtype_size(d);
    int32_t align = GEMM_ALIGN;
    while (n_bytes % align != 0)
        align /= 2;
    return align;
}

static bool wants_tf32(const struct cuda_libraries *l, const struct cuda_gemm *g)
{
    return l->tf32 && g->dtype == DTYPE_F32;
}

struct gemm_key gemm_key_of(const struct cuda_libraries *l, const struct cuda_gemm *g)
{
    struct gemm_key k;
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
    k.flags = (g->a.transposed ? GEMM_A_TRANSPOSED : 0) |
              (g->b.transposed ? GEMM_B_TRANSPOSED : 0) | (g->add || g->residual ? GEMM_ADD : 0) |
              (g->bias ? GEMM_BIAS : 0) | (wants_tf32(l, g) ? GEMM_TF32 : 0);
    return k;
}

/* ---- descriptions --------------------------------------------------------------------------- */

static cudaDataType_t library_type(enum dtype d)
{
    return d == DTYPE_F32 ? CUDA_R_32F : d == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

template <typename V>
static cublasStatus_t set(cublasLtMatmulDescOpaque_t *d, cublasLtMatmulDescAttributes_t a, V value)
{
    return cublasLtMatmulDescSetAttribute(d, a, &value, sizeof(value));
}

/* The bias has the result's dtype, which is the library's default. */
static enum status describe_bias(const struct cuda_gemm *g, cublasLtMatmulDescOpaque_t *d)
{
    CUBLAS_TRY(set(d, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
    CUBLAS_TRY(set(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g->bias));
    return OK;
}

static enum status describe(const struct cuda_libraries *l, const struct cuda_gemm *g,
                            bool bias_inside, struct gemm_described *out)
{
    cublasOperation_t first = g->b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = g->a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cudaDataType_t in = library_type(g->dtype), result = library_type(g->c_dtype);
    uint64_t first_rows = (uint64_t)(g->b.transposed ? g->k : g->n);
    uint64_t first_columns = (uint64_t)(g->b.transposed ? g->n : g->k);
    uint64_t second_rows = (uint64_t)(g->a.transposed ? g->m : g->k);
    uint64_t second_columns = (uint64_t)(g->a.transposed ? g->k : g->m);
    cublasComputeType_t compute =
        wants_tf32(l, g) ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    CUBLAS_TRY(cublasLtMatmulDescInit(&out->product, compute, CUDA_R_32F));
    CUBLAS_TRY(set(&out->product, CUBLASLT_MATMUL_DESC_TRANSA, first));
    CUBLAS_TRY(set(&out->product, CUBLASLT_MATMUL_DESC_TRANSB, second));
    CUBLAS_TRY(cublasLtMatrixLayoutInit(&out->first, in, first_rows, first_columns, g->b.row));
    CUBLAS_TRY(cublasLtMatrixLayoutInit(&out->second, in, second_rows, second_columns, g->a.row));
    CUBLAS_TRY(
        cublasLtMatrixLayoutInit(&out->result, result, (uint64_t)g->n, (uint64_t)g->m, g->c_row));
    return bias_inside ? describe_bias(g, &out->product) : OK;
}

template <typename V>
static cublasStatus_t set(cublasLtMatmulPreferenceOpaque_t *p,
                          cublasLtMatmulPreferenceAttributes_t a, V value)
{
    return cublasLtMatmulPreferenceSetAttribute(p, a, &value, sizeof(value));
}

static enum status prefer(const struct cuda_libraries *l, const struct cuda_gemm *g,
                          const struct gemm_key *k, cublasLtMatmulPreferenceOpaque_t *p)
{
    uint64_t most = (uint64_t)gemm_workspace_most(l, g);
    uint32_t result = (uint32_t)k->c_align;
    /* Parts of a split sum are added in f32, never in a 16-bit result, and in a fixed order. */
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (g->c_dtype == DTYPE_F32)
        schemes |= CUBLASLT_REDUCTION_SCHEME_INPLACE;
    CUBLAS_TRY(cublasLtMatmulPreferenceInit(p));
    CUBLAS_TRY(set(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most));
    CUBLAS_TRY(set(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes));
    CUBLAS_TRY(set(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)k->b_align));
    CUBLAS_TRY(set(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)k->a_align));
    CUBLAS_TRY(set(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, result));
    CUBLAS_TRY(set(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, result));
    return OK;
}

/* The library looks at the alignment of the bias's address in a description. The choice must not
 * depend on addresses: a bias is a buffer's start, so it is shown such a one. */
enum status gemm_propose(const struct cuda_libraries *l, const struct cuda_gemm *g,
                         bool bias_inside, cublasLtMatmulHeuristicResult_t *out, int n_most, int *n)
{
    struct gemm_described d;
    cublasLtMatmulPreferenceOpaque_t preference;
    struct gemm_key key = gemm_key_of(l, g);
    struct cuda_gemm shown = *g;
    shown.bias = g->bias ? cuda_gemm_planned(NULL) : NULL;
    *n = 0;
    TRY(describe(l, &shown, bias_inside, &d));
    TRY(prefer(l, g, &key, &preference));
    cublasStatus_t answer =
        cublasLtMatmulAlgoGetHeuristic(l->cublaslt, &d.product, &d.first, &d.second, &d.result,
                                       &d.result, &preference, n_most, out, n);
    if (answer != CUBLAS_STATUS_SUCCESS || *n == 0 || out[0].state != CUBLAS_STATUS_SUCCESS)
        *n = 0;
    return OK;
}

void gemm_choice_set(struct gemm_choice *c, bool bias_inside,
                     const cublasLtMatmulHeuristicResult_t *r)
{
    c->found = true;
    c->bias_inside = bias_inside;
    c->algorithm = r->algo;
    c->workspace = ceil_div((int64_t)r->workspaceSize, GEMM_ALIGN) * GEMM_ALIGN;
}

void gemm_choice_take(struct gemm_choice *c, const struct gemm_choice *from)
{
    c->found = from->found;
    c->bias_inside = from->bias_inside;
    c->algorithm = from->algorithm;
    c->workspace = from->workspace;
}

/* ---- running -------------------------------------------------------------------------------- */

static enum status run_in_library(const struct cuda_libraries *l, const struct cuda_gemm *g,
                                  const struct gemm_choice *choice, void *workspace,
                                  cudaStream_t stream)
{
    struct gemm_described d;
    TRY(describe(l, g, choice->bias_inside, &d));
    const float one = 1.0f, beta = g->add || g->residual ? 1.0f : 0.0f;
    int64_t in_size = dtype_size(g->dtype), c_bytes = g->c_offset * dtype_size(g->c_dtype);
    const char *before = (const char *)(g->residual ? g->residual : g->c);
    CUBLAS_TRY(cublasLtMatmul(l->cublaslt, &d.product, &one,
                              (const char *)g->b.data + g->b.offset * in_size, &d.first,
                              (const char *)g->a.data + g->a.offset * in_size, &d.second, &beta,
                              before + c_bytes, &d.result, (char *)g->c + c_bytes, &d.result,
                              &choice->algorithm, workspace, (size_t)choice->workspace, stream));
    return OK;
}

enum status gemm_run(const struct kernel_ctx *x, void *workspace, const struct cuda_gemm *g,
                     const struct gemm_choice *c)
{
    TRY(run_in_library(cuda_libraries_of(&x->env), g, c, workspace, cuda_stream(x)));
    return g->bias && !c->bias_inside ? gemm_add_bias(x, g) : OK;
}
