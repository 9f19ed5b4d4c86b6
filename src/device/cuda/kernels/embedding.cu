/* embedding.cu: rows of a table by id, and the gradient that adds rows back, in the order of
 * positions and without atomics on floats.
 *
 * The gradient sorts (id, position) pairs by id with a stable radix sort, 8 bits a pass; equal ids
 * then lie next to each other in the order of positions:
 *
 *     ids    7 2 7 7 2        sorted ids  2 2 7 7 7        positions  1 4 0 2 3
 *
 * A block takes PIECE sorted pairs and adds their rows up, run by run. A run that lies inside the
 * piece is written at once. One that crosses an edge leaves its part of the sum in the workspace,
 * in the piece's head (it came in from the left) or tail (it begins here); the piece in which it
 * begins then adds tail, head, head, ... in order.
 *
 * Ids outside the table are refused by the loader. Should one arrive all the same, nothing is read
 * or written out of bounds: its row is NaN, which stops training, and its gradient is dropped.
 */
#include "device/cuda/declared/elementwise.h"
#include "device/cuda/support/any.cuh"

static constexpr int THREADS = 256;

/* ---- forward --------------------------------------------------------------------------------- */

/* Rows of row_units units of U. The pattern of all ones is NaN in every float dtype. */
template <typename U>
static __global__ void __launch_bounds__(THREADS)
    gather_kernel(U *y, const U *table, const int32_t *ids, int64_t n, int64_t row_units,
                  int64_t n_rows)
{
    for (int64_t i = grid_thread(); i < n * row_units; i += grid_threads()) {
        int64_t position = i / row_units, at = i - position * row_units;
        int64_t id = ids[position];
        U value;
        if (id >= 0 && id < n_rows) {
            value = table[id * row_units + at];
        } else {
            for (int k = 0; k < (int)sizeof(U); k++)
                reinterpret_cast<unsigned char *>(&value)[k] = 0xff;
        }
        y[i] = value;
    }
}

static enum status embedding_gather(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct tensor *table = &c->in[0], *y = &c->out[0];
    const int32_t *ids = (const int32_t *)c->in[1].data;
    int64_t n = shape_elems(&c->in[1].shape), n_rows = table->shape.dim[0];
    int64_t row_bytes = table->shape.dim[1] * dtype_size(table->dtype);
    bool wide = row_bytes % 16 == 0 && is_aligned(table->data, 16) && is_aligned(y->data, 16);
    if (wide)
        gather_kernel<uint4>
            <<<grid_for(n * (row_bytes / 16), THREADS), THREADS, 0, cuda_stream(x)>>>(
                (uint4 *)y->data, (const uint4 *)table->data, ids, n, row_bytes / 16, n_rows);
    else
        gather_kernel<uint16_t>
            <<<grid_for(n * (row_bytes / 2), THREADS), THREADS, 0, cuda_stream(x)>>>(
                (uint16_t *)y->data, (const uint16_t *)table->data, ids, n, row_bytes / 2, n_rows);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- sorting (id, position) pairs ------------------------------------------------------------ */

static constexpr int DIGITS = EMBEDDING_DIGITS, DIGIT_BITS = 8, SORT_ITEMS = EMBEDDING_SORT_ITEMS;
static_assert(THREADS == DIGITS, "one thread per digit");

struct pairs {
    int32_t *id, *position;
};

/* Ids outside [0, n_rows) become n_rows: they sort last, and no row is theirs. */
static __global__ void __launch_bounds__(THREADS)
    pairs_kernel(struct pairs to, const int32_t *ids, int64_t n, int64_t n_rows)
{
    for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
        int32_t id = ids[i];
        to.id[i] = id >= 0 && id < n_rows ? id : (int32_t)n_rows;
        to.position[i] = (int32_t)i;
    }
}

