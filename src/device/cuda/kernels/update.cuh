/* update.cuh: update rules over many tensors in one launch.
 *
 * A launch takes descriptors of a few dozen tensors by value. Their elements are cut into
 * chunks, numbered through all tensors; block b takes chunks b, b + grid, ..., so that small
 * tensors cost no launch of their own and large ones are spread evenly. A thread has 8 elements of
 * a chunk, in vectors of 16 bytes; those of its next chunk are on the way while it computes. Every
 * element's arithmetic, random bits included, depends on the element alone: the bits do not depend
 * on what else is in the launch or on the size of the grid.
 *
 * Tensors are changed in place. Where an output is not its input's memory (tests), the input is
 * copied there first. Learning rate, step and scale are read from memory, so that a captured step
 * can be replayed.
 *
 * A rule is a struct with
 *     N_STATES                          tensors beside the target: 0, 1 or 2
 *     tensor                            what describes one tensor of a launch: update_tensor
 *     struct attrs                      what its calls must have in common to share a launch
 *     share(rule *, head)               by the whole block: fills the rule in shared memory
 *     keep_of(weight_decay)             what decay makes of it for a tensor, once for 8 elements
 *     apply(target, state, grad, keep)  one element; keep is what keep_of gave
 */
#ifndef SNUG_DEVICE_CUDA_KERNELS_UPDATE_CUH
#define SNUG_DEVICE_CUDA_KERNELS_UPDATE_CUH

#include <string.h>

#include "base/rounding.h"
#include "base/split.h"
#include "device/cuda/support/any.cuh"

static constexpr int UPDATE_THREADS = 256, UPDATE_VECTOR = 8, UPDATE_STATES = 2;
static constexpr int UPDATE_CHUNK = UPDATE_THREADS * UPDATE_VECTOR;
/* Of a launch's arguments, which are 4 KiB at most with every driver. */
static constexpr int UPDATE_TENSOR_BYTES = 3840;

/* One tensor of a launch. */
struct update_tensor {
    static constexpr int CHUNK = UPDATE_CHUNK; /* elements that a block takes at a time */
    void *target; /* what the rule acts on: a parameter, its master, an accumulator; u8:
                   * what the image lacks of 24 bits (base/split.h) */
    void *state[UPDATE_STATES]; /* NULL: none */
    void *image; /* the parameter behind a master: the target rounded; NULL: the target is it */
    const void *grad;
    int64_t n_elems;
    int64_t first_element; /* of the whole that the call is a slice of: a multiple of the draws */
    uint64_t seed;         /* 0: round to nearest */
    float weight_decay;
    int32_t first_chunk;
};

/* What all tensors of a launch have in common; but some may have no image beside others that do. */
template <typename ATTRS> struct update_head {
    const float *lr, *scale; /* NULL: the rule has none */
    const int32_t *step;
    enum dtype target, state[UPDATE_STATES], image, grad; /* DTYPE_NONE: there is none */
    int vectors;                                          /* everything lies on 16 bytes */
    ATTRS attrs;
};

template <typename RULE> struct update_args {
    static constexpr int MOST = UPDATE_TENSOR_BYTES / (int)sizeof(typename RULE::tensor);
    struct update_head<typename RULE::attrs> head;
    int n_tensors;
    int32_t n_chunks;
    typename RULE::tensor tensor[MOST];
};

/* ---- dtypes known to the compiler, or not ------------------------------------------------------
 *
 * After inlining, a dtype that goes through one of these is a constant, and so is every branch on
 * it.
 */

template <dtype TARGET, dtype STATE, dtype GRAD, dtype IMAGE> struct known_dtypes {
    static __device__ __forceinline__ dtype target(dtype)
    {
        return TARGET;
    }
    static __device__ __forceinline__ dtype state(dtype)
    {
        return STATE;
    }
    static __device__ __forceinline__ dtype grad(dtype)
    {
        return GRAD;
    }
    static __device__ __forceinline__ dtype image(dtype)
    {
        return IMAGE;
    }
    template <typename ATTRS> static bool match(const struct update_head<ATTRS> &h)
    {
        return h.target == TARGET && h.state[0] == STATE && h.state[1] == STATE && h.grad == GRAD &&
               h.image == IMAGE;
    }
};

