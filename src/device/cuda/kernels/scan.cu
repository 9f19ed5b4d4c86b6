/* scan.cu: the selective scan and its gradient.
 *
 * A thread walks a channel of a sample with its states in registers. The gradient notes the states
 * of all steps on its way forward and the gradients by them on its way back; what is summed over
 * channels or over samples is summed from those notes, in a fixed order.
 */
#include "device/cuda/declared/sequences.h"
#include "device/cuda/support/any.cuh"
#include "ops/scan_support.h"

static constexpr int THREADS = 128;

struct scan_args {
    struct any x, step, a, b, c, dy; /* dy: of the gradient */
    struct any out[5];
    struct scan_dims d;
    float *states, *grads; /* [B, T, D, N] */
};

static __device__ __forceinline__ void walk_forward(const struct scan_args &s, int64_t sample,
                                                    int64_t channel, bool notes)
{
    const int n_states = (int)s.d.states;
    float h[SCAN_MOST_STATES];
    for (int n = 0; n < n_states; n++)
        h[n] = 0.0f;
    for (int64_t t = 0; t < s.d.n_steps; t++) {
        const int64_t row = sample * s.d.n_steps + t, i = row * s.d.channels + channel;
        const float step = any_get_f32(s.step, i), in = step * any_get_f32(s.x, i);
        float y = 0.0f;
        for (int n = 0; n < n_states; n++) {
            const float keep = expf(step * any_get_f32(s.a, channel * n_states + n));
            h[n] = keep * h[n] + in * any_get_f32(s.b, row * n_states + n);
            if (notes)
                s.states[i * n_states + n] = h[n];
            else
                y += any_get_f32(s.c, row * n_states + n) * h[n];
        }
        if (!notes)
            any_set_f32(s.out[0], i, y);
    }
}

static __device__ __forceinline__ void walk_back(const struct scan_args &s, int64_t sample,
                                                 int64_t channel)
{
    const int n_states = (int)s.d.states;
    float carry[SCAN_MOST_STATES];
    for (int n = 0; n < n_states; n++)
        carry[n] = 0.0f;
    for (int64_t t = s.d.n_steps - 1; t >= 0; t--) {
        const int64_t row = sample * s.d.n_steps + t, i = row * s.d.channels + channel;
        const float dy = any_get_f32(s.dy, i), x = any_get_f32(s.x, i);
        const float step = any_get_f32(s.step, i);
        float dx = 0.0f, d_step = 0.0f;
        for (int n = 0; n < n_states; n++) {
            const float a = any_get_f32(s.a, channel * n_states + n), keep = expf(step * a);
            const float b = any_get_f32(s.b, row * n_states + n);
            const float before = t > 0 ? s.states[(i - s.d.channels) * n_states + n] : 0.0f;
            const float d = carry[n] + dy * any_get_f32(s.c, row * n_states + n);
            s.grads[i * n_states + n] = d;
            dx += d * step * b;
            d_step += d * (a * keep * before + b * x);
            carry[n] = d * keep;
        }
        any_set_f32(s.out[0], i, dx);
        any_set_f32(s.out[1], i, d_step);
    }
}

static __global__ void __launch_bounds__(THREADS) scan_kernel(const struct scan_args s)
{
    const int64_t i = grid_thread();
    if (i < s.d.batch * s.d.channels)
        walk_forward(s, i / s.d.channels, i % s.d.channels, false);
}

static __global__ void __launch_bounds__(THREADS) scan_grad_kernel(const struct scan_args s)
{
    const int64_t i = grid_thread();
    if (i >= s.d.batch * s.d.channels)
        return;
    walk_forward(s, i / s.d.channels, i % s.d.channels, true);
    walk_back(s, i / s.d.channels, i % s.d.channels);
}

/* da [D, N]: a thread for each, over samples and steps. */
static __global__ void __launch_bounds__(THREADS) scan_grad_a(const struct scan_args s)
{
    const int64_t i = grid_thread(), channel = i / s.d.states, n = i % s.d.states;
    float sum = 0.0f;
    if (i >= s.d.channels * s.d.states)
        return;
    for (int64_t row = 0; row < s.d.batch * s.d.n_steps; row++) {
        const int64_t at = row * s.d.channels + channel;
        if (row % s.d.n_steps == 0)
            continue;
        const float step = any_get_f32(s.step, at), keep = expf(step * any_get_f32(s.a, i));
        sum += s.grads[at * s.d.states + n] * step * keep *
               s.states[(at - s.d.channels) * s.d.states + n];
    }
    any_set_f32(s.out[2], i, sum);
}

/* db and dc [B, T, N]: a warp for each, over the channels. */
static __global__ void __launch_bounds__(THREADS) scan_grad_b_c(const struct scan_args s)
{
    const int64_t i = grid_thread() / WARP, row = i / s.d.states, n = i % s.d.states;
    float db = 0.0f, dc = 0.0f;
    if (i >= s.d.batch * s.d.n_steps * s.d.states)
        return;
    for (int64_t channel = threadIdx.x % WARP; channel < s.d.channels; channel += WARP) {
        const int64_t at = row * s.d.channels + channel;
        db += s.grads[at * s.d.states + n] * any_get_f32(s.step, at) * any_get_f32(s.x, at);
        dc += any_get_f32(s.dy, at) * s.states[at * s.d.states + n];
    }
    db = warp_sum(db);
    dc = warp_sum(dc);
    if (threadIdx.x % WARP == 0) {
        any_set_f32(s.out[3], i, db);
        any_set_f32(s.out[4], i, dc);
    }
}

static struct scan_args args_of(const struct op_call *c, int i)
{
    struct scan_args s = {};
    s.x = any_of(&c->in[i]);
    s.step = any_of(&c->in[i + 1]);
    s.a = any_of(&c->in[i + 2]);
    s.b = any_of(&c->in[i + 3]);
    s.c = any_of(&c->in[i + 4]);
    for (int k = 0; k < c->n_out; k++)
        s.out[k] = any_of(&c->out[k]);
    s.d = scan_dims_of(c, i);
    return s;
}

static enum status scan_channels(const struct kernel_ctx *x, const struct op_call *c)
{
    struct scan_args s = args_of(c, 0);
    scan_kernel<<<grid_for(s.d.batch * s.d.channels, THREADS), THREADS, 0, cuda_stream(x)>>>(s);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static enum status scan_grad_channels(const struct kernel_ctx *x, const struct op_call *c)
{
    struct scan_args s = args_of(c, 1);
    s.dy = any_of(&c->in[0]);
    s.states = (float *)x->workspace;
    s.grads = s.states + s.d.batch * s.d.n_steps * s.d.channels * s.d.states;
    scan_grad_kernel<<<grid_for(s.d.batch * s.d.channels, THREADS), THREADS, 0, cuda_stream(x)>>>(
        s);
    scan_grad_a<<<grid_for(s.d.channels * s.d.states, THREADS), THREADS, 0, cuda_stream(x)>>>(s);
    scan_grad_b_c<<<grid_for(s.d.batch * s.d.n_steps * s.d.states, THREADS / WARP), THREADS, 0,
                    cuda_stream(x)>>>(s);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(selective_scan, channels, scan_channels)
CUDA_RUN(selective_scan_grad, channels, scan_grad_channels)
