/* moe.c: a decoder whose feed-forward layers are mixtures of plain experts: LayerNorm before each
 * half of a block, rotary positions, biases everywhere but at the head, GELU inside the experts.
 *
 * The weights of a token's experts sum to 1. Two losses are added to the cross-entropy: the balance
 * of the experts' loads, a mean over layers, and the square of the router's log-sum-exp.
 */
#include <math.h>

#include "model/attention_blocks.h"
#include "model/experts.h"

struct moe_config {
    int64_t heads;
    double norm_epsilon, init_std, dropout;
    struct rope rope;
    struct experts experts;
};

static const char *const model_types[] = {"moe", NULL};
static const char *const architectures[] = {"MoeForCausalLM", NULL};
static const struct rope_rules rope_rules = {.theta = 10000};
static const struct expert_names names = {
    .router = "mlp.gate", .experts = "mlp.experts", .up = "up_proj", .down = "down_proj"};

/* ---- config ---- */

static void parse_experts(struct model *m, struct moe_config *c, struct keys *k)
{
    struct experts *e = &c->experts;
    e->names = &names;
    e->n = keys_int(k, "num_experts", KEYS_REQUIRED_INT, 1, 1 << 20);
    e->per_token = keys_int(k, "num_experts_per_tok", 2, 1, 1 << 20);
    e->width = keys_int_derived(k, "intermediate_size", 4 * m->hidden, 1, 1 << 26, "4 hidden_size");
    e->normalize = true;
    e->epsilon = 1e-9;
    e->bias = true;
    e->dropout = c->dropout;
    e->std = c->init_std;
    e->balance = keys_float(k, "router_aux_loss_coef", 0.01, 0, 1e6);
    e->z_loss = keys_float(k, "router_z_loss_coef", 0.001, 0, 1e6);
    e->capacity = keys_float(k, "capacity_factor", 0, 0, 1e6);
    e->balance_by_layer = true;
    m->balances_tokens = e->balance > 0 || e->capacity > 0;
    e->n_layers_with = m->n_layers;
    if (keys_good(k) && e->per_token > e->n)
        KEYS_FAIL(k, "num_experts_per_tok", ERR_CONFIG,
                  "key 'num_experts_per_tok' (%lld) is more than there are experts (%lld)",
                  (long long)e->per_token, (long long)e->n);
}

static enum status parse(struct model *m, const json_t *config, const struct key_origin *origin)
{
    struct moe_config *c;
    TRY(pool_try(&m->pool, &c, sizeof(*c)));
    m->config = c;
    struct keys k;
    keys_init(&k, config, origin);
    m->language.vocab_size = keys_int(&k, "vocab_size", KEYS_REQUIRED_INT, 1, INT32_MAX);
    m->hidden = keys_int(&k, "hidden_size", KEYS_REQUIRED_INT, 1, 1 << 24);
    m->n_layers = keys_int(&k, "num_hidden_layers", KEYS_REQUIRED_INT, 1, 1 << 16);
    m->language.context = keys_int(&k, "max_position_embeddings", KEYS_REQUIRED_INT, 1, INT32_MAX);
    m->language.attention_width = m->hidden;
    c->heads = keys_int(&k, "num_attention_heads", KEYS_REQUIRED_INT, 1, 1 << 16);
    if (keys_good(&k) && m->hidden % (2 * c->heads))
        KEYS_FAIL(&k, "hidden_size", ERR_CONFIG,
                  "key 'hidden_size' (%lld) must be a multiple of twice num_attention_heads (%lld)",
                  (long long)m->hidden, (long long)c->heads);
    c->norm_epsilon = keys_float(&k, "layer_norm_eps", 1e-5, 0, 1);
    c->init_std = keys_float(&k, "initializer_range", 0.02, 0, 100);
    c->dropout = keys_float(&k, "dropout", 0, 0, 0.999);
    m->language.tied = keys_bool(&k, "tie_word_embeddings", false);
    m->language.bos_token = keys_token(&k, "bos_token_id");
    m->language.eos_token = keys_token(&k, "eos_token_id");
    rope_parse(&c->rope, &k, m->language.context, &rope_rules);
    parse_experts(m, c, &k);
    attention_blocks_parse(m, &k, 0);
    return keys_finish(&k);
}

