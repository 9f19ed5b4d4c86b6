/* grouped_mma.cu: grouped products of 16-bit operands on tensor cores.
 *
 * One block of eight warps on each multiprocessor goes from tile to tile, over all groups: 128 x
 * 256 results at a time, 64 x 64 a warp, with the operands of the next 64 terms on their way while
 * it computes. Rows, columns and terms outside a group are zeros. Operands lie in shared memory as
 * they do in memory, and are turned on the way into registers where they have to be.
 */
#include "device/cuda/products/grouped.cuh"
#include "device/cuda/support/mma.cuh"

namespace
{

constexpr int THREADS = 256, TERMS = GROUPED_TERMS, STAGES = GROUPED_STAGES;
constexpr int SIDE = 64;                      /* of what a warp makes, and of a block of columns */
constexpr int PARTS = SIDE / 16;              /* of 16 rows or columns */
constexpr int BLOCK_BYTES = TERMS * SIDE * 2; /* [TERMS][SIDE] */
constexpr int A_BYTES = GROUPED_ROWS * TERMS * 2;

/* ROWS rows of BLOCKS times 64 columns, a block after the other; zeros outside. */
template <int ROWS, int BLOCKS, typename T>
__device__ __forceinline__ void load_tile(uint32_t tile, const T *from, int64_t stride, int64_t row,
                                          int64_t n_rows, int64_t column, int64_t n_columns)
{
    constexpr int chunks = ROWS * 8;
#pragma unroll
    for (int turn = 0; turn < BLOCKS * chunks / THREADS; turn++) {
        const int at = turn * THREADS + (int)threadIdx.x;
        const int block = at / chunks, r = at % chunks / 8, chunk = at % 8;
        const int64_t i = row + r, j = column + block * SIDE + chunk * 8;
        const bool inside = i < n_rows && j < n_columns;
        copy_16_or_zeros(tile + block * ROWS * SIDE * 2 + swizzled<SIDE>(r, chunk),
                         from + (inside ? i * stride + j : 0), inside);
    }
}

/* The operands of terms [term, term + 64). */
template <bool AT, bool BT, typename T>
__device__ __forceinline__ void load_stage(uint32_t stage, const struct grouped &g,
                                           const struct group &own, int64_t row, int64_t column,
                                           int64_t term)
{
    const T *a = (const T *)g.a.data + own.a, *b = (const T *)g.b.data + own.b;
    if constexpr (AT)
        load_tile<TERMS, GROUPED_ROWS / SIDE>(stage, a, own.m, term, own.k, row, own.m);
    else
        load_tile<GROUPED_ROWS, 1>(stage, a, own.k, row, own.m, term, own.k);
    if constexpr (BT)
        load_tile<TERMS, GROUPED_COLUMNS / SIDE>(stage + A_BYTES, b, g.shape.n, term, own.k, column,
                                                 g.shape.n);
    else
        load_tile<GROUPED_COLUMNS, 1>(stage + A_BYTES, b, own.k, column, g.shape.n, term, own.k);
}

/* a of rows [16 i, 16 i + 16) of a block [terms][64 rows], terms [16 k, 16 k + 16). */
__device__ __forceinline__ void fragment_a_columns(uint32_t (&a)[4], uint32_t block, int i, int k)
{
    const int lane = threadIdx.x % WARP;
    matrices_load_transposed(a, block + swizzled<SIDE>(turned_row(lane, k), turned_chunk(lane, i)));
}

template <bool AT, bool BT, typename T>
__device__ __forceinline__ void multiply(float (&sum)[PARTS][2 * PARTS][4], uint32_t stage,
                                         int warp_row, int warp_column)
{
    const uint32_t a_tile = stage + (AT ? warp_row / SIDE * BLOCK_BYTES : 0);
    const uint32_t b_tile = stage + A_BYTES + (BT ? warp_column / SIDE * BLOCK_BYTES : 0);
#pragma unroll
    for (int k = 0; k < TERMS / 16; k++) {
        uint32_t a[PARTS][4];
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            if constexpr (AT)
                fragment_a_columns(a[i], a_tile, i, k);
            else
                fragment_a<SIDE>(a[i], a_tile, warp_row + 16 * i, k);
        }
#pragma unroll
        for (int j = 0; j < PARTS; j++) {
            uint32_t b[4];
            if constexpr (BT)
                fragment_b_columns<SIDE>(b, b_tile, 16 * k, j);
            else
                fragment_b_rows<SIDE>(b, b_tile, warp_column + 16 * j, k);
#pragma unroll
            for (int i = 0; i < PARTS; i++) {
                mma<T>(sum[i][2 * j], a[i], b[0], b[1]);
                mma<T>(sum[i][2 * j + 1], a[i], b[2], b[3]);
            }
        }
    }
}

