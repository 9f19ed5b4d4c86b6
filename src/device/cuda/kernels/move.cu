/* move.cu: ops that move elements without computing: cast, reshape, slices, concat, broadcast,
 * iota, transpose. All but cast copy bytes, whatever the dtype, in the widest units (up to 16
 * bytes) that divide every length, step and address. */
#include "device/cuda/declared/elementwise.h"
#include "device/cuda/support/any.cuh"

static constexpr int THREADS = 256;

/* ---- cast ----------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(THREADS)
    cast_kernel(struct any y, struct any x, int64_t n, int64_t n_vectors)
{
    for (int64_t i = grid_thread(); i < n_vectors; i += grid_threads()) {
        float v[4];
        any4_unpack(v, any4_load(x, i), x.dtype);
        any4_store(y, i, any4_pack(v, y.dtype));
    }
    for (int64_t i = 4 * n_vectors + grid_thread(); i < n; i += grid_threads())
        any_set_f32(y, i, any_get_f32(x, i));
}

static enum status cast_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->out[0].shape);
    struct any from = any_of(&c->in[0]), to = any_of(&c->out[0]);
    int64_t n_vectors = any4_aligned(from) && any4_aligned(to) ? n / 4 : 0;
    cast_kernel<<<grid_for(n_vectors > 0 ? n_vectors : n, THREADS), THREADS, 0, cuda_stream(x)>>>(
        to, from, n, n_vectors);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static __global__ void __launch_bounds__(THREADS)
    cast_any_kernel(struct any y, struct any x, int64_t n)
{
    for (int64_t i = grid_thread(); i < n; i += grid_threads())
        any_set(y, i, any_get(x, i));
}

/* Through f64: integers as well. */
static enum status cast_elements(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->out[0].shape);
    cast_any_kernel<<<grid_for(n, THREADS), THREADS, 0, cuda_stream(x)>>>(any_of(&c->out[0]),
                                                                          any_of(&c->in[0]), n);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- units ----------------------------------------------------------------------------------- */

/* The largest power of two up to 16 that divides n_bytes (a length, a step or an address) and is no
 * more than `most`. */
static int64_t unit_for(int64_t most, int64_t n_bytes)
{
    while (most > 1 && n_bytes % most != 0)
        most /= 2;
    return most;
}

static int64_t unit_for_address(int64_t most, const void *p)
{
    return unit_for(most, (int64_t)((uintptr_t)p % 16));
}

/* Runs the statement with U an integer type of `size` bytes. */
#define UNIT_DISPATCH(size, U, ...) \
    do {                            \
        if ((size) == 16) {         \
            using U = uint4;        \
            __VA_ARGS__;            \
        } else if ((size) == 8) {   \
            using U = uint2;        \
            __VA_ARGS__;            \
        } else if ((size) == 4) {   \
            using U = uint32_t;     \
            __VA_ARGS__;            \
        } else if ((size) == 2) {   \
            using U = uint16_t;     \
            __VA_ARGS__;            \
        } else {                    \
            using U = uint8_t;      \
            __VA_ARGS__;            \
        }                           \
    } while (0)

/* ---- runs: slices, concat and broadcast copy pieces of contiguous bytes ---------------------- */

/* n pieces of n_bytes, from src at every src_step bytes to dst at every dst_step bytes. */
struct runs {
    char *dst;
    const char *src;
    int64_t n, n_bytes, dst_step, src_step;
};

/* Lengths and steps in units. */
template <typename U>
static __global__ void __launch_bounds__(THREADS)
    runs_kernel(U *dst, const U *src, int64_t n, int64_t length, int64_t dst_step, int64_t src_step)
{
    for (int64_t i = grid_thread(); i < n * length; i += grid_threads()) {
        int64_t run = i / length, at = i - run * length;
        dst[run * dst_step + at] = src[run * src_step + at];
    }
}

