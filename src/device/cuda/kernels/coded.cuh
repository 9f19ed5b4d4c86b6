/* coded.cuh: update rules whose states are in 8-bit codes.
 *
 * As the other updates (update.cuh), with 8 elements to a thread: a warp has the 256 elements
 * of one block of codes, and finds the block's largest magnitudes by shuffles. Decoding is a look
 * into a table of 256 numbers, encoding one into a table of cells (base/dynamic_map.h); both are
 * copied to shared memory by each block of the grid, which is as large as the GPU holds at once.
 * What binds is instructions, not memory: three blocks to a multiprocessor hide each other's
 * waiting, and warps whose elements all exist ask nothing about them.
 *
 * The first state is coded by the signed map, the second by the unsigned one.
 */
#ifndef SNUG_DEVICE_CUDA_KERNELS_CODED_CUH
#define SNUG_DEVICE_CUDA_KERNELS_CODED_CUH

#include "base/dynamic_map.h"
#include "device/cuda/kernels/update.cuh"

static_assert(WARP * UPDATE_VECTOR == DYNAMIC_BLOCK, "a warp has one block of codes");

static __device__ const struct dynamic_map signed_map = dynamic_map_make(true);
static __device__ const struct dynamic_map unsigned_map = dynamic_map_make(false);

enum { M, V };

/* One tensor of a launch. */
struct coded_tensor {
    void *target, *image; /* as in update_tensor */
    const void *grad;
    uint8_t *codes[UPDATE_STATES];
    float *absmax[UPDATE_STATES];
    int64_t n_elems;
    int64_t first_element; /* as in update_tensor */
    uint64_t seed;         /* 0: round to nearest */
    float weight_decay;
    int32_t first_chunk;
};

/* A rule of update.cuh on such tensors. */
template <typename RULE> struct coded : RULE {
    using tensor = struct coded_tensor;
};

/* The tables and the rule, in shared memory. */
template <typename RULE> struct coded_shared {
    struct dynamic_map map[RULE::N_STATES];
    RULE rule;
};

/* A thread's vectors of one place. */
struct coded_raw {
    struct raw8 target, grad;
    struct raw8 image; /* where the target is what it lacks */
    uint2 codes[UPDATE_STATES];
    float absmax[UPDATE_STATES];
};

/* ---- eight elements -------------------------------------------------------------------------- */

template <typename RULE, typename DTYPES>
static __device__ __forceinline__ void
coded_fetch(struct coded_raw &r, const struct update_args<RULE> &a, const struct update_place &p)
{
    const struct coded_tensor &t = a.tensor[p.i_tensor];
    if (p.whole) {
        raw8_load(r.grad, t.grad, DTYPES::grad(a.head.grad), p.at);
        raw8_load(r.target, t.target, DTYPES::target(a.head.target), p.at);
        if (DTYPES::target(a.head.target) == DTYPE_U8)
            raw8_load(r.image, t.image, DTYPE_BF16, p.at);
    }
#pragma unroll
    for (int s = 0; s < RULE::N_STATES; s++) {
        if (p.whole)
            r.codes[s] = *(const uint2 *)(t.codes[s] + p.at);
        r.absmax[s] = p.n_left > 0 ? t.absmax[s][p.at / DYNAMIC_BLOCK] : 0.0f;
    }
}

/* Elements that do not exist are 0. */
template <bool WHOLE>
static __device__ __forceinline__ void
decode8(float (&x)[8], const struct coded_raw &r, const struct coded_tensor &t,
        const struct update_place &p, int s, const float *value)
{
    const uint32_t word[2] = {r.codes[s].x, r.codes[s].y};
#pragma unroll
    for (int k = 0; k < 8; k++) {
        uint32_t code = 0;
        if (WHOLE || p.whole)
            code = word[k / 4] >> (8 * (k % 4)) & 0xffu;
        else if (k < p.n_left)
            code = t.codes[s][p.at + k];
        x[k] = WHOLE || k < p.n_left ? value[code] * r.absmax[s] : 0.0f;
    }
}

static __device__ __forceinline__ float largest_of_warp(const float (&x)[8])
{
    float most = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; k++)
        most = fmaxf(most, fabsf(x[k]));
#pragma unroll
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lanes));
    return most;
}

