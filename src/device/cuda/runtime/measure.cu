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
    LINK_BYTES = 128 << 20, /* each way: more than the caches of a host hold */
    LARGE_COPY = 16 << 20,
    SMALL_COPY = 1 << 20,
    ROUNDS = 5,
    LAUNCHES = 200,
    WAITS = 100,
    WAIT_COPY = 1 << 20,
    WAIT_ELEMS = 64 << 20,
    WAIT_RING = 16 /* copies ahead of the kernels that wait for them */
};

struct timer {
    cudaStream_t stream;
    cudaEvent_t start, stop;
};

static enum status timer_open(struct timer *t)
{
    CUDA_TRY(cudaEventCreate(&t->start));
    CUDA_TRY(cudaEventCreate(&t->stop));
    return OK;
}

static void timer_close(struct timer *t)
{
    cudaEvent_t events[] = {t->start, t->stop};
    for (cudaEvent_t e : events)
        if (e)
            (void)cudaEventDestroy(e);
}

static enum status timer_start(struct timer *t)
{
    CUDA_TRY(cudaEventRecord(t->start, t->stream));
    return OK;
}

/* Until what `stream` was given is done. */
static enum status timer_stop_on(struct timer *t, cudaStream_t stream, double *seconds)
{
    float ms = 0.0f;
    CUDA_TRY(cudaEventRecord(t->stop, stream));
    CUDA_TRY(cudaEventSynchronize(t->stop));
    CUDA_TRY(cudaEventElapsedTime(&ms, t->start, t->stop));
    *seconds = (double)ms * 1e-3;
    return OK;
}

