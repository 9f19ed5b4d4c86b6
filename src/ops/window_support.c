#include "ops/window_support.h"

/* ---- checks ---------------------------------------------------------------------------------- */

enum status need_spatial(const struct op_call *c, int i)
{
    const struct shape *s = &c->in[i].shape;
    TRY(need_float(c, i));
    if (s->rank < 3 || s->rank > WINDOW_AXES + 2)
        return REJECT(c, "input %d must have 1 to 3 axes between the first and the last, not %d", i,
                      s->rank - 2);
    for (int k = 0; k < s->rank; k++) {
        if (s->dim[k] < 1 || s->dim[k] > WINDOW_MOST)
            return REJECT(c, "input %d: axis %d is %lld long; it may be 1 to %d", i, k,
                          (long long)s->dim[k], WINDOW_MOST);
    }
    return OK;
}

enum status need_axes(const struct op_call *c, int i, int rank, int64_t least)
{
    const struct attr_def *def = &op_get(c->op)->attrs[i];
    const struct attr *a = &c->attrs[i];
    if (a->n_ints != rank && (def->required || a->n_ints != 0))
        return REJECT(c, "%s has %d entries for %d axes", def->name, a->n_ints, rank);
    for (int k = 0; k < a->n_ints; k++) {
        if (a->ints[k] < least || a->ints[k] > WINDOW_MOST)
            return REJECT(c, "%s is %lld; it may be %lld to %d", def->name, (long long)a->ints[k],
                          (long long)least, WINDOW_MOST);
    }
    return OK;
}

static enum status need_window_attrs(const struct op_call *c, int rank)
{
    TRY(need_axes(c, WINDOW_STRIDE, rank, 1));
    TRY(need_axes(c, WINDOW_PAD_BEFORE, rank, 0));
    return need_axes(c, WINDOW_PAD_AFTER, rank, 0);
}

static int64_t extent(const struct window *w, int axis)
{
    return (w->kernel[axis] - 1) * w->dilation[axis] + 1;
}

static enum status need_windows_inside(const struct op_call *c, const struct window *w)
{
    for (int k = 0; k < WINDOW_AXES; k++) {
        int64_t padded = w->size[k] + w->pad_before[k] + w->pad_after[k];
        if (extent(w, k) > padded)
            return REJECT(c, "a window of %lld does not fit an axis of %lld with its padding",
                          (long long)extent(w, k), (long long)padded);
    }
    return OK;
}

/* w, input i, has `rank` spatial axes. */
static enum status need_kernel(const struct op_call *c, int i, int rank)
{
    TRY(need_spatial(c, i));
    return need_rank(c, i, rank + 2);
}

enum status need_conv(const struct op_call *c, int rank)
{
    TRY(need_window_attrs(c, rank));
    TRY(need_axes(c, CONV_DILATION, rank, 1));
    if (call_int(c, CONV_GROUPS) < 1 || call_int(c, CONV_GROUPS) > WINDOW_MOST)
        return REJECT(c, "groups is %lld; it must be positive",
                      (long long)call_int(c, CONV_GROUPS));
    if (c->op == OP_conv_grad_input)
        TRY(need_axes(c, CONV_SIZE, rank, 1));
    if (c->op == OP_conv_grad_weight)
        TRY(need_axes(c, CONV_KERNEL, rank, 1));
    else
        TRY(need_kernel(c, 1, rank));
    struct conv_dims d = conv_dims_of(c);
    if (d.channels % d.groups != 0 || d.features % d.groups != 0)
        return REJECT(c, "%lld channels to %lld features cannot be cut into %lld groups",
                      (long long)d.channels, (long long)d.features, (long long)d.groups);
    return need_windows_inside(c, &d.window);
}

enum status need_pool(const struct op_call *c, int rank)
{
    TRY(need_window_attrs(c, rank));
    TRY(need_axes(c, POOL_KERNEL, rank, 1));
    struct window w = pool_window(c);
    TRY(need_windows_inside(c, &w));
    for (int k = 0; k < WINDOW_AXES; k++) {
        if (MAX(w.pad_before[k], w.pad_after[k]) >= w.kernel[k])
            return REJECT(c, "padding of %lld and %lld leaves windows of %lld without an element",
                          (long long)w.pad_before[k], (long long)w.pad_after[k],
                          (long long)w.kernel[k]);
    }
    return OK;
}

