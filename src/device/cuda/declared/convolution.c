#include "device/cuda/declared/convolution.h"

#include <stddef.h>

#include "base/compiler.h"
#include "device/cuda/declared/conv_parts.h"
#include "device/cuda/declared/declared.h"
#include "device/cuda/declared/sums.h"
#include "device/device.h"

/* ---- shapes ---------------------------------------------------------------------------------- */

/* x, dy and x are input 0, the bias or what is added to is input 2. */
struct conv_shape conv_shape_of(const struct op_call *c)
{
    enum conv_kind kind = c->op == OP_conv              ? CONV_FORWARD
                          : c->op == OP_conv_grad_input ? CONV_GRAD_INPUT
                                                        : CONV_GRAD_WEIGHT;
    return (struct conv_shape){.kind = kind,
                               .dtype = c->in[0].dtype,
                               .out_dtype = c->out[0].dtype,
                               .has_bias = kind == CONV_FORWARD && call_has(c, 2),
                               .adds = kind != CONV_FORWARD && call_has(c, 2),
                               .dims = conv_dims_of(c)};
}

static bool same_axes(const int64_t a[WINDOW_AXES], const int64_t b[WINDOW_AXES])
{
    return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}

static bool same_window(const struct window *a, const struct window *b)
{
    return a->rank == b->rank && a->batch == b->batch && same_axes(a->size, b->size) &&
           same_axes(a->out, b->out) && same_axes(a->kernel, b->kernel) &&
           same_axes(a->stride, b->stride) && same_axes(a->dilation, b->dilation) &&
           same_axes(a->pad_before, b->pad_before) && same_axes(a->pad_after, b->pad_after);
}

bool conv_shape_equal(const struct conv_shape *a, const struct conv_shape *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->out_dtype == b->out_dtype &&
           a->has_bias == b->has_bias && a->adds == b->adds && a->dims.groups == b->dims.groups &&
           a->dims.channels == b->dims.channels && a->dims.features == b->dims.features &&
           same_window(&a->dims.window, &b->dims.window);
}

int64_t conv_x_elems(const struct conv_shape *s)
{
    const struct window *w = &s->dims.window;
    return w->batch * window_places(w->size) * s->dims.channels;
}

int64_t conv_w_elems(const struct conv_shape *s)
{
    const struct conv_dims *d = &s->dims;
    return d->features * window_places(d->window.kernel) * (d->channels / d->groups);
}

int64_t conv_y_elems(const struct conv_shape *s)
{
    const struct window *w = &s->dims.window;
    return w->batch * window_places(w->out) * s->dims.features;
}

int64_t conv_out_bytes(const struct conv_shape *s)
{
    int64_t n = s->kind == CONV_FORWARD      ? conv_y_elems(s)
                : s->kind == CONV_GRAD_INPUT ? conv_x_elems(s)
                                             : conv_w_elems(s);
    return n * dtype_size(s->out_dtype);
}

bool conv_widens(const struct conv_shape *s)
{
    return s->kind == CONV_GRAD_WEIGHT && s->out_dtype == DTYPE_F32 && s->dtype != DTYPE_F32;
}

/* ---- cuDNN ----------------------------------------------------------------------------------- */

const char *conv_known_limit(const struct gpu_model *gpu, const struct conv_shape *s)
{
    if (s->dtype == DTYPE_BF16 && gpu->major < 8)
        return "needs compute capability 8.0 for bf16";
    if (conv_cut_of(s, CONV_MOST_ELEMS).n_parts == 0)
        return "a row of a sample has more elements than cuDNN counts";
    return NULL;
}

enum {
    ALLOWANCE_BASE = 4 << 20,
    ALLOWANCE_EXACT = 1 << 20, /* f32 weight gradients: engines that ask for more err by 1e-4 */
    ALLOWANCE_SPLIT = 64 << 20,
    ALLOWANCE_COPIES = 256 << 20
};

/* Bytes of a tensor whose channels are filled up to whole vectors, which is what engines want and
 * make copies for; 0: they have it already. */
static int64_t filled_bytes(int64_t n_elems, int64_t channels, int64_t size)
{
    int64_t vector = 16 / size, filled = ceil_div(channels, vector) * vector;
    return filled == channels ? 0 : n_elems / channels * filled * size;
}

/* What the largest of a call's parts has. */
static void largest_part(const struct conv_shape *s, int64_t *x_elems, int64_t *y_elems)
{
    const struct conv_cut cut = conv_cut_of(s, CONV_MOST_ELEMS);
    *x_elems = *y_elems = 0;
    for (int64_t i = 0; i < MIN(cut.n_slabs, cut.n_parts); i++) { /* samples are alike */
        const struct conv_part part = conv_part_of(s, &cut, i);
        *x_elems = MAX(*x_elems, conv_x_elems(&part.shape));
        *y_elems = MAX(*y_elems, conv_y_elems(&part.shape));
    }
}

