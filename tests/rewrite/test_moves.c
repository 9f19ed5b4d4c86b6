/* What rules change the order of nodes with: rewrite_move_behind, what rewriting_settle makes of
 * it, and where rewrite_can_move says no. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "graph/builder.h"
#include "rewrite/rewrite_internal.h"
#include "support/golden.h"

enum { N_NODES = 5 };

/* Five nodes that know nothing of each other. */
struct line {
    struct graph *g;
    struct builder b;
    value_id in, out[N_NODES];
    struct rewriting r;
};

static value_id input(struct line *l, const char *name)
{
    return build_value(&l->b, name, ROLE_INPUT, DTYPE_F32, shape_of(2, (int64_t)3, (int64_t)4));
}

static void line_init(struct line *l)
{
    expect_ok(graph_new(&l->g, "line"));
    builder_init(&l->b, l->g);
    l->in = input(l, "in");
    for (int i = 0; i < N_NODES; i++)
        l->out[i] = build(&l->b, OP_relu, IN(l->in), NO_ATTRS);
    expect_ok(builder_status(&l->b));
    expect_ok(rewriting_init(&l->r, l->g));
}

/* Settles; the nodes left are `want` of the old ones, -1 behind the last. */
static void expect_order(struct line *l, const int *want)
{
    size_t n = 0;
    for (int round = 0; round < 2; round++) { /* the second has nothing left to do */
        expect_ok(rewriting_settle(&l->r));
        expect_ok(graph_check(l->g));
        for (n = 0; want[n] >= 0; n++)
            assert_int_equal(graph_node(l->g, (node_id)n)->out[0], l->out[want[n]]);
        assert_int_equal(l->g->nodes.n, n);
    }
    rewriting_release(&l->r);
    graph_free(l->g);
}

static void a_moved_node_stands_right_behind_the_other(void **state)
{
    struct line l;
    (void)state;
    line_init(&l);
    rewrite_move_behind(&l.r, 1, 3);
    expect_order(&l, (const int[]){0, 2, 3, 1, 4, -1});
    line_init(&l);
    rewrite_move_behind(&l.r, 0, 4);
    expect_order(&l, (const int[]){1, 2, 3, 4, 0, -1});
}

static void nodes_behind_one_stand_as_they_were_moved(void **state)
{
    struct line l;
    (void)state;
    line_init(&l);
    rewrite_move_behind(&l.r, 1, 3);
    rewrite_move_behind(&l.r, 0, 3);
    expect_order(&l, (const int[]){2, 3, 1, 0, 4, -1});
}

static void what_was_moved_behind_a_node_goes_with_it(void **state)
{
    struct line l;
    (void)state;
    line_init(&l);
    rewrite_move_behind(&l.r, 0, 1);
    rewrite_move_behind(&l.r, 1, 3);
    expect_order(&l, (const int[]){2, 3, 1, 0, 4, -1});
}

static void behind_a_dropped_node_is_where_it_was(void **state)
{
    struct line l;
    (void)state;
    line_init(&l);
    rewrite_move_behind(&l.r, 1, 3);
    l.r.dropped[3] = true;
    expect_order(&l, (const int[]){0, 2, 1, 4, -1});
    line_init(&l);
    rewrite_move_behind(&l.r, 1, 3);
    l.r.dropped[1] = true;
    expect_order(&l, (const int[]){0, 2, 3, 4, -1});
}

static void settled_a_node_can_be_moved_again(void **state)
{
    struct line l;
    (void)state;
    line_init(&l);
    assert_true(rewrite_can_move(&l.r, 1, 3));
    rewrite_move_behind(&l.r, 1, 3);
    assert_false(rewrite_can_move(&l.r, 1, 4)); /* where it stands is not known by its id */
    assert_false(rewrite_can_move(&l.r, 0, 1));
    expect_ok(rewriting_settle(&l.r));
    assert_true(rewrite_can_move(&l.r, 3, 4));
    rewrite_move_behind(&l.r, 3, 4);
    expect_order(&l, (const int[]){0, 2, 3, 4, 1, -1});
}

/* relu(in), then `between`, then relu(in): can the first stand behind the last? */
static void expect_can_move(value_id (*between)(struct line *l, value_id first), bool wanted)
{
    struct line l;
    expect_ok(graph_new(&l.g, "line"));
    builder_init(&l.b, l.g);
    l.in = input(&l, "in");
    value_id first = build(&l.b, OP_relu, IN(l.in), NO_ATTRS);
    (void)between(&l, first);
    (void)build(&l.b, OP_relu, IN(input(&l, "other")), NO_ATTRS);
    expect_ok(builder_status(&l.b));
    expect_ok(rewriting_init(&l.r, l.g));
    assert_int_equal(rewrite_can_move(&l.r, 0, (node_id)l.g->nodes.n - 1), wanted);
    assert_false(rewrite_can_move(&l.r, 0, 0));
    rewriting_release(&l.r);
    graph_free(l.g);
}

static value_id a_stranger(struct line *l, value_id first)
{
    (void)first;
    return build(&l->b, OP_relu, IN(l->in), NO_ATTRS);
}

static value_id a_reader(struct line *l, value_id first)
{
    return build(&l->b, OP_relu, IN(first), NO_ATTRS);
}

static value_id a_view(struct line *l, value_id first)
{
    return build(&l->b, OP_reshape, IN(first), ATTRS({"dims", .n_ints = 1, .ints = {12}}));
}

static value_id an_overwriter_of_its_input(struct line *l, value_id first)
{
    (void)first;
    return build(&l->b, OP_fill, IN(l->in), NO_ATTRS);
}

static value_id an_overwriter_of_its_output(struct line *l, value_id first)
{
    return build(&l->b, OP_fill, IN(first), NO_ATTRS);
}

static void nothing_moves_past_its_readers_or_those_who_overwrite_what_it_reads(void **state)
{
    (void)state;
    expect_can_move(a_stranger, true);
    expect_can_move(a_reader, false);
    expect_can_move(a_view, false);
    expect_can_move(an_overwriter_of_its_input, false);
    expect_can_move(an_overwriter_of_its_output, false);
}

static void an_output_more_is_there_to_be_read(void **state)
{
    struct line l;
    value_id y;
    (void)state;
    line_init(&l);
    expect_ok(rewrite_add_output(&l.r, 2, l.in, &y));
    expect_ok(rewriting_count_readers(&l.r));
    assert_int_equal(l.r.n_readers.items[y], 0);
    const struct node *n = graph_node(l.g, 2);
    assert_int_equal(n->n_out, 2);
    assert_int_equal(n->out[0], l.out[2]);
    assert_int_equal(n->out[1], y);
    assert_true(rewrite_same_type(l.g, y, l.in));
    assert_int_equal(graph_value(l.g, y)->producer, 2);
    assert_int_equal(graph_value(l.g, y)->output, 1);
    rewriting_release(&l.r);
    graph_free(l.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_moved_node_stands_right_behind_the_other),
        cmocka_unit_test(nodes_behind_one_stand_as_they_were_moved),
        cmocka_unit_test(what_was_moved_behind_a_node_goes_with_it),
        cmocka_unit_test(behind_a_dropped_node_is_where_it_was),
        cmocka_unit_test(settled_a_node_can_be_moved_again),
        cmocka_unit_test(nothing_moves_past_its_readers_or_those_who_overwrite_what_it_reads),
        cmocka_unit_test(an_output_more_is_there_to_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
