#include "support/gpu.h"

#include <stdio.h>
#include <stdlib.h>

const char *gpu_cache_folder(void)
{
    return getenv("SNUG_TEST_CACHE");
}

bool gpu_open(struct device *d)
{
    if (device_open_cuda_cached(d, 0, gpu_cache_folder()) == OK)
        return true;
    (void)fprintf(stderr, "skipped: %s\n", status_message());
    return false;
}
