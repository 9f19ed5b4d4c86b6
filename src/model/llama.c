/* llama.c: the graph of a model of the Llama family, written by its traits (llama.h). */
#include "model/llama.h"

#include <math.h>
#include <string.h>

#include "model/parts.h"

/* What all blocks of a graph share: the table of angles of each kind of layer. */
struct tables {
    value_id full, local;
};

/* ---- attention ---- */

/* An RMS norm of the last axis of x, n long; x itself where hf_name is NULL. */
static value_id norm(struct parts *p, value_id x, const char *name, const char *hf_name, int64_t n)
{
    const struct llama_config *c = p->m->config;
    if (!hf_name)
        return x;
    return parts_rms_norm(p, x,
                          &(struct rms_norm_spec){.name = name,
                                                  .hf_name = hf_name,
                                                  .n = n,
                                                  .epsilon = c->norm_epsilon,
                                                  .offset = c->traits->norm_offset});
}

/* One projection of the checkpoint by itself. */
static value_id project(struct parts *p, value_id x, const char *name, const char *hf_name,
                        int64_t n)
{
    const struct llama_config *c = p->m->config;
    return parts_linear(p, x,
                        &(struct linear_spec){.name = name,
                                              .n_in = p->m->hidden,
                                              PIECES({hf_name, n}),
                                              .std = c->init_std,
                                              .bias = c->qkv_bias});
}

/* Queries, keys and values side by side, after the norms that go over all heads at once: these need
 * rows of their own, so the three are projected apart. */
static value_id project_normed(struct parts *p, value_id x)
{
    const struct llama_config *c = p->m->config;
    int64_t n_q = c->heads * c->head_dim, n_kv = c->kv_heads * c->head_dim;
    value_id q = project(p, x, "q", "self_attn.q_proj", n_q);
    value_id k = project(p, x, "k", "self_attn.k_proj", n_kv);
    value_id v = project(p, x, "v", "self_attn.v_proj", n_kv);
    q = norm(p, q, "q_norm", "self_attn.q_norm", n_q);
    k = norm(p, k, "k_norm", "self_attn.k_norm", n_kv);
    return build(p->b, OP_concat, IN(q, k, v), ATTRS({.name = "axis", .i = 2}));
}

/* Queries, keys and values in one product. */
static value_id project_together(struct parts *p, value_id x)
{
    const struct llama_config *c = p->m->config;
    int64_t n_q = c->heads * c->head_dim, n_kv = c->kv_heads * c->head_dim;
    const struct hf_piece apart[] = {
        {"self_attn.q_proj", n_q}, {"self_attn.k_proj", n_kv}, {"self_attn.v_proj", n_kv}};
    const struct hf_piece packed[] = {{"self_attn.qkv_proj", n_q + 2 * n_kv}};
    bool is_packed = c->traits->packed;
    return parts_linear(p, x,
                        &(struct linear_spec){.name = "qkv",
                                              .n_in = p->m->hidden,
                                              .pieces = is_packed ? packed : apart,
                                              .n_pieces = is_packed ? 1 : 3,
                                              .std = c->init_std,
                                              .bias = c->qkv_bias});
}

/* RMS norm of each query and key head of the packed projection. */
static value_id norm_heads(struct parts *p, value_id qkv)
{
    const struct llama_config *c = p->m->config;
    struct shape s = shape_of(1, c->head_dim);
    enum init_kind init = c->traits->norm_offset == 0 ? INIT_ONE : INIT_ZERO;
    value_id wq =
        parts_param(p, "q_norm.weight", parts_hf_name(p, "self_attn.q_norm.weight"), s, init, 0);
    value_id wk =
        parts_param(p, "k_norm.weight", parts_hf_name(p, "self_attn.k_norm.weight"), s, init, 0);
    qkv = build(p->b, OP_head_norm, IN(qkv, wq, wk),
                ATTRS({.name = "heads", .i = c->heads}, {.name = "kv_heads", .i = c->kv_heads},
                      {.name = "head_dim", .i = c->head_dim},
                      {.name = "epsilon", .f = c->norm_epsilon},
                      {.name = "offset", .f = c->traits->norm_offset}));
    return build_name(p->b, qkv, parts_name(p, "head_norm"));
}

static value_id rotate(struct parts *p, value_id qkv, const struct tables *tables)
{
    const struct llama_config *c = p->m->config;
    struct builder *b = p->b;
    bool local = c->traits->has_local_rope && c->layers[b->block].slides;
    const struct rope *rope = local ? &c->local_rope : &c->rope;
    /* Positions VALUE_NONE: 0 .. T-1 */
    const value_id in[] = {qkv, local ? tables->local : tables->full, p->positions};
    qkv = build(b, OP_rotary, in, p->positions == VALUE_NONE ? 2 : 3,
                ATTRS({.name = "heads", .i = c->heads}, {.name = "kv_heads", .i = c->kv_heads},
                      {.name = "head_dim", .i = c->head_dim},
                      {.name = "scale", .f = rope->attention_factor}));
    return build_name(b, qkv, parts_name(p, "rotary"));
}

