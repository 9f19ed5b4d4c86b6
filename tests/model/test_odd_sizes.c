/* Sizes that nobody chooses, alone and against each other, for every architecture: a model is made,
 * or refused in words that name a key; nothing aborts. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "model/model.h"
#include "support/scratch.h"

static const int64_t odd[] = {-1,
                              0,
                              1,
                              2,
                              3,
                              5,
                              7,
                              12,
                              63,
                              64,
                              127,
                              8191,
                              8192,
                              8194,
                              16384,
                              65535,
                              65536,
                              65537,
                              999983,
                              1 << 20,
                              1 << 24,
                              (1 << 24) + 1,
                              1 << 26,
                              INT32_MAX,
                              (int64_t)INT32_MAX + 1,
                              INT64_C(1) << 32,
                              INT64_C(1) << 53,
                              INT64_MAX,
                              INT64_MIN};

struct family {
    const char *type;
    const char *keys[8];
};

/* Layers are left alone: their number only repeats what one of them shows. */
static const struct family families[] = {
    {"gpt2", {"n_embd", "n_head", "n_inner", "n_positions", "vocab_size"}},
    {"llama",
     {"hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
      "vocab_size", "max_position_embeddings"}},
    {"mistral",
     {"hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "sliding_window"}},
    {"qwen2",
     {"hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "sliding_window",
      "max_window_layers"}},
    {"qwen3", {"hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"}},
    {"olmo2", {"hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"}},
    {"smollm3",
     {"hidden_size", "num_attention_heads", "num_key_value_heads", "no_rope_layer_interval",
      "sliding_window"}},
    {"phi3",
     {"hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "sliding_window",
      "original_max_position_embeddings"}},
    {"gemma2",
     {"hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "sliding_window",
      "query_pre_attn_scalar"}},
    {"gemma3_text",
     {"hidden_size", "num_attention_heads", "head_dim", "sliding_window",
      "sliding_window_pattern"}},
};

static json_t *plain_config(const char *type)
{
    if (strcmp(type, "gpt2") == 0)
        return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i}", "model_type", type, "n_embd", 32,
                         "n_head", 4, "n_layer", 1, "n_positions", 64, "vocab_size", 100);
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "model_type", type, "hidden_size",
                     32, "num_attention_heads", 4, "num_key_value_heads", 2, "num_hidden_layers", 1,
                     "intermediate_size", 64, "max_position_embeddings", 64, "vocab_size", 100);
}

/* Built for every purpose, which is where sizes meet. */
static enum status build_all(const struct model *m)
{
    static const enum model_purpose purposes[] = {MODEL_TRAIN, MODEL_EVAL, MODEL_DECODE};
    for (size_t i = 0; i < ARRAY_LEN(purposes); i++) {
        struct model_request r = {.purpose = purposes[i],
                                  .batch = 1,
                                  .seq_len = 1,
                                  .cache_len = purposes[i] == MODEL_DECODE,
                                  .dtype = DTYPE_F32};
        struct graph *g;
        struct builder b;
        struct model_graph out;
        TRY(graph_new(&g, "odd"));
        builder_init(&b, g);
        enum status status = model_build(m, &b, &r, &out);
        graph_free(g);
        TRY(status);
    }
    return OK;
}

static void expect_made_or_refused(const json_t *config)
{
    struct model *m;
    int64_t live = mem_live();
    enum status status = model_new(&m, config, &(struct key_origin){.where = "here"});
    if (status == OK) {
        status = build_all(m);
        model_free(m);
    }
    if (status != OK && status != ERR_CONFIG && status != ERR_SHAPE && status != ERR_UNSUPPORTED)
        fail_msg("%s: %s", json_dumps(config, 0), status_message());
    if (status == ERR_CONFIG && !strstr(status_message(), "key '"))
        fail_msg("no key is named: %s", status_message());
    assert_int_equal(mem_live(), live);
}

static void each_size_alone(void **state)
{
    (void)state;
    for (size_t f = 0; f < ARRAY_LEN(families); f++) {
        for (size_t k = 0; families[f].keys[k]; k++) {
            for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
                json_t *config = plain_config(families[f].type);
                json_object_set_new(config, families[f].keys[k], json_integer(odd[i]));
                expect_made_or_refused(config);
                json_decref(config);
            }
        }
    }
}

static void sizes_against_each_other(void **state)
{
    (void)state;
    for (size_t f = 0; f < ARRAY_LEN(families); f++) {
        for (size_t k = 0; families[f].keys[k]; k++) {
            for (size_t l = k + 1; families[f].keys[l]; l++) {
                for (size_t n = 0; n < ARRAY_LEN(odd) * ARRAY_LEN(odd); n++) {
                    json_t *config = plain_config(families[f].type);
                    json_object_set_new(config, families[f].keys[k],
                                        json_integer(odd[n / ARRAY_LEN(odd)]));
                    json_object_set_new(config, families[f].keys[l],
                                        json_integer(odd[n % ARRAY_LEN(odd)]));
                    expect_made_or_refused(config);
                    json_decref(config);
                }
            }
        }
    }
}

static void a_derived_head_size_is_held_to_the_same_bounds(void **state)
{
    (void)state;
    struct model *m;
    json_t *config = plain_config("llama");
    json_object_set_new(config, "hidden_size", json_integer(16384));
    json_object_set_new(config, "num_attention_heads", json_integer(1));
    json_object_set_new(config, "num_key_value_heads", json_integer(1));
    assert_int_equal(model_new(&m, config, &(struct key_origin){.where = "here"}), ERR_CONFIG);
    expect_message("key 'head_dim' is not given and hidden_size / num_attention_heads is 16384");
    json_decref(config);
}

static void what_comes_of_wrong_keys_is_not_told_as_well(void **state)
{
    (void)state;
    struct model *m;
    json_t *config = plain_config("llama");
    json_object_set_new(config, "hidden_size", json_string("wide"));
    assert_int_equal(model_new(&m, config, &(struct key_origin){.where = "here"}), ERR_CONFIG);
    expect_message("key 'hidden_size' must be an integer");
    assert_null(strchr(status_message(), '\n'));
    json_decref(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_size_alone),
        cmocka_unit_test(sizes_against_each_other),
        cmocka_unit_test(a_derived_head_size_is_held_to_the_same_bounds),
        cmocka_unit_test(what_comes_of_wrong_keys_is_not_told_as_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
