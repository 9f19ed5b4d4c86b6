/* grouped_wgmma.cu: grouped products of 16-bit operands on the tensor cores of compute capability
 * 9.0.
 *
 * One block on each multiprocessor goes from tile to tile, over all groups: 128 x 256 results at a
 * time. Two warpgroups compute, 64 x 256 each; one thread of a third sends the copy engine for the
 * operands of 64 terms at a time, up to four such stages ahead, of the next tile too. A stage is
 * filled, read by both, and free again: a barrier for each of the two changes.
 *
 * The copy engine knows the operands as a whole: the rows of all groups, or every group's matrix.
 * Outside they are zeros, but beyond a group's last row lie the next group's. Where these rows are
 * rows of results, they are computed and not stored; where they are terms of a sum, they are
 * overwritten with zeros in shared memory. Every result is one warpgroup's, its terms in order.
 */
#include "device/cuda/products/grouped.cuh"
#include "device/cuda/support/driver.h"
#include "device/cuda/support/wgmma.cuh"

namespace
{

constexpr int TERMS = GROUPED_TERMS;
constexpr int SIDE = 64;     /* of a block of columns, rows of a warpgroup */
constexpr int COMPUTING = 2; /* warpgroups; one more copies */
constexpr int THREADS = (COMPUTING + 1) * WARPGROUP;

static_assert(GROUPED_ROWS == COMPUTING * SIDE && GROUPED_COLUMNS == 256 && TERMS == SIDE, "tiles");

struct product {
    CUtensorMap a, b;
    struct grouped g;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int STAGES = WARPGROUPS_STAGES;
constexpr int BLOCK_BYTES = TERMS * SIDE * 2; /* [64][64] */
constexpr int A_BYTES = GROUPED_ROWS * TERMS * 2;
constexpr int SUMS = SIDE * GROUPED_COLUMNS / WARPGROUP;
/* Of a thread: 40 and 232 are as many as 168 each, which the block begins with. */
constexpr int COPYING_REGISTERS = 40, COMPUTING_REGISTERS = 232;

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Behind the stages. */
struct tables {
    uint64_t full[STAGES], empty[STAGES]; /* barriers */
    int32_t starts[GROUPED_MOST + 1], offsets[GROUPED_MOST + 1];
};
static_assert(sizeof(struct tables) + STAGES * GROUPED_STAGE_BYTES + 1024 <=
                  WARPGROUPS_SHARED_BYTES,
              "declared");

/* offsets as they are, starts[e] as group_of_tile has it. All threads of the block take part; the
 * last barrier is the caller's. */
__device__ __forceinline__ void fill_tables(struct tables &s, const struct grouped &g)
{
    for (int e = (int)threadIdx.x; e <= g.shape.n_groups; e += THREADS)
        s.offsets[e] = g.offsets[e];
    __syncthreads();
    if (threadIdx.x >= WARP)
        return;
    int32_t before = 0;
    for (int first = 0; first < g.shape.n_groups; first += WARP) {
        const int e = first + (int)threadIdx.x;
        int32_t n = 0;
        if (e < g.shape.n_groups)
            n = group_tiles(g.shape, s.offsets, e, GROUPED_ROWS, GROUPED_COLUMNS);
#pragma unroll
        for (int step = 1; step < WARP; step *= 2) {
            const int32_t left = __shfl_up_sync(0xffffffffu, n, step);
            n += (int)threadIdx.x >= step ? left : 0;
        }
        if (e < g.shape.n_groups)
            s.starts[e + 1] = before + n;
        before += __shfl_sync(0xffffffffu, n, WARP - 1);
    }
    if (threadIdx.x == 0)
        s.starts[0] = 0;
}

struct tile {
    int32_t e, first; /* its group, and the first of the group's rows among those of all groups */
    int32_t m, k;     /* of the group */
    int32_t row, column;
};

/* Tile t; e: the group of an earlier tile, moved on to this one's. */
__device__ __forceinline__ struct tile tile_at(const struct tables &s, const struct grouped &g,
                                               int32_t t, int &e)
{
    e = group_from(s.starts, e, t);
    struct tile r;
    r.e = e;
    r.first = s.offsets[e];
    const int32_t size = s.offsets[e + 1] - r.first;
    r.m = g.shape.by_rows ? size : (int32_t)g.shape.m;
    r.k = g.shape.by_rows ? (int32_t)g.shape.k : size;
    const struct tile_place at = tile_place_in_bands(r.m, g.shape.n, t - s.starts[e], GROUPED_ROWS,
                                                     GROUPED_COLUMNS, WARPGROUPS_BAND);
    r.row = (int32_t)at.row;
    r.column = (int32_t)at.column;
    return r;
}

__device__ __forceinline__ int32_t steps_of(const struct tile &at)
{
    return at.k / TERMS + (at.k % TERMS != 0);
}

/* Where a block is on its way around the stages; the parity of a stage's phase turns each round. */
struct place {
    uint32_t stage, parity;
};
__device__ __forceinline__ void go_on(struct place &p)
{
    p.stage++;
    if (p.stage == STAGES) {
        p.stage = 0;
        p.parity ^= 1;
    }
}

/* Shared memory as addresses of its own space. */
struct room {
    uint32_t stages, full, empty;
};
__device__ __forceinline__ uint32_t stage_at(const struct room &r, uint32_t stage)
{
    return r.stages + stage * GROUPED_STAGE_BYTES;
}
__device__ __forceinline__ uint32_t full_at(const struct room &r, uint32_t stage)
{
    return r.full + stage * 8;
}
__device__ __forceinline__ uint32_t empty_at(const struct room &r, uint32_t stage)
{
    return r.empty + stage * 8;
}

/* ---- copying --------------------------------------------------------------------------------- */

/* The operands of terms [term, term + 64). AT, BT: stored by terms, as struct grouped has it. */
template <bool AT, bool BT>
__device__ __forceinline__ void copy_stage(uint32_t stage, uint32_t full, const struct product &p,
                                           const struct tile &at, int32_t term)
{
    if constexpr (AT) {
#pragma unroll
        for (int i = 0; i < GROUPED_ROWS / SIDE; i++)
            box_copy(stage + i * BLOCK_BYTES, &p.a, full, at.row + i * SIDE, at.first + term, 0);
    } else {
        box_copy(stage, &p.a, full, term, at.first + at.row, 0);
    }
    stage += A_BYTES;
    if constexpr (BT) {
        const int32_t row = AT ? at.first + term : term, matrix = AT ? 0 : at.e;
#pragma unroll
        for (int i = 0; i < GROUPED_COLUMNS / SIDE; i++)
            box_copy(stage + i * BLOCK_BYTES, &p.b, full, at.column + i * SIDE, row, matrix);
    } else {
        box_copy(stage, &p.b, full, term, at.column, at.e);
    }
}

/* One thread. */
template <bool AT, bool BT>
__device__ __forceinline__ void copy_tiles(const struct product &p, const struct tables &s,
                                           const struct room &room)
{
    const int32_t n_tiles = s.starts[p.g.shape.n_groups];
    struct place place = {0, 0};
    int e = 0;
    map_prefetch(&p.a);
    map_prefetch(&p.b);
    for (int32_t t = (int32_t)blockIdx.x; t < n_tiles; t += (int32_t)gridDim.x) {
        const struct tile at = tile_at(s, p.g, t, e);
        const int32_t n_steps = steps_of(at);
        for (int32_t step = 0; step < n_steps; step++, go_on(place)) {
            const uint32_t full = full_at(room, place.stage);
            barrier_wait(empty_at(room, place.stage), place.parity ^ 1);
            barrier_arrive_expecting(full, GROUPED_STAGE_BYTES);
            copy_stage<AT, BT>(stage_at(room, place.stage), full, p, at, step * TERMS);
        }
    }
}

/* ---- computing ------------------------------------------------------------------------------- */

/* This warp has read the stage. */
__device__ __forceinline__ void leave_stage(const struct room &room, uint32_t stage)
{
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        barrier_arrive(empty_at(room, stage));
}

/* Terms from `inside` on become zeros, in every block of the stage. All computing threads. */
__device__ __forceinline__ void clear_terms(uint32_t stage, int inside)
{
    constexpr int row_bytes = SIDE * 2, at_once = COMPUTING * WARPGROUP * 16;
#pragma unroll
    for (int from = 0; from < BLOCK_BYTES; from += at_once) {
        const int at = from + (int)threadIdx.x * 16;
        if (at < inside * row_bytes)
            continue;
#pragma unroll
        for (int block = 0; block < GROUPED_STAGE_BYTES; block += BLOCK_BYTES)
            clear_16(stage + block + at);
    }
    stores_before_engines();
    sync_some<1, COMPUTING * WARPGROUP>();
}

/* Until step `step` of a tile is in the stage, without terms of other groups. */
template <bool AT>
__device__ __forceinline__ void enter_stage(const struct room &room, const struct place &place,
                                            const struct tile &at, int32_t step)
{
    barrier_wait(full_at(room, place.stage), place.parity);
    if constexpr (AT) {
        const int32_t left = at.k - step * TERMS;
        if (left < TERMS)
            clear_terms(stage_at(room, place.stage), left);
    }
}

/* 64 rows from the stage's row `own_row` on. */
template <bool AT, bool BT, typename T>
__device__ __forceinline__ void multiply(float (&sum)[SUMS], uint32_t stage, uint32_t own_row)
{
    constexpr uint32_t by_terms = 16 * 2, by_rows = 16 * SIDE * 2; /* to the next 16 terms */
    const uint32_t a = stage + own_row * TERMS * 2, b = stage + A_BYTES;
    products_begin();
#pragma unroll
    for (int k = 0; k < TERMS / 16; k++)
        wgmma<AT, BT, T>(sum, tile_descriptor(a + k * (AT ? by_rows : by_terms), BLOCK_BYTES),
                         tile_descriptor(b + k * (BT ? by_rows : by_terms), BLOCK_BYTES));
    products_commit();
}

/* A stage is left when the products of the next are on their way. */
template <bool AT, bool BT, typename T>
__device__ __forceinline__ void sum_terms(float (&sum)[SUMS], const struct room &room,
                                          struct place &place, const struct tile &at,
                                          uint32_t own_row)
{
    const int32_t n_steps = steps_of(at);
    uint32_t last = 0;
    for (int32_t step = 0; step < n_steps; step++) {
        enter_stage<AT>(room, place, at, step);
        multiply<AT, BT, T>(sum, stage_at(room, place.stage), own_row);
        products_wait<1>();
        if (step > 0)
            leave_stage(room, last);
        last = place.stage;
        go_on(place);
    }
    products_wait<0>();
    sums_arrived(sum);
    if (n_steps > 0)
        leave_stage(room, last);
}

/* For a warpgroup none of whose rows are in the group. */
template <bool AT>
__device__ __forceinline__ void pass_terms(const struct room &room, struct place &place,
                                           const struct tile &at)
{
    const int32_t n_steps = steps_of(at);
    for (int32_t step = 0; step < n_steps; step++) {
        enter_stage<AT>(room, place, at, step);
        leave_stage(room, place.stage);
        go_on(place);
    }
}

/* ---- storing --------------------------------------------------------------------------------- */

/* This thread's results: of row `row` and of the one eight on, columns column + 8 j and the next.
 */
struct own {
    int32_t row, column, m;
    int64_t at; /* element of c: row 0 of the group, column 0 */
};

__device__ __forceinline__ struct own own_of(const struct grouped &g, const struct tile &at,
                                             uint32_t own_row)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP % 4;
    struct own r;
    r.row = at.row + (int32_t)own_row + 16 * warp + lane / 4;
    r.column = at.column + lane % 4 * 2;
    r.m = at.m;
    r.at = g.shape.by_rows ? at.first * g.shape.n : at.e * g.shape.m * g.shape.n;
    return r;
}

template <typename T>
__device__ __forceinline__ void add_bias(float (&sum)[SUMS], const struct grouped &g,
                                         const struct own &own, int e)
{
    const T *bias = (const T *)g.bias.data + e * g.shape.n + own.column;
#pragma unroll
    for (int j = 0; j < GROUPED_COLUMNS / 8; j++) {
        if (own.column + 8 * j >= g.shape.n)
            continue;
        float x[2];
        load_f32(x, bias + 8 * j);
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum[4 * j + i] += x[i % 2];
    }
}

template <typename TO>
__device__ __forceinline__ void add_before(float (&sum)[SUMS], const struct grouped &g,
                                           const struct own &own)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int32_t row = own.row + 8 * half;
        const TO *before = (const TO *)g.before.data + own.at + row * g.shape.n + own.column;
#pragma unroll
        for (int j = 0; j < GROUPED_COLUMNS / 8; j++) {
            if (row >= own.m || own.column + 8 * j >= g.shape.n)
                continue;
            float x[2];
            load_f32(x, before + 8 * j);
            sum[4 * j + 2 * half] += x[0];
            sum[4 * j + 2 * half + 1] += x[1];
        }
    }
}

