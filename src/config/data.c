/* data.c: the data of a run, out of the config that its checkpoints keep. */
#include "config/config_internal.h"

static void add_key(struct str *out, const json_t *config, const char *name)
{
    const json_t *value = json_object_get(config, name);
    if (json_is_array(value) && json_array_size(value) > 0) {
        config_add_datasets(out, name, value);
    } else if (value && !json_is_null(value) && !json_is_array(value)) {
        str_addf(out, "%s: ", name);
        config_add_json(out, value);
        str_add(out, "\n");
    }
}

void config_add_data(struct str *out, const json_t *config, int with_data)
{
    add_key(out, config, "max_seq_length");
    add_key(out, config, "seed");
    add_key(out, config, "data_seed");
    add_key(out, config, "chat_template");
    add_key(out, config, "train_on_inputs");
    add_key(out, config, "excess_length_strategy");
    add_key(out, config, "max_samples");
    if (!with_data)
        return;
    add_key(out, config, "datasets");
    add_key(out, config, "eval_datasets");
    add_key(out, config, "val_set_size");
}
