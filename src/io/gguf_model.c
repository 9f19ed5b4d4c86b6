/* gguf_model.c: architectures and their keys; see gguf_model.h. */
#include "io/gguf_model.h"

#include <math.h>
#include <string.h>

static const struct gguf_family families[] = {
    {.model_type = "gpt2", .architecture = "gpt2"},
    {.model_type = "llama", .architecture = "llama", .pairs = true, .scales_by_table = true},
    {.model_type = "mistral", .architecture = "llama", .pairs = true, .scales_by_table = true},
    {.model_type = "mixtral",
     .architecture = "llama",
     .pairs = true,
     .scales_by_table = true,
     .normalizes = true},
    {.model_type = "smollm3", .architecture = "smollm3", .pairs = true},
    {.model_type = "qwen2", .architecture = "qwen2"},
    {.model_type = "qwen3", .architecture = "qwen3"},
    {.model_type = "qwen2_moe", .architecture = "qwen2moe", .needs_head = true},
    {.model_type = "qwen3_moe", .architecture = "qwen3moe", .normalizes = true},
    {.model_type = "olmo2", .architecture = "olmo2", .needs_head = true},
    {.model_type = "olmoe", .architecture = "olmoe", .needs_head = true},
    {.model_type = "phi3", .architecture = "phi3", .names_window = true},
    {.model_type = "gemma2", .architecture = "gemma2", .window_period = 2, .scaled_layers = 46},
    {.model_type = "gemma3_text",
     .architecture = "gemma3",
     .window_period = 6,
     .scaled_layers = 62},
    {.model_type = "bitnet", .architecture = "bitnet", .needs_tied = true},
};

/* ---- what cannot be had ---- */

static enum status no_form(const struct model *m, const char *why)
{
    return FAIL(ERR_UNSUPPORTED,
                "GGUF: llama.cpp has no form for this %s: %s; export a folder instead (-o DIR)",
                m->model_type, why);
}

static enum status check_gpt2(const struct model *m)
{
    json_t *config = model_export_config(m);
    if (!config)
        return FAIL(ERR_MEMORY, "out of memory for the model's keys");
    const char *gelu = json_string_value(json_object_get(config, "activation_function"));
    bool plain = json_is_true(json_object_get(config, "scale_attn_weights")) &&
                 !json_is_true(json_object_get(config, "scale_attn_by_inverse_layer_idx"));
    enum status status = !gelu || strcmp(gelu, "gelu_new") != 0
                             ? no_form(m, "activation_function is not gelu_new")
                         : !plain ? no_form(m, "attention is scaled in another way")
                                  : OK;
    json_decref(config);
    return status;
}

static enum status check_experts(const struct model *m, const struct gguf_family *f)
{
    const struct experts *e = &((const struct llama_config *)m->config)->experts;
    if (e->n_layers_with != m->n_layers)
        return no_form(m, "some layers have no experts");
    if (e->normalize != f->normalizes)
        return no_form(m, f->normalizes ? "norm_topk_prob is false" : "norm_topk_prob is true");
    return OK;
}

static enum status check_positions(const struct model *m, const struct gguf_family *f)
{
    const struct llama_config *c = m->config;
    const struct rope *r = &c->rope;
    if (r->type == ROPE_LLAMA3 && !f->scales_by_table)
        return no_form(m, "its rotary positions are scaled as Llama 3's");
    if (r->type == ROPE_YARN && fabs(r->attention_factor - (0.1 * log(r->factor) + 1)) > 1e-6)
        return no_form(m, "attention_factor of its rotary positions is not the usual one");
    for (int64_t i = 0; i < m->n_layers; i++)
        if (c->layers[i].rotates != (!c->traits->skips_rope || (i + 1) % 4 != 0))
            return no_form(m, "it is not each fourth layer that has no rotary positions");
    return OK;
}

static enum status check_llama(const struct model *m, const struct gguf_family *f)
{
    const struct llama_config *c = m->config;
    double scalar = (double)(m->n_layers == f->scaled_layers ? m->hidden / c->heads : c->head_dim);
    if (m->language.tied && f->needs_head)
        return no_form(m, "its head is tied to the embedding");
    if (!m->language.tied && f->needs_tied)
        return no_form(m, "its head is not the embedding (tie_word_embeddings: true)");
    if (c->gate->op == OP_relu2_gate)
        return no_form(m, "hidden_act is relu2");
    if (c->qkv_clip > 0)
        return no_form(m, "clip_qkv is set");
    if (c->traits->norms->before_out && c->out_bias)
        return no_form(m, "attention_bias is true");
    if (fabs(c->query_scalar - scalar) > 1e-6)
        return no_form(m, "query_pre_attn_scalar is not the size of a head");
    if (c->traits->experts)
        TRY(check_experts(m, f));
    return check_positions(m, f);
}

enum status gguf_family_find(const struct gguf_family **out, const struct model *m)
{
    *out = NULL;
    for (size_t i = 0; i < ARRAY_LEN(families) && !*out; i++)
        if (strcmp(families[i].model_type, m->model_type) == 0)
            *out = &families[i];
    if (!*out)
        return FAIL(ERR_UNSUPPORTED,
                    "GGUF: llama.cpp has no architecture for models of type '%s'; export a folder "
                    "instead (-o DIR)",
                    m->model_type);
    return strcmp(m->def->name, "gpt2") == 0 ? check_gpt2(m) : check_llama(m, *out);
}

