/* muon.cu: what Muon has beside matrix products: its momentum, lengths, and the step. */
#include "device/cuda/kernels/coded.cuh"
#include "device/cuda/support/map.cuh"
#include "ops/update_support.h"

static constexpr int THREADS = 256;

/* ---- muon_momentum --------------------------------------------------------------------------- */

struct momentum_args {
    struct any grad, direction;
    struct any buf; /* numbers, or */
    uint8_t *codes; /* codes */
    float *absmax;  /* and their scales */
    const float *scale;
    int64_t n_elems;
    float keep, rate;     /* momentum; 1 - momentum */
    float fresh, carried; /* direction = fresh g + carried buf' */
};

/* scale = 0: the momentum stays to the bit, and there is no direction. */
static __global__ void __launch_bounds__(THREADS)
    momentum_kernel(__grid_constant__ const struct momentum_args a)
{
    const float scale = *a.scale;
    for (int64_t i = grid_thread(); i < a.n_elems; i += grid_threads()) {
        if (scale == 0.0f) {
            any_set_f32(a.direction, i, 0.0f);
            continue;
        }
        const float g = any_get_f32(a.grad, i) * scale;
        const float buf = a.keep * any_get_f32(a.buf, i) + a.rate * g;
        any_set_f32(a.buf, i, buf);
        any_set_f32(a.direction, i, a.fresh * g + a.carried * buf);
    }
}

/* A warp has the 256 elements of a block of codes, eight of them to a thread, 32 apart. */
static __global__ void __launch_bounds__(THREADS)
    coded_momentum_kernel(__grid_constant__ const struct momentum_args a)
{
    const float scale = *a.scale;
    const int64_t n_blocks = (a.n_elems + DYNAMIC_BLOCK - 1) / DYNAMIC_BLOCK;
    const int lane = (int)(threadIdx.x % WARP);
    for (int64_t b = grid_thread() / WARP; b < n_blocks; b += grid_threads() / WARP) {
        float buf[8];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int64_t i = b * DYNAMIC_BLOCK + k * WARP + lane;
            buf[k] = 0.0f;
            if (i >= a.n_elems)
                continue;
            if (scale == 0.0f) {
                any_set_f32(a.direction, i, 0.0f);
                continue;
            }
            const float g = any_get_f32(a.grad, i) * scale;
            buf[k] = a.keep * (signed_map.value[a.codes[i]] * a.absmax[b]) + a.rate * g;
            any_set_f32(a.direction, i, a.fresh * g + a.carried * buf[k]);
        }
        if (scale == 0.0f)
            continue;
        const float most = largest_of_warp(buf), inverse = dynamic_inverse(most);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int64_t i = b * DYNAMIC_BLOCK + k * WARP + lane;
            const uint32_t bits = __float_as_uint(buf[k] * inverse);
            const uint32_t rank = dynamic_rank(signed_map.cell[dynamic_cell(bits)], bits);
            if (i < a.n_elems)
                a.codes[i] = (uint8_t)dynamic_signed(rank, bits);
        }
        __syncwarp();
        if (lane == 0)
            a.absmax[b] = most;
    }
}

