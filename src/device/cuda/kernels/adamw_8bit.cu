/* adamw_8bit.cu: AdamW with states in 8-bit codes, on the parameter itself or on its master,
 * or by a gradient that is a product. */
#include "device/cuda/kernels/adamw_rule.cuh"
#include "device/cuda/kernels/coded_product.cuh"

/* The rule on shares of scales: what is the same for all elements of a block goes into the scales,
 * what is the same for all of a launch into the gradient's factors. */
struct adamw_shares_rule : adamw_rule {
    float of_grad, of_square; /* scale (1 - beta1); scale sqrt(1 - beta2) */

    static __device__ void share(struct adamw_shares_rule *r, const adamw_head &h)
    {
        adamw_rule::share(r, h);
        if (threadIdx.x == 2 * WARP) {
            r->of_grad = (float)((double)*h.scale * (1.0 - h.attrs.beta1));
            r->of_square = (float)((double)*h.scale * sqrt(1.0 - h.attrs.beta2));
        }
    }

    __device__ __forceinline__ void apply_shares(float &p, float *state, const float *absmax,
                                                 float grad, float keep) const
    {
        const float m = fmaf(grad, of_grad, state[0] * (beta1 * absmax[0]));
        const float root = grad * of_square, v = fmaf(root, root, state[1] * (beta2 * absmax[1]));
        const float step = quick_quotient(step_size * m, fmaf(quick_sqrt(v), correction, epsilon));
        p = fmaf(p, keep, -step);
        state[0] = m;
        state[1] = v;
    }
};

extern "C" enum status cuda_batch_adamw_8bit(const struct kernel_ctx *x,
                                             const struct op_call *const *calls, int n)
{
    using rule = coded<adamw_shares_rule>;
    struct update_launch<rule> l;
    l.x = x;
    l.pick = pick_coded<rule>;
    l.shared_bytes = coded_shared_bytes;
    l.args.n_tensors = 0;
    l.args.n_chunks = 0;
    for (int i = 0; i < n; i++) {
        adamw_head h;
        adamw_head_init(&h, calls[i], CODED_LR);
        TRY(coded_add(&l, &h, calls[i], (float)call_float(calls[i], ADAMW_WEIGHT_DECAY)));
    }
    return update_flush(&l);
}

static enum status coded_run(const struct kernel_ctx *x, const struct op_call *c)
{
    return cuda_batch_adamw_8bit(x, &c, 1);
}

CUDA_RUN(adamw_8bit, warps, coded_run)

CUDA_RUN(adamw_8bit_master, warps, coded_run)

static enum status product_run(const struct kernel_ctx *x, const struct op_call *c)
{
    adamw_head h;
    adamw_head_init(&h, c, CODED_LR);
    return product_launch<coded_product<adamw_shares_rule>>(
        x, c, &h, (float)call_float(c, ADAMW_WEIGHT_DECAY));
}

CUDA_RUN(adamw_8bit_product, warps, product_run)
