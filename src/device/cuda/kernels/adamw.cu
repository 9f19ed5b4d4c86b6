/* adamw.cu: AdamW on the parameter itself, or on its master. */
#include "device/cuda/kernels/adamw_rule.cuh"

/* The dtypes that configs ask for are known to the compiler; others are found out on the way. */
static update_launchable<adamw_rule> pick_adamw(const adamw_head &h)
{
#define TRY_DTYPES(target, state, grad, image)                                                  \
    do {                                                                                        \
        using known = known_dtypes<DTYPE_##target, DTYPE_##state, DTYPE_##grad, DTYPE_##image>; \
        if (known::match(h))                                                                    \
            return update_kernel<adamw_rule, known>;                                            \
    } while (0)
    TRY_DTYPES(F32, F32, F32, NONE);
    TRY_DTYPES(F32, F32, BF16, NONE);
    TRY_DTYPES(F32, BF16, F32, NONE);
    TRY_DTYPES(F32, BF16, BF16, NONE);
    TRY_DTYPES(BF16, F32, F32, NONE);
    TRY_DTYPES(BF16, F32, BF16, NONE);
    TRY_DTYPES(BF16, BF16, F32, NONE);
    TRY_DTYPES(BF16, BF16, BF16, NONE);
    TRY_DTYPES(F32, F32, F32, BF16);
    TRY_DTYPES(F32, F32, BF16, BF16);
    TRY_DTYPES(F32, BF16, F32, BF16);
    TRY_DTYPES(F32, BF16, BF16, BF16);
    TRY_DTYPES(F32, F32, F32, F16);
    TRY_DTYPES(F32, BF16, F32, F16);
    TRY_DTYPES(U8, F32, F32, BF16);
    TRY_DTYPES(U8, F32, BF16, BF16);
#undef TRY_DTYPES
    return update_kernel<adamw_rule, any_dtypes>;
}

extern "C" enum status cuda_batch_adamw(const struct kernel_ctx *x,
                                        const struct op_call *const *calls, int n)
{
    struct update_launch<adamw_rule> l;
    l.x = x;
    l.pick = pick_adamw;
    l.args.n_tensors = 0;
    l.args.n_chunks = 0;
    for (int i = 0; i < n; i++) {
        adamw_head h;
        adamw_head_init(&h, calls[i], 4);
        TRY(update_add_call(&l, &h, calls[i], (float)call_float(calls[i], ADAMW_WEIGHT_DECAY)));
    }
    return update_flush(&l);
}

static enum status adamw_run(const struct kernel_ctx *x, const struct op_call *c)
{
    return cuda_batch_adamw(x, &c, 1);
}

CUDA_RUN(adamw, vectors, adamw_run)

CUDA_RUN(adamw_master, vectors, adamw_run)
