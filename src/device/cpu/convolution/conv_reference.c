#include "device/cpu/convolution/conv_reference.h"

#include "device/cpu/support/ref.h"
#include "ops/window_support.h"

/* A place of a box by its number, the last axis fastest. */
struct place {
    int64_t at[WINDOW_AXES];
};

static struct place place_of(const int64_t size[WINDOW_AXES], int64_t i)
{
    return (struct place){{i / (size[1] * size[2]), i / size[2] % size[1], i % size[2]}};
}

/* The place of x that element k of output o's window reads: false when it lies in the padding. */
static bool read_place(const struct window *w, int64_t o, int64_t k, int64_t *i)
{
    struct place out = place_of(w->out, o), tap = place_of(w->kernel, k);
    *i = 0;
    for (int a = 0; a < WINDOW_AXES; a++) {
        int64_t at = out.at[a] * w->stride[a] - w->pad_before[a] + tap.at[a] * w->dilation[a];
        if (at < 0 || at >= w->size[a])
            return false;
        *i = *i * w->size[a] + at;
    }
    return true;
}

/* The output whose window reads place i with its element k; false when there is none. */
static bool reader_of(const struct window *w, int64_t i, int64_t k, int64_t *o)
{
    struct place in = place_of(w->size, i), tap = place_of(w->kernel, k);
    *o = 0;
    for (int a = 0; a < WINDOW_AXES; a++) {
        int64_t from = in.at[a] + w->pad_before[a] - tap.at[a] * w->dilation[a];
        if (from < 0 || from % w->stride[a] != 0 || from / w->stride[a] >= w->out[a])
            return false;
        *o = *o * w->out[a] + from / w->stride[a];
    }
    return true;
}

/* x, w, y or their gradients, wherever they are in the call. */
struct operands {
    struct conv_dims d;
    struct tensor x, w, y;
    int64_t n_in, n_out, n_taps; /* places of x, y and the window */
    int64_t channels, features;  /* of a group */
};

static struct operands operands_of(const struct op_call *c, struct tensor x, struct tensor w,
                                   struct tensor y)
{
    struct operands o = {.d = conv_dims_of(c), .x = x, .w = w, .y = y};
    o.n_in = window_places(o.d.window.size);
    o.n_out = window_places(o.d.window.out);
    o.n_taps = window_places(o.d.window.kernel);
    o.channels = o.d.channels / o.d.groups;
    o.features = o.d.features / o.d.groups;
    return o;
}

static double get_x(const struct operands *o, int64_t n, int64_t i, int64_t group, int64_t channel)
{
    return ref_get(&o->x, (n * o->n_in + i) * o->d.channels + group * o->channels + channel);
}

static double get_y(const struct operands *o, int64_t n, int64_t place, int64_t feature)
{
    return ref_get(&o->y, (n * o->n_out + place) * o->d.features + feature);
}

static double get_w(const struct operands *o, int64_t feature, int64_t tap, int64_t channel)
{
    return ref_get(&o->w, (feature * o->n_taps + tap) * o->channels + channel);
}

static double output(const struct operands *o, int64_t n, int64_t place, int64_t feature)
{
    double sum = 0.0;
    for (int64_t k = 0; k < o->n_taps; k++) {
        int64_t i;
        if (!read_place(&o->d.window, place, k, &i))
            continue;
        for (int64_t ch = 0; ch < o->channels; ch++)
            sum += get_x(o, n, i, feature / o->features, ch) * get_w(o, feature, k, ch);
    }
    return sum;
}

enum status conv_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    struct operands o = operands_of(c, c->in[0], c->in[1], c->out[0]);
    for (int64_t e = 0; e < shape_elems(&o.y.shape); e++) {
        int64_t f = e % o.d.features, row = e / o.d.features;
        double bias = call_has(c, 2) ? ref_get(&c->in[2], f) : 0.0;
        ref_set(&o.y, e, bias + output(&o, row / o.n_out, row % o.n_out, f));
    }
    return OK;
}

static double grad_input(const struct operands *o, int64_t n, int64_t i, int64_t channel)
{
    int64_t group = channel / o->channels;
    double sum = 0.0;
    for (int64_t k = 0; k < o->n_taps; k++) {
        int64_t place;
        if (!reader_of(&o->d.window, i, k, &place))
            continue;
        for (int64_t f = group * o->features; f < (group + 1) * o->features; f++)
            sum += get_y(o, n, place, f) * get_w(o, f, k, channel % o->channels);
    }
    return sum;
}

enum status conv_grad_input_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    struct operands o = operands_of(c, c->out[0], c->in[1], c->in[0]);
    for (int64_t e = 0; e < shape_elems(&o.x.shape); e++) {
        int64_t channel = e % o.d.channels, row = e / o.d.channels;
        double acc = call_has(c, 2) ? ref_get(&c->in[2], e) : 0.0;
        ref_set(&o.x, e, acc + grad_input(&o, row / o.n_in, row % o.n_in, channel));
    }
    return OK;
}

static double grad_weight(const struct operands *o, int64_t feature, int64_t tap, int64_t channel)
{
    double sum = 0.0;
    for (int64_t row = 0; row < o->d.window.batch * o->n_out; row++) {
        int64_t n = row / o->n_out, place = row % o->n_out, i;
        if (read_place(&o->d.window, place, tap, &i))
            sum += get_y(o, n, place, feature) * get_x(o, n, i, feature / o->features, channel);
    }
    return sum;
}

enum status conv_grad_weight_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    struct operands o = operands_of(c, c->in[0], c->out[0], c->in[1]);
    for (int64_t e = 0; e < shape_elems(&o.w.shape); e++) {
        int64_t channel = e % o.channels, tap = e / o.channels % o.n_taps;
        int64_t feature = e / o.channels / o.n_taps;
        double acc = call_has(c, 2) ? ref_get(&c->in[2], e) : 0.0;
        ref_set(&o.w, e, acc + grad_weight(&o, feature, tap, channel));
    }
    return OK;
}
