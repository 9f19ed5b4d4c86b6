/* llama.c: the Llama family: Llama, Mistral, Qwen2, Qwen3: RMSNorm before each half of a block,
 * rotary positions, grouped key/value heads, gated SiLU. What sets the four apart is in the table
 * of variants and in the config.
 */
#include <math.h>
#include <string.h>

#include "model/config_keys.h"
#include "model/parts.h"
#include "model/rope.h"

struct variant {
    const char *model_type;
    bool qkv_bias;           /* always (Qwen2); else the config's attention_bias decides */
    bool has_attention_bias; /* reads attention_bias: q, k, v and the output projection */
    bool has_mlp_bias;       /* reads mlp_bias */
    bool head_norm;          /* RMSNorm of each query and key head */
    bool kv_heads_required;  /* absent would mean a number made for one model size */
    int64_t head_dim;        /* when absent; 0: hidden / heads */
    bool window_everywhere;  /* sliding_window holds for all layers (Mistral) */
    bool window_by_layer;    /* use_sliding_window, max_window_layers, layer_types (Qwen) */
};

static const struct variant variants[] = {
    {.model_type = "llama", .has_attention_bias = true, .has_mlp_bias = true},
    {.model_type = "mistral", .kv_heads_required = true, .window_everywhere = true},
    {.model_type = "qwen2", .qkv_bias = true, .kv_heads_required = true, .window_by_layer = true},
    {.model_type = "qwen3",
     .has_attention_bias = true,
     .head_norm = true,
     .kv_heads_required = true,
     .head_dim = 128,
     .window_by_layer = true},
};

static const char *const model_types[] = {"llama", "mistral", "qwen2", "qwen3", NULL};
static const char *const architectures[] = {"LlamaForCausalLM", "MistralForCausalLM",
                                            "Qwen2ForCausalLM", "Qwen3ForCausalLM", NULL};

struct llama_config {
    const struct variant *variant;
    int64_t heads, kv_heads, head_dim, intermediate;
    double norm_epsilon, init_std, attention_dropout;
    bool qkv_bias, out_bias, mlp_bias;
    struct rope rope;
    int64_t window; /* sliding_window; 0: none */
    bool *slides;   /* [n_layers]: the window holds in this layer */
};

/* ---- config ---- */

static void parse_heads(struct model *m, struct llama_config *c, struct keys *k)
{
    const struct variant *v = c->variant;
    c->heads = keys_int(k, "num_attention_heads", KEYS_REQUIRED_INT, 1, 1 << 16);
    int64_t kv = c->heads;
    if (v->kv_heads_required && !keys_given(k, "num_key_value_heads"))
        kv = KEYS_REQUIRED_INT;
    c->kv_heads = keys_int(k, "num_key_value_heads", kv, 1, 1 << 16);
    if (keys_good(k) && !keys_has(k, "head_dim") && !v->head_dim && m->hidden % c->heads)
        KEYS_FAIL(k, "hidden_size", ERR_CONFIG,
                  "key 'hidden_size' (%lld) must be a multiple of num_attention_heads "
                  "(%lld), or head_dim be given",
                  (long long)m->hidden, (long long)c->heads);
    int64_t head_dim = v->head_dim ? v->head_dim : m->hidden / c->heads;
    c->head_dim = keys_int_derived(k, "head_dim", head_dim, 1, ROPE_MAX_HEAD_DIM,
                                   "hidden_size / num_attention_heads");
    m->language.attention_width = c->heads * c->head_dim;
    if (!keys_good(k))
        return;
    if (c->heads % c->kv_heads)
        KEYS_FAIL(k, "num_attention_heads", ERR_CONFIG,
                  "key 'num_attention_heads' (%lld) must be a multiple of "
                  "num_key_value_heads (%lld)",
                  (long long)c->heads, (long long)c->kv_heads);
    if (c->head_dim % 2)
        KEYS_FAIL(k, "head_dim", ERR_CONFIG,
                  "key 'head_dim' (%lld) must be even: rotary positions turn "
                  "pairs",
                  (long long)c->head_dim);
}

