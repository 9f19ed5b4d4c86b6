/* conv_plain.cu: each of the three ops as a product of matrices that are never made: a block makes
 * a tile of the result from tiles of its factors, whose elements it gathers.
 *
 *     forward        rows: places of y    terms: taps x channels    columns: features
 *     grad_input     rows: places of x    terms: taps x features    columns: channels
 *     grad_weight    rows: features       terms: places of y        columns: taps x channels
 *
 * What a row, a term or a column stands for is worked out once, by one thread, and kept in shared
 * memory: with it an element's address is a few additions away. The sums of a weight gradient are
 * long and its tiles few: terms are cut into bands, whose sums are added up afterwards
 * (support/columns.cuh). */
#include "device/cuda/convolution/conv_plain.cuh"
#include "device/cuda/declared/convolution.h"
#include "device/cuda/support/columns.cuh"

static constexpr int THREADS = 256, TILE = CONV_TILE, STEP = CONV_STEP;
static constexpr int SIDE = 4; /* a thread's part of the tile is SIDE x SIDE */
static_assert(TILE * TILE == THREADS * SIDE * SIDE, "the threads cover the tile");

/* ---- places ---------------------------------------------------------------------------------- */

/* A place of x or y, or a distance between two; `rest` is what comes with it: the sample of a
 * place, the channel or feature of a tap. */
struct place {
    int64_t rest, at[WINDOW_AXES];
};

static __device__ struct place place_of(int64_t i, const int64_t (&size)[WINDOW_AXES])
{
    struct place p;
#pragma unroll
    for (int axis = WINDOW_AXES - 1; axis >= 0; axis--) {
        p.at[axis] = i % size[axis];
        i /= size[axis];
    }
    p.rest = i;
    return p;
}

/* What all three read: the shape, the two factors, and the group that a block works on. */
template <typename T> struct factors {
    struct conv_dims d;
    const T *first, *second;
    int64_t group, in_group, out_group; /* channels and features of a group */
};

/* Element c of the group's channels of x, at place + step; 0 outside. */
template <typename T>
static __device__ __forceinline__ float gather_x(const struct factors<T> &f, const T *x,
                                                 const struct place &from, const struct place &step,
                                                 int64_t c)
{
    const struct window &w = f.d.window;
    int64_t at = from.rest;
#pragma unroll
    for (int axis = 0; axis < WINDOW_AXES; axis++) {
        const int64_t i = from.at[axis] + step.at[axis];
        if (i < 0 || i >= w.size[axis])
            return 0.0f;
        at = at * w.size[axis] + i;
    }
    return to_f32(x[at * f.d.channels + f.group * f.in_group + c]);
}

/* The first place of x in the window of output i. */
template <typename T>
static __device__ struct place window_start(const struct factors<T> &f, int64_t i)
{
    struct place p = place_of(i, f.d.window.out);
#pragma unroll
    for (int axis = 0; axis < WINDOW_AXES; axis++)
        p.at[axis] = p.at[axis] * f.d.window.stride[axis] - f.d.window.pad_before[axis];
    return p;
}

/* Tap i / n of the window as a distance, i % n as the rest. */
template <typename T>
static __device__ struct place tap_of(const struct factors<T> &f, int64_t i, int64_t n)
{
    struct place p = place_of(i / n, f.d.window.kernel);
#pragma unroll
    for (int axis = 0; axis < WINDOW_AXES; axis++)
        p.at[axis] *= f.d.window.dilation[axis];
    p.rest = i % n;
    return p;
}

/* ---- the three products ---------------------------------------------------------------------- */

/* a(row, term) and b(term, column) are the factors' elements; i_ is a row's, term's or column's
 * number. */
template <typename T> struct forward : factors<T> {
    __device__ struct place row(int64_t i) const
    {
        return window_start(*this, i);
    }
    __device__ struct place term(int64_t i) const
    {
        return tap_of(*this, i, this->in_group);
    }
    __device__ struct place column(int64_t) const
    {
        return {};
    }
    __device__ float a(const struct place &row, int64_t, const struct place &term, int64_t) const
    {
        return gather_x(*this, this->first, row, term, term.rest);
    }
    __device__ float b(const struct place &, int64_t i_term, const struct place &, int64_t i_column,
                       int64_t n_terms) const
    {
        const int64_t feature = this->group * this->out_group + i_column;
        return to_f32(this->second[feature * n_terms + i_term]);
    }
};

