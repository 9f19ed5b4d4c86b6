/* device.cu: a GPU as a device: arenas, queues, events, recordings.
 *
 * The device tier is one cudaMalloc, the host tier one mapping registered with CUDA (pinned, of
 * exactly the planned size). Queues are streams; events are made when a program is loaded.
 *
 * Copies to and from the disk are functions of the host that the disk's stream calls, in recordings
 * too.
 *
 * A recording is a CUDA graph. The compute stream is captured; another stream joins the capture
 * when it is first used (it waits for `fork`, recorded at the start) and is tied back at the end.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "device/cuda/products/gemm.h"
#include "device/cuda/products/gemm_search.h"
#include "device/cuda/runtime/state.cuh"
#include "device/disk/disk.h"
#include "device/gpu.h"

/* ---- memory --------------------------------------------------------------------------------- */

/* The message speaks of all that this process would hold. */
static enum status refuse(struct device *d, int64_t n_bytes)
{
    struct device_room room;
    TRY(cuda_room(d, &room));
    return room_refuse(&room, "the device arena with the context", n_bytes + room.own_bytes);
}

static enum status alloc_device(struct device *d, int64_t n_bytes, void **out)
{
    struct cuda_state *s = cuda_state_of(d);
    size_t free_bytes = 0, total = 0;
    cuda_load_kernels(s);
    CUDA_TRY(cudaMemGetInfo(&free_bytes, &total));
    if ((int64_t)free_bytes < n_bytes)
        return refuse(d, n_bytes);
    cudaError_t e = cudaMalloc(out, (size_t)n_bytes);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        *out = NULL;
        return refuse(d, n_bytes);
    }
    CUDA_TRY(e);
    cudaStream_t stream = s->streams[QUEUE_COMPUTE];
    e = cudaMemsetAsync(*out, 0, (size_t)n_bytes, stream);
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(stream);
    if (e != cudaSuccess) {
        (void)cudaFree(*out);
        *out = NULL;
    }
    CUDA_TRY(e);
    return OK;
}

enum { TOUCHED_BYTES = 2 << 20 }; /* at a time: a huge page */

static void touch_some(const void *job, int64_t first, int64_t last, int thread)
{
    char *base = *(char *const *)job;
    (void)thread;
    for (int64_t at = first * TOUCHED_BYTES; at < last * TOUCHED_BYTES; at += 4096)
        *(volatile char *)(base + at) = 0;
}

/* Pages that exist are pinned ten times as fast as pages the driver has to ask for one by one. */
static void touch_pages(struct device *d, char *base, int64_t n_bytes)
{
    (void)madvise(base, (size_t)n_bytes, MADV_HUGEPAGE); /* best effort */
    if (d->env.team)
        team_run(d->env.team, n_bytes / TOUCHED_BYTES, 1, touch_some, &base);
}

static enum status alloc_host(struct device *d, int64_t n_bytes, void **out)
{
    void *p =
        mmap(NULL, (size_t)n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return room_refuse_host("the host arena", n_bytes, strerror(errno));
    touch_pages(d, (char *)p, n_bytes);
    cudaError_t e = cudaHostRegister(p, (size_t)n_bytes, cudaHostRegisterDefault);
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        (void)munmap(p, (size_t)n_bytes);
        return room_refuse_pinned("the host arena", n_bytes, cudaGetErrorString(e));
    }
    *out = p;
    return OK;
}

static enum status memory_alloc(struct device *d, enum tier t, int64_t n_bytes, void **out)
{
    *out = NULL;
    if (n_bytes == 0)
        return OK;
    if (t == TIER_DISK)
        return d->disk ? disk_alloc(d->disk, n_bytes, out)
                       : FAIL(ERR_INTERNAL, "%lld bytes of a disk tier that is not there",
                              (long long)n_bytes);
    return t == TIER_DEVICE ? alloc_device(d, n_bytes, out) : alloc_host(d, n_bytes, out);
}

static void memory_free(struct device *d, enum tier t, void *p, int64_t n_bytes)
{
    if (!p)
        return;
    if (t == TIER_DISK) {
        disk_free(d->disk, p);
        return;
    }
    if (t == TIER_DEVICE) {
        (void)cudaFree(p);
        return;
    }
    (void)cudaHostUnregister(p);
    (void)munmap(p, (size_t)n_bytes);
}

/* ---- queues --------------------------------------------------------------------------------- */

enum status cuda_queue_stream(struct cuda_state *s, enum queue q, cudaStream_t *out)
{
    *out = s->streams[q];
    if (s->capturing && !s->forked[q]) {
        CUDA_TRY(cudaStreamWaitEvent(*out, s->fork, 0));
        s->forked[q] = true;
    }
    return OK;
}

