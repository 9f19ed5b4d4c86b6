/* gpt2.c: GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019):
 * learned positions, LayerNorm before each half of a block, GELU, biases everywhere.
 *
 * Checkpoints hold the four matrices of a block as [in, out] (Conv1D); ours are [out, in].
 */
#include <math.h>
#include <string.h>

#include "model/attention_blocks.h"
#include "model/config_keys.h"
#include "model/parts.h"

struct gpt2_config {
    int64_t heads, inner;
    double norm_epsilon, init_std;
    double embed_dropout, residual_dropout, attention_dropout;
    bool gelu_tanh, scale_attention, scale_by_layer;
};

static const char *const model_types[] = {"gpt2", NULL};
static const char *const architectures[] = {"GPT2LMHeadModel", NULL};

/* A key that also goes by the name most other architectures give it. */
static int64_t int_or(struct keys *k, const char *name, const char *other, int64_t preset,
                      int64_t high)
{
    int64_t second = keys_int(k, other, preset, 1, high),
            first = keys_int(k, name, second, 1, high);
    if (keys_good(k) && keys_has(k, other) && first != second)
        KEYS_FAIL(k, other, ERR_CONFIG,
                  "key '%s' is %lld and key '%s' is %lld; they mean the same: keep one", other,
                  (long long)second, name, (long long)first);
    return first;
}

static void parse_sizes(struct model *m, struct gpt2_config *c, struct keys *k)
{
    m->language.vocab_size = keys_int(k, "vocab_size", 50257, 1, INT32_MAX);
    m->language.context = int_or(k, "n_positions", "max_position_embeddings", 1024, INT32_MAX);
    m->hidden = int_or(k, "n_embd", "hidden_size", 768, 1 << 24);
    m->n_layers = int_or(k, "n_layer", "num_hidden_layers", 12, 1 << 16);
    c->heads = int_or(k, "n_head", "num_attention_heads", 12, 1 << 16);
    c->inner = keys_int_derived(k, "n_inner", 4 * m->hidden, 1, 1 << 26, "4 n_embd");
    m->language.attention_width = m->hidden;
    if (keys_good(k) && m->hidden % c->heads)
        KEYS_FAIL(k, "n_embd", ERR_CONFIG,
                  "key 'n_embd' (%lld) must be a multiple of n_head (%lld)", (long long)m->hidden,
                  (long long)c->heads);
}

static void parse_activation(struct gpt2_config *c, struct keys *k)
{
    const char *name = keys_text(k, "activation_function", "gelu_new");
    c->gelu_tanh = strcmp(name, "gelu_new") == 0 || strcmp(name, "gelu_pytorch_tanh") == 0;
    if (!c->gelu_tanh && strcmp(name, "gelu") != 0)
        KEYS_FAIL(k, "activation_function", ERR_UNSUPPORTED,
                  "key 'activation_function' is '%s'; gpt2 here has gelu_new and gelu", name);
}

static enum status parse(struct model *m, const json_t *config, const struct key_origin *origin)
{
    struct gpt2_config *c;
    TRY(pool_try(&m->pool, &c, sizeof(*c)));
    m->config = c;
    struct keys k;
    keys_init(&k, config, origin);
    parse_sizes(m, c, &k);
    parse_activation(c, &k);
    c->norm_epsilon = keys_float(&k, "layer_norm_epsilon", 1e-5, 0, 1);
    c->init_std = keys_float(&k, "initializer_range", 0.02, 0, 100);
    c->embed_dropout = keys_float(&k, "embd_pdrop", 0, 0, 0.999);
    c->residual_dropout = keys_float(&k, "resid_pdrop", 0, 0, 0.999);
    c->attention_dropout = keys_float(&k, "attn_pdrop", 0, 0, 0.999);
    c->scale_attention = keys_bool(&k, "scale_attn_weights", true);
    c->scale_by_layer = keys_bool(&k, "scale_attn_by_inverse_layer_idx", false);
    m->language.tied = keys_bool(&k, "tie_word_embeddings", true);
    m->language.bos_token = keys_token(&k, "bos_token_id");
    m->language.eos_token = keys_token(&k, "eos_token_id");
    attention_blocks_parse(m, &k, 0);
    return keys_finish(&k);
}

static value_id build_attention(struct parts *p, value_id x, int layer)
{
    const struct gpt2_config *c = p->m->config;
    int64_t hidden = p->m->hidden, head_dim = hidden / c->heads;
    double scale = c->scale_attention ? 1.0 / sqrt((double)head_dim) : 1.0;
    if (c->scale_by_layer)
        scale /= (double)(layer + 1);
    x = parts_layer_norm(p, x, "attn_norm", "ln_1", c->norm_epsilon);
    value_id qkv = parts_linear(p, x,
                                &(struct linear_spec){.name = "qkv",
                                                      .n_in = hidden,
                                                      PIECES({"attn.c_attn", 3 * hidden}),
                                                      .std = c->init_std,
                                                      .bias = true,
                                                      .transposed = true});
    value_id y = parts_attention(p, qkv,
                                 &(struct attention_spec){.heads = c->heads,
                                                          .kv_heads = c->heads,
                                                          .head_dim = head_dim,
                                                          .scale = scale,
                                                          .dropout = c->attention_dropout});
    y = parts_linear(p, y,
                     &(struct linear_spec){.name = "out",
                                           .n_in = hidden,
                                           PIECES({"attn.c_proj", hidden}),
                                           .std = c->init_std / sqrt(2.0 * (double)p->m->n_layers),
                                           .bias = true,
                                           .transposed = true});
    return parts_dropout(p, y, c->residual_dropout);
}