template <typename T> struct grad_input : factors<T> {
    __device__ struct place row(int64_t i) const
    {
        struct place p = place_of(i, this->d.window.size);
        for (int axis = 0; axis < WINDOW_AXES; axis++)
            p.at[axis] += this->d.window.pad_before[axis];
        return p;
    }
    __device__ struct place term(int64_t i) const
    {
        return tap_of(*this, i, this->out_group);
    }
    __device__ struct place column(int64_t) const
    {
        return {};
    }
    /* The output whose window has the row's place at this tap, if there is one. */
    __device__ float a(const struct place &row, int64_t, const struct place &term, int64_t) const
    {
        const struct window &w = this->d.window;
        int64_t at = row.rest;
#pragma unroll
        for (int axis = 0; axis < WINDOW_AXES; axis++) {
            const int64_t i = row.at[axis] - term.at[axis], stride = w.stride[axis];
            const int64_t out = stride == 1 ? i : i / stride;
            if (i < 0 || out * stride != i || out >= w.out[axis])
                return 0.0f;
            at = at * w.out[axis] + out;
        }
        const int64_t feature = this->group * this->out_group + term.rest;
        return to_f32(this->first[at * this->d.features + feature]);
    }
    __device__ float b(const struct place &term, int64_t i_term, const struct place &,
                       int64_t i_column, int64_t n_terms) const
    {
        const int64_t n_taps = n_terms / this->out_group, tap = i_term / this->out_group;
        const int64_t feature = this->group * this->out_group + term.rest;
        return to_f32(this->second[(feature * n_taps + tap) * this->in_group + i_column]);
    }
};

template <typename T> struct grad_weight : factors<T> {
    __device__ struct place row(int64_t) const
    {
        return {};
    }
    __device__ struct place term(int64_t i) const
    {
        return window_start(*this, i);
    }
    __device__ struct place column(int64_t i) const
    {
        return tap_of(*this, i, this->in_group);
    }
    __device__ float a(const struct place &, int64_t i_row, const struct place &,
                       int64_t i_term) const
    {
        const int64_t feature = this->group * this->out_group + i_row;
        return to_f32(this->second[i_term * this->d.features + feature]);
    }
    __device__ float b(const struct place &term, int64_t, const struct place &column, int64_t,
                       int64_t) const
    {
        return gather_x(*this, this->first, term, column, column.rest);
    }
};

/* ---- tiles ----------------------------------------------------------------------------------- */

/* The product of every group, and where it goes: element (i, j) of group g to
 * out[i * row_step + g * group_step + j], plus bias[g * group_step + j] and what `before` has
 * there. A band of a weight gradient goes to partial instead, its group's rows after each other's.
 */
template <typename T> struct outcome {
    T *out;
    const T *before, *bias; /* NULL: nothing is added */
    float *partial;         /* [n_bands, groups * m, n], or NULL */
    int64_t row_step, group_step;
};

struct tiling {
    int64_t m, n, k, groups, n_bands;
    int64_t tiles_m, tiles_n, band_terms;
};

/* A block's tile: its first row and column, its group and terms. */
struct tile {
    int64_t row, column, group, band, first_term, last_term;
};

static __device__ struct tile tile_of(const struct tiling &t, int64_t i)
{
    struct tile r;
    r.column = i % t.tiles_n * TILE;
    i /= t.tiles_n;
    r.row = i % t.tiles_m * TILE;
    i /= t.tiles_m;
    r.group = i % t.groups;
    r.band = i / t.groups;
    r.first_term = r.band * t.band_terms;
    r.last_term = min(r.first_term + t.band_terms, t.k);
    return r;
}

/* What lies in shared memory. */
struct shared_tile {
    struct place rows[TILE], columns[TILE], terms[STEP];
    float a[STEP][TILE + 1], b[STEP][TILE + 1];
};

template <class P>
static __device__ void load_step(struct shared_tile &s, const P &p, const struct tiling &t,
                                 const struct tile &at, int64_t first)
{
    for (int i = threadIdx.x; i < STEP && first + i < at.last_term; i += THREADS)
        s.terms[i] = p.term(first + i);
    __syncthreads();
    for (int i = threadIdx.x; i < STEP * TILE; i += THREADS) {
        const int step = i % STEP, line = i / STEP;
        const int64_t i_term = first + step, i_row = at.row + line, i_column = at.column + line;
        const bool is_term = i_term < at.last_term;
        s.a[step][line] =
            is_term && i_row < t.m ? p.a(s.rows[line], i_row, s.terms[step], i_term) : 0.0f;
        s.b[step][line] = is_term && i_column < t.n
                              ? p.b(s.terms[step], i_term, s.columns[line], i_column, t.k)
                              : 0.0f;
    }
    __syncthreads();
}

static __device__ __forceinline__ void multiply(float (&sum)[SIDE][SIDE],
                                                const struct shared_tile &s, int row, int column)
{
#pragma unroll
    for (int k = 0; k < STEP; k++) {
        float a[SIDE], b[SIDE];
#pragma unroll
        for (int i = 0; i < SIDE; i++) {
            a[i] = s.a[k][row + i * (TILE / SIDE)];
            b[i] = s.b[k][column + i * (TILE / SIDE)];
        }
#pragma unroll
        for (int i = 0; i < SIDE; i++) {
#pragma unroll
            for (int j = 0; j < SIDE; j++)
                sum[i][j] += a[i] * b[j];
        }
    }
}

