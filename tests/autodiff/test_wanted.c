/* Reverse mode on its own: what is built for the values that are wanted, and what is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "autodiff/autodiff.h"
#include "graph/builder.h"
#include "support/golden.h"

/* y = relu(x w[0]^T) w[1]^T + b, loss = mean(y) */
struct net {
    struct graph *g;
    value_id x, w[2], bias, hidden, loss, seed;
    size_t n_forward;
};

static void net_init(struct net *n)
{
    struct builder b;
    expect_ok(graph_new(&n->g, "net"));
    builder_init(&b, n->g);
    b.pass = PASS_FORWARD;
    n->x = build_value(&b, "x", ROLE_INPUT, DTYPE_F32, shape_of(2, INT64_C(3), INT64_C(5)));
    n->w[0] = build_value(&b, "w0", ROLE_PARAMETER, DTYPE_F32, shape_of(2, INT64_C(7), INT64_C(5)));
    n->w[1] = build_value(&b, "w1", ROLE_PARAMETER, DTYPE_F32, shape_of(2, INT64_C(2), INT64_C(7)));
    n->bias = build_value(&b, "bias", ROLE_PARAMETER, DTYPE_F32, shape_of(1, INT64_C(2)));
    value_id h = build(&b, OP_linear, IN(n->x, n->w[0]), NO_ATTRS);
    n->hidden = build(&b, OP_relu, IN(h), NO_ATTRS);
    value_id y = build(&b, OP_linear, IN(n->hidden, n->w[1], n->bias), NO_ATTRS);
    n->loss = build(&b, OP_mean, IN(y), ATTRS({"axes", .n_ints = 2, .ints = {0, 1}}));
    n->seed = build_value(&b, "seed", ROLE_INPUT, DTYPE_F32, *build_shape(&b, n->loss));
    expect_ok(builder_status(&b));
    n->n_forward = n->g->nodes.n;
}

static int count_backward(const struct net *n, enum op_id op)
{
    int count = 0;
    for (size_t k = n->n_forward; k < n->g->nodes.n; k++) {
        assert_int_equal(graph_node(n->g, (node_id)k)->pass, PASS_BACKWARD);
        count += graph_node(n->g, (node_id)k)->op == op;
    }
    return count;
}

static void every_wanted_value_gets_a_gradient_of_its_shape(void **state)
{
    struct net n;
    (void)state;
    net_init(&n);
    const value_id wanted[] = {n.w[0], n.w[1], n.bias, n.x};
    value_id grads[ARRAY_LEN(wanted)];
    expect_ok(autodiff(n.g, n.loss, n.seed, wanted, ARRAY_LEN(wanted), grads));
    expect_ok(graph_check(n.g));
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        assert_int_not_equal(grads[i], VALUE_NONE);
        assert_int_equal(graph_value(n.g, grads[i])->role, ROLE_GRADIENT);
        assert_true(
            shape_equal(&graph_value(n.g, grads[i])->shape, &graph_value(n.g, wanted[i])->shape));
    }
    assert_int_equal(count_backward(&n, OP_linear_grad_weight), 2);
    assert_int_equal(count_backward(&n, OP_linear_grad_input), 2);
    graph_free(n.g);
}

/* Nothing trained lies behind the second layer's input. */
static void the_backward_pass_stops_where_nothing_wanted_is_behind(void **state)
{
    struct net n;
    value_id grad;
    (void)state;
    net_init(&n);
    expect_ok(autodiff(n.g, n.loss, n.seed, &n.w[1], 1, &grad));
    expect_ok(graph_check(n.g));
    assert_int_equal(count_backward(&n, OP_linear_grad_weight), 1);
    assert_int_equal(count_backward(&n, OP_linear_grad_input), 0);
    assert_int_equal(count_backward(&n, OP_relu_grad), 0);
    graph_free(n.g);
}

/* The gradient passes through the second layer without one for its weight. */
static void a_weight_that_is_not_wanted_is_passed_through_only(void **state)
{
    struct net n;
    value_id grad;
    (void)state;
    net_init(&n);
    expect_ok(autodiff(n.g, n.loss, n.seed, &n.w[0], 1, &grad));
    expect_ok(graph_check(n.g));
    assert_int_equal(count_backward(&n, OP_linear_grad_weight), 1);
    assert_int_equal(count_backward(&n, OP_linear_grad_input), 1);
    assert_int_equal(count_backward(&n, OP_relu_grad), 1);
    graph_free(n.g);
}

static void with_nothing_wanted_there_is_no_backward_pass(void **state)
{
    struct net n;
    (void)state;
    net_init(&n);
    expect_ok(autodiff(n.g, n.loss, n.seed, NULL, 0, NULL));
    assert_int_equal(n.g->nodes.n, n.n_forward);
    graph_free(n.g);
}

static void what_the_loss_does_not_depend_on_has_no_gradient(void **state)
{
    struct net n;
    struct builder b;
    (void)state;
    net_init(&n);
    builder_init(&b, n.g);
    value_id apart = build_value(&b, "apart", ROLE_PARAMETER, DTYPE_F32, shape_of(1, INT64_C(4)));
    const value_id wanted[] = {apart, n.bias};
    value_id grads[2];
    expect_ok(autodiff(n.g, n.loss, n.seed, wanted, 2, grads));
    assert_int_equal(grads[0], VALUE_NONE);
    assert_int_not_equal(grads[1], VALUE_NONE);
    graph_free(n.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_wanted_value_gets_a_gradient_of_its_shape),
        cmocka_unit_test(the_backward_pass_stops_where_nothing_wanted_is_behind),
        cmocka_unit_test(a_weight_that_is_not_wanted_is_passed_through_only),
        cmocka_unit_test(with_nothing_wanted_there_is_no_backward_pass),
        cmocka_unit_test(what_the_loss_does_not_depend_on_has_no_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