enum status need_few_places(const struct op_call *c, const struct window *w)
{
    int64_t places = 1;
    for (int k = 0; k < WINDOW_AXES; k++) {
        places *= w->kernel[k];
        if (places > POOL_MOST)
            return REJECT(c, "a window may have %d places", POOL_MOST);
    }
    return OK;
}

/* ---- geometry -------------------------------------------------------------------------------- */

/* The entries of an attribute for the axes there are; `otherwise` for those that are not, and where
 * it was left out. */
static void set_from_attr(int64_t to[WINDOW_AXES], const struct attr *a, int rank,
                          int64_t otherwise)
{
    int absent = WINDOW_AXES - rank;
    for (int k = 0; k < WINDOW_AXES; k++)
        to[k] = k >= absent && a && a->n_ints == rank ? a->ints[k - absent] : otherwise;
}

static void set_from_shape(int64_t to[WINDOW_AXES], const struct shape *s, int rank)
{
    int absent = WINDOW_AXES - rank;
    for (int k = 0; k < WINDOW_AXES; k++)
        to[k] = k >= absent ? s->dim[1 + k - absent] : 1;
}

static void set_out(struct window *w)
{
    for (int k = 0; k < WINDOW_AXES; k++)
        w->out[k] =
            (w->size[k] + w->pad_before[k] + w->pad_after[k] - extent(w, k)) / w->stride[k] + 1;
}

static struct window window_of(const struct op_call *c)
{
    int rank = c->in[0].shape.rank - 2;
    struct window w = {.rank = rank, .batch = c->in[0].shape.dim[0]};
    set_from_attr(w.stride, &c->attrs[WINDOW_STRIDE], rank, 1);
    set_from_attr(w.pad_before, &c->attrs[WINDOW_PAD_BEFORE], rank, 0);
    set_from_attr(w.pad_after, &c->attrs[WINDOW_PAD_AFTER], rank, 0);
    set_from_attr(w.dilation, NULL, rank, 1);
    return w;
}

struct conv_dims conv_dims_of(const struct op_call *c)
{
    struct conv_dims d = {.window = window_of(c), .groups = call_int(c, CONV_GROUPS)};
    struct window *w = &d.window;
    const struct shape *first = &c->in[0].shape, *second = &c->in[1].shape;
    set_from_attr(w->dilation, &c->attrs[CONV_DILATION], w->rank, 1);
    if (c->op == OP_conv_grad_input)
        set_from_attr(w->size, &c->attrs[CONV_SIZE], w->rank, 1);
    else
        set_from_shape(w->size, first, w->rank);
    if (c->op == OP_conv_grad_weight)
        set_from_attr(w->kernel, &c->attrs[CONV_KERNEL], w->rank, 1);
    else
        set_from_shape(w->kernel, second, w->rank);
    d.features = c->op == OP_conv_grad_weight ? shape_last(second) : second->dim[0];
    d.channels = c->op == OP_conv_grad_input ? shape_last(second) * d.groups : shape_last(first);
    set_out(w);
    return d;
}

/* What the op's gradient is told by its last attribute, `size`: the sizes of x. */
static void set_size(struct window *w, const struct op_call *c, bool is_grad)
{
    if (is_grad)
        set_from_attr(w->size, &c->attrs[op_get(c->op)->n_attrs - 1], w->rank, 1);
    else
        set_from_shape(w->size, &c->in[0].shape, w->rank);
}

struct window pool_window(const struct op_call *c)
{
    struct window w = window_of(c);
    set_from_attr(w.kernel, &c->attrs[POOL_KERNEL], w.rank, 1);
    set_size(&w, c, c->op == OP_max_pool_grad || c->op == OP_avg_pool_grad);
    set_out(&w);
    return w;
}

static bool is_resize_grad(const struct op_call *c)
{
    return c->op == OP_resize_grad || c->op == OP_adaptive_avg_pool_grad;
}

struct window resize_window(const struct op_call *c)
{
    int rank = c->in[0].shape.rank - 2;
    struct window w = {.rank = rank, .batch = c->in[0].shape.dim[0]};
    set_size(&w, c, is_resize_grad(c));
    if (is_resize_grad(c))
        set_from_shape(w.out, &c->in[0].shape, rank);
    else
        set_from_attr(w.out, &c->attrs[op_get(c->op)->n_attrs - 1], rank, 1);
    return w;
}

struct shape spatial_shape(const struct window *w, const int64_t size[WINDOW_AXES],
                           int64_t channels)
{
    struct shape s = {.rank = w->rank + 2};
    s.dim[0] = w->batch;
    for (int k = 0; k < w->rank; k++)
        s.dim[1 + k] = size[WINDOW_AXES - w->rank + k];
    s.dim[s.rank - 1] = channels;
    return s;
}