static enum status timer_stop(struct timer *t, double *seconds)
{
    return timer_stop_on(t, t->stream, seconds);
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
    bool plain = cuda_gemm_declines(&x.env, &g) != NULL;
    for (int i = 0; i < ROUNDS; i++) {
        double seconds = 0.0;
        TRY(timer_start(t));
        TRY(plain ? cuda_gemm_tiled(&x, &g) : cuda_gemm(&x, scratch + 3 * matrix_bytes, &g));
        TRY(timer_stop(t, &seconds));
        best = seconds < best ? seconds : best;
    }
    *flops = 2.0 * (double)n * (double)n * (double)n / best;
    return OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

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

/* LINK_BYTES in copies of one size, one behind the other, as programs make them: from memory that
 * was not touched since the round before. */
static enum status enqueue_copies(cudaStream_t stream, char *dst, const char *src, int64_t size)
{
    for (int64_t at = 0; at < LINK_BYTES; at += size)
        CUDA_TRY(cudaMemcpyAsync(dst + at, src + at, (size_t)size, cudaMemcpyDefault, stream));
    return OK;
}

/* Seconds of one copy of a size, among others. */
static enum status measure_copies(struct timer *t, char *dst, const char *src, int64_t size,
                                  double *seconds)
{
    double best = 1e30;
    for (int i = 0; i < ROUNDS; i++) {
        double once = 0.0;
        TRY(timer_start(t));
        TRY(enqueue_copies(t->stream, dst, src, size));
        TRY(timer_stop(t, &once));
        best = once < best ? once : best;
    }
    *seconds = best * (double)size / (double)LINK_BYTES;
    return OK;
}

/* One direction: what a byte takes and what a copy takes besides, from copies of two sizes. */
static enum status measure_link(struct timer *t, char *dst, const char *src, struct link_rate *r)
{
    double large = 0.0, small = 0.0;
    TRY(measure_copies(t, dst, src, LARGE_COPY, &large));
    TRY(measure_copies(t, dst, src, SMALL_COPY, &small));
    *r = link_rate_of(LARGE_COPY, large, SMALL_COPY, small);
    return OK;
}

/* One direction while the other is used all the time: that begins first, with twice the bytes. The
 * clock stops on the stream itself: an event of a third one may stand behind the other direction's
 * copies, in the queue of the copy engine which that stream used last. */
static enum status measure_beside(struct device *d, struct timer *t, char *scratch, char *host,
                                  bool in, double *bytes)
{
    cudaStream_t own = cuda_state_of(d)->streams[in ? QUEUE_IN : QUEUE_OUT];
    cudaStream_t other = cuda_state_of(d)->streams[in ? QUEUE_OUT : QUEUE_IN];
    char *device_half = scratch + LINK_BYTES, *host_half = host + LINK_BYTES;
    double best = 1e30;
    for (int i = 0; i < ROUNDS; i++) {
        double seconds = 0.0;
        TRY(timer_start(t));
        CUDA_TRY(cudaStreamWaitEvent(own, t->start, 0));
        CUDA_TRY(cudaStreamWaitEvent(other, t->start, 0));
        for (int k = 0; k < 2; k++)
            TRY(in ? enqueue_copies(other, host_half, device_half, LARGE_COPY)
                   : enqueue_copies(other, scratch, host, LARGE_COPY));
        TRY(in ? enqueue_copies(own, scratch, host, LARGE_COPY)
               : enqueue_copies(own, host_half, device_half, LARGE_COPY));
        TRY(timer_stop_on(t, own, &seconds));
        CUDA_TRY(cudaStreamSynchronize(other));
        best = seconds < best ? seconds : best;
    }
    *bytes = (double)LINK_BYTES / best;
    return OK;
}

static enum status measure_links(struct device *d, struct timer *t, char *scratch, char *host)
{
    struct link_rate *in = &d->rates.links[TIER_HOST][TIER_DEVICE];
    struct link_rate *out = &d->rates.links[TIER_DEVICE][TIER_HOST];
    double both = 0.0;
    TRY(measure_link(t, scratch, host, in));
    TRY(measure_link(t, host, scratch, out));
    TRY(measure_beside(d, t, scratch, host, true, &both));
    in->both = both < in->alone ? both : in->alone;
    TRY(measure_beside(d, t, scratch, host, false, &both));
    out->both = both < out->alone ? both : out->alone;
    return OK;
}

/* ---- launches -------------------------------------------------------------------------------- */

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

/* ---- waits ----------------------------------------------------------------------------------- */

/* A copy into a ring: it waits until the kernel that had the place before is done. Its event is 0,
 * those of kernels follow. */
static enum status enqueue_fetch(struct device *d, char *scratch, char *host, int i, bool waits)
{
    cudaStream_t in = NULL;
    TRY(cuda_queue_stream(cuda_state_of(d), QUEUE_IN, &in));
    if (waits && i >= WAIT_RING)
        TRY(cuda_ops.wait(d, QUEUE_IN, 1 + i % WAIT_RING));
    CUDA_TRY(cudaMemcpyAsync(scratch, host, WAIT_COPY, cudaMemcpyDefault, in));
    return cuda_ops.record(d, QUEUE_IN, 0);
}

/* Kernels beside copies that are done long before: what is left is what a wait takes, and the
 * record behind the kernel that lets the next copy into its place. A kernel is as long as a few
 * copies. */
static enum status enqueue_waits(struct device *d, char *scratch, char *host, bool waits)
{
    cudaStream_t compute = NULL;
    TRY(cuda_queue_stream(cuda_state_of(d), QUEUE_COMPUTE, &compute));
    for (int i = 0; i < WAITS; i++) {
        TRY(enqueue_fetch(d, scratch, host, i, waits));
        if (waits)
            TRY(cuda_ops.wait(d, QUEUE_COMPUTE, 0));
        fill_noise<float><<<1024, 256, 0, compute>>>((float *)(scratch + WAIT_COPY), WAIT_ELEMS);
        if (waits)
            TRY(cuda_ops.record(d, QUEUE_COMPUTE, 1 + i % WAIT_RING));
    }
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* Recorded, as steps are. */
static enum status measure_waits(struct device *d, struct timer *t, char *scratch, char *host,
                                 bool waits, double *seconds)
{
    void *recording = NULL;
    enum status status;
    *seconds = 1e30;
    TRY(cuda_ops.capture_begin(d));
    status = enqueue_waits(d, scratch, host, waits);
    if (status != OK) {
        (void)cuda_ops.capture_end(d, NULL);
        return status;
    }
    TRY(cuda_ops.capture_end(d, &recording));
    for (int i = 0; i < ROUNDS; i++) {
        double once = 0.0;
        TRY_GOTO(timer_start(t), out);
        TRY_GOTO(cuda_ops.replay(d, recording), out);
        TRY_GOTO(timer_stop(t, &once), out);
        *seconds = once < *seconds ? once : *seconds;
    }
out:
    cuda_ops.capture_free(d, recording);
    return status;
}

static enum status measure_wait(struct device *d, struct timer *t, char *scratch, char *host,
                                double *wait_s)
{
    double with = 0.0, without = 0.0;
    TRY(cuda_ops.prepare(d, 1 + WAIT_RING));
    TRY(measure_waits(d, t, scratch, host, true, &with));
    TRY(measure_waits(d, t, scratch, host, false, &without));
    *wait_s = with > without ? (with - without) / (double)WAITS : 0.0;
    return OK;
}

static enum status measure_all(struct device *d, struct timer *t, char *scratch, char *host)
{
    struct device_rates *r = &d->rates;
    double inside = 0.0;
    bool has_bf16 = d->env.gpu->major >= 8;
    TRY(measure_product(d, t, scratch, has_bf16 ? DTYPE_BF16 : DTYPE_F16, MATRIX,
                        &r->half_matmul_flops));
    TRY(measure_product(d, t, scratch, DTYPE_F32, F32_MATRIX, &r->matmul_flops));
    TRY(measure_copy(t, scratch, scratch + STREAM_BYTES / 2, STREAM_BYTES / 2, &inside));
    TRY(measure_links(d, t, scratch, host));
    TRY(measure_launch(t, &r->launch_s));
    TRY(measure_wait(d, t, scratch, host, &r->wait_s));
    r->memory_bytes = 2.0 * inside;
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
    TRY_GOTO(cuda_ops.memory_alloc(d, TIER_HOST, 2 * (int64_t)LINK_BYTES, &host), out);
    TRY_GOTO(timer_open(&t), out);
    status = measure_all(d, &t, (char *)scratch, (char *)host);
out:
    timer_close(&t);
    cuda_ops.memory_free(d, TIER_DEVICE, scratch, n_bytes);
    cuda_ops.memory_free(d, TIER_HOST, host, 2 * (int64_t)LINK_BYTES);
    return status;
}
