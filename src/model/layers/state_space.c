/* state_space.c: a selective state space: see modules.h.
 *
 *     x ─▶ in_proj ─┬▶ conv over the steps before ─▶ SiLU ─┬▶ selective scan ─▶ times SiLU(z) ─▶
 * out └▶ z                                   └▶ steps, what goes in, what is read
 */
#include "model/layers/modules.h"

static value_id product(struct writer *w, const char *name, value_id x, int64_t n_out)
{
    const struct linear_layer l = {.n_out = n_out, .init = w->init};
    const char *before = writer_enter(w, name);
    x = writer_linear(w, x, &l);
    w->prefix = before;
    return x;
}

/* log(1 + e^(x W + b)): how far the state moves at a step, [B, T, D]. */
static value_id steps(struct writer *w, value_id x, int64_t channels)
{
    int64_t n_in = writer_channels(w, x);
    const char *before = writer_enter(w, "dt_proj");
    value_id weight =
        writer_weight(w, "weight", shape_of(2, channels, n_in), n_in, channels, &w->init);
    value_id bias = writer_param(
        w, "bias", (struct model_param){.shape = shape_of(1, channels), .init = INIT_STEPS});
    w->prefix = before;
    return writer_op(w, OP_softplus, build(w->b, OP_linear, IN(x, weight, bias), NO_ATTRS));
}

static value_id scan(struct writer *w, value_id x, const struct state_space_layer *l, int64_t rank)
{
    int64_t channels = writer_channels(w, x), n = l->states;
    value_id rates = writer_param(
        w, "A_log", (struct model_param){.shape = shape_of(2, channels, n), .init = INIT_COUNTS});
    value_id passes = writer_param(
        w, "D", (struct model_param){.shape = shape_of(1, channels), .init = INIT_ONE});
    value_id parts = product(w, "x_proj", x, rank + 2 * n);
    value_id step = steps(w, writer_slice(w, parts, 2, 0, rank), channels);
    value_id in = writer_slice(w, parts, 2, rank, n), read = writer_slice(w, parts, 2, rank + n, n);
    rates = writer_scaled(w, writer_op(w, OP_exp, rates), -1.0);
    value_id y = build(w->b, OP_selective_scan, IN(x, step, rates, in, read), NO_ATTRS);
    return writer_op2(w, OP_add, y, writer_op2(w, OP_mul, x, passes));
}

value_id module_state_space(struct writer *w, const char *name, value_id x,
                            const struct state_space_layer *l)
{
    if (w->b->status != OK)
        return VALUE_NONE;
    int64_t d = writer_channels(w, x), inner = l->expand * d;
    int64_t n_steps = build_shape(w->b, x)->dim[1];
    const char *before = writer_enter(w, name);
    struct conv_layer conv = conv_of(inner, l->kernel, 1, l->kernel - 1);
    value_id both = product(w, "in_proj", x, 2 * inner), z = writer_slice(w, both, 2, inner, inner);
    conv.groups = inner;
    x = module_conv(w, "conv1d", writer_slice(w, both, 2, 0, inner), conv);
    x = writer_op(w, OP_silu, writer_slice(w, x, 1, 0, n_steps)); /* no step sees later ones */
    x = scan(w, x, l, (d + 15) / 16);
    x = product(w, "out_proj", writer_op2(w, OP_mul, x, writer_op(w, OP_silu, z)), d);
    w->prefix = before;
    return x;
}
