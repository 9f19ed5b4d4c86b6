/* experts.h: how the kernels of mixtures of experts are cut. */
#ifndef SNUG_DEVICE_CUDA_DECLARED_EXPERTS_H
#define SNUG_DEVICE_CUDA_DECLARED_EXPERTS_H

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Slots that a block of the sort by expert takes, one each thread. */
enum { ROUTE_CHUNK = 1024 };
/* Experts whose counts a block holds in shared memory. */
enum { ROUTE_MOST_EXPERTS = 8192 };

/* Tiles of the products that go through registers only (products/simt.cuh). */
enum { SIMT_TILE = 64 };

/* Parts that the sum over tokens of a router's weight gradient is cut into. */
int64_t router_grad_parts(const struct op_call *c, const struct kernel_env *env);

/* Tiles of tensor cores: rows, columns, terms of a sum at a time; tiles on their way; groups whose
 * tiles a block counts in shared memory. */
enum { GROUPED_ROWS = 128, GROUPED_COLUMNS = 256, GROUPED_TERMS = 64, GROUPED_STAGES = 3 };
enum { GROUPED_MOST = 1024 };
enum {
    GROUPED_STAGE_BYTES = (GROUPED_ROWS + GROUPED_COLUMNS) * GROUPED_TERMS * 2,
    GROUPED_TABLE_BYTES = (GROUPED_MOST + 1) * 4,
    GROUPED_SHARED_BYTES = GROUPED_STAGES * GROUPED_STAGE_BYTES + GROUPED_TABLE_BYTES,
};

/* The same tiles by warpgroups: one more on its way, two barriers each, two tables; the swizzle
 * wants tiles at multiples of 1024 bytes. Rows of tiles that a block goes down before it goes to
 * the next column. */
enum { WARPGROUPS_STAGES = 4, WARPGROUPS_BAND = 16 };
enum {
    WARPGROUPS_SHARED_BYTES =
        1024 + WARPGROUPS_STAGES * (GROUPED_STAGE_BYTES + 16) + 2 * GROUPED_TABLE_BYTES,
};

#ifdef __cplusplus
}
#endif
#endif