struct any_dtypes {
    static __device__ __forceinline__ dtype target(dtype d)
    {
        return d;
    }
    static __device__ __forceinline__ dtype state(dtype d)
    {
        return d;
    }
    static __device__ __forceinline__ dtype grad(dtype d)
    {
        return d;
    }
    static __device__ __forceinline__ dtype image(dtype d)
    {
        return d;
    }
};

/* ---- eight elements -------------------------------------------------------------------------- */

/* As they lie in memory: 32 bytes of f32, 16 bytes in the first four words, or 8 in the first two.
 */
struct raw8 {
    uint32_t word[8];
};

static __device__ __forceinline__ void raw8_half(uint32_t *word, uint4 v)
{
    word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
}

/* Elements [at, at + 8); at is a multiple of 8 and the tensor lies on 16 bytes. */
static __device__ __forceinline__ void raw8_load(struct raw8 &r, const void *p, enum dtype d,
                                                 int64_t at)
{
    if (d == DTYPE_F32) {
        const uint4 *q = (const uint4 *)((const float *)p + at);
        raw8_half(r.word, q[0]);
        raw8_half(r.word + 4, q[1]);
    } else if (d == DTYPE_U8) {
        const uint2 v = *(const uint2 *)((const uint8_t *)p + at);
        r.word[0] = v.x, r.word[1] = v.y;
    } else {
        raw8_half(r.word, *(const uint4 *)((const uint16_t *)p + at));
    }
}

static __device__ __forceinline__ void raw8_store(void *p, enum dtype d, int64_t at,
                                                  const struct raw8 &r)
{
    if (d == DTYPE_F32) {
        uint4 *q = (uint4 *)((float *)p + at);
        q[0] = make_uint4(r.word[0], r.word[1], r.word[2], r.word[3]);
        q[1] = make_uint4(r.word[4], r.word[5], r.word[6], r.word[7]);
    } else {
        *(uint4 *)((uint16_t *)p + at) = make_uint4(r.word[0], r.word[1], r.word[2], r.word[3]);
    }
}

static __device__ __forceinline__ void raw8_unpack(float (&v)[8], const struct raw8 &r,
                                                   enum dtype d)
{
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (d == DTYPE_F32) {
            v[2 * k] = __uint_as_float(r.word[2 * k]);
            v[2 * k + 1] = __uint_as_float(r.word[2 * k + 1]);
        } else if (d == DTYPE_BF16) {
            v[2 * k] = __uint_as_float(r.word[k] << 16);
            v[2 * k + 1] = __uint_as_float(r.word[k] & 0xffff0000u);
        } else {
            v[2 * k] = __half2float(__ushort_as_half((unsigned short)(r.word[k] & 0xffffu)));
            v[2 * k + 1] = __half2float(__ushort_as_half((unsigned short)(r.word[k] >> 16)));
        }
    }
}

/* 16 bits of v: stochastically when `random`, with parts out of 65536, the lower half of `parts`;
 * else to nearest. */
static __device__ __forceinline__ uint32_t round16(float v, enum dtype d, bool random,
                                                   uint32_t parts)
{
    if (d == DTYPE_F16)
        return __half_as_ushort(__float2half_rn(v));
    return random ? bf16_round_by(__float_as_uint(v), rounding_param(parts))
                  : (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(v));
}

