/* experts_config.c: the keys of configs that speak of experts. */
#include "model/experts.h"

/* The number of experts goes by either of two names; both may be there. */
static int64_t parse_count(struct keys *k)
{
    bool local = keys_has(k, "num_local_experts"), plain = keys_has(k, "num_experts");
    int64_t preset = local ? 1 : KEYS_REQUIRED_INT;
    int64_t a = keys_int(k, "num_experts", preset, 1, 1 << 20);
    int64_t b = keys_int(k, "num_local_experts", a, 1, 1 << 20);
    if (keys_good(k) && local && plain && a != b)
        KEYS_FAIL(k, "num_experts", ERR_CONFIG,
                  "key 'num_experts' is %lld and key 'num_local_experts' is %lld; they mean the "
                  "same: keep one",
                  (long long)a, (long long)b);
    return local ? b : a;
}

static void parse_layers(struct experts *e, const struct model *m, const struct expert_traits *t,
                         struct keys *k)
{
    int64_t step = t->by_layer ? keys_int(k, "decoder_sparse_step", 1, 1, INT32_MAX) : 1;
    const json_t *dense = t->by_layer ? keys_array(k, "mlp_only_layers") : NULL;
    for (int64_t i = 0; i < m->n_layers; i++)
        e->in_layer[i] = (i + 1) % step == 0;
    for (size_t i = 0; i < json_array_size(dense); i++) {
        const json_t *entry = json_array_get(dense, i);
        int64_t layer = json_is_integer(entry) ? json_integer_value(entry) : -1;
        if (layer >= 0 && layer < m->n_layers)
            e->in_layer[layer] = false;
        else
            KEYS_FAIL(k, "mlp_only_layers", ERR_CONFIG,
                      "key 'mlp_only_layers': entry %zu must be the number of a layer, below %lld",
                      i, (long long)m->n_layers);
    }
    for (int64_t i = 0; i < m->n_layers; i++)
        e->n_layers_with += e->in_layer[i];
}

enum status experts_parse(struct experts *e, struct model *m, const struct expert_traits *t,
                          struct keys *k)
{
    TRY(pool_try(&m->pool, &e->in_layer, sizeof(*e->in_layer) * (size_t)m->n_layers));
    e->names = &t->names;
    e->n = parse_count(k);
    e->per_token = keys_int(k, "num_experts_per_tok", t->per_token, 1, 1 << 20);
    e->width = keys_int(k, t->width_key, KEYS_REQUIRED_INT, 1, 1 << 26);
    if (t->has_shared)
        e->shared_width =
            keys_int(k, "shared_expert_intermediate_size", KEYS_REQUIRED_INT, 1, 1 << 26);
    e->normalize = t->always_normalized || keys_bool(k, "norm_topk_prob", false);
    double balance = keys_float(k, "router_aux_loss_coef", t->balance, 0, 1e6);
    e->balance = keys_bool(k, "output_router_logits", false) ? balance : 0;
    m->balances_tokens = e->balance > 0;
    if (keys_float(k, "router_jitter_noise", 0, 0, 1e6) != 0)
        KEYS_FAIL(k, "router_jitter_noise", ERR_UNSUPPORTED,
                  "key 'router_jitter_noise': only 0 is supported");
    if (keys_good(k) && e->per_token > e->n)
        KEYS_FAIL(k, "num_experts_per_tok", ERR_CONFIG,
                  "key 'num_experts_per_tok' (%lld) is more than there are experts (%lld)",
                  (long long)e->per_token, (long long)e->n);
    if (keys_good(k))
        parse_layers(e, m, t, k);
    return OK;
}

static int set_int(json_t *config, const char *name, int64_t value)
{
    return json_object_set_new(config, name, json_integer((json_int_t)value));
}

static int export_layers(const struct experts *e, const struct model *m, json_t *config)
{
    json_t *dense = json_array();
    int bad = 0;
    for (int64_t i = 0; i < m->n_layers; i++) {
        if (!e->in_layer[i])
            bad |= json_array_append_new(dense, json_integer((json_int_t)i));
    }
    bad |= set_int(config, "decoder_sparse_step", 1);
    return bad | json_object_set_new(config, "mlp_only_layers", dense);
}

/* Without the balance loss, its factor is the source's: it means nothing here. */
int experts_export(const struct experts *e, const struct model *m, const struct expert_traits *t,
                   json_t *config)
{
    int bad = set_int(config, t->config_key, e->n);
    bad |= set_int(config, "num_experts_per_tok", e->per_token);
    bad |= set_int(config, t->width_key, e->width);
    bad |= json_object_set_new(config, "output_router_logits", json_boolean(e->balance > 0));
    if (e->balance > 0)
        bad |= json_object_set_new(config, "router_aux_loss_coef", json_real(e->balance));
    if (t->has_shared)
        bad |= set_int(config, "shared_expert_intermediate_size", e->shared_width);
    if (!t->always_normalized)
        bad |= json_object_set_new(config, "norm_topk_prob", json_boolean(e->normalize));
    return t->by_layer ? bad | export_layers(e, m, config) : bad;
}