/* One entry per layer, "full_attention" or "sliding_attention". */
static void parse_layer_types(const struct model *m, struct llama_config *c, struct keys *k,
                              const json_t *types)
{
    if ((int64_t)json_array_size(types) != m->n_layers) {
        KEYS_FAIL(k, "layer_types", ERR_CONFIG, "key 'layer_types' has %zu entries for %lld layers",
                  json_array_size(types), (long long)m->n_layers);
        return;
    }
    for (int64_t i = 0; i < m->n_layers; i++) {
        const json_t *entry = json_array_get(types, (size_t)i);
        const char *type = json_is_string(entry) ? json_string_value(entry) : "(not a string)";
        c->slides[i] = strcmp(type, "sliding_attention") == 0;
        if (!c->slides[i] && strcmp(type, "full_attention") != 0)
            KEYS_FAIL(k, "layer_types", ERR_UNSUPPORTED,
                      "key 'layer_types' has '%s'; known are full_attention and "
                      "sliding_attention",
                      type);
        if (c->slides[i] && !c->window)
            KEYS_FAIL(k, "layer_types", ERR_CONFIG,
                      "key 'layer_types' has sliding_attention, but "
                      "use_sliding_window is false or sliding_window null");
    }
}

static void parse_window(const struct model *m, struct llama_config *c, struct keys *k)
{
    const struct variant *v = c->variant;
    if (v->window_everywhere) {
        /* Absent means 4096 in Hugging Face, null means none. */
        int64_t preset = keys_given(k, "sliding_window") ? 0 : 4096;
        c->window = keys_int(k, "sliding_window", preset, 1, INT32_MAX);
        for (int64_t i = 0; i < m->n_layers; i++)
            c->slides[i] = c->window > 0;
    }
    if (v->window_by_layer) {
        int64_t preset = keys_given(k, "sliding_window") ? 0 : 4096;
        int64_t window = keys_int(k, "sliding_window", preset, 0, INT32_MAX);
        c->window = keys_bool(k, "use_sliding_window", false) ? window : 0;
        int64_t first = keys_int(k, "max_window_layers", 28, 0, INT32_MAX);
        const json_t *types = keys_array(k, "layer_types");
        for (int64_t i = 0; i < m->n_layers; i++)
            c->slides[i] = c->window > 0 && i >= first;
        if (types && keys_good(k))
            parse_layer_types(m, c, k, types);
    }
}

static void parse_features(struct model *m, struct llama_config *c, struct keys *k)
{
    const struct variant *v = c->variant;
    const char *act = keys_text(k, "hidden_act", "silu");
    if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        KEYS_FAIL(k, "hidden_act", ERR_UNSUPPORTED,
                  "key 'hidden_act' is '%s'; %s here has silu only", act, v->model_type);
    bool bias = v->has_attention_bias && keys_bool(k, "attention_bias", false);
    c->qkv_bias = v->qkv_bias || bias;
    c->out_bias = bias;
    c->mlp_bias = v->has_mlp_bias && keys_bool(k, "mlp_bias", false);
    c->norm_epsilon = keys_float(k, "rms_norm_eps", 1e-6, 0, 1);
    c->init_std = keys_float(k, "initializer_range", 0.02, 0, 100);
    c->attention_dropout = keys_float(k, "attention_dropout", 0, 0, 0.999);
    m->language.tied = keys_bool(k, "tie_word_embeddings", false);
    m->language.bos_token = keys_token(k, "bos_token_id");
    m->language.eos_token = keys_token(k, "eos_token_id");
}

static enum status parse(struct model *m, const json_t *config, const struct key_origin *origin)
{
    struct llama_config *c;
    TRY(pool_try(&m->pool, &c, sizeof(*c)));
    m->config = c;
    for (size_t i = 0; i < ARRAY_LEN(variants); i++) {
        if (strcmp(variants[i].model_type, m->model_type) == 0)
            c->variant = &variants[i];
    }
    BUG_ON(!c->variant);
    struct keys k;
    keys_init(&k, config, origin);
    m->language.vocab_size = keys_int(&k, "vocab_size", KEYS_REQUIRED_INT, 1, INT32_MAX);
    m->hidden = keys_int(&k, "hidden_size", KEYS_REQUIRED_INT, 1, 1 << 24);
    m->n_layers = keys_int(&k, "num_hidden_layers", KEYS_REQUIRED_INT, 1, 1 << 16);
    m->language.context = keys_int(&k, "max_position_embeddings", KEYS_REQUIRED_INT, 1, INT32_MAX);
    c->intermediate = keys_int(&k, "intermediate_size", KEYS_REQUIRED_INT, 1, 1 << 26);
    parse_heads(m, c, &k);
    parse_features(m, c, &k);
    rope_parse(&c->rope, &k, m->language.context);
    TRY(pool_try(&m->pool, &c->slides, sizeof(*c->slides) * (size_t)m->n_layers));
    parse_window(m, c, &k);
    return keys_finish(&k);
}

