/* Configs: sizes they lead to, what they refuse and in which words, what export writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "model/model.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "task/language.h"

static enum status parse(struct model **m, const char *text)
{
    json_t *config;
    expect_ok(json_read_text(&config, text, strlen(text), "config", ERR_DATA));
    enum status status = model_new(m, config, &(struct key_origin){.where = "here"});
    json_decref(config);
    return status;
}

static const struct model_request train = {
    .purpose = MODEL_TRAIN, .batch = 2, .seq_len = 16, .dtype = DTYPE_F32};

static enum status build_one(const struct model *m, const struct model_request *r, struct graph **g,
                             struct model_graph *out)
{
    struct builder b;
    expect_ok(graph_new(g, "test"));
    builder_init(&b, *g);
    return model_build(m, &b, r, out);
}

/* ---- sizes ---- */

#define LLAMA(type, hidden, layers, heads, kv, inner, vocab)                                       \
    "{\"model_type\": \"" type "\", \"hidden_size\": " #hidden ", \"num_hidden_layers\": " #layers \
    ", \"num_attention_heads\": " #heads ", \"num_key_value_heads\": " #kv                         \
    ", \"intermediate_size\": " #inner ", \"vocab_size\": " #vocab                                 \
    ", \"max_position_embeddings\": 4096"

static const struct {
    const char *config;
    int64_t n_params;
} sizes[] = {
    {"{\"model_type\": \"gpt2\"}", 124439808},
    {"{\"model_type\": \"gpt2\", \"vocab_size\": 50304}", 124475904},
    {"{\"model_type\": \"gpt2\", \"vocab_size\": 50304, \"n_embd\": 1024, \"n_layer\": 24,"
     "\"n_head\": 16}",
     354871296},
    {"{\"model_type\": \"gpt2\", \"n_embd\": 1600, \"n_layer\": 48, \"n_head\": 25}", 1557611200},
    {LLAMA("llama", 2048, 22, 32, 4, 5632, 32000) "}", 1100048384},
    {LLAMA("llama", 4096, 32, 32, null, 11008, 32000) "}", 6738415616},
    {LLAMA("llama", 4096, 32, 32, 8, 14336, 128256) "}", 8030261248},
    {LLAMA("mistral", 4096, 32, 32, 8, 14336, 32000) "}", 7241732096},
    {LLAMA("qwen2", 896, 24, 14, 2, 4864, 151936) ", \"tie_word_embeddings\": true}", 494032768},
    {LLAMA("qwen2", 3584, 28, 28, 4, 18944, 152064) "}", 7615616512},
    {LLAMA("qwen2", 5120, 48, 40, 8, 13824, 152064) "}", 14770033664},
    {LLAMA("qwen3", 1024, 28, 16, 8, 3072, 151936) ", \"tie_word_embeddings\": true}", 596049920},
    {LLAMA("qwen3", 4096, 36, 32, 8, 12288, 151936) "}", 8190735360},
    {LLAMA("olmo2", 4096, 32, 32, 32, 11008, 100352) "}", 7298617344},
    {LLAMA("smollm3", 2048, 36, 16, 4, 11008, 128256) "}", 3075098624},
    {LLAMA("phi3", 3072, 32, 32, 32, 8192, 32064) "}", 3821079552},
    {LLAMA("gemma2", 2304, 26, 8, 4, 9216, 256000) "}", 2614341888},
    {LLAMA("gemma3_text", 1152, 26, 4, 1, 6912, 262144) "}", 999885952},
};

static void parameter_counts_are_the_published_ones(void **state)
{
    (void)state;
    int64_t before = mem_live();
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct model *m;
        struct graph *g;
        struct model_graph built;
        expect_ok(parse(&m, sizes[i].config));
        expect_ok(build_one(m, &train, &g, &built));
        assert_int_equal(model_count_params(&built), sizes[i].n_params);
        assert_int_equal(built.n_blocks, m->n_layers);
        graph_free(g);
        model_free(m);
    }
    assert_int_equal(mem_live(), before);
}

