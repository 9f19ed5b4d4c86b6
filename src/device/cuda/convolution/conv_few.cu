/* conv_few.cu: convolutions that add up few terms, as those of images of one to four channels:
 * libraries fill channels up to whole vectors and copy what they fill. The weights lie in shared
 * memory as f32; a thread makes one vector of features at one place, then the next along the same
 * row of places. */
#include "device/cuda/convolution/conv_few.cuh"

#include "device/cuda/declared/convolution.h"

static constexpr int THREADS = 256;

/* A shape in 32 bits, but for what counts elements of whole tensors. */
struct few_shape {
    int size[WINDOW_AXES], out[WINDOW_AXES], kernel[WINDOW_AXES];
    int stride[WINDOW_AXES], dilation[WINDOW_AXES], pad[WINDOW_AXES];
    int channels, features, terms, row_items;
    int64_t n_rows;
};

/* Weights as [term, feature], after them the bias, or zeros. */
template <typename T>
static __device__ void load_weights(float *to, const struct few_shape &s, const T *w, const T *bias)
{
    const int n = s.terms * s.features;
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    for (int i = thread; i < n; i += THREADS)
        to[i] = to_f32(w[(int64_t)(i % s.features) * s.terms + i / s.features]);
    for (int i = thread; i < s.features; i += THREADS)
        to[n + i] = bias ? to_f32(bias[i]) : 0.0f;
    __syncthreads();
}

/* Adds the terms of one line of the window, which begins at place `at` of a row of x. */
template <typename T, int N>
static __device__ __forceinline__ void add_line(float (&sum)[N], const struct few_shape &s,
                                                const T *row, int at, const float *w)
{
    for (int k = 0; k < s.kernel[2]; k++, at += s.dilation[2]) {
        if (at < 0 || at >= s.size[2])
            continue;
        for (int c = 0; c < s.channels; c++) {
            const float v = to_f32(row[at * s.channels + c]);
            const float *weights = w + (k * s.channels + c) * s.features;
#pragma unroll
            for (int e = 0; e < N; e++)
                sum[e] += v * weights[e];
        }
    }
}

template <typename T, int N>
static __global__ void __launch_bounds__(THREADS)
    few_kernel(T *y, const T *x, const T *w, const T *bias, const struct few_shape s)
{
    extern __shared__ float weights[];
    load_weights(weights, s, w, bias);
    const int line_terms = s.kernel[2] * s.channels, n_vectors = s.features / N;
    const int64_t line_elems = (int64_t)s.size[2] * s.channels;
    const int64_t step = (int64_t)gridDim.x * blockDim.y;
    for (int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; row < s.n_rows;
         row += step) {
        const int h0 = (int)(row % s.out[1]) * s.stride[1] - s.pad[1];
        const int d0 = (int)(row / s.out[1] % s.out[0]) * s.stride[0] - s.pad[0];
        const int64_t sample = row / s.out[1] / s.out[0];
        for (int i = threadIdx.x; i < s.row_items; i += blockDim.x) {
            const int vector = i % n_vectors * N;
            const int w0 = i / n_vectors * s.stride[2] - s.pad[2];
            const float *line = weights + vector;
            float sum[N];
#pragma unroll
            for (int e = 0; e < N; e++)
                sum[e] = line[s.terms * s.features + e];
            for (int kd = 0; kd < s.kernel[0]; kd++) {
                const int d = d0 + kd * s.dilation[0];
                for (int kh = 0; kh < s.kernel[1]; kh++, line += line_terms * s.features) {
                    const int h = h0 + kh * s.dilation[1];
                    if (d < 0 || d >= s.size[0] || h < 0 || h >= s.size[1])
                        continue;
                    const T *from = x + ((sample * s.size[0] + d) * s.size[1] + h) * line_elems;
                    add_line(sum, s, from, w0, line);
                }
            }
            store_f32(y + (row * s.row_items + i) * N, sum);
        }
    }
}

static struct few_shape shape_of_call(const struct conv_dims *d, int n)
{
    struct few_shape s = {};
    for (int a = 0; a < WINDOW_AXES; a++) {
        s.size[a] = (int)d->window.size[a];
        s.out[a] = (int)d->window.out[a];
        s.kernel[a] = (int)d->window.kernel[a];
        s.stride[a] = (int)d->window.stride[a];
        s.dilation[a] = (int)d->window.dilation[a];
        s.pad[a] = (int)d->window.pad_before[a];
    }
    s.channels = (int)d->channels;
    s.features = (int)d->features;
    s.terms = (int)(window_places(d->window.kernel) * d->channels);
    s.row_items = s.out[2] * (s.features / n);
    s.n_rows = d->window.batch * s.out[0] * s.out[1];
    return s;
}

template <typename T, int N> static void launch(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct conv_dims d = conv_dims_of(c);
    const struct few_shape s = shape_of_call(&d, N);
    unsigned along = WARP;
    while (along < THREADS && (int)along < s.row_items)
        along *= 2;
    const dim3 block(along, THREADS / along);
    const unsigned n_blocks = grid_for(s.n_rows, block.y, grid_full(&x->env, THREADS, 4));
    const size_t shared = (size_t)(s.terms + 1) * (size_t)s.features * sizeof(float);
    few_kernel<T, N><<<n_blocks, block, shared, cuda_stream(x)>>>(
        (T *)c->out[0].data, (const T *)c->in[0].data, (const T *)c->in[1].data,
        call_has(c, 2) ? (const T *)c->in[2].data : NULL, s);
}

enum status conv_few(const struct kernel_ctx *x, const struct op_call *c)
{
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        constexpr int N = per_16_bytes<T>::n;
        if (conv_dims_of(c).features % N == 0 && is_aligned(c->out[0].data, 16))
            launch<T, N>(x, c);
        else
            launch<T, 1>(x, c);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}
