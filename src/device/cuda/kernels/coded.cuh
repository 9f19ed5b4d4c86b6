/* coded.cuh: update rules whose states are in 8-bit codes.
 *
 * As the other updates (update.cuh), with 8 elements to a thread: a warp has the 256 elements
 * of one block of codes, and finds the block's largest magnitudes together. Decoding is a look
 * into a table of 256 numbers, encoding one into a table of cells (base/dynamic_map.h); both are
 * copied to shared memory by each block of the grid, which is as large as the GPU holds at once;
 * where there is room each lane of a warp has numbers of its own, so that no two of them wait for
 * each other.
 * What binds is instructions, not memory, so there are as few as can be: a thread has two vectors
 * of a chunk, and loads one while it works on the other; codes are put together four at a time;
 * warps whose elements all exist ask nothing about them.
 *
 * The first state is coded by the signed map, the second by the unsigned one.
 */
#ifndef SNUG_DEVICE_CUDA_KERNELS_CODED_CUH
#define SNUG_DEVICE_CUDA_KERNELS_CODED_CUH

#include "base/dynamic_map.h"
#include "device/cuda/kernels/update.cuh"
#include "ops/update_support.h"

static_assert(WARP * UPDATE_VECTOR == DYNAMIC_BLOCK, "a warp has one block of codes");

static __device__ const struct dynamic_map signed_map = dynamic_map_make(true);
static __device__ const struct dynamic_map unsigned_map = dynamic_map_make(false);

enum { M, V };

/* One tensor of a launch. */
struct coded_tensor {
    static constexpr int CHUNK =
        2 * UPDATE_CHUNK; /* of its two halves a thread has a vector each */
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
    static constexpr bool HAS_GRADIENT =
        true; /* which is loaded; else it is made (coded_product.cuh) */
};

/* Does every lane have its own copy of the numbers? Where two blocks fit a multiprocessor's memory
 * then: compute capability 8.0, and 9.0 to 11. */
#define CODED_SPREADS(capability) ((capability) == 80 || ((capability) >= 90 && (capability) < 120))
#ifdef __CUDA_ARCH__
static constexpr bool CODED_SPREAD = CODED_SPREADS(__CUDA_ARCH__ / 10);
static constexpr bool CODED_QUICK = __CUDA_ARCH__ >= 800; /* see scale8 */
#else
static constexpr bool CODED_QUICK = false;
#endif

/* The numbers of both maps. Spread, a code's are 256 bytes: the place of a lane's copy is made of
 * the code and four times the lane as they are. */
template <bool SPREAD> struct coded_values {
    float value[DYNAMIC_CODES][UPDATE_STATES][SPREAD ? WARP : 1];
};

/* Numbers are looked up times 2^-103, with what is below a normal number then made 0: nothing is
 * asked about what is below every border. So scaled, the first cell of dynamic_map is that of the
 * smallest normal number. */
#define CODED_SCALE 0x1p-103f
enum { CODED_FIRST_CELL = 0x80, CODED_CELLS = CODED_FIRST_CELL + DYNAMIC_CELLS };
static_assert(DYNAMIC_FIRST_CELL - 103 * 0x80 == CODED_FIRST_CELL, "2^-23 becomes 2^-126");

/* The tables, in shared memory. An entry of cells is that of dynamic_map less the cell's own upper
 * 16 bits, so that the bits of a number, whole, are added to it: the rank is the sum's third byte,
 * and the sign its upper bit. */
template <bool SPREAD> struct coded_tables {
    struct coded_values<SPREAD> values;
    uint32_t cell[UPDATE_STATES][CODED_CELLS];
};

/* A selector's 8 in a nibble spreads the byte's sign. */
static __device__ __forceinline__ uint32_t permute(uint32_t a, uint32_t b, uint32_t selector)
{
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
    return r;
}

