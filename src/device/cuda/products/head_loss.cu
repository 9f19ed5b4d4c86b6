/* head_loss.cu: output projection and cross entropy over chunks of rows, so that only one chunk's
 * logits exist at a time, in workspace.
 *
 * For each chunk of rows of x:
 *
 *     logits = x_chunk w^T      [rows, V], in x's dtype, `row` elements apart (V rounded up)
 *     loss of each row in f32; its gradient with respect to the logits over them
 *     dw += logits^T x_chunk
 *     dx_chunk = logits w       dx may lie over x: this chunk of x is not read again
 *
 * and at the end the row losses are summed in double in a fixed order. Workspace:
 *
 *     | logits [chunk_rows, row] x's dtype | losses [n_rows] f32 | weights | sums | products' own |
 *
 * Rows of a chunk. Logits in 16 bits halve what a chunk moves; the price is one rounding of each
 * logit, as where the projection is an op of its own. Beside its three products (2 rows V C FLOP
 * each) a chunk costs a pass over the logits (read, read again from the cache, written: an eighth
 * of the time) and, from the second on, reading and writing dw (8 V C bytes in f32). The product
 * that makes dw does rows / 4 FLOP for each of those bytes, and an H200 some 200 in the time of
 * one, part of them while it computes. Measured there with the fastest algorithms (V 50304, C 768,
 * 32768 rows in all): the products take 9.3 ms in chunks of 2048 rows, 9.2 of 2816, 9.1 of 4096 and
 * 9.0 in one of 3.1 GiB. Rows so few that their logits stay in the cache (256 of V 50304) would
 * make the pass cheap and dw's bytes three times as expensive as its GEMM. So a chunk is a quarter
 * of the rows, but 2048 at least and 2816 at most: GPT-2 124M with 32 x 1024 tokens has 12 chunks
 * of 270 MiB.
 *
 * A dw of 16 bits takes two chunks as it is: the first one's sum is rounded once on the way. More
 * chunks are summed in f32 in workspace (V C 4 bytes: 147 MiB for GPT-2, 2.0 GiB for Qwen2.5 7B)
 * and rounded at the end; unless two halves of all rows take no more memory than that (2.3 GiB of
 * logits where chunks with sums take 2.8, Qwen2.5 7B with 16 x 1024 tokens), which then also saves
 * reading and writing the sums.
 *
 * A vocabulary that is no multiple of 8 words (50257) would send all three products to kernels that
 * load single elements, 4 times slower (55 ms where 50304 takes 13). The products run over V
 * rounded up to 64 words instead: over a copy of w with zero rows at its end (V C elements, 77 MB
 * each way for GPT-2: 40 us), whose logits count for nothing and whose gradients are zero. So the
 * vectors of 8 that the rows are read in hold nothing that no product has written. dw has no room
 * for rows beyond V: its last words, with those, go through a small sum of their own.
 *
 * Where cuBLASLt does not take every product of a call, plain kernels take all of them.
 *
 * Targets cannot be refused from a stream: one outside the vocabulary makes the loss NaN, which the
 * trainer stops at. The loader checks them before.
 */
#include "device/cuda/declared/head_loss.h"
#include "device/cuda/products/gemm.h"
#include "device/cuda/products/head_rows.cuh"
#include "ops/layer_support.h"

enum { ADD_THREADS = 256 };

/* ---- sums of dw ------------------------------------------------------------------------------ */

/* out[i] = sums[i] (+ before[i], which may be out) */
template <typename T>
static __global__ void __launch_bounds__(ADD_THREADS)
    add_sums(T *out, const T *before, const float *sums, int64_t n)
{
    for (int64_t i = grid_thread(); i < n; i += grid_threads())
        out[i] = from_f32<T>(sums[i] + (before ? to_f32(before[i]) : 0.0f));
}

/* ---- chunks --------------------------------------------------------------------------------- */