/* ---- graph ---- */

/* Head norms (Qwen3) and rotation of the packed projection. */
static value_id build_positions(struct parts *p, value_id qkv, value_id inv_freq)
{
    const struct llama_config *c = p->m->config;
    struct builder *b = p->b;
    if (c->variant->head_norm) {
        struct shape s = shape_of(1, c->head_dim);
        value_id wq = parts_param(p, "q_norm.weight", parts_hf_name(p, "self_attn.q_norm.weight"),
                                  s, INIT_ONE, 0);
        value_id wk = parts_param(p, "k_norm.weight", parts_hf_name(p, "self_attn.k_norm.weight"),
                                  s, INIT_ONE, 0);
        qkv = build(b, OP_head_norm, IN(qkv, wq, wk),
                    ATTRS({.name = "heads", .i = c->heads}, {.name = "kv_heads", .i = c->kv_heads},
                          {.name = "head_dim", .i = c->head_dim},
                          {.name = "epsilon", .f = c->norm_epsilon}));
        build_name(b, qkv, parts_name(p, "head_norm"));
    }
    const value_id in[] = {qkv, inv_freq, p->out->positions}; /* VALUE_NONE: 0 .. T-1 */
    qkv = build(b, OP_rotary, in, p->out->positions == VALUE_NONE ? 2 : 3,
                ATTRS({.name = "heads", .i = c->heads}, {.name = "kv_heads", .i = c->kv_heads},
                      {.name = "head_dim", .i = c->head_dim},
                      {.name = "scale", .f = c->rope.attention_factor}));
    return build_name(b, qkv, parts_name(p, "rotary"));
}

static value_id build_attention(struct parts *p, value_id x, value_id inv_freq)
{
    const struct llama_config *c = p->m->config;
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    x = parts_rms_norm(p, x, "attn_norm", "input_layernorm", c->norm_epsilon);
    value_id qkv =
        parts_linear(p, x,
                     &(struct linear_spec){.name = "qkv",
                                           .n_in = p->m->hidden,
                                           PIECES({"self_attn.q_proj", q}, {"self_attn.k_proj", kv},
                                                  {"self_attn.v_proj", kv}),
                                           .std = c->init_std,
                                           .bias = c->qkv_bias});
    qkv = build_positions(p, qkv, inv_freq);
    struct attention_spec s = {.heads = c->heads,
                               .kv_heads = c->kv_heads,
                               .head_dim = c->head_dim,
                               .scale = 1.0 / sqrt((double)c->head_dim),
                               .dropout = c->attention_dropout};
    if (p->b->block >= 0 && c->slides[p->b->block])
        s.window = c->window;
    value_id y = parts_attention(p, qkv, &s);
    return parts_linear(p, y,
                        &(struct linear_spec){.name = "out",
                                              .n_in = q,
                                              PIECES({"self_attn.o_proj", p->m->hidden}),
                                              .std = c->init_std,
                                              .bias = c->out_bias});
}

static value_id build_mlp(struct parts *p, value_id x)
{
    const struct llama_config *c = p->m->config;
    x = parts_rms_norm(p, x, "mlp_norm", "post_attention_layernorm", c->norm_epsilon);
    value_id y = parts_linear(p, x,
                              &(struct linear_spec){.name = "gate_up",
                                                    .n_in = p->m->hidden,
                                                    PIECES({"mlp.gate_proj", c->intermediate},
                                                           {"mlp.up_proj", c->intermediate}),
                                                    .std = c->init_std,
                                                    .bias = c->mlp_bias});
    y = build_name(p->b, build(p->b, OP_silu_gate, IN(y), NO_ATTRS), parts_name(p, "gate"));
    return parts_linear(p, y,
                        &(struct linear_spec){.name = "down",
                                              .n_in = c->intermediate,
                                              PIECES({"mlp.down_proj", p->m->hidden}),
                                              .std = c->init_std,
                                              .bias = c->mlp_bias});
}

/* In the accumulator's dtype, as rotary asks; the numbers are those of float either way, as in the
 * checkpoints' own training. */
