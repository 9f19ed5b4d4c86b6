/* The text form of graphs: exact round trips, and errors that say where. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graph/builder.h"
#include "graph/graph.h"
#include "graph/sample.h"
#include "support/scratch.h"

/* The text parses and prints as itself. */
static void expect_same(const char *text)
{
    int64_t live = mem_live();
    struct graph *g;
    struct str out = {0};
    if (graph_parse(&g, text) != OK)
        fail_msg("%s\nin:\n%s", status_message(), text);
    assert_int_equal(graph_print(g, &out), OK);
    assert_string_equal(out.text, text);
    graph_free(g);
    str_release(&out);
    assert_int_equal(mem_live(), live);
}

/* What a graph prints parses and prints as the same text. */
static void expect_fixed_point(const struct graph *g)
{
    struct str out = {0};
    assert_int_equal(graph_print(g, &out), OK);
    expect_same(out.text);
    str_release(&out);
}

static void expect_error(const char *text, const char *part)
{
    int64_t live = mem_live();
    struct graph *g;
    if (graph_parse(&g, text) == OK)
        fail_msg("was accepted:\n%s", text);
    assert_null(g);
    expect_message(part);
    assert_int_equal(mem_live(), live);
}

static void a_small_graph_prints_as_documented(void **state)
{
    (void)state;
    struct graph *g;
    struct builder b;
    assert_int_equal(graph_new(&g, "small"), OK);
    builder_init(&b, g);
    const float rates[] = {1.0f, 0.1f};
    value_id x = build_value(&b, "x", ROLE_INPUT, DTYPE_F32, shape_of(2, (int64_t)4, (int64_t)2));
    value_id c = build_constant(&b, "rates", DTYPE_F32, shape_of(1, (int64_t)2), rates);
    b.block = 3;
    value_id y = build_name(&b, build(&b, OP_mul, IN(x, c), NO_ATTRS), "y");
    b.pass = PASS_BACKWARD;
    value_id z = build(&b, OP_reshape, IN(y), ATTRS({"dims", .n_ints = 1, .ints = {8}}));
    assert_int_equal(builder_status(&b), OK);
    assert_int_equal(graph_add_output(g, "z", z), OK);
    struct str out = {0};
    assert_int_equal(graph_print(g, &out), OK);
    assert_string_equal(out.text,
                        "graph \"small\" {\n"
                        "  %0 \"x\": f32[4,2] input\n"
                        "  %1 \"rates\": f32[2] constant = [1, 0.1]\n"
                        "  %2 \"y\": f32[4,2] activation = mul(%0, %1) forward block=3\n"
                        "  %3: f32[8] activation = reshape(%2) {dims=[8]} backward block=3\n"
                        "  output \"z\" %3\n"
                        "}\n");
    expect_same(out.text);
    str_release(&out);
    graph_free(g);
}

