/* llama_config.c: configs of the Llama family, read and written by the traits of their model. */
#include <math.h>
#include <string.h>

#include "model/attention_blocks.h"
#include "model/config_keys.h"
#include "model/llama.h"

/* ---- read ---- */

static void parse_heads(struct model *m, struct llama_config *c, struct keys *k)
{
    const struct llama_traits *t = c->traits;
    c->heads = keys_int(k, "num_attention_heads", KEYS_REQUIRED_INT, 1, 1 << 16);
    int64_t kv = c->heads;
    if (t->kv_heads_required && !keys_given(k, "num_key_value_heads"))
        kv = KEYS_REQUIRED_INT;
    c->kv_heads = keys_int(k, "num_key_value_heads", kv, 1, 1 << 16);
    if (keys_good(k) && !keys_has(k, "head_dim") && !t->head_dim && m->hidden % c->heads)
        KEYS_FAIL(k, "hidden_size", ERR_CONFIG,
                  "key 'hidden_size' (%lld) must be a multiple of num_attention_heads "
                  "(%lld), or head_dim be given",
                  (long long)m->hidden, (long long)c->heads);
    int64_t head_dim = t->head_dim ? t->head_dim : m->hidden / c->heads;
    c->head_dim = keys_int_derived(k, "head_dim", head_dim, 1, ROPE_MAX_HEAD_DIM,
                                   "hidden_size / num_attention_heads");
    m->language.attention_width = c->heads * c->head_dim;
    if (!keys_good(k))
        return;
    if (t->norms->before_out && c->heads * c->head_dim != m->hidden)
        KEYS_FAIL(k, "head_dim", ERR_CONFIG,
                  "key 'head_dim': the heads of %s together are as wide as hidden_size (%lld)",
                  t->model_type, (long long)m->hidden);
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

/* The layers whose positions are rotary: no_rope_layers has 1 for those, 0 for the others. */
static void parse_rotation(const struct model *m, struct llama_config *c, struct keys *k)
{
    for (int64_t i = 0; i < m->n_layers; i++)
        c->layers[i].rotates = true;
    if (!c->traits->skips_rope)
        return;
    int64_t interval = keys_int(k, "no_rope_layer_interval", 4, 1, INT32_MAX);
    const json_t *given = keys_array(k, "no_rope_layers");
    if (given && (int64_t)json_array_size(given) < m->n_layers) {
        KEYS_FAIL(k, "no_rope_layers", ERR_CONFIG,
                  "key 'no_rope_layers' has %zu entries for %lld layers", json_array_size(given),
                  (long long)m->n_layers);
        return;
    }
    for (int64_t i = 0; i < m->n_layers; i++) {
        const json_t *entry = json_array_get(given, (size_t)i);
        c->layers[i].rotates = entry ? json_integer_value(entry) : (i + 1) % interval != 0;
        if (entry && !(json_is_integer(entry) && json_integer_value(entry) >> 1 == 0))
            KEYS_FAIL(k, "no_rope_layers", ERR_CONFIG,
                      "key 'no_rope_layers': entry %lld must be 1 (rotary positions) or 0 (none)",
                      (long long)i);
    }
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
        bool slides = strcmp(type, "sliding_attention") == 0;
        c->layers[i].slides = slides;
        if (!slides && strcmp(type, "full_attention") != 0)
            KEYS_FAIL(k, "layer_types", ERR_UNSUPPORTED,
                      "key 'layer_types' has '%s'; known are full_attention and "
                      "sliding_attention",
                      type);
        if (slides && !c->window)
            KEYS_FAIL(k, "layer_types", ERR_CONFIG,
                      "key 'layer_types' has sliding_attention, but %s",
                      c->traits->window == WINDOW_PATTERN
                          ? "sliding_window is null"
                          : "use_sliding_window is false or sliding_window null");
    }
}

