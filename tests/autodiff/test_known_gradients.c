/* Reverse mode on graphs of a few nodes, where the gradient is known by hand. That every op's own
 * gradient is right is what tests/ops sees to. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "autodiff/autodiff.h"
#include "graph/builder.h"
#include "support/eval.h"
#include "support/golden.h"

enum { N = 6 };

/* Values of six elements each. */
struct net {
    struct graph *g;
    struct builder b;
    value_id x, y, seed;
};

static value_id six(struct net *n, const char *name, enum role role)
{
    return build_value(&n->b, name, role, DTYPE_F32, shape_of(2, (int64_t)2, (int64_t)3));
}

static void net_init(struct net *n)
{
    expect_ok(graph_new(&n->g, "net"));
    builder_init(&n->b, n->g);
    n->x = six(n, "x", ROLE_PARAMETER);
    n->y = six(n, "y", ROLE_PARAMETER);
    n->seed = six(n, "seed", ROLE_INPUT);
}

static void fill(const struct eval *e, value_id v, float first, float step)
{
    float *p = eval_tensor(e, v).data;
    for (int i = 0; i < N; i++)
        p[i] = first + step * (float)i;
}

static float x_at(int i)
{
    return 0.5f + 0.25f * (float)i;
}

static float y_at(int i)
{
    return 2.0f - 0.5f * (float)i;
}

static float seed_at(int i)
{
    return 1.0f + (float)i;
}

/* Runs the graph; `due` says what the gradient is. */
static void expect_gradient(struct net *n, value_id grad, float (*due)(int i))
{
    struct eval *e;
    expect_ok(graph_check(n->g));
    expect_ok(eval_new(&e, n->g, &(struct eval_options){.n_threads = 1}));
    fill(e, n->x, x_at(0), 0.25f);
    fill(e, n->y, y_at(0), -0.5f);
    fill(e, n->seed, seed_at(0), 1.0f);
    expect_ok(eval_run(e));
    const float *got = eval_tensor(e, grad).data;
    for (int i = 0; i < N; i++) {
        if (fabsf(got[i] - due(i)) > 1e-5f)
            fail_msg("element %d is %g, not %g", i, (double)got[i], (double)due(i));
    }
    eval_free(e);
}

static float of_square_and_self(int i)
{
    return seed_at(i) * (2 * x_at(i) + 1);
}

static void a_value_that_is_read_often_gets_the_sum(void **state)
{
    (void)state;
    struct net n;
    value_id grad;
    net_init(&n);
    value_id square = build(&n.b, OP_mul, IN(n.x, n.x), NO_ATTRS);
    value_id loss = build(&n.b, OP_add, IN(square, n.x), NO_ATTRS);
    expect_ok(builder_status(&n.b));
    expect_ok(autodiff(n.g, loss, n.seed, &n.x, 1, &grad));
    assert_int_equal(graph_value(n.g, grad)->role, ROLE_GRADIENT);
    expect_gradient(&n, grad, of_square_and_self);
    graph_free(n.g);
}

static float of_chain(int i)
{
    return seed_at(i) * y_at(i) * y_at(i); /* d(xyy)/dx */
}

static void only_what_is_wanted_is_differentiated(void **state)
{
    (void)state;
    struct net n;
    value_id grad;
    net_init(&n);
    value_id first = build(&n.b, OP_mul, IN(n.x, n.y), NO_ATTRS);
    value_id loss = build(&n.b, OP_mul, IN(first, n.y), NO_ATTRS);
    size_t n_forward = n.g->nodes.n;
    expect_ok(autodiff(n.g, loss, n.seed, &n.x, 1, &grad));
    assert_int_equal(n.g->nodes.n - n_forward, 2); /* a product each; nothing for y */
    expect_gradient(&n, grad, of_chain);
    graph_free(n.g);
}

static void what_the_loss_does_not_depend_on_has_no_gradient(void **state)
{
    (void)state;
    struct net n;
    net_init(&n);
    value_id loss = build(&n.b, OP_relu, IN(n.x), NO_ATTRS);
    (void)build(&n.b, OP_mul, IN(loss, n.y), NO_ATTRS); /* behind the loss, not before it */
    value_id wanted[] = {n.x, n.y}, grads[2];
    expect_ok(autodiff(n.g, loss, n.seed, wanted, 2, grads));
    assert_true(grads[0] != VALUE_NONE);
    assert_int_equal(grads[1], VALUE_NONE);
    graph_free(n.g);
}

static void the_gradient_of_the_loss_is_the_seed(void **state)
{
    (void)state;
    struct net n;
    value_id grad;
    net_init(&n);
    expect_ok(autodiff(n.g, n.x, n.seed, &n.x, 1, &grad));
    assert_int_equal(grad, n.seed);
    assert_int_equal(graph_value(n.g, n.seed)->role, ROLE_INPUT); /* and stays what it was */
    graph_free(n.g);
}

static void gradients_belong_to_the_block_of_what_they_differentiate(void **state)
{
    (void)state;
    struct net n;
    value_id grad;
    net_init(&n);
    n.b.block = 3;
    value_id first = build(&n.b, OP_exp, IN(n.x), NO_ATTRS);
    n.b.block = 5;
    value_id loss = build(&n.b, OP_tanh, IN(first), NO_ATTRS);
    size_t n_forward = n.g->nodes.n;
    expect_ok(autodiff(n.g, loss, n.seed, &n.x, 1, &grad));
    for (size_t k = n_forward; k < n.g->nodes.n; k++) {
        const struct node *node = graph_node(n.g, (node_id)k);
        assert_int_equal(node->pass, PASS_BACKWARD);
        assert_int_equal(node->block, k == n_forward ? 5 : 3);
    }
    graph_free(n.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_that_is_read_often_gets_the_sum),
        cmocka_unit_test(only_what_is_wanted_is_differentiated),
        cmocka_unit_test(what_the_loss_does_not_depend_on_has_no_gradient),
        cmocka_unit_test(the_gradient_of_the_loss_is_the_seed),
        cmocka_unit_test(gradients_belong_to_the_block_of_what_they_differentiate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
