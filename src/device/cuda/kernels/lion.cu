/* lion.cu: Lion, with a momentum of numbers or in 8-bit codes, on the parameter or on its master.
 */
#include "device/cuda/kernels/coded.cuh"
#include "ops/update_support.h"

struct lion_rule {
    static constexpr int N_STATES = 1; /* the momentum */
    using tensor = struct update_tensor;
    struct attrs {
        double beta1, beta2;
    };
    float lr, scale;
    float beta1, beta2;
    float rate1, rate2; /* 1 - beta */

    static __device__ void share(struct lion_rule *r, const struct update_head<struct attrs> &h)
    {
        if (threadIdx.x == 0) {
            r->lr = *h.lr;
            r->scale = *h.scale;
            r->beta1 = (float)h.attrs.beta1;
            r->beta2 = (float)h.attrs.beta2;
            r->rate1 = (float)(1.0 - h.attrs.beta1);
            r->rate2 = (float)(1.0 - h.attrs.beta2);
        }
    }

    __device__ __forceinline__ float keep_of(float weight_decay) const
    {
        return fmaf(-lr, weight_decay, 1.0f);
    }

    /* The way's sign is all that counts: it is rounded as on the CPU, without fused products, so
     * that where momentum and gradient cancel both devices see the same. */
    __device__ __forceinline__ void apply(float &p, float *state, float grad, float keep) const
    {
        float g = grad * scale;
        float way = __fadd_rn(__fmul_rn(beta1, state[0]), __fmul_rn(rate1, g));
        float step = way > 0.0f ? lr : way < 0.0f ? -lr : way * lr; /* NaN stays NaN */
        p = p * keep - step;
        state[0] = beta2 * state[0] + rate2 * g;
    }
};

typedef struct update_head<lion_rule::attrs> lion_head;
typedef coded<lion_rule> coded_lion;

/* Inputs lr, step, scale begin at `at`. The head's bytes are compared, those between its members
 * too. */
static void lion_head_init(lion_head *h, const struct op_call *c, int at)
{
    memset((void *)h, 0, sizeof(*h));
    h->lr = (const float *)c->in[at].data;
    h->step = (const int32_t *)c->in[at + 1].data;
    h->scale = (const float *)c->in[at + 2].data;
    h->grad = c->in[1].dtype;
    h->attrs.beta1 = call_float(c, LION_BETA1);
    h->attrs.beta2 = call_float(c, LION_BETA2);
}

static update_launchable<lion_rule> pick_lion(const lion_head &)
{
    return update_kernel<lion_rule, any_dtypes>;
}

template <typename RULE> static void lion_launch_init(struct update_launch<RULE> *l)
{
    l->args.n_tensors = 0;
    l->args.n_chunks = 0;
}

extern "C" enum status cuda_batch_lion(const struct kernel_ctx *x,
                                       const struct op_call *const *calls, int n)
{
    struct update_launch<lion_rule> l;
    l.x = x;
    l.pick = pick_lion;
    lion_launch_init(&l);
    for (int i = 0; i < n; i++) {
        lion_head h;
        lion_head_init(&h, calls[i], 3);
        TRY(update_add_call(&l, &h, calls[i], (float)call_float(calls[i], LION_WEIGHT_DECAY)));
    }
    return update_flush(&l);
}

extern "C" enum status cuda_batch_lion_8bit(const struct kernel_ctx *x,
                                            const struct op_call *const *calls, int n)
{
    struct update_launch<coded_lion> l;
    l.x = x;
    l.pick = pick_coded<coded_lion>;
    l.shared_bytes = coded_shared_bytes;
    lion_launch_init(&l);
    for (int i = 0; i < n; i++) {
        lion_head h;
        lion_head_init(&h, calls[i], 4);
        TRY(coded_add(&l, &h, calls[i], (float)call_float(calls[i], LION_WEIGHT_DECAY)));
    }
    return update_flush(&l);
}

static enum status lion_run(const struct kernel_ctx *x, const struct op_call *c)
{
    return cuda_batch_lion(x, &c, 1);
}

static enum status lion_8bit_run(const struct kernel_ctx *x, const struct op_call *c)
{
    return cuda_batch_lion_8bit(x, &c, 1);
}

CUDA_RUN(lion, vectors, lion_run)

CUDA_RUN(lion_master, vectors, lion_run)

CUDA_RUN(lion_8bit, warps, lion_8bit_run)

CUDA_RUN(lion_8bit_master, warps, lion_8bit_run)
