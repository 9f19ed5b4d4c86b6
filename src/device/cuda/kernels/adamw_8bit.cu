/* adamw_8bit.cu: AdamW with states in 8-bit codes, on the parameter itself or on its master.
 *
 * As the other updates (update.cuh), with 8 elements to a thread: a warp has the 256 elements
 * of one block of codes, and finds the block's largest m and v by shuffles. Decoding is a look into
 * a table of 256 numbers, encoding one into a table of cells (base/dynamic_map.h); both are copied
 * to shared memory by each block of the grid, which is as large as the GPU holds at once. What
 * binds is instructions, not memory: three blocks to a multiprocessor hide each other's waiting,
 * and warps whose elements all exist ask nothing about them.
 */
#include "base/dynamic_map.h"
#include "device/cuda/kernels/adamw_rule.cuh"

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

struct coded_rule : adamw_rule {
    using tensor = struct coded_tensor;
};

typedef struct update_args<coded_rule> coded_args;

/* The tables and the rule, in shared memory. */
struct coded_shared {
    struct dynamic_map map[UPDATE_STATES];
    struct coded_rule rule;
};

/* A thread's vectors of one place. */
struct coded_raw {
    struct raw8 target, grad;
    uint2 codes[UPDATE_STATES];
    float absmax[UPDATE_STATES];
};

/* ---- eight elements -------------------------------------------------------------------------- */

