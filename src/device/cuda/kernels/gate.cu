/* gate.cu: gated activations of feed-forward layers, with gradients: rows of x are [gate | up],
 * each half as long as a row of y; y = f(gate) up. A function is as gelu.cuh has them. */
#include "device/cuda/kernels/gelu.cuh"
#include "device/cuda/support/map.cuh"

struct silu_fn {
    template <bool FAST> static __device__ __forceinline__ float at(float x)
    {
        return x * map_sigmoid<FAST>(x);
    }
    template <bool FAST> static __device__ __forceinline__ float slope(float x, float &y)
    {
        const float sigmoid = map_sigmoid<FAST>(x);
        y = x * sigmoid;
        return sigmoid * fmaf(x, 1.0f - sigmoid, 1.0f);
    }
};

struct relu2_fn {
    template <bool> static __device__ __forceinline__ float at(float x)
    {
        return x < 0.0f ? 0.0f : x * x; /* what is no number stays so */
    }
    template <bool> static __device__ __forceinline__ float slope(float x, float &y)
    {
        y = x < 0.0f ? 0.0f : x * x;
        return x < 0.0f ? 0.0f : 2.0f * x;
    }
};

/* Where vector i of y lies. Divisions of 64 bits take several times longer than those of 32. */
struct gate_place {
    int64_t row, column; /* column in vectors */
};

static __device__ __forceinline__ struct gate_place gate_place_of(int64_t i, int64_t row_packs,
                                                                  bool small)
{
    int64_t row = small ? (int64_t)((uint32_t)i / (uint32_t)row_packs) : i / row_packs;
    return {row, i - row * row_packs};
}

/* Rows of `width` elements, a multiple of N; n_packs counts vectors of y. */
template <typename F, int N, typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    gate_kernel(T *y, const T *x, int64_t n_packs, int64_t width)
{
    constexpr bool FAST = sizeof(T) == 2;
    const bool small = n_packs <= UINT32_MAX;
    for (int64_t i = grid_thread(); i < n_packs; i += grid_threads()) {
        const struct gate_place p = gate_place_of(i, width / N, small);
        const T *gate = x + p.row * 2 * width + p.column * N;
        float g[N], u[N];
        load_f32(g, gate);
        load_f32(u, gate + width);
#pragma unroll
        for (int k = 0; k < N; k++)
            g[k] = F::template at<FAST>(g[k]) * u[k];
        store_f32(y + i * N, g);
    }
}

/* The gradient, and WITH_Y what gate_kernel makes, to the bit. dx may be x and y may be dy: a
 * thread reads all it needs of its vectors before it writes them. */
template <typename F, bool WITH_Y, int N, typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    gate_grad_kernel(T *dx, T *y, const T *dy, const T *x, int64_t n_packs, int64_t width)
{
    constexpr bool FAST = sizeof(T) == 2;
    const bool small = n_packs <= UINT32_MAX;
    for (int64_t i = grid_thread(); i < n_packs; i += grid_threads()) {
        const struct gate_place p = gate_place_of(i, width / N, small);
        const int64_t at = p.row * 2 * width + p.column * N;
        float d[N], g[N], u[N];
        load_f32(d, dy + i * N);
        load_f32(g, x + at);
        load_f32(u, x + at + width);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float gate;
            const float slope = F::template slope<FAST>(g[k], gate), up = u[k];
            g[k] = d[k] * up * slope;
            u[k] = d[k] * gate;
            d[k] = gate * up;
        }
        store_f32(dx + at, g);
        store_f32(dx + at + width, u);
        if constexpr (WITH_Y)
            store_f32(y + i * N, d);
    }
}

template <typename F>
static enum status gate_forward(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->out[0].shape), width = shape_last(&c->out[0].shape);
    CUDA_DISPATCH_FLOAT(c->out[0].dtype, T, {
        constexpr int N = per_16_bytes<T>::n;
        T *y = (T *)c->out[0].data;
        const T *in = (const T *)c->in[0].data;
        if (width % N == 0 && is_aligned(y, 16) && is_aligned(in, 16))
            gate_kernel<F, N, T><<<grid_for(n / N, MAP_THREADS), MAP_THREADS, 0, cuda_stream(x)>>>(
                y, in, n / N, width);
        else
            gate_kernel<F, 1, T>
                <<<grid_for(n, MAP_THREADS), MAP_THREADS, 0, cuda_stream(x)>>>(y, in, n, width);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

template <typename F, bool WITH_Y>
static enum status gate_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->in[0].shape), width = shape_last(&c->in[0].shape);
    CUDA_DISPATCH_FLOAT(c->out[0].dtype, T, {
        constexpr int N = per_16_bytes<T>::n;
        T *dx = (T *)c->out[0].data, *y = WITH_Y ? (T *)c->out[1].data : NULL;
        const T *dy = (const T *)c->in[0].data;
        const T *in = (const T *)c->in[1].data;
        bool vectors = width % N == 0 && is_aligned(dx, 16) && is_aligned(y, 16) &&
                       is_aligned(dy, 16) && is_aligned(in, 16);
        unsigned grid = grid_for(vectors ? n / N : n, MAP_THREADS);
        if (vectors)
            gate_grad_kernel<F, WITH_Y, N, T>
                <<<grid, MAP_THREADS, 0, cuda_stream(x)>>>(dx, y, dy, in, n / N, width);
        else
            gate_grad_kernel<F, WITH_Y, 1, T>
                <<<grid, MAP_THREADS, 0, cuda_stream(x)>>>(dx, y, dy, in, n, width);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- lists ---------------------------------------------------------------------------------- */

CUDA_RUN(silu_gate, vectors, gate_forward<silu_fn>)
CUDA_RUN(silu_gate_grad, vectors, gate_grad<silu_fn, false>)
CUDA_RUN(silu_gate_with_grad, vectors, gate_grad<silu_fn, true>)
CUDA_RUN(gelu_gate, vectors, gate_forward<gelu_tanh_fn>)
CUDA_RUN(gelu_gate_grad, vectors, gate_grad<gelu_tanh_fn, false>)
CUDA_RUN(gelu_gate_with_grad, vectors, gate_grad<gelu_tanh_fn, true>)
CUDA_RUN(relu2_gate, vectors, gate_forward<relu2_fn>)
CUDA_RUN(relu2_gate_grad, vectors, gate_grad<relu2_fn, false>)
CUDA_RUN(relu2_gate_with_grad, vectors, gate_grad<relu2_fn, true>)
