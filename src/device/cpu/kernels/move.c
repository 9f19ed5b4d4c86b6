/* move.c: ops that move elements without computing: cast, reshape, slices, concat, broadcast, iota,
 * transpose. All but cast copy bytes, whatever the dtype. */
#include <string.h>

#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"
#include "device/geometry.h"

/* ---- cast ----------------------------------------------------------------------------------- */

static const char *cast_declines(const struct op_call *c, const struct kernel_env *env)
{
    return dtype_is_float(c->in[0].dtype) ? cpu_declines_f64(c, env) : "takes floats only";
}

static void cast_block(const void *job, int64_t at, int64_t size)
{
    const struct op_call *c = job;
    float buffer[CPU_BLOCK];
    const float *from = block_read(&c->in[0], at, size, buffer);
    cpu_store_f32(c->out[0].data, c->out[0].dtype, at, from, size);
}

static enum status cast_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    cpu_each_block(x, shape_elems(&c->out[0].shape), cast_block, c);
    return OK;
}

static enum status cast_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++)
        ref_set(&c->out[0], i, ref_get(&c->in[0], i));
    return OK;
}

/* ---- runs: slices, concat and broadcast copy pieces of contiguous bytes ---------------------- */

/* n pieces of n_bytes, from src at every src_step bytes to dst at every dst_step bytes. */
struct runs {
    char *dst;
    const char *src;
    int64_t n, n_bytes, dst_step, src_step;
};

static void copy_some(const void *job, int64_t first, int64_t last, int thread)
{
    const struct runs *r = job;
    (void)thread;
    for (int64_t i = first; i < last; i++)
        memcpy(r->dst + i * r->dst_step, r->src + i * r->src_step, (size_t)r->n_bytes);
}

static void copy_runs(const struct kernel_ctx *x, const struct runs *r)
{
    cpu_loop(x, r->n, r->n_bytes / (int64_t)sizeof(float), copy_some, r);
}

/* Bytes of one index along `axis` (everything to its right). */
static int64_t stride_bytes(const struct tensor *t, int64_t axis)
{
    return shape_inner(&t->shape, (int)axis + 1) * dtype_size(t->dtype);
}

static int64_t axis_bytes(const struct tensor *t, int64_t axis)
{
    return t->shape.dim[axis] * stride_bytes(t, axis);
}

static enum status slice_runs(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct tensor *in = &c->in[0], *out = &c->out[0];
    int64_t axis = call_int(c, 0);
    struct runs r = {
        .dst = (char *)out->data,
        .src = (const char *)in->data + call_int(c, 1) * stride_bytes(in, axis),
        .n = shape_outer(&in->shape, (int)axis),
        .n_bytes = axis_bytes(out, axis),
        .dst_step = axis_bytes(out, axis),
        .src_step = axis_bytes(in, axis),
    };
    copy_runs(x, &r);
    return OK;
}

static void slice_grad_some(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    const struct tensor *in = &c->in[0], *out = &c->out[0];
    int64_t axis = call_int(c, 0), before = call_int(c, 1) * stride_bytes(out, axis);
    int64_t length = axis_bytes(in, axis), whole = axis_bytes(out, axis);
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        char *to = (char *)out->data + i * whole;
        memset(to, 0, (size_t)before);
        memcpy(to + before, (const char *)in->data + i * length, (size_t)length);
        memset(to + before + length, 0, (size_t)(whole - before - length));
    }
}

static enum status slice_grad_runs(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t axis = call_int(c, 0), whole = axis_bytes(&c->out[0], axis);
    cpu_loop(x, shape_outer(&c->in[0].shape, (int)axis), whole / (int64_t)sizeof(float),
             slice_grad_some, c);
    return OK;
}

static enum status concat_runs(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct tensor *out = &c->out[0];
    int64_t axis = call_int(c, 0), start = 0;
    for (int i = 0; i < c->n_in; i++) {
        const struct tensor *in = &c->in[i];
        struct runs r = {
            .dst = (char *)out->data + start,
            .src = (const char *)in->data,
            .n = shape_outer(&in->shape, (int)axis),
            .n_bytes = axis_bytes(in, axis),
            .dst_step = axis_bytes(out, axis),
            .src_step = axis_bytes(in, axis),
        };
        copy_runs(x, &r);
        start += axis_bytes(in, axis);
    }
    return OK;
}

/* A short x is first repeated at the head of the output until copying that is worth a call. */
static enum status broadcast_runs(const struct kernel_ctx *x, const struct op_call *c)
{
    enum { LONG_ENOUGH = 4096 };
    char *dst = c->out[0].data;
    int64_t total = tensor_bytes(&c->out[0]), unit = tensor_bytes(&c->in[0]);
    memcpy(dst, c->in[0].data, (size_t)unit);
    while (unit < LONG_ENOUGH && 2 * unit <= total) {
        memcpy(dst + unit, dst, (size_t)unit);
        unit *= 2;
    }
    struct runs r = {
        .dst = dst + unit, .src = dst, .n = total / unit - 1, .n_bytes = unit, .dst_step = unit};
    copy_runs(x, &r);
    memcpy(dst + total / unit * unit, dst, (size_t)(total % unit));
    return OK;
}