template <bool WHOLE>
static __device__ __forceinline__ void encode8(const float (&x)[8], const struct coded_tensor &t,
                                               const struct update_place &p, int s,
                                               const uint32_t *cell)
{
    const float most = largest_of_warp(x), inverse = dynamic_inverse(most);
    uint32_t word[2] = {0, 0};
#pragma unroll
    for (int k = 0; k < 8; k++) {
        uint32_t bits = __float_as_uint(x[k] * inverse);
        uint32_t rank = dynamic_rank(cell[dynamic_cell(bits)], bits);
        uint32_t code = s == M ? dynamic_signed(rank, bits) : rank;
        word[k / 4] |= code << (8 * (k % 4));
        if (!WHOLE && !p.whole && k < p.n_left)
            t.codes[s][p.at + k] = (uint8_t)code;
    }
    if (WHOLE || p.whole)
        *(uint2 *)(t.codes[s] + p.at) = make_uint2(word[0], word[1]);
    if (threadIdx.x % WARP == 0 && (WHOLE || p.n_left > 0))
        t.absmax[s][p.at / DYNAMIC_BLOCK] = most;
}

/* WHOLE: every thread of the warp has all its elements, in vectors. */
template <typename RULE, typename DTYPES, bool WHOLE>
static __device__ __forceinline__ void coded_update8(const struct update_args<RULE> &a,
                                                     const struct coded_shared<RULE> &shared,
                                                     const RULE &rule, const struct update_place &p,
                                                     const struct coded_raw &raw, int32_t step)
{
    constexpr int N_STATES = RULE::N_STATES;
    const struct coded_tensor &t = a.tensor[p.i_tensor];
    const enum dtype target = DTYPES::target(a.head.target), image = DTYPES::image(a.head.image);
    const bool whole = WHOLE || p.whole;
    float x[8], g[8], state[N_STATES][8];
    load8(g, raw.grad, t.grad, DTYPES::grad(a.head.grad), p.at, p.n_left, whole);
    load_target8(x, raw.target, raw.image, t.target, t.image, target, p.at, p.n_left, whole);
#pragma unroll
    for (int s = 0; s < N_STATES; s++)
        decode8<WHOLE>(state[s], raw, t, p, s, shared.map[s].value);
    const float keep = rule.keep_of(t.weight_decay);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        float e[UPDATE_STATES];
#pragma unroll
        for (int s = 0; s < N_STATES; s++)
            e[s] = state[s][k];
        rule.apply(x[k], e, g[k], keep);
#pragma unroll
        for (int s = 0; s < N_STATES; s++)
            state[s][k] = e[s];
    }
    struct update_parts parts = {};
    const bool random = (target == DTYPE_BF16 || target == DTYPE_U8) && t.seed != 0;
    if (random)
        draw8(parts, t.seed, step, t.first_element + p.at);
    store_target8(t.target, target, t.image, image, p.at, p.n_left, whole, x, random, parts.target);
#pragma unroll
    for (int s = 0; s < N_STATES; s++)
        encode8<WHOLE>(state[s], t, p, s, shared.map[s].cell);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

static __device__ __forceinline__ void copy_map(struct dynamic_map *to,
                                                const struct dynamic_map &from)
{
    for (int i = (int)threadIdx.x; i < DYNAMIC_CODES; i += UPDATE_THREADS)
        to->value[i] = from.value[i];
    for (int i = (int)threadIdx.x; i < DYNAMIC_CELLS; i += UPDATE_THREADS)
        to->cell[i] = from.cell[i];
}

