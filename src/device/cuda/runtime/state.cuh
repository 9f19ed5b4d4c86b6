/* state.cuh: what the CUDA device keeps (struct device.state), and what the sources that make
 * it up ask of each other: device.cu, open.cu, load.cu, figures.cu,
 * measure.cu and time.cu. */
#ifndef SNUG_DEVICE_CUDA_RUNTIME_STATE_CUH
#define SNUG_DEVICE_CUDA_RUNTIME_STATE_CUH

#include "device/cuda/runtime/nvml.h"
#include "device/cuda/support/driver.h"
#include "device/cuda/support/support.cuh"
#include "device/device.h"

struct cuda_state {
    struct cuda_libraries libraries;
    cudaStream_t streams[QUEUE_COUNT];
    struct cuda_nvml *nvml; /* NULL: not there */
    int64_t used_before; /* bytes in use, by whomever, before our context was made; -1: unknown */
    int64_t context_bytes;
    bool kernels_loaded;

    cudaEvent_t *events;
    int n_events;
    cudaEvent_t *marks; /* events that know the time */
    int n_marks;

    /* Capture: an event counts as recorded when seen[i] is this capture's number. What an earlier
     * section recorded has happened, and a wait for it would tie the capture to the past. */
    bool capturing;
    unsigned capture_number;
    unsigned *seen; /* [n_events] */
    bool forked[QUEUE_COUNT];
    cudaEvent_t fork, join[QUEUE_COUNT];
};

static inline struct cuda_state *cuda_state_of(const struct device *d)
{
    return (struct cuda_state *)d->state;
}

extern const struct device_ops cuda_ops;

/* The queue's stream, drawn into the capture if there is one. */
enum status cuda_queue_stream(struct cuda_state *s, enum queue q, cudaStream_t *out);

/* time.cu: device_ops of the same names. */
enum status cuda_fill(struct device *d, const struct tensor *t, struct index_rule rule);
enum status cuda_time_calls(struct device *d, const struct timed_calls *t, struct call_time *out);
enum status cuda_prepare_marks(struct device *d, int n_marks);
enum status cuda_mark(struct device *d, enum queue q, int mark);
enum status cuda_mark_seconds(struct device *d, int from, int to, double *seconds);
void cuda_marks_free(struct cuda_state *s);

/* Fills d->rates on scratch memory that is given back. */
enum status cuda_measure(struct device *d);
/* d->rates and the context's size: kept in the cache folder per GPU, driver and build, measured
 * where they are not. */
enum status cuda_figures(struct device *d);
/* Loads the code of all our kernels, once, so that the context does not grow later. */
void cuda_load_kernels(struct cuda_state *s);
/* Bytes this process holds; -1 when the driver does not tell it apart from others. */
int64_t cuda_own_bytes(struct cuda_state *s);
enum status cuda_room(struct device *d, struct device_room *out);

#endif
