/* Where updates go: as early as their gradients allow, and never before somebody who still reads
 * what they overwrite. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "plan/plan.h"
#include "support/golden.h"

static struct shape square(void)
{
    return shape_of(2, INT64_C(4), INT64_C(4));
}

struct step {
    struct graph *g;
    struct builder b;
    value_id lr, count, scale;
};

static void step_init(struct step *s)
{
    struct shape one = shape_of(1, INT64_C(1));
    expect_ok(graph_new(&s->g, "step"));
    builder_init(&s->b, s->g);
    s->lr = build_value(&s->b, "lr", ROLE_INPUT, DTYPE_F32, one);
    s->count = build_value(&s->b, "step", ROLE_INPUT, DTYPE_I32, one);
    s->scale = build_value(&s->b, "scale", ROLE_INPUT, DTYPE_F32, one);
}

static value_id matrix(struct step *s, const char *name, enum role role)
{
    return build_value(&s->b, name, role, DTYPE_F32, square());
}

static void update(struct step *s, value_id param, value_id grad)
{
    s->b.pass = PASS_UPDATE;
    (void)build(&s->b, OP_sgd, IN(param, grad, s->lr, s->count, s->scale), NO_ATTRS);
}

/* The ops in their new order, by position. */
static void expect_order(struct step *s, const enum op_id *ops, size_t n)
{
    expect_ok(builder_status(&s->b));
    expect_ok(schedule_updates_early(s->g));
    assert_int_equal(s->g->nodes.n, n);
    for (size_t k = 0; k < n; k++)
        assert_string_equal(op_table[graph_node(s->g, (node_id)k)->op]->name,
                            op_table[ops[k]]->name);
    graph_free(s->g);
}

static void an_update_waits_for_the_last_reader_of_its_parameter(void **state)
{
    struct step s;
    (void)state;
    step_init(&s);
    value_id x = matrix(&s, "x", ROLE_INPUT), dy = matrix(&s, "dy", ROLE_INPUT);
    value_id w = matrix(&s, "w", ROLE_PARAMETER);
    s.b.pass = PASS_BACKWARD;
    value_id dw = build(&s.b, OP_linear_grad_weight, IN(dy, x), NO_ATTRS);
    value_id dx = build(&s.b, OP_linear_grad_input, IN(dy, w), NO_ATTRS);
    (void)build(&s.b, OP_add, IN(dx, x), NO_ATTRS);
    update(&s, w, dw);
    const enum op_id want[] = {OP_linear_grad_weight, OP_linear_grad_input, OP_sgd, OP_add};
    expect_order(&s, want, ARRAY_LEN(want));
}

static void an_update_waits_for_what_is_made_of_its_parameter_again(void **state)
{
    struct step s;
    (void)state;
    step_init(&s);
    value_id x = matrix(&s, "x", ROLE_INPUT), dy = matrix(&s, "dy", ROLE_INPUT);
    value_id w = matrix(&s, "w", ROLE_PARAMETER);
    value_id rounded =
        build(&s.b, OP_ternary_weight, IN(w), ATTRS({.name = "rows", .n_ints = 1, .ints = {4}}));
    s.b.pass = PASS_BACKWARD;
    value_id dw = build(&s.b, OP_linear_grad_weight, IN(dy, x), NO_ATTRS);
    value_id dx = build(&s.b, OP_linear_grad_input, IN(dy, rounded), NO_ATTRS);
    (void)build(&s.b, OP_add, IN(dx, x), NO_ATTRS);
    update(&s, w, dw);
    const enum op_id want[] = {OP_ternary_weight, OP_linear_grad_weight, OP_linear_grad_input,
                               OP_sgd, OP_add};
    expect_order(&s, want, ARRAY_LEN(want));
}

static void without_a_later_reader_it_follows_its_gradient(void **state)
{
    struct step s;
    (void)state;
    step_init(&s);
    value_id x = matrix(&s, "x", ROLE_INPUT), dy = matrix(&s, "dy", ROLE_INPUT);
    value_id w = matrix(&s, "w", ROLE_PARAMETER);
    s.b.pass = PASS_BACKWARD;
    value_id dx = build(&s.b, OP_linear_grad_input, IN(dy, w), NO_ATTRS);
    value_id dw = build(&s.b, OP_linear_grad_weight, IN(dy, x), NO_ATTRS);
    (void)build(&s.b, OP_add, IN(dx, x), NO_ATTRS);
    update(&s, w, dw);
    const enum op_id want[] = {OP_linear_grad_input, OP_linear_grad_weight, OP_sgd, OP_add};
    expect_order(&s, want, ARRAY_LEN(want));
}

static void updates_of_a_block_stand_together_behind_its_last_gradient(void **state)
{
    struct step s;
    (void)state;
    step_init(&s);
    value_id x = matrix(&s, "x", ROLE_INPUT), dy = matrix(&s, "dy", ROLE_INPUT);
    value_id v = matrix(&s, "v", ROLE_PARAMETER), w = matrix(&s, "w", ROLE_PARAMETER);
    s.b.pass = PASS_BACKWARD;
    s.b.block = 0;
    value_id dv = build(&s.b, OP_linear_grad_weight, IN(dy, x), NO_ATTRS);
    value_id between = build(&s.b, OP_add, IN(dy, x), NO_ATTRS);
    value_id dw = build(&s.b, OP_linear_grad_weight, IN(between, x), NO_ATTRS);
    (void)build(&s.b, OP_add, IN(between, x), NO_ATTRS);
    update(&s, v, dv);
    update(&s, w, dw);
    const enum op_id want[] = {
        OP_linear_grad_weight, OP_add, OP_linear_grad_weight, OP_sgd, OP_sgd, OP_add};
    expect_order(&s, want, ARRAY_LEN(want));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_update_waits_for_the_last_reader_of_its_parameter),
        cmocka_unit_test(an_update_waits_for_what_is_made_of_its_parameter_again),
        cmocka_unit_test(without_a_later_reader_it_follows_its_gradient),
        cmocka_unit_test(updates_of_a_block_stand_together_behind_its_last_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
