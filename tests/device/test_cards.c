/* GPUs that are planned for without having one: a table that makes sense, devices on which nothing
 * runs, kernels and workspaces as the GPU itself would answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "device/card/card.h"
#include "device/cuda/declared/product.h"
#include "graph/sample.h"
#include "ops/layer_support.h"

static void every_card_opens_with_figures_that_make_sense(void **state)
{
    (void)state;
    assert_true(card_count() >= 28);
    for (int i = 0; i < card_count(); i++) {
        const struct card *c = card_at(i);
        const struct link_rate *in;
        struct device d;
        struct device_room room;
        assert_int_equal(device_open_card(&d, c->name), OK);
        in = &d.rates.links[TIER_HOST][TIER_DEVICE];
        assert_true(d.is_absent);
        assert_true(d.rates.half_matmul_flops > d.rates.matmul_flops);
        assert_true(d.rates.memory_bytes > 100e9 && d.rates.memory_bytes < 10e12);
        assert_true(in->both < in->alone && in->alone > 10e9 && in->alone < 64e9);
        assert_int_equal(d.ops->room(&d, &room), OK);
        assert_true(room.total_bytes > (int64_t)9 << 30);
        assert_true(d.ops->context_bytes(&d) > 0);
        assert_int_equal(d.lacks_bf16, c->capability < 80);
        assert_int_equal(c->tf32_tflops > 0, c->capability >= 80);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(c->name, card_at(k)->name);
        device_close(&d);
    }
}

static void an_unknown_name_lists_the_cards(void **state)
{
    (void)state;
    struct device d;
    assert_int_equal(device_open_card(&d, "voodoo2"), ERR_CONFIG);
    assert_non_null(strstr(status_message(), "'voodoo2'"));
    assert_non_null(strstr(status_message(), "rtx4090"));
    assert_non_null(strstr(status_message(), "h200"));
}

static void nothing_runs_on_a_card(void **state)
{
    (void)state;
    struct device d;
    void *p = &d;
    assert_int_equal(device_open_card(&d, "rtx4090"), OK);
    assert_int_equal(d.ops->memory_alloc(&d, TIER_DEVICE, 256, &p), ERR_UNSUPPORTED);
    assert_null(p);
    assert_non_null(strstr(status_message(), "GeForce RTX 4090"));
    device_close(&d);
}

/* ---- kernels --------------------------------------------------------------------------------- */

struct attention_call {
    struct op_call call;
    struct tensor in[4], out[2];
    struct attr attrs[ATTENTION_N_ATTRS];
};

/* Bound to itself. */
static void make_attention(struct attention_call *a, bool backward, enum dtype dtype,
                           const int64_t shape[5])
{
    int64_t b = shape[0], t = shape[1], heads = shape[2], kv_heads = shape[3], dim = shape[4];
    struct tensor qkv = {dtype, shape_of(3, b, t, (heads + 2 * kv_heads) * dim), NULL};
    struct tensor out = {dtype, shape_of(3, b, t, heads * dim), NULL};
    struct tensor lse = {DTYPE_F32, shape_of(3, b, heads, t), NULL};
    *a = (struct attention_call){.in = {qkv}, .out = {out, lse}};
    if (backward) {
        const struct tensor in[4] = {out, qkv, out, lse};
        memcpy(a->in, in, sizeof(in));
        a->out[0] = qkv;
    }
    a->attrs[QKV_HEADS].i = heads;
    a->attrs[QKV_KV_HEADS].i = kv_heads;
    a->attrs[QKV_HEAD_DIM].i = dim;
    a->attrs[ATTENTION_CAUSAL].i = 1;
    a->call = (struct op_call){.op = backward ? OP_attention_grad : OP_attention,
                               .n_in = backward ? 4 : 1,
                               .n_out = backward ? 1 : 2,
                               .in = a->in,
                               .out = a->out,
                               .attrs = a->attrs};
}

static const struct kernel *pick(struct device *d, const struct op_call *c)
{
    const struct kernel *k = kernel_pick(d->ops->kernels(c->op), c, &d->env, NULL);
    assert_non_null(k);
    return k;
}

