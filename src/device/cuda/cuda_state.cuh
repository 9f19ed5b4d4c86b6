/* cuda_state.cuh: what the CUDA device keeps (struct device.state), shared by cuda_device.cu,
 * cuda_open.cu and cuda_measure.cu. */
#ifndef SNUG_DEVICE_CUDA_CUDA_STATE_CUH
#define SNUG_DEVICE_CUDA_CUDA_STATE_CUH

#include "device/cuda/cuda_nvml.h"
#include "device/cuda/cuda_support.cuh"
#include "device/device.h"

struct cuda_state {
    struct cuda_libraries libraries;
    cudaStream_t streams[QUEUE_COUNT];
    struct cuda_nvml *nvml; /* NULL: not there */
    int64_t context_bytes;

    cudaEvent_t *events;
    int n_events;

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

/* Fills d->rates on scratch memory that is given back. */
enum status cuda_measure(struct device *d);

#endif