static enum status momentum_run(const struct kernel_ctx *x, const struct op_call *c)
{
    struct momentum_args a = {};
    const bool coded = c->in[1].dtype == DTYPE_U8, nesterov = call_bool(c, MUON_NESTEROV);
    const double keep = call_float(c, MUON_MOMENTUM);
    void *buf, *absmax = NULL;
    TRY(update_in_place(x, &c->in[1], &c->out[0], &buf));
    if (coded)
        TRY(update_in_place(x, &c->in[2], &c->out[1], &absmax));
    a.grad = any_of(&c->in[0]);
    a.direction = any_of(&c->out[c->n_out - 1]);
    a.buf = any_of(&c->out[0]);
    a.codes = (uint8_t *)buf;
    a.absmax = (float *)absmax;
    a.scale = (const float *)c->in[c->n_in - 1].data;
    a.n_elems = shape_elems(&c->in[0].shape);
    a.keep = (float)keep;
    a.rate = (float)(1.0 - keep);
    a.fresh = nesterov ? a.rate : 0.0f;
    a.carried = nesterov ? a.keep : 1.0f;
    const unsigned grid = grid_for(a.n_elems, THREADS, grid_full(&x->env, THREADS));
    if (coded)
        coded_momentum_kernel<<<grid, THREADS, 0, cuda_stream(x)>>>(a);
    else
        momentum_kernel<<<grid, THREADS, 0, cuda_stream(x)>>>(a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(muon_momentum, elements, momentum_run)

CUDA_RUN(muon_momentum_8bit, warps, momentum_run)

/* ---- inverse_norm ---------------------------------------------------------------------------- */

static __global__ void inverse_norm_kernel(float *y, const float *squares, double epsilon)
{
    *y = (float)(1.0 / fmax(sqrt((double)*squares), epsilon));
}

static enum status inverse_norm_run(const struct kernel_ctx *x, const struct op_call *c)
{
    inverse_norm_kernel<<<1, 1, 0, cuda_stream(x)>>>(
        (float *)c->out[0].data, (const float *)c->in[0].data, call_float(c, 0));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(inverse_norm, one, inverse_norm_run)

/* ---- weighted_sum ---------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(THREADS)
    weighted_sum_kernel(struct any y, struct any p, struct any q, int64_t n, int64_t n_vectors,
                        float a, float b)
{
    for (int64_t i = grid_thread(); i < n_vectors; i += grid_threads()) {
        const struct any4 raw_p = any4_load(p, i), raw_q = any4_load(q, i);
        float u[4], v[4];
        any4_unpack(u, raw_p, p.dtype);
        any4_unpack(v, raw_q, q.dtype);
#pragma unroll
        for (int k = 0; k < 4; k++)
            u[k] = a * u[k] + b * v[k];
        any4_store(y, i, any4_pack(u, y.dtype));
    }
    for (int64_t i = 4 * n_vectors + grid_thread(); i < n; i += grid_threads())
        any_set_f32(y, i, a * any_get_f32(p, i) + b * any_get_f32(q, i));
}

static enum status weighted_sum_run(const struct kernel_ctx *x, const struct op_call *c)
{
    const int64_t n = shape_elems(&c->out[0].shape);
    const struct any y = any_of(&c->out[0]), p = any_of(&c->in[0]), q = any_of(&c->in[1]);
    const int64_t n_vectors = any4_aligned(y) && any4_aligned(p) && any4_aligned(q) ? n / 4 : 0;
    weighted_sum_kernel<<<grid_for(n_vectors > 0 ? n_vectors : n, THREADS,
                                   grid_full(&x->env, THREADS)),
                          THREADS, 0, cuda_stream(x)>>>(
        y, p, q, n, n_vectors, (float)call_float(c, 0), (float)call_float(c, 1));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(weighted_sum, vectors, weighted_sum_run)

/* ---- muon_update ----------------------------------------------------------------------------- */

struct step_rule {
    static constexpr int N_STATES = 0;
    using tensor = struct update_tensor;
    struct attrs {
        double unused; /* an empty struct has no bytes to compare */
    };
    float lr;

    static __device__ void share(struct step_rule *r, const struct update_head<struct attrs> &h)
    {
        if (threadIdx.x == 0)
            r->lr = *h.lr;
    }

    __device__ __forceinline__ float keep_of(float weight_decay) const
    {
        return fmaf(-lr, weight_decay, 1.0f);
    }

    __device__ __forceinline__ void apply(float &p, float *, float direction, float keep) const
    {
        p = p * keep - lr * direction;
    }
};

static update_launchable<step_rule> pick_step(const struct update_head<step_rule::attrs> &)
{
    return update_kernel<step_rule, any_dtypes>;
}

extern "C" enum status cuda_batch_muon_update(const struct kernel_ctx *x,
                                              const struct op_call *const *calls, int n)
{
    struct update_launch<step_rule> l;
    l.x = x;
    l.pick = pick_step;
    l.args.n_tensors = 0;
    l.args.n_chunks = 0;
    for (int i = 0; i < n; i++) {
        const struct op_call *c = calls[i];
        struct update_head<step_rule::attrs> h;
        memset((void *)&h, 0, sizeof(h)); /* heads are compared byte by byte */
        h.lr = (const float *)c->in[2].data;
        h.step = (const int32_t *)c->in[3].data;
        h.scale = (const float *)c->in[4].data;
        h.grad = c->in[1].dtype;
        TRY(update_add_call(&l, &h, c, (float)call_float(c, 0)));
    }
    return update_flush(&l);
}

static enum status step_run(const struct kernel_ctx *x, const struct op_call *c)
{
    return cuda_batch_muon_update(x, &c, 1);
}

CUDA_RUN(muon_update, vectors, step_run)

CUDA_RUN(muon_update_master, vectors, step_run)
