/* A model folder with keys of the config over its config.json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/model_open.h"
#include "support/golden.h"
#include "support/scratch.h"

/* Opens the model of a folder under tests/golden with one override. */
static enum status open_with(const char *name, const char *override, struct model **model)
{
    char folder[128];
    const char *overrides[] = {folder, override};
    struct config *cfg;
    char *found;
    (void)snprintf(folder, sizeof(folder), "model_name_or_path=tests/golden/%s", name);
    expect_ok(config_load(&cfg, NULL, overrides, ARRAY_LEN(overrides)));
    expect_ok(config_resolve(cfg, 1));
    enum status status = open_model(cfg, NULL, model, &found);
    assert_true((status == OK) == (found != NULL));
    mem_free(found);
    config_free(cfg);
    return status;
}

static void expect_key(const char *name, const char *override, const char *key, double expected)
{
    struct model *m;
    expect_ok(open_with(name, override, &m));
    json_t *config = model_export_config(m);
    double got = json_number_value(json_object_get(config, key));
    if (got < expected || got > expected)
        fail_msg("%s: %s is %g instead of %g", override, key, got, expected);
    json_decref(config);
    model_free(m);
}

static void keys_of_the_config_override_the_folders(void **state)
{
    (void)state;
    expect_key("gpt2", "model.attn_pdrop=0.25", "attn_pdrop", 0.25);
    expect_key("gpt2", "model.resid_pdrop=0.5", "resid_pdrop", 0.5);
    expect_key("llama", "model.rms_norm_eps=0.125", "rms_norm_eps", 0.125);
    expect_key("llama", "model.max_position_embeddings=4096", "max_position_embeddings", 4096);
    /* config.json has rope_theta inside rope_parameters, where it would win */
    expect_key("llama", "model.rope_theta=1234", "rope_theta", 1234);
}

static void a_new_rope_scaling_keeps_the_folders_theta(void **state)
{
    (void)state;
    static const char override[] = "model.rope_scaling={rope_type: linear, factor: 2.0}";
    expect_key("llama3", "model.rope_theta=777", "rope_theta", 777);
    struct model *before;
    expect_ok(open_with("llama3", "model.use_cache=true", &before));
    json_t *config = model_export_config(before);
    double theta = json_number_value(json_object_get(config, "rope_theta"));
    expect_key("llama3", override, "rope_theta", theta);
    json_decref(config);
    model_free(before);
}

static void a_key_that_contradicts_the_weights_is_refused_naming_both(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *override, *message;
    } cases[] = {
        {"llama", "model.hidden_size=128", "command line: model.hidden_size is 128, but the "},
        {"llama", "model.num_hidden_layers=1",
         "model.num_hidden_layers is 1, but the weights in "
         "tests/golden/llama have 2; leave it out"},
        {"llama", "model.vocab_size=50", "model.vocab_size is 50"},
        {"llama", "model.attention_bias=true", "model.attention_bias is true"},
        {"gpt2", "model.n_layer=1", "model.n_layer is 1"},
        {"gpt2", "model.num_hidden_layers=1", "model.num_hidden_layers is 1"},
        {"gpt2", "model.n_positions=8", "model.n_positions is 8"},
        {"gpt2", "model.num_hiden_layers=2", "command line: key 'num_hiden_layers' is not known"},
        {"gpt2", "model.layer_norm_epsilon=7", "command line: key 'layer_norm_epsilon' is 7"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct model *m;
        assert_int_equal(open_with(cases[i].folder, cases[i].override, &m), ERR_CONFIG);
        assert_null(m);
        expect_message(cases[i].message);
    }
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_the_config_override_the_folders),
        cmocka_unit_test(a_new_rope_scaling_keeps_the_folders_theta),
        cmocka_unit_test(a_key_that_contradicts_the_weights_is_refused_naming_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
