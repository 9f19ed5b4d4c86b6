/* coded_product.cuh: an update with states in 8-bit codes by a gradient that is a product of a few
 * rows, grad[n, k] = sum of dy[t, n] x[t, k], each element made where it is used.
 *
 * A thread keeps its columns and goes down the rows, so that its part of x stays in registers and
 * of dy one number a row and term is loaded. Blocks of codes lie across the ends of rows: a thread
 * goes by a stride of so many whole rows that it is whole blocks too. A block of the grid has a
 * strip of UPDATE_CHUNK elements of a stride and goes n_steps strides down; strips come before
 * strides, so that all blocks are near each other in memory. Its warps, with a block of codes each,
 * know beforehand how many steps are whole; what is left goes element by element.
 */
#ifndef SNUG_DEVICE_CUDA_KERNELS_CODED_PRODUCT_CUH
#define SNUG_DEVICE_CUDA_KERNELS_CODED_PRODUCT_CUH

#include "device/cuda/kernels/coded.cuh"

static constexpr int64_t PRODUCT_LEAST_STRIDE = 16 * UPDATE_CHUNK;
static constexpr int PRODUCT_MOST_STEPS = 32, PRODUCT_MOST_TERMS = 4;

struct product_tensor : coded_tensor { /* `grad` is dy */
    const void *x;
    int64_t n_rows, n_columns; /* of the gradient */
    int64_t stride;            /* elements */
    uint32_t rows_down;        /* of a stride */
    int32_t n_terms;
    int32_t n_strips, n_steps; /* of a stride; strides that a block goes down */
    enum dtype dtype;          /* each element is rounded to it, as if it were stored */
    struct rounding_keys keys; /* of the seed */
};

/* There is no master, in one part or two. */
struct product_dtypes : any_dtypes {
    static __device__ __forceinline__ dtype target(dtype d)
    {
        if (d == DTYPE_U8)
            __builtin_unreachable();
        return d;
    }
    static __device__ __forceinline__ dtype image(dtype)
    {
        return DTYPE_NONE;
    }
};

template <typename RULE> struct coded_product : RULE {
    using tensor = struct product_tensor;
    static constexpr bool HAS_GRADIENT = false;
};

/* ---- a gradient of eight elements ------------------------------------------------------------ */

/* Any of any dtype, from `at` of the whole on: every element is the sum of its terms in their
 * order. */
static __device__ __forceinline__ void product_one_by_one(float (&g)[8],
                                                          const struct product_tensor &t,
                                                          enum dtype d, int64_t at, int64_t n_left)
{
    const struct any dy = {(void *)t.grad, d}, x = {(void *)t.x, d};
#pragma unroll 1
    for (int k = 0; k < 8; k++) {
        float sum = 0.0f;
        const int64_t row = (at + k) / t.n_columns, column = (at + k) - row * t.n_columns;
        for (int term = 0; k < n_left && term < t.n_terms; term++)
            sum = fmaf(any_get_f32(dy, term * t.n_rows + row),
                       any_get_f32(x, term * t.n_columns + column), sum);
        if (t.dtype == DTYPE_BF16)
            sum = __bfloat162float(__float2bfloat16_rn(sum));
        else if (t.dtype == DTYPE_F16)
            sum = __half2float(__float2half_rn(sum));
#pragma unroll
        for (int i = 0; i < 8; i++) /* an index known to the compiler: g stays in registers */
            g[i] = i == k ? sum : g[i];
    }
}

/* A pointer to device memory that the compiler does not take apart where it is to be kept: what is
 * added to it is then one instruction. Where dtypes are not known there are no registers for that.
 */
template <bool KEEP, typename T> static __device__ __forceinline__ T *keep_pointer(T *p)
{
    if (!KEEP)
        return p;
    size_t address = __cvta_generic_to_global(p);
    asm volatile("" : "+l"(address));
    return (T *)__cvta_global_to_generic(address);
}

/* A thread's columns of x, as numbers: they are of one row, which has a multiple of 8 columns.
 * TERMS that are not there are 0. */
template <int TERMS> struct product_columns {
    float x[TERMS][8];
};

/* Of a vector of the whole that the call is a slice of; 32 bits count those. Its row is returned.
 */
template <int TERMS>
static __device__ __forceinline__ uint32_t columns_load(struct product_columns<TERMS> &c,
                                                        const struct product_tensor &t,
                                                        enum dtype d, uint32_t vector)
{
    const uint32_t n_vectors = (uint32_t)(t.n_columns / UPDATE_VECTOR), row = vector / n_vectors;
#pragma unroll
    for (int term = 0; term < TERMS; term++) {
        struct raw8 r = {};
        if (term < t.n_terms)
            raw8_load(r, t.x, d,
                      term * t.n_columns + (vector - row * n_vectors) * (int64_t)UPDATE_VECTOR);
        raw8_unpack(c.x[term], r, d);
#pragma unroll
        for (int k = 0; k < 8; k++) /* kept so: the compiler would unpack them for every row */
            asm volatile("" : "+f"(c.x[term][k]));
    }
    return row;
}

