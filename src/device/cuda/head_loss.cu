/* head_loss.cu: output projection and cross entropy over chunks of rows, so that only one chunk's
 * logits exist at a time, in workspace.
 *
 * For each chunk of rows of x:
 *
 *     logits = x_chunk w^T              [rows, V], in x's dtype, `row` elements apart (V rounded
 * up) loss of each row in f32; its gradient with respect to the logits over them dw += logits^T
 * x_chunk dx_chunk = logits w               dx may lie over x: this chunk of x is not read again
 *
 * and at the end the row losses are summed in double in a fixed order. Workspace:
 *
 *     | logits [chunk_rows, row] x's dtype | losses [n_rows] f32 | the matrix products' own |
 *
 * Logits in 16 bits halve what a chunk moves, so a chunk can have twice the rows: fewer passes over
 * w and dw. The price is one rounding of each logit, as where the projection is an op of its own.
 * A dw stored in 16 bits is rounded once per chunk (each chunk's sum is taken in f32).
 *
 * Targets cannot be refused from a stream: one outside the vocabulary makes the loss NaN, which the
 * trainer stops at. The loader checks them before.
 */
#include "device/cuda/cuda_gemm.cuh"
#include "ops/layer_support.h"

enum {
    /* Whole multiprocessors of threads on few rows: what a block reads a second time is then still
     * in the L2 cache. */
    THREADS = 1024,
    VECTOR = 8,
    ROW_TILE = THREADS * VECTOR, /* elements a block takes at a time */
    SUM_THREADS = 1024,
    ALIGN = 256,
    ROW_ALIGN = 64, /* elements: keeps rows on vector boundaries in f32 and in 16 bits */
    /* Rows enough that a pass over w and dw is paid for by the products with it. */
    AUTO_BYTES = 256 << 20,
    AUTO_ROWS = 128,
};

/* Two blocks on a multiprocessor where it has room for 2048 threads. */
#if defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000)
#define ROW_BLOCKS 2
#else
#define ROW_BLOCKS 1
#endif

struct sizes {
    int64_t n_rows, n_words, n_columns;
    int64_t chunk_rows;
    int64_t row;       /* of the logits, elements */
    int64_t row_bytes; /* the same in bytes */
};

static struct sizes sizes_of(const struct op_call *c)
{
    struct sizes s;
    s.n_words = c->in[1].shape.dim[0];
    s.n_columns = c->in[1].shape.dim[1];
    s.n_rows = shape_elems(&c->in[2].shape);
    s.row = ceil_div(s.n_words, ROW_ALIGN) * ROW_ALIGN;
    s.row_bytes = s.row * dtype_size(c->in[0].dtype);
    int64_t n_chunks = call_int(c, HEAD_LOSS_CHUNKS);
    if (n_chunks > 0) {
        s.chunk_rows = ceil_div(s.n_rows, n_chunks);
    } else {
        int64_t most = AUTO_BYTES / s.row_bytes;
        n_chunks = ceil_div(s.n_rows, most > AUTO_ROWS ? most : (int64_t)AUTO_ROWS);
        s.chunk_rows =
            ceil_div(ceil_div(s.n_rows, n_chunks > 1 ? n_chunks : 1), AUTO_ROWS) * AUTO_ROWS;
    }
    s.chunk_rows = s.chunk_rows < s.n_rows ? s.chunk_rows : s.n_rows;
    s.chunk_rows = s.chunk_rows > 1 ? s.chunk_rows : 1;
    return s;
}

static int64_t align(int64_t n_bytes)
{
    return ceil_div(n_bytes, ALIGN) * ALIGN;
}

static int64_t logits_bytes(const struct sizes *s)
{
    return align(s->chunk_rows * s->row_bytes);
}

static int64_t losses_bytes(const struct sizes *s)
{
    return align(s->n_rows * (int64_t)sizeof(float));
}

/* ---- rows ----------------------------------------------------------------------------------- */

struct row_rule {
    int64_t row;
    int n_words;
    int64_t ignore;
    float smoothing, z_loss;
};

/* exp(x) for x <= 0 or not far above. For 16-bit logits a short form, whose relative error is
 * |x| 2^-23, far below their rounding. */