void gguf_caveats(const struct model *m, const struct gguf_family *f, struct str *out)
{
    const struct llama_config *c = m->config;
    bool slides = false;
    if (strcmp(m->def->name, "gpt2") == 0)
        return;
    for (int64_t i = 0; i < m->n_layers; i++)
        slides |= c->layers[i].slides;
    if (slides && !f->window_period)
        str_addf(out,
                 "llama.cpp has no sliding window for %s: past %lld tokens it sees more than this "
                 "model does",
                 f->architecture, (long long)c->window);
}

/* ---- keys ---- */

/* "<architecture>.<name>", for the length of one call. */
struct prefixed {
    struct gguf *g;
    const char *architecture;
    char key[128];
};

static const char *key(struct prefixed *p, const char *name)
{
    (void)snprintf(p->key, sizeof(p->key), "%s.%s", p->architecture, name);
    return p->key;
}

static void put_count(struct prefixed *p, const char *name, int64_t value)
{
    gguf_key_u32(p->g, key(p, name), (uint32_t)value);
}

static void put_number(struct prefixed *p, const char *name, double value)
{
    gguf_key_f32(p->g, key(p, name), (float)value);
}

static void put_sizes(struct prefixed *p, const struct model *m, int64_t inner, int64_t heads)
{
    put_count(p, "vocab_size", m->language.vocab_size);
    put_count(p, "context_length", m->language.context);
    put_count(p, "embedding_length", m->hidden);
    put_count(p, "block_count", m->n_layers);
    put_count(p, "feed_forward_length", inner);
    put_count(p, "attention.head_count", heads);
}

static enum status put_gpt2(struct prefixed *p, const struct model *m)
{
    json_t *config = model_export_config(m);
    if (!config)
        return FAIL(ERR_MEMORY, "out of memory for the model's keys");
    put_sizes(p, m, json_integer_value(json_object_get(config, "n_inner")),
              json_integer_value(json_object_get(config, "n_head")));
    put_number(p, "attention.layer_norm_epsilon",
               json_number_value(json_object_get(config, "layer_norm_epsilon")));
    json_decref(config);
    return OK;
}

static void put_rope(struct prefixed *p, const struct llama_config *c)
{
    const struct rope *r = &c->rope;
    put_count(p, "rope.dimension_count", rope_channels(r, c->head_dim));
    put_number(p, "rope.freq_base", r->theta);
    if (c->traits->has_local_rope)
        put_number(p, "rope.freq_base_swa", c->local_rope.theta);
    if (r->type != ROPE_LINEAR && r->type != ROPE_YARN)
        return;
    const char *type = r->type == ROPE_LINEAR ? "linear" : "yarn";
    gguf_key_text(p->g, key(p, "rope.scaling.type"), type, strlen(type));
    put_number(p, "rope.scaling.factor", r->factor);
    if (r->type == ROPE_YARN) {
        put_count(p, "rope.scaling.original_context_length", r->original_context);
        put_number(p, "rope.scaling.yarn_beta_fast", r->beta_fast);
        put_number(p, "rope.scaling.yarn_beta_slow", r->beta_slow);
    }
}

/* Which layers have the window is said where it is not what llama.cpp takes for granted. */
static void put_window(struct prefixed *p, const struct model *m, const struct gguf_family *f)
{
    const struct llama_config *c = m->config;
    bool as_usual = true;
    if (f->names_window || (f->window_period && c->window))
        put_count(p, "attention.sliding_window", c->window);
    if (!f->window_period || !c->window)
        return;
    for (int64_t i = 0; i < m->n_layers; i++)
        as_usual &= c->layers[i].slides == (i % f->window_period < f->window_period - 1);
    if (as_usual)
        return;
    gguf_key_list(p->g, key(p, "attention.sliding_window_pattern"), GGUF_ITEM_BOOL,
                  (uint64_t)m->n_layers);
    for (int64_t i = 0; i < m->n_layers; i++)
        gguf_item_bool(p->g, c->layers[i].slides);
}

static void put_experts(struct prefixed *p, const struct experts *e, const struct expert_traits *t)
{
    put_count(p, "expert_count", e->n);
    put_count(p, "expert_used_count", e->per_token);
    if (strcmp(t->width_key, "intermediate_size") != 0)
        put_count(p, "expert_feed_forward_length", e->width);
    if (e->shared_width)
        put_count(p, "expert_shared_feed_forward_length", e->shared_width);
}

static void put_llama(struct prefixed *p, const struct model *m, const struct gguf_family *f)
{
    const struct llama_config *c = m->config;
    put_sizes(p, m, c->intermediate, c->heads);
    put_count(p, "attention.head_count_kv", c->kv_heads);
    put_count(p, "attention.key_length", c->head_dim);
    put_count(p, "attention.value_length", c->head_dim);
    put_number(p, "attention.layer_norm_rms_epsilon", c->norm_epsilon);
    if (c->attention_cap > 0)
        put_number(p, "attn_logit_softcapping", c->attention_cap);
    if (c->logit_cap > 0)
        put_number(p, "final_logit_softcapping", c->logit_cap);
    if (c->traits->experts)
        put_experts(p, &c->experts, c->traits->experts);
    put_rope(p, c);
    put_window(p, m, f);
}

enum status gguf_model_keys(struct gguf *g, const struct model *m, const struct gguf_family *f)
{
    struct prefixed p = {.g = g, .architecture = f->architecture};
    if (strcmp(m->def->name, "gpt2") == 0)
        return put_gpt2(&p, m);
    put_llama(&p, m, f);
    return OK;
}