/* The number of code k of a word, in the map of state s. */
template <bool SPREAD>
static __device__ __forceinline__ float coded_value(const struct coded_values<SPREAD> &values,
                                                    int s, uint32_t word, int k)
{
    if constexpr (SPREAD) {
        const uint32_t lane = threadIdx.x % WARP * (uint32_t)sizeof(float);
        const uint32_t at = permute(word, lane, 0x5504u + 16u * (uint32_t)k);
        return *(const float *)((const char *)&values + s * (int)sizeof(values.value[0][0]) + at);
    } else {
        return values.value[__byte_perm(word, 0, 0x4440 + k)][s][0];
    }
}

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
coded_fetch(struct coded_raw &r, const struct update_head<typename RULE::attrs> &head,
            const struct coded_tensor &t, const struct update_place &p)
{
    if (p.whole) {
        if constexpr (RULE::HAS_GRADIENT)
            raw8_load(r.grad, t.grad, DTYPES::grad(head.grad), p.at);
        raw8_load(r.target, t.target, DTYPES::target(head.target), p.at);
        if (DTYPES::target(head.target) == DTYPE_U8)
            raw8_load(r.image, t.image, DTYPE_BF16, p.at);
    }
#pragma unroll
    for (int s = 0; s < RULE::N_STATES; s++) {
        if (p.whole)
            r.codes[s] = *(const uint2 *)(t.codes[s] + p.at);
        r.absmax[s] = p.n_left > 0 ? t.absmax[s][p.at / DYNAMIC_BLOCK] : 0.0f;
    }
}

/* The numbers that eight codes stand for, in parts of the scale; 0 where there is no element. */
template <bool WHOLE, typename VALUES>
static __device__ __forceinline__ void
decode8(float (&share)[8], const struct coded_raw &r, const struct coded_tensor &t,
        const struct update_place &p, int s, const VALUES &values)
{
    uint32_t word[2] = {r.codes[s].x, r.codes[s].y};
#pragma unroll
    for (int k = 0; k < 8; k++) {
        if (!WHOLE && k < p.n_left)
            word[0] = (uint32_t)t.codes[s][p.at + k] << (8 * (k % 4)), word[1] = word[0];
        share[k] = WHOLE || k < p.n_left ? coded_value(values, s, word[k / 4], k % 4) : 0.0f;
    }
}

/* The largest of numbers that are not below 0, given by their bits: those have the same order. */
static __device__ __forceinline__ uint32_t largest_bits_of_warp(uint32_t bits)
{
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xffffffffu, bits);
#else
#pragma unroll
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, lanes));
    return bits;
#endif
}

/* What is no number does not count. */
static __device__ __forceinline__ float largest_of_warp(const float (&x)[8])
{
    float most = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; k++)
        most = fmaxf(most, fabsf(x[k]));
    return __uint_as_float(largest_bits_of_warp(__float_as_uint(most)));
}

static __device__ __forceinline__ float largest_or_nan(float x, float y)
{
    float most = 0.0f;
#if __CUDA_ARCH__ >= 800
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(x), "f"(y));
#endif
    return most;
}

/* The same where all are numbers; above that of infinity where one is not, or where one of the
 * second state, which has no signs, is below 0. */
static __device__ __forceinline__ uint32_t quick_largest(const float (&x)[8], int s)
{
    if (s == M) {
        float most = largest_or_nan(fabsf(x[0]), fabsf(x[1]));
#pragma unroll
        for (int k = 2; k < 8; k++)
            most = largest_or_nan(most, fabsf(x[k]));
        return largest_bits_of_warp(__float_as_uint(most));
    }
    uint32_t most = max(__float_as_uint(x[0]), __float_as_uint(x[1]));
#pragma unroll
    for (int k = 2; k < 8; k += 2) /* three are one instruction */
        most = max(max(most, __float_as_uint(x[k])), __float_as_uint(x[k + 1]));
    return largest_bits_of_warp(most);
}

/* Right to the last bit or next to it, for normal numbers whose inverse is one. */
static __device__ __forceinline__ float quick_inverse(float most)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(most));
    return fmaf(fmaf(-most, r, 1.0f), r, r);
}

