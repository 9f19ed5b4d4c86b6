/* Block-sparse attention: what PyTorch makes of the mask as a matrix, and the keys that ask for it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "model/model.h"
#include "ops/layer_support.h"
#include "support/golden.h"
#include "support/scratch.h"

/* As in tools/make_block_attention_golden.py. */
enum { TOKENS = 230, HEADS = 2, KV_HEADS = 1, SIZE = 4, BLOCK = 16, LOCAL = 3 };

static const struct st_tensor *stored(struct st_reader *r, const char *name)
{
    const struct st_tensor *t;
    expect_ok(st_reader_get(r, name, &t));
    return t;
}

static void expect_near(struct eval *e, value_id v, const struct st_tensor *due)
{
    struct tensor t = eval_tensor(e, v);
    assert_int_equal(due->n_bytes, tensor_bytes(&t));
    for (int64_t i = 0; i < shape_elems(&t.shape); i++)
        assert_float_equal(((const float *)t.data)[i], ((const float *)due->data)[i], 2e-5f);
}

static void check_kernel(const char *kernel)
{
    struct st_reader *r;
    struct graph *g;
    struct builder b;
    struct eval *e;
    int64_t width = (HEADS + 2 * KV_HEADS) * SIZE;
    expect_ok(st_reader_open_file(&r, SNUG_SOURCE_DIR "/tests/golden/block_attention.safetensors"));
    expect_ok(graph_new(&g, "blocks"));
    builder_init(&b, g);
    value_id qkv = build_value(&b, "qkv", ROLE_INPUT, DTYPE_F32,
                               shape_of(3, INT64_C(1), (int64_t)TOKENS, width));
    value_id dout = build_value(&b, "dout", ROLE_INPUT, DTYPE_F32,
                                shape_of(3, INT64_C(1), (int64_t)TOKENS, (int64_t)HEADS * SIZE));
    const struct attr_set attrs[] = {{.name = "heads", .i = HEADS},
                                     {.name = "kv_heads", .i = KV_HEADS},
                                     {.name = "window", .i = (int64_t)LOCAL * BLOCK},
                                     {.name = "block", .i = BLOCK}};
    value_id out = build(&b, OP_attention, IN(qkv), attrs, (int)ARRAY_LEN(attrs));
    value_id lse = build_output(&b, 1);
    value_id dqkv =
        build(&b, OP_attention_grad, IN(dout, qkv, out, lse), attrs, (int)ARRAY_LEN(attrs));
    expect_ok(builder_status(&b));
    expect_ok(eval_new(&e, g, &(struct eval_options){.kernel = kernel}));
    memcpy(eval_tensor(e, qkv).data, stored(r, "qkv")->data, (size_t)stored(r, "qkv")->n_bytes);
    memcpy(eval_tensor(e, dout).data, stored(r, "dout")->data, (size_t)stored(r, "dout")->n_bytes);
    expect_ok(eval_run(e));
    expect_near(e, out, stored(r, "out"));
    expect_near(e, dqkv, stored(r, "dqkv"));
    eval_free(e);
    graph_free(g);
    st_reader_close(r);
}

static void a_mask_of_blocks_is_as_in_pytorch(void **state)
{
    (void)state;
    check_kernel(NULL);
    check_kernel("reference");
}

/* ---- the keys -------------------------------------------------------------------------------- */

static enum status open_model(struct model **m, const char *text)
{
    json_t *config = json_loads(text, 0, NULL);
    assert_non_null(config);
    enum status status = model_new(m, config, &(struct key_origin){.where = "here"});
    json_decref(config);
    return status;
}

static const struct node *attention_of(struct graph *g)
{
    for (int i = 0; i < (int)g->nodes.n; i++) {
        if (graph_node(g, i)->op == OP_attention)
            return graph_node(g, i);
    }
    return NULL;
}

/* Multiply-adds of a layer's attention in rows of so many tokens. */
static double flops_of(const struct model *m, int64_t length, int64_t *window, int64_t *block)
{
    struct graph *g;
    struct builder b;
    struct model_graph built;
    struct tensor in[8], out[8];
    struct op_call call;
    const struct model_request request = {
        .purpose = MODEL_EVAL, .batch = 1, .seq_len = length, .dtype = DTYPE_F32};
    expect_ok(graph_new(&g, "model"));
    builder_init(&b, g);
    expect_ok(model_build(m, &b, &request, &built));
    const struct node *n = attention_of(g);
    assert_non_null(n);
    node_call(g, n, in, out, &call);
    *window = call_int(&call, ATTENTION_WINDOW);
    *block = call_int(&call, ATTENTION_BLOCK);
    double flops = op_get(OP_attention)->flops(&call);
    graph_free(g);
    return flops;
}

#define GPT2                                                                     \
    "{\"model_type\": \"gpt2\", \"n_embd\": 16, \"n_layer\": 1, \"n_head\": 2, " \
    "\"vocab_size\": 50, \"n_positions\": 256"

static void local_blocks_take_the_place_of_all_tokens(void **state)
{
    struct model *m;
    int64_t window, block;
    (void)state;
    expect_ok(open_model(&m, GPT2 ", \"attention_local_blocks\": 2, \"attention_block_size\": 8}"));
    double pairs = 0.0;
    for (int64_t i = 0; i < 100; i++)
        pairs += (double)(i + 1 - MAX(i / 8 * 8 - 8, INT64_C(0)));
    double flops = flops_of(m, 100, &window, &block);
    assert_int_equal(window, 16);
    assert_int_equal(block, 8);
    assert_true(flops == 4.0 * 16.0 * pairs);
    (void)flops_of(m, 16, &window, &block); /* nothing is out of reach */
    assert_int_equal(window, 0);
    assert_int_equal(block, 0);
    model_free(m);
}

static void blocks_that_say_nothing_are_refused(void **state)
{
    struct model *m;
    (void)state;
    assert_int_equal(open_model(&m, GPT2 ", \"attention_block_size\": 8}"), ERR_CONFIG);
    expect_message("attention_local_blocks");
    assert_int_equal(
        open_model(&m,
                   "{\"model_type\": \"mistral\", \"hidden_size\": 16, \"num_hidden_layers\": 1, "
                   "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"vocab_size\": 50, "
                   "\"intermediate_size\": 16, \"max_position_embeddings\": 64, "
                   "\"rms_norm_eps\": 1e-5, \"sliding_window\": 8, "
                   "\"attention_local_blocks\": 2}"),
        ERR_CONFIG);
    expect_message("sliding_window of 8 tokens");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mask_of_blocks_is_as_in_pytorch),
        cmocka_unit_test(local_blocks_take_the_place_of_all_tokens),
        cmocka_unit_test(blocks_that_say_nothing_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