/* Is one of them not a number? Two are asked about at a time. */
static __device__ __forceinline__ bool any_nan8(const float (&v)[8])
{
    uint32_t any;
    asm("{ .reg .pred p;\n"
        "setp.nan.f32 p, %1, %2;\n"
        "setp.nan.or.f32 p, %3, %4, p;\n"
        "setp.nan.or.f32 p, %5, %6, p;\n"
        "setp.nan.or.f32 p, %7, %8, p;\n"
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(any)
        : "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]));
    return any != 0;
}

/* As bf16_round_by has it; numbers need no look at each of them. The product of two halves by (1,
 * 0) adds the lower one in a single instruction. */
static __device__ __forceinline__ void pack_random(uint32_t *word, const float (&v)[8],
                                                   const uint32_t (&parts)[8])
{
    uint32_t sum[8];
#pragma unroll
    for (int k = 0; k < 8; k++)
        sum[k] = __dp2a_lo(parts[k], 1u, __float_as_uint(v[k]));
    if (any_nan8(v)) {
#pragma unroll
        for (int k = 0; k < 8; k++)
            sum[k] = bf16_round_by(__float_as_uint(v[k]), rounding_param(parts[k])) << 16;
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        word[k] = __byte_perm(sum[2 * k], sum[2 * k + 1], 0x7632);
}

static __device__ __forceinline__ void raw8_pack(struct raw8 &r, const float (&v)[8], enum dtype d,
                                                 bool random, const uint32_t (&parts)[8])
{
    if (d == DTYPE_BF16 && random) {
        pack_random(r.word, v, parts);
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (d == DTYPE_F32) {
            r.word[2 * k] = __float_as_uint(v[2 * k]);
            r.word[2 * k + 1] = __float_as_uint(v[2 * k + 1]);
        } else if (d == DTYPE_BF16) {
            const __nv_bfloat162 pair = __floats2bfloat162_rn(v[2 * k], v[2 * k + 1]);
            memcpy(&r.word[k], &pair, sizeof(pair));
        } else {
            const __half2 pair = __floats2half2_rn(v[2 * k], v[2 * k + 1]);
            memcpy(&r.word[k], &pair, sizeof(pair));
        }
    }
}

/* Eight elements of one tensor out of registers; those past n_left, or all when the tensor does not
 * lie on 16 bytes, go one by one. */
static __device__ __forceinline__ void store8(void *p, enum dtype d, int64_t at, int64_t n_left,
                                              bool whole, const float (&v)[8], bool random,
                                              const uint32_t (&parts)[8])
{
    if (whole) {
        struct raw8 r;
        raw8_pack(r, v, d, random, parts);
        raw8_store(p, d, at, r);
        return;
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
        if (k >= n_left)
            break;
        if (d == DTYPE_F32)
            ((float *)p)[at + k] = v[k];
        else
            ((uint16_t *)p)[at + k] = (uint16_t)round16(v[k], d, random, parts[k]);
    }
}

static __device__ __forceinline__ void load8(float (&v)[8], const struct raw8 &r, const void *p,
                                             enum dtype d, int64_t at, int64_t n_left, bool whole)
{
    if (whole) {
        raw8_unpack(v, r, d);
        return;
    }
    const struct any a = {(void *)p, d};
#pragma unroll
    for (int k = 0; k < 8; k++)
        v[k] = k < n_left ? any_get_f32(a, at + k) : 0.0f;
}

/* ---- what the rule acts on, as numbers or in two parts -----------------------------------------
 */

/* Eight elements of the target; u8: with the image, which is bf16. */
static __device__ __forceinline__ void load_target8(float (&v)[8], const struct raw8 &raw,
                                                    const struct raw8 &raw_image,
                                                    const void *target, const void *image,
                                                    enum dtype d, int64_t at, int64_t n_left,
                                                    bool whole)
{
    if (d != DTYPE_U8) {
        load8(v, raw, target, d, at, n_left, whole);
        return;
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
        uint32_t rest = SPLIT_NOTHING, upper = 0;
        if (whole) {
            rest = raw.word[k / 4] >> (8 * (k % 4)) & 0xffu;
            upper = raw_image.word[k / 2] >> (16 * (k % 2)) & 0xffffu;
        } else if (k < n_left) {
            rest = ((const uint8_t *)target)[at + k];
            upper = ((const uint16_t *)image)[at + k];
        }
        v[k] = __uint_as_float(split_join(upper, rest));
    }
}

static __device__ __forceinline__ void store_split8(void *target, void *image, int64_t at,
                                                    int64_t n_left, bool whole, const float (&v)[8],
                                                    bool random, const uint32_t (&parts)[8])
{
    uint32_t rest[2] = {0, 0}, upper[4] = {0, 0, 0, 0};
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const uint32_t bits = __float_as_uint(v[k]);
        const uint32_t split =
            random ? split_by(bits, rounding_split(parts[k])) : split_nearest(bits);
        rest[k / 4] |= (split & 0xffu) << (8 * (k % 4));
        upper[k / 2] |= (split >> 8 & 0xffffu) << (16 * (k % 2));
        if (!whole && k < n_left) {
            ((uint8_t *)target)[at + k] = (uint8_t)split;
            ((uint16_t *)image)[at + k] = (uint16_t)(split >> 8);
        }
    }
    if (whole) {
        *(uint2 *)((uint8_t *)target + at) = make_uint2(rest[0], rest[1]);
        *(uint4 *)((uint16_t *)image + at) = make_uint4(upper[0], upper[1], upper[2], upper[3]);
    }
}

/* The target, and its image where it has one. */
static __device__ __forceinline__ void store_target8(void *target, enum dtype d, void *image,
                                                     enum dtype image_dtype, int64_t at,
                                                     int64_t n_left, bool whole,
                                                     const float (&v)[8], bool random,
                                                     const uint32_t (&parts)[8])
{
    if (d == DTYPE_U8) {
        store_split8(target, image, at, n_left, whole, v, random, parts);
        return;
    }
    store8(target, d, at, n_left, whole, v, random, parts);
    if (image_dtype != DTYPE_NONE && image)
        store8(image, image_dtype, at, n_left, whole, v, false, parts);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Where a thread is: 8 elements from `at` on, n_left of which exist (perhaps none, or more). */
struct update_place {
    int i_tensor;
    int64_t at, n_left;
    bool whole; /* all 8 can be had as vectors */
};

/* A thread's vectors of one place. */
struct update_raw {
    struct raw8 target, state[UPDATE_STATES], grad;
    struct raw8 image; /* where the target is what it lacks */
};

/* Chunks come in rising order, so the tensor is never before the last one. */
template <typename ARGS>
static __device__ __forceinline__ void move_to(struct update_place &p, const ARGS &a, int64_t chunk)
{
    while (p.i_tensor + 1 < a.n_tensors && chunk >= a.tensor[p.i_tensor + 1].first_chunk)
        p.i_tensor++;
    const auto &t = a.tensor[p.i_tensor];
    p.at = (chunk - t.first_chunk) * t.CHUNK + (int64_t)threadIdx.x * UPDATE_VECTOR;
    p.n_left = t.n_elems - p.at;
    p.whole = a.head.vectors && p.n_left >= UPDATE_VECTOR;
}

template <typename DTYPES, int N_STATES, typename ARGS>
static __device__ __forceinline__ void fetch(struct update_raw &r, const ARGS &a,
                                             const struct update_place &p)
{
    if (!p.whole)
        return;
    const struct update_tensor &t = a.tensor[p.i_tensor];
    raw8_load(r.grad, t.grad, DTYPES::grad(a.head.grad), p.at);
    raw8_load(r.target, t.target, DTYPES::target(a.head.target), p.at);
    if (DTYPES::target(a.head.target) == DTYPE_U8)
        raw8_load(r.image, t.image, DTYPE_BF16, p.at);
#pragma unroll
    for (int s = 0; s < N_STATES; s++)
        raw8_load(r.state[s], t.state[s], DTYPES::state(a.head.state[s]), p.at);
}

/* The shares of 8 elements' random bits: parameter (in the lower half, see round16) and two states.
 */
struct update_parts {
    uint32_t target[8], state[UPDATE_STATES][8];
};

static __device__ __forceinline__ void draw8(struct update_parts &p, uint64_t seed, int32_t step,
                                             int64_t at)
{
#pragma unroll
    for (int q = 0; q < UPDATE_VECTOR / ROUNDING_QUAD; q++) {
        struct philox4 r = rounding_draw(seed, step, at / ROUNDING_QUAD + q);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            p.target[4 * q + k] = r.v[k];
            p.state[0][4 * q + k] = rounding_state1(r.v[k]);
            p.state[1][4 * q + k] = rounding_state2(r.v[k]);
        }
    }
}

template <typename RULE, typename DTYPES, typename ARGS>
static __device__ __forceinline__ void update8(const ARGS &a, const RULE &rule,
                                               const struct update_place &p,
                                               const struct update_raw &raw, int32_t step)
{
    constexpr int N_STATES = RULE::N_STATES;
    const struct update_tensor &t = a.tensor[p.i_tensor];
    const enum dtype target = DTYPES::target(a.head.target), image = DTYPES::image(a.head.image);
    float v[8], g[8], state[UPDATE_STATES][8];
    load8(g, raw.grad, t.grad, DTYPES::grad(a.head.grad), p.at, p.n_left, p.whole);
    load_target8(v, raw.target, raw.image, t.target, t.image, target, p.at, p.n_left, p.whole);
#pragma unroll
    for (int s = 0; s < N_STATES; s++)
        load8(state[s], raw.state[s], t.state[s], DTYPES::state(a.head.state[s]), p.at, p.n_left,
              p.whole);
    const float keep = rule.keep_of(t.weight_decay);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        float e[UPDATE_STATES];
#pragma unroll
        for (int s = 0; s < N_STATES; s++)
            e[s] = state[s][k];
        rule.apply(v[k], e, g[k], keep);
#pragma unroll
        for (int s = 0; s < N_STATES; s++)
            state[s][k] = e[s];
    }
    struct update_parts parts = {};
    bool any_bf16 = target == DTYPE_BF16 || target == DTYPE_U8;
#pragma unroll
    for (int s = 0; s < N_STATES; s++)
        any_bf16 = any_bf16 || DTYPES::state(a.head.state[s]) == DTYPE_BF16;
    const bool random = any_bf16 && t.seed != 0;
    if (random)
        draw8(parts, t.seed, step, t.first_element + p.at);
    store_target8(t.target, target, t.image, image, p.at, p.n_left, p.whole, v, random,
                  parts.target);
#pragma unroll
    for (int s = 0; s < N_STATES; s++)
        store8(t.state[s], DTYPES::state(a.head.state[s]), p.at, p.n_left, p.whole, state[s],
               random, parts.state[s]);
}