/* ---- references: one element at a time, by index --------------------------------------------- */

static void copy_element(const struct tensor *to, int64_t at, const struct tensor *from, int64_t i)
{
    int64_t size = dtype_size(to->dtype);
    memcpy((char *)to->data + at * size, (const char *)from->data + i * size, (size_t)size);
}

static void index_of(const struct shape *s, int64_t i, int64_t index[MAX_RANK])
{
    for (int a = s->rank - 1; a >= 0; a--) {
        index[a] = i % s->dim[a];
        i /= s->dim[a];
    }
}

static int64_t element_at(const struct shape *s, const int64_t index[MAX_RANK])
{
    int64_t i = 0;
    for (int a = 0; a < s->rank; a++)
        i = i * s->dim[a] + index[a];
    return i;
}

static enum status reshape_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    if (c->out[0].data != c->in[0].data)
        memcpy(c->out[0].data, c->in[0].data, (size_t)tensor_bytes(&c->in[0]));
    return OK;
}

static enum status slice_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t index[MAX_RANK];
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        index_of(&c->out[0].shape, i, index);
        index[call_int(c, 0)] += call_int(c, 1);
        copy_element(&c->out[0], i, &c->in[0], element_at(&c->in[0].shape, index));
    }
    return OK;
}

static enum status slice_grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t index[MAX_RANK];
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++)
        ref_set(&c->out[0], i, 0.0);
    for (int64_t i = 0; i < shape_elems(&c->in[0].shape); i++) {
        index_of(&c->in[0].shape, i, index);
        index[call_int(c, 0)] += call_int(c, 1);
        copy_element(&c->out[0], element_at(&c->out[0].shape, index), &c->in[0], i);
    }
    return OK;
}

static enum status concat_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t index[MAX_RANK], axis = call_int(c, 0), start = 0;
    for (int k = 0; k < c->n_in; k++) {
        for (int64_t i = 0; i < shape_elems(&c->in[k].shape); i++) {
            index_of(&c->in[k].shape, i, index);
            index[axis] += start;
            copy_element(&c->out[0], element_at(&c->out[0].shape, index), &c->in[k], i);
        }
        start += c->in[k].shape.dim[axis];
    }
    return OK;
}

static enum status broadcast_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t n = shape_elems(&c->in[0].shape);
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++)
        copy_element(&c->out[0], i, &c->in[0], i % n);
    return OK;
}

static enum status iota_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int32_t *y = c->out[0].data;
    for (int64_t i = 0; i < call_int(c, 0); i++)
        y[i] = (int32_t)(call_int(c, 1) + i);
    return OK;
}

static enum status transpose_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t to[MAX_RANK], from[MAX_RANK] = {0};
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        index_of(&c->out[0].shape, i, to);
        for (int a = 0; a < c->out[0].shape.rank; a++)
            from[c->attrs[0].ints[a]] = to[a];
        copy_element(&c->out[0], i, &c->in[0], element_at(&c->in[0].shape, from));
    }
    return OK;
}

/* ---- transpose ------------------------------------------------------------------------------- */

/* Source offset of the i-th index over axes [0, n_axes), row-major, in elements. */
static int64_t src_offset(const struct permutation *p, int n_axes, int skip, int64_t i)
{
    int64_t offset = 0;
    for (int a = n_axes - 1; a >= 0; a--) {
        if (a == skip)
            continue;
        offset += i % p->dim[a] * p->src_step[a];
        i /= p->dim[a];
    }
    return offset;
}

/* Where the source's last axis went (move_planes). */
struct planes {
    int fast;
    int64_t dst_step, below, n_bands;
};

struct move {
    struct permutation p;
    char *dst;
    const char *src;
    int64_t size; /* of an element, in bytes */
    struct planes planes;
};

static void move_some_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct move *m = job;
    int inner = m->p.rank - 1;
    int64_t n_bytes = m->p.dim[inner] * m->size;
    (void)thread;
    for (int64_t i = first; i < last; i++)
        memcpy(m->dst + i * n_bytes, m->src + src_offset(&m->p, inner, -1, i) * m->size,
               (size_t)n_bytes);
}

/* The last axis stays last: whole rows move ([B, T, H, D] <-> [B, H, T, D]). */
static void move_rows(const struct kernel_ctx *x, const struct move *m)
{
    int64_t n_rows = 1;
    for (int a = 0; a < m->p.rank - 1; a++)
        n_rows *= m->p.dim[a];
    cpu_loop(x, n_rows, m->p.dim[m->p.rank - 1] * m->size / (int64_t)sizeof(float), move_some_rows,
             m);
}

enum { TILE = 32 };

/* One tile of n_rows x n_columns of the output: dst rows are dst_step apart, and src columns are
 * src_step apart while its rows are contiguous. */