static value_id attention(struct parts *p, value_id x, const struct tables *tables)
{
    const struct llama_config *c = p->m->config;
    const struct llama_layer *layer = &c->layers[p->b->block];
    value_id qkv =
        c->traits->query_norm == QUERY_NORM_WHOLE ? project_normed(p, x) : project_together(p, x);
    if (c->traits->query_norm == QUERY_NORM_HEAD)
        qkv = norm_heads(p, qkv);
    if (c->qkv_clip > 0)
        qkv = build(p->b, OP_clamp, IN(qkv), ATTRS({.name = "limit", .f = c->qkv_clip}));
    if (layer->rotates)
        qkv = rotate(p, qkv, tables);
    struct attention_spec s = {.heads = c->heads,
                               .kv_heads = c->kv_heads,
                               .head_dim = c->head_dim,
                               .scale = 1.0 / sqrt(c->query_scalar),
                               .softcap = c->attention_cap,
                               .window = layer->slides ? c->window : 0,
                               .dropout = c->attention_dropout};
    value_id y = parts_attention(p, qkv, &s);
    y = norm(p, y, "attn_sub_norm", c->traits->norms->before_out, c->heads * c->head_dim);
    y = parts_linear(p, y,
                     &(struct linear_spec){.name = "out",
                                           .n_in = c->heads * c->head_dim,
                                           PIECES({"self_attn.o_proj", p->m->hidden}),
                                           .std = c->init_std,
                                           .bias = c->out_bias});
    return parts_dropout(p, y, c->residual_dropout);
}

/* ---- feed-forward layer ---- */

static value_id feed_forward(struct parts *p, value_id x)
{
    const struct llama_config *c = p->m->config;
    const struct hf_piece apart[] = {{"mlp.gate_proj", c->intermediate},
                                     {"mlp.up_proj", c->intermediate}};
    const struct hf_piece packed[] = {{"mlp.gate_up_proj", 2 * c->intermediate}};
    bool is_packed = c->traits->packed;
    value_id y = parts_linear(p, x,
                              &(struct linear_spec){.name = "gate_up",
                                                    .n_in = p->m->hidden,
                                                    .pieces = is_packed ? packed : apart,
                                                    .n_pieces = is_packed ? 1 : 2,
                                                    .std = c->init_std,
                                                    .bias = c->mlp_bias});
    y = build_name(p->b, build(p->b, c->gate->op, IN(y), NO_ATTRS), parts_name(p, "gate"));
    y = norm(p, y, "mlp_sub_norm", c->traits->norms->before_down, c->intermediate);
    y = parts_linear(p, y,
                     &(struct linear_spec){.name = "down",
                                           .n_in = c->intermediate,
                                           PIECES({"mlp.down_proj", p->m->hidden}),
                                           .std = c->init_std,
                                           .bias = c->mlp_bias});
    return parts_dropout(p, y, c->residual_dropout);
}

/* ---- the whole ---- */

static value_id block(struct parts *p, value_id x, const struct tables *tables,
                      struct routing *routing)
{
    const struct llama_config *c = p->m->config;
    const struct block_norms *norms = c->traits->norms;
    int64_t n = p->m->hidden;
    value_id y = norm(p, x, "attn_norm", norms->before_attention, n);
    y = attention(p, y, tables);
    y = norm(p, y, "attn_post_norm", norms->after_attention, n);
    x = build_name(p->b, build(p->b, OP_add, IN(x, y), NO_ATTRS), parts_name(p, "x_mid"));
    y = norm(p, x, "mlp_norm", norms->before_feed_forward, n);
    bool has_experts = c->traits->experts && c->experts.in_layer[p->b->block];
    y = has_experts ? experts_build(p, &c->experts, y, routing) : feed_forward(p, y);
    y = norm(p, y, "mlp_post_norm", norms->after_feed_forward, n);
    return build_name(p->b, build(p->b, OP_add, IN(x, y), NO_ATTRS), parts_name(p, "x"));
}

static enum status build_graph(const struct model *m, struct builder *b,
                               const struct model_request *r, struct model_graph *out)
{
    const struct llama_config *c = m->config;
    struct parts p = {
        .m = m, .b = b, .r = r, .out = out, .hf_root = "model.", .hf_layers = "layers"};
    parts_begin(&p);
    value_id table = parts_embedding(&p, "embed_tokens.weight", c->init_std);
    struct tables tables = {.full = parts_inv_freq(&p, "inv_freq", &c->rope, c->head_dim)};
    if (c->traits->has_local_rope)
        tables.local = parts_inv_freq(&p, "local_inv_freq", &c->local_rope, c->head_dim);
    value_id x = build_name(b, build(b, OP_embedding, IN(table, p.tokens), NO_ATTRS), "embed");
    if (c->traits->embedding_grows)
        x = build(b, OP_scale, IN(x), ATTRS({.name = "factor", .f = sqrt((double)m->hidden)}));
    x = parts_embedding_noise(&p, x);
    struct routing routing = routing_none();
    for (int i = 0; i < m->n_layers; i++) {
        b->block = i;
        x = block(&p, x, &tables, &routing);
    }
    b->block = BLOCK_NONE;
    x = norm(&p, parts_head_input(&p, x), "norm", "norm", m->hidden);
    parts_head(&p, x, parts_head_weight(&p, table, c->init_std), c->logit_cap);
    if (c->traits->experts)
        experts_losses(&p, &c->experts, &routing);
    return builder_status(b);
}

const struct model_def model_def_llama = {
    .name = "llama",
    .model_types = llama_model_types,
    .architectures = llama_architectures,
    .parse = llama_parse,
    .build = build_graph,
    .export_config = llama_export_config,
};
