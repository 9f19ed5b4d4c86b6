/* parts.c: see parts.h. */
#include "model/parts.h"

#include <math.h>
#include <string.h>

#include "model/adapted_linear.h"
#include "model/losses.h"

static void pool_check(const struct parts *p)
{
    if (p->b->status == OK)
        p->b->status = pool_status(&p->b->g->pool);
}

const char *parts_name(const struct parts *p, const char *name)
{
    struct pool *pool = &p->b->g->pool;
    const char *text = p->b->block == BLOCK_NONE
                           ? pool_strdup(pool, name)
                           : pool_printf(pool, "layers.%d.%s", p->b->block, name);
    pool_check(p);
    return text ? text : "";
}

const char *parts_hf_name(const struct parts *p, const char *name)
{
    struct pool *pool = &p->b->g->pool;
    const char *text = p->b->block == BLOCK_NONE ? pool_printf(pool, "%s%s", p->hf_root, name)
                                                 : pool_printf(pool, "%s%s.%d.%s", p->hf_root,
                                                               p->hf_layers, p->b->block, name);
    pool_check(p);
    return text ? text : "";
}

/* Pairs are samples: they have an axis of their own outside. */
static value_id rows_input(struct parts *p, const char *name)
{
    const struct model_request *r = p->r;
    struct shape rows = shape_of(2, r->batch, r->seq_len);
    struct shape pairs = shape_of(3, r->batch / 2, INT64_C(2), r->seq_len);
    value_id x = build_value(p->b, name, ROLE_INPUT, DTYPE_I32, r->pairs ? pairs : rows);
    return r->pairs ? build_reshape(p->b, x, rows) : x;
}

void parts_begin(struct parts *p)
{
    struct model_graph *out = p->out;
    const struct model_request *r = p->r;
    *out = (struct model_graph){.position = VALUE_NONE,
                                .positions = VALUE_NONE,
                                .rng = VALUE_NONE,
                                .logits = VALUE_NONE,
                                .row_losses = VALUE_NONE,
                                .reference = VALUE_NONE};
    p->targets = p->positions = VALUE_NONE;
    out->n_blocks = (int)p->m->n_layers;
    struct shape batch = shape_of(2, r->batch, r->seq_len);
    p->tokens = rows_input(p, "tokens");
    if (r->purpose == MODEL_TRAIN || r->purpose == MODEL_EVAL)
        p->targets = rows_input(p, "targets");
    if (r->packed)
        p->positions = build_value(p->b, "positions", ROLE_INPUT, DTYPE_I32, batch);
    if (r->purpose == MODEL_DECODE) {
        out->position =
            build_value(p->b, "position", ROLE_INPUT, DTYPE_I32, shape_of(1, INT64_C(1)));
        out->positions = p->positions =
            build_value(p->b, "positions", ROLE_INPUT, DTYPE_I32, shape_of(1, r->seq_len));
        out->caches = pool_alloc(&p->b->g->pool, sizeof(*out->caches) * (size_t)out->n_blocks);
    }
    pool_check(p);
}

value_id parts_embedding(struct parts *p, const char *hf_name, double std)
{
    const struct model *m = p->m;
    value_id table = parts_param(p, "embed.weight", parts_hf_name(p, hf_name),
                                 shape_of(2, m->language.vocab_size, m->hidden), INIT_NORMAL, std);
    if (p->b->status != OK)
        return VALUE_NONE;
    struct model_param *param = &p->out->params[p->out->n_params - 1];
    param->table = !m->language.tied;
    param->tied_name = m->language.tied ? "lm_head.weight" : NULL;
    return table;
}

/* Fills in what all parameters have and appends. */
value_id parts_add_param(struct parts *p, struct model_param param)
{
    param.decay = param.shape.rank >= (param.n_experts ? 3 : 2);
    return model_add_param(p->b, p->out, &p->params_room, param, p->r->dtype);
}

value_id parts_param(struct parts *p, const char *name, const char *hf_name, struct shape shape,
                     enum init_kind init, double std)
{
    struct hf_piece *piece = pool_alloc(&p->b->g->pool, sizeof(*piece));
    pool_check(p);
    if (p->b->status != OK)
        return VALUE_NONE;
    *piece = (struct hf_piece){hf_name, shape.dim[0]};
    return parts_add_param(p, (struct model_param){.name = parts_name(p, name),
                                                   .shape = shape,
                                                   .init = init,
                                                   .std = std,
                                                   .pieces = piece,
                                                   .n_pieces = 1});
}

