/* Attention between two sequences with padded keys: what PyTorch makes of it, what padding may not
 * touch, and the keys of layers that ask for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/half.h"
#include "model/model.h"
#include "support/golden.h"
#include "support/scratch.h"

/* As in tools/make_masked_goldens.py. */
enum { BATCH = 3, QUERIES = 5, KEYS = 121, HEADS = 4, KV_HEADS = 2, SIZE = 6 };
enum { Q_WIDTH = HEADS * SIZE, KV_WIDTH = 2 * KV_HEADS * SIZE };

/* A call and its gradient. */
struct calls {
    struct graph *g;
    struct eval *e;
    value_id q, kv, mask, dout, out, lse, dq, dkv;
};

static void open_calls(struct calls *c, const char *kernel, enum dtype dtype)
{
    struct builder b;
    struct shape q = shape_of(3, (int64_t)BATCH, (int64_t)QUERIES, (int64_t)Q_WIDTH);
    struct shape kv = shape_of(3, (int64_t)BATCH, (int64_t)KEYS, (int64_t)KV_WIDTH);
    struct shape mask = shape_of(2, (int64_t)BATCH, (int64_t)KEYS);
    const struct attr_set attrs[] = {{.name = "heads", .i = HEADS},
                                     {.name = "kv_heads", .i = KV_HEADS}};
    expect_ok(graph_new(&c->g, "masks"));
    builder_init(&b, c->g);
    c->q = build_value(&b, "q", ROLE_INPUT, dtype, q);
    c->kv = build_value(&b, "kv", ROLE_INPUT, dtype, kv);
    c->mask = build_value(&b, "mask", ROLE_INPUT, DTYPE_I32, mask);
    c->dout = build_value(&b, "dout", ROLE_INPUT, dtype, q);
    c->out = build(&b, OP_cross_attention, IN(c->q, c->kv, c->mask), attrs, 2);
    c->lse = build_output(&b, 1);
    c->dq = build(&b, OP_cross_attention_grad, IN(c->dout, c->q, c->kv, c->out, c->lse, c->mask),
                  attrs, 2);
    c->dkv = build_output(&b, 1);
    expect_ok(builder_status(&b));
    expect_ok(eval_new(&c->e, c->g, &(struct eval_options){.kernel = kernel}));
}

static void close_calls(struct calls *c)
{
    eval_free(c->e);
    graph_free(c->g);
}

static const struct st_tensor *stored(struct st_reader *r, const char *name)
{
    const struct st_tensor *t;
    expect_ok(st_reader_get(r, name, &t));
    return t;
}

/* The stored f32 or i32 tensor, in the dtype of the value. */
static void fill(const struct calls *c, value_id v, const struct st_tensor *from)
{
    struct tensor t = eval_tensor(c->e, v);
    if (dtype_size(t.dtype) == 4) {
        assert_int_equal(from->n_bytes, tensor_bytes(&t));
        memcpy(t.data, from->data, (size_t)from->n_bytes);
        return;
    }
    for (int64_t i = 0; i < from->n_elems; i++) {
        float x;
        memcpy(&x, from->data + i * (int64_t)sizeof(x), sizeof(x));
        ((uint16_t *)t.data)[i] = bf16_from_f32(x);
    }
}

static void fill_all(const struct calls *c, struct st_reader *r)
{
    fill(c, c->q, stored(r, "q"));
    fill(c, c->kv, stored(r, "kv"));
    fill(c, c->mask, stored(r, "mask"));
    fill(c, c->dout, stored(r, "dout"));
}

static struct st_reader *open_golden(void)
{
    struct st_reader *r;
    expect_ok(st_reader_open_file(&r, SNUG_SOURCE_DIR "/tests/golden/cross_attention.safetensors"));
    return r;
}

static void expect_near(const struct calls *c, value_id v, const struct st_tensor *due)
{
    struct tensor t = eval_tensor(c->e, v);
    assert_int_equal(due->n_bytes, tensor_bytes(&t));
    for (int64_t i = 0; i < due->n_elems; i++) {
        float x;
        memcpy(&x, due->data + i * (int64_t)sizeof(x), sizeof(x));
        assert_float_equal(((const float *)t.data)[i], x, 2e-5f);
    }
}

static const char *const kernels[] = {NULL, "reference"};

static void attention_to_padded_keys_is_as_in_pytorch(void **state)
{
    struct st_reader *r = open_golden();
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(kernels); i++) {
        struct calls c;
        open_calls(&c, kernels[i], DTYPE_F32);
        fill_all(&c, r);
        expect_ok(eval_run(c.e));
        expect_near(&c, c.out, stored(r, "out"));
        expect_near(&c, c.dq, stored(r, "dq"));
        expect_near(&c, c.dkv, stored(r, "dkv"));
        close_calls(&c);
    }
    st_reader_close(r);
}

