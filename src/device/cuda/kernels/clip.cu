/* clip.cu: gradient norms, what gradients are multiplied by, and the loss scale; all of it stays on
 * the device. */
#include "device/cuda/support/any.cuh"
#include "ops/squares_chunk.h"

/* ---- sum_squares -------------------------------------------------------------------------------
 *
 * The inputs are cut into chunks, numbered through all of them; a block takes a chunk and adds two
 * squares in f32, everything else in f64. A second launch adds the chunks' sums, unless there is
 * only one. Which elements make a chunk depends on the shapes alone.
 */

static constexpr int SQUARES_TENSORS = 120; /* descriptors in 4 KiB of arguments */

struct squares_tensor {
    const void *data;
    int64_t n;
    enum dtype dtype;
    int32_t first_chunk; /* of the launch */
    bool vectors;
};

struct squares_args {
    struct squares_tensor tensor[SQUARES_TENSORS];
    int n_tensors;
    int64_t chunk;   /* elements */
    double *partial; /* one per chunk */
    float *y;        /* NULL: there is more than this launch's only chunk */
};

/* Elements [first, last) of a tensor; first is a multiple of 4. */
static __device__ double squares_of(const struct squares_tensor &t, int64_t first, int64_t last)
{
    const struct any g = {(void *)t.data, t.dtype};
    const int64_t last_vector = t.vectors ? last / 4 : first / 4;
    double sum = 0.0;
    for (int64_t i = first / 4 + threadIdx.x; i < last_vector; i += 4 * SQUARES_THREADS) {
        struct any4 raw[4] = {}; /* zeros past the end */
#pragma unroll
        for (int u = 0; u < 4; u++) {
            if (i + u * SQUARES_THREADS < last_vector)
                raw[u] = any4_load(g, i + u * SQUARES_THREADS);
        }
#pragma unroll
        for (int u = 0; u < 4; u++) {
            float v[4];
            any4_unpack(v, raw[u], g.dtype);
            sum += (double)(v[0] * v[0] + v[1] * v[1]) + (double)(v[2] * v[2] + v[3] * v[3]);
        }
    }
    for (int64_t i = last_vector * 4 + threadIdx.x; i < last; i += SQUARES_THREADS) {
        float v = any_get_f32(g, i);
        sum += (double)v * (double)v;
    }
    return sum;
}

static __global__ void __launch_bounds__(SQUARES_THREADS)
    squares_kernel(__grid_constant__ const struct squares_args a)
{
    __shared__ double scratch[WARP];
    const int chunk = (int)blockIdx.x;
    int low = 0, high = a.n_tensors - 1; /* the last tensor that begins at or before the chunk */
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (a.tensor[middle].first_chunk <= chunk)
            low = middle;
        else
            high = middle - 1;
    }
    const struct squares_tensor &t = a.tensor[low];
    const int64_t first = (int64_t)(chunk - t.first_chunk) * a.chunk;
    const int64_t last = first + a.chunk < t.n ? first + a.chunk : t.n;
    double sum = block_sum<SQUARES_THREADS>(squares_of(t, first, last), scratch);
    if (threadIdx.x == 0 && a.y)
        *a.y = (float)sum;
    else if (threadIdx.x == 0)
        a.partial[chunk] = sum;
}

static __global__ void __launch_bounds__(SQUARES_THREADS)
    squares_finish_kernel(float *y, const double *partial, int64_t n_partials)
{
    __shared__ double scratch[WARP];
    double sum = 0.0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < n_partials; i += SQUARES_THREADS)
        sum += partial[i];
    sum = block_sum<SQUARES_THREADS>(sum, scratch);
    if (threadIdx.x == 0)
        *y = (float)sum;
}

/* Tensors [*next, ...) of the call, as many as fit; n_chunks of the launch. */
static void collect(struct squares_args *a, const struct op_call *c, int *next, int32_t *n_chunks)
{
    a->n_tensors = 0;
    *n_chunks = 0;
    for (; *next < c->n_in && a->n_tensors < SQUARES_TENSORS; ++*next) {
        const struct tensor *g = &c->in[*next];
        struct squares_tensor *t = &a->tensor[a->n_tensors];
        t->data = g->data;
        t->n = shape_elems(&g->shape);
        t->dtype = g->dtype;
        t->first_chunk = *n_chunks;
        t->vectors = any4_aligned(any_of(g));
        if (t->n == 0)
            continue; /* the descriptor is used again */
        a->n_tensors++;
        *n_chunks += (int32_t)ceil_div(t->n, a->chunk);
    }
}

