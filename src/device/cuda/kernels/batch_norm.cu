/* batch_norm.cu: norms by channel over the whole batch, and running averages of their statistics.
 */
#include "device/cuda/kernels/channel_norm.cuh"
#include "ops/channel_norm_support.h"

static enum status batch_norm(const struct kernel_ctx *x, const struct op_call *c)
{
    return channel_norm(x, c, call_float(c, 0));
}

static enum status inference(const struct kernel_ctx *x, const struct op_call *c)
{
    return channel_norm_given(x, c, call_float(c, 0));
}

/* ---- running averages ------------------------------------------------------------------------ */

static constexpr int THREADS = 256;

struct average {
    float *running;
    const float *before, *fresh;
    int64_t n;
    double momentum, epsilon, unbiased; /* unbiased: n / (n - 1); 0: of a mean */
};

static __global__ void __launch_bounds__(THREADS) average_kernel(const struct average a)
{
    const int64_t i = grid_thread();
    if (i >= a.n)
        return;
    double s = (double)a.fresh[i];
    if (a.unbiased != 0.0)
        s = (1.0 / (s * s) - a.epsilon) * a.unbiased;
    a.running[i] = (float)((1.0 - a.momentum) * (double)a.before[i] + a.momentum * s);
}

static enum status running_average(const struct kernel_ctx *x, const struct op_call *c)
{
    double count = (double)call_int(c, RUNNING_COUNT);
    struct average a = {};
    a.running = (float *)c->out[0].data;
    a.before = (const float *)c->in[0].data;
    a.fresh = (const float *)c->in[1].data;
    a.n = shape_elems(&c->out[0].shape);
    a.momentum = call_float(c, RUNNING_MOMENTUM);
    a.epsilon = call_float(c, RUNNING_EPSILON);
    if (call_bool(c, RUNNING_OF_VARIANCE)) /* of one element: as it is */
        a.unbiased = count / (count > 2.0 ? count - 1.0 : 1.0);
    average_kernel<<<grid_for(a.n, THREADS), THREADS, 0, cuda_stream(x)>>>(a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(batch_norm, bands, batch_norm)
CUDA_RUN(batch_norm_grad, bands, channel_norm_grad)
CUDA_RUN(batch_norm_inference, rows, inference)
CUDA_RUN(running_average, elements, running_average)