static json_t *export_config(const struct model *m)
{
    const struct moe_config *c = m->config;
    const struct experts *e = &c->experts;
    json_t *o =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:b}",
                  "vocab_size", (json_int_t)m->language.vocab_size, "max_position_embeddings",
                  (json_int_t)m->language.context, "hidden_size", (json_int_t)m->hidden,
                  "num_hidden_layers", (json_int_t)m->n_layers, "num_attention_heads",
                  (json_int_t)c->heads, "intermediate_size", (json_int_t)e->width, "num_experts",
                  (json_int_t)e->n, "num_experts_per_tok", (json_int_t)e->per_token,
                  "layer_norm_eps", c->norm_epsilon, "initializer_range", c->init_std, "dropout",
                  c->dropout, "router_aux_loss_coef", e->balance, "router_z_loss_coef", e->z_loss,
                  "capacity_factor", e->capacity, "tie_word_embeddings", m->language.tied);
    if (o && rope_export(&c->rope, o) == OK)
        return o;
    json_decref(o);
    return NULL;
}

/* ---- graph ---- */

static value_id attention(struct parts *p, value_id x, value_id inv_freq)
{
    const struct moe_config *c = p->m->config;
    int64_t hidden = p->m->hidden, head_dim = hidden / c->heads;
    value_id qkv = parts_linear(
        p, x,
        &(struct linear_spec){.name = "qkv",
                              .n_in = hidden,
                              PIECES({"self_attn.q_proj", hidden}, {"self_attn.k_proj", hidden},
                                     {"self_attn.v_proj", hidden}),
                              .std = c->init_std,
                              .bias = true});
    const value_id in[] = {qkv, inv_freq, p->positions}; /* VALUE_NONE: 0 .. T-1 */
    qkv = build(p->b, OP_rotary, in, p->positions == VALUE_NONE ? 2 : 3,
                ATTRS({.name = "heads", .i = c->heads}, {.name = "kv_heads", .i = c->heads},
                      {.name = "head_dim", .i = head_dim},
                      {.name = "scale", .f = c->rope.attention_factor}));
    build_name(p->b, qkv, parts_name(p, "rotary"));
    value_id y = parts_attention(p, qkv,
                                 &(struct attention_spec){.heads = c->heads,
                                                          .kv_heads = c->heads,
                                                          .head_dim = head_dim,
                                                          .scale = 1.0 / sqrt((double)head_dim),
                                                          .dropout = c->dropout});
    y = parts_linear(p, y,
                     &(struct linear_spec){.name = "out",
                                           .n_in = hidden,
                                           PIECES({"self_attn.o_proj", hidden}),
                                           .std = c->init_std,
                                           .bias = true});
    return parts_dropout(p, y, c->dropout);
}

static value_id block(struct parts *p, value_id x, value_id inv_freq, struct routing *routing)
{
    const struct moe_config *c = p->m->config;
    value_id y = parts_layer_norm(p, x, "attn_norm", "input_layernorm", c->norm_epsilon);
    y = attention(p, y, inv_freq);
    x = build_name(p->b, build(p->b, OP_add, IN(x, y), NO_ATTRS), parts_name(p, "x_mid"));
    y = parts_layer_norm(p, x, "mlp_norm", "post_attention_layernorm", c->norm_epsilon);
    y = parts_dropout(p, experts_build(p, &c->experts, y, routing), c->dropout);
    return build_name(p->b, build(p->b, OP_add, IN(x, y), NO_ATTRS), parts_name(p, "x"));
}

static enum status build_graph(const struct model *m, struct builder *b,
                               const struct model_request *r, struct model_graph *out)
{
    const struct moe_config *c = m->config;
    struct parts p = {
        .m = m, .b = b, .r = r, .out = out, .hf_root = "model.", .hf_layers = "layers"};
    struct routing routing = routing_none();
    parts_begin(&p);
    value_id table = parts_embedding(&p, "embed_tokens.weight", c->init_std);
    value_id inv_freq = parts_inv_freq(&p, "inv_freq", &c->rope, m->hidden / c->heads);
    value_id x = build_name(b, build(b, OP_embedding, IN(table, p.tokens), NO_ATTRS), "embed");
    x = parts_embedding_noise(&p, x);
    x = parts_dropout(&p, x, c->dropout);
    for (int i = 0; i < m->n_layers; i++) {
        b->block = i;
        x = block(&p, x, inv_freq, &routing);
    }
    b->block = BLOCK_NONE;
    x = parts_layer_norm(&p, parts_head_input(&p, x), "norm", "norm", c->norm_epsilon);
    parts_head(&p, x, parts_head_weight(&p, table, c->init_std), 0);
    experts_losses(&p, &c->experts, &routing);
    return builder_status(b);
}

const struct model_def model_def_moe = {
    .name = "moe",
    .model_types = model_types,
    .architectures = architectures,
    .parse = parse,
    .build = build_graph,
    .export_config = export_config,
};
