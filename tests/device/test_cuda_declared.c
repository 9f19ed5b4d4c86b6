/* How the CUDA kernels of networks over space cut their calls, and what workspace they declare:
 * plain arithmetic on shapes, the same in every build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "device/card/card.h"
#include "device/cuda/declared/channel_norm.h"
#include "device/cuda/declared/conv_parts.h"
#include "device/cuda/declared/convolution.h"
#include "device/device.h"
#include "graph/sample.h"

static struct device h200;

/* A call as a sample text has it, without memory. */
struct bound_call {
    struct sample sample;
    struct tensor in[SAMPLE_MAX_INPUTS], out[MAX_OUTPUTS];
    struct op_call call;
};

static void bind(struct bound_call *b, enum op_id op, const char *text)
{
    memset(b, 0, sizeof(*b));
    assert_int_equal(sample_parse(&b->sample, op_get(op), text), OK);
    for (int i = 0; i < b->sample.n_in; i++)
        b->in[i] = (struct tensor){b->sample.in[i].dtype, b->sample.in[i].shape, NULL};
    b->call = (struct op_call){.op = op,
                               .n_in = b->sample.n_in,
                               .n_out = op_get(op)->n_out,
                               .in = b->in,
                               .out = b->out,
                               .attrs = b->sample.attrs};
    assert_int_equal(op_get(op)->infer(&b->call), OK);
}

static const struct kernel *pick(const struct op_call *c, const struct device *d)
{
    const struct kernel *k = kernel_pick(d->ops->kernels(c->op), c, &d->env, NULL);
    assert_non_null(k);
    return k;
}

/* ---- convolutions ---------------------------------------------------------------------------- */

static void calls_beyond_32_bits_run_in_parts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t batch, n_slabs; /* 0: there are no parts */
    } cases[] = {
        {"bf16[4,64,1024,1024,8], bf16[8,1,1,1,8]", 2,
         1}, /* 2^29 a sample: three fit, two divide */
        {"bf16[6,64,1024,1024,8], bf16[8,1,1,1,8]", 3, 1},
        {"bf16[7,64,1024,1024,8], bf16[8,1,1,1,8]", 1, 1},
        {"bf16[2,128,1024,1024,8], bf16[8,1,1,1,8]", 1, 1},
        {"bf16[2,256,1024,1024,8], bf16[4,1,1,1,8]", 1, 2},  /* 2^31 in x */
        {"bf16[2,128,1024,1024,8], bf16[16,1,1,1,8]", 1, 2}, /* 2^31 in y */
        {"bf16[2,16,720,1280,32], bf16[32,3,3,3,32]", 2, 1},
        {"bf16[1,87,720,1280,32], bf16[32,3,3,3,32]", 1, 2},
        {"bf16[1,1024,2097152,1], bf16[1024,1,1,1]", 0, 0}, /* in a row of y */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bound_call b;
        bind(&b, OP_conv, cases[i].text);
        struct conv_shape s = conv_shape_of(&b.call);
        struct conv_cut cut = conv_cut_of(&s, CONV_MOST_ELEMS);
        bool fits = cases[i].batch > 0;
        int64_t n_parts = fits ? s.dims.window.batch / cases[i].batch * cases[i].n_slabs : 0;
        assert_int_equal(cut.n_parts, n_parts);
        assert_true(!fits || (cut.batch == cases[i].batch && cut.n_slabs == cases[i].n_slabs));
        assert_string_equal(pick(&b.call, &h200)->name, fits ? "cudnn" : "plain");
    }
}

static void products_have_the_sizes_of_the_convolution(void **state)
{
    (void)state;
    struct bound_call b;
    bind(&b, OP_conv, "f32[2,6,5,4], f32[6,3,2,2] {stride=[2,2], pad_before=[0,1], groups=2}");
    struct conv_shape s = conv_shape_of(&b.call);
    struct conv_product p = conv_product_of(&s);
    assert_int_equal(p.m, 2 * 2 * 3);
    assert_int_equal(p.n, 3);
    assert_int_equal(p.k, 3 * 2 * 2);
    s.kind = CONV_GRAD_INPUT;
    p = conv_product_of(&s);
    assert_int_equal(p.m, 2 * 6 * 5);
    assert_int_equal(p.n, 2);
    assert_int_equal(p.k, 3 * 2 * 3);
    s.kind = CONV_GRAD_WEIGHT;
    p = conv_product_of(&s);
    assert_int_equal(p.m, 3);
    assert_int_equal(p.n, 3 * 2 * 2);
    assert_int_equal(p.k, 2 * 2 * 3);
}

static void a_weight_gradient_that_is_added_has_room_aside(void **state)
{
    (void)state;
    struct bound_call b;
    bind(&b, OP_conv_grad_weight, "bf16[4,32,32,64], bf16[4,32,32,64] {kernel=[1,1]}");
    struct conv_shape s = conv_shape_of(&b.call);
    assert_false(s.adds);
    assert_int_equal(conv_aside_bytes(&s), 0);
    int64_t alone = conv_allowance(h200.env.gpu, &s);
    bind(&b, OP_conv_grad_weight,
         "bf16[4,32,32,64], bf16[4,32,32,64], f32[64,1,1,64] {kernel=[1,1], dtype=f32}");
    s = conv_shape_of(&b.call);
    assert_true(s.adds);
    assert_int_equal(conv_aside_bytes(&s), 64 * 64 * 4);
    assert_int_equal(conv_allowance(h200.env.gpu, &s), alone + 64 * 64 * 4);
}

