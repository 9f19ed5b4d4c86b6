/* time.cu: how long things take on the GPU: single kernels for the time model, and moments on
 * queues for profiles.
 *
 * Kernels are timed as programs run them: as nodes of a recording, one after the other, so that
 * what the host does to launch them does not count and the gap between two nodes does. The work of
 * a timing goes on for some milliseconds, so that the GPU is not asleep; large calls, those of
 * models that keep a GPU at the limit of its power, go on for some more before they count, until
 * the clock has fallen to what it can hold. */
#include <stdlib.h>

#include "base/alloc.h"
#include "device/cuda/runtime/state.cuh"
#include "device/cuda/support/noise.cuh"

enum {
    MOST_CALLS = 64, /* of one recording */
    LEAST_ROUNDS = 3,
    MOST_ROUNDS = 15
};
#define RECORDING_S    400e-6 /* a recording lasts at least so long, unless it is full */
#define RECORDING_MOST 5e-3   /* and more calls than one do not make it longer than this */
#define TIMING_S       10e-3  /* rounds of it, in all */
#define DISTURBED      1.25   /* median over fastest: rounds of one recording differ by less */
#define LARGE_S        200e-6 /* a call of this length is large, */
#define SETTLE_S       30e-3  /* and runs for so long beforehand */

/* ---- contents ------------------------------------------------------------------------------- */

template <typename T> static __global__ void fill_indices(T *p, int64_t n, struct index_rule rule)
{
    for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
        struct philox4 bits = philox(1, 3, (uint64_t)i);
        uint64_t wide = (uint64_t)bits.v[0] << 32 | bits.v[1];
        p[i] = (T)index_value(rule, i, n, wide);
    }
}

