/* Mixtures of experts: sizes, all and active, and what configs are refused for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "support/golden.h"
#include "support/scratch.h"

static enum status parse(struct model **m, const char *text)
{
    json_t *config;
    expect_ok(json_read_text(&config, text, strlen(text), "config", ERR_DATA));
    enum status status = model_new(m, config, &(struct key_origin){.where = "here"});
    json_decref(config);
    return status;
}

#define SIZES(type, hidden, layers, heads, kv, inner, vocab)                                       \
    "{\"model_type\": \"" type "\", \"hidden_size\": " #hidden ", \"num_hidden_layers\": " #layers \
    ", \"num_attention_heads\": " #heads ", \"num_key_value_heads\": " #kv                         \
    ", \"intermediate_size\": " #inner ", \"vocab_size\": " #vocab                                 \
    ", \"max_position_embeddings\": 4096"

/* As published, or by the formula of the layers; the last is the decoder of configs/ava_small.yaml.
 */
static const struct {
    const char *config;
    int64_t n_params, n_active;
} sizes[] = {
    {SIZES("mixtral", 4096, 32, 32, 8, 14336, 32000) ", \"num_local_experts\": 8}", 46702792704,
     12879925248},
    {SIZES("qwen2_moe", 2048, 24, 16, 16, 5632,
           151936) ", \"num_experts\": 60,"
                   "\"num_experts_per_tok\": 4, \"moe_intermediate_size\": 1408,"
                   "\"shared_expert_intermediate_size\": 5632}",
     14315784192, 2689173504},
    {SIZES("qwen3_moe", 2048, 48, 32, 4, 6144,
           151936) ", \"head_dim\": 128,"
                   "\"num_experts\": 128, \"num_experts_per_tok\": 8, \"moe_intermediate_size\": "
                   "768}",
     30532122624, 3353032704},
    {SIZES("olmoe", 2048, 16, 16, 16, 1024, 50304) ", \"num_experts\": 64}", 6919161856,
     1282017280},
    {"{\"model_type\": \"moe\", \"hidden_size\": 512, \"num_hidden_layers\": 14,"
     "\"num_attention_heads\": 8, \"intermediate_size\": 2048, \"vocab_size\": 65536,"
     "\"max_position_embeddings\": 256, \"num_experts\": 8}",
     317072496, 140696688},
};

static void parameters_are_counted_all_and_active(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct model *m;
        struct graph *g;
        struct builder b;
        struct model_graph built;
        struct model_request r = {
            .purpose = MODEL_TRAIN, .batch = 1, .seq_len = 8, .dtype = DTYPE_F32};
        expect_ok(parse(&m, sizes[i].config));
        expect_ok(graph_new(&g, "sizes"));
        builder_init(&b, g);
        expect_ok(model_build(m, &b, &r, &built));
        assert_int_equal(model_count_params(&built), sizes[i].n_params);
        assert_int_equal(model_count_active(&built), sizes[i].n_active);
        graph_free(g);
        model_free(m);
    }
}

/* ---- refused --------------------------------------------------------------------------------- */

#define SMALL(type) SIZES(type, 32, 2, 4, 2, 24, 97)

static const struct {
    const char *config, *message;
} refusals[] = {
    {SMALL("mixtral") "}", "num_experts"},
    {SMALL("mixtral") ", \"num_local_experts\": 4, \"num_experts\": 8}", "they mean the same"},
    {SMALL("mixtral") ", \"num_local_experts\": 4, \"num_experts_per_tok\": 5}",
     "more than there are experts (4)"},
    {SMALL("mixtral") ", \"num_local_experts\": 4, \"router_jitter_noise\": 0.1}",
     "router_jitter_noise"},
    {SMALL("qwen3_moe") ", \"num_experts\": 8}", "moe_intermediate_size"},
    {SMALL("qwen3_moe") ", \"num_experts\": 8, \"moe_intermediate_size\": 16,"
                        "\"mlp_only_layers\": [2]}",
     "mlp_only_layers"},
    {SMALL("qwen2_moe") ", \"num_experts\": 8, \"moe_intermediate_size\": 16}",
     "shared_expert_intermediate_size"},
    {SMALL("olmoe") ", \"num_experts\": 8, \"clip_qkv\": -8.0}", "clip_qkv"},
    {"{\"model_type\": \"moe\", \"hidden_size\": 12, \"num_hidden_layers\": 1,"
     "\"num_attention_heads\": 4, \"vocab_size\": 97, \"max_position_embeddings\": 8,"
     "\"num_experts\": 2}",
     "twice num_attention_heads"},
};

static void configs_that_cannot_be_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
        struct model *m = NULL;
        assert_int_not_equal(parse(&m, refusals[i].config), OK);
        expect_message(refusals[i].message);
    }
}

/* ---- capacity ------------------------------------------------------------------------------- */

/* Rows beyond it are left out of what a token becomes: as many as an expert has at most are kept.
 */
static void experts_take_what_their_capacity_says(void **state)
{
    static const char text[] =
        "{\"model_type\": \"moe\", \"hidden_size\": 32, \"num_hidden_layers\": 1,"
        "\"num_attention_heads\": 2, \"intermediate_size\": 8, \"vocab_size\": 11,"
        "\"max_position_embeddings\": 16, \"num_experts\": 4, \"capacity_factor\": 1.25}";
    struct model *m;
    struct graph *g;
    struct builder b;
    struct model_graph built;
    struct model_request r = {.purpose = MODEL_TRAIN, .batch = 2, .seq_len = 9, .dtype = DTYPE_F32};
    int n_found = 0;
    (void)state;
    expect_ok(parse(&m, text));
    expect_ok(graph_new(&g, "capacity"));
    builder_init(&b, g);
    expect_ok(model_build(m, &b, &r, &built));
    for (size_t i = 0; i < g->nodes.n; i++) {
        const struct node *n = &g->nodes.items[i];
        if (n->op != OP_capacity)
            continue;
        assert_int_equal(n->attrs[0].i, 12); /* 1.25 x 18 tokens x 2 / 4 experts, rounded up */
        n_found++;
    }
    assert_int_equal(n_found, 1);
    graph_free(g);
    model_free(m);
}

/* ---- the balance loss ------------------------------------------------------------------------ */

/* As in transformers: a factor alone does not ask for it. */
static void the_balance_loss_is_asked_for_by_output_router_logits(void **state)
{
    static const char *const texts[] = {
        SMALL("mixtral") ", \"num_local_experts\": 4, \"router_aux_loss_coef\": 0.1}",
        SMALL("mixtral") ", \"num_local_experts\": 4, \"router_aux_loss_coef\": 0.1,"
                         "\"output_router_logits\": true}"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct model *m;
        struct graph *g;
        struct builder b;
        struct model_graph built;
        struct model_request r = {
            .purpose = MODEL_TRAIN, .batch = 1, .seq_len = 8, .dtype = DTYPE_F32};
        expect_ok(parse(&m, texts[i]));
        expect_ok(graph_new(&g, "losses"));
        builder_init(&b, g);
        expect_ok(model_build(m, &b, &r, &built));
        assert_int_equal(built.n_losses, 2 + i); /* the last is what loads are like */
        if (i)
            assert_true(built.losses[1].weight == 0.1);
        graph_free(g);
        model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_counted_all_and_active),
        cmocka_unit_test(configs_that_cannot_be_are_refused),
        cmocka_unit_test(experts_take_what_their_capacity_says),
        cmocka_unit_test(the_balance_loss_is_asked_for_by_output_router_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