/* Of layers as they are: workspace is small beside the activations. */
static void workspace_stays_below_that_of_the_activations(void **state)
{
    (void)state;
    static const struct {
        enum op_id op;
        const char *text;
    } cases[] = {
        {OP_conv, "bf16[2,16,720,1280,32], bf16[32,3,3,3,32], bf16[32] {pad_before=[1,1,1], "
                  "pad_after=[1,1,1]}"},
        {OP_conv_grad_weight, "bf16[100,220,320,64], bf16[100,220,320,128] {pad_before=[1,1], "
                              "pad_after=[1,1], kernel=[3,3]}"},
        {OP_conv_grad_input, "bf16[64,28,28,256], bf16[256,3,3,128] {stride=[2,2], "
                             "pad_before=[1,1], pad_after=[1,1], size=[56,56]}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bound_call b;
        bind(&b, cases[i].op, cases[i].text);
        const struct kernel *k = pick(&b.call, &h200);
        int64_t n = k->workspace(&b.call, &h200.env);
        assert_true(n > 0 && n < tensor_bytes(&b.in[0]) / 4);
        assert_int_equal(n % ARENA_ALIGN, 0);
    }
}

/* Where cuDNN declines what a plan without it has counted on, the plan still has the room. */
static void the_plain_kernels_need_no_more_workspace_than_cudnn_is_given(void **state)
{
    (void)state;
    static const char *const more[] = {
        "bf16[64,56,56,8], bf16[64,56,56,8] {kernel=[1,1]}",
        "bf16[64,56,56,64], bf16[64,56,56,64] {kernel=[1,1]}",
        "bf16[8,512,512,64], bf16[8,512,512,64] {pad_before=[1,1], pad_after=[1,1], kernel=[3,3]}",
        "bf16[8,14,14,2048], bf16[8,14,14,2048] {pad_before=[1,1], pad_after=[1,1], kernel=[3,3]}",
    };
    const struct op_def *def = op_get(OP_conv_grad_weight);
    for (int i = 0; i < def->n_samples + (int)ARRAY_LEN(more); i++) {
        struct bound_call b;
        bind(&b, OP_conv_grad_weight,
             i < def->n_samples ? def->samples[i].text : more[i - def->n_samples]);
        const struct kernel *cudnn = pick(&b.call, &h200), *plain = cudnn + 1;
        assert_string_equal(plain->name, "plain");
        assert_true(plain->workspace(&b.call, &h200.env) <= cudnn->workspace(&b.call, &h200.env));
    }
}

static void a_gpu_without_bf16_takes_the_plain_kernels(void **state)
{
    (void)state;
    struct device t4;
    struct bound_call b;
    assert_int_equal(device_open_card(&t4, "t4"), OK);
    bind(&b, OP_conv, "bf16[1,8,8,8], bf16[8,3,3,8]");
    assert_string_equal(pick(&b.call, &t4)->name, "plain");
    bind(&b, OP_conv, "f16[1,8,8,8], f16[8,3,3,8]");
    assert_string_equal(pick(&b.call, &t4)->name, "cudnn");
    device_close(&t4);
}

/* ---- norms by channel ------------------------------------------------------------------------ */

static void check_cut(const struct channel_cut *cut, const struct channel_extent *e)
{
    assert_true(cut->lanes >= 1 && cut->lines >= 1);
    assert_true(cut->lanes * cut->lines <= CHANNEL_THREADS);
    assert_int_equal(e->channels % cut->vector, 0);
    assert_true(cut->n_tiles * cut->lanes * cut->vector >= e->channels);
    assert_true((cut->n_tiles - 1) * cut->lanes * cut->vector < e->channels);
    assert_true(cut->n_bands * cut->band_rows >= e->n_places);
    assert_true((cut->n_bands - 1) * cut->band_rows < e->n_places);
}

static void bands_and_tiles_cover_every_row_and_channel_once(void **state)
{
    (void)state;
    static const struct {
        enum op_id op;
        const char *text;
    } cases[] = {
        {OP_batch_norm, "f32[3,5]"},
        {OP_batch_norm, "bf16[1,1]"},
        {OP_batch_norm, "bf16[16,224,224,64]"},
        {OP_batch_norm, "bf16[7,5,8200]"},
        {OP_batch_norm, "bf16[64,1024,1024,1024,96]"},
        {OP_group_norm, "bf16[300,7,7,512] {groups=32}"},
        {OP_group_norm, "f32[2,3,4,33] {groups=11}"},
        {OP_group_norm, "f32[5,6] {groups=3}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bound_call b;
        bind(&b, cases[i].op, cases[i].text);
        struct channel_extent e = channel_extent_of(&b.call);
        struct channel_cut sums = channel_cut_sums(&b.call, &h200.env);
        struct channel_cut rows = channel_cut_rows(&b.call);
        assert_int_equal(e.n_samples * e.n_places * e.channels, shape_elems(&b.in[0].shape));
        assert_int_equal(e.groups * e.width, e.channels);
        check_cut(&sums, &e);
        check_cut(&rows, &e);
        assert_true(channel_sums_bytes(&b.call, &h200.env) <= (int64_t)128 << 20);
    }
}

static int open_card(void **state)
{
    (void)state;
    return device_open_card(&h200, "h200") == OK ? 0 : -1;
}

static int close_card(void **state)
{
    (void)state;
    device_close(&h200);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_beyond_32_bits_run_in_parts),
        cmocka_unit_test(products_have_the_sizes_of_the_convolution),
        cmocka_unit_test(a_weight_gradient_that_is_added_has_room_aside),
        cmocka_unit_test(workspace_stays_below_that_of_the_activations),
        cmocka_unit_test(the_plain_kernels_need_no_more_workspace_than_cudnn_is_given),
        cmocka_unit_test(a_gpu_without_bf16_takes_the_plain_kernels),
        cmocka_unit_test(bands_and_tiles_cover_every_row_and_channel_once),
    };
    return cmocka_run_group_tests(tests, open_card, close_card);
}
