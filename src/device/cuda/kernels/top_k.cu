/* top_k.cu: which elements of a row are among its k largest: those that fewer than k others come
 * before. Rows are batches of losses: short. */
#include "device/cuda/support/support.cuh"

static constexpr int THREADS = 256;

/* Larger ones come first, of equal ones the one further to the front; what is not a number comes
 * last. */
static __device__ bool comes_before(float a, int64_t i, float b, int64_t j)
{
    if (a > b || (a == a && b != b))
        return true;
    return !(b > a || (b == b && a != a)) && i < j;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    top_k_kernel(T *y, const T *x, int64_t n_elems, int64_t n, int64_t k)
{
    for (int64_t i = grid_thread(); i < n_elems; i += grid_threads()) {
        const int64_t row = i / n * n;
        const float own = to_f32(x[i]);
        int64_t before = 0;
        for (int64_t j = row; j < row + n; j++)
            before += comes_before(to_f32(x[j]), j, own, i);
        y[i] = from_f32<T>(before < k ? 1.0f : 0.0f);
    }
}

static enum status top_k_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n_elems = shape_elems(&c->in[0].shape);
    if (n_elems == 0)
        return OK;
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        top_k_kernel<T><<<grid_for(n_elems, THREADS), THREADS, 0, cuda_stream(x)>>>(
            (T *)c->out[0].data, (const T *)c->in[0].data, n_elems, shape_last(&c->in[0].shape),
            call_int(c, 0));
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(top_k_mask, rows, top_k_rows)