template <typename T> static __device__ __forceinline__ float exponential(float x)
{
    if constexpr (sizeof(T) == 2)
        return exp2f(x * 1.44269504f);
    else
        return expf(x);
}

/* Maximum and sum of exponentials so far: sum of exp(z - top). */
struct running {
    float top, sum, plain;
};

/* The first n of the vector; all of them when n >= VECTOR. */
template <typename T>
static __device__ __forceinline__ void take(struct running *r, float (&z)[VECTOR], int n)
{
    float top = r->top;
    if (n < VECTOR) { /* exp(-inf) adds nothing; the plain sum leaves the rest out */
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            z[i] = i < n ? z[i] : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
        top = fmaxf(top, z[i]);
    float sum = r->sum * exponential<T>(r->top - top); /* the first time 0 * exp(-inf) */
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        sum += exponential<T>(z[i] - top);
        r->plain += i < n ? z[i] : 0.0f;
    }
    r->sum = sum;
    r->top = top;
}

/* Element j of the gradient lies where logit j was; a thread writes what it alone has read. The
 * last vector reaches into the row's padding. */
template <typename T>
static __device__ void put_gradient(T *z, int n_words, float lse, float factor, float shift)
{
#pragma unroll 2
    for (int at = threadIdx.x * VECTOR; at < n_words; at += ROW_TILE) {
        float v[VECTOR];
        load_f32<VECTOR>(v, z + at);
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            v[i] = exponential<T>(v[i] - lse) * factor - shift;
        store_f32<VECTOR>(z + at, v);
    }
}

template <typename T> static __device__ void put_zeros(T *z, int n_words)
{
    float v[VECTOR] = {};
    for (int at = threadIdx.x * VECTOR; at < n_words; at += ROW_TILE)
        store_f32<VECTOR>(z + at, v);
}

/* One block per row: its loss, and with GRADIENT the loss's gradient over its logits. */
template <typename T, bool GRADIENT>
static __global__ void __launch_bounds__(THREADS, ROW_BLOCKS)
    row_losses(T *logits, const int32_t *targets, const float *d_loss, float *losses,
               struct row_rule rule)
{
    __shared__ float scratch[WARP];
    T *z = logits + (int64_t)blockIdx.x * rule.row;
    int64_t target = targets[blockIdx.x];
    if (target == rule.ignore) {
        if (threadIdx.x == 0)
            losses[blockIdx.x] = 0.0f;
        if (GRADIENT)
            put_zeros<T>(z, rule.n_words);
        return;
    }
    bool inside = target >= 0 && target < rule.n_words;
    float z_target = inside ? to_f32(z[target]) : NAN; /* before a gradient lies over it */
    struct running r = {-INFINITY, 0.0f, 0.0f};
#pragma unroll 2
    for (int at = threadIdx.x * VECTOR; at < rule.n_words; at += ROW_TILE) {
        float v[VECTOR];
        load_f32<VECTOR>(v, z + at); /* rows are padded: the tail is memory of this row */
        take<T>(&r, v, rule.n_words - at);
    }
    float top = block_max<THREADS>(r.top, scratch);
    float mine = r.sum > 0.0f || r.sum != r.sum ? r.sum * expf(r.top - top) : 0.0f;
    float sum = block_sum<THREADS>(mine, scratch);
    float plain = block_sum<THREADS>(r.plain, scratch);
    float lse = top + logf(sum), e = rule.smoothing;
    if (threadIdx.x == 0)
        losses[blockIdx.x] = lse - (1.0f - e) * z_target - e * (plain / (float)rule.n_words) +
                             rule.z_loss * lse * lse;
    if (GRADIENT) {
        float d = d_loss[0], factor = d * (1.0f + 2.0f * rule.z_loss * lse);
        float shift = d * e / (float)rule.n_words;
        put_gradient<T>(z, rule.n_words, lse, factor, shift);
        __syncthreads();
        /* The target's own element once more, from the logit: rounded once. */
        if (threadIdx.x == 0 && inside)
            z[target] =
                from_f32<T>(exponential<T>(z_target - lse) * factor - shift - d * (1.0f - e));
    }
}