static void flops_count_the_head_but_not_the_lookup(void **state)
{
    (void)state;
    struct model *m;
    expect_ok(parse(&m, LLAMA("llama", 4096, 32, 32, 32, 11008, 32000) "}"));
    double due = 6.0 * (6738415616.0 - 32000.0 * 4096) + 6.0 * 32 * 4096 * 2048;
    struct task task = language_task(m);
    assert_true(task_language.flops(&task, 6738415616, 2048) == due);
    model_free(m);
}

/* ---- refusals ---- */

#define TINY                                                                            \
    "\"hidden_size\": 32, \"num_hidden_layers\": 2, \"intermediate_size\": 64, "        \
    "\"vocab_size\": 97, \"max_position_embeddings\": 64, \"num_attention_heads\": 4, " \
    "\"num_key_value_heads\": 2"

static const struct {
    const char *config, *message;
    enum status status;
} refused[] = {
    {"[]", "must be a mapping", ERR_CONFIG},
    {"{}", "'model_type' is missing", ERR_CONFIG},
    {"{\"model_type\": \"lama\"}", "did you mean 'llama'?; there are: gpt2, llama, mistral",
     ERR_UNSUPPORTED},
    {"{\"architectures\": [\"BertModel\"]}", "there are: GPT2LMHeadModel", ERR_UNSUPPORTED},
    {"{\"model_type\": \"gpt2\", \"n_embd\": 770}",
     "here: key 'n_embd' (770) must be a multiple of n_head (12)", ERR_CONFIG},
    {"{\"model_type\": \"gpt2\", \"n_embd\": \"wide\"}",
     "'n_embd' must be an integer, not the string \"wide\"", ERR_CONFIG},
    {"{\"model_type\": \"gpt2\", \"n_embd\": 76.5}", "'n_embd' must be an integer, not 76.5",
     ERR_CONFIG},
    {"{\"model_type\": \"gpt2\", \"n_layer\": 0}", "'n_layer' is 0; it must be from 1", ERR_CONFIG},
    {"{\"model_type\": \"gpt2\", \"n_layers\": 2}",
     "'n_layers' is not known here; did you mean 'n_layer'?", ERR_CONFIG},
    {"{\"model_type\": \"gpt2\", \"activation_function\": \"relu\"}", "'relu'", ERR_UNSUPPORTED},
    {"{\"model_type\": \"gpt2\", \"resid_pdrop\": 1.5}", "'resid_pdrop' is 1.5", ERR_CONFIG},
    {"{\"model_type\": \"gpt2\", \"tie_word_embeddings\": 1}", "must be true or false, not 1",
     ERR_CONFIG},
    {"{\"model_type\": \"gpt2\", \"eos_token_id\": \"<end>\"}", "token id", ERR_CONFIG},
    {"{\"model_type\": \"gpt2\", \"add_cross_attention\": true}", "add_cross_attention",
     ERR_UNSUPPORTED},
    {"{\"model_type\": \"gpt2\", \"quantization_config\": {\"quant_method\": \"gptq\"}}",
     "quantised by gptq cannot be loaded", ERR_UNSUPPORTED},
    {"{\"model_type\": \"gpt2\", \"quantization_config\": {\"quant_method\": \"awq\"}}",
     "quantised by awq cannot be loaded", ERR_UNSUPPORTED},
    {"{\"model_type\": \"gpt2\", \"quantization_config\": {\"quant_method\": \"bitsandbytes\", "
     "\"load_in_4bit\": true, \"bnb_4bit_quant_storage\": \"bfloat16\"}}",
     "codes stored as bfloat16", ERR_UNSUPPORTED},
    {"{\"model_type\": \"llama\", \"vocab_size\": 97}", "'hidden_size' is missing", ERR_CONFIG},
    {"{\"model_type\": \"mistral\", \"vocab_size\": 97, \"hidden_size\": 32, "
     "\"num_hidden_layers\": 2, \"intermediate_size\": 64, \"max_position_embeddings\": 64, "
     "\"num_attention_heads\": 4}",
     "'num_key_value_heads' is missing", ERR_CONFIG},
    {"{\"model_type\": \"llama\", \"vocab_size\": 97, \"hidden_size\": 33, "
     "\"num_hidden_layers\": 2, \"intermediate_size\": 64, \"max_position_embeddings\": 64, "
     "\"num_attention_heads\": 4}",
     "must be a multiple of num_attention_heads", ERR_CONFIG},
    {"{\"model_type\": \"llama\", \"vocab_size\": 97, \"hidden_size\": 32, "
     "\"num_hidden_layers\": 2, \"intermediate_size\": 64, \"max_position_embeddings\": 64, "
     "\"num_attention_heads\": 4, \"num_key_value_heads\": 3}",
     "must be a multiple of num_key_value_heads (3)", ERR_CONFIG},
    {"{\"model_type\": \"llama\", \"head_dim\": 7, " TINY "}", "'head_dim' (7) must be even",
     ERR_CONFIG},
    {"{\"model_type\": \"llama\", \"hidden_act\": \"gelu\", " TINY "}", "'hidden_act' is 'gelu'",
     ERR_UNSUPPORTED},
    {"{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"longrope\"}, " TINY "}",
     "longrope", ERR_UNSUPPORTED},
    {"{\"model_type\": \"qwen2\", \"layer_types\": [\"full_attention\"], " TINY "}",
     "has 1 entries for 2 layers", ERR_CONFIG},
    {"{\"model_type\": \"qwen2\", \"layer_types\": [\"full_attention\", "
     "\"chunked_attention\"], " TINY "}",
     "'chunked_attention'", ERR_UNSUPPORTED},
    {"{\"model_type\": \"qwen2\", \"layer_types\": [\"full_attention\", "
     "\"sliding_attention\"], " TINY "}",
     "use_sliding_window is false", ERR_CONFIG},
    {"{\"model_type\": \"smollm3\", \"no_rope_layers\": [1], " TINY "}",
     "'no_rope_layers' has 1 entries for 2 layers", ERR_CONFIG},
    {"{\"model_type\": \"smollm3\", \"no_rope_layers\": [1, 2], " TINY "}",
     "'no_rope_layers': entry 1 must be 1 (rotary positions) or 0", ERR_CONFIG},
    {"{\"model_type\": \"smollm3\", \"no_rope_layers\": [1, true], " TINY "}",
     "'no_rope_layers': entry 1 must be", ERR_CONFIG},
    {"{\"model_type\": \"smollm3\", \"no_rope_layer_interval\": 0, " TINY "}",
     "'no_rope_layer_interval' is 0", ERR_CONFIG},
    {"{\"model_type\": \"phi3\", \"rope_scaling\": {\"type\": \"longrope\"}, " TINY "}", "longrope",
     ERR_UNSUPPORTED},
    {"{\"model_type\": \"phi3\", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, " TINY
     "}",
     "'rope_scaling.rope_type' is 'linear'; this model has default only", ERR_UNSUPPORTED},
    {"{\"model_type\": \"phi3\", \"partial_rotary_factor\": 0.4, " TINY "}",
     "makes 3 of 8 channels of a head turn", ERR_CONFIG},
    {"{\"model_type\": \"phi3\", \"partial_rotary_factor\": 0, " TINY "}", "makes 0 of 8 channels",
     ERR_CONFIG},
    {"{\"model_type\": \"llama\", \"partial_rotary_factor\": 0.5, " TINY "}", "only 1 is supported",
     ERR_UNSUPPORTED},
    {"{\"model_type\": \"phi3\", \"embd_pdrop\": 0.1, " TINY "}", "'embd_pdrop': only 0",
     ERR_UNSUPPORTED},
    {"{\"model_type\": \"olmo2\", \"hidden_act\": \"gelu\", " TINY "}",
     "'hidden_act' is 'gelu'; olmo2 here has silu only", ERR_UNSUPPORTED},
    {"{\"model_type\": \"gemma2\", \"hidden_activation\": \"gelu\", " TINY "}",
     "'hidden_activation' is 'gelu'; gemma2 here has gelu_pytorch_tanh only", ERR_UNSUPPORTED},
    {"{\"model_type\": \"gemma2\", \"attn_logit_softcapping\": -50, " TINY "}",
     "'attn_logit_softcapping' is -50", ERR_CONFIG},
    {"{\"model_type\": \"gemma2\", \"final_logit_softcapping\": 0, " TINY "}",
     "'final_logit_softcapping' is 0", ERR_CONFIG},
    {"{\"model_type\": \"gemma2\", \"query_pre_attn_scalar\": 0, " TINY "}",
     "'query_pre_attn_scalar' is 0", ERR_CONFIG},
    {"{\"model_type\": \"gemma2\", \"sliding_window\": null, \"layer_types\": "
     "[\"full_attention\", \"sliding_attention\"], " TINY "}",
     "but sliding_window is null", ERR_CONFIG},
    {"{\"model_type\": \"gemma2\", \"use_bidirectional_attention\": true, " TINY "}",
     "use_bidirectional_attention", ERR_UNSUPPORTED},
    {"{\"model_type\": \"gemma3_text\", \"attn_logit_softcapping\": 50, " TINY "}",
     "attn_logit_softcapping", ERR_UNSUPPORTED},
    {"{\"model_type\": \"gemma3_text\", \"sliding_window_pattern\": 0, " TINY "}",
     "'sliding_window_pattern' is 0", ERR_CONFIG},
    {"{\"model_type\": \"gemma3_text\", \"rope_local_base_freq\": -1, " TINY "}",
     "'rope_local_base_freq' is -1", ERR_CONFIG},
    {"{\"model_type\": \"gemma3_text\", \"rope_parameters\": {\"sliding_attention\": "
     "{\"rope_type\": \"longrope\"}}, " TINY "}",
     "'rope_parameters.sliding_attention.rope_type' is 'longrope'", ERR_UNSUPPORTED},
    {"{\"model_type\": \"gemma3\", " TINY "}", "gemma2, gemma3_text", ERR_UNSUPPORTED},
};