/* Bytes as cuDNN 9.14 asked for them on an H200. */
static void attention_gets_the_workspace_that_cudnn_asks_for(void **state)
{
    (void)state;
    static const struct {
        int64_t shape[5]; /* batch, tokens, heads, key/value heads, head_dim */
        int64_t n_bytes;
    } cases[] = {
        {{32, 1024, 12, 12, 64}, 806879488},  {{4, 1024, 12, 12, 64}, 100860160},
        {{8, 1024, 25, 25, 64}, 420249856},   {{8, 2048, 32, 4, 64}, 2283798784},
        {{1, 2048, 32, 4, 64}, 285475072},    {{4, 2048, 32, 32, 128}, 1074790656},
        {{16, 1024, 28, 4, 128}, 1176240384}, {{2, 1024, 28, 4, 128}, 147030272},
        {{8, 1024, 40, 8, 128}, 840171776},   {{1, 8192, 32, 8, 128}, 2215117056},
        {{2, 256, 4, 4, 64}, 1057024},        {{2, 128, 4, 4, 32}, 266496},
    };
    struct device d;
    assert_int_equal(device_open_card(&d, "h200"), OK);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct attention_call a;
        make_attention(&a, true, DTYPE_BF16, cases[i].shape);
        const struct kernel *k = pick(&d, &a.call);
        assert_string_equal(k->name, "cudnn");
        assert_int_equal(k->workspace(&a.call, &d.env), cases[i].n_bytes);
        make_attention(&a, false, DTYPE_BF16, cases[i].shape);
        assert_int_equal(pick(&d, &a.call)->workspace(&a.call, &d.env), 256);
    }
    device_close(&d);
}

