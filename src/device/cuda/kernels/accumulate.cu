/* accumulate.cu: clearing accumulators and adding to them. */
#include "device/cuda/kernels/update.cuh"

static constexpr int THREADS = 256;

/* ---- fill ------------------------------------------------------------------------------------ */

static __global__ void __launch_bounds__(THREADS)
    fill_kernel(struct any y, int64_t n, int64_t n_vectors, float value)
{
    const float v[4] = {value, value, value, value};
    const struct any4 r = any4_pack(v, y.dtype);
    for (int64_t i = grid_thread(); i < n_vectors; i += grid_threads())
        any4_store(y, i, r);
    for (int64_t i = 4 * n_vectors + grid_thread(); i < n; i += grid_threads())
        any_set_f32(y, i, value);
}

static enum status fill_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->out[0].shape);
    struct any y = any_of(&c->out[0]);
    int64_t n_vectors = any4_aligned(y) ? n / 4 : 0;
    fill_kernel<<<grid_for(n_vectors > 0 ? n_vectors : n, THREADS, grid_full(&x->env, THREADS)),
                  THREADS, 0, cuda_stream(x)>>>(y, n, n_vectors, (float)call_float(c, 0));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static __global__ void __launch_bounds__(THREADS) fill_any_kernel(struct any y, int64_t n, double v)
{
    for (int64_t i = grid_thread(); i < n; i += grid_threads())
        any_set(y, i, v);
}

static enum status fill_elements(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->out[0].shape);
    fill_any_kernel<<<grid_for(n, THREADS), THREADS, 0, cuda_stream(x)>>>(any_of(&c->out[0]), n,
                                                                          call_float(c, 0));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- accumulate ------------------------------------------------------------------------------ */

struct accumulate_rule {
    static constexpr int N_STATES = 0;
    using tensor = struct update_tensor;
    struct attrs {
        double unused; /* an empty struct has no bytes to compare */
    };
    int unused;

    static __device__ void share(struct accumulate_rule *, const struct update_head<struct attrs> &)
    {
    }

    __device__ __forceinline__ float keep_of(float) const
    {
        return 1.0f;
    }

    __device__ __forceinline__ void apply(float &acc, float *, float g, float) const
    {
        acc += g;
    }
};

typedef struct update_head<accumulate_rule::attrs> accumulate_head;

static update_launchable<accumulate_rule> pick_accumulate(const accumulate_head &)
{
    return update_kernel<accumulate_rule, any_dtypes>;
}

static enum status add_accumulate(struct update_launch<accumulate_rule> *l, const struct op_call *c)
{
    accumulate_head h;
    struct update_tensor t = {};
    memset(&h, 0, sizeof(h)); /* heads are compared byte by byte */
    h.target = c->in[0].dtype;
    h.grad = c->in[1].dtype;
    TRY(update_in_place(l->x, &c->in[0], &c->out[0], &t.target));
    t.grad = c->in[1].data;
    t.n_elems = shape_elems(&c->in[0].shape);
    h.vectors = update_aligned(&t);
    return update_add(l, &h, &t);
}

extern "C" enum status cuda_batch_accumulate(const struct kernel_ctx *x,
                                             const struct op_call *const *calls, int n)
{
    struct update_launch<accumulate_rule> l;
    l.x = x;
    l.pick = pick_accumulate;
    l.args.n_tensors = 0;
    l.args.n_chunks = 0;
    for (int i = 0; i < n; i++)
        TRY(add_accumulate(&l, calls[i]));
    return update_flush(&l);
}

static enum status accumulate_run(const struct kernel_ctx *x, const struct op_call *c)
{
    return cuda_batch_accumulate(x, &c, 1);
}

CUDA_RUN(fill, vectors, fill_vectors)
CUDA_RUN(fill, elements, fill_elements)

CUDA_RUN(accumulate, vectors, accumulate_run)
