/* class_loss.cu: softmax cross-entropy of rows of logits with labels, and its gradient. A warp
 * takes a row; of short rows a thread takes one by itself. */
#include "device/cuda/support/support.cuh"

static constexpr int THREADS = 256, SHORT_ROW = 32;

/* ---- forward --------------------------------------------------------------------------------- */

/* The largest element seen and where it was first; NaN is larger than anything. */
struct top {
    float value;
    int64_t at;
};

static __device__ __forceinline__ bool is_before(const struct top &a, const struct top &b)
{
    if (isnan(a.value) != isnan(b.value))
        return isnan(a.value);
    bool equal = a.value == b.value || isnan(a.value);
    return equal ? a.at < b.at : a.value > b.value;
}

template <int LANES> static __device__ __forceinline__ struct top top_of(struct top t)
{
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) {
        const struct top other = {__shfl_xor_sync(0xffffffffu, t.value, step),
                                  __shfl_xor_sync(0xffffffffu, t.at, step)};
        if (is_before(other, t))
            t = other;
    }
    return t;
}

template <int LANES> static __device__ __forceinline__ float row_sum(float v)
{
    if constexpr (LANES == WARP)
        return warp_sum(v);
    else
        return v;
}

template <typename T> struct loss_args {
    const T *x;
    const int32_t *labels;
    float *loss, *lse, *hit;
    int64_t n_rows, n;
    float smoothing;
};

template <int LANES, typename T>
static __global__ void __launch_bounds__(THREADS) loss_kernel(const struct loss_args<T> a)
{
    const int64_t row = grid_thread() / LANES, lane = threadIdx.x % LANES;
    if (row >= a.n_rows)
        return;
    const T *x = a.x + row * a.n;
    struct top t = {-INFINITY, INT64_MAX};
    float sum = 0.0f, total = 0.0f;
    for (int64_t j = lane; j < a.n; j += LANES) {
        const struct top one = {to_f32(x[j]), j};
        sum += one.value;
        if (is_before(one, t))
            t = one;
    }
    t = top_of<LANES>(t);
    for (int64_t j = lane; j < a.n; j += LANES)
        total += expf(to_f32(x[j]) - t.value);
    sum = row_sum<LANES>(sum);
    const float lse = t.value + logf(row_sum<LANES>(total));
    if (lane != 0)
        return;
    const int32_t label = a.labels[row];
    const float due = label < 0 ? 0.0f : to_f32(x[label]);
    const float loss = lse - (1.0f - a.smoothing) * due - a.smoothing * sum / (float)a.n;
    a.loss[row] = label < 0 ? 0.0f : loss;
    a.lse[row] = lse;
    a.hit[row] = label >= 0 && t.at == label ? 1.0f : 0.0f;
}

/* ---- gradient -------------------------------------------------------------------------------- */

template <typename T> struct grad_args {
    T *dx;
    const T *x;
    const float *dy, *lse;
    const int32_t *labels;
    int64_t n_rows, n;
    float smoothing;
};

/* dx may be x. */
template <int LANES, typename T>
static __global__ void __launch_bounds__(THREADS) grad_kernel(const struct grad_args<T> a)
{
    const int64_t row = grid_thread() / LANES, lane = threadIdx.x % LANES;
    if (row >= a.n_rows)
        return;
    const int32_t label = a.labels[row];
    const float dy = a.dy[row], lse = a.lse[row], rest = a.smoothing / (float)a.n;
    for (int64_t j = row * a.n + lane; j < (row + 1) * a.n; j += LANES) {
        const float due = (j - row * a.n == label ? 1.0f - a.smoothing : 0.0f) + rest;
        const float d = dy * (expf(to_f32(a.x[j]) - lse) - due);
        a.dx[j] = from_f32<T>(label < 0 ? 0.0f : d);
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

static enum status loss_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        struct loss_args<T> a = {
        };
        a.x = (const T *)c->in[0].data;
        a.labels = (const int32_t *)c->in[1].data;
        a.loss = (float *)c->out[0].data;
        a.lse = (float *)c->out[1].data;
        a.hit = (float *)c->out[2].data;
        a.n_rows = shape_rows(&c->in[0].shape);
        a.n = shape_last(&c->in[0].shape);
        a.smoothing = (float)call_float(c, 0);
        if (a.n < SHORT_ROW)
            loss_kernel<1, T><<<grid_for(a.n_rows, THREADS), THREADS, 0, cuda_stream(x)>>>(a);
        else
            loss_kernel<WARP, T>
                <<<grid_for(a.n_rows, THREADS / WARP), THREADS, 0, cuda_stream(x)>>>(a);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static enum status grad_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    CUDA_DISPATCH_FLOAT(c->in[1].dtype, T, {
        struct grad_args<T> a = {
        };
        a.dx = (T *)c->out[0].data;
        a.dy = (const float *)c->in[0].data;
        a.x = (const T *)c->in[1].data;
        a.labels = (const int32_t *)c->in[2].data;
        a.lse = (const float *)c->in[3].data;
        a.n_rows = shape_rows(&c->in[1].shape);
        a.n = shape_last(&c->in[1].shape);
        a.smoothing = (float)call_float(c, 0);
        if (a.n < SHORT_ROW)
            grad_kernel<1, T><<<grid_for(a.n_rows, THREADS), THREADS, 0, cuda_stream(x)>>>(a);
        else
            grad_kernel<WARP, T>
                <<<grid_for(a.n_rows, THREADS / WARP), THREADS, 0, cuda_stream(x)>>>(a);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(softmax_cross_entropy, rows, loss_rows)
CUDA_RUN(softmax_cross_entropy_grad, rows, grad_rows)