static value_id build_mlp(struct parts *p, value_id x)
{
    const struct gpt2_config *c = p->m->config;
    int64_t hidden = p->m->hidden;
    x = parts_layer_norm(p, x, "mlp_norm", "ln_2", c->norm_epsilon);
    value_id y = parts_linear(p, x,
                              &(struct linear_spec){.name = "up",
                                                    .n_in = hidden,
                                                    PIECES({"mlp.c_fc", c->inner}),
                                                    .std = c->init_std,
                                                    .bias = true,
                                                    .transposed = true});
    y = build(p->b, OP_gelu, IN(y), ATTRS({.name = "approximate", .i = c->gelu_tanh}));
    y = build_name(p->b, y, parts_name(p, "gelu"));
    y = parts_linear(p, y,
                     &(struct linear_spec){.name = "down",
                                           .n_in = c->inner,
                                           PIECES({"mlp.c_proj", hidden}),
                                           .std = c->init_std / sqrt(2.0 * (double)p->m->n_layers),
                                           .bias = true,
                                           .transposed = true});
    return parts_dropout(p, y, c->residual_dropout);
}

/* Token and position embeddings; *table is the token table. */
static value_id build_embedding(struct parts *p, value_id *table)
{
    const struct gpt2_config *c = p->m->config;
    const struct model *m = p->m;
    struct builder *b = p->b;
    *table = parts_embedding(p, "wte.weight", c->init_std);
    value_id places =
        parts_param(p, "positions.weight", parts_hf_name(p, "wpe.weight"),
                    shape_of(2, m->language.context, m->hidden), INIT_NORMAL, c->init_std);
    value_id at = p->positions != VALUE_NONE
                      ? p->positions
                      : build(b, OP_iota, NULL, 0, ATTRS({.name = "length", .i = p->r->seq_len}));
    value_id x = build(b, OP_embedding, IN(*table, p->tokens), NO_ATTRS);
    x = parts_embedding_noise(p, x);
    value_id y = build(b, OP_embedding, IN(places, at), NO_ATTRS); /* [T, C], or [B, T, C] */
    x = build_name(b, build(b, OP_add, IN(x, y), NO_ATTRS), "embed");
    return parts_dropout(p, x, c->embed_dropout);
}

static enum status build_graph(const struct model *m, struct builder *b,
                               const struct model_request *r, struct model_graph *out)
{
    const struct gpt2_config *c = m->config;
    struct parts p = {
        .m = m, .b = b, .r = r, .out = out, .hf_root = "transformer.", .hf_layers = "h"};
    parts_begin(&p);
    value_id table;
    value_id x = build_embedding(&p, &table);
    for (int i = 0; i < m->n_layers; i++) {
        b->block = i;
        x = build(b, OP_add, IN(x, build_attention(&p, x, i)), NO_ATTRS);
        build_name(b, x, parts_name(&p, "x_mid"));
        x = build(b, OP_add, IN(x, build_mlp(&p, x)), NO_ATTRS);
        build_name(b, x, parts_name(&p, "x"));
    }
    b->block = BLOCK_NONE;
    x = parts_layer_norm(&p, parts_head_input(&p, x), "norm", "ln_f", c->norm_epsilon);
    parts_head(&p, x, parts_head_weight(&p, table, c->init_std), 0);
    return builder_status(b);
}

static json_t *export_config(const struct model *m)
{
    const struct gpt2_config *c = m->config;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:f, s:b, s:b, s:b}",
                     "vocab_size", (json_int_t)m->language.vocab_size, "n_positions",
                     (json_int_t)m->language.context, "n_embd", (json_int_t)m->hidden, "n_layer",
                     (json_int_t)m->n_layers, "n_head", (json_int_t)c->heads, "n_inner",
                     (json_int_t)c->inner, "activation_function",
                     c->gelu_tanh ? "gelu_new" : "gelu", "layer_norm_epsilon", c->norm_epsilon,
                     "initializer_range", c->init_std, "embd_pdrop", c->embed_dropout,
                     "resid_pdrop", c->residual_dropout, "attn_pdrop", c->attention_dropout,
                     "scale_attn_weights", c->scale_attention, "scale_attn_by_inverse_layer_idx",
                     c->scale_by_layer, "tie_word_embeddings", m->language.tied);
}

const struct model_def model_def_gpt2 = {
    .name = "gpt2",
    .model_types = model_types,
    .architectures = architectures,
    .parse = parse,
    .build = build_graph,
    .export_config = export_config,
};