/* Where the rows of dy begin. */
template <int TERMS> struct product_rows {
    const char *term[TERMS];
};

template <int TERMS, bool KEEP>
static __device__ __forceinline__ void rows_init(struct product_rows<TERMS> &rows,
                                                 const struct product_tensor &t, enum dtype d)
{
#pragma unroll
    for (int term = 0; term < TERMS; term++)
        rows.term[term] =
            keep_pointer<KEEP>((const char *)t.grad + term * t.n_rows * (d == DTYPE_F32 ? 4 : 2));
}

/* dy of one row as it lies in memory, so that nothing waits for it before it is used; 0 where there
 * is no such term. */
template <int TERMS> struct product_factors {
    uint32_t term[TERMS];
};

template <int TERMS>
static __device__ __forceinline__ void factors_load(struct product_factors<TERMS> &f,
                                                    const struct product_rows<TERMS> &rows,
                                                    int n_terms, enum dtype d, uint32_t row)
{
#pragma unroll
    for (int term = 0; term < TERMS; term++) {
        f.term[term] = 0;
        if (term >= n_terms)
            continue;
        if (d == DTYPE_F32)
            f.term[term] = ((const uint32_t *)rows.term[term])[row];
        else
            f.term[term] = ((const uint16_t *)rows.term[term])[row];
    }
}

static __device__ __forceinline__ float factor_value(uint32_t bits, enum dtype d)
{
    if (d == DTYPE_F16)
        return __half2float(__ushort_as_half((unsigned short)bits));
    return __uint_as_float(d == DTYPE_F32 ? bits : bits << 16);
}

template <int TERMS>
static __device__ __forceinline__ void
product8(float (&g)[8], const struct product_columns<TERMS> &c,
         const struct product_factors<TERMS> &f, enum dtype factors, enum dtype rounded)
{
#pragma unroll
    for (int term = 0; term < TERMS; term++) {
        const float dy = factor_value(f.term[term], factors);
#pragma unroll
        for (int k = 0; k < 8; k++)
            g[k] = term == 0 ? dy * c.x[0][k] : fmaf(dy, c.x[term][k], g[k]);
    }
    if (rounded != DTYPE_F32) {
        struct raw8 r;
        const uint32_t none[8] = {};
        raw8_pack(r, g, rounded, false, none);
        raw8_unpack(g, r, rounded);
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* The first of a warp's elements in one of the grid's tasks: strips of all strides that a block
 * goes down at once, then those of the next. -1: the strip ends before them. */
static __device__ __forceinline__ int64_t product_place(const struct product_tensor &t,
                                                        uint32_t task)
{
    const uint32_t band = task / (uint32_t)t.n_strips;
    /* so that the compiler knows it to be the same for all lanes */
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / WARP, 0);
    const int64_t in_stride =
        (task - band * (uint32_t)t.n_strips) * (int64_t)UPDATE_CHUNK + warp * DYNAMIC_BLOCK;
    return in_stride < t.stride ? band * (int64_t)t.n_steps * t.stride + in_stride : -1;
}

/* How many steps down from a block of codes on the warp has all its elements, in vectors. */
static __device__ __forceinline__ int product_whole_steps(const struct product_tensor &t,
                                                          uint32_t block)
{
    const uint32_t n_blocks = (uint32_t)(t.n_elems / DYNAMIC_BLOCK);
    if (block >= n_blocks)
        return 0;
    const uint32_t n = (n_blocks - 1 - block) / (uint32_t)(t.stride / DYNAMIC_BLOCK) + 1;
    return (int)min(n, (uint32_t)t.n_steps);
}

/* The tensor as a lane sees it whose vectors are the first of their blocks. */
template <bool KEEP>
static __device__ __forceinline__ struct product_tensor product_lane(struct product_tensor t,
                                                                     int n_bytes)
{
    const int at = (int)threadIdx.x % WARP * UPDATE_VECTOR;
    t.target = keep_pointer<KEEP>((char *)t.target + at * n_bytes);
    for (int s = 0; s < UPDATE_STATES; s++) {
        t.codes[s] = keep_pointer<KEEP>(t.codes[s] + at);
        t.absmax[s] = keep_pointer<KEEP>(t.absmax[s]);
    }
    t.first_element += at;
    return t;
}

static __device__ __forceinline__ struct update_place product_block(uint32_t block)
{
    return {0, block * (int64_t)DYNAMIC_BLOCK, UPDATE_VECTOR, true};
}

/* From a block of codes on n steps down, all of whose elements are there: what the next step begins
 * with is on the way during this one, and nothing is asked about any element. Places are counted in
 * blocks, so that each address is one product of 32 bits. */
template <typename RULE, typename DTYPES, int TERMS, dtype ROUNDED, typename TABLES>
static __device__ __forceinline__ void product_down(const struct update_args<RULE> &a,
                                                    const TABLES &tables, const RULE &rule,
                                                    uint32_t block, int n, int32_t step)
{
    constexpr bool KEEP = ROUNDED != DTYPE_NONE;
    const enum dtype d = DTYPES::grad(a.head.grad), target = DTYPES::target(a.head.target);
    const struct product_tensor t = product_lane<KEEP>(a.tensor[0], target == DTYPE_F32 ? 4 : 2);
    const enum dtype rounded = ROUNDED == DTYPE_NONE ? t.dtype : ROUNDED;
    const uint32_t down = (uint32_t)(t.stride / DYNAMIC_BLOCK);
    const int n_terms = ROUNDED == DTYPE_NONE ? t.n_terms : TERMS;
    struct coded_raw raw[2];
    struct product_columns<TERMS> columns;
    struct product_rows<TERMS> rows;
    struct product_factors<TERMS> factors[2];
    float g[8];
    coded_fetch<RULE, DTYPES>(raw[0], a.head, t, product_block(block));
    uint32_t row = columns_load<TERMS>(columns, t, d,
                                       (uint32_t)(t.first_element / UPDATE_VECTOR) + block * WARP);
    rows_init<TERMS, KEEP>(rows, t, d);
    factors_load<TERMS>(factors[0], rows, n_terms, d, row);
    for (int i = 0; i < n; i += 2) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (h == 1 && i + 1 == n)
                break;
            const struct update_place here = product_block(block);
            block += down;
            row += t.rows_down;
            if (i + h + 1 < n) {
                coded_fetch<RULE, DTYPES>(raw[1 - h], a.head, t, product_block(block));
                factors_load<TERMS>(factors[1 - h], rows, n_terms, d, row);
            }
            product8<TERMS>(g, columns, factors[h], d, rounded);
            coded_update8<RULE, DTYPES, true>(a.head, t, tables, rule, here, raw[h], g, step);
        }
    }
}

