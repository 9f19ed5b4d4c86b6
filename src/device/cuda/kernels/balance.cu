/* balance.cu: what the losses of routing are made of. Sums have one order: of lanes, then of
 * threads. */
#include "device/cuda/support/support.cuh"
#include "ops/expert_support.h"

static constexpr int THREADS = 256, BLOCK = 1024;

/* ---- loads ----------------------------------------------------------------------------------- */

static __global__ void sizes_kernel(float *y, const int32_t *offsets, int64_t n)
{
    for (int64_t e = grid_thread(); e < n; e += grid_threads())
        y[e] = (float)(offsets[e + 1] - offsets[e]);
}

static enum status sizes_elements(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->out[0].shape);
    sizes_kernel<<<grid_for(n, THREADS), THREADS, 0, cuda_stream(x)>>>(
        (float *)c->out[0].data, (const int32_t *)c->in[0].data, n);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static __global__ void __launch_bounds__(BLOCK)
    count_kernel(float *y, const int32_t *targets, int64_t n, int64_t ignored)
{
    __shared__ int scratch[WARP];
    int count = 0;
    for (int64_t i = threadIdx.x; i < n; i += BLOCK)
        count += targets[i] != ignored;
    count = block_sum<BLOCK>(count, scratch);
    if (threadIdx.x == 0)
        *y = (float)count;
}

static enum status count_block(const struct kernel_ctx *x, const struct op_call *c)
{
    count_kernel<<<1, BLOCK, 0, cuda_stream(x)>>>((float *)c->out[0].data,
                                                  (const int32_t *)c->in[0].data,
                                                  shape_elems(&c->in[0].shape), call_int(c, 0));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static __global__ void __launch_bounds__(BLOCK)
    balance_kernel(float *y, const float *p, const float *loads, const float *count, int64_t n,
                   double factor)
{
    __shared__ double scratch[WARP];
    double sum = 0.0;
    for (int64_t e = threadIdx.x; e < n; e += BLOCK)
        sum += (double)p[e] * (double)loads[e];
    sum = block_sum<BLOCK>(sum, scratch);
    if (threadIdx.x == 0)
        *y = (float)(factor * (double)*count * sum);
}

static enum status balance_block(const struct kernel_ctx *x, const struct op_call *c)
{
    balance_kernel<<<1, BLOCK, 0, cuda_stream(x)>>>(
        (float *)c->out[0].data, (const float *)c->in[0].data, (const float *)c->in[1].data,
        (const float *)c->in[2].data, shape_elems(&c->in[0].shape), call_float(c, BALANCE_FACTOR));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- squares of log-sum-exps ----------------------------------------------------------------- */

/* Of n logits, by a warp. */
static __device__ float warp_lse(const float *z, int64_t n)
{
    float top = -INFINITY, sum = 0.0f;
    for (int64_t e = threadIdx.x % WARP; e < n; e += WARP)
        top = fmaxf(top, z[e]);
    top = warp_max(top);
    for (int64_t e = threadIdx.x % WARP; e < n; e += WARP)
        sum += expf(z[e] - top);
    return top + logf(warp_sum(sum));
}

static __global__ void __launch_bounds__(THREADS)
    squares_kernel(float *squares, const float *z, int64_t n_rows, int64_t n)
{
    const int64_t row = grid_thread() / WARP;
    if (row >= n_rows)
        return;
    const float lse = warp_lse(z + row * n, n);
    if (threadIdx.x % WARP == 0)
        squares[row] = lse * lse;
}

static __global__ void __launch_bounds__(BLOCK)
    sum_squares_kernel(float *y, const float *squares, const float *count, int64_t n, double factor)
{
    __shared__ double scratch[WARP];
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < n; i += BLOCK)
        sum += (double)squares[i];
    sum = block_sum<BLOCK>(sum, scratch);
    if (threadIdx.x == 0)
        *y = (float)(factor * (double)*count * sum);
}

static enum status square_warps(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n_rows = c->in[0].shape.dim[0], n = c->in[0].shape.dim[1];
    float *squares = (float *)x->workspace;
    squares_kernel<<<grid_for(n_rows, THREADS / WARP), THREADS, 0, cuda_stream(x)>>>(
        squares, (const float *)c->in[0].data, n_rows, n);
    sum_squares_kernel<<<1, BLOCK, 0, cuda_stream(x)>>>((float *)c->out[0].data, squares,
                                                        (const float *)c->in[1].data, n_rows,
                                                        call_float(c, BALANCE_FACTOR));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* dz may be z: a lane writes what it has read, after the sums. */
static __global__ void __launch_bounds__(THREADS)
    square_grad_kernel(float *dz, const float *dy, const float *z, const float *count,
                       int64_t n_rows, int64_t n, float factor)
{
    const int64_t row = grid_thread() / WARP;
    if (row >= n_rows)
        return;
    const float lse = warp_lse(z + row * n, n);
    const float each = 2.0f * *dy * factor * *count * lse;
    for (int64_t e = threadIdx.x % WARP; e < n; e += WARP)
        dz[row * n + e] = each * expf(z[row * n + e] - lse);
}

static enum status square_grad_warps(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n_rows = c->in[1].shape.dim[0], n = c->in[1].shape.dim[1];
    square_grad_kernel<<<grid_for(n_rows, THREADS / WARP), THREADS, 0, cuda_stream(x)>>>(
        (float *)c->out[0].data, (const float *)c->in[0].data, (const float *)c->in[1].data,
        (const float *)c->in[2].data, n_rows, n, (float)call_float(c, BALANCE_FACTOR));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(group_sizes, elements, sizes_elements)

CUDA_RUN(count_labels, block, count_block)

CUDA_RUN(balance_loss, block, balance_block)

CUDA_RUN(square_lse, warps, square_warps)

CUDA_RUN(square_lse_grad, warps, square_grad_warps)