static void a_bad_config_is_refused_naming_the_key(void **state)
{
    (void)state;
    int64_t before = mem_live();
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct model *m;
        enum status status = parse(&m, refused[i].config);
        if (status != refused[i].status)
            fail_msg("%s: gave %s", refused[i].config, status_name(status));
        expect_message(refused[i].message);
        assert_null(m);
    }
    assert_int_equal(mem_live(), before);
}

static void a_request_beyond_the_context_is_refused(void **state)
{
    (void)state;
    struct model *m;
    struct graph *g;
    struct model_graph built;
    expect_ok(parse(&m, "{\"model_type\": \"llama\", " TINY "}"));
    struct model_request r = train;
    r.seq_len = 65;
    assert_int_equal(build_one(m, &r, &g, &built), ERR_CONFIG);
    expect_message("the sequence length 65 is longer than the model's context of 64");
    graph_free(g);
    r = (struct model_request){
        .purpose = MODEL_DECODE, .batch = 1, .seq_len = 4, .cache_len = 3, .dtype = DTYPE_F32};
    assert_int_equal(build_one(m, &r, &g, &built), ERR_CONFIG);
    expect_message("a cache of 3 positions");
    graph_free(g);
    r = train;
    r.batch = 0;
    assert_int_equal(build_one(m, &r, &g, &built), ERR_CONFIG);
    graph_free(g);
    model_free(m);
}