/* From a warp's place on n steps down, element by element. */
template <typename RULE, typename DTYPES, typename TABLES>
static __device__ __forceinline__ void product_down_slowly(const struct update_args<RULE> &a,
                                                           const TABLES &tables, const RULE &rule,
                                                           int64_t at, int n, int32_t step)
{
    const struct product_tensor &t = a.tensor[0];
#pragma unroll 1
    for (; n > 0 && at < t.n_elems; n--, at += t.stride) {
        struct update_place p = {};
        struct coded_raw raw;
        float g[8] = {};
        p.at = at + threadIdx.x % WARP * UPDATE_VECTOR;
        p.n_left = t.n_elems - p.at;
        coded_fetch<RULE, DTYPES>(raw, a.head, t, p);
        product_one_by_one(g, t, DTYPES::grad(a.head.grad), t.first_element + p.at, p.n_left);
        coded_update8<RULE, DTYPES, false>(a.head, t, tables, rule, p, raw, g, step);
    }
}

/* ROUNDED: what each element of the gradient is rounded to, which then has so many TERMS;
 * DTYPE_NONE: the tensor says both, and it has no more of them. */
template <typename RULE, typename DTYPES, int TERMS, dtype ROUNDED>
static __global__ void __launch_bounds__(UPDATE_THREADS, 2)
    product_kernel(__grid_constant__ const struct update_args<RULE> a)
{
#ifdef __CUDA_ARCH__
    extern __shared__ __align__(256) unsigned char coded_memory[];
    auto &tables = *reinterpret_cast<struct coded_tables<CODED_SPREAD> *>(coded_memory);
    __shared__ RULE shared_rule;
    if (*a.head.scale == 0.0f)
        return;
    const struct product_tensor &t = a.tensor[0];
    copy_maps(tables);
    RULE::share(&shared_rule, a.head);
    __syncthreads();
    const RULE rule = shared_rule;
    const int32_t step = *a.head.step;
    for (int64_t task = blockIdx.x; task < a.n_chunks; task += gridDim.x) {
        const int64_t at = product_place(t, (uint32_t)task);
        if (at < 0)
            continue;
        const uint32_t block = (uint32_t)(at / DYNAMIC_BLOCK);
        const int n_whole = a.head.vectors ? product_whole_steps(t, block) : 0;
        if (n_whole > 0)
            product_down<RULE, DTYPES, TERMS, ROUNDED>(a, tables, rule, block, n_whole, step);
        product_down_slowly<RULE, DTYPES>(a, tables, rule, at + n_whole * t.stride,
                                          t.n_steps - n_whole, step);
    }
#endif
}