/* scale = 0 (nothing counted, or the norm was not finite; see clip_scale) changes nothing. */
template <typename RULE, typename DTYPES>
static __global__ void __launch_bounds__(UPDATE_THREADS, 3)
    coded_kernel(__grid_constant__ const struct update_args<RULE> a)
{
    __shared__ struct coded_shared<RULE> shared;
    if (*a.head.scale == 0.0f)
        return;
    struct update_place here = {};
    struct coded_raw raw;
    int64_t chunk = blockIdx.x; /* the grid has no more blocks than there are chunks */
    move_to(here, a, chunk);
    coded_fetch<RULE, DTYPES>(raw, a, here);
    copy_map(&shared.map[M], signed_map);
    if (RULE::N_STATES > 1)
        copy_map(&shared.map[RULE::N_STATES - 1], unsigned_map);
    RULE::share(&shared.rule, a.head);
    __syncthreads();
    const RULE rule = shared.rule;
    const int32_t step = *a.head.step;
    while (chunk < a.n_chunks) {
        struct update_place next = here;
        struct coded_raw next_raw;
        const int64_t next_chunk = chunk + gridDim.x;
        if (next_chunk < a.n_chunks) {
            move_to(next, a, next_chunk);
            coded_fetch<RULE, DTYPES>(next_raw, a, next);
        }
        if (__all_sync(0xffffffffu, here.whole))
            coded_update8<RULE, DTYPES, true>(a, shared, rule, here, raw, step);
        else
            coded_update8<RULE, DTYPES, false>(a, shared, rule, here, raw, step);
        here = next;
        raw = next_raw;
        chunk = next_chunk;
    }
}

/* ---- launches (host) ------------------------------------------------------------------------- */

/* The dtypes that configs ask for are known to the compiler; others are found out on the way. */
template <typename RULE>
static update_launchable<RULE> pick_coded(const struct update_head<typename RULE::attrs> &h)
{
#define TRY_DTYPES(target, grad, image)                                                    \
    do {                                                                                   \
        using known = known_dtypes<DTYPE_##target, DTYPE_U8, DTYPE_##grad, DTYPE_##image>; \
        if (known::match(h))                                                               \
            return coded_kernel<RULE, known>;                                              \
    } while (0)
    TRY_DTYPES(F32, F32, NONE);
    TRY_DTYPES(F32, BF16, NONE);
    TRY_DTYPES(BF16, F32, NONE);
    TRY_DTYPES(BF16, BF16, NONE);
    TRY_DTYPES(F32, F32, BF16);
    TRY_DTYPES(F32, BF16, BF16);
    TRY_DTYPES(F32, F32, F16);
    TRY_DTYPES(U8, F32, BF16);
    TRY_DTYPES(U8, BF16, BF16);
#undef TRY_DTYPES
    return coded_kernel<RULE, any_dtypes>;
}

static bool coded_aligned(const struct coded_tensor *t)
{
    return is_aligned(t->target, 16) && is_aligned(t->image, 16) && is_aligned(t->grad, 16) &&
           is_aligned(t->codes[M], 8) && is_aligned(t->codes[V], 8);
}

static enum status coded_states(const struct kernel_ctx *x, const struct op_call *c, int n_states,
                                struct coded_tensor *t)
{
    for (int s = 0; s < n_states; s++) {
        const int in = 2 + 2 * s, out = in - 1;
        void *codes, *absmax;
        TRY(update_in_place(x, &c->in[in], &c->out[out], &codes));
        TRY(update_in_place(x, &c->in[in + 1], &c->out[out + 1], &absmax));
        t->codes[s] = (uint8_t *)codes;
        t->absmax[s] = (float *)absmax;
    }
    return OK;
}

/* One call, with or without a master; the head has the rule's attributes and scalars. */
template <typename RULE>
static enum status coded_add(struct update_launch<RULE> *l,
                             struct update_head<typename RULE::attrs> *h, const struct op_call *c,
                             float weight_decay)
{
    const int master_at = 2 + 2 * RULE::N_STATES + 3, n_attrs = op_get(c->op)->n_attrs;
    const bool master = c->n_in > master_at;
    const int target = master ? master_at : 0;
    struct coded_tensor t = {};
    h->target = c->in[target].dtype;
    h->state[M] = h->state[V] = DTYPE_U8;
    h->image = master ? c->in[0].dtype : DTYPE_NONE;
    TRY(update_in_place(l->x, &c->in[target], &c->out[master ? c->n_out - 1 : 0], &t.target));
    if (master)
        TRY(update_in_place(l->x, &c->in[0], &c->out[0], &t.image));
    TRY(coded_states(l->x, c, RULE::N_STATES, &t));
    t.grad = c->in[1].data;
    t.n_elems = shape_elems(&c->in[0].shape);
    t.first_element = c->first_element;
    t.seed = (uint64_t)call_int(c, n_attrs - 1);
    t.weight_decay = weight_decay;
    h->vectors = coded_aligned(&t);
    return update_add(l, h, &t);
}

#endif