/* The row stays in shared memory where two blocks' rows fit side by side. */
static bool keeps_row(const struct kernel_env *env, const struct head_sizes *s)
{
    const struct gpu_model *gpu = env->gpu;
    const int64_t beside = 2048; /* of each block: what the system takes, and the sums */
    return s->row_bytes + beside <= gpu->shared_per_block_optin &&
           2 * (s->row_bytes + beside) <= gpu->shared_per_multiprocessor &&
           gpu->threads_per_multiprocessor >= 2 * THREADS;
}

template <typename T, bool GRADIENT, bool KEPT, bool CAPPED>
static enum status launch_rows(const struct kernel_ctx *x, const struct head_sizes *s,
                               const struct head_work *w, const int32_t *targets,
                               const float *d_loss, int64_t first, int64_t n, struct row_rule rule)
{
    size_t n_bytes = KEPT ? (size_t)s->row_bytes : 0;
    if (KEPT)
        TRY(cuda_allow_shared(row_losses<T, GRADIENT, KEPT, CAPPED>, (int)n_bytes));
    row_losses<T, GRADIENT, KEPT, CAPPED><<<(unsigned)n, THREADS, n_bytes, cuda_stream(x)>>>(
        (T *)w->logits, targets, d_loss, w->losses + first, rule);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

template <bool GRADIENT, bool CAPPED>
static enum status losses_with(const struct kernel_ctx *x, const struct op_call *c,
                               const struct head_sizes *s, const struct head_work *w, int64_t first,
                               int64_t n)
{
    struct row_rule rule = {s->row,
                            (int)s->n_words,
                            (int)s->n_products,
                            call_int(c, HEAD_LOSS_IGNORE),
                            (float)call_float(c, HEAD_LOSS_SMOOTHING),
                            (float)call_float(c, HEAD_LOSS_Z),
                            (float)call_float(c, HEAD_LOSS_CAP)};
    const int32_t *targets = (const int32_t *)c->in[2].data + first;
    const float *d_loss = GRADIENT ? (const float *)c->in[3].data : NULL;
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        if constexpr (GRADIENT && sizeof(T) == 2) {
            if (keeps_row(&x->env, s))
                return launch_rows<T, true, true, CAPPED>(x, s, w, targets, d_loss, first, n, rule);
        }
        return launch_rows<T, GRADIENT, false, CAPPED>(x, s, w, targets, d_loss, first, n, rule);
    });
    return OK;
}

template <bool GRADIENT>
static enum status losses_of(const struct kernel_ctx *x, const struct op_call *c,
                             const struct head_sizes *s, const struct head_work *w, int64_t first,
                             int64_t n)
{
    return call_float(c, HEAD_LOSS_CAP) > 0.0 ? losses_with<GRADIENT, true>(x, c, s, w, first, n)
                                              : losses_with<GRADIENT, false>(x, c, s, w, first, n);
}

