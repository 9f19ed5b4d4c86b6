#include "device/cuda/attention/sdpa_groups.h"

#include "device/cuda/support/support.cuh"

enum { THREADS = 256, PER_VECTOR = 8 };

/* Lengths in vectors of 8 elements, 16 bytes. */
struct groups {
    int64_t n_vectors; /* of keys and values of the part, without repetition */
    int64_t width;     /* from one packed row to the next */
    int head, kv_heads, group;
};

/* Where a vector lies: in the packed rows, and in the first of its copies. */
struct place {
    bool is_value;
    int64_t packed, copy;
};

static struct groups groups_of(const struct sdpa_shape *part)
{
    struct groups g;
    g.head = (int)(part->head_dim / PER_VECTOR);
    g.kv_heads = (int)part->kv_heads;
    g.group = (int)(part->heads / part->kv_heads);
    g.width = (part->row_heads + 2 * part->row_kv_heads) * g.head;
    g.n_vectors = part->batch * part->n_tokens * 2 * part->kv_heads * g.head;
    return g;
}

/* Of vector i in the order token, keys before values, head, place in the head. */
static __device__ __forceinline__ struct place place_of(const struct groups &g, int64_t i)
{
    int side = g.kv_heads * g.head; /* a token's keys, or its values */
    int64_t token = i / (2 * side);
    int rest = (int)(i - token * (2 * side));
    struct place p;
    p.is_value = rest >= side;
    rest -= p.is_value ? side : 0;
    int kv_head = rest / g.head;
    p.packed = token * g.width + rest;
    p.copy = (token * 2 + (p.is_value ? 1 : 0)) * side * g.group +
             (int64_t)kv_head * g.group * g.head + (rest - kv_head * g.head);
    return p;
}

static __global__ void __launch_bounds__(THREADS)
    repeat(struct groups g, const uint4 *keys, const uint4 *values, uint4 *copies)
{
    int64_t i = grid_thread();
    if (i >= g.n_vectors)
        return;
    struct place p = place_of(g, i);
    uint4 x = (p.is_value ? values : keys)[p.packed];
    for (int k = 0; k < g.group; k++)
        copies[p.copy + (int64_t)k * g.head] = x;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    add(struct groups g, const T *copies, T *keys, T *values)
{
    int64_t i = grid_thread();
    if (i >= g.n_vectors)
        return;
    struct place p = place_of(g, i);
    float sum[PER_VECTOR] = {};
#pragma unroll 4
    for (int k = 0; k < g.group; k++) {
        float x[PER_VECTOR];
        load_f32(x, copies + (p.copy + (int64_t)k * g.head) * PER_VECTOR);
#pragma unroll
        for (int e = 0; e < PER_VECTOR; e++)
            sum[e] += x[e];
    }
    store_f32((p.is_value ? values : keys) + p.packed * PER_VECTOR, sum);
}

enum status sdpa_groups_repeat(cudaStream_t stream, const struct sdpa_shape *part, const void *keys,
                               const void *values, void *copies)
{
    struct groups g = groups_of(part);
    repeat<<<grid_for(g.n_vectors, THREADS), THREADS, 0, stream>>>(
        g, (const uint4 *)keys, (const uint4 *)values, (uint4 *)copies);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

enum status sdpa_groups_add(cudaStream_t stream, const struct sdpa_shape *part, const void *copies,
                            void *keys, void *values)
{
    struct groups g = groups_of(part);
    unsigned blocks = grid_for(g.n_vectors, THREADS);
    if (part->dtype == DTYPE_BF16)
        add<<<blocks, THREADS, 0, stream>>>(g, (const __nv_bfloat16 *)copies, (__nv_bfloat16 *)keys,
                                            (__nv_bfloat16 *)values);
    else
        add<<<blocks, THREADS, 0, stream>>>(g, (const __half *)copies, (__half *)keys,
                                            (__half *)values);
    CUDA_TRY(cudaGetLastError());
    return OK;
}