/* Two neighbouring results of a row. */
template <typename T, typename TO>
__device__ __forceinline__ void put_pair(const struct grouped &g, int e, int64_t at, int64_t column,
                                         float x, float y)
{
    TO *c = (TO *)g.c.data;
    const bool both = column + 1 < g.shape.n;
    if (g.bias.data) {
        const T *bias = (const T *)g.bias.data + e * g.shape.n + column;
        x += to_f32(bias[0]);
        y += both ? to_f32(bias[1]) : 0.0f;
    }
    if (g.before.data) {
        const TO *before = (const TO *)g.before.data + at;
        x += to_f32(before[0]);
        y += both ? to_f32(before[1]) : 0.0f;
    }
    if (both && g.shape.n % 2 == 0) {
        pack<TO, 2> pair = {{from_f32<TO>(x), from_f32<TO>(y)}};
        *reinterpret_cast<pack<TO, 2> *>(c + at) = pair;
        return;
    }
    c[at] = from_f32<TO>(x);
    if (both)
        c[at + 1] = from_f32<TO>(y);
}

template <typename T, typename TO>
__device__ __forceinline__ void store(const float (&sum)[PARTS][2 * PARTS][4],
                                      const struct grouped &g, int e, const struct group &own,
                                      int64_t row, int64_t column)
{
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t r = row + 16 * i + 8 * half + lane / 4;
            if (r >= own.m)
                continue;
#pragma unroll
            for (int j = 0; j < 2 * PARTS; j++) {
                const int64_t c = column + 8 * j + lane % 4 * 2;
                if (c < g.shape.n)
                    put_pair<T, TO>(g, e, own.c + r * g.shape.n + c, c, sum[i][j][2 * half],
                                    sum[i][j][2 * half + 1]);
            }
        }
    }
}

template <bool AT, bool BT, typename T>
__device__ __forceinline__ void
sum_terms(float (&sum)[PARTS][2 * PARTS][4], uint32_t stages, const struct grouped &g,
          const struct group &own, int64_t row, int64_t column, int warp_row, int warp_column)
{
    const int64_t n_steps = (own.k + TERMS - 1) / TERMS;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < n_steps)
            load_stage<AT, BT, T>(stages + s * GROUPED_STAGE_BYTES, g, own, row, column, s * TERMS);
        copies_commit();
    }
    for (int64_t step = 0; step < n_steps; step++) {
        copies_wait<STAGES - 2>();
        __syncthreads();
        const int64_t next = step + STAGES - 1;
        if (next < n_steps)
            load_stage<AT, BT, T>(stages + (uint32_t)(next % STAGES) * GROUPED_STAGE_BYTES, g, own,
                                  row, column, next * TERMS);
        copies_commit();
        multiply<AT, BT, T>(sum, stages + (uint32_t)(step % STAGES) * GROUPED_STAGE_BYTES, warp_row,
                            warp_column);
    }
    copies_wait<0>();
    __syncthreads(); /* nobody reads what the next tile will overwrite */
}

template <bool AT, bool BT, typename T, typename TO>
__global__ void __launch_bounds__(THREADS, 1) grouped_kernel(const struct grouped g)
{
    extern __shared__ __align__(128) unsigned char shared[];
    int32_t *starts = (int32_t *)(shared + STAGES * GROUPED_STAGE_BYTES);
    const uint32_t stages = (uint32_t)__cvta_generic_to_shared(shared);
    const int warp = threadIdx.x / WARP;
    const int warp_row = warp % 2 * SIDE, warp_column = warp / 2 * SIDE;
    count_tiles(starts, g, GROUPED_ROWS, GROUPED_COLUMNS);
    for (int32_t t = (int32_t)blockIdx.x; t < starts[g.shape.n_groups]; t += (int32_t)gridDim.x) {
        const int e = group_of_tile(starts, g.shape.n_groups, t);
        const struct group own = group_of(g.shape, g.offsets, e);
        const struct tile_place at =
            tile_place_of(g.shape.n, t - starts[e], GROUPED_ROWS, GROUPED_COLUMNS);
        float sum[PARTS][2 * PARTS][4] = {};
        sum_terms<AT, BT, T>(sum, stages, g, own, at.row, at.column, warp_row, warp_column);
        store<T, TO>(sum, g, e, own, at.row + warp_row, at.column + warp_column);
    }
}

template <bool AT, bool BT, typename T, typename TO>
enum status launch(const struct kernel_ctx *x, const struct grouped *g)
{
    unsigned grid = (unsigned)x->env.gpu->n_multiprocessors;
    TRY(cuda_allow_shared(grouped_kernel<AT, BT, T, TO>, GROUPED_SHARED_BYTES));
    grouped_kernel<AT, BT, T, TO><<<grid, THREADS, GROUPED_SHARED_BYTES, cuda_stream(x)>>>(*g);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

template <typename T> enum status launch_layout(const struct kernel_ctx *x, const struct grouped *g)
{
    if (g->a_by_terms)
        return g->c.dtype == DTYPE_F32 ? launch<true, true, T, float>(x, g)
                                       : launch<true, true, T, T>(x, g);
    return g->b_by_terms ? launch<false, true, T, T>(x, g) : launch<false, false, T, T>(x, g);
}

} // namespace

enum status cuda_grouped_mma(const struct kernel_ctx *x, const struct grouped *g)
{
    return g->a.dtype == DTYPE_BF16 ? launch_layout<__nv_bfloat16>(x, g)
                                    : launch_layout<__half>(x, g);
}