value_id parts_head_weight(struct parts *p, value_id table, double std)
{
    const struct model *m = p->m;
    if (m->language.tied)
        return table;
    value_id w = parts_param(p, "head.weight", "lm_head.weight",
                             shape_of(2, m->language.vocab_size, m->hidden), INIT_NORMAL, std);
    if (p->b->status == OK)
        p->out->params[p->out->n_params - 1].head = true;
    return w;
}

/* The weight (n_in > 0) or bias of a linear layer. */
static value_id linear_param(struct parts *p, const struct linear_spec *s, bool is_bias)
{
    struct pool *pool = &p->b->g->pool;
    const char *suffix = is_bias ? ".bias" : ".weight";
    struct hf_piece *pieces = pool_alloc(pool, sizeof(*pieces) * (size_t)s->n_pieces);
    const char *name = pool_printf(pool, "%s%s", s->name, suffix);
    pool_check(p);
    int64_t n_rows = 0;
    for (int i = 0; p->b->status == OK && i < s->n_pieces; i++) {
        const char *piece = pool_printf(pool, "%s%s", s->pieces[i].name, suffix);
        pieces[i] = (struct hf_piece){parts_hf_name(p, piece ? piece : ""), s->pieces[i].rows};
        n_rows += s->pieces[i].rows;
    }
    if (p->b->status != OK)
        return VALUE_NONE;
    return parts_add_param(p, (struct model_param){.name = parts_name(p, name),
                                                   .shape = is_bias ? shape_of(1, n_rows)
                                                                    : shape_of(2, n_rows, s->n_in),
                                                   .init = is_bias ? INIT_ZERO : INIT_NORMAL,
                                                   .std = is_bias ? 0 : s->std,
                                                   .transposed = !is_bias && s->transposed,
                                                   .linear = !is_bias,
                                                   .pieces = pieces,
                                                   .n_pieces = s->n_pieces});
}

value_id plain_linear(struct parts *p, value_id x, value_id w, value_id bias)
{
    const value_id in[] = {x, w, bias};
    return build(p->b, OP_linear, in, bias != VALUE_NONE ? 3 : 2, NO_ATTRS);
}

/* The weight of each layer in the stack as -1, 0 and 1 times its own scale. */
static value_id ternary_weight(struct parts *p, value_id w, const struct linear_spec *s)
{
    struct attr_set rows = {.name = "rows", .n_ints = s->n_pieces};
    BUG_ON(s->n_pieces > MAX_ATTR_INTS);
    for (int i = 0; i < s->n_pieces; i++)
        rows.ints[i] = s->pieces[i].rows;
    return build(p->b, OP_ternary_weight, IN(w), &rows, 1);
}

value_id parts_linear(struct parts *p, value_id x, const struct linear_spec *s)
{
    value_id w = linear_param(p, s, false);
    value_id bias = s->bias ? linear_param(p, s, true) : VALUE_NONE;
    if (p->m->ternary) {
        x = build(p->b, OP_int8_rows, IN(x), NO_ATTRS);
        w = ternary_weight(p, w, s);
    }
    value_id y = p->m->adapter ? adapted_linear(p, x, s, w, bias) : plain_linear(p, x, w, bias);
    return build_name(p->b, y, parts_name(p, s->name));
}

value_id parts_layer_norm(struct parts *p, value_id x, const char *name, const char *hf_name,
                          double epsilon)
{
    struct pool *pool = &p->b->g->pool;
    struct shape s = shape_of(1, p->m->hidden);
    const char *names[4] = {
        pool_printf(pool, "%s.weight", name), pool_printf(pool, "%s.weight", hf_name),
        pool_printf(pool, "%s.bias", name), pool_printf(pool, "%s.bias", hf_name)};
    pool_check(p);
    if (p->b->status != OK)
        return VALUE_NONE;
    value_id w = parts_param(p, names[0], parts_hf_name(p, names[1]), s, INIT_ONE, 0);
    value_id bias = parts_param(p, names[2], parts_hf_name(p, names[3]), s, INIT_ZERO, 0);
    value_id y =
        build(p->b, OP_layer_norm, IN(x, w, bias), ATTRS({.name = "epsilon", .f = epsilon}));
    return build_name(p->b, y, parts_name(p, name));
}

