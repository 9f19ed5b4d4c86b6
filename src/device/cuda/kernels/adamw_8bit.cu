/* adamw_8bit.cu: AdamW with states in 8-bit codes, on the parameter itself or on its master. */
#include "device/cuda/kernels/adamw_rule.cuh"
#include "device/cuda/kernels/coded.cuh"

typedef coded<adamw_rule> coded_adamw;

extern "C" enum status cuda_batch_adamw_8bit(const struct kernel_ctx *x,
                                             const struct op_call *const *calls, int n)
{
    struct update_launch<coded_adamw> l;
    l.x = x;
    l.pick = pick_coded<coded_adamw>;
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
