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
#undef TRY_DTYPES
    return update_kernel<adamw_rule, any_dtypes>;
}

/* Both ops: adamw_master has an eighth input. */
static enum status add_adamw(struct update_launch<adamw_rule> *l, const struct op_call *c)
{
    const bool master = c->n_in > 7;
    const int target = master ? 7 : 0;
    adamw_head h;
    struct update_tensor t = {};
    adamw_head_init(&h, c, 4);
    h.target = c->in[target].dtype;
    h.state[0] = c->in[2].dtype;
    h.state[1] = c->in[3].dtype;
    h.image = master ? c->in[0].dtype : DTYPE_NONE;
    TRY(update_in_place(l->x, &c->in[target], &c->out[master ? 3 : 0], &t.target));
    TRY(update_in_place(l->x, &c->in[2], &c->out[1], &t.state[0]));
    TRY(update_in_place(l->x, &c->in[3], &c->out[2], &t.state[1]));
    if (master)
        TRY(update_in_place(l->x, &c->in[0], &c->out[0], &t.image));
    t.grad = c->in[1].data;
    t.n_elems = shape_elems(&c->in[0].shape);
    t.first_element = c->first_element;
    t.seed = (uint64_t)call_int(c, ADAMW_SEED);
    t.weight_decay = (float)call_float(c, ADAMW_WEIGHT_DECAY);
    h.vectors = update_aligned(&t);
    return update_add(l, &h, &t);
}

extern "C" enum status cuda_batch_adamw(const struct kernel_ctx *x,
                                        const struct op_call *const *calls, int n)
{
    struct update_launch<adamw_rule> l;
    l.x = x;
    l.pick = pick_adamw;
    l.args.n_tensors = 0;
    l.args.n_chunks = 0;
    for (int i = 0; i < n; i++)
        TRY(add_adamw(&l, calls[i]));
    return update_flush(&l);
}

static enum status adamw_run(const struct kernel_ctx *x, const struct op_call *c)
{
    return cuda_batch_adamw(x, &c, 1);
}

CUDA_RUN(adamw, vectors, adamw_run)

CUDA_RUN(adamw_master, vectors, adamw_run)