static enum status store_losses(const struct kernel_ctx *x, const struct op_call *c,
                                const struct head_sizes *s, const struct head_work *w)
{
    sum_losses<<<1, SUM_THREADS, 0, cuda_stream(x)>>>(
        w->losses, (const int32_t *)c->in[2].data, s->n_rows, call_int(c, HEAD_LOSS_IGNORE),
        (float *)c->out[0].data, (float *)c->out[1].data);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* dw of the words that were summed in workspace. */
static enum status store_sums(const struct kernel_ctx *x, const struct op_call *c,
                              const struct head_sizes *s, const struct head_work *w)
{
    int64_t at = s->n_main * s->n_columns, n = (s->n_words - s->n_main) * s->n_columns;
    unsigned grid = grid_for(n, ADD_THREADS, grid_full(&x->env, ADD_THREADS));
    if (n == 0 || !s->makes_dw)
        return OK;
    CUDA_DISPATCH_FLOAT(c->out[3].dtype, T, {
        const T *before = call_has(c, 4) ? (const T *)c->in[4].data + at : NULL;
        add_sums<T><<<grid, ADD_THREADS, 0, cuda_stream(x)>>>((T *)c->out[3].data + at, before,
                                                              w->sums, n);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* w and rows of zeros, where the products want a rounder number of words than it has. */
static enum status copy_weights(const struct kernel_ctx *x, const struct op_call *c,
                                const struct head_sizes *s, const struct head_work *w)
{
    if (!s->padded)
        return OK;
    size_t n_bytes = (size_t)tensor_bytes(&c->in[1]);
    size_t n_zeros =
        (size_t)((s->row - s->n_words) * s->n_columns) * (size_t)dtype_size(c->in[1].dtype);
    CUDA_TRY(cudaMemcpyAsync(w->weights, c->in[1].data, n_bytes, cudaMemcpyDeviceToDevice,
                             cuda_stream(x)));
    CUDA_TRY(cudaMemsetAsync((char *)w->weights + n_bytes, 0, n_zeros, cuda_stream(x)));
    return OK;
}

/* ---- who computes the products --------------------------------------------------------------- */

struct library {
    static enum status run(const struct kernel_ctx *x, void *workspace, const struct cuda_gemm *g)
    {
        return cuda_gemm(x, workspace, g);
    }
};

struct plain {
    static enum status run(const struct kernel_ctx *x, void *workspace, const struct cuda_gemm *g)
    {
        (void)workspace;
        return cuda_gemm_tiled(x, g);
    }
};

template <typename WAY>
static enum status forward(const struct kernel_ctx *x, const struct op_call *c)
{
    struct head_sizes s = head_sizes_of(c, false);
    struct head_work w = head_work_of(c, &s, x->workspace);
    TRY(copy_weights(x, c, &s, &w));
    for (int64_t first = 0; first < s.n_rows; first += s.chunk_rows) {
        int64_t n = s.n_rows - first < s.chunk_rows ? s.n_rows - first : s.chunk_rows;
        struct cuda_gemm logits = head_logits_product(c, &s, &w, first, n);
        TRY(WAY::run(x, w.gemm, &logits));
        TRY(losses_of<false>(x, c, &s, &w, first, n));
    }
    return store_losses(x, c, &s, &w);
}

template <typename WAY>
static enum status gradient(const struct kernel_ctx *x, const struct op_call *c)
{
    struct head_sizes s = head_sizes_of(c, true);
    struct head_work w = head_work_of(c, &s, x->workspace);
    if (call_has(c, 4) && c->in[4].data != c->out[3].data && s.n_main > 0)
        CUDA_TRY(cudaMemcpyAsync(c->out[3].data, c->in[4].data,
                                 (size_t)(s.n_main * s.n_columns * dtype_size(c->out[3].dtype)),
                                 cudaMemcpyDeviceToDevice, cuda_stream(x)));
    TRY(copy_weights(x, c, &s, &w));
    for (int64_t first = 0; first < s.n_rows; first += s.chunk_rows) {
        int64_t n = s.n_rows - first < s.chunk_rows ? s.n_rows - first : s.chunk_rows;
        struct cuda_gemm logits = head_logits_product(c, &s, &w, first, n),
                         after[HEAD_PRODUCTS_MOST];
        int n_after = head_gradient_products(c, &s, &w, first, n, after);
        TRY(WAY::run(x, w.gemm, &logits));
        TRY(losses_of<true>(x, c, &s, &w, first, n));
        for (int i = 0; i < n_after; i++)
            TRY(WAY::run(x, w.gemm, &after[i]));
    }
    TRY(store_sums(x, c, &s, &w));
    return store_losses(x, c, &s, &w);
}

CUDA_RUN(linear_cross_entropy, cublaslt, forward<library>)
CUDA_RUN(linear_cross_entropy, plain, forward<plain>)

CUDA_RUN(linear_cross_entropy_grad, cublaslt, gradient<library>)
CUDA_RUN(linear_cross_entropy_grad, plain, gradient<plain>)

CUDA_RUN(linear_cross_entropy_grad_input, cublaslt, gradient<library>)
CUDA_RUN(linear_cross_entropy_grad_input, plain, gradient<plain>)