static void *queue_stream(struct device *d, enum queue q)
{
    return cuda_state_of(d)->streams[q];
}

static enum status copy(struct device *d, enum queue q, struct place to, struct place from,
                        int64_t n_bytes)
{
    cudaStream_t stream;
    TRY(cuda_queue_stream(cuda_state_of(d), q, &stream));
    if (to.memory->tier == TIER_DISK || from.memory->tier == TIER_DISK) {
        struct disk_task *task;
        TRY(disk_task(d->disk, to, from, n_bytes, &task));
        CUDA_TRY(cudaLaunchHostFunc(stream, disk_task_run, task));
        return OK;
    }
    CUDA_TRY(cudaMemcpyAsync(place_address(to), place_address(from), (size_t)n_bytes,
                             cudaMemcpyDefault, stream));
    return OK;
}

static enum status prepare(struct device *d, int n_events)
{
    struct cuda_state *s = cuda_state_of(d);
    if (n_events <= s->n_events)
        return OK;
    void *events = mem_realloc(s->events, (size_t)n_events * sizeof(*s->events));
    if (events)
        s->events = (cudaEvent_t *)events;
    void *seen = mem_realloc(s->seen, (size_t)n_events * sizeof(*s->seen));
    if (seen)
        s->seen = (unsigned *)seen;
    if (!events || !seen)
        return FAIL(ERR_MEMORY, "out of memory for %d events", n_events);
    while (s->n_events < n_events) {
        CUDA_TRY(cudaEventCreateWithFlags(&s->events[s->n_events], cudaEventDisableTiming));
        s->seen[s->n_events++] = 0;
    }
    return OK;
}

static enum status record(struct device *d, enum queue q, int event)
{
    struct cuda_state *s = cuda_state_of(d);
    cudaStream_t stream;
    BUG_ON(event < 0 || event >= s->n_events);
    TRY(cuda_queue_stream(s, q, &stream));
    CUDA_TRY(cudaEventRecord(s->events[event], stream));
    s->seen[event] = s->capture_number;
    return OK;
}

static enum status wait(struct device *d, enum queue q, int event)
{
    struct cuda_state *s = cuda_state_of(d);
    cudaStream_t stream;
    BUG_ON(event < 0 || event >= s->n_events);
    if (s->capturing && s->seen[event] != s->capture_number)
        return OK; /* recorded in a section that has ended: it has happened */
    TRY(cuda_queue_stream(s, q, &stream));
    CUDA_TRY(cudaStreamWaitEvent(stream, s->events[event], 0));
    return OK;
}

static enum status sync(struct device *d)
{
    struct cuda_state *s = cuda_state_of(d);
    for (int q = 0; q < QUEUE_COUNT; q++)
        CUDA_TRY(cudaStreamSynchronize(s->streams[q]));
    return d->disk ? disk_sync(d->disk) : OK;
}

/* ---- recordings ----------------------------------------------------------------------------- */

static enum status capture_begin(struct device *d)
{
    struct cuda_state *s = cuda_state_of(d);
    cudaStream_t stream = s->streams[QUEUE_COMPUTE];
    CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    s->capturing = true;
    s->capture_number++;
    for (int q = 0; q < QUEUE_COUNT; q++)
        s->forked[q] = q == QUEUE_COMPUTE;
    CUDA_TRY(cudaEventRecord(s->fork, stream));
    return OK;
}

static enum status join_all(struct cuda_state *s)
{
    for (int q = 0; q < QUEUE_COUNT; q++) {
        if (q == QUEUE_COMPUTE || !s->forked[q])
            continue;
        CUDA_TRY(cudaEventRecord(s->join[q], s->streams[q]));
        CUDA_TRY(cudaStreamWaitEvent(s->streams[QUEUE_COMPUTE], s->join[q], 0));
    }
    return OK;
}

static enum status capture_end(struct device *d, void **recording)
{
    struct cuda_state *s = cuda_state_of(d);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    enum status status = recording ? join_all(s) : OK;
    s->capturing = false;
    cudaError_t e = cudaStreamEndCapture(s->streams[QUEUE_COMPUTE], &graph);
    if (status == OK && recording && e == cudaSuccess)
        e = cudaGraphInstantiate(&exec, graph, 0);
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (recording)
        *recording = exec;
    if (status != OK || !recording) {
        (void)cudaGetLastError();
        return status;
    }
    CUDA_TRY(e);
    return OK;
}

static enum status replay(struct device *d, void *recording)
{
    struct cuda_state *s = cuda_state_of(d);
    CUDA_TRY(cudaGraphLaunch((cudaGraphExec_t)recording, s->streams[QUEUE_COMPUTE]));
    return OK;
}