/* ---- features ---- */

#define TINY_GPT2 "\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_head\": 4, \"n_layer\": 3"

/* The attribute `name` of the attention node of every layer. */
static void expect_attention(const char *config, const char *name, const int64_t *ints,
                             const double *floats, int n_layers)
{
    struct model *m;
    struct graph *g;
    struct model_graph built;
    expect_ok(parse(&m, config));
    expect_ok(build_one(m, &train, &g, &built));
    int n = 0;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const struct node *node = &g->nodes.items[i];
        if (node->op != OP_attention)
            continue;
        assert_true(n < n_layers);
        if (ints)
            assert_int_equal(node_attr(node, name)->i, ints[n]);
        else
            assert_true(node_attr(node, name)->f == floats[n]);
        n++;
    }
    assert_int_equal(n, n_layers);
    graph_free(g);
    model_free(m);
}

/* Does the node draw from the random state of the graph? */
static bool draws(const struct node *n, value_id rng)
{
    for (int i = 0; i < n->n_in; i++) {
        if (rng != VALUE_NONE && n->in[i] == rng)
            return true;
    }
    return false;
}

/* The nodes of an op that draw; none with the seed of another node. */
static int count_draws(const struct graph *g, enum op_id op, value_id rng)
{
    int n = 0;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const struct node *node = &g->nodes.items[i];
        if (!draws(node, rng))
            continue;
        n += node->op == op;
        for (size_t j = 0; j < i; j++) {
            const struct node *other = &g->nodes.items[j];
            if (draws(other, rng))
                assert_int_not_equal(node_attr(node, "seed")->i, node_attr(other, "seed")->i);
        }
    }
    return n;
}