/* Word i of lane t of each four goes to lane i, as its word t. */
__device__ __forceinline__ void turn_words(uint32_t (&word)[4])
{
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
        const bool odd = threadIdx.x & bit;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int i = bit == 1 ? 2 * k : k; /* with i + bit */
            const uint32_t sent = odd ? word[i] : word[i + bit];
            const uint32_t come = __shfl_xor_sync(0xffffffffu, sent, bit);
            word[i] = odd ? come : word[i];
            word[i + bit] = odd ? word[i + bit] : come;
        }
    }
}

/* Four lanes hold a row's columns by twos; turned, each has eight that lie side by side. */
template <typename T>
__device__ __forceinline__ void store_halves(const float (&sum)[SUMS], const struct grouped &g,
                                             const struct own &own)
{
    const int lane = threadIdx.x % 4;
    const int32_t column = own.column - 2 * lane + 8 * lane;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int32_t row = own.row + 8 * half;
        T *c = (T *)g.c.data + own.at + row * g.shape.n + column;
#pragma unroll
        for (int four = 0; four < GROUPED_COLUMNS / 32; four++) {
            uint32_t word[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int from = 4 * (4 * four + i) + 2 * half;
                word[i] = word_of(sum[from], sum[from + 1], c);
            }
            turn_words(word);
            if (row < own.m && column + 32 * four < g.shape.n)
                *reinterpret_cast<uint4 *>(c + 32 * four) =
                    make_uint4(word[0], word[1], word[2], word[3]);
        }
    }
}