static void kernels_are_those_of_the_architecture(void **state)
{
    (void)state;
    static const struct {
        const char *card;
        bool backward;
        enum dtype dtype;
        int64_t n_tokens;
        const char *kernel;
    } cases[] = {
        {"h200", true, DTYPE_BF16, 1024, "cudnn"},
        {"h200", true, DTYPE_BF16, 1000, "tensor_cores"}, /* cuDNN's gradient wants whole tiles */
        {"h200", false, DTYPE_BF16, 1000, "cudnn"},
        {"h200", false, DTYPE_F32, 1024, "tiles"},
        {"rtx4090", true, DTYPE_BF16, 1024, "cudnn"},
        {"t4", true, DTYPE_F16, 1024, "tiles"},
        {"v100-16", false, DTYPE_F16, 1024, "tiles"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const int64_t shape[5] = {2, cases[i].n_tokens, 12, 12, 64};
        struct attention_call a;
        struct device d;
        assert_int_equal(device_open_card(&d, cases[i].card), OK);
        make_attention(&a, cases[i].backward, cases[i].dtype, shape);
        assert_string_equal(pick(&d, &a.call)->name, cases[i].kernel);
        device_close(&d);
    }
}

static void scores_under_a_cap_go_to_our_own_kernels(void **state)
{
    (void)state;
    static const struct {
        const char *card;
        bool backward;
        int64_t head_dim;
        double dropout;
        const char *kernel;
    } cases[] = {
        {"h200", false, 128, 0.0, "tensor_cores"}, {"h200", true, 128, 0.0, "tensor_cores"},
        {"h200", false, 128, 0.1, "tiles"},        {"h200", false, 256, 0.0, "tiles"},
        {"h200", true, 256, 0.0, "tiles"},         {"t4", true, 128, 0.0, "tiles"},
        {"t4", true, 256, 0.0, "plain"},           {"h200", true, 512, 0.0, "plain"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const int64_t shape[5] = {2, 1024, 8, 4, cases[i].head_dim};
        struct attention_call a;
        struct device d;
        assert_int_equal(device_open_card(&d, cases[i].card), OK);
        make_attention(&a, cases[i].backward, DTYPE_F16, shape);
        a.attrs[ATTENTION_CAP].f = 50.0;
        a.attrs[ATTENTION_DROPOUT].f = cases[i].dropout;
        assert_string_equal(pick(&d, &a.call)->name, cases[i].kernel);
        device_close(&d);
    }
}

static const char *kernel_of_call(const char *card, const char *op_name, const char *text)
{
    struct tensor in[SAMPLE_MAX_INPUTS] = {0}, out[1];
    struct sample sample;
    struct device d;
    enum op_id op;
    assert_true(op_find(op_name, &op));
    assert_int_equal(sample_parse(&sample, op_get(op), text), OK);
    for (int i = 0; i < sample.n_in; i++)
        in[i] = (struct tensor){sample.in[i].dtype, sample.in[i].shape, NULL};
    struct op_call call = {
        .op = op, .n_in = sample.n_in, .n_out = 1, .in = in, .out = out, .attrs = sample.attrs};
    assert_int_equal(op_get(op)->infer(&call), OK);
    assert_int_equal(device_open_card(&d, card), OK);
    const char *name = pick(&d, &call)->name;
    device_close(&d);
    return name;
}

/* Warpgroups are of 9.0 alone; every row, of results too, begins at a multiple of 16 bytes. */
static void grouped_products_take_the_tensor_cores_of_their_card(void **state)
{
    (void)state;
    static const struct {
        const char *card, *op, *text, *kernel;
    } cases[] = {
        {"h200", "grouped_linear", "bf16[64,16], bf16[2,24,16], i32[3]", "warpgroups"},
        {"h200", "grouped_linear", "f16[64,16], f16[2,24,16], i32[3], f16[2,24]", "warpgroups"},
        {"h200", "grouped_linear", "bf16[64,16], bf16[2,20,16], i32[3]", "tensor_cores"},
        {"h200", "grouped_linear", "bf16[64,20], bf16[2,16,20], i32[3]", "plain"},
        {"h200", "grouped_linear", "f32[64,16], f32[2,24,16], i32[3]", "plain"},
        {"h100-pcie", "grouped_linear_grad_input", "bf16[9,24], bf16[2,24,16], i32[3]",
         "warpgroups"},
        {"h200", "grouped_linear_grad_weight", "bf16[9,24], bf16[9,16], i32[3] {dtype=f32}",
         "warpgroups"},
        {"h200", "grouped_linear_grad_weight", "bf16[9,8], bf16[9,8], i32[1025]", "warpgroups"},
        {"h200", "grouped_linear_grad_weight", "bf16[9,8], bf16[9,8], i32[1026]", "plain"},
        {"a100-80", "grouped_linear", "bf16[64,16], bf16[2,24,16], i32[3]", "tensor_cores"},
        {"b200", "grouped_linear", "bf16[64,16], bf16[2,24,16], i32[3]", "tensor_cores"},
        {"t4", "grouped_linear", "f16[64,16], f16[2,24,16], i32[3]", "plain"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_string_equal(kernel_of_call(cases[i].card, cases[i].op, cases[i].text),
                            cases[i].kernel);
}

static int64_t allowance(int64_t m, int64_t n, int64_t k, enum dtype dtype)
{
    struct device d;
    struct cuda_gemm g = {.m = m, .n = n, .k = k, .dtype = dtype, .c_dtype = dtype};
    assert_int_equal(device_open_card(&d, "h200"), OK);
    int64_t n_bytes = product_allowance(d.env.gpu, &g);
    device_close(&d);
    return n_bytes;
}

/* What cuBLASLt 13.1 asked for on an H200 is within what a product is given. */
static void products_are_given_what_split_sums_take_and_no_more(void **state)
{
    (void)state;
    assert_int_equal(allowance(16384, 4096, 4096, DTYPE_BF16), 256);
    assert_int_equal(allowance(4096, 768, 3072, DTYPE_BF16), 256);
    assert_true(allowance(2304, 768, 32768, DTYPE_BF16) >= 14156032);
    assert_true(allowance(768, 768, 32768, DTYPE_BF16) >= 11796736);
    assert_true(allowance(3072, 768, 16384, DTYPE_BF16) >= 18874624);
    assert_true(allowance(512, 4096, 22016, DTYPE_BF16) >= 16777472);
    assert_true(allowance(192, 64, 32768, DTYPE_BF16) >= 1032448);
    assert_true(allowance(11264, 2048, 2048, DTYPE_F32) >= 17302272);
    assert_true(allowance(64, 256, 32768, DTYPE_F32) >= 4325376);
    assert_true(allowance(256, 3584, 152064, DTYPE_BF16) <= PRODUCT_WORKSPACE_MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_card_opens_with_figures_that_make_sense),
        cmocka_unit_test(an_unknown_name_lists_the_cards),
        cmocka_unit_test(nothing_runs_on_a_card),
        cmocka_unit_test(attention_gets_the_workspace_that_cudnn_asks_for),
        cmocka_unit_test(kernels_are_those_of_the_architecture),
        cmocka_unit_test(scores_under_a_cap_go_to_our_own_kernels),
        cmocka_unit_test(grouped_products_take_the_tensor_cores_of_their_card),
        cmocka_unit_test(products_are_given_what_split_sums_take_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
