/* config_override.c: see config_override.h. */
#include "model/config_override.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Names of one setting. */
static const char *const synonyms[][2] = {
    {"n_positions", "max_position_embeddings"}, {"n_embd", "hidden_size"},
    {"n_layer", "num_hidden_layers"},           {"n_head", "num_attention_heads"},
    {"rope_scaling", "rope_parameters"},        {"torch_dtype", "dtype"},
};

static const char *other_name(const char *key)
{
    for (size_t i = 0; i < ARRAY_LEN(synonyms); i++) {
        for (int j = 0; j < 2; j++) {
            if (strcmp(synonyms[i][j], key) == 0)
                return synonyms[i][1 - j];
        }
    }
    return NULL;
}

const json_t *model_config_value(const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);
    const char *other = other_name(key);
    return value || !other ? value : json_object_get(config, other);
}

static bool is_rope_object(const char *key)
{
    return strcmp(key, "rope_scaling") == 0 || strcmp(key, "rope_parameters") == 0;
}

/* rope_theta may stand beside rope_parameters or in it, and inside it wins: it is moved out, so
 * that it survives a new rope_scaling, and a new rope_theta has an effect. */
static int hoist_theta(json_t *config)
{
    int bad = 0;
    static const char *const objects[] = {"rope_parameters", "rope_scaling"}; /* the latter wins */
    for (size_t i = 0; i < ARRAY_LEN(objects); i++) {
        json_t *object = json_object_get(config, objects[i]);
        json_t *theta = json_object_get(object, "rope_theta");
        if (!theta)
            continue;
        bad |= json_object_set(config, "rope_theta", theta);
        bad |= json_object_del(object, "rope_theta");
    }
    return bad;
}

enum status model_config_override(json_t *config, const json_t *overrides)
{
    json_t *all = (json_t *)(uintptr_t)overrides; /* Jansson iterates over mutable ones only */
    const char *key;
    json_t *value;
    int bad = 0;
    json_object_foreach(all, key, value)
    {
        const char *other = other_name(key);
        if (is_rope_object(key) || strcmp(key, "rope_theta") == 0)
            bad |= hoist_theta(config);
        if (other && !json_object_get(all, other))
            (void)json_object_del(config, other);
        bad |= json_object_set_new(config, key, json_deep_copy(value));
    }
    return bad ? FAIL(ERR_MEMORY, "out of memory for a model's config") : OK;
}