/* ---- launches (host) ------------------------------------------------------------------------- */

/* Can factors be had as vectors, and kept? */
static bool product_aligned(const struct product_tensor *t)
{
    return t->n_terms <= PRODUCT_MOST_TERMS && is_aligned(t->x, 16) &&
           t->n_columns % UPDATE_VECTOR == 0 && t->first_element % UPDATE_VECTOR == 0 &&
           t->n_rows * t->n_columns / UPDATE_VECTOR <= UINT32_MAX;
}

template <typename RULE>
static update_launchable<RULE> pick_product(const struct update_head<typename RULE::attrs> &h,
                                            int n_terms, enum dtype rounded)
{
    using bf16 = known_dtypes<DTYPE_BF16, DTYPE_U8, DTYPE_BF16, DTYPE_NONE>;
    if (bf16::match(h) && rounded == DTYPE_BF16 && n_terms == 2)
        return product_kernel<RULE, bf16, 2, DTYPE_BF16>;
    if (bf16::match(h) && rounded == DTYPE_BF16 && n_terms == PRODUCT_MOST_TERMS)
        return product_kernel<RULE, bf16, PRODUCT_MOST_TERMS, DTYPE_BF16>;
    if (bf16::match(h))
        return product_kernel<RULE, bf16, PRODUCT_MOST_TERMS, DTYPE_NONE>;
    return product_kernel<RULE, product_dtypes, PRODUCT_MOST_TERMS, DTYPE_NONE>;
}

/* Rows of whole blocks, as many as make a stride worth its strips; so many steps down that every
 * block of the grid has several tasks, where there is enough to do. */
static void product_cut(struct product_tensor *t, int64_t n_blocks)
{
    int64_t unit = t->n_columns;
    while (unit % DYNAMIC_BLOCK != 0)
        unit *= 2;
    t->stride = unit * ceil_div(PRODUCT_LEAST_STRIDE, unit);
    t->rows_down = (uint32_t)(t->stride / t->n_columns);
    t->n_strips = (int32_t)ceil_div(t->stride, (int64_t)UPDATE_CHUNK);
    int64_t n_steps = t->n_elems / UPDATE_CHUNK / (4 * n_blocks) / 2 * 2; /* two are a round */
    t->n_steps = (int32_t)MIN(MAX(n_steps, (int64_t)2), (int64_t)PRODUCT_MOST_STEPS);
}

static void set_factors(struct product_tensor *t, const struct op_call *c, const struct tensor *x)
{
    const struct shape *dy = &c->in[1].shape;
    enum dtype dtype = (enum dtype)call_int(c, CODED_FACTOR_DTYPE);
    t->x = x->data;
    t->n_rows = shape_last(dy);
    t->n_columns = shape_last(&x->shape);
    t->n_terms = (int32_t)shape_rows(dy);
    t->dtype = dtype == DTYPE_NONE ? c->in[1].dtype : dtype;
    t->keys = rounding_keys_of(t->seed);
}

template <typename RULE>
static enum status product_launch(const struct kernel_ctx *x, const struct op_call *c,
                                  struct update_head<typename RULE::attrs> *h, float weight_decay)
{
    struct product_tensor t = {};
    struct update_args<RULE> a;
    size_t shared;
    int64_t n_blocks = 1;
    TRY(coded_call<RULE>(x, c, weight_decay, h, &t));
    if (t.n_elems == 0)
        return OK;
    set_factors(&t, c, &c->in[CODED_FACTOR]);
    h->vectors = h->vectors && product_aligned(&t);
    update_launchable<RULE> kernel = pick_product<RULE>(*h, t.n_terms, t.dtype);
    TRY(update_grid(x, reinterpret_cast<const void *>(kernel), coded_shared_bytes, &shared,
                    &n_blocks));
    product_cut(&t, n_blocks);
    memcpy((void *)&a.head, h, sizeof(*h));
    a.n_tensors = 1;
    a.n_chunks = (int32_t)(t.n_strips * ceil_div(t.n_elems, t.n_steps * t.stride));
    a.tensor[0] = t;
    kernel<<<grid_for(a.n_chunks, 1, n_blocks), UPDATE_THREADS, shared, cuda_stream(x)>>>(a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

#endif
