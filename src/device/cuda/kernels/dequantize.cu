/* dequantize.cu: matrices from codes and scales, at the speed of memory.
 *
 * A thread has eight elements: one load of four bytes (eight, of int8), a scale that its neighbours
 * share, and 16 bytes of 16-bit floats to store, so that a warp writes whole lines. The 16 numbers
 * of a 4-bit code lie in 16 banks of shared memory: lanes that look up different ones do not wait
 * for each other. Products and sums are rounded each, as on the CPU.
 */
#include "device/cuda/support/support.cuh"
#include "ops/dequantize.h"

static constexpr int THREADS = 256, VECTOR = 8, WAVES = 8;

static __constant__ float nf4_values[CODE4_VALUES] = NF4_VALUES;
static __constant__ float fp4_values[CODE4_VALUES] = FP4_VALUES;

/* Pieces of a matrix that are alike; blockIdx.y is which. */
struct piece_args {
    const uint8_t *codes;
    const void *absmax;          /* of blocks: float, or codes */
    const float *groups, *table; /* NULL: scales are numbers */
    int64_t n_elems, n_vectors;
    int64_t block;                       /* elements that share a scale */
    int64_t n_bytes, n_blocks, n_groups; /* of a piece: from one to the next */
    int n_pieces;
};

/* The one that a block of threads is for, and where it goes. */
template <typename T>
static __device__ __forceinline__ struct piece_args own_piece(struct piece_args a, T **y)
{
    const int64_t i = blockIdx.y;
    const int64_t scale_bytes = a.table ? 1 : (int64_t)sizeof(float);
    *y += i * a.n_elems;
    a.codes += i * a.n_bytes;
    a.absmax = (const char *)a.absmax + i * a.n_blocks * scale_bytes;
    if (a.table) {
        a.groups += i * a.n_groups;
        a.table += i * SCALE_TABLE;
    }
    return a;
}

/* ---- 4 bits ---------------------------------------------------------------------------------- */

struct code4_shared {
    float values[CODE4_VALUES];
    float table[SCALE_TABLE];
};

static __device__ __forceinline__ void code4_prepare(struct code4_shared &s,
                                                     const struct piece_args &a, bool is_fp4)
{
    if (threadIdx.x < CODE4_VALUES)
        s.values[threadIdx.x] = is_fp4 ? fp4_values[threadIdx.x] : nf4_values[threadIdx.x];
    for (int i = threadIdx.x; a.table && i < SCALE_TABLE; i += THREADS)
        s.table[i] = a.table[i];
    __syncthreads();
}

