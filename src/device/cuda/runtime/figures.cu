/* figures.cu: rates and the context's size, measured once per GPU, driver and build: the size is
 * only known once all code is loaded and the libraries are warm. */
#include "device/cuda/runtime/state.cuh"
#include "device/figures.h"

/* Others that hold less are desktops: they do not disturb a measurement. */
#define QUIET_BYTES ((int64_t)1 << 30)

static enum status measure(struct device *d, bool *undisturbed)
{
    struct cuda_state *s = cuda_state_of(d);
    struct device_room room;
    cuda_load_kernels(s);
    TRY(cuda_measure(d));
    s->context_bytes = cuda_ops.used_bytes(d);
    *undisturbed =
        cuda_own_bytes(s) >= 0 && cuda_room(d, &room) == OK && room_others(&room) < QUIET_BYTES;
    return OK;
}

enum status cuda_figures(struct device *d)
{
    struct cuda_state *s = cuda_state_of(d);
    const struct figures_source source = {measure, &s->context_bytes};
    return device_figures(d, s->libraries.cache_folder, &source);
}
