/* window_support.h: windows that slide over the spatial axes of activations [N, D1..Dr, C], where
 * r is 1, 2 or 3: what convolutions, pooling and resizing share.
 *
 * Kernels always see three axes: those that are not there come first and have one place. Place k of
 * the window of output o lies at o stride - pad_before + k dilation; what is outside of x is zero
 * (convolution), or not there (pooling).
 */
#ifndef SNUG_OPS_WINDOW_SUPPORT_H
#define SNUG_OPS_WINDOW_SUPPORT_H

#include "ops/layer_support.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WINDOW_AXES = 3,
    WINDOW_MOST = 1 << 30, /* of every size and attribute: products of two fit 64 bits */
    POOL_MOST = 255,       /* places of a maximum's window: their number is kept in 8 bits */
};

/* Attribute positions: ops with windows begin with the same three. */
enum { WINDOW_STRIDE, WINDOW_PAD_BEFORE, WINDOW_PAD_AFTER, WINDOW_N_ATTRS };
enum { CONV_DILATION = WINDOW_N_ATTRS, CONV_GROUPS, CONV_N_ATTRS };
enum { CONV_SIZE = CONV_N_ATTRS };               /* conv_grad_input */
enum { CONV_KERNEL = CONV_N_ATTRS, CONV_DTYPE }; /* conv_grad_weight */
enum { POOL_KERNEL = WINDOW_N_ATTRS, POOL_N_ATTRS };
enum { MAX_POOL_SIZE = POOL_N_ATTRS };                         /* max_pool_grad */
enum { AVG_POOL_COUNT_PADDING = POOL_N_ATTRS, AVG_POOL_SIZE }; /* the second: avg_pool_grad */
enum { RESIZE_LINEAR, RESIZE_SIZE };

#define WINDOW_ATTRS                                                                  \
    {.name = "stride", .type = ATTR_INTS}, {.name = "pad_before", .type = ATTR_INTS}, \
    {                                                                                 \
        .name = "pad_after", .type = ATTR_INTS                                        \
    }
#define CONV_ATTRS                                             \
    WINDOW_ATTRS, {.name = "dilation", .type = ATTR_INTS},     \
    {                                                          \
        .name = "groups", .type = ATTR_INT, .value = {.i = 1 } \
    }
#define POOL_ATTRS                                            \
    WINDOW_ATTRS,                                             \
    {                                                         \
        .name = "kernel", .type = ATTR_INTS, .required = true \
    }

struct window {
    int rank; /* spatial axes there are; they are the last of the three */
    int64_t batch;
    int64_t size[WINDOW_AXES]; /* of x */
    int64_t out[WINDOW_AXES];  /* of y */
    int64_t kernel[WINDOW_AXES], stride[WINDOW_AXES], dilation[WINDOW_AXES];
    int64_t pad_before[WINDOW_AXES], pad_after[WINDOW_AXES];
};

/* y = conv(x, w): x [N, D.., channels], w [features, K.., channels / groups], y [N, O.., features].
 */
struct conv_dims {
    struct window window;
    int64_t groups, channels, features;
};

/* ---- checks of inference --------------------------------------------------------------------- */

/* Input i is a float tensor [N, D1..Dr, C] without an empty axis. */
enum status need_spatial(const struct op_call *c, int i) MUST_CHECK;
/* Attribute i: a number from `least` for each of `rank` axes; or none, where it may be left out. */
enum status need_axes(const struct op_call *c, int i, int rank, int64_t least) MUST_CHECK;
/* conv, conv_grad_input, conv_grad_weight: the attributes, and that windows fit into x. x and w are
 * the shapes of what goes by these names; one of them is an output's. */
enum status need_conv(const struct op_call *c, int rank) MUST_CHECK;
/* max_pool, avg_pool and their gradients: the attributes, and that every window has a place in x.
 */
enum status need_pool(const struct op_call *c, int rank) MUST_CHECK;
/* Places of a window can be numbered in 8 bits. */
enum status need_few_places(const struct op_call *c, const struct window *w) MUST_CHECK;

/* ---- what accepted calls mean ---------------------------------------------------------------- */

struct conv_dims conv_dims_of(const struct op_call *c);
struct window pool_window(const struct op_call *c);
/* resize and adaptive_avg_pool, and their gradients: sizes alone. */
struct window resize_window(const struct op_call *c);
/* Their inference: the sizes that the other side has are the last attribute. */
enum status infer_resized(const struct op_call *c) MUST_CHECK;

/* [batch, sizes of the spatial axes, channels] */
struct shape spatial_shape(const struct window *w, const int64_t size[WINDOW_AXES],
                           int64_t channels);
int64_t window_places(const int64_t size[WINDOW_AXES]);

/* FLOPs of conv, conv_grad_input and conv_grad_weight. */
double conv_flops(const struct op_call *c);

/* ---- building -------------------------------------------------------------------------------- */

/* The gradients of a convolution with the given first CONV_N_ATTRS attributes; x and w are the
 * shapes of its operands. */
value_id build_conv_grad_input(struct builder *b, value_id dy, value_id w, const struct attr *attrs,
                               const struct shape *x);
value_id build_conv_grad_weight(struct builder *b, value_id x, value_id dy,
                                const struct attr *attrs, const struct shape *w);

/* The gradient op of a pool or of resize, node n: its attributes are n's, then the sizes of x. */
value_id build_pool_grad(struct builder *b, enum op_id op, const value_id *in, int n_in,
                         const struct node *n);

/* A transposed convolution, the gradient of a convolution used forward: x [N, D.., I],
 * w [I, K.., O / groups], y [N, S.., O] with S = (D - 1) stride - pad_before - pad_after
 * + (K - 1) dilation + 1 + out_pad. The arrays have an entry for each spatial axis there is, D1
 * first. */
struct conv_transpose {
    int64_t stride[WINDOW_AXES], pad_before[WINDOW_AXES], pad_after[WINDOW_AXES];
    int64_t dilation[WINDOW_AXES], out_pad[WINDOW_AXES];
    int64_t groups;
};
value_id build_conv_transpose(struct builder *b, value_id x, value_id w,
                              const struct conv_transpose *t);

/* ---- bins and taps --------------------------------------------------------------------------- */

/* Bin i of `out` over an axis of n: first .. last - 1, as in PyTorch; neighbours may overlap. */
static inline HOST_DEVICE int64_t adaptive_first(int64_t i, int64_t n, int64_t out)
{
    return i * n / out;
}
static inline HOST_DEVICE int64_t adaptive_last(int64_t i, int64_t n, int64_t out)
{
    return ((i + 1) * n + out - 1) / out;
}

/* Where output i of a resized axis reads: (1 - share) x[low] + share x[high], as in PyTorch with
 * align_corners = False. Positions are ratios of integers: nothing is rounded on the way. */
struct resize_tap {
    int64_t low, high;
    double share;
};

static inline HOST_DEVICE struct resize_tap resize_tap_of(int64_t i, int64_t n, int64_t out,
                                                          bool linear)
{
    struct resize_tap t = {i * n / out, i * n / out, 0.0};
    if (!linear)
        return t;
    int64_t at = (2 * i + 1) * n - out; /* in units of 1 / (2 out) */
    at = at < 0 ? 0 : at;
    t.low = at / (2 * out);
    t.high = t.low + 1 < n ? t.low + 1 : t.low;
    t.share = (double)(at - t.low * 2 * out) / (double)(2 * out);
    return t;
}

#ifdef __cplusplus
}
#endif
#endif
