/* encoder.c: a layer of a transformer that sees all tokens at once: see modules.h. */
#include "model/layers/modules.h"

/* q, k and v [B, T, d] each, behind each other along the channels. */
static value_id project(struct writer *w, value_id x)
{
    int64_t d = writer_channels(w, x);
    const value_id parts[] = {module_linear(w, "q", x, d), module_linear(w, "k", x, d),
                              module_linear(w, "v", x, d)};
    return writer_concat(w, parts, 3, 2);
}

value_id module_attention(struct writer *w, const char *name, value_id x, int64_t heads,
                          double dropout)
{
    int64_t d = writer_channels(w, x);
    const char *before = writer_enter(w, name);
    value_id in[2] = {project(w, x), VALUE_NONE};
    bool drops = w->r->purpose == MODEL_TRAIN && dropout > 0;
    const struct attr_set attrs[] = {
        {.name = "heads", .i = heads},        {.name = "kv_heads", .i = heads},
        {.name = "head_dim", .i = d / heads}, {.name = "causal", .i = false},
        {.name = "dropout", .f = dropout},    {.name = "seed", .i = w->n_dropouts + 1}};
    if (drops) {
        in[1] = writer_random_state(w);
        w->n_dropouts++;
    }
    x = build(w->b, OP_attention, in, drops ? 2 : 1, attrs, drops ? 6 : 4);
    x = module_linear(w, "out", x, d);
    w->prefix = before;
    return x;
}

value_id module_cross_attention(struct writer *w, value_id x, value_id from, value_id mask,
                                const struct cross_layer *l)
{
    int64_t d = writer_channels(w, x);
    bool drops = w->r->purpose == MODEL_TRAIN && l->dropout > 0;
    value_id q = module_linear(w, "q", x, d);
    const value_id parts[] = {module_linear(w, "k", from, d), module_linear(w, "v", from, d)};
    value_id in[4] = {q, writer_concat(w, parts, 2, 2), mask, VALUE_NONE};
    const struct attr_set attrs[] = {{.name = "heads", .i = l->heads},
                                     {.name = "head_dim", .i = d / l->heads},
                                     {.name = "dropout", .f = l->dropout},
                                     {.name = "seed", .i = w->n_dropouts + 1}};
    if (drops) {
        in[3] = writer_random_state(w);
        w->n_dropouts++;
    }
    x = build(w->b, OP_cross_attention, in,
              drops                ? 4
              : mask != VALUE_NONE ? 3
                                   : 2,
              attrs, drops ? 4 : 2);
    return module_linear(w, "out", x, d);
}

static value_id attend_masked(struct writer *w, value_id x, const struct encoder_layer *l)
{
    const struct cross_layer cross = {l->heads, l->dropout};
    const char *before = writer_enter(w, "attn");
    if (w->b->status != OK)
        return VALUE_NONE;
    value_id mask = writer_mask(w, l->mask, build_shape(w->b, x)->dim[1]);
    x = module_cross_attention(w, x, x, mask, &cross);
    w->prefix = before;
    return x;
}

static value_id attend(struct writer *w, value_id x, const struct encoder_layer *l)
{
    x = l->mask ? attend_masked(w, x, l) : module_attention(w, "attn", x, l->heads, l->dropout);
    return writer_dropout(w, x, l->dropout, false);
}

static value_id feed_forward(struct writer *w, value_id x, const struct encoder_layer *l)
{
    int64_t d = writer_channels(w, x);
    x = writer_op(w, OP_gelu, module_linear(w, "linear1", x, l->hidden));
    x = module_linear(w, "linear2", writer_dropout(w, x, l->dropout, false), d);
    return writer_dropout(w, x, l->dropout, false);
}

value_id module_encoder(struct writer *w, const char *name, value_id x,
                        const struct encoder_layer *l)
{
    const char *before = writer_enter(w, name);
    if (l->norms_first) {
        x = writer_op2(w, OP_add, x, attend(w, module_layer_norm(w, "norm1", x), l));
        x = writer_op2(w, OP_add, x, feed_forward(w, module_layer_norm(w, "norm2", x), l));
    } else {
        x = module_layer_norm(w, "norm1", writer_op2(w, OP_add, x, attend(w, x, l)));
        x = module_layer_norm(w, "norm2", writer_op2(w, OP_add, x, feed_forward(w, x, l)));
    }
    w->prefix = before;
    return x;
}
