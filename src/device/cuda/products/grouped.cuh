/* grouped.cuh: what the kernels of grouped products share: the product as a kernel's argument, and
 * the count of tiles before each group (declared/grouped_tiles.h has the arithmetic). */
#ifndef SNUG_DEVICE_CUDA_PRODUCTS_GROUPED_CUH
#define SNUG_DEVICE_CUDA_PRODUCTS_GROUPED_CUH

#include "device/cuda/declared/experts.h"
#include "device/cuda/declared/grouped_tiles.h"
#include "device/cuda/support/any.cuh"

struct grouped {
    struct any a, b, c, before; /* before.data NULL: nothing is added; else laid out as c */
    struct any bias;            /* [groups, n]; data NULL: none */
    const int32_t *offsets;
    int64_t n_rows; /* of all groups */
    struct grouped_shape shape;
    bool a_by_terms, b_by_terms; /* stored [terms, rows of the operand], else the other way */
};

/* starts[e]: how many tiles the groups before e have; starts[n_groups]: all of them have. All
 * threads of the block take part; the last barrier is the function's own. */
static inline __device__ void count_tiles(int32_t *starts, const struct grouped &g, int rows,
                                          int columns)
{
    for (int e = (int)threadIdx.x; e < g.shape.n_groups; e += (int)blockDim.x)
        starts[e + 1] = group_tiles(g.shape, g.offsets, e, rows, columns);
    __syncthreads();
    if (threadIdx.x == 0) {
        starts[0] = 0;
        for (int e = 0; e < g.shape.n_groups; e++)
            starts[e + 1] += starts[e];
    }
    __syncthreads();
}

/* Tensor cores (grouped_mma.cu). */
enum status cuda_grouped_mma(const struct kernel_ctx *x, const struct grouped *g);
/* Tensor cores of compute capability 9.0 (grouped_wgmma.cu). */
enum status cuda_grouped_wgmma(const struct kernel_ctx *x, const struct grouped *g);

#endif
