/* activation.cu: silu, gelu and the gated silu of Llama-style feed-forward layers, with gradients;
 * the list of gelu_bias's kernels, which are in cuda_gelu_bias.cu.
 */
#include "device/cuda/cuda_gelu.cuh"
#include "device/cuda/cuda_strips.cuh"
#include "device/cuda/cuda_weight.cuh"

/* ---- one element ---------------------------------------------------------------------------- */

template <bool FAST> static __device__ __forceinline__ float silu_slope(float x)
{
    float s = map_sigmoid<FAST>(x);
    return s * (1.0f + x * (1.0f - s));
}

struct silu_fn {
    template <bool FAST> static __device__ __forceinline__ float at(float x)
    {
        return x * map_sigmoid<FAST>(x);
    }
};

struct silu_grad_fn {
    template <bool FAST> static __device__ __forceinline__ float at(float dy, float x)
    {
        return dy * silu_slope<FAST>(x);
    }
};

static enum status silu_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    return cuda_map1<silu_fn>(x, c);
}

static enum status silu_grad_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    return cuda_map2<silu_grad_fn>(x, c);
}

static enum status gelu_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    return call_bool(c, 0) ? cuda_map1<gelu_tanh_fn>(x, c) : cuda_map1<gelu_exact_fn>(x, c);
}

static enum status gelu_grad_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    return call_bool(c, 0) ? cuda_map2<gelu_tanh_grad_fn>(x, c)
                           : cuda_map2<gelu_exact_grad_fn>(x, c);
}

/* ---- silu_gate: rows of x are [gate | up], each half as long as a row of y ------------------- */

static constexpr int GATE_ROWS = 2; /* of a thread: both are on their way before one is used */

/* Strips are of y's columns. */
template <int N, typename T>
static __global__ void __launch_bounds__(STRIP_THREADS)
    gate_kernel(T *y, const T *x, const struct strips s)
{
    constexpr bool FAST = sizeof(T) == 2;
    const struct strip_place p = strip_place_of<N>(s);
    const int64_t width = s.n_columns;
    if (p.column >= width)
        return;
    struct waiting<N, T> gates[GATE_ROWS], ups[GATE_ROWS];
#pragma unroll
    for (int i = 0; i < GATE_ROWS; i++) {
        const int64_t row = p.first + i * STRIP_LINES, at = row * 2 * width + p.column;
        if (row < p.end) {
            gates[i] = waiting<N, T>::at(x + at);
            ups[i] = waiting<N, T>::at(x + at + width);
        }
    }
#pragma unroll
    for (int i = 0; i < GATE_ROWS; i++) {
        const int64_t row = p.first + i * STRIP_LINES;
        if (row >= p.end)
            break;
        float g[N], u[N];
        gates[i].get(g);
        ups[i].get(u);
#pragma unroll
        for (int k = 0; k < N; k++)
            g[k] = g[k] * map_sigmoid<FAST>(g[k]) * u[k];
        store_f32(y + row * width + p.column, g);
    }
}

/* dx may be x: a thread reads both halves before it writes them. */
template <int N, typename T>
static __global__ void __launch_bounds__(STRIP_THREADS)
    gate_grad_kernel(T *dx, const T *dy, const T *x, const struct strips s)
{
    constexpr bool FAST = sizeof(T) == 2;
    const struct strip_place p = strip_place_of<N>(s);
    const int64_t width = s.n_columns;
    if (p.column >= width)
        return;
    struct waiting<N, T> dys[GATE_ROWS], gates[GATE_ROWS], ups[GATE_ROWS];
#pragma unroll
    for (int i = 0; i < GATE_ROWS; i++) {
        const int64_t row = p.first + i * STRIP_LINES, at = row * 2 * width + p.column;
        if (row < p.end) {
            dys[i] = waiting<N, T>::at(dy + row * width + p.column);
            gates[i] = waiting<N, T>::at(x + at);
            ups[i] = waiting<N, T>::at(x + at + width);
        }
    }
#pragma unroll
    for (int i = 0; i < GATE_ROWS; i++) {
        const int64_t row = p.first + i * STRIP_LINES, at = row * 2 * width + p.column;
        if (row >= p.end)
            break;
        float d[N], g[N], u[N];
        dys[i].get(d);
        gates[i].get(g);
        ups[i].get(u);
#pragma unroll
        for (int k = 0; k < N; k++) {
            const float sigmoid = map_sigmoid<FAST>(g[k]), gate = g[k] * sigmoid;
            const float slope = sigmoid * (1.0f + g[k] * (1.0f - sigmoid));
            g[k] = d[k] * u[k] * slope;
            u[k] = d[k] * gate;
        }
        store_f32(dx + at, g);
        store_f32(dx + at + width, u);
    }
}

/* Over a tensor of as many columns as y, for threads of `each` of them. */
static struct strips gate_strips(const struct tensor *t, int64_t each)
{
    int64_t width = shape_last(&t->shape);
    return strips_of(shape_elems(&t->shape) / width, width, each, GATE_ROWS * STRIP_LINES);
}

static enum status silu_gate_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    CUDA_DISPATCH_FLOAT(c->out[0].dtype, T, {
        constexpr int N = per_16_bytes<T>::n;
        T *y = (T *)c->out[0].data;
        const T *in = (const T *)c->in[0].data;
        bool vectors =
            shape_last(&c->out[0].shape) % N == 0 && is_aligned(y, 16) && is_aligned(in, 16);
        struct strips s = gate_strips(&c->out[0], vectors ? N : 1);
        if (vectors)
            gate_kernel<N, T><<<strips_grid(s), STRIP_THREADS, 0, cuda_stream(x)>>>(y, in, s);
        else
            gate_kernel<1, T><<<strips_grid(s), STRIP_THREADS, 0, cuda_stream(x)>>>(y, in, s);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static enum status silu_gate_grad_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    CUDA_DISPATCH_FLOAT(c->out[0].dtype, T, {
        constexpr int N = per_16_bytes<T>::n;
        T *dx = (T *)c->out[0].data;
        const T *dy = (const T *)c->in[0].data;
        const T *in = (const T *)c->in[1].data;
        bool vectors = shape_last(&c->in[0].shape) % N == 0 && is_aligned(dx, 16) &&
                       is_aligned(dy, 16) && is_aligned(in, 16);
        struct strips s = gate_strips(&c->in[0], vectors ? N : 1);
        if (vectors)
            gate_grad_kernel<N, T>
                <<<strips_grid(s), STRIP_THREADS, 0, cuda_stream(x)>>>(dx, dy, in, s);
        else
            gate_grad_kernel<1, T>
                <<<strips_grid(s), STRIP_THREADS, 0, cuda_stream(x)>>>(dx, dy, in, s);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- lists ---------------------------------------------------------------------------------- */

#define LIST(name)                                            \
    extern "C" const struct kernel cuda_kernels_##name[] = {  \
        {"vectors", cuda_declines_f64, NULL, name##_vectors}, \
        KERNEL_END,                                           \
    };
LIST(silu)
LIST(silu_grad)
LIST(gelu)
LIST(gelu_grad)
LIST(silu_gate)
LIST(silu_gate_grad)

extern "C" const struct kernel cuda_kernels_gelu_bias[] = {
    {"strips", cuda_declines_f64, NULL, cuda_gelu_bias},
    KERNEL_END,
};

extern "C" const struct kernel cuda_kernels_gelu_bias_grad[] = {
    {"strips", cuda_declines_f64, cuda_gelu_bias_grad_workspace, cuda_gelu_bias_grad},
    KERNEL_END,
};
