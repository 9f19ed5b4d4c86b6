/* head_rows.cuh: the loss of rows of logits and, over them, its gradient; the sum of the
 * losses. For head_loss.cu alone.
 */
#ifndef SNUG_DEVICE_CUDA_PRODUCTS_HEAD_ROWS_CUH
#define SNUG_DEVICE_CUDA_PRODUCTS_HEAD_ROWS_CUH

#include "device/cuda/support/map.cuh"

enum {
    /* Whole multiprocessors of threads on few rows: what a block reads a second time is then still
     * in the L2 cache, or its own. */
    THREADS = 1024,
    VECTOR = HEAD_VECTOR,
    ROW_TILE = THREADS * VECTOR, /* elements a block takes at a time */
    SUM_THREADS = 1024,
};

/* Two blocks on a multiprocessor where it has room for 2048 threads. */
#if defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000)
#define ROW_BLOCKS 2
#else
#define ROW_BLOCKS 1
#endif

struct row_rule {
    int64_t row;
    int n_words;
    int n_end; /* the gradient is written so far: zeros from n_words on */
    int64_t ignore;
    float smoothing, z_loss;
    float cap; /* on logits, where CAPPED */
};

/* exp(x - y), y no larger than about 100. For 16-bit logits a short form: its relative error is
 * |y| 2^-23, far below their rounding. */
template <typename T> static __device__ __forceinline__ float exponential(float x, float y)
{
    if constexpr (sizeof(T) == 2)
        return map_exp2_short(fmaf(x, MAP_LOG2_E, -MAP_LOG2_E * y));
    else
        return expf(x - y);
}

/* A logit under the cap; 16-bit ones in a short form, which errs far below their rounding. */
template <typename T, bool CAPPED>
static __device__ __forceinline__ float logit(float z, const struct row_rule &rule)
{
    return CAPPED ? map_softcap<sizeof(T) == 2>(z, rule.cap) : z;
}

/* A logit's gradient: that of the loss, through the cap where there is one. */
template <typename T, bool CAPPED>
static __device__ __forceinline__ float through_cap(float gradient, float z,
                                                    const struct row_rule &rule)
{
    return CAPPED ? gradient * map_softcap_slope<sizeof(T) == 2>(z, rule.cap) : gradient;
}

/* Maximum and sum of exponentials so far: sum of exp(z - top); `plain` is the sum of the logits,
 * for label smoothing. */
struct running {
    float top, sum, plain;
};

/* The first n of the vector (the others are logits of padding); all of them when n >= VECTOR. */
template <typename T>
static __device__ __forceinline__ void take(struct running *r, float (&z)[VECTOR], int n,
                                            bool smooth)
{
    float top = r->top;
    if (smooth) {
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            r->plain += i < n ? z[i] : 0.0f;
    }
    if (n < VECTOR) { /* exp(-inf) adds nothing */
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            z[i] = i < n ? z[i] : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
        top = fmaxf(top, z[i]);
    float sum = r->sum * exponential<T>(r->top, top); /* the first time 0 * exp(-inf) */
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
        sum += exponential<T>(z[i], top);
    r->sum = sum;
    r->top = top;
}

/* Element j of the gradient lies where logit j was; a thread writes what it alone has read, from
 * `kept`, its copy of the row, where there is one. */
template <typename T, bool KEPT, bool CAPPED>
static __device__ void put_gradient(T *z, const T *kept, const struct row_rule *rule, float lse,
                                    float factor, float shift)
{
#pragma unroll 2
    for (int at = threadIdx.x * VECTOR; at < rule->n_end; at += ROW_TILE) {
        float v[VECTOR];
        load_f32<VECTOR>(v, KEPT ? kept + at : z + at);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            const float x = logit<T, CAPPED>(v[i], *rule);
            v[i] = through_cap<T, CAPPED>(fmaf(exponential<T>(x, lse), factor, -shift), x, *rule);
        }
        if (at + VECTOR > rule->n_words) {
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                v[i] = at + i < rule->n_words ? v[i] : 0.0f;
        }
        store_f32<VECTOR>(z + at, v);
    }
}