static void expect_dropouts(const char *config, int n_dropouts, int n_attentions)
{
    struct model *m;
    struct graph *g;
    struct model_graph built;
    expect_ok(parse(&m, config));
    expect_ok(build_one(m, &train, &g, &built));
    assert_int_equal(count_draws(g, OP_dropout, built.rng), n_dropouts);
    assert_int_equal(count_draws(g, OP_attention, built.rng), n_attentions);
    assert_int_equal(built.rng != VALUE_NONE, n_dropouts + n_attentions > 0);
    graph_free(g);
    struct model_request r = train;
    r.purpose = MODEL_EVAL;
    expect_ok(build_one(m, &r, &g, &built));
    assert_int_equal(built.rng, VALUE_NONE);
    graph_free(g);
    model_free(m);
}

static void dropouts_are_there_when_training_each_with_its_own_seed(void **state)
{
    (void)state;
    expect_dropouts("{" TINY_GPT2 ", \"resid_pdrop\": 0.1, \"embd_pdrop\": 0.2}", 1 + 2 * 3, 0);
    expect_dropouts("{" TINY_GPT2 ", \"resid_pdrop\": 0.1, \"attn_pdrop\": 0.1}", 2 * 3, 3);
    expect_dropouts("{" TINY_GPT2 ", \"attn_pdrop\": 0.1}", 0, 3);
    expect_dropouts("{\"model_type\": \"llama\", \"attention_dropout\": 0.1, " TINY "}", 0, 2);
    expect_dropouts("{" TINY_GPT2 "}", 0, 0); /* absent: none, not Hugging Face's 0.1 */
}

static void attention_drops_what_the_config_says(void **state)
{
    (void)state;
    const double gpt2[] = {0.125, 0.125, 0.125}, llama[] = {0.25, 0.25};
    expect_attention("{" TINY_GPT2 ", \"attn_pdrop\": 0.125}", "dropout", NULL, gpt2, 3);
    expect_attention("{\"model_type\": \"llama\", \"attention_dropout\": 0.25, " TINY "}",
                     "dropout", NULL, llama, 2);
}

static void windows_follow_each_variants_rules(void **state)
{
    (void)state;
    static const int64_t none[] = {0, 0}, both[] = {8, 8}, second[] = {0, 8}, first[] = {8, 0};
#define QWEN "\"model_type\": \"qwen2\", \"sliding_window\": 8, "
    expect_attention("{\"model_type\": \"llama\", \"sliding_window\": 8, " TINY "}", "window", none,
                     NULL, 2);
    expect_attention("{\"model_type\": \"mistral\", \"sliding_window\": 8, " TINY "}", "window",
                     both, NULL, 2);
    expect_attention("{\"model_type\": \"mistral\", \"sliding_window\": null, " TINY "}", "window",
                     none, NULL, 2);
    /* 4096 when absent: no position of this sequence is that far away */
    expect_attention("{\"model_type\": \"mistral\", " TINY "}", "window", none, NULL, 2);
    expect_attention("{" QWEN TINY "}", "window", none, NULL, 2);
    expect_attention("{" QWEN "\"use_sliding_window\": true, \"max_window_layers\": 1, " TINY "}",
                     "window", second, NULL, 2);
    expect_attention("{" QWEN "\"use_sliding_window\": true, \"layer_types\": "
                     "[\"sliding_attention\", \"full_attention\"], " TINY "}",
                     "window", first, NULL, 2);
}

static void gpt2_attention_scale_follows_its_keys(void **state)
{
    (void)state;
    static const double by_layer[] = {0.25, 0.125, 0.25 / 3}, one[] = {1, 1, 1};
#define GPT2_16 "\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_head\": 2, \"n_layer\": 3"
    expect_attention("{" GPT2_16 ", \"scale_attn_by_inverse_layer_idx\": true}", "scale", NULL,
                     by_layer, 3);
    expect_attention("{" GPT2_16 ", \"scale_attn_weights\": false}", "scale", NULL, one, 3);
}

