/* cells.cu: one step of the recurrent networks LSTM and GRU, and its gradient, a thread for each
 * unit of each row. */
#include "device/cuda/support/any.cuh"
#include "ops/cell_support.h"

static constexpr int THREADS = 256;

static __device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* ---- LSTM ------------------------------------------------------------------------------------ */

struct lstm_args {
    struct any gates, state, dh, ds; /* dh, ds: data NULL where they are not given */
    struct any out[2];
    int64_t n, units;
};

template <bool GRAD>
static __global__ void __launch_bounds__(THREADS) lstm_kernel(const struct lstm_args a)
{
    for (int64_t i = grid_thread(); i < a.n; i += grid_threads()) {
        const int64_t at = i / a.units * LSTM_GATES * a.units + i % a.units;
        const float in = sigmoid(any_get_f32(a.gates, at));
        const float forget = sigmoid(any_get_f32(a.gates, at + a.units));
        const float cell = tanhf(any_get_f32(a.gates, at + 2 * a.units));
        const float out = sigmoid(any_get_f32(a.gates, at + 3 * a.units));
        const float before = any_get_f32(a.state, i), state = forget * before + in * cell;
        const float t = tanhf(state);
        if constexpr (GRAD) {
            const float dh = a.dh.data ? any_get_f32(a.dh, i) : 0.0f;
            const float ds = (a.ds.data ? any_get_f32(a.ds, i) : 0.0f) + dh * out * (1.0f - t * t);
            any_set_f32(a.out[0], at, ds * cell * in * (1.0f - in));
            any_set_f32(a.out[0], at + a.units, ds * before * forget * (1.0f - forget));
            any_set_f32(a.out[0], at + 2 * a.units, ds * in * (1.0f - cell * cell));
            any_set_f32(a.out[0], at + 3 * a.units, dh * t * out * (1.0f - out));
            any_set_f32(a.out[1], i, ds * forget);
        } else {
            any_set_f32(a.out[0], i, out * t);
            any_set_f32(a.out[1], i, state);
        }
    }
}

static struct any given(const struct op_call *c, int i)
{
    struct any none = {};
    return call_has(c, i) ? any_of(&c->in[i]) : none;
}

template <bool GRAD>
static enum status lstm_elements(const struct kernel_ctx *x, const struct op_call *c)
{
    struct lstm_args a = {};
    a.gates = any_of(&c->in[0]);
    a.state = any_of(&c->in[1]);
    a.dh = given(c, 2);
    a.ds = given(c, 3);
    a.out[0] = any_of(&c->out[0]);
    a.out[1] = any_of(&c->out[1]);
    a.n = shape_elems(&c->in[1].shape);
    a.units = c->in[1].shape.dim[1];
    lstm_kernel<GRAD><<<grid_for(a.n, THREADS), THREADS, 0, cuda_stream(x)>>>(a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- GRU ------------------------------------------------------------------------------------- */

struct gru_args {
    struct any x, z, h, d; /* d: of the gradient */
    struct any out[3];
    int64_t n, units;
};

template <bool GRAD>
static __global__ void __launch_bounds__(THREADS) gru_kernel(const struct gru_args a)
{
    for (int64_t i = grid_thread(); i < a.n; i += grid_threads()) {
        const int64_t at = i / a.units * GRU_GATES * a.units + i % a.units;
        const int64_t at_u = at + a.units, at_n = at_u + a.units;
        const float r = sigmoid(any_get_f32(a.x, at) + any_get_f32(a.z, at));
        const float u = sigmoid(any_get_f32(a.x, at_u) + any_get_f32(a.z, at_u));
        const float z = any_get_f32(a.z, at_n), n = tanhf(any_get_f32(a.x, at_n) + r * z);
        const float h = any_get_f32(a.h, i);
        if constexpr (GRAD) {
            const float d = any_get_f32(a.d, i), dn = d * (1.0f - u) * (1.0f - n * n);
            const float dr = dn * z * r * (1.0f - r), du = d * (h - n) * u * (1.0f - u);
            for (int k = 0; k < 2; k++) {
                any_set_f32(a.out[k], at, dr);
                any_set_f32(a.out[k], at_u, du);
                any_set_f32(a.out[k], at_n, k ? dn * r : dn);
            }
            any_set_f32(a.out[2], i, d * u);
        } else {
            any_set_f32(a.out[0], i, (1.0f - u) * n + u * h);
        }
    }
}

template <bool GRAD>
static enum status gru_elements(const struct kernel_ctx *x, const struct op_call *c)
{
    struct gru_args a = {};
    a.x = any_of(&c->in[0]);
    a.z = any_of(&c->in[1]);
    a.h = any_of(&c->in[2]);
    a.d = given(c, 3);
    for (int k = 0; k < c->n_out; k++)
        a.out[k] = any_of(&c->out[k]);
    a.n = shape_elems(&c->in[2].shape);
    a.units = c->in[2].shape.dim[1];
    gru_kernel<GRAD><<<grid_for(a.n, THREADS), THREADS, 0, cuda_stream(x)>>>(a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(lstm_cell, elements, lstm_elements<false>)
CUDA_RUN(lstm_cell_grad, elements, lstm_elements<true>)
CUDA_RUN(gru_cell, elements, gru_elements<false>)
CUDA_RUN(gru_cell_grad, elements, gru_elements<true>)