__device__ __forceinline__ void store_floats(const float (&sum)[SUMS], const struct grouped &g,
                                             const struct own &own)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int32_t row = own.row + 8 * half;
        float *c = (float *)g.c.data + own.at + row * g.shape.n + own.column;
#pragma unroll
        for (int j = 0; j < GROUPED_COLUMNS / 8; j++) {
            if (row < own.m && own.column + 8 * j < g.shape.n)
                *reinterpret_cast<float2 *>(c + 8 * j) =
                    make_float2(sum[4 * j + 2 * half], sum[4 * j + 2 * half + 1]);
        }
    }
}

/* Two warpgroups, 64 rows of each tile for each. */
template <bool AT, bool BT, typename T, typename TO>
__device__ __forceinline__ void compute_tiles(const struct product &p, const struct tables &s,
                                              const struct room &room)
{
    const int32_t n_tiles = s.starts[p.g.shape.n_groups];
    const uint32_t own_row = threadIdx.x / WARPGROUP * SIDE;
    struct place place = {0, 0};
    int e = 0;
    for (int32_t t = (int32_t)blockIdx.x; t < n_tiles; t += (int32_t)gridDim.x) {
        const struct tile at = tile_at(s, p.g, t, e);
        if (at.row + (int32_t)own_row >= at.m) {
            pass_terms<AT>(room, place, at);
            continue;
        }
        float sum[SUMS] = {};
        sum_terms<AT, BT, T>(sum, room, place, at, own_row);
        const struct own own = own_of(p.g, at, own_row);
        if (!AT && p.g.bias.data)
            add_bias<T>(sum, p.g, own, at.e);
        if (AT && p.g.before.data)
            add_before<TO>(sum, p.g, own);
        if constexpr (sizeof(TO) == 4)
            store_floats(sum, p.g, own);
        else
            store_halves<TO>(sum, p.g, own);
    }
}