static bool has_param(const struct model_graph *g, const char *name)
{
    for (int i = 0; i < g->n_params; i++) {
        if (strcmp(g->params[i].name, name) == 0)
            return true;
    }
    return false;
}

static void biases_appear_where_the_variant_has_them(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        bool qkv, out, up;
    } with[] = {
        {"{\"model_type\": \"llama\", " TINY "}", false, false, false},
        {"{\"model_type\": \"llama\", \"attention_bias\": true, " TINY "}", true, true, false},
        {"{\"model_type\": \"llama\", \"mlp_bias\": true, " TINY "}", false, false, true},
        {"{\"model_type\": \"qwen2\", " TINY "}", true, false, false},
        {"{\"model_type\": \"qwen3\", \"attention_bias\": true, " TINY "}", true, true, false},
        {"{\"model_type\": \"mistral\", \"attention_bias\": true, " TINY "}", false, false, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(with); i++) {
        struct model *m;
        struct graph *g;
        struct model_graph built;
        expect_ok(parse(&m, with[i].config));
        expect_ok(build_one(m, &train, &g, &built));
        assert_int_equal(has_param(&built, "layers.1.qkv.bias"), with[i].qkv);
        assert_int_equal(has_param(&built, "layers.1.out.bias"), with[i].out);
        assert_int_equal(has_param(&built, "layers.1.gate_up.bias"), with[i].up);
        assert_int_equal(has_param(&built, "layers.1.down.bias"), with[i].up);
        graph_free(g);
        model_free(m);
    }
}

static void token_ids_may_be_lists(void **state)
{
    (void)state;
    struct model *m;
    expect_ok(parse(&m, "{" TINY_GPT2 ", \"eos_token_id\": [7, 9], \"bos_token_id\": null}"));
    assert_int_equal(m->language.eos_token, 7);
    assert_int_equal(m->language.bos_token, -1);
    model_free(m);
}

/* ---- export ---- */

static void an_exported_config_parses_to_the_same_model(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{" TINY_GPT2
        ", \"resid_pdrop\": 0.25, \"pad_token_id\": 3, \"transformers_version\": \"x\"}",
        "{\"model_type\": \"llama\", \"attention_bias\": true, \"rope_theta\": 5e5, "
        "\"rope_scaling\": "
        "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": "
        "4,"
        "\"original_max_position_embeddings\": 32}, " TINY "}",
        "{\"model_type\": \"mistral\", \"sliding_window\": 8, " TINY "}",
        "{\"architectures\": [\"Qwen2ForCausalLM\"], \"use_sliding_window\": true, "
        "\"sliding_window\": 8, \"max_window_layers\": 1, " TINY "}",
        "{\"model_type\": \"qwen3\", \"head_dim\": 16, \"tie_word_embeddings\": true, " TINY "}",
        "{\"model_type\": \"olmo2\", " TINY "}",
        "{\"model_type\": \"smollm3\", \"no_rope_layers\": [0, 1], \"use_sliding_window\": true, "
        "\"sliding_window\": 4, " TINY "}",
        "{\"model_type\": \"phi3\", \"partial_rotary_factor\": 0.5, \"resid_pdrop\": 0.1, " TINY
        "}",
        "{\"model_type\": \"gemma2\", \"attn_logit_softcapping\": 20, "
        "\"query_pre_attn_scalar\": 12, \"sliding_window\": 4, " TINY "}",
        "{\"model_type\": \"gemma2\", \"final_logit_softcapping\": null, "
        "\"query_pre_attn_scalar\": 12.5, " TINY "}",
        "{\"model_type\": \"gemma3_text\", \"sliding_window_pattern\": 2, \"rope_scaling\": "
        "{\"rope_type\": \"linear\", \"factor\": 8}, \"rope_local_base_freq\": 5000, " TINY "}",
    };
    for (size_t i = 0; i < ARRAY_LEN(configs); i++) {
        struct model *m, *again;
        expect_ok(parse(&m, configs[i]));
        json_t *config = model_export_config(m);
        assert_non_null(config);
        assert_string_equal(json_string_value(json_object_get(config, "torch_dtype")), "float32");
        expect_ok(model_config_set_dtype(config, DTYPE_BF16));
        assert_string_equal(json_string_value(json_object_get(config, "dtype")), "bfloat16");
        assert_null(json_object_get(config, "transformers_version"));
        expect_ok(model_new(&again, config, &(struct key_origin){.where = "export"}));
        json_t *second = model_export_config(again);
        expect_ok(model_config_set_dtype(second, DTYPE_BF16));
        assert_true(json_equal(config, second));
        json_decref(config);
        json_decref(second);
        struct graph *g[2];
        struct model_graph built[2];
        expect_ok(build_one(m, &train, &g[0], &built[0]));
        expect_ok(build_one(again, &train, &g[1], &built[1]));
        struct str text[2] = {{0}};
        expect_ok(graph_print(g[0], &text[0]));
        expect_ok(graph_print(g[1], &text[1]));
        assert_string_equal(text[0].text, text[1].text);
        for (int k = 0; k < 2; k++) {
            str_release(&text[k]);
            graph_free(g[k]);
        }
        model_free(m);
        model_free(again);
    }
}