static void capture_free(struct device *d, void *recording)
{
    (void)d;
    if (recording)
        (void)cudaGraphExecDestroy((cudaGraphExec_t)recording);
}

/* ---- figures -------------------------------------------------------------------------------- */

int64_t cuda_own_bytes(struct cuda_state *s)
{
    int64_t n_bytes = cuda_nvml_process_bytes(s->nvml);
    if (n_bytes >= 0)
        return n_bytes;
    /* Processes cannot be told apart (a container): what has been added since we came. */
    int64_t used = cuda_nvml_used_bytes(s->nvml);
    if (used < 0 || s->used_before < 0)
        return -1;
    return used > s->used_before ? used - s->used_before : 0;
}

static int64_t used_bytes(struct device *d)
{
    int64_t n_bytes = cuda_own_bytes(cuda_state_of(d));
    size_t free_bytes = 0, total = 0;
    if (n_bytes >= 0)
        return n_bytes;
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return (int64_t)(total - free_bytes); /* everybody's, where the driver does not tell apart */
}

enum status cuda_room(struct device *d, struct device_room *out)
{
    struct cuda_state *s = cuda_state_of(d);
    size_t free_bytes = 0, total = 0;
    *out = (struct device_room){};
    (void)snprintf(out->whose, sizeof(out->whose), "the GPU");
    CUDA_TRY(cudaMemGetInfo(&free_bytes, &total));
    out->free_bytes = (int64_t)free_bytes;
    out->total_bytes = (int64_t)total;
    out->own_bytes = used_bytes(d);
    cuda_nvml_holders(s->nvml, out);
    return OK;
}

static enum status tune(struct device *d, const struct device_tuning *t)
{
    struct cuda_libraries *l = &cuda_state_of(d)->libraries;
    if (t->tf32 && l->gpu.major < 8)
        return FAIL(ERR_UNSUPPORTED,
                    "tf32 needs a GPU of compute capability 8.0 or newer, this one has %d.%d",
                    l->gpu.major, l->gpu.minor);
    if (t->search)
        TRY(cuda_gemm_search_open(l, d->identity, cuda_state_of(d)->streams[QUEUE_COMPUTE]));
    cuda_gemm_cache_clear(l->gemm_cache);
    l->tf32 = t->tf32;
    l->search = t->search;
    return OK;
}

static int64_t context_bytes(struct device *d)
{
    return cuda_state_of(d)->context_bytes;
}

static int64_t recording_bytes(struct device *d, int64_t n_instrs)
{
    (void)d;
    return gpu_recording_bytes(n_instrs);
}

static void keep_release(struct cuda_keep *k)
{
    if (k->data && k->release)
        k->release(k->data);
    k->data = NULL;
}

static void close_device(struct device *d)
{
    struct cuda_state *s = cuda_state_of(d);
    if (!s)
        return;
    keep_release(&s->libraries.attention);
    keep_release(&s->libraries.attention_grad);
    keep_release(&s->libraries.convolution);
    if (s->libraries.cudnn)
        (void)cudnnDestroy(s->libraries.cudnn);
    if (s->libraries.cublaslt)
        (void)cublasLtDestroy(s->libraries.cublaslt);
    cuda_gemm_cache_free(s->libraries.gemm_cache);
    cuda_gemm_search_free(s->libraries.gemm_search);
    for (int i = 0; i < s->n_events; i++)
        (void)cudaEventDestroy(s->events[i]);
    for (int q = 0; q < QUEUE_COUNT; q++) {
        if (s->join[q])
            (void)cudaEventDestroy(s->join[q]);
        if (s->streams[q])
            (void)cudaStreamDestroy(s->streams[q]);
    }
    if (s->fork)
        (void)cudaEventDestroy(s->fork);
    cuda_marks_free(s);
    cuda_nvml_close(s->nvml);
    mem_free(s->events);
    mem_free(s->seen);
    mem_free(s->libraries.cache_folder);
    mem_free(s);
    team_free(d->env.team);
    (void)cudaGetLastError();
}

const struct device_ops cuda_ops = {
    .name = "cuda",
    .memory_is_apart = true,
    .kernels = cuda_kernels,
    .batch = cuda_batch,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .copy = copy,
    .prepare = prepare,
    .queue = queue_stream,
    .record = record,
    .wait = wait,
    .sync = sync,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .replay = replay,
    .capture_free = capture_free,
    .fill = cuda_fill,
    .time_calls = cuda_time_calls,
    .prepare_marks = cuda_prepare_marks,
    .mark = cuda_mark,
    .mark_seconds = cuda_mark_seconds,
    .tune = tune,
    .context_bytes = context_bytes,
    .recording_bytes = recording_bytes,
    .room = cuda_room,
    .used_bytes = used_bytes,
    .close = close_device,
};
