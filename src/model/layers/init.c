#include "model/layers/init.h"

#include <string.h>

static const struct {
    const char *name;
    struct weight_init init;
} rules[] = {
    {"pytorch", {.rule = WEIGHT_PRESET}},
    {"kaiming_normal", {.rule = WEIGHT_KAIMING}},
    {"kaiming_uniform", {.rule = WEIGHT_KAIMING, .uniform = true}},
    {"kaiming_normal_fan_out", {.rule = WEIGHT_KAIMING, .fan_out = true}},
    {"kaiming_uniform_fan_out", {.rule = WEIGHT_KAIMING, .uniform = true, .fan_out = true}},
    {"xavier_normal", {.rule = WEIGHT_XAVIER}},
    {"xavier_uniform", {.rule = WEIGHT_XAVIER, .uniform = true}},
    {"zeros", {.rule = WEIGHT_ZERO}},
};

static void fail(struct keys *k)
{
    KEYS_FAIL(k, "init", ERR_CONFIG,
              "key '%sinit' must be pytorch, kaiming_normal, kaiming_uniform (each also with "
              "_fan_out), xavier_normal, xavier_uniform, zeros, or {normal: 0.02}",
              k->path);
}

struct weight_init init_parse(struct keys *k, struct weight_init preset)
{
    const json_t *value = keys_has(k, "init") ? json_object_get(k->object, "init") : NULL;
    const json_t *std = json_object_get(value, "normal");
    if (!value)
        return preset;
    for (size_t i = 0; json_is_string(value) && i < ARRAY_LEN(rules); i++) {
        if (strcmp(rules[i].name, json_string_value(value)) == 0)
            return rules[i].init;
    }
    if (json_is_number(std) && json_object_size(value) == 1 && json_number_value(std) >= 0)
        return (struct weight_init){.rule = WEIGHT_NORMAL, .std = json_number_value(std)};
    fail(k);
    return preset;
}
