/* measure.cu: the rates the time model works with, measured when the device is opened, and
 * with it the libraries warmed so that the context has its full size. A few milliseconds of work.
 */
#include "device/cuda/products/gemm.h"
#include "device/cuda/runtime/state.cuh"
#include "device/cuda/support/noise.cuh"

enum {
    MATRIX = 4096,
    F32_MATRIX = 2048,
    STREAM_BYTES = 512 << 20,
    LINK_BYTES = 32 << 20,
    ROUNDS = 5,
    LAUNCHES = 200
};

struct timer {
    cudaStream_t stream;
    cudaEvent_t start, stop;
};

static enum status timer_start(struct timer *t)
{
    CUDA_TRY(cudaEventRecord(t->start, t->stream));
    return OK;
}

static enum status timer_stop(struct timer *t, double *seconds)
{
    float ms = 0.0f;
    CUDA_TRY(cudaEventRecord(t->stop, t->stream));
    CUDA_TRY(cudaEventSynchronize(t->stop));
    CUDA_TRY(cudaEventElapsedTime(&ms, t->start, t->stop));
    *seconds = (double)ms * 1e-3;
    return OK;
}

static __global__ void nothing(int *p)
{
    if (p)
        *p = 0;
}

static enum status measure_product(struct device *d, struct timer *t, char *scratch,
                                   enum dtype type, int64_t n, double *flops)
{
    struct kernel_ctx x = {};
    struct cuda_gemm g = {};
    int64_t matrix_bytes = n * n * dtype_size(type);
    double best = 1e30;
    x.env = d->env;
    x.queue = t->stream;
    CUDA_DISPATCH_FLOAT(type, T,
                        (fill_noise<T><<<1024, 256, 0, t->stream>>>((T *)scratch, 2 * n * n)));
    CUDA_TRY(cudaGetLastError());
    g.m = g.n = g.k = g.c_row = n;
    g.a = {scratch, 0, n, false};
    g.b = {scratch + matrix_bytes, 0, n, true};
    g.c = scratch + 2 * matrix_bytes;
    g.dtype = g.c_dtype = type;
    for (int i = 0; i < ROUNDS; i++) {
        double seconds = 0.0;
        TRY(timer_start(t));
        TRY(cuda_gemm(&x, scratch + 3 * matrix_bytes, &g));
        TRY(timer_stop(t, &seconds));
        best = seconds < best ? seconds : best;
    }
    *flops = 2.0 * (double)n * (double)n * (double)n / best;
    return OK;
}

static enum status measure_copy(struct timer *t, void *dst, const void *src, int64_t n_bytes,
                                double *bytes)
{
    double best = 1e30;
    for (int i = 0; i < ROUNDS; i++) {
        double seconds = 0.0;
        TRY(timer_start(t));
        CUDA_TRY(cudaMemcpyAsync(dst, src, (size_t)n_bytes, cudaMemcpyDefault, t->stream));
        TRY(timer_stop(t, &seconds));
        best = seconds < best ? seconds : best;
    }
    *bytes = (double)n_bytes / best;
    return OK;
}

static enum status measure_launch(struct timer *t, double *launch_s)
{
    double seconds = 0.0;
    TRY(timer_start(t));
    for (int i = 0; i < LAUNCHES; i++)
        nothing<<<1, 32, 0, t->stream>>>(NULL);
    CUDA_TRY(cudaGetLastError());
    TRY(timer_stop(t, &seconds));
    *launch_s = seconds / (double)LAUNCHES;
    return OK;
}

static enum status measure_all(struct device *d, struct timer *t, char *scratch, char *host)
{
    struct device_rates *r = &d->rates;
    double in = 0.0, out = 0.0, inside = 0.0;
    bool has_bf16 = cuda_libraries_of(&d->env)->major >= 8;
    TRY(measure_product(d, t, scratch, has_bf16 ? DTYPE_BF16 : DTYPE_F16, MATRIX,
                        &r->half_matmul_flops));
    TRY(measure_product(d, t, scratch, DTYPE_F32, F32_MATRIX, &r->matmul_flops));
    TRY(measure_copy(t, scratch, scratch + STREAM_BYTES / 2, STREAM_BYTES / 2, &inside));
    TRY(measure_copy(t, scratch, host, LINK_BYTES, &in));
    TRY(measure_copy(t, host, scratch, LINK_BYTES, &out));
    TRY(measure_launch(t, &r->launch_s));
    r->memory_bytes = 2.0 * inside;
    r->copy_bytes = in < out ? in : out;
    return OK;
}

enum status cuda_measure(struct device *d)
{
    struct timer t = {cuda_state_of(d)->streams[QUEUE_COMPUTE], NULL, NULL};
    const int64_t products = 3 * (int64_t)MATRIX * MATRIX * 2 + (32 << 20);
    const int64_t n_bytes = products > STREAM_BYTES ? products : (int64_t)STREAM_BYTES;
    void *scratch = NULL, *host = NULL;
    enum status status;
    TRY_GOTO(cuda_ops.memory_alloc(d, TIER_DEVICE, n_bytes, &scratch), out);
    TRY_GOTO(cuda_ops.memory_alloc(d, TIER_HOST, LINK_BYTES, &host), out);
    if (cudaEventCreate(&t.start) != cudaSuccess || cudaEventCreate(&t.stop) != cudaSuccess) {
        status = FAIL(ERR_FAILED, "CUDA: cannot make events: %s",
                      cudaGetErrorString(cudaGetLastError()));
        goto out;
    }
    status = measure_all(d, &t, (char *)scratch, (char *)host);
out:
    if (t.start)
        (void)cudaEventDestroy(t.start);
    if (t.stop)
        (void)cudaEventDestroy(t.stop);
    cuda_ops.memory_free(d, TIER_DEVICE, scratch, n_bytes);
    cuda_ops.memory_free(d, TIER_HOST, host, LINK_BYTES);
    return status;
}