/* counts[block, digit]: how many of the block's items have the digit at `shift`. */
static __global__ void __launch_bounds__(THREADS)
    count_kernel(int32_t *counts, const int32_t *id, int64_t n, int shift)
{
    __shared__ int32_t count[DIGITS];
    const int64_t first = (int64_t)blockIdx.x * SORT_ITEMS;
    const int64_t last = first + SORT_ITEMS < n ? first + SORT_ITEMS : n;
    count[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t i = first + threadIdx.x; i < last; i += THREADS)
        atomicAdd(&count[(id[i] >> shift) & (DIGITS - 1)], 1);
    __syncthreads();
    counts[(int64_t)blockIdx.x * DIGITS + threadIdx.x] = count[threadIdx.x];
}

/* Where the first of this block's items with digit threadIdx.x goes: after all smaller digits of
 * every block and after this digit's items of the blocks before. */
static __device__ int32_t digit_start(const int32_t *counts, int32_t *warp_totals)
{
    int32_t all = 0, before = 0;
    for (int64_t block = 0; block < gridDim.x; block++) {
        int32_t count = counts[block * DIGITS + threadIdx.x];
        all += count;
        before += block < blockIdx.x ? count : 0;
    }
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int32_t up_to = all; /* inclusive sum over the digits of this warp */
    for (int step = 1; step < WARP; step *= 2) {
        int32_t left = __shfl_up_sync(0xffffffffu, up_to, step);
        up_to += lane >= step ? left : 0;
    }
    if (lane == WARP - 1)
        warp_totals[warp] = up_to;
    __syncthreads();
    int32_t smaller = up_to - all;
    for (int w = 0; w < warp; w++)
        smaller += warp_totals[w];
    return smaller + before;
}

/* Moves each item to its place by the digit at `shift`, items of one digit in their old order. A
 * round takes one item per thread: within a warp the lanes with the same digit are numbered from
 * the left, warps and rounds follow one another through `start`. */
static __global__ void __launch_bounds__(THREADS)
    scatter_kernel(struct pairs to, struct pairs from, const int32_t *counts, int64_t n, int shift)
{
    constexpr int WARPS = THREADS / WARP;
    __shared__ int32_t warp_totals[WARPS];
    __shared__ int32_t count[WARPS][DIGITS]; /* of this round; then the first place */
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t first = (int64_t)blockIdx.x * SORT_ITEMS;
    const int64_t last = first + SORT_ITEMS < n ? first + SORT_ITEMS : n;
    int32_t start = digit_start(counts, warp_totals);
    for (int64_t round = first; round < last; round += THREADS) {
        const int64_t i = round + threadIdx.x;
        const bool here = i < last;
        const int32_t id = here ? from.id[i] : 0, position = here ? from.position[i] : 0;
        const int digit = here ? (id >> shift) & (DIGITS - 1) : DIGITS; /* DIGITS: no item */
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            count[w][threadIdx.x] = 0;
        __syncthreads();
        const unsigned same = __match_any_sync(0xffffffffu, digit);
        const int rank = __popc(same & ((1u << lane) - 1u));
        if (here && rank == 0)
            count[warp][digit] = __popc(same);
        __syncthreads();
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            int32_t found = count[w][threadIdx.x];
            count[w][threadIdx.x] = start;
            start += found;
        }
        __syncthreads();
        if (here) {
            const int32_t place = count[warp][digit] + rank;
            to.id[place] = id;
            to.position[place] = position;
        }
        __syncthreads();
    }
}

/* ---- sums of runs ---------------------------------------------------------------------------- */

static constexpr int PIECE = EMBEDDING_PIECE, SUM_THREADS = 128;

struct sum_args {
    struct pairs sorted;
    float *edges; /* [n_pieces, head then tail, n_columns] */
    int64_t n, n_rows, n_columns;
    bool adds; /* to what the output holds */
};

/* out[id] = sum (+ out[id]), N columns from j on. */
template <int N, typename TO>
static __device__ __forceinline__ void write_row(TO *out, const struct sum_args &a, int64_t id,
                                                 int64_t j, float (&sum)[N])
{
    TO *to = out + id * a.n_columns + j;
    if (a.adds) {
        float old[N];
        load_f32(old, to);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum[k] = old[k] + sum[k];
    }
    store_f32(to, sum);
}