template <typename DTYPES>
static __device__ __forceinline__ void coded_fetch(struct coded_raw &r, const coded_args &a,
                                                   const struct update_place &p)
{
    const struct coded_tensor &t = a.tensor[p.i_tensor];
    if (p.whole) {
        raw8_load(r.grad, t.grad, DTYPES::grad(a.head.grad), p.at);
        raw8_load(r.target, t.target, DTYPES::target(a.head.target), p.at);
    }
#pragma unroll
    for (int s = 0; s < UPDATE_STATES; s++) {
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
template <typename DTYPES, bool WHOLE>
static __device__ __forceinline__ void
coded_update8(const coded_args &a, const struct coded_shared &shared, const struct coded_rule &rule,
              const struct update_place &p, const struct coded_raw &raw, int32_t step)
{
    const struct coded_tensor &t = a.tensor[p.i_tensor];
    const enum dtype target = DTYPES::target(a.head.target), image = DTYPES::image(a.head.image);
    const bool whole = WHOLE || p.whole;
    float x[8], g[8], m[8], v[8];
    load8(g, raw.grad, t.grad, DTYPES::grad(a.head.grad), p.at, p.n_left, whole);
    load8(x, raw.target, t.target, target, p.at, p.n_left, whole);
    decode8<WHOLE>(m, raw, t, p, M, shared.map[M].value);
    decode8<WHOLE>(v, raw, t, p, V, shared.map[V].value);
    const float keep = rule.keep_of(t.weight_decay);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        float state[UPDATE_STATES] = {m[k], v[k]};
        rule.apply(x[k], state, g[k], keep);
        m[k] = state[M];
        v[k] = state[V];
    }
    struct update_parts parts = {};
    const bool random = target == DTYPE_BF16 && t.seed != 0;
    if (random)
        draw8(parts, t.seed, step, t.first_element + p.at);
    store8(t.target, target, p.at, p.n_left, whole, x, random, parts.target);
    if (image != DTYPE_NONE && t.image)
        store8(t.image, image, p.at, p.n_left, whole, x, false, parts.target);
    encode8<WHOLE>(m, t, p, M, shared.map[M].cell);
    encode8<WHOLE>(v, t, p, V, shared.map[V].cell);
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
template <typename DTYPES>
static __global__ void __launch_bounds__(UPDATE_THREADS, 3)
    coded_kernel(__grid_constant__ const coded_args a)
{
    __shared__ struct coded_shared shared;
    if (*a.head.scale == 0.0f)
        return;
    struct update_place here = {};
    struct coded_raw raw;
    int64_t chunk = blockIdx.x; /* the grid has no more blocks than there are chunks */
    move_to(here, a, chunk);
    coded_fetch<DTYPES>(raw, a, here);
    copy_map(&shared.map[M], signed_map);
    copy_map(&shared.map[V], unsigned_map);
    coded_rule::share(&shared.rule, a.head);
    __syncthreads();
    const struct coded_rule rule = shared.rule;
    const int32_t step = *a.head.step;
    while (chunk < a.n_chunks) {
        struct update_place next = here;
        struct coded_raw next_raw;
        const int64_t next_chunk = chunk + gridDim.x;
        if (next_chunk < a.n_chunks) {
            move_to(next, a, next_chunk);
            coded_fetch<DTYPES>(next_raw, a, next);
        }
        if (__all_sync(0xffffffffu, here.whole))
            coded_update8<DTYPES, true>(a, shared, rule, here, raw, step);
        else
            coded_update8<DTYPES, false>(a, shared, rule, here, raw, step);
        here = next;
        raw = next_raw;
        chunk = next_chunk;
    }
}

/* ---- launches (host) ------------------------------------------------------------------------- */

/* The dtypes that configs ask for are known to the compiler; others are found out on the way. */
static update_launchable<coded_rule> pick_coded(const adamw_head &h)
{
#define TRY_DTYPES(target, grad, image)                                                    \
    do {                                                                                   \
        using known = known_dtypes<DTYPE_##target, DTYPE_U8, DTYPE_##grad, DTYPE_##image>; \
        if (known::match(h))                                                               \
            return coded_kernel<known>;                                                    \
    } while (0)
    TRY_DTYPES(F32, F32, NONE);
    TRY_DTYPES(F32, BF16, NONE);
    TRY_DTYPES(BF16, F32, NONE);
    TRY_DTYPES(BF16, BF16, NONE);
    TRY_DTYPES(F32, F32, BF16);
    TRY_DTYPES(F32, BF16, BF16);
    TRY_DTYPES(F32, F32, F16);
#undef TRY_DTYPES
    return coded_kernel<any_dtypes>;
}

static bool coded_aligned(const struct coded_tensor *t)
{
    return is_aligned(t->target, 16) && is_aligned(t->image, 16) && is_aligned(t->grad, 16) &&
           is_aligned(t->codes[M], 8) && is_aligned(t->codes[V], 8);
}

static enum status coded_states(const struct update_launch<coded_rule> *l, const struct op_call *c,
                                struct coded_tensor *t)
{
    for (int s = 0; s < UPDATE_STATES; s++) {
        const int in = s == M ? CODED_M : CODED_V, out = in - 1;
        void *codes, *absmax;
        TRY(update_in_place(l->x, &c->in[in], &c->out[out], &codes));
        TRY(update_in_place(l->x, &c->in[in + 1], &c->out[out + 1], &absmax));
        t->codes[s] = (uint8_t *)codes;
        t->absmax[s] = (float *)absmax;
    }
    return OK;
}

/* Both ops: adamw_8bit_master has a tenth input. */
static enum status add_coded(struct update_launch<coded_rule> *l, const struct op_call *c)
{
    const bool master = c->n_in > CODED_MASTER;
    const int target = master ? CODED_MASTER : 0;
    adamw_head h;
    struct coded_tensor t = {};
    adamw_head_init(&h, c, CODED_LR);
    h.target = c->in[target].dtype;
    h.state[M] = h.state[V] = DTYPE_U8;
    h.image = master ? c->in[0].dtype : DTYPE_NONE;
    TRY(update_in_place(l->x, &c->in[target], &c->out[master ? 5 : 0], &t.target));
    if (master)
        TRY(update_in_place(l->x, &c->in[0], &c->out[0], &t.image));
    TRY(coded_states(l, c, &t));
    t.grad = c->in[1].data;
    t.n_elems = shape_elems(&c->in[0].shape);
    t.first_element = c->first_element;
    t.seed = (uint64_t)call_int(c, ADAMW_SEED);
    t.weight_decay = (float)call_float(c, ADAMW_WEIGHT_DECAY);
    h.vectors = coded_aligned(&t);
    return update_add(l, &h, &t);
}

extern "C" enum status cuda_batch_adamw_8bit(const struct kernel_ctx *x,
                                             const struct op_call *const *calls, int n)
{
    struct update_launch<coded_rule> l;
    l.x = x;
    l.pick = pick_coded;
    l.args.n_tensors = 0;
    l.args.n_chunks = 0;
    for (int i = 0; i < n; i++)
        TRY(add_coded(&l, calls[i]));
    return update_flush(&l);
}

static enum status coded_run(const struct kernel_ctx *x, const struct op_call *c)
{
    return cuda_batch_adamw_8bit(x, &c, 1);
}

CUDA_RUN(adamw_8bit, warps, coded_run)

CUDA_RUN(adamw_8bit_master, warps, coded_run)