/* loss[0] = sum of the row losses, count[0] = rows with a target. One block. */
static __global__ void __launch_bounds__(SUM_THREADS)
    sum_losses(const float *losses, const int32_t *targets, int64_t n, int64_t ignore, float *loss,
               float *count)
{
    __shared__ double scratch[WARP];
    double sum = 0.0, valid = 0.0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < n; i += SUM_THREADS) {
        sum += (double)losses[i];
        valid += targets[i] != ignore ? 1.0 : 0.0;
    }
    sum = block_sum<SUM_THREADS>(sum, scratch);
    valid = block_sum<SUM_THREADS>(valid, scratch);
    if (threadIdx.x == 0) {
        *loss = (float)sum;
        *count = (float)valid;
    }
}

/* ---- chunks --------------------------------------------------------------------------------- */

struct work {
    void *logits, *gemm;
    float *losses;
};

static struct work work_of(const struct sizes *s, void *workspace)
{
    char *base = (char *)workspace;
    struct work w;
    w.logits = base;
    w.losses = (float *)(base + logits_bytes(s));
    w.gemm = base + logits_bytes(s) + losses_bytes(s);
    return w;
}

/* logits[n, V] = x[first .. first + n, C] w[V, C]^T */
static struct cuda_gemm logits_product(const struct op_call *c, const struct sizes *s, void *logits,
                                       int64_t first, int64_t n)
{
    struct cuda_gemm g = {};
    g.m = n;
    g.n = s->n_words;
    g.k = s->n_columns;
    g.a = {c->in[0].data, first * s->n_columns, s->n_columns, false};
    g.b = {c->in[1].data, 0, s->n_columns, true};
    g.dtype = c->in[0].dtype;
    g.c = logits;
    g.c_row = s->row;
    g.c_dtype = g.dtype;
    return g;
}

/* dw[V, C] += logits[n, V]^T x[first .. first + n, C] */
static struct cuda_gemm weight_product(const struct op_call *c, const struct sizes *s,
                                       const void *logits, int64_t first, int64_t n)
{
    struct cuda_gemm g = {};
    g.m = s->n_words;
    g.n = s->n_columns;
    g.k = n;
    g.a = {logits, 0, s->row, true};
    g.b = {c->in[0].data, first * s->n_columns, s->n_columns, false};
    g.dtype = c->in[0].dtype;
    g.c = c->out[3].data;
    g.c_row = s->n_columns;
    g.c_dtype = c->out[3].dtype;
    g.add = first > 0 || call_has(c, 4);
    return g;
}

/* dx[first .. first + n, C] = logits[n, V] w[V, C] */
static struct cuda_gemm input_product(const struct op_call *c, const struct sizes *s,
                                      const void *logits, int64_t first, int64_t n)
{
    struct cuda_gemm g = {};
    g.m = n;
    g.n = s->n_columns;
    g.k = s->n_words;
    g.a = {logits, 0, s->row, false};
    g.b = {c->in[1].data, 0, s->n_columns, false};
    g.dtype = c->in[0].dtype;
    g.c = c->out[2].data;
    g.c_offset = first * s->n_columns;
    g.c_row = s->n_columns;
    g.c_dtype = c->out[2].dtype;
    return g;
}