#endif

template <bool AT, bool BT, typename T, typename TO>
__global__ void __launch_bounds__(THREADS, 1)
    grouped_wgmma_kernel(const __grid_constant__ struct product p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char shared[];
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(shared);
    const uint32_t stages = (base + 1023) / 1024 * 1024;
    struct tables &s =
        *reinterpret_cast<struct tables *>(shared + (stages - base) + STAGES * GROUPED_STAGE_BYTES);
    const struct room room = {stages, (uint32_t)__cvta_generic_to_shared(s.full),
                              (uint32_t)__cvta_generic_to_shared(s.empty)};
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            barrier_init(full_at(room, stage), 1);
            barrier_init(empty_at(room, stage), COMPUTING * WARPGROUP / WARP);
        }
        barriers_ready();
    }
    fill_tables(s, p.g);
    __syncthreads();
    if (threadIdx.x >= COMPUTING * WARPGROUP) {
        registers_shrink<COPYING_REGISTERS>();
        if (threadIdx.x == COMPUTING * WARPGROUP)
            copy_tiles<AT, BT>(p, s, room);
    } else {
        registers_grow<COMPUTING_REGISTERS>();
        compute_tiles<AT, BT, T, TO>(p, s, room);
    }
#else
    __trap(); /* cuda_grouped_warpgroups_declines keeps every other GPU away */
