/* unary.cu: elementwise functions of one operand, and their gradients from (dy, x or y). */
#include "device/cuda/support/map.cuh"

#define UNARY(name, expression)                                                            \
    struct name##_fn {                                                                     \
        template <bool FAST> static __device__ __forceinline__ float at(float a)           \
        {                                                                                  \
            return expression;                                                             \
        }                                                                                  \
    };                                                                                     \
    static enum status name##_vectors(const struct kernel_ctx *x, const struct op_call *c) \
    {                                                                                      \
        return cuda_map1<name##_fn>(x, c);                                                 \
    }                                                                                      \
    CUDA_RUN(name, vectors, name##_vectors)

/* a is dy, b is x or y. */
#define UNARY_GRAD(name, expression)                                                       \
    struct name##_fn {                                                                     \
        template <bool FAST> static __device__ __forceinline__ float at(float a, float b)  \
        {                                                                                  \
            return expression;                                                             \
        }                                                                                  \
    };                                                                                     \
    static enum status name##_vectors(const struct kernel_ctx *x, const struct op_call *c) \
    {                                                                                      \
        return cuda_map2<name##_fn>(x, c);                                                 \
    }                                                                                      \
    CUDA_RUN(name, vectors, name##_vectors)

/* The values are the results where they are stored, so these use the accurate functions. */
UNARY(exp, expf(a))
UNARY(log, logf(a))
UNARY(sqrt, sqrtf(a))
UNARY(relu, a < 0.0f ? 0.0f : a) /* NaN stays NaN */
UNARY_GRAD(relu_grad, b > 0.0f ? a : 0.0f)
UNARY(sigmoid, map_sigmoid<FAST>(a))
UNARY_GRAD(sigmoid_grad, a *b *(1.0f - b))
UNARY(tanh, tanhf(a))
UNARY_GRAD(tanh_grad, a *(1.0f - b * b))

/* ---- scale: y = factor s x, s one element in memory or absent -------------------------------- */

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    scale_kernel(T *y, const T *a, int64_t n, int64_t n_packs, double factor, const T *s,
                 const float *s_f32)
{
    constexpr int N = per_16_bytes<T>::n;
    const int64_t step = grid_threads();
    if (s)
        factor *= (double)to_f32(*s);
    if (s_f32)
        factor *= (double)*s_f32;
    const float f = (float)factor;
    for (int64_t i = grid_thread(); i < n_packs; i += step) {
        float v[N];
        load_f32(v, a + i * N);
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] *= f;
        store_f32(y + i * N, v);
    }
    for (int64_t i = n_packs * N + grid_thread(); i < n; i += step)
        y[i] = from_f32<T>(f * to_f32(a[i]));
}

static enum status scale_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->out[0].shape);
    CUDA_DISPATCH_FLOAT(c->out[0].dtype, T, {
        T *y = (T *)c->out[0].data;
        const T *a = (const T *)c->in[0].data;
        int64_t n_packs = is_aligned(y, 16) && is_aligned(a, 16) ? n / per_16_bytes<T>::n : 0;
        const T *s = NULL;
        const float *s_f32 = NULL;
        if (call_has(c, 1) && c->in[1].dtype == DTYPE_F32)
            s_f32 = (const float *)c->in[1].data;
        else if (call_has(c, 1))
            s = (const T *)c->in[1].data;
        scale_kernel<T><<<map_grid(n, n_packs), MAP_THREADS, 0, cuda_stream(x)>>>(
            y, a, n, n_packs, call_float(c, 0), s, s_f32);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}
CUDA_RUN(scale, vectors, scale_vectors)