/* What block blockIdx.x has before it: the ids and positions of its piece, one more id on each side
 * (-1 where there is none). id[e + 1] belongs to pair e. */
struct piece {
    int size;
    int32_t id[PIECE + 2], position[PIECE];
};

static __device__ void load_piece(struct piece &p, const struct sum_args &a)
{
    const int64_t first = (int64_t)blockIdx.x * PIECE;
    const int64_t size = a.n - first < PIECE ? a.n - first : PIECE;
    for (int e = (int)threadIdx.x; e < PIECE + 2; e += SUM_THREADS) {
        const int64_t at = first + e - 1;
        p.id[e] = at >= 0 && at < a.n ? a.sorted.id[at] : -1;
        if (e < PIECE && first + e < a.n)
            p.position[e] = a.sorted.position[first + e];
    }
    if (threadIdx.x == 0)
        p.size = (int)size;
    __syncthreads();
}

template <int N, typename TO, typename T>
static __global__ void __launch_bounds__(SUM_THREADS)
    sum_pieces(TO *out, const T *__restrict__ dy, const struct sum_args a)
{
    __shared__ struct piece p;
    load_piece(p, a);
    float *head = a.edges + (int64_t)blockIdx.x * 2 * a.n_columns, *tail = head + a.n_columns;
    for (int64_t j = (int64_t)threadIdx.x * N; j < a.n_columns; j += SUM_THREADS * N) {
        float sum[N] = {};
        bool entered = p.id[0] == p.id[1]; /* the run came in from the left */
#pragma unroll 4
        for (int e = 0; e < p.size; e++) {
            const int32_t id = p.id[e + 1];
            float v[N];
            load_f32(v, dy + p.position[e] * a.n_columns + j);
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] += v[k];
            const bool ends = p.id[e + 2] != id, at_edge = e == p.size - 1;
            if (!ends && !at_edge)
                continue;
            if (entered)
                store_f32(head + j, sum);
            else if (!ends)
                store_f32(tail + j, sum);
            else if (id < a.n_rows)
                write_row<N, TO>(out, a, id, j, sum);
            entered = false;
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] = 0.0f;
        }
    }
}

/* The run that begins in this piece and leaves it on the right, if there is one: its tail here and
 * the heads of the pieces it reaches. */
template <int N, typename TO>
static __global__ void __launch_bounds__(SUM_THREADS) sum_edges(TO *out, const struct sum_args a)
{
    const int64_t first = (int64_t)blockIdx.x * PIECE, next = first + PIECE;
    if (next >= a.n)
        return;
    const int32_t id = a.sorted.id[next - 1];
    const bool leaves = a.sorted.id[next] == id;
    const bool begins = first == 0 || a.sorted.id[first - 1] != id;
    if (!leaves || !begins || id >= a.n_rows)
        return;
    for (int64_t j = (int64_t)threadIdx.x * N; j < a.n_columns; j += SUM_THREADS * N) {
        float sum[N], part[N];
        load_f32(sum, a.edges + ((int64_t)blockIdx.x * 2 + 1) * a.n_columns + j);
        int64_t piece = blockIdx.x + 1;
        /* A piece is reached when its first pair still has the id. */
        for (; piece * PIECE < a.n && a.sorted.id[piece * PIECE] == id; piece++) {
            load_f32(part, a.edges + piece * 2 * a.n_columns + j);
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] += part[k];
        }
        write_row<N, TO>(out, a, id, j, sum);
    }
}

/* ---- gradient: launches ---------------------------------------------------------------------- */

/* Passes of the sort: ids up to n_rows, which stands for those outside the table. */
static int pass_count(int64_t n_rows)
{
    int n = 1;
    while (n_rows >> (n * DIGIT_BITS) > 0)
        n++;
    return n;
}

