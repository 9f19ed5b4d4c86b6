/* product_squares.cu: a gradient's sum of squares from its factors: blocks for each pair of rows
 * and factor, then one that adds. f64 all the way; the order depends on the shapes alone. */
#include "device/cuda/declared/sums.h"
#include "device/cuda/support/any.cuh"
#include "ops/row_pairs.h"

struct factor {
    struct any rows;
    int64_t width;
};

/* products [2 factors, n_pairs, n_chunks]: a block each. */
static __global__ void __launch_bounds__(SQUARES_THREADS)
    row_products_kernel(double *products, struct factor dy, struct factor x)
{
    __shared__ double scratch[WARP];
    const struct factor f = blockIdx.y == 0 ? dy : x;
    const struct row_pair p = row_pair_of(blockIdx.x);
    const int64_t a = p.i * f.width, b = p.j * f.width;
    const int64_t chunk = (f.width + gridDim.z - 1) / gridDim.z, first = blockIdx.z * chunk,
                  last = min(first + chunk, f.width);
    double sum = 0.0;
#pragma unroll 4
    for (int64_t k = first + threadIdx.x; k < last; k += SQUARES_THREADS)
        sum += (double)any_get_f32(f.rows, a + k) * (double)any_get_f32(f.rows, b + k);
    sum = block_sum<SQUARES_THREADS>(sum, scratch);
    if (threadIdx.x == 0)
        products[(blockIdx.y * gridDim.x + blockIdx.x) * (int64_t)gridDim.z + blockIdx.z] = sum;
}

/* A warp has a pair at a time, or a thread where rows are whole. */
static __global__ void __launch_bounds__(SQUARES_THREADS)
    add_pairs_kernel(float *y, const double *products, int64_t n_pairs, int64_t n_chunks)
{
    __shared__ double scratch[WARP];
    const int width = n_chunks > 1 ? WARP : 1, lane = (int)threadIdx.x % width;
    double sum = 0.0;
    for (int64_t k = threadIdx.x / width; k < n_pairs; k += SQUARES_THREADS / width) {
        const struct row_pair p = row_pair_of(k);
        double of_dy = 0.0, of_x = 0.0;
        for (int64_t c = lane; c < n_chunks; c += width) {
            of_dy += products[k * n_chunks + c];
            of_x += products[(n_pairs + k) * n_chunks + c];
        }
        if (width == WARP) {
            of_dy = warp_sum(of_dy);
            of_x = warp_sum(of_x);
        }
        if (lane == 0)
            sum += (p.i == p.j ? 1.0 : 2.0) * of_dy * of_x;
    }
    sum = block_sum<SQUARES_THREADS>(sum, scratch);
    if (threadIdx.x == 0)
        *y = (float)sum;
}

static enum status product_squares_pairs(const struct kernel_ctx *x, const struct op_call *c)
{
    const int64_t n_pairs = row_pair_count(shape_rows(&c->in[0].shape)),
                  n_chunks = row_product_chunks(c);
    const struct factor dy = {any_of(&c->in[0]), shape_last(&c->in[0].shape)},
                        rows = {any_of(&c->in[1]), shape_last(&c->in[1].shape)};
    double *products = (double *)x->workspace;
    if (n_pairs > 0)
        row_products_kernel<<<dim3((unsigned)n_pairs, 2, (unsigned)n_chunks), SQUARES_THREADS, 0,
                              cuda_stream(x)>>>(products, dy, rows);
    CUDA_TRY(cudaGetLastError());
    add_pairs_kernel<<<1, SQUARES_THREADS, 0, cuda_stream(x)>>>((float *)c->out[0].data, products,
                                                                n_pairs, n_chunks);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(product_squares, pairs, product_squares_pairs)
