/* grouped.cuh: what the kernels of grouped products share: the product as a kernel's argument, and
 * which tile of which group a block takes.
 *
 *     c[i, j] = sum over terms t of a(i, t) b(j, t), for each group
 *
 * Either the rows i of a group are those between its offsets (by_rows), and b has a matrix for each
 * group; or the terms are, and c has one.
 */
#ifndef SNUG_DEVICE_CUDA_PRODUCTS_GROUPED_CUH
#define SNUG_DEVICE_CUDA_PRODUCTS_GROUPED_CUH

#include "device/cuda/declared/experts.h"
#include "device/cuda/support/any.cuh"

struct grouped {
    struct any a, b, c, before; /* before.data NULL: nothing is added; else laid out as c */
    struct any bias;            /* [groups, n]; data NULL: none */
    const int32_t *offsets;
    int n_groups;
    bool by_rows;
    bool a_by_terms, b_by_terms; /* stored [terms, rows of the operand], else the other way */
    int64_t m, n, k;             /* of a group; m or k is what the offsets say */
};

static inline __device__ int group_size(const struct grouped &g, int e)
{
    return g.offsets[e + 1] - g.offsets[e];
}

/* One group's product: where its operands begin, its sizes. */
struct group {
    int64_t m, k;
    int64_t a, b, c; /* first elements */
};

static inline __device__ struct group group_of(const struct grouped &g, int e)
{
    const int64_t first = g.offsets[e], size = group_size(g, e);
    struct group r;
    r.m = g.by_rows ? size : g.m;
    r.k = g.by_rows ? g.k : size;
    r.a = first * (g.by_rows ? g.k : g.m);
    r.b = g.by_rows ? e * g.n * g.k : first * g.n;
    r.c = g.by_rows ? first * g.n : e * g.m * g.n;
    return r;
}

/* starts[e]: how many tiles the groups before e have; starts[n_groups] of all. All threads of the
 * block take part; the last barrier is the function's own. */
static inline __device__ void count_tiles(int32_t *starts, const struct grouped &g, int rows,
                                          int columns)
{
    const int64_t across = (g.n + columns - 1) / columns;
    for (int e = (int)threadIdx.x; e < g.n_groups; e += (int)blockDim.x) {
        const int64_t m = g.by_rows ? group_size(g, e) : g.m;
        starts[e + 1] = (int32_t)((m + rows - 1) / rows * across);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        starts[0] = 0;
        for (int e = 0; e < g.n_groups; e++)
            starts[e + 1] += starts[e];
    }
    __syncthreads();
}

/* The group that tile t is in: the last that starts at t or before it, with tiles of its own. */
static inline __device__ int group_of_tile(const int32_t *starts, int n_groups, int32_t t)
{
    int low = 0, high = n_groups;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (starts[middle] <= t)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Tensor cores (grouped_mma.cu). */
enum status cuda_grouped_mma(const struct kernel_ctx *x, const struct grouped *g);

#endif
