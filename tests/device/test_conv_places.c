/* The plain CUDA convolutions by their own arithmetic, without a GPU: the products over the places
 * that they number (device/cuda/declared/conv_places.h) are what the ops define, on every sample.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "device/cpu/support/ref.h"
#include "device/cuda/declared/conv_places.h"
#include "device/cuda/declared/convolution.h"
#include "graph/sample.h"
#include "support/device_call.h"

/* A sample's call with random inputs. */
struct conv_call {
    struct sample sample;
    struct tensor in[SAMPLE_MAX_INPUTS], out[1];
    struct op_call call;
};

static void open_call(struct conv_call *b, enum op_id op, const char *text)
{
    memset(b, 0, sizeof(*b));
    assert_int_equal(sample_parse(&b->sample, op_get(op), text), OK);
    for (int i = 0; i < b->sample.n_in; i++) {
        const struct sample_input *in = &b->sample.in[i];
        if (in->dtype != DTYPE_NONE)
            b->in[i] = host_random(in->dtype, in->shape, (uint64_t)i + 1);
    }
    b->call = (struct op_call){.op = op,
                               .n_in = b->sample.n_in,
                               .n_out = 1,
                               .in = b->in,
                               .out = b->out,
                               .attrs = b->sample.attrs};
    assert_int_equal(op_get(op)->infer(&b->call), OK);
    b->out[0] = host_tensor(b->out[0].dtype, b->out[0].shape);
}

static void close_call(struct conv_call *b)
{
    for (int i = 0; i < b->sample.n_in; i++)
        mem_free(b->in[i].data);
    mem_free(b->out[0].data);
}

static double element(const struct tensor *t, int64_t at)
{
    assert_true(at < shape_elems(&t->shape));
    return at < 0 ? 0.0 : ref_get(t, at);
}

/* What a row and a column of a group's product have at term k. */
static double forward_term(const struct op_call *c, const struct conv_shape *s,
                           const struct conv_group *g, const int64_t at[3])
{
    struct conv_place start = conv_window_start(&s->dims.window, at[0]);
    struct conv_place tap = conv_tap(&s->dims.window, at[2], g->channels);
    return element(&c->in[0], conv_x_at(&s->dims, g, &start, &tap)) *
           element(&c->in[1], conv_w_at(g, at[1], conv_product_of(s).k, at[2]));
}

static double grad_input_term(const struct op_call *c, const struct conv_shape *s,
                              const struct conv_group *g, const int64_t at[3])
{
    struct conv_place place = conv_padded_place(&s->dims.window, at[0]);
    struct conv_place tap = conv_tap(&s->dims.window, at[2], g->features);
    return element(&c->in[0], conv_y_at(&s->dims, g, &place, &tap)) *
           element(&c->in[1], conv_w_of_tap_at(g, conv_product_of(s).k, at[2], at[1]));
}

static double grad_weight_term(const struct op_call *c, const struct conv_shape *s,
                               const struct conv_group *g, const int64_t at[3])
{
    struct conv_place start = conv_window_start(&s->dims.window, at[2]);
    struct conv_place tap = conv_tap(&s->dims.window, at[1], g->channels);
    int64_t feature = g->index * g->features + at[0];
    return element(&c->in[0], conv_x_at(&s->dims, g, &start, &tap)) *
           element(&c->in[1], at[2] * s->dims.features + feature);
}

/* Where row i, column j of a group's product goes. */
static int64_t out_at(const struct conv_shape *s, const struct conv_group *g, int64_t i, int64_t j)
{
    if (s->kind == CONV_FORWARD)
        return i * s->dims.features + g->index * g->features + j;
    if (s->kind == CONV_GRAD_INPUT)
        return i * s->dims.channels + g->index * g->channels + j;
    return (g->index * g->features + i) * conv_product_of(s).n + j;
}

/* What is added to element `at` of the output: a bias, or what was there. */
static double added(const struct op_call *c, const struct conv_shape *s, int64_t at)
{
    if (s->has_bias)
        return ref_get(&c->in[2], at % s->dims.features);
    return s->adds ? ref_get(&c->in[2], at) : 0.0;
}

typedef double term_fn(const struct op_call *c, const struct conv_shape *s,
                       const struct conv_group *g, const int64_t at[3]);

static void check_group(const struct conv_call *b, const struct conv_shape *s,
                        const struct conv_group *g, term_fn *term)
{
    struct conv_product p = conv_product_of(s);
    for (int64_t i = 0; i < p.m; i++) {
        for (int64_t j = 0; j < p.n; j++) {
            int64_t at = out_at(s, g, i, j);
            double sum = added(&b->call, s, at), want = ref_get(&b->out[0], at);
            for (int64_t k = 0; k < p.k; k++)
                sum += term(&b->call, s, g, (const int64_t[3]){i, j, k});
            assert_true(fabs(sum - want) <= 1e-5 * (1.0 + fabs(want)));
        }
    }
}

static void check_samples(enum op_id op, term_fn *term)
{
    for (int i = 0; i < op_get(op)->n_samples; i++) {
        struct conv_call b;
        open_call(&b, op, op_get(op)->samples[i].text);
        struct conv_shape s = conv_shape_of(&b.call);
        struct conv_group g = {.channels = s.dims.channels / s.dims.groups,
                               .features = s.dims.features / s.dims.groups};
        host_run_reference(&b.call);
        for (; g.index < s.dims.groups; g.index++)
            check_group(&b, &s, &g, term);
        close_call(&b);
    }
}

static void products_over_places_are_the_convolution(void **state)
{
    (void)state;
    check_samples(OP_conv, forward_term);
}

static void products_over_places_are_the_gradient_of_the_input(void **state)
{
    (void)state;
    check_samples(OP_conv_grad_input, grad_input_term);
}

static void products_over_places_are_the_gradient_of_the_weights(void **state)
{
    (void)state;
    check_samples(OP_conv_grad_weight, grad_weight_term);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_over_places_are_the_convolution),
        cmocka_unit_test(products_over_places_are_the_gradient_of_the_input),
        cmocka_unit_test(products_over_places_are_the_gradient_of_the_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
