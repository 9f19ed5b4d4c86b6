/* sgd.cu: gradient descent, plain and with momentum, on the parameter or on its master. */
#include "device/cuda/kernels/update.cuh"
#include "ops/update_support.h"

struct sgd_rule {
    static constexpr int N_STATES = 0;
    using tensor = struct update_tensor;
    struct attrs {
        double unused; /* an empty struct has no bytes to compare */
    };
    float lr, scale;

    static __device__ void share(struct sgd_rule *r, const struct update_head<struct attrs> &h)
    {
        if (threadIdx.x == 0) {
            r->lr = *h.lr;
            r->scale = *h.scale;
        }
    }

    /* Weight decay is part of the gradient. */
    __device__ __forceinline__ float keep_of(float weight_decay) const
    {
        return weight_decay;
    }

    __device__ __forceinline__ void apply(float &p, float *, float grad, float weight_decay) const
    {
        p -= lr * (grad * scale + weight_decay * p);
    }
};

struct sgd_momentum_rule {
    static constexpr int N_STATES = 1; /* the momentum buffer */
    using tensor = struct update_tensor;
    struct attrs {
        double momentum;
        int64_t nesterov;
    };
    float lr, scale, momentum;
    bool nesterov;
    bool first; /* the buffer starts as the gradient */

    static __device__ void share(struct sgd_momentum_rule *r,
                                 const struct update_head<struct attrs> &h)
    {
        if (threadIdx.x == 0) {
            r->lr = *h.lr;
            r->scale = *h.scale;
            r->momentum = (float)h.attrs.momentum;
            r->nesterov = h.attrs.nesterov != 0;
            r->first = *h.step <= 1;
        }
    }

    __device__ __forceinline__ float keep_of(float weight_decay) const
    {
        return weight_decay;
    }

    __device__ __forceinline__ void apply(float &p, float *state, float grad,
                                          float weight_decay) const
    {
        float g = grad * scale + weight_decay * p;
        float buf = first ? g : momentum * state[0] + g;
        p -= lr * (nesterov ? g + momentum * buf : buf);
        state[0] = buf;
    }
};

template <typename RULE>
static update_launchable<RULE> pick_any(const struct update_head<typename RULE::attrs> &)
{
    return update_kernel<RULE, any_dtypes>;
}

/* The scalars begin at input `at`: lr, step, scale. */
template <typename RULE>
static void fill_head(struct update_head<typename RULE::attrs> *h, const struct op_call *c, int at)
{
    memset(h, 0, sizeof(*h)); /* heads are compared byte by byte */
    h->lr = (const float *)c->in[at].data;
    h->step = (const int32_t *)c->in[at + 1].data;
    h->scale = (const float *)c->in[at + 2].data;
    h->grad = c->in[1].dtype;
}

static enum status add_sgd(struct update_launch<sgd_rule> *l, const struct op_call *c)
{
    struct update_head<sgd_rule::attrs> h;
    fill_head<sgd_rule>(&h, c, 2);
    return update_add_call(l, &h, c, (float)call_float(c, SGD_WEIGHT_DECAY));
}

static enum status add_sgd_momentum(struct update_launch<sgd_momentum_rule> *l,
                                    const struct op_call *c)
{
    struct update_head<sgd_momentum_rule::attrs> h;
    fill_head<sgd_momentum_rule>(&h, c, 3);
    h.attrs.momentum = call_float(c, SGD_MOMENTUM);
    h.attrs.nesterov = call_bool(c, SGD_NESTEROV);
    return update_add_call(l, &h, c, (float)call_float(c, SGD_MOMENTUM_WEIGHT_DECAY));
}

template <typename RULE>
static enum status run_all(const struct kernel_ctx *x, const struct op_call *const *calls, int n,
                           enum status (*add)(struct update_launch<RULE> *, const struct op_call *))
{
    struct update_launch<RULE> l;
    l.x = x;
    l.pick = pick_any<RULE>;
    l.args.n_tensors = 0;
    l.args.n_chunks = 0;
    for (int i = 0; i < n; i++)
        TRY(add(&l, calls[i]));
    return update_flush(&l);
}

extern "C" enum status cuda_batch_sgd(const struct kernel_ctx *x,
                                      const struct op_call *const *calls, int n)
{
    return run_all<sgd_rule>(x, calls, n, add_sgd);
}

extern "C" enum status cuda_batch_sgd_momentum(const struct kernel_ctx *x,
                                               const struct op_call *const *calls, int n)
{
    return run_all<sgd_momentum_rule>(x, calls, n, add_sgd_momentum);
}

static enum status sgd_run(const struct kernel_ctx *x, const struct op_call *c)
{
    return cuda_batch_sgd(x, &c, 1);
}

static enum status sgd_momentum_run(const struct kernel_ctx *x, const struct op_call *c)
{
    return cuda_batch_sgd_momentum(x, &c, 1);
}

CUDA_RUN(sgd, vectors, sgd_run)

CUDA_RUN(sgd_master, vectors, sgd_run)

CUDA_RUN(sgd_momentum, vectors, sgd_momentum_run)

CUDA_RUN(sgd_momentum_master, vectors, sgd_momentum_run)