template <typename T> static __device__ void put_zeros(T *z, int n_end)
{
    float v[VECTOR] = {};
    for (int at = threadIdx.x * VECTOR; at < n_end; at += ROW_TILE)
        store_f32<VECTOR>(z + at, v);
}

/* The vector at p; a copy of its bytes to `kept` where it is wanted. */
template <typename T, bool KEPT>
static __device__ __forceinline__ void load_row(float (&v)[VECTOR], const T *p, T *kept)
{
    if constexpr (KEPT) {
        pack<T, VECTOR> raw = *reinterpret_cast<const pack<T, VECTOR> *>(p);
        *reinterpret_cast<pack<T, VECTOR> *>(kept) = raw;
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            v[i] = to_f32(raw.v[i]);
    } else {
        load_f32<VECTOR>(v, p);
    }
}

/* One block per row: its loss, and with GRADIENT the loss's gradient over its logits. KEPT: the
 * row stays in shared memory between the two passes, each vector with the thread that read it. */
template <typename T, bool GRADIENT, bool KEPT, bool CAPPED>
static __global__ void __launch_bounds__(THREADS, ROW_BLOCKS)
    row_losses(T *logits, const int32_t *targets, const float *d_loss, float *losses,
               struct row_rule rule)
{
    extern __shared__ __align__(16) unsigned char row_memory[];
    __shared__ float scratch[WARP];
    T *kept = reinterpret_cast<T *>(row_memory);
    T *z = logits + (int64_t)blockIdx.x * rule.row;
    int64_t target = targets[blockIdx.x];
    if (target == rule.ignore) {
        if (threadIdx.x == 0)
            losses[blockIdx.x] = 0.0f;
        if (GRADIENT)
            put_zeros<T>(z, rule.n_end);
        return;
    }
    bool inside = target >= 0 && target < rule.n_words;
    /* before a gradient lies over it */
    const float z_target = inside ? logit<T, CAPPED>(to_f32(z[target]), rule) : NAN;
    const bool smooth = rule.smoothing != 0.0f;
    struct running r = {-INFINITY, 0.0f, 0.0f};
#pragma unroll 2
    for (int at = threadIdx.x * VECTOR; at < rule.n_words; at += ROW_TILE) {
        float v[VECTOR];
        load_row<T, KEPT>(v, z + at, kept + at); /* the last may reach into the row's padding */
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            v[i] = logit<T, CAPPED>(v[i], rule);
        take<T>(&r, v, rule.n_words - at, smooth);
    }
    float top = block_max<THREADS>(r.top, scratch);
    float mine = r.sum > 0.0f || r.sum != r.sum ? r.sum * expf(r.top - top) : 0.0f;
    float sum = block_sum<THREADS>(mine, scratch);
    float plain = smooth ? block_sum<THREADS>(r.plain, scratch) : 0.0f;
    float lse = top + logf(sum), e = rule.smoothing;
    if (threadIdx.x == 0)
        losses[blockIdx.x] = lse - (1.0f - e) * z_target - e * (plain / (float)rule.n_words) +
                             rule.z_loss * lse * lse;
    if (GRADIENT) {
        float d = d_loss[0], factor = d * (1.0f + 2.0f * rule.z_loss * lse);
        float shift = d * e / (float)rule.n_words;
        put_gradient<T, KEPT, CAPPED>(z, kept, &rule, lse, factor, shift);
        __syncthreads();
        /* The target's own element once more, from the logit: rounded once. */
        if (threadIdx.x == 0 && inside) {
            const float g = exponential<T>(z_target, lse) * factor - shift - d * (1.0f - e);
            z[target] = from_f32<T>(through_cap<T, CAPPED>(g, z_target, rule));
        }
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

#endif