/* scale = 0 (nothing counted, or the norm was not finite; see clip_scale) changes nothing. */
template <typename RULE, typename DTYPES>
static __global__ void __launch_bounds__(UPDATE_THREADS, 2)
    update_kernel(__grid_constant__ const struct update_args<RULE> a)
{
    __shared__ RULE shared_rule;
    if (a.head.scale && *a.head.scale == 0.0f)
        return;
    struct update_place here = {};
    struct update_raw raw;
    int64_t chunk = blockIdx.x; /* the grid has no more blocks than there are chunks */
    move_to(here, a, chunk);
    fetch<DTYPES, RULE::N_STATES>(raw, a, here);
    RULE::share(&shared_rule, a.head);
    __syncthreads();
    const RULE rule = shared_rule;
    const int32_t step = a.head.step ? *a.head.step : 0;
    while (chunk < a.n_chunks) {
        struct update_place next = here;
        struct update_raw next_raw;
        const int64_t next_chunk = chunk + gridDim.x;
        if (next_chunk < a.n_chunks) {
            move_to(next, a, next_chunk);
            fetch<DTYPES, RULE::N_STATES>(next_raw, a, next);
        }
        update8<RULE, DTYPES>(a, rule, here, raw, step);
        here = next;
        raw = next_raw;
        chunk = next_chunk;
    }
}