/* Without layer_types: does the window hold in layer i? */
static bool window_holds(const struct llama_config *c, int64_t i, int64_t first)
{
    switch (c->traits->window) {
    case WINDOW_NONE:
        return false;
    case WINDOW_EVERYWHERE:
    case WINDOW_ALL_SWITCHED:
        return true;
    case WINDOW_ALTERNATING:
        return i % 2 == 0 && i < first;
    case WINDOW_SWITCHED:
        return i >= first;
    case WINDOW_UNROTATED:
        return !c->layers[i].rotates;
    case WINDOW_PATTERN:
        return (i + 1) % c->window_pattern != 0;
    }
    return false;
}

/* use_sliding_window turns the window on. */
static bool is_switched(const struct llama_traits *t)
{
    return t->window == WINDOW_SWITCHED || t->window == WINDOW_ALTERNATING ||
           t->window == WINDOW_ALL_SWITCHED || t->window == WINDOW_UNROTATED;
}

static bool has_layer_types(const struct llama_traits *t)
{
    return t->window != WINDOW_NONE && t->window != WINDOW_EVERYWHERE &&
           t->window != WINDOW_ALL_SWITCHED;
}

static void parse_window(const struct model *m, struct llama_config *c, struct keys *k)
{
    const struct llama_traits *t = c->traits;
    int64_t first = 0;
    if (t->window == WINDOW_NONE)
        return;
    /* Absent means the preset in Hugging Face, null means none. */
    int64_t preset = keys_given(k, "sliding_window") ? 0 : t->window_preset;
    bool counts_layers = t->window == WINDOW_SWITCHED || t->window == WINDOW_ALTERNATING;
    c->window = keys_int(k, "sliding_window", preset, counts_layers ? 0 : 1, INT32_MAX);
    if (counts_layers)
        first = keys_int(k, "max_window_layers", 28, 0, INT32_MAX);
    c->window_pattern = t->window_pattern;
    if (t->has_window_pattern)
        c->window_pattern = keys_int(k, "sliding_window_pattern", t->window_pattern, 1, INT32_MAX);
    if (is_switched(t) && !keys_bool(k, "use_sliding_window", false))
        c->window = 0;
    for (int64_t i = 0; i < m->n_layers && keys_good(k); i++)
        c->layers[i].slides = c->window > 0 && window_holds(c, i, first);
    const json_t *types = has_layer_types(t) ? keys_array(k, "layer_types") : NULL;
    if (types && keys_good(k))
        parse_layer_types(m, c, k, types);
}

static void parse_rope(const struct model *m, struct llama_config *c, struct keys *k)
{
    const struct llama_traits *t = c->traits;
    int64_t context = m->language.context;
    if (t->has_local_rope)
        rope_parse_both(&c->rope, &c->local_rope, k, context, &t->rope, t->local_theta);
    else
        rope_parse(&c->rope, k, context, &t->rope);
    int64_t n = rope_channels(&c->rope, c->head_dim);
    if (keys_good(k) && (n < 2 || n % 2))
        KEYS_FAIL(k, "partial_rotary_factor", ERR_CONFIG,
                  "key 'partial_rotary_factor' (%g) makes %lld of %lld channels of a head turn: "
                  "they turn in pairs",
                  c->rope.partial, (long long)n, (long long)c->head_dim);
}

static bool is_gate(const struct gate_kind *gate, const char *name)
{
    for (int i = 0; gate->names[i]; i++) {
        if (strcmp(name, gate->names[i]) == 0)
            return true;
    }
    return false;
}

static void parse_gate(struct llama_config *c, struct keys *k)
{
    const struct gate_kind *gate = c->traits->gate, *other = c->traits->other_gate;
    const char *name = keys_text(k, gate->key, gate->names[0]);
    c->gate = other && is_gate(other, name) ? other : gate;
    if (is_gate(c->gate, name))
        return;
    KEYS_FAIL(k, gate->key, ERR_UNSUPPORTED, "key '%s' is '%s'; %s here has %s only", gate->key,
              name, c->traits->model_type, gate->names[0]);
}

/* A cap that is absent has its preset, one that is null none. */
static double parse_cap(struct keys *k, const char *name, double preset)
{
    return keys_float(k, name, keys_given(k, name) ? 0 : preset, 1e-3, 1e6);
}

