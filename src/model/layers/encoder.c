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

static value_id attend(struct writer *w, value_id x, const struct encoder_layer *l)
{
    x = module_attention(w, "attn", x, l->heads, l->dropout);
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