static __device__ __forceinline__ float multiply_ftz(float x, float y)
{
    float r;
    asm("mul.ftz.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    return r;
}

/* y: the numbers of a block's states in parts of their largest magnitudes, `most`, times
 * CODED_SCALE; with their signs. What is no number becomes the smallest.
 *
 * From 2^-102 to 2^22 the scale goes into the inverse, which stays normal, so that y is rounded as
 * the part itself is; subnormal x are below 2^-24 of the largest, and made 0 as they come. Outside
 * (and for every block without Ampere's instructions) parts are made first. */
template <int N_STATES>
static __device__ __forceinline__ void scale8(float (&y)[N_STATES][8], float (&most)[N_STATES],
                                              const float (&x)[N_STATES][8])
{
    const uint32_t least = (127 - 102) << 23, last = (127 + 22) << 23;
    bool quick = CODED_QUICK;
#pragma unroll
    for (int s = 0; s < N_STATES; s++) {
        const uint32_t bits = quick_largest(x[s], s);
        most[s] = __uint_as_float(bits);
        quick = quick && bits - least <= last - least;
    }
    if (quick) {
#pragma unroll
        for (int s = 0; s < N_STATES; s++) {
            const float inverse = quick_inverse(most[s]) * CODED_SCALE;
#pragma unroll
            for (int k = 0; k < 8; k++)
                y[s][k] = multiply_ftz(x[s][k], inverse);
        }
        return;
    }
#pragma unroll
    for (int s = 0; s < N_STATES; s++) {
        most[s] = largest_of_warp(x[s]);
        const float inverse = most[s] >= 1.17549435e-38f ? quick_inverse(most[s]) : 0.0f;
#pragma unroll
        for (int k = 0; k < 8; k++)
            y[s][k] = copysignf(fmaxf(fabsf(x[s][k] * inverse), 0x1p-23f) * CODED_SCALE, x[s][k]);
    }
}

/* The third bytes of four sums: ranks. */
static __device__ __forceinline__ uint32_t join_ranks(const uint32_t *sum)
{
    return permute(permute(sum[0], sum[1], 0x62), permute(sum[2], sum[3], 0x62), 0x5410);
}

/* dynamic_signed of four ranks at once; no byte reaches into the next. Negative numbers: 127 less
 * the rank, which is 1 to 127 there. */
static __device__ __forceinline__ uint32_t join_signed(const uint32_t *sum)
{
    const uint32_t first = permute(sum[0], sum[1], 0x7632),
                   second = permute(sum[2], sum[3], 0x7632);
    const uint32_t rank = permute(first, second, 0x6420), negative = permute(first, second, 0xfdb9);
    const uint32_t above = rank + 0x7f7f7f7fu; /* the upper bit: the rank is not 0 */
    const uint32_t none = negative & ~above & 0x80808080u, last = negative & rank & 0x80808080u;
    const uint32_t below = (rank + (none >> 7) - (last >> 7)) ^ 0x7f7f7f7fu;
    return (negative & below) | (~negative & above);
}

template <bool WHOLE>
static __device__ __forceinline__ void
encode8(const float (&y)[8], float most, const struct coded_tensor &t, const struct update_place &p,
        int s, const uint32_t *cell)
{
    uint32_t sum[8], word[2];
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const uint32_t bits = __float_as_uint(y[k]);
        sum[k] = cell[bits >> 16 & 0x7fffu] + bits;
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
        word[h] = s == M ? join_signed(sum + 4 * h) : join_ranks(sum + 4 * h);
    if (WHOLE) {
        *(uint2 *)(t.codes[s] + p.at) = make_uint2(word[0], word[1]);
    } else {
#pragma unroll
        for (int k = 0; k < 8; k++) {
            if (k < p.n_left)
                t.codes[s][p.at + k] = (uint8_t)(word[k / 4] >> (8 * (k % 4)));
        }
    }
    if (WHOLE || p.n_left > 0) /* all lanes the same: to ask which is the first takes longer */
        t.absmax[s][p.at / DYNAMIC_BLOCK] = most;
}

/* One element by the rule; states come as shares of their scales and leave as numbers. */
template <typename RULE>
static __device__ __forceinline__ void coded_apply(const RULE &rule, float &x, float *state,
                                                   const float *absmax, float grad, float keep)
{
    if constexpr (requires { rule.apply_shares(x, state, absmax, grad, keep); }) {
        rule.apply_shares(x, state, absmax, grad, keep);
    } else {
#pragma unroll
        for (int s = 0; s < RULE::N_STATES; s++)
            state[s] *= absmax[s];
        rule.apply(x, state, grad, keep);
    }
}

/* As draw8, without what states that are numbers would take. The first of the two draws is even:
 * slices are of whole blocks of codes, and vectors of eight elements. */
template <typename TENSOR>
static __device__ __forceinline__ void draw_target8(uint32_t (&parts)[8], const TENSOR &t,
                                                    int32_t step, int64_t i_quad)
{
#pragma unroll
    for (int q = 0; q < UPDATE_VECTOR / ROUNDING_QUAD; q++) {
        struct philox4 r;
        if constexpr (requires { t.keys; })
            r = rounding_draw_by(&t.keys, step, i_quad | q);
        else
            r = rounding_draw(t.seed, step, i_quad | q);
#pragma unroll
        for (int k = 0; k < ROUNDING_QUAD; k++)
            parts[ROUNDING_QUAD * q + k] = r.v[k];
    }
}

/* WHOLE: every thread of the warp has all its elements, in vectors; else they are had one by one.
 */
template <typename RULE, typename DTYPES, bool WHOLE, typename TABLES>
static __device__ __forceinline__ void
coded_update8(const struct update_head<typename RULE::attrs> &head, const typename RULE::tensor &t,
              const TABLES &tables, const RULE &rule, const struct update_place &p,
              const struct coded_raw &raw, const float (&g)[8], int32_t step)
{
    constexpr int N_STATES = RULE::N_STATES;
    const enum dtype target = DTYPES::target(head.target), image = DTYPES::image(head.image);
    float x[8], state[N_STATES][8];
    load_target8(x, raw.target, raw.image, t.target, t.image, target, p.at, p.n_left, WHOLE);
#pragma unroll
    for (int s = 0; s < N_STATES; s++)
        decode8<WHOLE>(state[s], raw, t, p, s, tables.values);
    const float keep = rule.keep_of(t.weight_decay);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        float e[UPDATE_STATES];
#pragma unroll
        for (int s = 0; s < N_STATES; s++)
            e[s] = state[s][k];
        coded_apply(rule, x[k], e, raw.absmax, g[k], keep);
#pragma unroll
        for (int s = 0; s < N_STATES; s++)
            state[s][k] = e[s];
    }
    uint32_t parts[8];
    if ((target == DTYPE_BF16 || target == DTYPE_U8) && t.seed != 0) {
        draw_target8(parts, t, step, t.first_element / ROUNDING_QUAD + p.at / ROUNDING_QUAD);
        store_target8(t.target, target, t.image, image, p.at, p.n_left, WHOLE, x, true, parts);
    } else {
        store_target8(t.target, target, t.image, image, p.at, p.n_left, WHOLE, x, false, parts);
    }
    float scaled[N_STATES][8], most[N_STATES];
    scale8<N_STATES>(scaled, most, state);
#pragma unroll
    for (int s = 0; s < N_STATES; s++)
        encode8<WHOLE>(scaled[s], most[s], t, p, s, tables.cell[s]);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

template <typename TABLES> static __device__ __forceinline__ void copy_maps(TABLES &to)
{
    constexpr int COPIES = sizeof(to.values.value[0][0]) / sizeof(float);
#pragma unroll 8
    for (int i = (int)threadIdx.x; i < DYNAMIC_CODES * UPDATE_STATES * COPIES;
         i += UPDATE_THREADS) {
        const int code = i / (UPDATE_STATES * COPIES), state = i / COPIES % UPDATE_STATES;
        const struct dynamic_map &from = state == M ? signed_map : unsigned_map;
        to.values.value[code][state][i % COPIES] = from.value[code];
    }
    for (int i = (int)threadIdx.x; i < CODED_CELLS; i += UPDATE_THREADS) {
        const int from = max(i - CODED_FIRST_CELL, 0); /* the first has no border */
        to.cell[M][i] = signed_map.cell[from] - ((uint32_t)i << 16);
        to.cell[V][i] = unsigned_map.cell[from] - ((uint32_t)i << 16);
    }
}

/* The thread's vector in the other half of its chunk. */
template <typename RULE>
static __device__ __forceinline__ struct update_place second_half(const struct update_args<RULE> &a,
                                                                  struct update_place p)
{
    p.at += UPDATE_CHUNK;
    p.n_left -= UPDATE_CHUNK;
    p.whole = a.head.vectors && p.n_left >= UPDATE_VECTOR;
    return p;
}

template <typename RULE, typename DTYPES, typename TABLES>
static __device__ __forceinline__ void
coded_update(const struct update_args<RULE> &a, const TABLES &tables, const RULE &rule,
             const struct update_place &p, const struct coded_raw &raw, int32_t step)
{
    const struct coded_tensor &t = a.tensor[p.i_tensor];
    const enum dtype d = DTYPES::grad(a.head.grad);
    float g[8];
    if (__all_sync(0xffffffffu, p.whole)) {
        load8(g, raw.grad, t.grad, d, p.at, p.n_left, true);
        coded_update8<RULE, DTYPES, true>(a.head, t, tables, rule, p, raw, g, step);
    } else if (__any_sync(0xffffffffu, p.n_left > 0)) {
        load8(g, raw.grad, t.grad, d, p.at, p.n_left, false);
        coded_update8<RULE, DTYPES, false>(a.head, t, tables, rule, p, raw, g, step);
    }
}

/* scale = 0 (nothing counted, or the norm was not finite; see clip_scale) changes nothing. */
template <typename RULE, typename DTYPES>
static __global__ void __launch_bounds__(UPDATE_THREADS, 2)
    coded_kernel(__grid_constant__ const struct update_args<RULE> a)
{
#ifdef __CUDA_ARCH__
    extern __shared__ __align__(256) unsigned char coded_memory[];
    auto &tables = *reinterpret_cast<struct coded_tables<CODED_SPREAD> *>(coded_memory);
    __shared__ RULE shared_rule;
    if (*a.head.scale == 0.0f)
        return;
    struct update_place here = {};
    struct coded_raw first, second;
    int64_t chunk = blockIdx.x; /* the grid has no more blocks than there are chunks */
    move_to(here, a, chunk);
    coded_fetch<RULE, DTYPES>(first, a.head, a.tensor[here.i_tensor], here);
    copy_maps(tables);
    RULE::share(&shared_rule, a.head);
    __syncthreads();
    const RULE rule = shared_rule;
    const int32_t step = *a.head.step;
    for (; chunk < a.n_chunks; chunk += gridDim.x) {
        struct update_place next = here;
        coded_fetch<RULE, DTYPES>(second, a.head, a.tensor[here.i_tensor], second_half(a, here));
        coded_update<RULE, DTYPES>(a, tables, rule, here, first, step);
        if (chunk + gridDim.x < a.n_chunks) {
            move_to(next, a, chunk + gridDim.x);
            coded_fetch<RULE, DTYPES>(first, a.head, a.tensor[next.i_tensor], next);
        }
        coded_update<RULE, DTYPES>(a, tables, rule, second_half(a, here), second, step);
        here = next;
    }
#endif
}

/* ---- launches (host) ------------------------------------------------------------------------- */

/* What the kernel's tables take, as it was compiled for the GPU in use. */
static enum status coded_shared_bytes(const void *kernel, size_t *n_bytes)
{
    struct cudaFuncAttributes f;
    CUDA_TRY(cudaFuncGetAttributes(&f, kernel));
    *n_bytes = CODED_SPREADS(f.ptxVersion) ? sizeof(struct coded_tables<true>)
                                           : sizeof(struct coded_tables<false>);
    return OK;
}

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

/* What one call has, with or without a master; the head has the rule's attributes and scalars. */
template <typename RULE>
static enum status coded_call(const struct kernel_ctx *x, const struct op_call *c,
                              float weight_decay, struct update_head<typename RULE::attrs> *h,
                              struct coded_tensor *t)
{
    const int lr = 2 + 2 * RULE::N_STATES, last = lr + 3;
    const bool master = c->n_out == lr;
    const int target = master ? last : 0;
    *t = {};
    h->target = c->in[target].dtype;
    h->state[M] = h->state[V] = DTYPE_U8;
    h->image = master ? c->in[0].dtype : DTYPE_NONE;
    TRY(update_in_place(x, &c->in[target], &c->out[master ? c->n_out - 1 : 0], &t->target));
    if (master)
        TRY(update_in_place(x, &c->in[0], &c->out[0], &t->image));
    TRY(coded_states(x, c, RULE::N_STATES, t));
    t->grad = c->in[1].data;
    t->n_elems = shape_elems(&c->in[0].shape);
    t->first_element = c->first_element;
    t->seed = (uint64_t)call_int(c, op_get(c->op)->n_attrs - 1);
    t->weight_decay = weight_decay;
    h->vectors = coded_aligned(t);
    return OK;
}

template <typename RULE>
static enum status coded_add(struct update_launch<RULE> *l,
                             struct update_head<typename RULE::attrs> *h, const struct op_call *c,
                             float weight_decay)
{
    struct coded_tensor t;
    TRY(coded_call<RULE>(l->x, c, weight_decay, h, &t));
    return update_add(l, h, &t);
}

#endif