enum status infer_resized(const struct op_call *c)
{
    TRY(need_spatial(c, 0));
    TRY(need_axes(c, op_get(c->op)->n_attrs - 1, c->in[0].shape.rank - 2, 1));
    struct window w = resize_window(c);
    const int64_t *size = is_resize_grad(c) ? w.size : w.out;
    out_set(c, 0, c->in[0].dtype, spatial_shape(&w, size, shape_last(&c->in[0].shape)));
    return OK;
}

int64_t window_places(const int64_t size[WINDOW_AXES])
{
    return size[0] * size[1] * size[2];
}

/* A multiplication and an addition for each weight at each output. */
double conv_flops(const struct op_call *c)
{
    struct conv_dims d = conv_dims_of(c);
    return 2.0 * (double)d.window.batch * (double)window_places(d.window.out) *
           (double)window_places(d.window.kernel) * (double)d.features * (double)d.channels /
           (double)d.groups;
}

/* ---- building -------------------------------------------------------------------------------- */

/* A spatial axis of the gradient's own attribute for each of those of s. */
static void add_sizes(struct attr *a, const struct shape *s)
{
    a->n_ints = s->rank - 2;
    for (int k = 0; k < a->n_ints; k++)
        a->ints[k] = s->dim[1 + k];
}

value_id build_conv_grad_input(struct builder *b, value_id dy, value_id w, const struct attr *attrs,
                               const struct shape *x)
{
    struct attr own[CONV_SIZE + 1] = {{0}};
    memcpy(own, attrs, CONV_N_ATTRS * sizeof(*attrs));
    add_sizes(&own[CONV_SIZE], x);
    return build_with(b, OP_conv_grad_input, IN(dy, w), own);
}

value_id build_conv_grad_weight(struct builder *b, value_id x, value_id dy,
                                const struct attr *attrs, const struct shape *w)
{
    struct attr own[CONV_DTYPE + 1] = {{0}};
    memcpy(own, attrs, CONV_N_ATTRS * sizeof(*attrs));
    add_sizes(&own[CONV_KERNEL], w);
    own[CONV_DTYPE].i = DTYPE_NONE;
    return build_with(b, OP_conv_grad_weight, IN(x, dy), own);
}

value_id build_pool_grad(struct builder *b, enum op_id op, const value_id *in, int n_in,
                         const struct node *n)
{
    enum { MOST = AVG_POOL_SIZE + 1 };
    struct attr own[MOST] = {{0}};
    int n_attrs = op_get(op)->n_attrs;
    BUG_ON(n_attrs > MOST);
    memcpy(own, n->attrs, (size_t)(n_attrs - 1) * sizeof(*own));
    add_sizes(&own[n_attrs - 1], build_shape(b, n->in[0]));
    return build_with(b, op, in, n_in, own);
}

static struct attr axes_attr(const int64_t *values, int rank)
{
    struct attr a = {.n_ints = rank};
    for (int k = 0; k < rank; k++)
        a.ints[k] = values[k];
    return a;
}

value_id build_conv_transpose(struct builder *b, value_id x, value_id w,
                              const struct conv_transpose *t)
{
    if (b->status != OK)
        return VALUE_NONE;
    const struct shape *from = build_shape(b, x), *kernel = build_shape(b, w);
    int rank = MAX(MIN(from->rank - 2, WINDOW_AXES), 0);
    struct attr attrs[CONV_SIZE + 1] = {
        [WINDOW_STRIDE] = axes_attr(t->stride, rank),
        [WINDOW_PAD_BEFORE] = axes_attr(t->pad_before, rank),
        [WINDOW_PAD_AFTER] = axes_attr(t->pad_after, rank),
        [CONV_DILATION] = axes_attr(t->dilation, rank),
        [CONV_GROUPS] = {.i = t->groups},
        [CONV_SIZE] = {.n_ints = rank},
    };
    for (int k = 0; k < rank; k++)
        attrs[CONV_SIZE].ints[k] = (from->dim[1 + k] - 1) * t->stride[k] - t->pad_before[k] -
                                   t->pad_after[k] + (kernel->dim[1 + k] - 1) * t->dilation[k] + 1 +
                                   t->out_pad[k];
    return build_with(b, OP_conv_grad_input, IN(x, w), attrs);
}