static void parse_scores(struct llama_config *c, struct keys *k)
{
    const struct llama_traits *t = c->traits;
    c->query_scalar = (double)c->head_dim;
    if (t->has_query_scalar)
        c->query_scalar = keys_float(k, "query_pre_attn_scalar", 256, 1e-6, 1e9);
    if (t->has_attention_cap)
        c->attention_cap = parse_cap(k, "attn_logit_softcapping", t->attention_cap);
    if (t->has_logit_cap)
        c->logit_cap = parse_cap(k, "final_logit_softcapping", t->logit_cap);
    c->attention_dropout = keys_float(k, "attention_dropout", 0, 0, 0.999);
    if (!t->has_residual_dropout)
        return;
    c->residual_dropout = keys_float(k, "resid_pdrop", 0, 0, 0.999);
    if (keys_float(k, "embd_pdrop", 0, 0, 1) != 0)
        KEYS_FAIL(k, "embd_pdrop", ERR_UNSUPPORTED,
                  "key 'embd_pdrop': only 0 is supported; transformers reads it and drops nothing");
}

static void parse_features(struct model *m, struct llama_config *c, struct keys *k)
{
    const struct llama_traits *t = c->traits;
    parse_gate(c, k);
    bool bias = t->has_attention_bias && keys_bool(k, "attention_bias", false);
    c->qkv_bias = t->qkv_bias || bias || (t->has_qkv_bias && keys_bool(k, "qkv_bias", true));
    c->out_bias = bias;
    c->mlp_bias = t->has_mlp_bias && keys_bool(k, "mlp_bias", false);
    if (t->has_qkv_clip && keys_has(k, "clip_qkv"))
        c->qkv_clip = keys_float(k, "clip_qkv", 0, 1e-6, 1e6);
    c->norm_epsilon = keys_float(k, "rms_norm_eps", t->norm_epsilon, 0, 1);
    c->init_std = keys_float(k, "initializer_range", 0.02, 0, 100);
    m->language.tied = keys_bool(k, "tie_word_embeddings", t->tied);
    m->language.bos_token = keys_token(k, "bos_token_id");
    m->language.eos_token = keys_token(k, "eos_token_id");
}

enum status llama_parse(struct model *m, const json_t *config, const struct key_origin *origin)
{
    struct llama_config *c;
    TRY(pool_try(&m->pool, &c, sizeof(*c)));
    m->config = c;
    c->traits = llama_traits_of(m->model_type);
    BUG_ON(!c->traits);
    struct keys k;
    keys_init(&k, config, origin);
    m->language.vocab_size = keys_int(&k, "vocab_size", KEYS_REQUIRED_INT, 1, INT32_MAX);
    m->hidden = keys_int(&k, "hidden_size", KEYS_REQUIRED_INT, 1, 1 << 24);
    m->n_layers = keys_int(&k, "num_hidden_layers", KEYS_REQUIRED_INT, 1, 1 << 16);
    m->language.context = keys_int(&k, "max_position_embeddings", KEYS_REQUIRED_INT, 1, INT32_MAX);
    c->intermediate = keys_int(&k, "intermediate_size", KEYS_REQUIRED_INT, 1, 1 << 26);
    parse_heads(m, c, &k);
    parse_features(m, c, &k);
    parse_scores(c, &k);
    parse_rope(m, c, &k);
    TRY(pool_try(&m->pool, &c->layers, sizeof(*c->layers) * (size_t)m->n_layers));
    parse_rotation(m, c, &k);
    parse_window(m, c, &k);
    attention_blocks_parse(m, &k, c->window);
    if (c->traits->experts) {
        TRY(experts_parse(&c->experts, m, c->traits->experts, &k));
        c->experts.std = c->init_std;
    }
    return keys_finish(&k);
}

/* ---- written ---- */