/* ---- launches (host) ------------------------------------------------------------------------- */

template <typename RULE> using update_launchable = void (*)(const struct update_args<RULE>);

/* Shared memory that a kernel asks for beside its own. */
typedef enum status update_shared_bytes(const void *kernel, size_t *n_bytes);

/* Calls collected for the next launch. */
template <typename RULE> struct update_launch {
    const struct kernel_ctx *x;
    update_launchable<RULE> (*pick)(const struct update_head<typename RULE::attrs> &h);
    update_shared_bytes *shared_bytes = NULL; /* NULL: none */
    struct update_args<RULE> args;
};

/* A grid as large as the GPU holds at once, with the kernel's shared memory. */
static enum status update_grid(const struct kernel_ctx *x, const void *kernel,
                               update_shared_bytes *shared_bytes, size_t *shared, int64_t *n_blocks)
{
    int per_multiprocessor = 0;
    *shared = 0;
    if (shared_bytes) {
        TRY(shared_bytes(kernel, shared));
        CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      (int)*shared));
    }
    CUDA_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, kernel,
                                                           UPDATE_THREADS, *shared));
    *n_blocks = (int64_t)MAX(per_multiprocessor, 1) * x->env.gpu->n_multiprocessors;
    return OK;
}

template <typename RULE> static enum status update_flush(struct update_launch<RULE> *l)
{
    static_assert(sizeof(l->args) <= 4096, "arguments that every driver takes");
    if (l->args.n_chunks > 0) {
        update_launchable<RULE> kernel = l->pick(l->args.head);
        size_t shared;
        int64_t most;
        TRY(update_grid(l->x, reinterpret_cast<const void *>(kernel), l->shared_bytes, &shared,
                        &most));
        kernel<<<grid_for(l->args.n_chunks, 1, most), UPDATE_THREADS, shared, cuda_stream(l->x)>>>(
            l->args);
        CUDA_TRY(cudaGetLastError());
    }
    l->args.n_tensors = 0;
    l->args.n_chunks = 0;
    return OK;
}

