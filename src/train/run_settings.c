#include "train/run_settings.h"

#include <string.h>

#include "base/log.h"
#include "engine/weights.h"
#include "io/weights.h"

/* ---- making them ----------------------------------------------------------------------------- */

static void add_precision(struct str *out, const struct precision *p)
{
    str_addf(out, "%s weights, %s gradients, %s optimizer states%s%s", dtype_name(p->weights),
             dtype_name(p->gradients), format_name(p->states),
             p->split_masters ? ", 24-bit masters"
             : p->masters     ? ", f32 masters"
                              : "",
             p->loss_scaling ? ", loss scaling" : "");
}

/* Which weights an adapter is beside: checkpoints hold the adapter alone. */
static enum status add_base(const struct session *s, json_t *settings)
{
    const struct engine *e = &s->engine;
    char digits[HASH_TEXT] = "from the seed";
    if (!e->model || !e->model->adapter)
        return OK;
    if (e->model_folder)
        TRY(weights_identity(e->model_folder, digits));
    if (json_object_set_new(settings, "base", json_string(digits)) != 0)
        return FAIL(ERR_MEMORY, "out of memory for the run's settings");
    return OK;
}

enum status run_settings_make(const struct session *s, int64_t n_steps, json_t **out)
{
    json_t *config = NULL, *data = NULL;
    struct str precision = {0};
    const struct config first = session_first_config(s);
    enum status status;
    *out = NULL;
    add_precision(&precision, &s->engine.settings.numerics.precision);
    TRY_GOTO(str_status(&precision), out);
    TRY_GOTO(config_json(&first, &config), out);
    if (!task_has_length(&s->engine.task)) /* whoever reads it is not to take it for a setting */
        (void)json_object_del(config, "max_seq_length");
    TRY_GOTO(s->engine.task.def->data->identity(s->data, &data), out);
    *out = json_pack("{s:O, s:O, s:s, s:s, s:I, s:i}", "config", config, "data", data, "precision",
                     precision.text, "device", s->engine.device->ops->name, "steps",
                     (json_int_t)n_steps, "threads", s->engine.device->env.n_threads);
    if (!*out)
        status = FAIL(ERR_MEMORY, "out of memory for the run's settings");
    if (status == OK)
        status = add_base(s, *out);
out:
    json_decref(config);
    json_decref(data);
    str_release(&precision);
    return status;
}

/* ---- comparing them -------------------------------------------------------------------------- */

/* One of the settings that the keys came to. */
static size_t add_text_change(struct str *out, const char *name, const json_t *now,
                              const json_t *before, size_t n)
{
    const char *is = json_string_value(json_object_get(now, name));
    const char *was = json_string_value(json_object_get(before, name));
    if (is && was && strcmp(is, was) == 0)
        return n;
    str_addf(out, "%s%s is %s, was %s", n ? "; " : "", name, is, was ? was : "not noted");
    return n + 1;
}

static size_t add_data_change(const struct session *s, struct str *out, const json_t *now,
                              const json_t *before, size_t n)
{
    const json_t *is = json_object_get(now, "data"), *was = json_object_get(before, "data");
    if (json_equal(is, was))
        return n;
    const char *unit = s->engine.task.def->unit.many;
    long long n_is = (long long)json_integer_value(json_object_get(is, unit));
    long long n_was = (long long)json_integer_value(json_object_get(was, unit));
    str_addf(out, "%sthe training data (%s) is %lld %s, was %lld%s", n ? "; " : "",
             config_where(s->config, "datasets"), n_is, unit, n_was,
             n_is == n_was ? " others, or in another order" : "");
    return n + 1;
}

static enum status add_exact_changes(const struct session *s, const json_t *now,
                                     const json_t *before, struct str *out, size_t *n)
{
    const json_t *config = json_object_get(before, "config");
    const struct config first = session_first_config(s);
    if (!config) {
        str_add(out, "its settings were not noted in it");
        *n = 1;
        return str_status(out);
    }
    *n = config_changes(&first, config, CONFIG_RESUME_EXACT, out);
    *n = add_text_change(out, "precision", now, before, *n);
    *n = add_text_change(out, "device", now, before, *n);
    if (json_object_get(now, "base"))
        *n = add_text_change(out, "base", now, before, *n);
    *n = add_data_change(s, out, now, before, *n);
    return str_status(out);
}