static void every_float_constant_survives_to_the_bit(void **state)
{
    (void)state;
    struct graph *g;
    value_id v;
    uint16_t *all = calloc(65536, sizeof(*all));
    for (int i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    uint32_t singles[4096];
    uint64_t doubles[4096];
    uint64_t seed = 88172645463325252u; /* any bit pattern: NaNs, subnormals, infinities */
    for (int i = 0; i < 4096; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        doubles[i] = seed ^ (seed >> 31);
        singles[i] = (uint32_t)(doubles[i] >> 20);
    }
    doubles[0] = 0x8000000000000000u;
    doubles[1] = 1;
    doubles[2] = 0x7ff0000000000000u;
    singles[0] = 0x80000000u;
    singles[1] = 0xff800000u;
    assert_int_equal(graph_new(&g, "bits"), OK);
    struct shape half = shape_of(1, (int64_t)65536), wide = shape_of(2, (int64_t)64, (int64_t)64);
    assert_int_equal(graph_add_value(g, "h", ROLE_CONSTANT, DTYPE_F16, half, all, &v), OK);
    assert_int_equal(graph_add_value(g, "b", ROLE_CONSTANT, DTYPE_BF16, half, all, &v), OK);
    assert_int_equal(graph_add_value(g, "s", ROLE_CONSTANT, DTYPE_F32, wide, singles, &v), OK);
    assert_int_equal(graph_add_value(g, "d", ROLE_CONSTANT, DTYPE_F64, wide, doubles, &v), OK);
    struct str out = {0};
    assert_int_equal(graph_print(g, &out), OK);
    struct graph *again;
    assert_int_equal(graph_parse(&again, out.text), OK);
    assert_memory_equal(graph_value(again, 0)->data, all, 65536 * sizeof(*all));
    assert_memory_equal(graph_value(again, 1)->data, all, 65536 * sizeof(*all));
    assert_memory_equal(graph_value(again, 2)->data, singles, sizeof(singles));
    assert_memory_equal(graph_value(again, 3)->data, doubles, sizeof(doubles));
    expect_same(out.text);
    str_release(&out);
    graph_free(g);
    graph_free(again);
    free(all);
}

static void integers_and_odd_names_survive(void **state)
{
    (void)state;
    expect_same("graph \"a \\\"quoted\\\\ name\\x0a\\x7f\" {\n"
                "  %0 \"\xc3\xa9\\x01\": i64[2] constant = [-9223372036854775808, "
                "9223372036854775807]\n"
                "  %1: u8[3] constant = [0, 7, 255]\n"
                "  %2: i32[] constant = [-2147483648]\n"
                "  %3: f32[0,5] constant = []\n"
                "  %4: bf16[] state\n"
                "  %5: f64[1,2,3,4,5,6] metric\n"
                "}\n");
}

static void comments_and_line_breaks_mean_nothing(void **state)
{
    (void)state;
    struct graph *g;
    struct str out = {0};
    assert_int_equal(graph_parse(&g, "# a graph\ngraph \"g\"{ %0:f32[ 2 , 3 ]input # the input\n"
                                     "%1:f32[2,3]activation=add(%0,\n%0)forward output\"y\"%1 }"),
                     OK);
    assert_int_equal(graph_print(g, &out), OK);
    assert_string_equal(out.text, "graph \"g\" {\n"
                                  "  %0: f32[2,3] input\n"
                                  "  %1: f32[2,3] activation = add(%0, %0) forward\n"
                                  "  output \"y\" %1\n"
                                  "}\n");
    str_release(&out);
    graph_free(g);
}

static void default_attributes_are_not_printed(void **state)
{
    (void)state;
    struct graph *g;
    struct builder b;
    struct str out = {0};
    assert_int_equal(graph_new(&g, "g"), OK);
    builder_init(&b, g);
    value_id x = build_value(&b, "", ROLE_INPUT, DTYPE_F32, shape_of(2, (int64_t)2, (int64_t)4));
    (void)build(&b, OP_layer_norm, IN(x), ATTRS({"epsilon", .f = 1e-5}));
    (void)build(&b, OP_layer_norm, IN(x), ATTRS({"epsilon", .f = 1.0 / 3.0}));
    assert_int_equal(builder_status(&b), OK);
    assert_int_equal(graph_print(g, &out), OK);
    assert_non_null(strstr(out.text, "= layer_norm(%0) forward\n"));
    assert_non_null(strstr(out.text, "= layer_norm(%0) {epsilon=0.3333333333333333} forward\n"));
    expect_same(out.text);
    str_release(&out);
    graph_free(g);
}

/* After a pass reordered nodes or dropped some, numbers are in no order; they are kept all the
 * same. */
static void numbers_and_order_survive_reordering(void **state)
{
    (void)state;
    struct graph *g;
    struct builder b;
    assert_int_equal(graph_new(&g, "g"), OK);
    builder_init(&b, g);
    struct shape s = shape_of(1, (int64_t)3);
    value_id x = build_value(&b, "x", ROLE_INPUT, DTYPE_F32, s);
    (void)build(&b, OP_add, IN(x, x), NO_ATTRS);
    (void)build(&b, OP_mul, IN(x, x), NO_ATTRS);
    value_id w = build_value(&b, "w", ROLE_PARAMETER, DTYPE_F32, s);
    value_id y = build(&b, OP_sub, IN(x, w), NO_ATTRS);
    assert_int_equal(builder_status(&b), OK);
    assert_int_equal(graph_add_output(g, "y", y), OK);
    const node_id order[] = {2, 0};
    assert_int_equal(graph_reorder(g, order, 2), OK);
    assert_int_equal(graph_check(g), OK);
    expect_fixed_point(g);
    struct str out = {0};
    assert_int_equal(graph_print(g, &out), OK);
    assert_string_equal(out.text, "graph \"g\" {\n"
                                  "  %0 \"x\": f32[3] input\n"
                                  "  %2: f32[3] activation\n" /* its producer was dropped */
                                  "  %3 \"w\": f32[3] parameter\n"
                                  "  %4: f32[3] activation = sub(%0, %3) forward\n"
                                  "  %1: f32[3] activation = add(%0, %0) forward\n"
                                  "  output \"y\" %4\n"
                                  "}\n");
    struct graph *again;
    assert_int_equal(graph_parse(&again, out.text), OK);
    assert_int_equal(graph_check(again), OK);
    assert_int_equal(graph_value(again, 4)->producer, 0);
    assert_int_equal(graph_value(again, 1)->producer, 1);
    assert_int_equal(graph_value(again, 2)->producer, NODE_NONE);
    str_release(&out);
    graph_free(g);
    graph_free(again);
}

static void errors_name_line_and_column(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "line 1, column 1: expected 'graph"},
        {"graphs \"g\" {}", "line 1, column 1"},
        {"graph \"g\" {", "line 1, column 12: expected '%'"},
        {"graph \"g\" {} x", "line 1, column 14: there is more"},
        {"graph \"g\n\" {}", "line 1, column 7: the quoted name does not end"},
        {"graph \"\\q\" {}", "only \\\""},
        {"graph \"\\x00\" {}", "\\x needs two"},
        {"graph \"g\" {\n  %0: f33[2] input\n}", "line 2, column 7: 'f33' is not a dtype"},
        {"graph \"g\" {\n  %0: none[2] input\n}", "line 2, column 7: a value must have a dtype"},
        {"graph \"g\" {\n  %0: f32[-2] input\n}", "line 2, column 11: a dimension"},
        {"graph \"g\" {\n  %0: f32[1,1,1,1,1,1,1] input\n}", "at most 6 dimensions"},
        {"graph \"g\" {\n  %0: f32[2] inptu\n}", "line 2, column 14: 'inptu' is not a role"},
        {"graph \"g\" {\n  %0: f32[4294967296,4294967296] input\n}", "line 2, column 3"},
        {"graph \"g\" {\n  %0: f32[2] input\n  %0: f32[2] input\n}", "line 3, column 3: %0 is"},
        {"graph \"g\" {\n  %1: f32[2] input\n}", "line 2, column 3: %1 stands here but %0"},
        {"graph \"g\" {\n  %99999999: f32[2] input\n}", "line 2, column 4: %99999999 cannot be"},
        {"graph \"g\" {\n  %0: f32[2] constant = [1]\n}", "line 2, column 25: %0 has 2 elements"},
        {"graph \"g\" {\n  %0: f32[1] constant = [1x]\n}", "line 2, column 26: '1x' is not"},
        {"graph \"g\" {\n  %0: f32[1] constant = [nan]\n}", "'nan' is not a number"},
        {"graph \"g\" {\n  %0: f16[1] constant = [0x12345]\n}", "does not fit f16"},
        {"graph \"g\" {\n  %0: u8[1] constant = [256]\n}", "256 does not fit u8"},
        {"graph \"g\" {\n  %0: i32[1] constant = [1.5]\n}", "'1.5' is not an integer"},
        {"graph \"g\" {\n  %0: i64[1] constant = [9223372036854775808]\n}", "64 bits"},
        {"graph \"g\" {\n  %0: f32[1] input = [1]\n}", "line 2, column 3: only constants"},
        {"graph \"g\" {\n  output \"y\" %0\n}", "line 2, column 14: %0 is used before"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        expect_error(cases[i].text, cases[i].part);
}

static void errors_in_nodes_name_line_and_column(void **state)
{
    (void)state;
    static const struct {
        const char *line, *part;
    } cases[] = {
        {"%1: f32[2] activation = addd(%0, %0) forward", "line 3, column 25: there is no op"},
        {"%1: f32[2] activation = add(%0, %2) forward", "line 3, column 33: %2 is used before"},
        {"%1: f32[2] activation = add(%0) forward", "line 3, column 25: add: takes 2"},
        {"%1: f32[2] activation = add(%0, _) forward", "line 3, column 25: add: input 1"},
        {"%1: f32[3] activation = add(%0, %0) forward", "is declared f32[3] but inferred f32[2]"},
        {"%1: f64[2] activation = add(%0, %0) forward", "line 3, column 1: %1 is declared f64"},
        {"%1: f32[2] activation = add(%0, %0) {a=1} forward", "there is no attribute 'a'"},
        {"%1: f32[2] activation = add(%0, %0)\n}", "line 4, column 1: expected a name"},
        {"%1: f32[2] activation = add(%0, %0) sideways", "column 37: 'sideways' is not a pass"},
        {"%1: f32[2] activation = add(%0, %0) forward block=-2", "column 51: a block number"},
        {"%1: f32[2] activation, %2: f32[2] activation = add(%0, %0) forward", "has 1 outputs"},
        {"%1: f32[2] activation, %1: f32[2] activation", "expected '= op(...)'"},
        {"%1: f32[2] activation = reshape(%0) forward", "'dims' must be given"},
        {"%1: f32[2] activation = reshape(%0) {dims=[1,2,3,4,5,6,7,8,9]} forward", "at most 8"},
        {"%1: f32[2] activation = reshape(%0) {dims=[2], dims=[2]} forward", "repeated"},
        {"%1: f32[2] activation = reshape(%0) {dims=2} forward", "column 43: expected '['"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str text = {0};
        str_addf(&text, "graph \"g\" {\n%%0: f32[2] input\n%s\n}\n", cases[i].line);
        expect_error(text.text, cases[i].part);
        str_release(&text);
    }
}

static void parsing_survives_every_failed_allocation(void **state)
{
    (void)state;
    static const char text[] =
        "graph \"g\" { %1 \"x\": f32[2] input\n%0: f32[2] constant = [1, 2]\n"
        "%2: f32[2] activation = add(%0, %1) forward output \"y\" %2 }";
    int64_t live = mem_live();
    struct graph *g = NULL;
    int64_t n = 1;
    for (enum status s = ERR_MEMORY; s != OK; n++) {
        mem_fail_after(n, 0);
        s = graph_parse(&g, text);
        mem_fail_after(0, 0);
        assert_true(s == OK || s == ERR_MEMORY);
        graph_free(g);
        assert_int_equal(mem_live(), live);
        assert_true(n < 1000);
    }
    assert_true(n > 5); /* it was injected at all */
}

static void samples_give_inputs_fills_and_attributes(void **state)
{
    (void)state;
    struct sample s;
    assert_int_equal(sample_parse(&s, op_get(OP_reshape),
                                  "f32[10,4]+, i32[2,3]~10, _, i64[]~-1:5, "
                                  "f16[3]=0.25, f64[2], u8[1] {dims=[2,-3]}"),
                     OK);
    assert_int_equal(s.n_in, 7);
    assert_int_equal(s.in[0].fill, FILL_POSITIVE);
    assert_int_equal(s.in[0].shape.dim[1], 4);
    assert_int_equal(s.in[1].dtype, DTYPE_I32);
    assert_int_equal(s.in[1].high, 10);
    assert_int_equal(s.in[2].dtype, DTYPE_NONE);
    assert_int_equal(s.in[3].shape.rank, 0);
    assert_int_equal(s.in[3].low, -1);
    assert_int_equal(s.in[3].high, 5);
    assert_int_equal(s.in[4].fill, FILL_EQUAL);
    assert_true(s.in[4].value == 0.25);
    assert_int_equal(s.in[5].fill, FILL_NORMAL);
    assert_int_equal(s.in[6].fill, FILL_RANGE);
    assert_int_equal(s.attrs[0].n_ints, 2);
    assert_int_equal(s.attrs[0].ints[1], -3);
    assert_int_equal(sample_parse(&s, op_get(OP_add), ""), OK);
    assert_int_equal(s.n_in, 0);
    assert_int_equal(sample_parse(&s, op_get(OP_add), "f32[2]~3"), ERR_DATA);
    assert_int_equal(sample_parse(&s, op_get(OP_add), "i32[2]+"), ERR_DATA);
    assert_int_equal(sample_parse(&s, op_get(OP_add), "i32[2]~0"), ERR_DATA);
    assert_int_equal(sample_parse(&s, op_get(OP_add), "f32[2] f32[2]"), ERR_DATA);
    assert_int_equal(sample_parse(&s, op_get(OP_add), "f32[2], f32[2] {axis=1}"), ERR_SHAPE);
    assert_int_equal(sample_parse(&s, op_get(OP_reshape), "f32[2]"), ERR_SHAPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_graph_prints_as_documented),
        cmocka_unit_test(every_float_constant_survives_to_the_bit),
        cmocka_unit_test(integers_and_odd_names_survive),
        cmocka_unit_test(comments_and_line_breaks_mean_nothing),
        cmocka_unit_test(default_attributes_are_not_printed),
        cmocka_unit_test(numbers_and_order_survive_reordering),
        cmocka_unit_test(errors_name_line_and_column),
        cmocka_unit_test(errors_in_nodes_name_line_and_column),
        cmocka_unit_test(parsing_survives_every_failed_allocation),
        cmocka_unit_test(samples_give_inputs_fills_and_attributes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