/* Pairs in workspace, sorted by id; the set they end in is returned in *sorted. */
static enum status sort_pairs(const struct kernel_ctx *x, const struct op_call *c,
                              const struct embedding_layout *l, struct pairs *sorted)
{
    int64_t n = shape_elems(&c->in[1].shape), n_rows = c->out[0].shape.dim[0];
    char *base = (char *)x->workspace;
    struct pairs from = {(int32_t *)base, (int32_t *)(base + l->pairs_bytes)};
    struct pairs to = {(int32_t *)(base + 2 * l->pairs_bytes),
                       (int32_t *)(base + 3 * l->pairs_bytes)};
    int32_t *counts = (int32_t *)(base + 4 * l->pairs_bytes);
    unsigned grid = grid_for(n, SORT_ITEMS);
    pairs_kernel<<<grid_for(n, THREADS), THREADS, 0, cuda_stream(x)>>>(
        from, (const int32_t *)c->in[1].data, n, n_rows);
    for (int pass = 0; pass < pass_count(n_rows); pass++) {
        int shift = pass * DIGIT_BITS;
        count_kernel<<<grid, THREADS, 0, cuda_stream(x)>>>(counts, from.id, n, shift);
        scatter_kernel<<<grid, THREADS, 0, cuda_stream(x)>>>(to, from, counts, n, shift);
        struct pairs swap = from;
        from = to;
        to = swap;
    }
    *sorted = from;
    CUDA_TRY(cudaGetLastError());
    return OK;
}

template <typename TO, typename T>
static void launch_sums(const struct kernel_ctx *x, const struct op_call *c,
                        const struct sum_args &a)
{
    /* Eight columns per thread for 16-bit dy, four for f32; f32 outputs take two accesses. */
    constexpr int N = per_16_bytes<T>::n;
    TO *out = (TO *)c->out[0].data;
    const T *dy = (const T *)c->in[0].data;
    unsigned grid = grid_for(a.n, PIECE);
    bool vectors = a.n_columns % N == 0 && is_aligned(dy, 16) && is_aligned(out, 16);
    if (vectors) {
        sum_pieces<N, TO, T><<<grid, SUM_THREADS, 0, cuda_stream(x)>>>(out, dy, a);
        sum_edges<N, TO><<<grid, SUM_THREADS, 0, cuda_stream(x)>>>(out, a);
    } else {
        sum_pieces<1, TO, T><<<grid, SUM_THREADS, 0, cuda_stream(x)>>>(out, dy, a);
        sum_edges<1, TO><<<grid, SUM_THREADS, 0, cuda_stream(x)>>>(out, a);
    }
}

/* What the sums are added to: the accumulator, in the output's place, or zeros. */
static enum status prepare_output(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct tensor *out = &c->out[0];
    size_t n_bytes = (size_t)tensor_bytes(out);
    if (!call_has(c, 2))
        CUDA_TRY(cudaMemsetAsync(out->data, 0, n_bytes, cuda_stream(x)));
    else if (c->in[2].data != out->data)
        CUDA_TRY(cudaMemcpyAsync(out->data, c->in[2].data, n_bytes, cudaMemcpyDeviceToDevice,
                                 cuda_stream(x)));
    return OK;
}

static enum status embedding_grad_sorted(const struct kernel_ctx *x, const struct op_call *c)
{
    struct embedding_layout l = embedding_layout_of(c);
    struct sum_args a = {};
    a.n = shape_elems(&c->in[1].shape);
    a.n_rows = c->out[0].shape.dim[0];
    a.n_columns = c->out[0].shape.dim[1];
    a.adds = call_has(c, 2);
    a.edges = (float *)((char *)x->workspace + 4 * l.pairs_bytes + l.counts_bytes);
    TRY(sort_pairs(x, c, &l, &a.sorted));
    TRY(prepare_output(x, c));
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        CUDA_DISPATCH_FLOAT(c->out[0].dtype, TO, { launch_sums<TO, T>(x, c, a); });
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- lists ----------------------------------------------------------------------------------- */

CUDA_RUN(embedding, gather, embedding_gather)

CUDA_RUN(embedding_grad, sorted, embedding_grad_sorted)
