/* The keys under `model:`: unknown ones are errors, and every error names the key's own line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "config/config.h"
#include "support/scratch.h"

static enum status resolve(const char *text, const char *override)
{
    struct config *cfg;
    enum status status =
        config_load_text(&cfg, text, strlen(text), "demo.yaml", &override, override ? 1 : 0);
    if (status == OK)
        status = config_resolve(cfg, 1);
    config_free(cfg);
    return status;
}

#define LLAMA                    \
    "model:\n"                   \
    "  model_type: llama\n"      \
    "  hidden_size: 64\n"        \
    "  num_attention_heads: 4\n" \
    "  intermediate_size: 128\n" \
    "  vocab_size: 100\n"        \
    "  max_position_embeddings: 128\n"

static void an_unknown_model_key_is_an_error_with_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *override, *message;
    } cases[] = {
        {"model:\n  model_type: gpt2\n  num_hiden_layers: 12\n", NULL,
         "demo.yaml:3: key 'num_hiden_layers' is not known here; did you mean "
         "'num_hidden_layers'?"},
        {"model: {model_type: gpt2}\n", "model.num_hiden_layers=12",
         "command line: key 'num_hiden_layers' is not known here"},
        {"model:\n  model_type: gpt2\n  frobnicate: 12\n", NULL,
         "demo.yaml:3: key 'frobnicate' is not known here: this architecture does not read it"},
        /* a key of another architecture is unknown to this one */
        {"model:\n  model_type: gpt2\n  rope_theta: 10000\n", NULL,
         "demo.yaml:3: key 'rope_theta'"},
        {LLAMA "  num_hidden_layers: 2\n  n_positions: 64\n", NULL,
         "demo.yaml:9: key 'n_positions'"},
        {LLAMA "  num_hidden_layers: 2\n  rope_scaling:\n    rope_type: linear\n    facter: 2\n",
         NULL, "demo.yaml:11: key 'rope_scaling.facter' is not known here; did you mean 'factor'?"},
        {LLAMA "  num_hidden_layers: 2\n", "model.rope_scaling.factor=2",
         "command line: key 'rope_scaling.factor' is not known here"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(resolve(cases[i].text, cases[i].override), ERR_CONFIG);
        expect_message(cases[i].message);
    }
}

static void a_wrong_model_key_names_its_own_line(void **state)
{
    (void)state;
    assert_int_equal(resolve("seed: 1\nmodel:\n  model_type: gpt2\n  n_layer: 0\n", NULL),
                     ERR_CONFIG);
    expect_message("demo.yaml:4: key 'n_layer' is 0; it must be from 1");
    assert_int_equal(resolve("seed: 1\nmodel:\n  n_layer: 2\n  model_type: gtp2\n", NULL),
                     ERR_UNSUPPORTED);
    expect_message("demo.yaml:4: model_type 'gtp2' is not an architecture");
    assert_int_equal(resolve(LLAMA, NULL), ERR_CONFIG);
    expect_message("demo.yaml:1: key 'num_hidden_layers' is missing");
    assert_int_equal(resolve("model:\n  model_type: gpt2\n  n_embd: 64\n  hidden_size: 32\n", NULL),
                     ERR_CONFIG);
    expect_message("demo.yaml:4: key 'hidden_size' is 32 and key 'n_embd' is 64");
}

static void keys_of_a_config_json_that_compute_nothing_are_let_in(void **state)
{
    (void)state;
    static const char gpt2[] =
        "model:\n"
        "  {model_type: gpt2, activation_function: gelu_new, architectures: [GPT2LMHeadModel],\n"
        "   attn_pdrop: 0.0, bos_token_id: 50256, embd_pdrop: 0.1, eos_token_id: 50256,\n"
        "   initializer_range: 0.02, layer_norm_epsilon: 1e-5, n_ctx: 1024, n_embd: 768,\n"
        "   n_head: 12, n_inner: null, n_layer: 12, n_positions: 1024,\n"
        "   reorder_and_upcast_attn: false, resid_pdrop: 0.1, add_cross_attention: false,\n"
        "   scale_attn_by_inverse_layer_idx: false, scale_attn_weights: true,\n"
        "   summary_activation: null, summary_first_dropout: 0.1, summary_proj_to_labels: true,\n"
        "   summary_type: cls_index, summary_use_proj: true, pruned_heads: {},\n"
        "   task_specific_params: {text-generation: {do_sample: true, max_length: 50}},\n"
        "   torch_dtype: float32, transformers_version: 4.57.1, use_cache: true,\n"
        "   vocab_size: 50257, pad_token_id: 50256, is_encoder_decoder: false}\n";
    static const char llama[] =
        LLAMA "  num_hidden_layers: 2\n  pretraining_tp: 1\n  rms_norm_eps: 1e-5\n"
              "  rope_scaling: null\n  rope_theta: 500000.0\n  use_cache: true\n"
              "  tie_word_embeddings: false\n  attention_bias: false\n  mlp_bias: false\n"
              "  attention_dropout: 0.0\n  head_dim: 16\n  hidden_act: silu\n"
              "  num_key_value_heads: 2\n  dtype: bfloat16\n  _name_or_path: x\n";
    assert_int_equal(resolve(gpt2, NULL), OK);
    assert_int_equal(resolve(llama, NULL), OK);
    assert_int_equal(resolve(gpt2, "model.is_encoder_decoder=true"), ERR_UNSUPPORTED);
    expect_message("command line: key 'is_encoder_decoder': only false");
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_model_key_is_an_error_with_its_line),
        cmocka_unit_test(a_wrong_model_key_names_its_own_line),
        cmocka_unit_test(keys_of_a_config_json_that_compute_nothing_are_let_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