static void export_keeps_keys_that_mean_nothing_to_us(void **state)
{
    (void)state;
    struct model *m;
    expect_ok(
        parse(&m, "{" TINY_GPT2 ", \"pad_token_id\": 3, \"task_specific_params\": {\"a\": 1}}"));
    json_t *config = model_export_config(m);
    assert_int_equal(json_integer_value(json_object_get(config, "pad_token_id")), 3);
    assert_true(json_is_object(json_object_get(config, "task_specific_params")));
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(config, "architectures"), 0)),
        "GPT2LMHeadModel");
    json_decref(config);
    model_free(m);
}

/* transformers refuses 12.0 where it wants an integer. */
static void whole_numbers_are_exported_as_such(void **state)
{
    (void)state;
    struct model *m;
    expect_ok(parse(&m, "{\"model_type\": \"gemma2\", \"query_pre_attn_scalar\": 12, " TINY "}"));
    json_t *config = model_export_config(m);
    const json_t *scalar = json_object_get(config, "query_pre_attn_scalar");
    assert_true(json_is_integer(scalar));
    assert_int_equal(json_integer_value(scalar), 12);
    json_decref(config);
    model_free(m);
}

static void running_out_of_memory_is_an_error_that_leaks_nothing(void **state)
{
    (void)state;
    int64_t before = mem_live();
    bool done = false;
    for (int64_t n = 1; !done && n < 10000; n++) {
        struct model *m = NULL;
        struct graph *g = NULL;
        struct model_graph built;
        json_t *config;
        const char *text = "{\"model_type\": \"qwen3\", \"head_dim\": 16, " TINY "}";
        expect_ok(json_read_text(&config, text, strlen(text), "config", ERR_DATA));
        mem_fail_after(n, 1);
        enum status status = model_new(&m, config, &(struct key_origin){.where = "here"});
        if (status == OK)
            status = graph_new(&g, "test");
        if (status == OK) {
            struct builder b;
            builder_init(&b, g);
            status = model_build(m, &b, &train, &built);
        }
        mem_fail_after(0, 0);
        done = status == OK;
        if (!done)
            assert_int_equal(status, ERR_MEMORY);
        graph_free(g);
        model_free(m);
        json_decref(config);
        assert_int_equal(mem_live(), before);
    }
    assert_true(done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameter_counts_are_the_published_ones),
        cmocka_unit_test(flops_count_the_head_but_not_the_lookup),
        cmocka_unit_test(a_bad_config_is_refused_naming_the_key),
        cmocka_unit_test(a_request_beyond_the_context_is_refused),
        cmocka_unit_test(dropouts_are_there_when_training_each_with_its_own_seed),
        cmocka_unit_test(attention_drops_what_the_config_says),
        cmocka_unit_test(windows_follow_each_variants_rules),
        cmocka_unit_test(gpt2_attention_scale_follows_its_keys),
        cmocka_unit_test(biases_appear_where_the_variant_has_them),
        cmocka_unit_test(token_ids_may_be_lists),
        cmocka_unit_test(an_exported_config_parses_to_the_same_model),
        cmocka_unit_test(export_keeps_keys_that_mean_nothing_to_us),
        cmocka_unit_test(whole_numbers_are_exported_as_such),
        cmocka_unit_test(running_out_of_memory_is_an_error_that_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