static enum status copy_runs(const struct kernel_ctx *x, const struct runs *r)
{
    int64_t unit = unit_for_address(unit_for_address(16, r->dst), r->src);
    unit = unit_for(unit_for(unit_for(unit, r->n_bytes), r->dst_step), r->src_step);
    int64_t length = r->n_bytes / unit;
    UNIT_DISPATCH(
        unit, U,
        runs_kernel<U><<<grid_for(r->n * length, THREADS), THREADS, 0, cuda_stream(x)>>>(
            (U *)r->dst, (const U *)r->src, r->n, length, r->dst_step / unit, r->src_step / unit));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* Bytes of one index along `axis` (everything to its right). */
static int64_t stride_bytes(const struct tensor *t, int64_t axis)
{
    return shape_inner(&t->shape, (int)axis + 1) * dtype_size(t->dtype);
}

static int64_t axis_bytes(const struct tensor *t, int64_t axis)
{
    return t->shape.dim[axis] * stride_bytes(t, axis);
}

static enum status slice_runs(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct tensor *in = &c->in[0], *out = &c->out[0];
    int64_t axis = call_int(c, 0);
    struct runs r = {
        .dst = (char *)out->data,
        .src = (const char *)in->data + call_int(c, 1) * stride_bytes(in, axis),
        .n = shape_outer(&in->shape, (int)axis),
        .n_bytes = axis_bytes(out, axis),
        .dst_step = axis_bytes(out, axis),
        .src_step = axis_bytes(in, axis),
    };
    return copy_runs(x, &r);
}

static enum status concat_runs(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct tensor *out = &c->out[0];
    int64_t axis = call_int(c, 0), start = 0;
    for (int i = 0; i < c->n_in; i++) {
        const struct tensor *in = &c->in[i];
        struct runs r = {
            .dst = (char *)out->data + start,
            .src = (const char *)in->data,
            .n = shape_outer(&in->shape, (int)axis),
            .n_bytes = axis_bytes(in, axis),
            .dst_step = axis_bytes(out, axis),
            .src_step = axis_bytes(in, axis),
        };
        TRY(copy_runs(x, &r));
        start += axis_bytes(in, axis);
    }
    return OK;
}

static enum status broadcast_runs(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n_bytes = tensor_bytes(&c->in[0]);
    struct runs r = {
        .dst = (char *)c->out[0].data,
        .src = (const char *)c->in[0].data,
        .n = tensor_bytes(&c->out[0]) / n_bytes,
        .n_bytes = n_bytes,
        .dst_step = n_bytes,
        .src_step = 0,
    };
    return copy_runs(x, &r);
}

static enum status reshape_copy(const struct kernel_ctx *x, const struct op_call *c)
{
    if (c->out[0].data != c->in[0].data)
        CUDA_TRY(cudaMemcpyAsync(c->out[0].data, c->in[0].data, (size_t)tensor_bytes(&c->in[0]),
                                 cudaMemcpyDeviceToDevice, cuda_stream(x)));
    return OK;
}

/* ---- slice_grad: dy with zeros around it ----------------------------------------------------- */

/* Pieces of `whole` units: `before` zeros, `length` units of src, zeros. */
template <typename U>
static __global__ void __launch_bounds__(THREADS)
    pad_kernel(U *dst, const U *src, int64_t n, int64_t whole, int64_t before, int64_t length)
{
    for (int64_t i = grid_thread(); i < n * whole; i += grid_threads()) {
        int64_t run = i / whole, at = i - run * whole - before;
        U zero = {};
        dst[i] = at >= 0 && at < length ? src[run * length + at] : zero;
    }
}

static enum status slice_grad_runs(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct tensor *in = &c->in[0], *out = &c->out[0];
    int64_t axis = call_int(c, 0), n = shape_outer(&in->shape, (int)axis);
    int64_t before = call_int(c, 1) * stride_bytes(out, axis);
    int64_t length = axis_bytes(in, axis), whole = axis_bytes(out, axis);
    int64_t unit = unit_for_address(unit_for_address(16, out->data), in->data);
    unit = unit_for(unit_for(unit_for(unit, before), length), whole);
    UNIT_DISPATCH(
        unit, U,
        pad_kernel<U><<<grid_for(n * (whole / unit), THREADS), THREADS, 0, cuda_stream(x)>>>(
            (U *)out->data, (const U *)in->data, n, whole / unit, before / unit, length / unit));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- iota ------------------------------------------------------------------------------------ */

static __global__ void __launch_bounds__(THREADS) iota_kernel(int32_t *y, int64_t n, int64_t start)
{
    for (int64_t i = grid_thread(); i < n; i += grid_threads())
        y[i] = (int32_t)(start + i);
}

static enum status iota_elements(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = call_int(c, 0);
    iota_kernel<<<grid_for(n, THREADS), THREADS, 0, cuda_stream(x)>>>((int32_t *)c->out[0].data, n,
                                                                      call_int(c, 1));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- transpose ------------------------------------------------------------------------------- */

/* Source offset of the i-th index over axes [0, n_axes) except `skip`, row-major, in elements. */
static __device__ int64_t src_offset(const struct permutation &p, int n_axes, int skip, int64_t i)
{
    int64_t offset = 0;
    for (int a = n_axes - 1; a >= 0; a--) {
        if (a == skip)
            continue;
        int64_t above = i / p.dim[a];
        offset += (i - above * p.dim[a]) * p.src_step[a];
        i = above;
    }
    return offset;
}

/* The last axis stays last: whole rows move ([B, T, H, D] <-> [B, H, T, D]). Lengths in units. */
template <typename U>
static __global__ void __launch_bounds__(THREADS)
    move_rows(U *dst, const U *src, __grid_constant__ const struct permutation p, int64_t n)
{
    const int64_t length = p.dim[p.rank - 1];
    for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
        int64_t row = i / length;
        dst[i] = src[src_offset(p, p.rank - 1, -1, row) + i - row * length];
    }
}

static enum status launch_rows(const struct kernel_ctx *x, const struct op_call *c,
                               struct permutation p, int64_t size)
{
    int last = p.rank - 1;
    int64_t unit = unit_for_address(unit_for_address(16, c->out[0].data), c->in[0].data);
    unit = unit_for(unit, p.dim[last] * size);
    for (int a = 0; a < last; a++)
        unit = unit_for(unit, p.src_step[a] * size);
    for (int a = 0; a < last; a++)
        p.src_step[a] = p.src_step[a] * size / unit;
    p.dim[last] = p.dim[last] * size / unit;
    int64_t n = tensor_bytes(&c->out[0]) / unit;
    UNIT_DISPATCH(unit, U,
                  move_rows<U><<<grid_for(n, THREADS), THREADS, 0, cuda_stream(x)>>>(
                      (U *)c->out[0].data, (const U *)c->in[0].data, p, n));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static constexpr int TILE = TRANSPOSE_TILE, TILE_LINES = 8;

/* Blocks of TILE x TILE_LINES threads; n_across tiles along the columns, n_down along the rows. */
template <typename U>
static __global__ void __launch_bounds__(TILE *TILE_LINES)
    move_planes(U *dst, const U *src, __grid_constant__ const struct planes l, int64_t n_down,
                int64_t n_across)
{
    __shared__ U tile[TILE][TILE + 1]; /* [column][row] */
    const int last = l.p.rank - 1;
    int64_t plane = blockIdx.x / (n_down * n_across), in_plane = blockIdx.x % (n_down * n_across);
    int64_t row = in_plane / n_across * TILE, column = in_plane % n_across * TILE;
    int64_t from = src_offset(l.p, last, l.fast, plane);
    int64_t to = plane / l.below * l.n_rows * l.dst_step + plane % l.below * l.n_columns;
    for (int k = (int)threadIdx.y; k < TILE; k += TILE_LINES) {
        if (row + threadIdx.x < l.n_rows && column + k < l.n_columns)
            tile[k][threadIdx.x] =
                src[from + row + threadIdx.x + (column + k) * l.p.src_step[last]];
    }
    __syncthreads();
    for (int k = (int)threadIdx.y; k < TILE; k += TILE_LINES) {
        if (row + k < l.n_rows && column + threadIdx.x < l.n_columns)
            dst[to + (row + k) * l.dst_step + column + threadIdx.x] = tile[threadIdx.x][k];
    }
}

static enum status launch_planes(const struct kernel_ctx *x, const struct op_call *c,
                                 const struct permutation *p, int64_t size)
{
    struct planes l = transpose_planes(p);
    int64_t n_down = ceil_div(l.n_rows, TILE), n_across = ceil_div(l.n_columns, TILE);
    int64_t n_blocks = l.n_planes * n_down * n_across;
    UNIT_DISPATCH(size, U,
                  move_planes<U><<<(unsigned)n_blocks, dim3(TILE, TILE_LINES), 0, cuda_stream(x)>>>(
                      (U *)c->out[0].data, (const U *)c->in[0].data, l, n_down, n_across));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static enum status transpose_tiles(const struct kernel_ctx *x, const struct op_call *c)
{
    struct permutation p = transpose_simplified(c);
    int64_t size = dtype_size(c->in[0].dtype);
    if (p.rank <= 1)
        return reshape_copy(x, c);
    if (p.src_step[p.rank - 1] == 1)
        return launch_rows(x, c, p, size);
    return launch_planes(x, c, &p, size);
}

/* ---- lists ---------------------------------------------------------------------------------- */

CUDA_RUN(cast, vectors, cast_vectors)
CUDA_RUN(cast, elements, cast_elements)

CUDA_RUN(transpose, tiles, transpose_tiles)

CUDA_RUN(reshape, copy, reshape_copy)
CUDA_RUN(slice, runs, slice_runs)
CUDA_RUN(slice_grad, runs, slice_grad_runs)
CUDA_RUN(concat, runs, concat_runs)
CUDA_RUN(broadcast, runs, broadcast_runs)
CUDA_RUN(iota, elements, iota_elements)
