/* gpu.h: the GPU that tests of CUDA run on. */
#ifndef SNUG_TESTS_GPU_H
#define SNUG_TESTS_GPU_H

#include <stdbool.h>

#include "device/device.h"

/* What a test program returns that has no GPU to run on. */
enum { GPU_SKIPPED = 77 };

/* false, and a line that says why, when there is none. */
bool gpu_open(struct device *d);

/* Where what is measured about the GPU is kept between test programs, NULL: nowhere.
 * SNUG_TEST_CACHE names it: under a sanitizer the measuring alone would take minutes. */
const char *gpu_cache_folder(void);

#endif
