/* resize.cu: other sizes of the spatial axes, by interpolation or by averages of bins. */
#include "device/cuda/kernels/window.cuh"

/* ---- interpolation --------------------------------------------------------------------------- */

/* As resize_tap_of (ops/window_support.h) has it; the axis' flag: linear. */
struct taps {
    template <typename I>
    static __device__ __forceinline__ struct reach<I> reads(const struct window_axis<I> &a, I o) {
        const I low = a.flag ? start(a, o) / (2 * a.out) : o * a.size / a.out;
        return {low, a.flag ? min(low + 2, a.size) : low + 1};
    }
    /* Linear: the outputs between places i - 1 and i + 1, the ends of the axis included. */
    template <typename I>
    static __device__ __forceinline__ struct reach<I> readers(const struct window_axis<I> &a, I i) {
        const I n = a.size;
        if (!a.flag)
            return {above(i * a.out, n), above((i + 1) * a.out, n)};
        const I from = i < 2 ? (I)0 : above((2 * i - 1) * a.out - n, 2 * n);
        return {from, min(above((2 * i + 3) * a.out - n, 2 * n), a.out)};
    } template <typename I>
    static __device__ __forceinline__ float share(const struct window_axis<I> &a, I o, I i)
    {
        if (!a.flag)
            return 1.0f;
        const I at = start(a, o), low = at / (2 * a.out), high = min(low + 1, a.size - 1);
        const float rest = (float)(at - low * 2 * a.out) / (float)(2 * a.out);
        return (low == i ? 1.0f - rest : 0.0f) + (high == i ? rest : 0.0f);
    }

  private:
    /* Where output o reads, in units of 1 / (2 out). */
    template <typename I>
    static __device__ __forceinline__ I start(const struct window_axis<I> &a, I o)
    {
        return max((2 * o + 1) * a.size - a.out, (I)0);
    }
    /* a / b rounded up, from 0 on. */
    template <typename I> static __device__ __forceinline__ I above(I a, I b)
    {
        return a <= 0 ? (I)0 : (a + b - 1) / b;
    }
};

/* ---- bins ------------------------------------------------------------------------------------ */

/* Places floor(o n / out) to ceil((o + 1) n / out) - 1 make output o, all with the same share. */
struct bins {
    template <typename I>
    static __device__ __forceinline__ struct reach<I> reads(const struct window_axis<I> &a, I o) {
        return {o * a.size / a.out, ((o + 1) * a.size + a.out - 1) / a.out};
    } template <typename I>
    static __device__ __forceinline__ struct reach<I> readers(const struct window_axis<I> &a, I i) {
        return {i * a.out / a.size, ((i + 1) * a.out + a.size - 1) / a.size};
    } template <typename I>
    static __device__ __forceinline__ float share(const struct window_axis<I> &a, I o, I)
    {
        const struct reach<I> r = reads(a, o);
        return 1.0f / (float)(r.last - r.first);
    }
};

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
