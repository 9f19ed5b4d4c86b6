/* adapted_norm.cu: the lengths of the rows of w + scale b a, without that matrix: a block a row. */
#include "ops/adapted_norm.h"

#include "base/compiler.h"
#include "device/cuda/support/any.cuh"
#include "device/cuda/support/columns.cuh"
#include "device/cuda/support/weight.cuh"

static constexpr int THREADS = 256;

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    row_lengths(T *y, const T *w, const T *a, const T *b, int64_t n_columns, int rank, float scale)
{
    __shared__ double scratch[WARP];
    const T *row = w + blockIdx.x * n_columns, *factors = b + (int64_t)blockIdx.x * rank;
    float sum = 0.0f;
    for (int64_t k = threadIdx.x; k < n_columns; k += THREADS) {
        float more = 0.0f;
        for (int r = 0; r < rank; r++)
            more += to_f32(factors[r]) * to_f32(a[r * n_columns + k]);
        float v = to_f32(row[k]) + scale * more;
        sum += v * v;
    }
    double total = block_sum<THREADS>((double)sum, scratch);
    if (threadIdx.x == 0)
        y[blockIdx.x] = from_f32<T>((float)sqrt(total));
}

static enum status rows(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n_rows = c->out[0].shape.dim[0], n_columns = c->in[1].shape.dim[1];
    int64_t first = call_int(c, ADAPTED_NORM_FIRST) * n_columns;
    int rank = (int)c->in[1].shape.dim[0];
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        row_lengths<T><<<(unsigned)n_rows, THREADS, 0, cuda_stream(x)>>>(
            (T *)c->out[0].data, (const T *)c->in[0].data + first, (const T *)c->in[1].data,
            (const T *)c->in[2].data, n_columns, rank, (float)call_float(c, ADAPTED_NORM_SCALE));
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(adapted_norm, rows, rows)
