/* Building graphs, the structural check, reordering and dead code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graph/builder.h"
#include "graph/graph.h"
#include "support/scratch.h"

static struct shape vector(int64_t n)
{
    return shape_of(1, n);
}

/* x, w -> h = x + w (node 0), y = h * w (node 1), s = softmax y (node 2); output y. */
struct fixture {
    struct graph *g;
    struct builder b;
    value_id x, w, h, y, s;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_int_equal(graph_new(&f->g, "fixture"), OK);
    builder_init(&f->b, f->g);
    f->x = build_value(&f->b, "x", ROLE_INPUT, DTYPE_F32, shape_of(2, (int64_t)2, (int64_t)3));
    f->w = build_value(&f->b, "w", ROLE_PARAMETER, DTYPE_F32, vector(3));
    f->h = build(&f->b, OP_add, IN(f->x, f->w), NO_ATTRS);
    f->y = build(&f->b, OP_mul, IN(f->h, f->w), NO_ATTRS);
    f->s = build(&f->b, OP_softmax, IN(f->y), NO_ATTRS);
    assert_int_equal(builder_status(&f->b), OK);
    assert_int_equal(graph_add_output(f->g, "y", f->y), OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    graph_free(f->g);
    free(f);
    return 0;
}

static void building_gives_numbers_shapes_and_producers(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(f->g->values.n, 5);
    assert_int_equal(f->g->nodes.n, 3);
    assert_int_equal(graph_value(f->g, f->y)->producer, 1);
    assert_int_equal(graph_value(f->g, f->x)->producer, NODE_NONE);
    assert_int_equal(graph_value(f->g, f->h)->role, ROLE_ACTIVATION);
    assert_int_equal(value_bytes(f->g, f->y), 24);
    assert_int_equal(graph_find_value(f->g, "w"), f->w);
    assert_int_equal(graph_find_value(f->g, "nothing"), VALUE_NONE);
    assert_int_equal(graph_find_output(f->g, "y"), f->y);
    assert_int_equal(graph_find_output(f->g, "w"), VALUE_NONE);
    assert_int_equal(graph_check(f->g), OK);
}

static void builder_errors_are_sticky(void **state)
{
    struct fixture *f = *state;
    size_t n_nodes = f->g->nodes.n;
    value_id bad = build(&f->b, OP_add, IN(f->w, f->x), NO_ATTRS); /* cannot broadcast that way */
    assert_int_equal(bad, VALUE_NONE);
    assert_int_equal(builder_status(&f->b), ERR_SHAPE);
    assert_int_equal(build(&f->b, OP_add, IN(f->x, f->w), NO_ATTRS), VALUE_NONE);
    assert_int_equal(build_value(&f->b, "z", ROLE_INPUT, DTYPE_F32, vector(1)), VALUE_NONE);
    assert_int_equal(build_reshape(&f->b, VALUE_NONE, vector(6)), VALUE_NONE);
    assert_int_equal(build_name(&f->b, VALUE_NONE, "name"), VALUE_NONE);
    assert_int_equal(build_output(&f->b, 0), VALUE_NONE);
    assert_int_equal(build_shape(&f->b, bad)->rank, 0);
    assert_int_equal(f->g->nodes.n, n_nodes);
    assert_int_equal(graph_check(f->g), OK); /* nothing half built */
}

/* Each in a builder of its own, since errors stick. */
static void expect_refused(struct fixture *f, enum op_id op, const value_id *in, int n_in,
                           const struct attr_set *attrs, int n_attrs, const char *part)
{
    struct builder b;
    builder_init(&b, f->g);
    assert_int_equal(build(&b, op, in, n_in, attrs, n_attrs), VALUE_NONE);
    assert_int_equal(builder_status(&b), ERR_SHAPE);
    expect_message(part);
}

static void wrong_calls_are_refused_by_name(void **state)
{
    struct fixture *f = *state;
    expect_refused(f, OP_add, IN(f->x), NO_ATTRS, "add: takes 2");
    expect_refused(f, OP_add, IN(f->x, f->x, f->x), NO_ATTRS, "add: takes 2");
    expect_refused(f, OP_add, IN(f->x, VALUE_NONE), NO_ATTRS, "add: input 1");
    expect_refused(f, OP_add, IN(VALUE_NONE, f->x), NO_ATTRS, "add: input 0");
    expect_refused(f, OP_add, IN(f->x, 99), NO_ATTRS, "add: input 1 is not a value");
    expect_refused(f, OP_add, IN(f->x, -7), NO_ATTRS, "add: input 1 is not a value");
    expect_refused(f, OP_add, IN(f->x, f->x), ATTRS({"axis", .i = 1}), "no attribute 'axis'");
    expect_refused(f, OP_reshape, IN(f->x), NO_ATTRS, "'dims' must be given");
}

static void sizes_that_overflow_are_refused(void **state)
{
    struct fixture *f = *state;
    value_id v;
    struct shape huge = {2, {INT64_MAX / 4, 2}};
    assert_int_equal(graph_add_value(f->g, "huge", ROLE_INPUT, DTYPE_F32, huge, NULL, &v),
                     ERR_SHAPE);
    expect_message("huge");
    assert_int_equal(v, VALUE_NONE);
    struct shape negative = {1, {-1}};
    assert_int_equal(graph_add_value(f->g, "below", ROLE_INPUT, DTYPE_F32, negative, NULL, &v),
                     ERR_SHAPE);
    struct shape wide = {2, {(int64_t)1 << 40, (int64_t)1 << 19}}; /* 2^61 bytes: allowed */
    assert_int_equal(graph_add_value(f->g, "wide", ROLE_INPUT, DTYPE_F32, wide, NULL, &v), OK);
    assert_int_equal(value_bytes(f->g, v), (int64_t)1 << 61);
    struct builder b; /* and what inference makes of them */
    builder_init(&b, f->g);
    (void)build(&b, OP_cast, IN(v), ATTRS({"dtype", .i = DTYPE_F64}));
    assert_int_equal(builder_status(&b), OK);
    (void)build(&b, OP_concat, IN(v, v, v), ATTRS({"axis", .i = 0}));
    assert_int_equal(builder_status(&b), OK);
    (void)build(&b, OP_concat, IN(v, v, v, v), ATTRS({"axis", .i = 0}));
    assert_int_equal(builder_status(&b), ERR_SHAPE);
    struct shape empty = {3, {4, 0, 4}};
    assert_int_equal(graph_add_value(f->g, "empty", ROLE_INPUT, DTYPE_F32, empty, NULL, &v), OK);
    assert_int_equal(value_bytes(f->g, v), 0);
}

static void views_and_updates_share_their_root(void **state)
{
    struct fixture *f = *state;
    value_id flat = build_reshape(&f->b, f->h, vector(6));
    value_id back = build_reshape(&f->b, flat, shape_of(2, (int64_t)3, (int64_t)2));
    value_id sum = build_value(&f->b, "sum", ROLE_GRADIENT, DTYPE_F32, vector(6));
    value_id more = build(&f->b, OP_accumulate, IN(sum, flat), NO_ATTRS);
    assert_int_equal(builder_status(&f->b), OK);
    assert_int_equal(value_root(f->g, back), f->h);
    assert_int_equal(value_view_root(f->g, back), f->h);
    assert_int_equal(value_root(f->g, more), sum);
    assert_int_equal(value_view_root(f->g, more), more);
    assert_int_equal(graph_value(f->g, more)->role, ROLE_GRADIENT); /* inherited */
    assert_int_equal(build_reshape(&f->b, flat, vector(6)), flat);  /* no node for nothing */
    assert_int_equal(graph_check(f->g), OK);
}

static void reordering_keeps_producers_in_step(void **state)
{
    struct fixture *f = *state;
    value_id other = build(&f->b, OP_add, IN(f->x, f->x), NO_ATTRS);
    const node_id order[] = {3, 0, 1, 2};
    assert_int_equal(graph_reorder(f->g, order, 4), OK);
    assert_int_equal(graph_value(f->g, other)->producer, 0);
    assert_int_equal(graph_value(f->g, f->s)->producer, 3);
    assert_int_equal(graph_check(f->g), OK);
    const node_id wrong[] = {0, 2, 1, 3}; /* reads before it is made */
    assert_int_equal(graph_reorder(f->g, wrong, 4), OK);
    assert_int_equal(graph_check(f->g), ERR_INTERNAL);
    expect_message("produced later");
}

static void nodes_nothing_needs_are_dropped(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(graph_eliminate_dead(f->g), OK);
    assert_int_equal(f->g->nodes.n, 2);
    assert_int_equal(graph_value(f->g, f->s)->producer, NODE_NONE);
    assert_int_equal(graph_value(f->g, f->y)->producer, 1);
    assert_int_equal(f->g->values.n, 5); /* values stay in the table */
    assert_int_equal(graph_check(f->g), OK);
}

static void updates_of_outside_storage_are_needed(void **state)
{
    struct fixture *f = *state;
    value_id sum =
        build_value(&f->b, "sum", ROLE_GRADIENT, DTYPE_F32, shape_of(2, (int64_t)2, (int64_t)3));
    (void)build(&f->b, OP_accumulate, IN(sum, f->s), NO_ATTRS); /* keeps the softmax alive */
    value_id copy = build(&f->b, OP_add, IN(f->h, f->w), NO_ATTRS);
    (void)build(&f->b, OP_accumulate, IN(copy, f->h), NO_ATTRS); /* updates only a temporary */
    assert_int_equal(builder_status(&f->b), OK);
    assert_int_equal(graph_check(f->g), OK);
    assert_int_equal(graph_eliminate_dead(f->g), OK);
    assert_int_equal(f->g->nodes.n, 4);
    assert_int_equal(graph_node(f->g, 3)->op, OP_accumulate);
    assert_int_equal(graph_check(f->g), OK);
}

static void reinference_follows_changed_roots(void **state)
{
    struct fixture *f = *state;
    graph_value(f->g, f->x)->dtype = DTYPE_BF16;
    graph_value(f->g, f->w)->dtype = DTYPE_BF16;
    assert_int_equal(graph_check(f->g), ERR_INTERNAL);
    expect_message("not as inferred");
    assert_int_equal(graph_reinfer(f->g), OK);
    assert_int_equal(graph_value(f->g, f->s)->dtype, DTYPE_BF16);
    assert_int_equal(graph_check(f->g), OK);
    graph_value(f->g, f->w)->dtype = DTYPE_F32;
    assert_int_equal(graph_reinfer(f->g), ERR_SHAPE);
}

static void the_check_finds_missing_operands(void **state)
{
    struct fixture *f = *state;
    graph_node(f->g, 1)->in[1] = 77;
    assert_int_equal(graph_check(f->g), ERR_INTERNAL);
    expect_message("node 1 (mul): input 1 does not exist");
    graph_node(f->g, 1)->in[1] = f->s;
    assert_int_equal(graph_check(f->g), ERR_INTERNAL);
    expect_message("node 1 (mul): input 1 is produced later");
    graph_node(f->g, 1)->in[1] = f->y; /* itself */
    assert_int_equal(graph_check(f->g), ERR_INTERNAL);
    graph_node(f->g, 1)->in[1] = f->w;
    assert_int_equal(graph_check(f->g), OK);
}

static void the_check_finds_wrong_producers(void **state)
{
    struct fixture *f = *state;
    graph_value(f->g, f->h)->producer = NODE_NONE;
    assert_int_equal(graph_check(f->g), ERR_INTERNAL);
    expect_message("node 0 (add): output 0 has another producer");
    graph_value(f->g, f->h)->producer = 0;
    graph_value(f->g, f->h)->output = 1;
    assert_int_equal(graph_check(f->g), ERR_INTERNAL);
    expect_message("another producer");
}

static void the_check_finds_shapes_that_were_not_inferred(void **state)
{
    struct fixture *f = *state;
    graph_value(f->g, f->y)->shape.dim[0] = 5;
    assert_int_equal(graph_check(f->g), ERR_INTERNAL);
    expect_message("node 1 (mul): output 0 is not as inferred");
}

static void the_check_finds_reads_after_an_update(void **state)
{
    struct fixture *f = *state;
    struct shape s = shape_of(2, (int64_t)2, (int64_t)3);
    value_id sum = build_value(&f->b, "sum", ROLE_STATE, DTYPE_F32, s);
    value_id view = build_reshape(&f->b, sum, vector(6));
    (void)build(&f->b, OP_accumulate, IN(sum, f->x), NO_ATTRS);
    assert_int_equal(graph_check(f->g), OK);
    (void)build(&f->b, OP_add, IN(view, view), NO_ATTRS); /* sees the memory of sum */
    assert_int_equal(builder_status(&f->b), OK);
    assert_int_equal(graph_check(f->g), ERR_INTERNAL);
    expect_message("was overwritten by node 4");
}

static void roles_and_passes_have_names_both_ways(void **state)
{
    (void)state;
    for (int i = 0; i < ROLE_COUNT; i++) {
        enum role r;
        assert_true(role_parse(role_name((enum role)i), &r));
        assert_int_equal(r, i);
    }
    for (int i = 0; i < PASS_COUNT; i++) {
        enum pass p;
        assert_true(pass_parse(pass_name((enum pass)i), &p));
        assert_int_equal(p, i);
    }
    enum role r;
    enum pass p;
    assert_false(role_parse("Input", &r));
    assert_false(pass_parse("", &p));
}

static void shapes_answer_questions(void **state)
{
    (void)state;
    struct shape a = shape_of(3, (int64_t)2, (int64_t)3, (int64_t)4), scalar = shape_of(0);
    struct shape tail = shape_of(2, (int64_t)3, (int64_t)4);
    assert_int_equal(shape_elems(&a), 24);
    assert_int_equal(shape_elems(&scalar), 1);
    assert_int_equal(shape_inner(&a, 1), 12);
    assert_int_equal(shape_outer(&a, 2), 6);
    assert_int_equal(shape_rows(&a), 6);
    assert_int_equal(shape_last(&a), 4);
    assert_int_equal(shape_rows(&scalar), 1);
    assert_int_equal(shape_last(&scalar), 1);
    assert_true(shape_is_suffix(&tail, &a));
    assert_true(shape_is_suffix(&scalar, &a));
    assert_false(shape_is_suffix(&a, &tail));
    assert_false(shape_equal(&a, &tail));
    char text[SHAPE_TEXT];
    assert_string_equal(shape_text(text, &a), "[2, 3, 4]");
    struct shape longest = {MAX_RANK, {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, -1}};
    assert_int_equal(strlen(shape_text(text, &longest)), 2 + 5 * 19 + 2 + 5 * 2);
}

static void building_survives_every_failed_allocation(void **state)
{
    (void)state;
    int64_t live = mem_live();
    int64_t n = 1;
    for (enum status s = ERR_MEMORY; s != OK; n++) {
        struct graph *g;
        struct builder b;
        mem_fail_after(n, 0);
        s = graph_new(&g, "g");
        if (s == OK) {
            builder_init(&b, g);
            value_id x = build_value(&b, "x", ROLE_INPUT, DTYPE_F32, vector(4));
            (void)build(&b, OP_add, IN(x, x), NO_ATTRS);
            s = builder_status(&b);
            if (s == OK)
                s = graph_add_output(g, "y", build_output(&b, 0));
            if (s == OK)
                s = graph_check(g);
            if (s == OK)
                s = graph_eliminate_dead(g);
        }
        mem_fail_after(0, 0);
        assert_true(s == OK || s == ERR_MEMORY);
        graph_free(g);
        assert_int_equal(mem_live(), live);
        assert_true(n < 100);
    }
    assert_true(n > 5);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(building_gives_numbers_shapes_and_producers),
        WITH_FIXTURE(builder_errors_are_sticky),
        WITH_FIXTURE(wrong_calls_are_refused_by_name),
        WITH_FIXTURE(sizes_that_overflow_are_refused),
        WITH_FIXTURE(views_and_updates_share_their_root),
        WITH_FIXTURE(reordering_keeps_producers_in_step),
        WITH_FIXTURE(nodes_nothing_needs_are_dropped),
        WITH_FIXTURE(updates_of_outside_storage_are_needed),
        WITH_FIXTURE(reinference_follows_changed_roots),
        WITH_FIXTURE(the_check_finds_missing_operands),
        WITH_FIXTURE(the_check_finds_wrong_producers),
        WITH_FIXTURE(the_check_finds_shapes_that_were_not_inferred),
        WITH_FIXTURE(the_check_finds_reads_after_an_update),
        cmocka_unit_test(roles_and_passes_have_names_both_ways),
        cmocka_unit_test(shapes_answer_questions),
        cmocka_unit_test(building_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