static enum status sum_squares_chunks(const struct kernel_ctx *x, const struct op_call *c)
{
    struct squares_args a = {};
    static_assert(sizeof(a) <= 4096, "arguments that every driver takes");
    float *y = (float *)c->out[0].data;
    double *partial = (double *)x->workspace;
    int64_t n_all = squares_chunk_count(c), n_done = 0;
    a.chunk = squares_chunk_elems(c);
    a.y = n_all == 1 ? y : NULL;
    for (int next = 0; next < c->n_in;) {
        int32_t n_chunks;
        collect(&a, c, &next, &n_chunks);
        a.partial = partial + n_done;
        n_done += n_chunks;
        if (n_chunks > 0)
            squares_kernel<<<(unsigned)n_chunks, SQUARES_THREADS, 0, cuda_stream(x)>>>(a);
        CUDA_TRY(cudaGetLastError());
    }
    if (n_all != 1)
        squares_finish_kernel<<<1, SQUARES_THREADS, 0, cuda_stream(x)>>>(y, partial, n_all);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- chunk_squares -----------------------------------------------------------------------------
 *
 * A warp has a chunk, and each lane the same elements of it wherever the chunk lies in memory.
 */

static constexpr int CHUNK_WARPS = 8;

static __device__ __forceinline__ void load_four(float (&v)[4], const struct any &g, int64_t at,
                                                 int64_t n, bool vectors)
{
    if (vectors && at + 4 <= n) {
        any4_unpack(v, any4_load(g, at / 4), g.dtype);
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        v[k] = at + k < n ? any_get_f32(g, at + k) : 0.0f;
}

static __global__ void __launch_bounds__(CHUNK_WARPS *WARP)
    chunk_squares_kernel(float *y, struct any g, int64_t n, int64_t n_chunks, bool vectors)
{
    const int64_t chunk = (int64_t)blockIdx.x * CHUNK_WARPS + threadIdx.x / WARP;
    const int lane = threadIdx.x % WARP;
    double sum = 0.0;
    if (chunk >= n_chunks)
        return;
#pragma unroll 8
    for (int i = lane * 4; i < SQUARES_CHUNK; i += 4 * WARP) {
        float v[4];
        load_four(v, g, chunk * SQUARES_CHUNK + i, n, vectors);
        sum += (double)(v[0] * v[0] + v[1] * v[1]) + (double)(v[2] * v[2] + v[3] * v[3]);
    }
    sum = warp_sum(sum);
    if (lane == 0)
        y[chunk] = (float)sum;
}

static enum status chunk_squares_warps(const struct kernel_ctx *x, const struct op_call *c)
{
    struct any g = any_of(&c->in[0]);
    int64_t n = shape_elems(&c->in[0].shape), n_chunks = shape_elems(&c->out[0].shape);
    if (n_chunks == 0)
        return OK;
    chunk_squares_kernel<<<(unsigned)ceil_div(n_chunks, CHUNK_WARPS), CHUNK_WARPS * WARP, 0,
                           cuda_stream(x)>>>((float *)c->out[0].data, g, n, n_chunks,
                                             any4_aligned(g));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- clip_scale ------------------------------------------------------------------------------ */

/* Sums of squares lie one by one in memory: their addresses go to the kernel by value, as many as
 * its arguments (4 KiB) hold; several launches in a row add to one number in the workspace. */
static constexpr int CLIP_THREADS = 416;

struct clip_args {
    const float *squares[CLIP_THREADS];
    int n_squares;
    bool is_first, is_last;
    double *sum;
    const float *count, *scale_in; /* scale_in may be NULL */
    float *scale, *norm;
    double max_norm, nominal;
};

static __global__ void __launch_bounds__(CLIP_THREADS)
    clip_kernel(__grid_constant__ const struct clip_args a)
{
    __shared__ double scratch[WARP];
    double squares = (int)threadIdx.x < a.n_squares ? (double)*a.squares[threadIdx.x] : 0.0;
    squares = block_sum<CLIP_THREADS>(squares, scratch);
    if (threadIdx.x != 0)
        return;
    if (!a.is_first)
        squares += *a.sum;
    *a.sum = squares;
    if (!a.is_last)
        return;
    double count = (double)*a.count;
    double s = count == 0.0 ? 0.0 : a.nominal / count;
    if (a.scale_in)
        s /= (double)*a.scale_in;
    double norm = s * sqrt(squares), scale = s;
    if (a.max_norm > 0.0)
        scale *= fmin(1.0, a.max_norm / (norm + 1e-6));
    *a.scale = isfinite(norm) && isfinite(scale) ? (float)scale : 0.0f;
    *a.norm = (float)norm;
}

static enum status clip_scale_block(const struct kernel_ctx *x, const struct op_call *c)
{
    struct clip_args a = {};
    a.sum = (double *)x->workspace;
    a.count = (const float *)c->in[0].data;
    a.scale_in = call_has(c, 1) ? (const float *)c->in[1].data : NULL;
    a.scale = (float *)c->out[0].data;
    a.norm = (float *)c->out[1].data;
    a.max_norm = call_float(c, 0);
    a.nominal = call_float(c, 1);
    int next = 2;
    do {
        a.is_first = next == 2;
        a.n_squares = 0;
        while (next < c->n_in && a.n_squares < CLIP_THREADS)
            a.squares[a.n_squares++] = (const float *)c->in[next++].data;
        a.is_last = next >= c->n_in;
        clip_kernel<<<1, CLIP_THREADS, 0, cuda_stream(x)>>>(a);
        CUDA_TRY(cudaGetLastError());
    } while (!a.is_last);
    return OK;
}

/* ---- loss_scale_update ----------------------------------------------------------------------- */

struct loss_scale_args {
    float *scale;
    int32_t *good, *applied, *tolerated;
    const float *old_scale, *update, *norm;
    const int32_t *old_good, *old_applied, *old_tolerated;
    double growth, backoff, minimum;
    int64_t window, hysteresis;
};

static __global__ void loss_scale_kernel(const struct loss_scale_args a)
{
    double scale = (double)*a.old_scale;
    int64_t good = *a.old_good, applied = *a.old_applied, tolerated = *a.old_tolerated;
    const bool overflow = !isfinite(*a.norm);
    good = overflow ? 0 : good + 1;
    if (overflow && tolerated < a.hysteresis - 1)
        tolerated++;
    else if (overflow)
        scale = fmin(scale, fmax(scale * a.backoff, a.minimum));
    if (good >= a.window) {
        good = tolerated = 0;
        scale = isfinite((float)(scale * a.growth)) ? scale * a.growth : scale;
    }
    if (*a.update != 0.0f)
        applied++;
    *a.scale = (float)scale;
    *a.good = (int32_t)good;
    *a.applied = (int32_t)applied;
    *a.tolerated = (int32_t)tolerated;
}

static enum status loss_scale_update_one(const struct kernel_ctx *x, const struct op_call *c)
{
    struct loss_scale_args a = {};
    a.old_scale = (const float *)c->in[0].data;
    a.old_good = (const int32_t *)c->in[1].data;
    a.old_applied = (const int32_t *)c->in[2].data;
    a.old_tolerated = (const int32_t *)c->in[3].data;
    a.update = (const float *)c->in[4].data;
    a.norm = (const float *)c->in[5].data;
    a.scale = (float *)c->out[0].data;
    a.good = (int32_t *)c->out[1].data;
    a.applied = (int32_t *)c->out[2].data;
    a.tolerated = (int32_t *)c->out[3].data;
    a.growth = call_float(c, 0);
    a.backoff = call_float(c, 1);
    a.window = call_int(c, 2);
    a.hysteresis = call_int(c, 3);
    a.minimum = call_float(c, 4);
    loss_scale_kernel<<<1, 1, 0, cuda_stream(x)>>>(a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- lists ----------------------------------------------------------------------------------- */

CUDA_RUN(sum_squares, chunks, sum_squares_chunks)

CUDA_RUN(chunk_squares, warps, chunk_squares_warps)

CUDA_RUN(clip_scale, block, clip_scale_block)

CUDA_RUN(loss_scale_update, one, loss_scale_update_one)