static value_id build_inv_freq(struct parts *p)
{
    const struct llama_config *c = p->m->config;
    struct builder *b = p->b;
    int64_t n = c->head_dim / 2;
    float *table = pool_alloc(&b->g->pool, sizeof(*table) * (size_t)n);
    double *wide = pool_alloc(&b->g->pool, sizeof(*wide) * (size_t)n);
    if (!table || !wide) {
        b->status = pool_status(&b->g->pool);
        return VALUE_NONE;
    }
    rope_inv_freq(&c->rope, c->head_dim, table);
    for (int64_t i = 0; i < n; i++)
        wide[i] = (double)table[i];
    enum dtype dtype = dtype_accumulator(p->r->dtype);
    const void *data = dtype == DTYPE_F64 ? (const void *)wide : (const void *)table;
    return build_constant(b, "inv_freq", dtype, shape_of(1, n), data);
}

static enum status build_graph(const struct model *m, struct builder *b,
                               const struct model_request *r, struct model_graph *out)
{
    const struct llama_config *c = m->config;
    struct parts p = {
        .m = m, .b = b, .r = r, .out = out, .hf_root = "model.", .hf_layers = "layers"};
    parts_begin(&p);
    struct shape table_shape = shape_of(2, m->language.vocab_size, m->hidden);
    value_id table = parts_param(&p, "embed.weight", parts_hf_name(&p, "embed_tokens.weight"),
                                 table_shape, INIT_NORMAL, c->init_std);
    if (m->language.tied && b->status == OK)
        out->params[0].tied_name = "lm_head.weight";
    value_id inv_freq = build_inv_freq(&p);
    value_id x = build_name(b, build(b, OP_embedding, IN(table, p.tokens), NO_ATTRS), "embed");
    for (int i = 0; i < m->n_layers; i++) {
        b->block = i;
        x = build(b, OP_add, IN(x, build_attention(&p, x, inv_freq)), NO_ATTRS);
        build_name(b, x, parts_name(&p, "x_mid"));
        x = build(b, OP_add, IN(x, build_mlp(&p, x)), NO_ATTRS);
        build_name(b, x, parts_name(&p, "x"));
    }
    b->block = BLOCK_NONE;
    x = parts_rms_norm(&p, parts_head_input(&p, x), "norm", "norm", c->norm_epsilon);
    if (!m->language.tied)
        table =
            parts_param(&p, "head.weight", "lm_head.weight", table_shape, INIT_NORMAL, c->init_std);
    parts_head(&p, x, table);
    return builder_status(b);
}

/* ---- export ---- */

static int export_window(const struct model *m, json_t *o)
{
    const struct llama_config *c = m->config;
    const struct variant *v = c->variant;
    if (!v->window_everywhere && !v->window_by_layer)
        return 0;
    int bad =
        json_object_set_new(o, "sliding_window", c->window ? json_integer(c->window) : json_null());
    if (!v->window_by_layer)
        return bad;
    bad |= json_object_set_new(o, "use_sliding_window", json_boolean(c->window > 0));
    json_t *types = json_array();
    for (int64_t i = 0; i < m->n_layers; i++)
        bad |= json_array_append_new(
            types, json_string(c->slides[i] ? "sliding_attention" : "full_attention"));
    return bad | json_object_set_new(o, "layer_types", types);
}

static json_t *export_config(const struct model *m)
{
    const struct llama_config *c = m->config;
    json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:b}",
                          "vocab_size", (json_int_t)m->language.vocab_size,
                          "max_position_embeddings", (json_int_t)m->language.context, "hidden_size",
                          (json_int_t)m->hidden, "num_hidden_layers", (json_int_t)m->n_layers,
                          "intermediate_size", (json_int_t)c->intermediate, "num_attention_heads",
                          (json_int_t)c->heads, "num_key_value_heads", (json_int_t)c->kv_heads,
                          "head_dim", (json_int_t)c->head_dim, "hidden_act", "silu", "rms_norm_eps",
                          c->norm_epsilon, "initializer_range", c->init_std, "attention_dropout",
                          c->attention_dropout, "tie_word_embeddings", m->language.tied);
    if (!o)
        return NULL;
    int bad = 0;
    if (c->variant->has_attention_bias)
        bad |= json_object_set_new(o, "attention_bias", json_boolean(c->out_bias));
    if (c->variant->has_mlp_bias)
        bad |= json_object_set_new(o, "mlp_bias", json_boolean(c->mlp_bias));
    bad |= export_window(m, o);
    if (!bad && rope_export(&c->rope, o) == OK)
        return o;
    json_decref(o);
    return NULL;
}

const struct model_def model_def_llama = {
    .name = "llama",
    .model_types = model_types,
    .architectures = architectures,
    .parse = parse,
    .build = build_graph,
    .export_config = export_config,
};
