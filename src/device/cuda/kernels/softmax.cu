/* softmax.cu: softmax along the last axis, and its gradient. A warp takes a short row, a block a
 * long one; a row is read once for each pass and stays in the cache between them. */
#include "device/cuda/support/support.cuh"

static constexpr int THREADS = 256, SHORT_ROW = 2048;

/* y may be x: an element is read and written by one thread, after the sums. */
template <int G, typename T>
static __global__ void __launch_bounds__(THREADS)
    softmax_kernel(T *y, const T *x, int64_t n_rows, int64_t n)
{
    __shared__ float scratch[WARP];
    const int64_t row = grid_thread() / G, first = threadIdx.x % G;
    if (row >= n_rows)
        return;
    const T *from = x + row * n;
    float top = -INFINITY, sum = 0.0f;
    for (int64_t i = first; i < n; i += G)
        top = fmaxf(top, to_f32(from[i]));
    top = group_max<G>(top, scratch);
    for (int64_t i = first; i < n; i += G)
        sum += expf(to_f32(from[i]) - top);
    const float share = 1.0f / group_sum<G>(sum, scratch);
    for (int64_t i = first; i < n; i += G)
        y[row * n + i] = from_f32<T>(expf(to_f32(from[i]) - top) * share);
}

/* dx may be dy or y. */
template <int G, typename T>
static __global__ void __launch_bounds__(THREADS)
    softmax_grad_kernel(T *dx, const T *dy, const T *y, int64_t n_rows, int64_t n)
{
    __shared__ float scratch[WARP];
    const int64_t row = grid_thread() / G, first = threadIdx.x % G;
    if (row >= n_rows)
        return;
    float dot = 0.0f;
    for (int64_t i = row * n + first; i < (row + 1) * n; i += G)
        dot += to_f32(dy[i]) * to_f32(y[i]);
    dot = group_sum<G>(dot, scratch);
    for (int64_t i = row * n + first; i < (row + 1) * n; i += G)
        dx[i] = from_f32<T>(to_f32(y[i]) * (to_f32(dy[i]) - dot));
}

static enum status softmax_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_last(&c->out[0].shape), n_rows = shape_rows(&c->out[0].shape);
    CUDA_DISPATCH_FLOAT(c->out[0].dtype, T, {
        T *y = (T *)c->out[0].data;
        const T *in = (const T *)c->in[0].data;
        if (n <= SHORT_ROW)
            softmax_kernel<WARP, T>
                <<<grid_for(n_rows, THREADS / WARP), THREADS, 0, cuda_stream(x)>>>(y, in, n_rows,
                                                                                   n);
        else
            softmax_kernel<THREADS, T>
                <<<grid_for(n_rows, 1), THREADS, 0, cuda_stream(x)>>>(y, in, n_rows, n);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static enum status softmax_grad_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_last(&c->out[0].shape), n_rows = shape_rows(&c->out[0].shape);
    CUDA_DISPATCH_FLOAT(c->out[0].dtype, T, {
        T *dx = (T *)c->out[0].data;
        const T *dy = (const T *)c->in[0].data;
        const T *y = (const T *)c->in[1].data;
        if (n <= SHORT_ROW)
            softmax_grad_kernel<WARP, T>
                <<<grid_for(n_rows, THREADS / WARP), THREADS, 0, cuda_stream(x)>>>(dx, dy, y,
                                                                                   n_rows, n);
        else
            softmax_grad_kernel<THREADS, T>
                <<<grid_for(n_rows, 1), THREADS, 0, cuda_stream(x)>>>(dx, dy, y, n_rows, n);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(softmax, rows, softmax_rows)

CUDA_RUN(softmax_grad, rows, softmax_grad_rows)