template <bool GRADIENT>
static enum status losses_of(const struct kernel_ctx *x, const struct op_call *c,
                             const struct sizes *s, const struct work *w, int64_t first, int64_t n)
{
    struct row_rule rule = {s->row, (int)s->n_words, call_int(c, HEAD_LOSS_IGNORE),
                            (float)call_float(c, HEAD_LOSS_SMOOTHING),
                            (float)call_float(c, HEAD_LOSS_Z)};
    const int32_t *targets = (const int32_t *)c->in[2].data + first;
    const float *d_loss = GRADIENT ? (const float *)c->in[3].data : NULL;
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T,
                        (row_losses<T, GRADIENT><<<(unsigned)n, THREADS, 0, cuda_stream(x)>>>(
                            (T *)w->logits, targets, d_loss, w->losses + first, rule)));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static enum status store_sums(const struct kernel_ctx *x, const struct op_call *c,
                              const struct sizes *s, const struct work *w)
{
    sum_losses<<<1, SUM_THREADS, 0, cuda_stream(x)>>>(
        w->losses, (const int32_t *)c->in[2].data, s->n_rows, call_int(c, HEAD_LOSS_IGNORE),
        (float *)c->out[0].data, (float *)c->out[1].data);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* Workspace for the products of all chunks: the offset of a chunk decides its alignment, and with
 * it the algorithm, so every chunk is asked. */
template <bool GRADIENT>
static int64_t workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct sizes s = sizes_of(c);
    int64_t most = 0;
    for (int64_t first = 0; first < s.n_rows; first += s.chunk_rows) {
        int64_t n = s.n_rows - first < s.chunk_rows ? s.n_rows - first : s.chunk_rows;
        struct cuda_gemm products[3] = {logits_product(c, &s, NULL, first, n)};
        int n_products = 1;
        if (GRADIENT) {
            products[n_products++] = weight_product(c, &s, NULL, first, n);
            products[n_products++] = input_product(c, &s, NULL, first, n);
        }
        for (int i = 0; i < n_products; i++) {
            int64_t n_bytes = cuda_gemm_workspace(env, &products[i]);
            most = n_bytes > most ? n_bytes : most;
        }
    }
    return logits_bytes(&s) + losses_bytes(&s) + most;
}

/* Where rows end inside a vector, the last one reads padding, which nobody writes: it is left out
 * of every sum, but memory that was never written is not to be read at all. */
static enum status clear_padding(const struct kernel_ctx *x, const struct sizes *s,
                                 const struct work *w)
{
    int64_t used = s->n_words * (s->row_bytes / s->row);
    if (s->n_words % VECTOR != 0)
        CUDA_TRY(cudaMemset2DAsync((char *)w->logits + used, (size_t)s->row_bytes, 0,
                                   (size_t)(s->row_bytes - used), (size_t)s->chunk_rows,
                                   cuda_stream(x)));
    return OK;
}

static enum status forward(const struct kernel_ctx *x, const struct op_call *c)
{
    struct sizes s = sizes_of(c);
    struct work w = work_of(&s, x->workspace);
    TRY(clear_padding(x, &s, &w));
    for (int64_t first = 0; first < s.n_rows; first += s.chunk_rows) {
        int64_t n = s.n_rows - first < s.chunk_rows ? s.n_rows - first : s.chunk_rows;
        struct cuda_gemm logits = logits_product(c, &s, w.logits, first, n);
        TRY(cuda_gemm(x, w.gemm, &logits));
        TRY(losses_of<false>(x, c, &s, &w, first, n));
    }
    return store_sums(x, c, &s, &w);
}

static enum status gradient(const struct kernel_ctx *x, const struct op_call *c)
{
    struct sizes s = sizes_of(c);
    struct work w = work_of(&s, x->workspace);
    TRY(clear_padding(x, &s, &w));
    if (call_has(c, 4) && c->in[4].data != c->out[3].data)
        CUDA_TRY(cudaMemcpyAsync(c->out[3].data, c->in[4].data, (size_t)tensor_bytes(&c->out[3]),
                                 cudaMemcpyDeviceToDevice, cuda_stream(x)));
    for (int64_t first = 0; first < s.n_rows; first += s.chunk_rows) {
        int64_t n = s.n_rows - first < s.chunk_rows ? s.n_rows - first : s.chunk_rows;
        struct cuda_gemm logits = logits_product(c, &s, w.logits, first, n);
        struct cuda_gemm dw = weight_product(c, &s, w.logits, first, n);
        struct cuda_gemm dx = input_product(c, &s, w.logits, first, n);
        TRY(cuda_gemm(x, w.gemm, &logits));
        TRY(losses_of<true>(x, c, &s, &w, first, n));
        TRY(cuda_gemm(x, w.gemm, &dw));
        TRY(cuda_gemm(x, w.gemm, &dx));
    }
    return store_sums(x, c, &s, &w);
}

extern "C" const struct kernel cuda_kernels_linear_cross_entropy[] = {
    {"chunks", cuda_declines_f64, workspace<false>, forward},
    KERNEL_END,
};

extern "C" const struct kernel cuda_kernels_linear_cross_entropy_grad[] = {
    {"chunks", cuda_declines_f64, workspace<true>, gradient},
    KERNEL_END,
};