#define TILE_FUNCTION(type)                                                                 \
    static void tile_##type(type *restrict dst, int64_t dst_step, const type *restrict src, \
                            int64_t src_step, int64_t n_rows, int64_t n_columns)            \
    {                                                                                       \
        for (int64_t r = 0; r < n_rows; r++) {                                              \
            for (int64_t k = 0; k < n_columns; k++)                                         \
                dst[r * dst_step + k] = src[k * src_step + r];                              \
        }                                                                                   \
    }
TILE_FUNCTION(uint8_t)
TILE_FUNCTION(uint16_t)
TILE_FUNCTION(uint32_t)
TILE_FUNCTION(uint64_t)
#undef TILE_FUNCTION

static void move_tile(char *dst, int64_t dst_step, const char *src, int64_t src_step,
                      const int64_t extent[2], int64_t size)
{
    if (size == 4)
        tile_uint32_t((void *)dst, dst_step, (const void *)src, src_step, extent[0], extent[1]);
    else if (size == 2)
        tile_uint16_t((void *)dst, dst_step, (const void *)src, src_step, extent[0], extent[1]);
    else if (size == 8)
        tile_uint64_t((void *)dst, dst_step, (const void *)src, src_step, extent[0], extent[1]);
    else
        tile_uint8_t((void *)dst, dst_step, (const void *)src, src_step, extent[0], extent[1]);
}

/* Bands of TILE rows of the output's planes. */
static void move_bands(const void *job, int64_t first, int64_t last, int thread)
{
    const struct move *m = job;
    const struct permutation *p = &m->p;
    const struct planes *o = &m->planes;
    int columns = p->rank - 1;
    int64_t n_rows = p->dim[o->fast], n_columns = p->dim[columns], step = p->src_step[columns];
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t plane = i / o->n_bands, row = i % o->n_bands * TILE;
        int64_t above = plane / o->below * n_rows * o->dst_step;
        int64_t to = above + plane % o->below * n_columns + row * o->dst_step;
        const char *from = m->src + (src_offset(p, columns, o->fast, plane) + row) * m->size;
        for (int64_t column = 0; column < n_columns; column += TILE) {
            const int64_t extent[2] = {MIN((int64_t)TILE, n_rows - row),
                                       MIN((int64_t)TILE, n_columns - column)};
            move_tile(m->dst + (to + column) * m->size, o->dst_step, from + column * step * m->size,
                      step, extent, m->size);
        }
    }
}

/* The source's last axis is the output's axis `fast`: that axis and the output's last one make a
 * plane, which is transposed tile by tile; the other axes count planes. */
static void move_planes(const struct kernel_ctx *x, struct move *m)
{
    const struct permutation *p = &m->p;
    int fast = 0, last = p->rank - 1;
    while (p->src_step[fast] != 1)
        fast++;
    int64_t dst_step = 1, below = 1, n_planes = 1;
    for (int a = last; a > fast; a--)
        dst_step *= p->dim[a];
    for (int a = last - 1; a > fast; a--)
        below *= p->dim[a];
    for (int a = 0; a < last; a++)
        n_planes *= a == fast ? 1 : p->dim[a];
    int64_t n_bands = (p->dim[fast] + TILE - 1) / TILE;
    m->planes = (struct planes){fast, dst_step, below, n_bands};
    cpu_loop(x, n_planes * n_bands, MIN((int64_t)TILE, p->dim[fast]) * p->dim[last], move_bands, m);
}

static enum status transpose_tiled(const struct kernel_ctx *x, const struct op_call *c)
{
    struct move m = {.p = transpose_simplified(c),
                     .dst = c->out[0].data,
                     .src = c->in[0].data,
                     .size = dtype_size(c->in[0].dtype)};
    if (m.p.rank <= 1)
        memcpy(m.dst, m.src, (size_t)tensor_bytes(&c->in[0]));
    else if (m.p.src_step[m.p.rank - 1] == 1)
        move_rows(x, &m);
    else
        move_planes(x, &m);
    return OK;
}

/* ---- lists ---------------------------------------------------------------------------------- */

const struct kernel cpu_kernels_cast[] = {
    {"blocked", cast_declines, NULL, cast_blocked},
    {"reference", NULL, NULL, cast_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_reshape[] = {
    {"reference", NULL, NULL, reshape_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_transpose[] = {
    {"tiled", NULL, NULL, transpose_tiled},
    {"reference", NULL, NULL, transpose_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_slice[] = {
    {"runs", NULL, NULL, slice_runs},
    {"reference", NULL, NULL, slice_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_slice_grad[] = {
    {"runs", NULL, NULL, slice_grad_runs},
    {"reference", NULL, NULL, slice_grad_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_concat[] = {
    {"runs", NULL, NULL, concat_runs},
    {"reference", NULL, NULL, concat_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_broadcast[] = {
    {"runs", NULL, NULL, broadcast_runs},
    {"reference", NULL, NULL, broadcast_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_iota[] = {
    {"reference", NULL, NULL, iota_reference},
    KERNEL_END,
};