value_id parts_rms_norm(struct parts *p, value_id x, const struct rms_norm_spec *s)
{
    struct pool *pool = &p->b->g->pool;
    const char *weight = pool_printf(pool, "%s.weight", s->name);
    const char *hf_weight = pool_printf(pool, "%s.weight", s->hf_name);
    pool_check(p);
    if (p->b->status != OK)
        return VALUE_NONE;
    value_id w = parts_param(p, weight, parts_hf_name(p, hf_weight), shape_of(1, s->n),
                             s->offset == 0 ? INIT_ONE : INIT_ZERO, 0);
    value_id y =
        build(p->b, OP_rms_norm, IN(x, w),
              ATTRS({.name = "epsilon", .f = s->epsilon}, {.name = "offset", .f = s->offset}));
    return build_name(p->b, y, parts_name(p, s->name));
}

/* In the accumulator's dtype, as rotary asks; the numbers are those of float either way, as in the
 * checkpoints' own training. */
value_id parts_inv_freq(struct parts *p, const char *name, const struct rope *rope,
                        int64_t head_dim)
{
    struct builder *b = p->b;
    int64_t n_channels = rope_channels(rope, head_dim), n = n_channels / 2;
    float *table = pool_alloc(&b->g->pool, sizeof(*table) * (size_t)n);
    double *wide = pool_alloc(&b->g->pool, sizeof(*wide) * (size_t)n);
    if (!table || !wide) {
        b->status = pool_status(&b->g->pool);
        return VALUE_NONE;
    }
    rope_inv_freq(rope, n_channels, table);
    for (int64_t i = 0; i < n; i++)
        wide[i] = (double)table[i];
    enum dtype dtype = dtype_accumulator(p->r->dtype);
    const void *data = dtype == DTYPE_F64 ? (const void *)wide : (const void *)table;
    return build_constant(b, name, dtype, shape_of(1, n), data);
}

/* The input every dropout of the graph draws from. */
static value_id random_state(struct parts *p)
{
    if (p->out->rng == VALUE_NONE)
        p->out->rng = build_value(p->b, "rng", ROLE_INPUT, DTYPE_I64, shape_of(1, INT64_C(2)));
    return p->out->rng;
}

static bool drops(const struct parts *p, double rate)
{
    return p->r->purpose == MODEL_TRAIN && rate > 0;
}

value_id parts_attention(struct parts *p, value_id qkv, const struct attention_spec *s)
{
    struct builder *b = p->b;
    const struct model_request *r = p->r;
    bool decode = r->purpose == MODEL_DECODE;
    /* A window no key can fall out of is none: kernels have a shorter path for that. */
    int64_t reach = decode ? r->cache_len : r->seq_len;
    const struct language_facts *l = &p->m->language;
    int64_t window = l->local_blocks > 0 ? l->local_blocks * l->block_size : s->window;
    bool holds = window > 0 && window < reach;
    const struct attr_set attrs[] = {
        {.name = "heads", .i = s->heads},
        {.name = "kv_heads", .i = s->kv_heads},
        {.name = "head_dim", .i = s->head_dim},
        {.name = "window", .i = holds ? window : 0},
        {.name = "block", .i = holds && l->local_blocks > 0 ? l->block_size : 0},
        {.name = "scale", .f = s->scale},
        {.name = "softcap", .f = s->softcap},
        {.name = "dropout", .f = s->dropout}, /* these two only where something is dropped */
        {.name = "seed", .i = p->n_dropouts + 1},
    };
    const int n_attrs = (int)ARRAY_LEN(attrs);
    value_id y;
    if (decode) {
        const char *name = pool_printf(&b->g->pool, "cache.%d", b->block);
        struct shape shape =
            shape_of(5, INT64_C(2), r->batch, r->cache_len, s->kv_heads, s->head_dim);
        value_id cache = build_value(b, name, ROLE_STATE, r->dtype, shape);
        if (b->status == OK)
            p->out->caches[b->block] = cache;
        y = build(b, OP_attention_cached, IN(qkv, cache, p->out->position), attrs, n_attrs - 2);
    } else {
        bool any = drops(p, s->dropout);
        p->n_dropouts += any;
        const value_id in[] = {qkv, any ? random_state(p) : VALUE_NONE,
                               r->packed ? p->positions : VALUE_NONE};
        y = build(b, OP_attention, in,
                  r->packed ? 3
                  : any     ? 2
                            : 1,
                  attrs, any ? n_attrs : n_attrs - 2);
    }
    return build_name(b, y, parts_name(p, "attention"));
}