/* Lengthening a run is what resuming is for, but a schedule that ends somewhere is stretched. */
static void tell_length(const struct session *s, const json_t *now, const json_t *before)
{
    json_int_t is = json_integer_value(json_object_get(now, "steps"));
    json_int_t was = json_integer_value(json_object_get(before, "steps"));
    bool constant = s->config->lr_scheduler_type == CONFIG_SCHEDULE_CONSTANT ||
                    s->config->lr_scheduler_type == CONFIG_SCHEDULE_CONSTANT_WITH_WARMUP;
    if (is != was && was > 0 && !constant)
        log_warn("the run is now %lld steps long, it was %lld: from here on the learning rate is "
                 "that of a run of %lld",
                 (long long)is, (long long)was, (long long)is);
}

/* Sums that are shared out among threads are added up in their order. */
static void tell_threads(const struct session *s, const json_t *now, const json_t *before)
{
    json_int_t is = json_integer_value(json_object_get(now, "threads"));
    json_int_t was = json_integer_value(json_object_get(before, "threads"));
    if (is != was && was > 0 && !s->engine.device->ops->memory_is_apart)
        log_warn("%lld threads compute, %lld did before the checkpoint: some sums come in another "
                 "order, and losses may differ in their last digits; num_threads=%lld goes on as "
                 "before",
                 (long long)is, (long long)was, (long long)was);
}

static enum status tell_free_changes(const struct session *s, const json_t *before)
{
    struct str text = {0};
    size_t n =
        config_changes(s->config, json_object_get(before, "config"), CONFIG_RESUME_FREE, &text);
    enum status status = text.failed ? str_status(&text) : OK;
    if (status == OK && n > 0)
        log_info("changed since the checkpoint, without effect on the steps: %s", text.text);
    str_release(&text);
    return status;
}

/* Could the run go on from it, as its settings are now? */
static enum status takes_states(const struct session *s, const struct checkpoint *c, bool *yes)
{
    struct engine_states states = {0};
    enum status status = engine_find_states(&s->engine, &states);
    *yes = status == OK && checkpoint_takes_states(c, states.list.items, states.list.n);
    vec_release(&states.list);
    return status;
}

/* Changes are never accepted by mistake; of others than the states can follow there is no talk. */
static enum status refuse(const struct session *s, const struct checkpoint *c, const char *changes,
                          size_t n)
{
    const char *path = checkpoint_path(c);
    bool acceptable;
    TRY(takes_states(s, c, &acceptable));
    if (acceptable)
        return FAIL(ERR_CONFIG,
                    "%s is of a run with other settings: %.1400s. Resume with those it had, start "
                    "a new run from its weights (model_name_or_path: %s), or accept the change%s "
                    "with allow_resume_changes: true",
                    path, changes, path, n == 1 ? "" : "s");
    return FAIL(ERR_CONFIG,
                "%s is of a run with other settings: %.1400s. Its optimizer states are not those "
                "that this run has: resume with the settings it had, or start a new run from its "
                "weights (model_name_or_path: %s)",
                path, changes, path);
}

enum status run_settings_compare(const struct session *s, const json_t *now,
                                 const struct checkpoint *c, bool *changed)
{
    const json_t *before = json_object_get(checkpoint_state(c), "settings");
    struct str text = {0};
    size_t n;
    enum status status;
    *changed = false;
    TRY_GOTO(add_exact_changes(s, now, before, &text, &n), out);
    *changed = n > 0;
    if (n > 0 && !s->config->allow_resume_changes) {
        status = refuse(s, c, text.text, n);
        goto out;
    }
    if (n > 0)
        log_warn("the steps from here on are not those of the run that was saved: %s", text.text);
    if (!before)
        goto out;
    tell_length(s, now, before);
    tell_threads(s, now, before);
    TRY_GOTO(tell_free_changes(s, before), out);
out:
    str_release(&text);
    return status;
}
