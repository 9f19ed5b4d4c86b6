/* average.cu: averages of weights over the steps. */
#include "device/cuda/kernels/update.cuh"

static constexpr int THREADS = 256;

/* ---- ema ------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(THREADS)
    ema_kernel(float *average, struct any p, int64_t n, float keep, float rate)
{
    for (int64_t i = grid_thread(); i < n; i += grid_threads())
        average[i] = keep * average[i] + rate * any_get_f32(p, i);
}

static enum status ema_run(const struct kernel_ctx *x, const struct op_call *c)
{
    const int64_t n = shape_elems(&c->in[0].shape);
    const double keep = call_float(c, 0);
    void *average;
    TRY(update_in_place(x, &c->in[0], &c->out[0], &average));
    ema_kernel<<<grid_for(n, THREADS, grid_full(&x->env, THREADS)), THREADS, 0, cuda_stream(x)>>>(
        (float *)average, any_of(&c->in[1]), n, (float)keep, (float)(1.0 - keep));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(ema, elements, ema_run)

/* ---- lookahead, with a master or without ----------------------------------------------------- */

static __global__ void __launch_bounds__(THREADS)
    lookahead_kernel(struct any p, float *slow, float *master, const int32_t *step, int64_t n,
                     int64_t period, float rate)
{
    if (*step % period != 0)
        return;
    for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
        const float fast = master ? master[i] : any_get_f32(p, i);
        const float next = slow[i] + rate * (fast - slow[i]);
        slow[i] = next;
        any_set_f32(p, i, next);
        if (master)
            master[i] = next;
    }
}

static enum status lookahead_run(const struct kernel_ctx *x, const struct op_call *c)
{
    const int64_t n = shape_elems(&c->in[0].shape);
    struct any p = any_of(&c->out[0]);
    void *slow, *master = NULL;
    TRY(update_in_place(x, &c->in[0], &c->out[0], &p.data));
    TRY(update_in_place(x, &c->in[1], &c->out[1], &slow));
    if (c->n_in > 3)
        TRY(update_in_place(x, &c->in[3], &c->out[2], &master));
    lookahead_kernel<<<grid_for(n, THREADS, grid_full(&x->env, THREADS)), THREADS, 0,
                       cuda_stream(x)>>>(p, (float *)slow, (float *)master,
                                         (const int32_t *)c->in[2].data, n, call_int(c, 0),
                                         (float)call_float(c, 1));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(lookahead, elements, lookahead_run)

CUDA_RUN(lookahead_master, elements, lookahead_run)