/* The head of a launch that has tensors of both heads: equal byte by byte, or would be if none had
 * an image. */
template <typename HEAD> static bool heads_join(const HEAD &a, const HEAD &b, HEAD *joint)
{
    memcpy(joint, &a, sizeof(a)); /* bytes between members too: heads are compared by them */
    if (a.image == DTYPE_NONE)
        joint->image = b.image;
    HEAD other;
    memcpy(&other, &b, sizeof(b));
    if (b.image == DTYPE_NONE)
        other.image = a.image;
    return memcmp(joint, &other, sizeof(other)) == 0;
}

/* One more tensor: into the launch that is being collected, or into a new one. */
template <typename RULE>
static enum status update_add(struct update_launch<RULE> *l,
                              const struct update_head<typename RULE::attrs> *h,
                              const typename RULE::tensor *t)
{
    struct update_head<typename RULE::attrs> joint;
    struct update_args<RULE> *a = &l->args;
    int64_t n_chunks = ceil_div(t->n_elems, (int64_t)t->CHUNK);
    if (n_chunks == 0)
        return OK;
    bool joins = a->n_tensors > 0 && a->n_tensors < a->MOST &&
                 a->n_chunks + n_chunks <= INT32_MAX && heads_join(a->head, *h, &joint);
    if (!joins)
        TRY(update_flush(l));
    memcpy(&a->head, joins ? &joint : h, sizeof(*h));
    a->tensor[a->n_tensors] = *t;
    a->tensor[a->n_tensors].first_chunk = a->n_chunks;
    a->n_tensors++;
    a->n_chunks += (int32_t)n_chunks;
    return OK;
}

/* The memory of an output that starts as its input. */
static enum status update_in_place(const struct kernel_ctx *x, const struct tensor *in,
                                   const struct tensor *out, void **data)
{
    *data = out->data;
    if (in->data != out->data)
        CUDA_TRY(cudaMemcpyAsync(out->data, in->data, (size_t)tensor_bytes(in),
                                 cudaMemcpyDeviceToDevice, cuda_stream(x)));
    return OK;
}

/* Whether what a tensor is made of can be had in vectors: NULL can. */
static bool update_aligned(const struct update_tensor *t)
{
    return is_aligned(t->target, 16) && is_aligned(t->state[0], 16) &&
           is_aligned(t->state[1], 16) && is_aligned(t->image, 16) && is_aligned(t->grad, 16);
}

/* One call of parameter, gradient, states, lr, step, scale and perhaps a master; the head has the
 * rule's attributes and scalars. The last attribute is the seed. */
template <typename RULE>
static enum status update_add_call(struct update_launch<RULE> *l,
                                   struct update_head<typename RULE::attrs> *h,
                                   const struct op_call *c, float weight_decay)
{
    const int master_at = 2 + RULE::N_STATES + 3;
    const bool master = c->n_in > master_at;
    const int target = master ? master_at : 0;
    struct update_tensor t = {};
    h->target = c->in[target].dtype;
    h->image = master ? c->in[0].dtype : DTYPE_NONE;
    TRY(update_in_place(l->x, &c->in[target], &c->out[master ? c->n_out - 1 : 0], &t.target));
    for (int s = 0; s < RULE::N_STATES; s++) {
        h->state[s] = c->in[2 + s].dtype;
        TRY(update_in_place(l->x, &c->in[2 + s], &c->out[1 + s], &t.state[s]));
    }
    if (master)
        TRY(update_in_place(l->x, &c->in[0], &c->out[0], &t.image));
    t.grad = c->in[1].data;
    t.n_elems = shape_elems(&c->in[0].shape);
    t.first_element = c->first_element;
    t.seed = (uint64_t)call_int(c, op_get(c->op)->n_attrs - 1);
    t.weight_decay = weight_decay;
    h->vectors = update_aligned(&t);
    return update_add(l, h, &t);
}

#endif
