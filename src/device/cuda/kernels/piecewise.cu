/* piecewise.cu: elementwise functions that are put together of pieces, some with a number that says
 * where they change (slope, alpha, delta), and their gradients; of up to three operands. */
#include "device/cuda/support/map.cuh"

/* Up to three operands; those that are not there are NULL and stand for the first. An output may
 * lie over an operand: each element is read before it is written, by one thread. */
template <typename T> struct operands {
    const T *a, *b, *c;
};

template <typename F, typename T, int N>
static __device__ __forceinline__ void piece(T *y, const struct operands<T> &in, float s,
                                             int64_t at)
{
    float a[N], b[N], c[N];
    load_f32(a, in.a + at);
    if constexpr (F::n_operands > 1)
        load_f32(b, in.b + at);
    if constexpr (F::n_operands > 2)
        load_f32(c, in.c + at);
#pragma unroll
    for (int k = 0; k < N; k++)
        a[k] = F::at(a[k], F::n_operands > 1 ? b[k] : a[k], F::n_operands > 2 ? c[k] : a[k], s);
    store_f32(y + at, a);
}

template <typename F, typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    piecewise_kernel(T *y, const struct operands<T> in, float s, int64_t n, int64_t n_packs)
{
    constexpr int N = per_16_bytes<T>::n;
    for (int64_t i = grid_thread(); i < n_packs; i += grid_threads())
        piece<F, T, N>(y, in, s, i * N);
    for (int64_t i = n_packs * N + grid_thread(); i < n; i += grid_threads())
        piece<F, T, 1>(y, in, s, i);
}

template <typename F>
static enum status piecewise(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->out[0].shape);
    float s = op_get(c->op)->n_attrs > 0 ? (float)call_float(c, 0) : 0.0f;
    bool aligned = is_aligned(c->out[0].data, 16);
    for (int i = 0; i < F::n_operands; i++)
        aligned = aligned && is_aligned(c->in[i].data, 16);
    CUDA_DISPATCH_FLOAT(c->out[0].dtype, T, {
        struct operands<T> in = {
        };
        in.a = (const T *)c->in[0].data;
        in.b = F::n_operands > 1 ? (const T *)c->in[1].data : NULL;
        in.c = F::n_operands > 2 ? (const T *)c->in[2].data : NULL;
        int64_t n_packs = aligned ? n / per_16_bytes<T>::n : 0;
        piecewise_kernel<F, T><<<map_grid(n, n_packs), MAP_THREADS, 0, cuda_stream(x)>>>(
            (T *)c->out[0].data, in, s, n, n_packs);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* Of gradients a is dy. NaN goes through, except where it is what the function is about. */
#define PIECEWISE(name, n, expression)                                                 \
    struct name##_fn {                                                                 \
        static constexpr int n_operands = n;                                           \
        static __device__ __forceinline__ float at(float a, float b, float c, float s) \
        {                                                                              \
            (void)b;                                                                   \
            (void)c;                                                                   \
            (void)s;                                                                   \
            return expression;                                                         \
        }                                                                              \
    };                                                                                 \
    CUDA_RUN(name, vectors, piecewise<name##_fn>)

PIECEWISE(leaky_relu, 1, a > 0.0f ? a : s * a)
PIECEWISE(leaky_relu_grad, 2, b > 0.0f ? a : s * a)
PIECEWISE(elu, 1, a > 0.0f ? a : s * expm1f(a))
PIECEWISE(elu_grad, 2, b > 0.0f ? a : a * s * expf(b))
PIECEWISE(softplus, 1, fmaxf(a, 0.0f) + log1pf(expf(-fabsf(a))))
PIECEWISE(abs, 1, fabsf(a))
PIECEWISE(abs_grad, 2, b > 0.0f ? a : (b < 0.0f ? -a : 0.0f))
PIECEWISE(huber, 1, fabsf(a) <= s ? 0.5f * a * a : s * (fabsf(a) - 0.5f * s))
PIECEWISE(huber_grad, 2, a *(b > s ? s : (b < -s ? -s : b)))
PIECEWISE(clamp, 1, a > s ? s : (a < -s ? -s : a))
PIECEWISE(clamp_grad, 2, fabsf(b) <= s ? a : 0.0f)
PIECEWISE(nan_to_zero, 1, isnan(a) ? 0.0f : a)
PIECEWISE(nan_to_zero_grad, 2, isnan(b) ? 0.0f : a)
PIECEWISE(minimum, 2, a < b || isnan(a) ? a : b)
PIECEWISE(maximum, 2, a > b || isnan(a) ? a : b)
PIECEWISE(minimum_grad, 3, b < c ? a : (b > c ? 0.0f : 0.5f * a))
PIECEWISE(bce_with_logits, 2, fmaxf(a, 0.0f) - a * b + log1pf(expf(-fabsf(a))))
PIECEWISE(bce_with_logits_grad, 3, a *(map_sigmoid<false>(b) - c))