int64_t conv_allowance(const struct gpu_model *gpu, const struct conv_shape *s)
{
    int64_t size = dtype_size(s->dtype), x_elems, y_elems;
    largest_part(s, &x_elems, &y_elems);
    bool exact = s->kind == CONV_GRAD_WEIGHT && s->dtype == DTYPE_F32;
    int64_t weights = conv_w_elems(s) * (int64_t)sizeof(float);
    int64_t n = weights + (exact ? ALLOWANCE_EXACT : ALLOWANCE_BASE);
    n += filled_bytes(x_elems, s->dims.channels, size);
    n += filled_bytes(y_elems, s->dims.features, size);
    /* Without tensor cores engines want channels first, and copy what has them last. For a weight
     * gradient that gains nothing. */
    if (s->dtype == DTYPE_F32 && !exact)
        n += MIN((x_elems + y_elems) * size, (int64_t)ALLOWANCE_COPIES);
    /* The sum over all places is split, with a result for each part. */
    if (s->kind == CONV_GRAD_WEIGHT)
        n += MIN(gpu->n_multiprocessors * weights, (int64_t)ALLOWANCE_SPLIT);
    return align_up(n, ARENA_ALIGN) + conv_aside_bytes(s);
}

int64_t conv_aside_bytes(const struct conv_shape *s)
{
    bool several = conv_cut_of(s, CONV_MOST_ELEMS).n_parts > 1;
    bool aside = s->kind == CONV_GRAD_WEIGHT && (s->adds || several || conv_widens(s));
    return aside ? align_up(conv_out_bytes(s), ARENA_ALIGN) : 0;
}

/* ---- the plain kernels ----------------------------------------------------------------------- */

struct conv_product conv_product_of(const struct conv_shape *s)
{
    const struct window *w = &s->dims.window;
    int64_t in = s->dims.channels / s->dims.groups, out = s->dims.features / s->dims.groups;
    int64_t taps = window_places(w->kernel);
    switch (s->kind) {
    case CONV_FORWARD:
        return (struct conv_product){w->batch * window_places(w->out), out, taps * in};
    case CONV_GRAD_INPUT:
        return (struct conv_product){w->batch * window_places(w->size), in, taps * out};
    default:
        return (struct conv_product){out, taps * in, w->batch * window_places(w->out)};
    }
}

int64_t conv_bands(const struct conv_shape *s, const struct gpu_model *gpu)
{
    struct conv_product p = conv_product_of(s);
    int64_t tiles = ceil_div(p.m, CONV_TILE) * ceil_div(p.n, CONV_TILE) * s->dims.groups;
    int64_t bytes = conv_w_elems(s) * (int64_t)sizeof(float);
    if (s->kind != CONV_GRAD_WEIGHT || tiles == 0)
        return 1;
    int64_t full = gpu->n_multiprocessors, want = MIN(ceil_div(4 * full, tiles), full);
    int64_t n = MIN(MIN(want, p.k / (8 * CONV_STEP)), ALLOWANCE_SPLIT / MAX(bytes, (int64_t)1));
    return MAX(n, (int64_t)1);
}

/* ---- few terms ------------------------------------------------------------------------------- */

enum { FEW_TERMS = 32, FEW_CHANNELS = 4, FEW_FEATURES = 1024, FEW_WEIGHTS = 1 << 13 };

const char *cuda_conv_few_declines(const struct op_call *c, const struct kernel_env *env)
{
    const struct conv_dims d = conv_dims_of(c);
    int64_t terms = window_places(d.window.kernel) * d.channels;
    int64_t line = MAX(d.window.size[2] * d.channels, d.window.out[2] * d.features);
    if (d.groups != 1 || d.channels > FEW_CHANNELS || terms > FEW_TERMS)
        return "is for few terms";
    if (d.features > FEW_FEATURES || terms * d.features > FEW_WEIGHTS)
        return "is for weights that fit into shared memory";
    for (int a = 0; a < WINDOW_AXES; a++) {
        const struct window *w = &d.window;
        int64_t reach = w->out[a] * w->stride[a] + w->kernel[a] * w->dilation[a];
        if (reach > INT32_MAX || w->size[a] > INT32_MAX || line > INT32_MAX)
            return "is for rows that 32 bits can count";
    }
    return cuda_declines_f64(c, env);
}

/* ---- declarations ---------------------------------------------------------------------------- */

const char *cuda_conv_cudnn_declines(const struct op_call *c, const struct kernel_env *env)
{
    const char *why = cuda_declines_f64(c, env);
    if (why)
        return why;
    if (!env->gpu)
        return "there is no cuDNN without a GPU";
    struct conv_shape s = conv_shape_of(c);
    why = conv_known_limit(env->gpu, &s);
    return why ? why : env->gpu->answers->convolution_declines(env, &s);
}

int64_t cuda_conv_cudnn_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct conv_shape s = conv_shape_of(c);
    return conv_allowance(env->gpu, &s);
}

int64_t cuda_conv_plain_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct conv_shape s = conv_shape_of(c);
    return conv_bands(&s, env->gpu) * conv_w_elems(&s) * (int64_t)sizeof(float);
}
