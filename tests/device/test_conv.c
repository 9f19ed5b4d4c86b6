/* Kernels of networks over space: what the laws do not see. Threads never show in a result, however
 * large, and convolutions never hold a matrix of windows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/cpu_kernels.h"
#include "ops/window_support.h"
#include "support/golden.h"
#include "support/law.h"

static void open_case(struct law_case *c, struct law_report *r, enum op_id op, const char *text)
{
    *c = (struct law_case){.report = r, .op = op, .def = op_get(op), .text = text};
    expect_ok(sample_parse(&c->sample, c->def, text));
    expect_ok(law_case_build(c));
}

/* One run on a thread, the others on more: every bit of every output. */
static void expect_same_on_threads(enum op_id op, const char *text)
{
    struct law_report r = {0};
    struct law_case c;
    open_case(&c, &r, op, text);
    struct eval *alone = law_run(&c, &(struct eval_options){.n_threads = 1});
    assert_non_null(alone);
    for (int n_threads = 2; n_threads <= 5; n_threads += 3) {
        struct eval *shared = law_run(&c, &(struct eval_options){.n_threads = n_threads});
        const struct node *n = graph_node(c.g, 0);
        assert_non_null(shared);
        for (int o = 0; o < n->n_out; o++) {
            struct tensor x = eval_tensor(alone, n->out[o]), y = eval_tensor(shared, n->out[o]);
            assert_memory_equal(x.data, y.data, (size_t)tensor_bytes(&x));
        }
        eval_free(shared);
    }
    eval_free(alone);
    graph_free(c.g);
}

static void the_number_of_threads_does_not_show(void **state)
{
    (void)state;
    expect_same_on_threads(OP_conv, "f32[2,24,24,5], f32[70,3,3,5], f32[70] {pad_before=[1,1]}");
    expect_same_on_threads(OP_conv_grad_input, "f32[2,12,12,20], f32[20,3,3,7] {stride=[2,2], "
                                               "pad_before=[1,1], pad_after=[1,1], size=[24,24]}");
    expect_same_on_threads(OP_conv_grad_input,
                           "f32[1,40,600,3], f32[3,3,3,1] "
                           "{pad_before=[1,1], pad_after=[1,1], size=[40,600]}");
    expect_same_on_threads(OP_conv_grad_weight, "f32[4,24,24,5], f32[4,22,22,20] {kernel=[3,3]}");
    expect_same_on_threads(OP_conv_grad_weight,
                           "f32[4,24,24,20], f32[4,22,22,20] {kernel=[3,3], groups=20}");
    expect_same_on_threads(OP_batch_norm, "f32[4,24,24,20], f32[20], f32[20]");
    expect_same_on_threads(OP_batch_norm_grad,
                           "f32[4,24,24,20], f32[4,24,24,20], f32[20], f32[20], f32[20]+");
    expect_same_on_threads(OP_group_norm, "f32[4,24,24,20], f32[20], f32[20] {groups=5}");
}

/* Bands of rows of the kernel for few channels: rows at their edges are as the others. */
static void a_band_of_rows_does_not_show(void **state)
{
    (void)state;
    static const char *const tall = "f32[1,40,600,3], f32[3,3,3,1] "
                                    "{pad_before=[1,1], pad_after=[1,1], size=[40,600]}";
    struct law_report r = {0};
    struct law_case c;
    open_case(&c, &r, OP_conv_grad_input, tall);
    struct eval *fast = law_run(&c, &(struct eval_options){.n_threads = 2});
    struct eval *plain = law_run(&c, &(struct eval_options){.kernel = "reference"});
    assert_non_null(fast);
    assert_non_null(plain);
    struct tensor x = eval_tensor(fast, graph_node(c.g, 0)->out[0]);
    struct tensor y = eval_tensor(plain, graph_node(c.g, 0)->out[0]);
    for (int64_t i = 0; i < shape_elems(&x.shape); i++)
        assert_float_equal(((float *)x.data)[i], ((float *)y.data)[i], 1e-4f);
    eval_free(fast);
    eval_free(plain);
    graph_free(c.g);
}

static int64_t workspace_of(enum op_id op, const char *text)
{
    struct law_report r = {0};
    struct law_case c;
    struct tensor in[SAMPLE_MAX_INPUTS], out[MAX_OUTPUTS];
    struct op_call call;
    const struct kernel_env env = {.n_threads = 2};
    const char *why = NULL;
    open_case(&c, &r, op, text);
    node_call(c.g, graph_node(c.g, 0), in, out, &call);
    const struct kernel *k = kernel_pick(cpu_kernels(op), &call, &env, &why);
    int64_t n_bytes = k->workspace ? k->workspace(&call, &env) : 0;
    graph_free(c.g);
    return n_bytes;
}

/* With 16 times the places, convolutions declare as much as before. */
static void workspace_does_not_grow_with_the_image(void **state)
{
    (void)state;
    static const struct {
        enum op_id op;
        const char *small, *large;
    } cases[] = {
        {OP_conv, "f32[8,256,256,64], f32[64,3,3,64] {pad_before=[1,1], pad_after=[1,1]}",
         "f32[8,1024,1024,64], f32[64,3,3,64] {pad_before=[1,1], pad_after=[1,1]}"},
        {OP_conv_grad_input, "bf16[8,254,254,64], bf16[64,3,3,64] {size=[256,256]}",
         "bf16[8,1022,1022,64], bf16[64,3,3,64] {size=[1024,1024]}"},
        {OP_conv_grad_weight, "f32[8,256,256,64], f32[8,254,254,64] {kernel=[3,3]}",
         "f32[8,1024,1024,64], f32[8,1022,1022,64] {kernel=[3,3]}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t small = workspace_of(cases[i].op, cases[i].small);
        int64_t large = workspace_of(cases[i].op, cases[i].large);
        assert_true(large < small + small / 4);
        assert_true(large < 16 * 1048576);
    }
}

static void a_transposed_convolution_has_the_size_it_is_used_for(void **state)
{
    (void)state;
    struct graph *g;
    struct builder b;
    const struct conv_transpose twice = {.stride = {2, 2},
                                         .pad_before = {1, 1},
                                         .pad_after = {1, 1},
                                         .dilation = {1, 1},
                                         .groups = 1};
    struct conv_transpose odd = twice;
    odd.out_pad[0] = odd.out_pad[1] = 1;
    expect_ok(graph_new(&g, "transposed"));
    builder_init(&b, g);
    value_id x = build_value(&b, "x", ROLE_INPUT, DTYPE_F32, shape_of(4, 1L, 5L, 7L, 6L));
    value_id w4 = build_value(&b, "w4", ROLE_PARAMETER, DTYPE_F32, shape_of(4, 6L, 4L, 4L, 3L));
    value_id w3 = build_value(&b, "w3", ROLE_PARAMETER, DTYPE_F32, shape_of(4, 6L, 3L, 3L, 3L));
    struct shape due = shape_of(4, 1L, 10L, 14L, 3L);
    value_id even = build_conv_transpose(&b, x, w4, &twice);
    value_id padded = build_conv_transpose(&b, x, w3, &odd);
    expect_ok(builder_status(&b));
    assert_true(shape_equal(build_shape(&b, even), &due));
    assert_true(shape_equal(build_shape(&b, padded), &due));
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_number_of_threads_does_not_show),
        cmocka_unit_test(a_band_of_rows_does_not_show),
        cmocka_unit_test(workspace_does_not_grow_with_the_image),
        cmocka_unit_test(a_transposed_convolution_has_the_size_it_is_used_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
