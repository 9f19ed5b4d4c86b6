/* env_gpu.h: inside api/: the GPU's part of `snug env`. */
#ifndef SNUG_API_ENV_GPU_H
#define SNUG_API_ENV_GPU_H

#include "api/api_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first GPU of this machine, or why there is none to use. */
struct gpu_view {
    struct gpu_facts facts;
    bool usable;
    char problem[512]; /* why not; "" when usable */
    struct device_room room;
    int64_t context_bytes; /* what a process holds beside its arenas */
    struct device_rates rates;
};

/* Opens the GPU, looks, and closes it. */
void gpu_view_take(struct gpu_view *v);
void gpu_view_text(const struct gpu_view *v, struct str *out);
json_t *gpu_view_json(const struct gpu_view *v); /* a new reference; NULL: out of memory */

#ifdef __cplusplus
}
#endif
#endif
