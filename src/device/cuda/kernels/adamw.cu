/* adamw.cu: AdamW on the parameter itself, or on its master. */
#include "device/cuda/kernels/update.cuh"
#include "ops/update_support.h"

/* Square root and quotient good to two units in the last place of f32: the exact ones would take as
 * long as the memory. */
static __device__ __forceinline__ float quick_sqrt(float x)
{
    float y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* base^n by squaring: a handful of f64 products where pow would take hundreds. */
static __device__ double power(double base, int32_t n)
{
    double result = 1.0;
    for (uint32_t k = n < 0 ? 0u - (uint32_t)n : (uint32_t)n; k > 0; k /= 2) {
        if (k % 2 == 1)
            result *= base;
        base *= base;
    }
    return n < 0 ? 1.0 / result : result;
}

/* Everything that is the same for all elements, worked out in f64. */
struct adamw_rule {
    static constexpr int N_STATES = 2; /* m, v */
    struct attrs {
        double beta1, beta2, epsilon;
    };
    float lr, scale;
    float beta1, beta2;
    float rate1, rate2;          /* 1 - beta */
    float step_size, correction; /* lr / (1 - beta1^t); 1 / sqrt(1 - beta2^t) */
    float epsilon;

    /* A thread of the first warp and one of the second share the work. */
    static __device__ void share(struct adamw_rule *r, const struct update_head<struct attrs> &h)
    {
        if (threadIdx.x == 0) {
            r->lr = *h.lr;
            r->scale = *h.scale;
            r->beta1 = (float)h.attrs.beta1;
            r->beta2 = (float)h.attrs.beta2;
            r->rate1 = (float)(1.0 - h.attrs.beta1);
            r->rate2 = (float)(1.0 - h.attrs.beta2);
            r->step_size = (float)((double)*h.lr / (1.0 - power(h.attrs.beta1, *h.step)));
            r->epsilon = (float)h.attrs.epsilon;
        } else if (threadIdx.x == WARP) {
            r->correction = (float)(1.0 / sqrt(1.0 - power(h.attrs.beta2, *h.step)));
        }
    }

    __device__ __forceinline__ float keep_of(float weight_decay) const
    {
        return fmaf(-lr, weight_decay, 1.0f);
    }

    __device__ __forceinline__ void apply(float &p, float *state, float grad, float keep) const
    {
        float g = grad * scale;
        float m = beta1 * state[0] + rate1 * g, v = beta2 * state[1] + rate2 * (g * g);
        p = p * keep - __fdividef(step_size * m, quick_sqrt(v) * correction + epsilon);
        state[0] = m;
        state[1] = v;
    }
};

typedef struct update_head<adamw_rule::attrs> adamw_head;

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
    memset(&h, 0, sizeof(h)); /* heads are compared byte by byte */
    h.lr = (const float *)c->in[4].data;
    h.step = (const int32_t *)c->in[5].data;
    h.scale = (const float *)c->in[6].data;
    h.target = c->in[target].dtype;
    h.state[0] = c->in[2].dtype;
    h.state[1] = c->in[3].dtype;
    h.image = master ? c->in[0].dtype : DTYPE_NONE;
    h.grad = c->in[1].dtype;
    h.attrs.beta1 = call_float(c, ADAMW_BETA1);
    h.attrs.beta2 = call_float(c, ADAMW_BETA2);
    h.attrs.epsilon = call_float(c, ADAMW_EPSILON);
    TRY(update_in_place(l->x, &c->in[target], &c->out[master ? 3 : 0], &t.target));
    TRY(update_in_place(l->x, &c->in[2], &c->out[1], &t.state[0]));
    TRY(update_in_place(l->x, &c->in[3], &c->out[2], &t.state[1]));
    if (master)
        TRY(update_in_place(l->x, &c->in[0], &c->out[0], &t.image));
    t.grad = c->in[1].data;
    t.n_elems = shape_elems(&c->in[0].shape);
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

extern "C" const struct kernel cuda_kernels_adamw[] = {
    {"vectors", cuda_declines_f64, NULL, adamw_run},
    KERNEL_END,
};

extern "C" const struct kernel cuda_kernels_adamw_master[] = {
    {"vectors", cuda_declines_f64, NULL, adamw_run},
    KERNEL_END,
};
