/* add_noise.cu: what is added to an element is defined in src/ops/add_noise.c: the bits are the
 * CPU's. */
#include "base/rng.h"
#include "device/cuda/support/map.cuh"
#include "ops/dropout_support.h"

/* A thread takes the four elements of one draw, as a vector where all four are there. */
template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    noise_kernel(T *y, const T *x, int64_t n, bool vectors, const int64_t *rng, int64_t seed,
                 float magnitude)
{
    const uint64_t key = (uint64_t)rng[0];
    const uint64_t counter_hi = dropout_counter(rng[1], seed);
    for (int64_t i = grid_thread(); i * 4 < n; i += grid_threads()) {
        const int64_t at = i * 4;
        const struct philox4 bits = philox(key, counter_hi, (uint64_t)i);
        if (vectors && at + 4 <= n) {
            float v[4];
            load_f32(v, x + at);
#pragma unroll
            for (int k = 0; k < 4; k++)
                v[k] += noise_of(bits.v[k], magnitude);
            store_f32(y + at, v);
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                if (at + k < n)
                    y[at + k] = from_f32<T>(to_f32(x[at + k]) + noise_of(bits.v[k], magnitude));
            }
        }
    }
}

static enum status add_noise(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->out[0].shape);
    CUDA_DISPATCH_FLOAT(c->out[0].dtype, T, {
        T *y = (T *)c->out[0].data;
        const T *in = (const T *)c->in[0].data;
        bool vectors = is_aligned(y, 4 * sizeof(T)) && is_aligned(in, 4 * sizeof(T));
        noise_kernel<T><<<grid_for(ceil_div(n, 4), MAP_THREADS), MAP_THREADS, 0, cuda_stream(x)>>>(
            y, in, n, vectors, (const int64_t *)c->in[1].data, call_int(c, NOISE_SEED),
            (float)call_float(c, NOISE_MAGNITUDE));
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(add_noise, vectors, add_noise)
