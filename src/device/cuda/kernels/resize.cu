/* resize.cu: other sizes of the spatial axes, by interpolation or by averages of bins. */
#include "device/cuda/kernels/window.cuh"

WINDOW_MAP(taps, tap)
WINDOW_MAP(bins, bin)

template <class M, bool GRAD>
static enum status resized(const struct kernel_ctx *x, const struct op_call *c)
{
    struct window w = resize_window(c);
    bool linear = (c->op == OP_resize || c->op == OP_resize_grad) && call_bool(c, RESIZE_LINEAR);
    return window_sum<M, GRAD>(x, c, &w, linear);
}

static enum status resize(const struct kernel_ctx *x, const struct op_call *c)
{
    return resized<taps, false>(x, c);
}
static enum status resize_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    return resized<taps, true>(x, c);
}
static enum status adaptive(const struct kernel_ctx *x, const struct op_call *c)
{
    return resized<bins, false>(x, c);
}
static enum status adaptive_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    return resized<bins, true>(x, c);
}

CUDA_RUN(resize, places, resize)
CUDA_RUN(resize_grad, places, resize_grad)
CUDA_RUN(adaptive_avg_pool, places, adaptive)
CUDA_RUN(adaptive_avg_pool_grad, places, adaptive_grad)