enum status cuda_fill(struct device *d, const struct tensor *t, struct index_rule rule)
{
    cudaStream_t stream = cuda_state_of(d)->streams[QUEUE_COMPUTE];
    int64_t n = shape_elems(&t->shape);
    unsigned grid = grid_for(n, 256, grid_full(&d->env, 256));
    bool noise = t->dtype == DTYPE_F32 || t->dtype == DTYPE_BF16 || t->dtype == DTYPE_F16;
    if (n == 0)
        return OK;
    if (noise)
        CUDA_DISPATCH_FLOAT(t->dtype, T,
                            (fill_noise<T><<<grid, 256, 0, stream>>>((T *)t->data, n)));
    else if (t->dtype == DTYPE_I32)
        fill_indices<<<grid, 256, 0, stream>>>((int32_t *)t->data, n, rule);
    else if (t->dtype == DTYPE_I64)
        fill_indices<<<grid, 256, 0, stream>>>((int64_t *)t->data, n, rule);
    else
        CUDA_TRY(cudaMemsetAsync(t->data, 0, (size_t)tensor_bytes(t), stream));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- kernels -------------------------------------------------------------------------------- */

struct timer {
    struct device *d;
    const struct timed_calls *calls;
    cudaStream_t stream;
    cudaEvent_t events[MOST_ROUNDS + 1];
    void *recording;
};

/* Together they are one call for each piece of memory: the same piece twice would be a race. */
static enum status run_together(struct timer *t)
{
    const struct op_call *calls[MOST_CALLS];
    struct kernel_ctx x = t->calls->contexts[0];
    int n = t->calls->n < MOST_CALLS ? t->calls->n : (int)MOST_CALLS;
    for (int i = 0; i < n; i++)
        calls[i] = &t->calls->calls[i];
    x.queue = t->stream;
    return t->calls->batch(&x, calls, n);
}

static enum status run_calls(struct timer *t, int n)
{
    if (t->calls->batch) {
        for (int i = 0; i < n; i++)
            TRY(run_together(t));
        return OK;
    }
    for (int i = 0; i < n; i++) {
        int copy = i % t->calls->n;
        struct kernel_ctx x = t->calls->contexts[copy];
        x.queue = t->stream;
        TRY(t->calls->kernel->run(&x, &t->calls->calls[copy]));
    }
    return OK;
}

static enum status elapsed(const struct timer *t, int from, int to, double *seconds)
{
    float ms = 0.0f;
    CUDA_TRY(cudaEventElapsedTime(&ms, t->events[from], t->events[to]));
    *seconds = (double)ms * 1e-3;
    return OK;
}

/* First the run in which libraries load their code, then one to see what size of call this is. */
static enum status look(struct timer *t, double *seconds)
{
    TRY(run_calls(t, 1));
    CUDA_TRY(cudaStreamSynchronize(t->stream));
    CUDA_TRY(cudaEventRecord(t->events[0], t->stream));
    TRY(run_calls(t, 1));
    CUDA_TRY(cudaEventRecord(t->events[1], t->stream));
    CUDA_TRY(cudaStreamSynchronize(t->stream));
    TRY(elapsed(t, 0, 1, seconds));
    *seconds = *seconds < 1e-6 ? 1e-6 : *seconds;
    return OK;
}

static int calls_for(const struct timer *t, double seconds)
{
    int n = (int)ceil(RECORDING_S / seconds);
    int most = (int)(RECORDING_MOST / seconds);
    if (!t->calls->batch && n < t->calls->n)
        n = t->calls->n; /* all the memory, where that does not take for ever */
    n = n > most ? most : n;
    n = n > MOST_CALLS ? MOST_CALLS : n;
    return n < 1 ? 1 : n;
}

static enum status make_recording(struct timer *t, int n)
{
    TRY(cuda_ops.capture_begin(t->d));
    enum status status = run_calls(t, n);
    if (status == OK)
        return cuda_ops.capture_end(t->d, &t->recording);
    (void)cuda_ops.capture_end(t->d, NULL); /* the first error is the one to tell */
    return status;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The recording: the median of rounds that follow each other without a pause. */
static enum status time_rounds(struct timer *t, int n_before, int n_rounds, struct call_time *out)
{
    double rounds[MOST_ROUNDS];
    for (int i = 0; i < n_before; i++)
        TRY(cuda_ops.replay(t->d, t->recording));
    CUDA_TRY(cudaEventRecord(t->events[0], t->stream));
    for (int i = 0; i < n_rounds; i++) {
        TRY(cuda_ops.replay(t->d, t->recording));
        CUDA_TRY(cudaEventRecord(t->events[i + 1], t->stream));
    }
    CUDA_TRY(cudaStreamSynchronize(t->stream));
    for (int i = 0; i < n_rounds; i++)
        TRY(elapsed(t, i, i + 1, &rounds[i]));
    qsort(rounds, (size_t)n_rounds, sizeof(*rounds), by_size);
    out->seconds = rounds[n_rounds / 2];
    out->disturbed = rounds[n_rounds / 2] > DISTURBED * rounds[0];
    return OK;
}

static enum status time_all(struct timer *t, struct call_time *out)
{
    double rough = 0.0;
    for (int i = 0; i <= MOST_ROUNDS; i++)
        CUDA_TRY(cudaEventCreate(&t->events[i]));
    TRY(look(t, &rough));
    int n = calls_for(t, rough);
    int n_rounds = (int)(TIMING_S / (rough * (double)n));
    n_rounds = n_rounds < LEAST_ROUNDS ? LEAST_ROUNDS : n_rounds;
    n_rounds = n_rounds > MOST_ROUNDS ? MOST_ROUNDS : n_rounds;
    int n_before = rough < LARGE_S ? 1 : (int)ceil(SETTLE_S / (rough * (double)n));
    TRY(make_recording(t, n));
    TRY(time_rounds(t, n_before, n_rounds, out));
    if (t->calls->batch)
        n *= t->calls->n < MOST_CALLS ? t->calls->n : (int)MOST_CALLS;
    out->seconds /= (double)n;
    return OK;
}

enum status cuda_time_calls(struct device *d, const struct timed_calls *calls,
                            struct call_time *out)
{
    struct timer t = {};
    t.d = d;
    t.calls = calls;
    t.stream = cuda_state_of(d)->streams[QUEUE_COMPUTE];
    enum status status = time_all(&t, out);
    cuda_ops.capture_free(d, t.recording);
    for (int i = 0; i <= MOST_ROUNDS; i++) {
        if (t.events[i])
            (void)cudaEventDestroy(t.events[i]);
    }
    return status;
}

/* ---- marks ---------------------------------------------------------------------------------- */

enum status cuda_prepare_marks(struct device *d, int n_marks)
{
    struct cuda_state *s = cuda_state_of(d);
    if (n_marks <= s->n_marks)
        return OK;
    void *marks = mem_realloc(s->marks, (size_t)n_marks * sizeof(*s->marks));
    if (!marks)
        return FAIL(ERR_MEMORY, "out of memory for %d marks", n_marks);
    s->marks = (cudaEvent_t *)marks;
    while (s->n_marks < n_marks) {
        CUDA_TRY(cudaEventCreate(&s->marks[s->n_marks]));
        s->n_marks++;
    }
    return OK;
}

/* In a recording the mark is a node of its own, so that every replay sets it anew. */
enum status cuda_mark(struct device *d, enum queue q, int mark)
{
    struct cuda_state *s = cuda_state_of(d);
    cudaStream_t stream;
    BUG_ON(mark < 0 || mark >= s->n_marks);
    TRY(cuda_queue_stream(s, q, &stream));
    unsigned flags = s->capturing ? cudaEventRecordExternal : cudaEventRecordDefault;
    CUDA_TRY(cudaEventRecordWithFlags(s->marks[mark], stream, flags));
    return OK;
}

enum status cuda_mark_seconds(struct device *d, int from, int to, double *seconds)
{
    struct cuda_state *s = cuda_state_of(d);
    float ms = 0.0f;
    BUG_ON(from < 0 || from >= s->n_marks || to < 0 || to >= s->n_marks);
    CUDA_TRY(cudaEventElapsedTime(&ms, s->marks[from], s->marks[to]));
    *seconds = (double)ms * 1e-3;
    return OK;
}

void cuda_marks_free(struct cuda_state *s)
{
    for (int i = 0; i < s->n_marks; i++)
        (void)cudaEventDestroy(s->marks[i]);
    mem_free(s->marks);
    s->marks = NULL;
    s->n_marks = 0;
}