value_id parts_dropout(struct parts *p, value_id x, double rate)
{
    if (!drops(p, rate))
        return x;
    return build(p->b, OP_dropout, IN(x, random_state(p)),
                 ATTRS({.name = "p", .f = rate}, {.name = "seed", .i = ++p->n_dropouts}));
}

value_id parts_embedding_noise(struct parts *p, value_id x)
{
    if (!drops(p, p->r->embedding_noise))
        return x;
    double n = (double)p->r->seq_len * (double)p->m->hidden;
    return build(p->b, OP_add_noise, IN(x, random_state(p)),
                 ATTRS({.name = "magnitude", .f = p->r->embedding_noise / sqrt(n)},
                       {.name = "seed", .i = ++p->n_dropouts}));
}

value_id parts_head_input(struct parts *p, value_id x)
{
    if (p->r->purpose != MODEL_DECODE)
        return x;
    value_id last = build(p->b, OP_slice, IN(x),
                          ATTRS({.name = "axis", .i = 1}, {.name = "start", .i = p->r->seq_len - 1},
                                {.name = "length", .i = 1}));
    return build_reshape(p->b, last, shape_of(2, p->r->batch, p->m->hidden));
}

/* softcap tanh(logits / softcap) */
static value_id cap_logits(struct parts *p, value_id logits, double softcap)
{
    struct builder *b = p->b;
    value_id y = build(b, OP_scale, IN(logits), ATTRS({.name = "factor", .f = 1 / softcap}));
    y = build(b, OP_tanh, IN(y), NO_ATTRS);
    return build(b, OP_scale, IN(y), ATTRS({.name = "factor", .f = softcap}));
}

static value_id head_loss(struct parts *p, value_id x, value_id weight, value_id targets,
                          double softcap)
{
    const struct model_request *r = p->r;
    return build(p->b, OP_linear_cross_entropy, IN(x, weight, targets),
                 ATTRS({.name = "chunks", .i = r->loss_chunks},
                       {.name = "label_smoothing", .f = r->label_smoothing},
                       {.name = "z_loss", .f = r->z_loss}, {.name = "softcap", .f = softcap}));
}

/* Row i of [B, ..] by itself. */
static value_id row_of(struct parts *p, value_id x, int64_t i)
{
    return build(
        p->b, OP_slice, IN(x),
        ATTRS({.name = "axis", .i = 0}, {.name = "start", .i = i}, {.name = "length", .i = 1}));
}

/* Logits are those of one row at a time. */
static void build_row_losses(struct parts *p, value_id x, value_id weight, double softcap)
{
    struct builder *b = p->b;
    int64_t n = p->r->batch;
    value_id *rows = pool_alloc(&b->g->pool, sizeof(*rows) * (size_t)n);
    pool_check(p);
    if (b->status != OK)
        return;
    for (int64_t i = 0; i < n; i++)
        rows[i] = head_loss(p, row_of(p, x, i), weight, row_of(p, p->targets, i), softcap);
    p->out->row_losses = build(b, OP_concat, rows, (int)n, ATTRS({.name = "axis", .i = 0}));
}

void parts_head(struct parts *p, value_id x, value_id weight, double softcap)
{
    struct builder *b = p->b;
    struct model_graph *out = p->out;
    if (p->targets == VALUE_NONE) {
        value_id logits = build(b, OP_linear, IN(x, weight), NO_ATTRS);
        if (softcap > 0)
            logits = cap_logits(p, logits, softcap);
        out->logits = build_name(b, logits, "logits");
        return;
    }
    if (p->r->pairs) {
        build_row_losses(p, x, weight, softcap);
        return;
    }
    value_id loss = head_loss(p, x, weight, p->targets, softcap);
    value_id count = build_name(b, build_output(b, 1), "count");
    (void)build_name(b, loss, "loss_sum");
    losses_add(b, out, "loss", 1.0, loss, losses_add_sum(b, out, "count", count));
}
