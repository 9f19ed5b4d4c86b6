/* expert_rows.cu: rows of tokens brought into the order of their experts, and back. A block for
 * each row that is written; 16 bytes at a time where rows begin at a multiple of that. */
#include "device/cuda/support/support.cuh"
#include "ops/expert_support.h"

static constexpr int THREADS = 128;

struct rows {
    const int32_t *index; /* order of rows, or place of slots */
    const float *weights; /* of slots; NULL: 1 */
    int64_t n_columns, slots;
};

/* ---- dispatch -------------------------------------------------------------------------------- */

template <int N, typename T>
static __global__ void __launch_bounds__(THREADS)
    dispatch_kernel(T *y, const T *__restrict__ x, const struct rows r)
{
    const int32_t slot = r.index[blockIdx.x];
    const float weight = r.weights ? r.weights[slot] : 1.0f;
    const T *from = x + slot / r.slots * r.n_columns;
    T *to = y + (int64_t)blockIdx.x * r.n_columns;
    for (int64_t j = (int64_t)threadIdx.x * N; j < r.n_columns; j += THREADS * N) {
        float v[N];
        load_f32(v, from + j);
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] *= weight;
        store_f32(to + j, v);
    }
}

template <typename T>
static void launch_dispatch(const struct kernel_ctx *x, const struct op_call *c,
                            const struct rows &r)
{
    constexpr int N = per_16_bytes<T>::n;
    T *y = (T *)c->out[0].data;
    const T *in = (const T *)c->in[0].data;
    unsigned grid = (unsigned)c->out[0].shape.dim[0];
    if (r.n_columns % N == 0 && is_aligned(y, 16) && is_aligned(in, 16))
        dispatch_kernel<N, T><<<grid, THREADS, 0, cuda_stream(x)>>>(y, in, r);
    else
        dispatch_kernel<1, T><<<grid, THREADS, 0, cuda_stream(x)>>>(y, in, r);
}

static enum status dispatch_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    struct rows r = {};
    r.index = (const int32_t *)c->in[1].data;
    r.weights = call_has(c, 3) ? (const float *)c->in[3].data : NULL;
    r.n_columns = c->in[0].shape.dim[1];
    r.slots = c->out[0].shape.dim[0] / c->in[0].shape.dim[0];
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, launch_dispatch<T>(x, c, r));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- combine --------------------------------------------------------------------------------- */

template <int N, typename T>
static __global__ void __launch_bounds__(THREADS)
    combine_kernel(T *y, const T *__restrict__ x, const struct rows r)
{
    const int64_t first = (int64_t)blockIdx.x * r.slots;
    T *to = y + (int64_t)blockIdx.x * r.n_columns;
    for (int64_t j = (int64_t)threadIdx.x * N; j < r.n_columns; j += THREADS * N) {
        float sum[N] = {};
        for (int64_t slot = first; slot < first + r.slots; slot++) {
            const float weight = r.weights ? r.weights[slot] : 1.0f;
            float v[N];
            load_f32(v, x + r.index[slot] * r.n_columns + j);
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] += weight * v[k];
        }
        store_f32(to + j, sum);
    }
}

template <typename T>
static void launch_combine(const struct kernel_ctx *x, const struct op_call *c,
                           const struct rows &r)
{
    constexpr int N = per_16_bytes<T>::n;
    T *y = (T *)c->out[0].data;
    const T *in = (const T *)c->in[0].data;
    unsigned grid = (unsigned)c->out[0].shape.dim[0];
    if (r.n_columns % N == 0 && is_aligned(y, 16) && is_aligned(in, 16))
        combine_kernel<N, T><<<grid, THREADS, 0, cuda_stream(x)>>>(y, in, r);
    else
        combine_kernel<1, T><<<grid, THREADS, 0, cuda_stream(x)>>>(y, in, r);
}

static enum status combine_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    struct rows r = {};
    r.index = (const int32_t *)c->in[2].data;
    r.weights = call_has(c, 3) ? (const float *)c->in[3].data : NULL;
    r.n_columns = c->in[0].shape.dim[1];
    r.slots = call_int(c, COMBINE_SLOTS);
    if (shape_elems(&c->out[0].shape) > 0)
        CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, launch_combine<T>(x, c, r));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- gradient of weights --------------------------------------------------------------------- */

template <int N, typename T>
static __global__ void __launch_bounds__(THREADS)
    weights_kernel(float *dw, const T *__restrict__ dy, const T *__restrict__ x, int64_t n_slots,
                   const struct rows r)
{
    const int64_t slot = grid_thread() / WARP;
    if (slot >= n_slots)
        return;
    const T *a = dy + slot / r.slots * r.n_columns, *b = x + r.index[slot] * r.n_columns;
    float sum = 0.0f;
    for (int64_t j = (int64_t)(threadIdx.x % WARP) * N; j < r.n_columns; j += WARP * N) {
        float u[N], v[N];
        load_f32(u, a + j);
        load_f32(v, b + j);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum += u[k] * v[k];
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        dw[slot] = sum;
}

template <typename T>
static void launch_weights(const struct kernel_ctx *x, const struct op_call *c,
                           const struct rows &r)
{
    constexpr int N = per_16_bytes<T>::n;
    float *dw = (float *)c->out[0].data;
    const T *dy = (const T *)c->in[0].data, *in = (const T *)c->in[1].data;
    int64_t n_slots = shape_elems(&c->out[0].shape);
    unsigned grid = grid_for(n_slots, THREADS / WARP);
    if (r.n_columns % N == 0 && is_aligned(dy, 16) && is_aligned(in, 16))
        weights_kernel<N, T><<<grid, THREADS, 0, cuda_stream(x)>>>(dw, dy, in, n_slots, r);
    else
        weights_kernel<1, T><<<grid, THREADS, 0, cuda_stream(x)>>>(dw, dy, in, n_slots, r);
}

static enum status weights_warps(const struct kernel_ctx *x, const struct op_call *c)
{
    struct rows r = {};
    r.index = (const int32_t *)c->in[3].data;
    r.n_columns = c->in[0].shape.dim[1];
    r.slots = c->out[0].shape.dim[1];
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, launch_weights<T>(x, c, r));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(dispatch, rows, dispatch_rows)

CUDA_RUN(combine, rows, combine_rows)

CUDA_RUN(combine_grad_weights, warps, weights_warps)