#endif
}

/* ---- launching ------------------------------------------------------------------------------- */

typedef decltype(&cuTensorMapEncodeTiled) encode_map;

/* Matrices [matrices][rows][columns] in boxes of box_rows times 64 columns. */
enum status map_of(CUtensorMap *map, const struct any &t, int64_t matrices, int64_t rows,
                   int64_t columns, int box_rows)
{
    static encode_map encode; /* found once; whoever else finds it finds the same */
    if (!encode && !cuda_driver_function("cuTensorMapEncodeTiled", &encode))
        return FAIL(ERR_UNSUPPORTED, "this NVIDIA driver has no tensor maps: install driver 525 or "
                                     "a newer one");
    const cuuint64_t sizes[] = {(cuuint64_t)columns, (cuuint64_t)rows, (cuuint64_t)matrices};
    const cuuint64_t strides[] = {sizes[0] * 2, sizes[0] * sizes[1] * 2};
    const cuuint32_t box[] = {SIDE, (cuuint32_t)box_rows, 1}, each[] = {1, 1, 1};
    const CUtensorMapDataType dtype =
        t.dtype == DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    CUresult r = encode(map, dtype, 3, t.data, sizes, strides, box, each,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r != CUDA_SUCCESS)
        return FAIL(ERR_FAILED, "CUDA: no tensor map of [%lld,%lld,%lld] (error %d)",
                    (long long)matrices, (long long)rows, (long long)columns, (int)r);
    return OK;
}

enum status maps_of(struct product *p)
{
    const struct grouped *g = &p->g;
    const int64_t n = g->shape.n, k = g->shape.k, n_groups = g->shape.n_groups;
    if (g->a_by_terms) {
        TRY(map_of(&p->a, g->a, 1, g->n_rows, g->shape.m, TERMS));
        return map_of(&p->b, g->b, 1, g->n_rows, n, TERMS);
    }
    TRY(map_of(&p->a, g->a, 1, g->n_rows, k, GROUPED_ROWS));
    return g->b_by_terms ? map_of(&p->b, g->b, n_groups, k, n, TERMS)
                         : map_of(&p->b, g->b, n_groups, n, k, GROUPED_COLUMNS);
}

template <bool AT, bool BT, typename T, typename TO>
enum status launch(const struct kernel_ctx *x, const struct product *p)
{
    const unsigned grid = (unsigned)x->env.gpu->n_multiprocessors;
    TRY(cuda_allow_shared(grouped_wgmma_kernel<AT, BT, T, TO>, WARPGROUPS_SHARED_BYTES));
    grouped_wgmma_kernel<AT, BT, T, TO>
        <<<grid, THREADS, WARPGROUPS_SHARED_BYTES, cuda_stream(x)>>>(*p);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

template <typename T> enum status launch_layout(const struct kernel_ctx *x, const struct product *p)
{
    const struct grouped *g = &p->g;
    if (g->a_by_terms)
        return g->c.dtype == DTYPE_F32 ? launch<true, true, T, float>(x, p)
                                       : launch<true, true, T, T>(x, p);
    return g->b_by_terms ? launch<false, true, T, T>(x, p) : launch<false, false, T, T>(x, p);
}

} // namespace

enum status cuda_grouped_wgmma(const struct kernel_ctx *x, const struct grouped *g)
{
    struct product p;
    p.g = *g;
    TRY(maps_of(&p));
    return g->a.dtype == DTYPE_BF16 ? launch_layout<__nv_bfloat16>(x, &p)
                                    : launch_layout<__half>(x, &p);
}
