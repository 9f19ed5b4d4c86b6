/* product_squares.cu: a gradient's sum of squares from its factors: a block for each pair of rows
 * and factor, then one that adds. f64 all the way; the order depends on the shapes alone. */
#include "device/cuda/declared/sums.h"
#include "device/cuda/support/any.cuh"
#include "ops/row_pairs.h"

struct factor {
    struct any rows;
    int64_t width;
};

static __global__ void __launch_bounds__(SQUARES_THREADS)
    row_products_kernel(double *products, struct factor dy, struct factor x, int64_t n_pairs)
{
    __shared__ double scratch[WARP];
    const struct factor f = blockIdx.y == 0 ? dy : x;
    const struct row_pair p = row_pair_of(blockIdx.x);
    const int64_t a = p.i * f.width, b = p.j * f.width;
    double sum = 0.0;
#pragma unroll 4
    for (int64_t k = threadIdx.x; k < f.width; k += SQUARES_THREADS)
        sum += (double)any_get_f32(f.rows, a + k) * (double)any_get_f32(f.rows, b + k);
    sum = block_sum<SQUARES_THREADS>(sum, scratch);
    if (threadIdx.x == 0)
        products[blockIdx.y * n_pairs + blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(SQUARES_THREADS)
    add_pairs_kernel(float *y, const double *products, int64_t n_pairs)
{
    __shared__ double scratch[WARP];
    double sum = 0.0;
    for (int64_t k = threadIdx.x; k < n_pairs; k += SQUARES_THREADS) {
        const struct row_pair p = row_pair_of(k);
        sum += (p.i == p.j ? 1.0 : 2.0) * products[k] * products[n_pairs + k];
    }
    sum = block_sum<SQUARES_THREADS>(sum, scratch);
    if (threadIdx.x == 0)
        *y = (float)sum;
}

static enum status product_squares_pairs(const struct kernel_ctx *x, const struct op_call *c)
{
    const int64_t n_pairs = row_pair_count(shape_rows(&c->in[0].shape));
    const struct factor dy = {any_of(&c->in[0]), shape_last(&c->in[0].shape)},
                        rows = {any_of(&c->in[1]), shape_last(&c->in[1].shape)};
    double *products = (double *)x->workspace;
    if (n_pairs > 0)
        row_products_kernel<<<dim3((unsigned)n_pairs, 2), SQUARES_THREADS, 0, cuda_stream(x)>>>(
            products, dy, rows, n_pairs);
    CUDA_TRY(cudaGetLastError());
    add_pairs_kernel<<<1, SQUARES_THREADS, 0, cuda_stream(x)>>>((float *)c->out[0].data, products,
                                                                n_pairs);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(product_squares, pairs, product_squares_pairs)
