/* adamw_rule.cuh: AdamW's rule, for states that are numbers and for states in codes. */
#ifndef SNUG_DEVICE_CUDA_KERNELS_ADAMW_RULE_CUH
#define SNUG_DEVICE_CUDA_KERNELS_ADAMW_RULE_CUH

#include "device/cuda/kernels/update.cuh"
#include "ops/update_support.h"

/* Square root and quotient good to two units in the last place of f32, with what is too small for a
 * normal number taken as 0: the exact ones would take as long as the memory. */
static __device__ __forceinline__ float quick_sqrt(float x)
{
    float y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float quick_quotient(float x, float y)
{
    float q;
    asm("div.approx.ftz.f32 %0, %1, %2;" : "=f"(q) : "f"(x), "f"(y));
    return q;
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
    using tensor = struct update_tensor;
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
        p = p * keep - quick_quotient(step_size * m, quick_sqrt(v) * correction + epsilon);
        state[0] = m;
        state[1] = v;
    }
};

typedef struct update_head<adamw_rule::attrs> adamw_head;

/* What the ops' calls have in common; inputs lr, step, scale begin at `at`. The head's bytes are
 * compared, those between its members too. */
static void adamw_head_init(adamw_head *h, const struct op_call *c, int at)
{
    memset((void *)h, 0, sizeof(*h));
    h->lr = (const float *)c->in[at].data;
    h->step = (const int32_t *)c->in[at + 1].data;
    h->scale = (const float *)c->in[at + 2].data;
    h->grad = c->in[1].dtype;
    h->attrs.beta1 = call_float(c, ADAMW_BETA1);
    h->attrs.beta2 = call_float(c, ADAMW_BETA2);
    h->attrs.epsilon = call_float(c, ADAMW_EPSILON);
}

#endif