static __device__ __forceinline__ float code4_scale(const struct code4_shared &s,
                                                    const struct piece_args &a, int64_t block)
{
    if (!a.table)
        return ((const float *)a.absmax)[block];
    const float share =
        __fmul_rn(s.table[1 + ((const uint8_t *)a.absmax)[block]], a.groups[block / SCALE_GROUP]);
    return __fadd_rn(share, s.table[0]);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    code4_kernel(T *y, const struct piece_args all, bool is_fp4)
{
    __shared__ struct code4_shared s;
    const struct piece_args a = own_piece(all, &y);
    code4_prepare(s, a, is_fp4);
    for (int64_t i = grid_thread(); i < a.n_vectors; i += grid_threads()) {
        const uint32_t word = ((const uint32_t *)a.codes)[i];
        const float scale = code4_scale(s, a, i * VECTOR / CODE4_BLOCK);
        float v[VECTOR];
#pragma unroll
        for (int k = 0; k < VECTOR; k += 2) {
            v[k] = __fmul_rn(s.values[word >> (4 * k + 4) & 15u], scale);
            v[k + 1] = __fmul_rn(s.values[word >> 4 * k & 15u], scale);
        }
        store_f32(y + i * VECTOR, v);
    }
    for (int64_t i = a.n_vectors * VECTOR + grid_thread(); i < a.n_elems; i += grid_threads()) {
        const uint32_t pair = a.codes[i / 2];
        y[i] = from_f32<T>(__fmul_rn(s.values[i % 2 ? pair & 15u : pair >> 4],
                                     code4_scale(s, a, i / CODE4_BLOCK)));
    }
}

/* ---- 8 bits ---------------------------------------------------------------------------------- */

static __device__ __forceinline__ float int8_value(uint32_t byte, float scale)
{
    return __fmul_rn(__fmul_rn((float)(int8_t)byte, scale), INT8_UNIT);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) int8_kernel(T *y, const struct piece_args all)
{
    const struct piece_args a = own_piece(all, &y);
    const float *scales = (const float *)a.absmax;
    for (int64_t i = grid_thread(); i < a.n_vectors; i += grid_threads()) {
        const uint2 words = ((const uint2 *)a.codes)[i];
        const float scale = scales[i * VECTOR / a.block];
        float v[VECTOR];
#pragma unroll
        for (int k = 0; k < VECTOR; k++)
            v[k] = int8_value((k < 4 ? words.x : words.y) >> 8 * (k % 4) & 255u, scale);
        store_f32(y + i * VECTOR, v);
    }
    for (int64_t i = a.n_vectors * VECTOR + grid_thread(); i < a.n_elems; i += grid_threads())
        y[i] = from_f32<T>(int8_value(a.codes[i], scales[i / a.block]));
}

/* ---- launches -------------------------------------------------------------------------------- */

template <typename T>
static void launch(const struct kernel_ctx *x, const struct quant_layout *l, struct piece_args a,
                   T *y)
{
    bool is_int8 = l->q.code == CODE_INT8;
    int word = is_int8 ? 8 : 4; /* bytes of codes */
    bool whole = is_aligned(y, 16) && is_aligned(a.codes, word) && a.block % VECTOR == 0;
    if (a.n_pieces > 1)
        whole = whole && a.n_elems % VECTOR == 0 && a.n_bytes % word == 0;
    a.n_vectors = whole ? a.n_elems / VECTOR : 0;
    const int64_t most = MAX(grid_full(&x->env, THREADS, WAVES) / a.n_pieces, (int64_t)1);
    const dim3 grid(grid_for(whole ? ceil_div(a.n_elems, VECTOR) : a.n_elems, THREADS, most),
                    (unsigned)a.n_pieces);
    if (is_int8)
        int8_kernel<T><<<grid, THREADS, 0, cuda_stream(x)>>>(y, a);
    else
        code4_kernel<T><<<grid, THREADS, 0, cuda_stream(x)>>>(y, a, l->q.code == CODE_FP4);
}

enum { MOST_PIECES = 65535 }; /* of a launch */

/* How many from piece i on have as many rows as it. */
static int alike_from(const struct quant_layout *l, int i)
{
    int n_each = quant_pieces_each(l), n = 1;
    while (i + n < l->n_pieces && n < MOST_PIECES &&
           l->rows[(i + n) % n_each] == l->rows[i % n_each])
        n++;
    return n;
}

static struct piece_args args_of(const struct op_call *c, const struct quant_layout *l, int i)
{
    struct quant_piece p = quant_piece(l, i);
    struct piece_args a = {};
    a.n_pieces = alike_from(l, i);
    a.n_bytes = p.n_bytes;
    a.n_blocks = p.n_blocks;
    a.n_groups = p.n_groups;
    a.codes = (const uint8_t *)c->in[0].data + p.first_byte;
    a.absmax = (const char *)c->in[1].data + p.first_block * dtype_size(c->in[1].dtype);
    a.n_elems = p.n_elems;
    a.block = quant_block(l);
    if (l->q.nested) {
        a.groups = (const float *)c->in[2].data + p.first_group;
        a.table = (const float *)c->in[3].data + (int64_t)i * SCALE_TABLE;
    }
    return a;
}

static enum status dequantize_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    struct quant_layout l = dequantize_layout(c);
    for (int i = 0; i < l.n_pieces; i += alike_from(&l, i)) {
        struct piece_args a = args_of(c, &l, i);
        int64_t first = quant_piece(&l, i).first_elem;
        CUDA_DISPATCH_FLOAT(c->out[0].dtype, T, launch<T>(x, &l, a, (T *)c->out[0].data + first));
        CUDA_TRY(cudaGetLastError());
    }
    return OK;
}

CUDA_RUN(dequantize, vectors, dequantize_vectors)