/* All that padded keys and values hold becomes `bits`, over and over. */
static void overwrite_padding(const struct calls *c, uint8_t bits)
{
    struct tensor kv = eval_tensor(c->e, c->kv), mask = eval_tensor(c->e, c->mask);
    size_t n_bytes = KV_WIDTH * (size_t)dtype_size(kv.dtype);
    int n = 0;
    for (int j = 0; j < BATCH * KEYS; j++) {
        if (((const int32_t *)mask.data)[j])
            continue;
        memset((uint8_t *)kv.data + (size_t)j * n_bytes, bits, n_bytes);
        n++;
    }
    assert_in_range(n, KEYS + 1, 2 * BATCH * KEYS / 3 + KEYS);
}

static void expect_same(const struct calls *a, const struct calls *b, value_id v)
{
    struct tensor x = eval_tensor(a->e, v), y = eval_tensor(b->e, v);
    assert_memory_equal(x.data, y.data, (size_t)tensor_bytes(&x));
}

/* 0xFF is not a number in any float format; 0x7B is large and finite. */
static void what_padding_holds_changes_no_bit(void **state)
{
    static const uint8_t bits[] = {0xFF, 0x7B};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16};
    struct st_reader *r = open_golden();
    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(kernels); i++) {
        for (size_t k = 0; k < ARRAY_LEN(bits); k++) {
            struct calls a, b;
            open_calls(&a, kernels[i / 2], dtypes[i % 2]);
            open_calls(&b, kernels[i / 2], dtypes[i % 2]);
            fill_all(&a, r);
            fill_all(&b, r);
            overwrite_padding(&b, bits[k]);
            expect_ok(eval_run(a.e));
            expect_ok(eval_run(b.e));
            expect_same(&a, &b, a.out);
            expect_same(&a, &b, a.lse);
            expect_same(&a, &b, a.dq);
            expect_same(&a, &b, a.dkv);
            close_calls(&a);
            close_calls(&b);
        }
    }
    st_reader_close(r);
}

/* ---- layers ---------------------------------------------------------------------------------- */

static enum status open_model(struct model **m, const char *layers)
{
    char text[1024];
    (void)snprintf(text, sizeof(text),
                   "{\"inputs\": {\"a\": [4, 6], \"b\": [9, 8], \"flat\": [5]}, \"loss\": \"mse\", "
                   "\"layers\": [%s, {\"input\": \"flat\"}, {\"linear\": 2}]}",
                   layers);
    json_t *config = json_loads(text, 0, NULL);
    assert_non_null(config);
    enum status status = model_new(m, config, &(struct key_origin){.where = "here"});
    json_decref(config);
    return status;
}

static void masks_come_with_the_batch(void **state)
{
    struct model *m;
    (void)state;
    expect_ok(open_model(&m,
                         "{\"input\": \"a\"}, {\"attention\": {\"heads\": 2, \"mask\": \"am\"}}, "
                         "{\"cross_attention\": {\"heads\": 3, \"from\": \"b\", "
                         "\"mask\": \"bm\"}}, {\"encoder\": {\"heads\": 2, \"hidden\": 4, "
                         "\"mask\": \"am\"}}"));
    assert_int_equal(m->samples.n_fields, 6);
    const struct model_field *am = &m->samples.fields[3], *bm = &m->samples.fields[4];
    assert_string_equal(am->name, "am");
    assert_string_equal(bm->name, "bm");
    assert_int_equal(am->shape.dim[0], 4);
    assert_int_equal(bm->shape.dim[0], 9);
    assert_int_equal(bm->n_classes, 2);
    assert_false(am->is_target);
    model_free(m);
}

static void what_cannot_be_attended_to_is_told_with_its_place(void **state)
{
    static const struct {
        const char *layer, *message;
    } cases[] = {
        {"{\"cross_attention\": {\"heads\": 2}}", "'layers.1.cross_attention.from' is missing"},
        {"{\"cross_attention\": {\"heads\": 2, \"from\": \"c\"}}",
         "layers.1 (cross_attention): 'c' is none of the network's inputs"},
        {"{\"cross_attention\": {\"heads\": 2, \"from\": \"flat\"}}", "'flat' is [2, 5]"},
        {"{\"cross_attention\": {\"heads\": 4, \"from\": \"b\"}}", "no multiple of 4 heads"},
        {"{\"attention\": {\"heads\": 2, \"mask\": \"b\"}}",
         "layers.1 (attention): mask 'b' is the name of another tensor"},
        {"{\"attention\": {\"heads\": 2, \"mask\": \"m\"}}, "
         "{\"cross_attention\": {\"heads\": 2, \"from\": \"b\", \"mask\": \"m\"}}",
         "layers.2 (cross_attention): mask 'm' has the shape [4] where it was named before, and "
         "these are 9 steps"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct model *m;
        char layers[512];
        (void)snprintf(layers, sizeof(layers), "{\"input\": \"a\"}, %s", cases[i].layer);
        assert_int_equal(open_model(&m, layers), ERR_CONFIG);
        expect_message(cases[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_to_padded_keys_is_as_in_pytorch),
        cmocka_unit_test(what_padding_holds_changes_no_bit),
        cmocka_unit_test(masks_come_with_the_batch),
        cmocka_unit_test(what_cannot_be_attended_to_is_told_with_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
