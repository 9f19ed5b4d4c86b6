/* rope.c: see rope.h. */
#include "model/rope.h"

#include <math.h>
#include <string.h>

#define TWO_PI 6.283185307179586476925

static const char *const type_names[ROPE_TYPE_COUNT] = {
    [ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_DYNAMIC] = "dynamic",
    [ROPE_LLAMA3] = "llama3",   [ROPE_YARN] = "yarn",
};

static bool parse_type(struct rope *r, struct keys *k)
{
    const char *old = keys_text(k, "type", "default"); /* the oldest spelling */
    const char *text = keys_text(k, "rope_type", old);
    for (int i = 0; i < ROPE_TYPE_COUNT; i++) {
        if (strcmp(text, type_names[i]) == 0) {
            r->type = (enum rope_type)i;
            return true;
        }
    }
    KEYS_FAIL(k, "rope_type", ERR_UNSUPPORTED,
              "key '%srope_type' is '%s'; this version has default, linear, dynamic, "
              "llama3 and yarn",
              k->path, text);
    return false;
}

/* The paper's temperature: cos and sin grow a little as the context is stretched. */
static double yarn_scale(double factor, double mscale)
{
    return factor <= 1 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

static void parse_yarn(struct rope *r, struct keys *k, int64_t context)
{
    r->factor = keys_float(k, "factor", (double)context / (double)r->original_context, 1e-6, 1e6);
    r->beta_fast = keys_float(k, "beta_fast", 32, 0, 1e6);
    r->beta_slow = keys_float(k, "beta_slow", 1, 0, 1e6);
    if (r->beta_fast == 0) /* as in Hugging Face, 0 means the default */
        r->beta_fast = 32;
    if (r->beta_slow == 0)
        r->beta_slow = 1;
    r->truncate = keys_bool(k, "truncate", true);
    double numerator = keys_float(k, "mscale", 0, 0, 1e6);
    double denominator = keys_float(k, "mscale_all_dim", 0, 0, 1e6);
    double preset = yarn_scale(r->factor, 1);
    if (numerator > 0 && denominator > 0)
        preset = yarn_scale(r->factor, numerator) / yarn_scale(r->factor, denominator);
    r->attention_factor = keys_float(k, "attention_factor", preset, 0, 1e6);
}

static void parse_llama3(struct rope *r, struct keys *k)
{
    r->factor = keys_float(k, "factor", KEYS_REQUIRED_FLOAT, 1e-6, 1e6);
    r->low_freq_factor = keys_float(k, "low_freq_factor", KEYS_REQUIRED_FLOAT, 1e-6, 1e6);
    r->high_freq_factor = keys_float(k, "high_freq_factor", KEYS_REQUIRED_FLOAT, 1e-6, 1e6);
    if (keys_good(k) && r->high_freq_factor <= r->low_freq_factor)
        KEYS_FAIL(k, "high_freq_factor", ERR_CONFIG,
                  "key '%shigh_freq_factor' (%g) must be greater than low_freq_factor "
                  "(%g)",
                  k->path, r->high_freq_factor, r->low_freq_factor);
}

static void parse_partial(struct rope *r, struct keys *k, const struct rope_rules *rules)
{
    r->partial = keys_float(k, "partial_rotary_factor", r->partial, 0, 1);
    if (!rules->partial && r->partial != 1)
        KEYS_FAIL(k, "partial_rotary_factor", ERR_UNSUPPORTED,
                  "key '%spartial_rotary_factor': only 1 is supported", k->path);
}

static void parse_object(struct rope *r, struct keys *k, int64_t context, int64_t beside,
                         const struct rope_rules *rules)
{
    r->theta = keys_float(k, "rope_theta", r->theta, 1.0 + 1e-9, 1e15);
    if (!parse_type(r, k))
        return;
    if (rules->unscaled && r->type != ROPE_DEFAULT)
        KEYS_FAIL(k, "rope_type", ERR_UNSUPPORTED,
                  "key '%srope_type' is '%s'; this model has default only here", k->path,
                  type_names[r->type]);
    parse_partial(r, k, rules);
    int64_t original = keys_int(k, "original_max_position_embeddings", context, 1, INT32_MAX);
    /* Some configs say it beside the object; Hugging Face lets that one win. */
    r->original_context = beside ? beside : original;
    if (r->type == ROPE_LINEAR || r->type == ROPE_DYNAMIC)
        r->factor = keys_float(k, "factor", KEYS_REQUIRED_FLOAT, 1e-6, 1e6);
    if (r->type == ROPE_LLAMA3)
        parse_llama3(r, k);
    if (r->type == ROPE_YARN)
        parse_yarn(r, k, context);
    keys_finish_inner(k);
}

static struct rope plain_rope(int64_t context)
{
    return (struct rope){
        .factor = 1, .original_context = context, .attention_factor = 1, .partial = 1};
}

/* Nested by layer type: taken when all say the same. NULL and a failure otherwise. */
static const json_t *flatten(struct keys *top, const json_t *object)
{
    static const char *const layer_types[] = {"full_attention", "sliding_attention"};
    const json_t *found = NULL;
    for (size_t i = 0; i < ARRAY_LEN(layer_types); i++) {
        const json_t *one = json_object_get(object, layer_types[i]);
        if (!json_is_object(one))
            continue;
        if (found && !json_equal((json_t *)(uintptr_t)found, (json_t *)(uintptr_t)one)) {
            KEYS_FAIL(top, "rope_parameters", ERR_UNSUPPORTED,
                      "key 'rope_parameters': different rotary "
                      "embeddings per layer type are not supported");
            return NULL;
        }
        found = one;
    }
    return found ? found : object;
}

void rope_parse(struct rope *r, struct keys *top, int64_t context, const struct rope_rules *rules)
{
    *r = plain_rope(context);
    r->theta = keys_float(top, "rope_theta", rules->theta, 1.0 + 1e-9, 1e15);
    parse_partial(r, top, rules);
    int64_t beside = keys_int(top, "original_max_position_embeddings", 0, 1, INT32_MAX);
    const json_t *scaling = keys_object(top, "rope_scaling");
    const json_t *parameters = keys_object(top, "rope_parameters");
    /* Where both are given rope_scaling wins, as in Hugging Face. */
    bool old = json_object_size(scaling) > 0;
    const json_t *object = old ? scaling : parameters;
    object = object ? flatten(top, object) : NULL;
    if (!object)
        return;
    struct keys k;
    keys_init_inner(&k, top, object, old ? "rope_scaling." : "rope_parameters.");
    parse_object(r, &k, context, beside, rules);
}

void rope_parse_both(struct rope *full, struct rope *local, struct keys *top, int64_t context,
                     const struct rope_rules *rules, double local_theta)
{
    *full = *local = plain_rope(context);
    full->theta = keys_float(top, "rope_theta", rules->theta, 1.0 + 1e-9, 1e15);
    local->theta = keys_float(top, "rope_local_base_freq", local_theta, 1.0 + 1e-9, 1e15);
    const json_t *scaling = keys_object(top, "rope_scaling");
    const json_t *parameters = keys_object(top, "rope_parameters");
    struct keys both, k;
    const json_t *of_full = NULL, *of_local = NULL;
    if (parameters) {
        keys_init_inner(&both, top, parameters, "rope_parameters.");
        of_full = keys_object(&both, "full_attention");
        of_local = keys_object(&both, "sliding_attention");
        keys_finish_inner(&both);
    }
    bool old = json_object_size(scaling) > 0; /* the older spelling speaks of full attention */
    if (old || of_full) {
        keys_init_inner(&k, top, old ? scaling : of_full,
                        old ? "rope_scaling." : "rope_parameters.full_attention.");
        parse_object(full, &k, context, 0, rules);
    }
    if (of_local) {
        keys_init_inner(&k, top, of_local, "rope_parameters.sliding_attention.");
        parse_object(local, &k, context, 0, rules);
    }
}

int64_t rope_channels(const struct rope *r, int64_t head_dim)
{
    return (int64_t)((double)head_dim * r->partial);
}

/* The (fractional) pair whose wave turns `rotations` times within the original context. */
static double yarn_pair(const struct rope *r, double head_dim, double rotations)
{
    return head_dim * log((double)r->original_context / (rotations * TWO_PI)) / (2 * log(r->theta));
}

static void apply_yarn(const struct rope *r, int64_t head_dim, double *freq)
{
    double low = yarn_pair(r, (double)head_dim, r->beta_fast);
    double high = yarn_pair(r, (double)head_dim, r->beta_slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = MAX(low, 0.0);
    high = MIN(high, (double)(head_dim - 1));
    if (low == high)
        high += 0.001;
    for (int64_t i = 0; i < head_dim / 2; i++) {
        double stretch = ((double)i - low) / (high - low);
        stretch = MIN(MAX(stretch, 0.0), 1.0);
        freq[i] = freq[i] / r->factor * stretch + freq[i] * (1 - stretch);
    }
}

static double llama3_freq(const struct rope *r, double freq)
{
    double turns = (double)r->original_context * freq / TWO_PI;
    if (turns > r->high_freq_factor)
        return freq;
    if (turns < r->low_freq_factor)
        return freq / r->factor;
    double keep = (turns - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1 - keep) * freq / r->factor + keep * freq;
}

void rope_inv_freq(const struct rope *r, int64_t n_channels, float *inv_freq)
{
    double freq[ROPE_MAX_HEAD_DIM / 2];
    BUG_ON(n_channels > ROPE_MAX_HEAD_DIM);
    for (int64_t i = 0; i < n_channels / 2; i++) {
        freq[i] = pow(r->theta, -2.0 * (double)i / (double)n_channels);
        if (r->type == ROPE_LINEAR)
            freq[i] /= r->factor;
        if (r->type == ROPE_LLAMA3)
            freq[i] = llama3_freq(r, freq[i]);
    }
    if (r->type == ROPE_YARN)
        apply_yarn(r, n_channels, freq);
    for (int64_t i = 0; i < n_channels / 2; i++)
        inv_freq[i] = (float)freq[i];
}

static json_t *export_object(const struct rope *r)
{
    json_t *o = json_object();
    int bad = json_object_set_new(o, "rope_type", json_string(type_names[r->type]));
    if (r->type != ROPE_DEFAULT)
        bad |= json_object_set_new(o, "factor", json_real(r->factor));
    if (r->type == ROPE_LLAMA3 || r->type == ROPE_YARN)
        bad |= json_object_set_new(o, "original_max_position_embeddings",
                                   json_integer(r->original_context));
    if (r->type == ROPE_LLAMA3) {
        bad |= json_object_set_new(o, "low_freq_factor", json_real(r->low_freq_factor));
        bad |= json_object_set_new(o, "high_freq_factor", json_real(r->high_freq_factor));
    }
    if (r->type == ROPE_YARN) {
        bad |= json_object_set_new(o, "beta_fast", json_real(r->beta_fast));
        bad |= json_object_set_new(o, "beta_slow", json_real(r->beta_slow));
        bad |= json_object_set_new(o, "truncate", json_boolean(r->truncate));
        bad |= json_object_set_new(o, "attention_factor", json_real(r->attention_factor));
    }
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

/* The object with theta in it, as rope_parameters has it. */
static json_t *export_parameters(const struct rope *r)
{
    json_t *o = export_object(r);
    int bad = json_object_set_new(o, "rope_theta", json_real(r->theta));
    if (r->partial != 1)
        bad |= json_object_set_new(o, "partial_rotary_factor", json_real(r->partial));
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *export_scaling(const struct rope *r)
{
    return r->type == ROPE_DEFAULT ? json_null() : export_object(r);
}

enum status rope_export(const struct rope *r, json_t *config)
{
    int bad = json_object_set_new(config, "rope_theta", json_real(r->theta));
    if (r->partial != 1)
        bad |= json_object_set_new(config, "partial_rotary_factor", json_real(r->partial));
    bad |= json_object_set_new(config, "rope_scaling", export_scaling(r));
    bad |= json_object_set_new(config, "rope_parameters", export_parameters(r));
    return bad ? FAIL(ERR_MEMORY, "out of memory for a config") : OK;
}

enum status rope_export_both(const struct rope *full, const struct rope *local, json_t *config)
{
    json_t *both = json_object();
    int bad = json_object_set_new(config, "rope_theta", json_real(full->theta));
    bad |= json_object_set_new(config, "rope_local_base_freq", json_real(local->theta));
    bad |= json_object_set_new(config, "rope_scaling", export_scaling(full));
    bad |= json_object_set_new(both, "full_attention", export_parameters(full));
    bad |= json_object_set_new(both, "sliding_attention", export_parameters(local));
    bad |= json_object_set_new(config, "rope_parameters", both);
    return bad ? FAIL(ERR_MEMORY, "out of memory for a config") : OK;
}
