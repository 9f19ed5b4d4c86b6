#include "train/stop_tokens.h"

#include "base/file.h"
#include "base/json.h"
#include "base/vec.h"

static enum status add_id(struct token_list *out, const json_t *id, const char *where)
{
    json_int_t x = json_is_integer(id) ? json_integer_value(id) : -2;
    if (x < -1 || x > INT32_MAX)
        return FAIL(ERR_DATA, "%s: eos_token_id is not a token id or a list of them", where);
    return x < 0 ? OK : vec_push(out, (int32_t)x);
}

/* Absent and null are none. */
static enum status add_ids(struct token_list *out, const json_t *config, const char *where)
{
    const json_t *value = json_object_get(config, "eos_token_id");
    if (!value || json_is_null(value))
        return OK;
    if (!json_is_array(value))
        return add_id(out, value, where);
    for (size_t i = 0; i < json_array_size(value); i++)
        TRY(add_id(out, json_array_get(value, i), where));
    return OK;
}

static enum status add_generation_config(struct token_list *out, const char *folder)
{
    struct str path = {0};
    json_t *config = NULL;
    enum status status;
    str_addf(&path, "%s/generation_config.json", folder);
    TRY_GOTO(str_status(&path), out);
    if (!file_exists(path.text))
        goto out;
    TRY_GOTO(json_read_file(&config, path.text, ERR_DATA), out);
    TRY_GOTO(add_ids(out, config, path.text), out);
out:
    json_decref(config);
    str_release(&path);
    return status;
}

enum status stop_tokens_read(struct token_list *out, const struct tokenizer *t,
                             const struct model *model, const char *folder)
{
    if (tokenizer_eos(t) >= 0)
        TRY(vec_push(out, tokenizer_eos(t)));
    TRY(add_ids(out, model->source, "config.json"));
    return folder ? add_generation_config(out, folder) : OK;
}