template <typename C>
static __device__ void put(const struct outcome<C> &o, const struct tiling &t,
                           const struct tile &at, int64_t i, int64_t j, float z)
{
    if (o.partial) {
        const int64_t row = (at.band * t.groups + at.group) * t.m + i;
        o.partial[row * t.n + j] = z;
        return;
    }
    const int64_t column = at.group * o.group_step + j, to = i * o.row_step + column;
    if (o.bias)
        z += to_f32(o.bias[column]);
    if (o.before)
        z += to_f32(o.before[to]);
    o.out[to] = from_f32<C>(z);
}

template <class P, typename C>
static __global__ void __launch_bounds__(THREADS)
    tiles(P p, const struct tiling t, const struct outcome<C> o, int64_t n_tiles)
{
    __shared__ struct shared_tile s;
    const int row = threadIdx.x / (TILE / SIDE), column = threadIdx.x % (TILE / SIDE);
    for (int64_t i_tile = blockIdx.x; i_tile < n_tiles; i_tile += gridDim.x) {
        const struct tile at = tile_of(t, i_tile);
        float sum[SIDE][SIDE] = {};
        p.group = at.group;
        for (int i = threadIdx.x; i < TILE; i += THREADS) {
            s.rows[i] = p.row(min(at.row + i, t.m - 1));
            s.columns[i] = p.column(min(at.column + i, t.n - 1));
        }
        for (int64_t first = at.first_term; first < at.last_term; first += STEP) {
            load_step(s, p, t, at, first);
            multiply(sum, s, row, column);
            __syncthreads();
        }
        for (int i = 0; i < SIDE; i++) {
            for (int j = 0; j < SIDE; j++) {
                const int64_t m = at.row + row + i * (TILE / SIDE);
                const int64_t n = at.column + column + j * (TILE / SIDE);
                if (m < t.m && n < t.n)
                    put(o, t, at, m, n, sum[i][j]);
            }
        }
        __syncthreads();
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

static struct tiling tiling_of(const struct conv_shape *s, const struct gpu_model *gpu)
{
    struct conv_product p = conv_product_of(s);
    struct tiling t = {};
    t.m = p.m, t.n = p.n, t.k = p.k;
    t.groups = s->dims.groups;
    t.n_bands = conv_bands(s, gpu);
    t.tiles_m = ceil_div(p.m, TILE);
    t.tiles_n = ceil_div(p.n, TILE);
    t.band_terms = ceil_div(p.k, t.n_bands);
    return t;
}

template <template <typename> class P, typename T, typename C>
static void launch(const struct kernel_ctx *x, const struct op_call *c, const struct conv_shape *s,
                   const struct outcome<C> &o)
{
    struct tiling t = tiling_of(s, x->env.gpu);
    int64_t n_tiles = t.tiles_m * t.tiles_n * t.groups * t.n_bands;
    P<T> p = {};
    p.d = s->dims;
    p.first = (const T *)c->in[0].data;
    p.second = (const T *)c->in[1].data;
    p.in_group = s->dims.channels / s->dims.groups;
    p.out_group = s->dims.features / s->dims.groups;
    tiles<P<T>, C><<<grid_for(n_tiles, 1), THREADS, 0, cuda_stream(x)>>>(p, t, o, n_tiles);
}

template <typename T>
static void launch_places(const struct kernel_ctx *x, const struct op_call *c,
                          const struct conv_shape *s)
{
    bool is_forward = s->kind == CONV_FORWARD;
    const T *third = call_has(c, 2) ? (const T *)c->in[2].data : NULL;
    struct outcome<T> o = {
    };
    o.out = (T *)c->out[0].data;
    o.row_step = is_forward ? s->dims.features : s->dims.channels;
    o.group_step = o.row_step / s->dims.groups;
    o.bias = is_forward ? third : NULL;
    o.before = is_forward ? NULL : third;
    if (is_forward)
        launch<forward, T, T>(x, c, s, o);
    else
        launch<grad_input, T, T>(x, c, s, o);
}

template <typename T>
static enum status run_weight(const struct kernel_ctx *x, const struct op_call *c,
                              const struct conv_shape *s)
{
    struct outcome<float> o = {
    };
    o.partial = (float *)x->workspace;
    launch<grad_weight, T, float>(x, c, s, o);
    CUDA_TRY(cudaGetLastError());
    return columns_finish_run(x, &c->out[0], NULL, call_has(c, 2) ? &c->in[2] : NULL, o.partial, 1,
                              conv_bands(s, x->env.gpu), conv_w_elems(s), 1.0);
}

enum status conv_plain(const struct kernel_ctx *x, const struct op_call *c)
{
    struct conv_shape s = conv_shape_of(c);
    if (s.kind == CONV_GRAD_WEIGHT) {
        CUDA_DISPATCH_FLOAT(s.dtype, T, return run_weight<T>(x, c, &s));
    } else {
        CUDA_DISPATCH_FLOAT(s.dtype, T, launch_places<T>(x, c, &s));
    }
    CUDA_TRY(cudaGetLastError());
    return OK;
}