static int export_layers(const struct model *m, json_t *o)
{
    const struct llama_config *c = m->config;
    const struct llama_traits *t = c->traits;
    int bad = 0;
    json_t *types = json_array(), *rotating = json_array();
    for (int64_t i = 0; i < m->n_layers; i++) {
        bad |= json_array_append_new(
            types, json_string(c->layers[i].slides ? "sliding_attention" : "full_attention"));
        bad |= json_array_append_new(rotating, json_integer(c->layers[i].rotates));
    }
    if (has_layer_types(t))
        bad |= json_object_set(o, "layer_types", types);
    if (t->skips_rope)
        bad |= json_object_set(o, "no_rope_layers", rotating);
    json_decref(types);
    json_decref(rotating);
    return bad;
}

static int export_window(const struct model *m, json_t *o)
{
    const struct llama_config *c = m->config;
    const struct llama_traits *t = c->traits;
    int bad = export_layers(m, o);
    if (t->window == WINDOW_NONE)
        return bad;
    bad |=
        json_object_set_new(o, "sliding_window", c->window ? json_integer(c->window) : json_null());
    if (t->has_window_pattern)
        bad |= json_object_set_new(o, "sliding_window_pattern", json_integer(c->window_pattern));
    if (is_switched(t))
        bad |= json_object_set_new(o, "use_sliding_window", json_boolean(c->window > 0));
    return bad;
}

static int export_cap(json_t *o, const char *name, double cap)
{
    return json_object_set_new(o, name, cap > 0 ? json_real(cap) : json_null());
}

/* transformers takes whole numbers as such alone. */
static int export_query_scalar(json_t *o, double scalar)
{
    bool whole = scalar == floor(scalar);
    return json_object_set_new(o, "query_pre_attn_scalar",
                               whole ? json_integer((json_int_t)scalar) : json_real(scalar));
}

/* What only some models have. */
static int export_features(const struct model *m, json_t *o)
{
    const struct llama_config *c = m->config;
    const struct llama_traits *t = c->traits;
    int bad = json_object_set_new(o, c->gate->key, json_string(c->gate->names[0]));
    if (t->has_attention_bias)
        bad |= json_object_set_new(o, "attention_bias", json_boolean(c->out_bias));
    if (t->has_qkv_bias)
        bad |= json_object_set_new(o, "qkv_bias", json_boolean(c->qkv_bias));
    if (t->experts)
        bad |= experts_export(&c->experts, m, t->experts, o);
    if (t->has_mlp_bias)
        bad |= json_object_set_new(o, "mlp_bias", json_boolean(c->mlp_bias));
    if (t->has_residual_dropout)
        bad |= json_object_set_new(o, "resid_pdrop", json_real(c->residual_dropout));
    if (t->has_query_scalar)
        bad |= export_query_scalar(o, c->query_scalar);
    if (t->has_attention_cap)
        bad |= export_cap(o, "attn_logit_softcapping", c->attention_cap);
    if (t->has_qkv_clip)
        bad |= export_cap(o, "clip_qkv", c->qkv_clip);
    if (t->has_logit_cap)
        bad |= export_cap(o, "final_logit_softcapping", c->logit_cap);
    return bad;
}

static enum status export_rope(const struct llama_config *c, json_t *o)
{
    return c->traits->has_local_rope ? rope_export_both(&c->rope, &c->local_rope, o)
                                     : rope_export(&c->rope, o);
}

json_t *llama_export_config(const struct model *m)
{
    const struct llama_config *c = m->config;
    json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:b}",
                          "vocab_size", (json_int_t)m->language.vocab_size,
                          "max_position_embeddings", (json_int_t)m->language.context, "hidden_size",
                          (json_int_t)m->hidden, "num_hidden_layers", (json_int_t)m->n_layers,
                          "intermediate_size", (json_int_t)c->intermediate, "num_attention_heads",
                          (json_int_t)c->heads, "num_key_value_heads", (json_int_t)c->kv_heads,
                          "head_dim", (json_int_t)c->head_dim, "rms_norm_eps", c->norm_epsilon,
                          "initializer_range", c->init_std, "attention_dropout",
                          c->attention_dropout, "tie_word_embeddings", m->language.tied);
    if (!o)
        return NULL;
    int bad = export_features(m, o) | export_window(m, o);
    if (!bad && export_rope(c, o) == OK)
        return o;
    json_decref(o);
    return NULL;
}
