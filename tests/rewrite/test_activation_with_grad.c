/* The rule that makes an activation once more where its gradient is made: where it applies and
 * where it must not, and that training stays the same to the bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "rewrite/rewrite.h"
#include "support/golden.h"
#include "support/training.h"

/* ---- small graphs --------------------------------------------------------------------------- */

/* What may stand in the rule's way. */
enum obstacle {
    NOTHING,
    READ_TWICE,      /* another backward node reads y */
    READ_AS_VIEW,    /* so does one that reads a view of it */
    TWO_WEIGHTS,     /* y goes through two of them */
    READ_AS_DY,      /* the gradient of a weight reads y, but as the other operand */
    NOT_READ,        /* the weight is frozen */
    OTHER_BLOCK,     /* the reader belongs to one */
    OTHER_X,         /* the gradient is of another activation */
    OTHER_BIAS,      /* gelu_bias only */
    OTHER_ATTRIBUTE, /* gelu_bias only */
    DW_READ_BEFORE,  /* the gradient of the weight is read before dx is made */
    D_OVERWRITTEN,   /* what it is made from is gone when dx is made */
    N_OBSTACLES,
};

/* y = activation(x), then backwards dw from d and y, and dx from dy and x. */
struct small {
    struct graph *g;
    struct builder b;
    value_id x, other_x, bias, other_bias, y, d, dy, dw, dx, acc;
};

static value_id input(struct small *s, const char *name, int64_t width)
{
    return build_value(&s->b, name, ROLE_INPUT, DTYPE_F32, shape_of(2, (int64_t)3, width));
}

static value_id row(struct small *s, const char *name, int64_t width)
{
    return build_value(&s->b, name, ROLE_INPUT, DTYPE_F32, shape_of(1, width));
}

static void add_weight_grad(struct small *s, enum obstacle o)
{
    if (o == OTHER_BLOCK)
        s->b.block = 1;
    if (o == READ_AS_DY)
        s->dw = build(&s->b, OP_linear_grad_weight, IN(s->y, s->d), NO_ATTRS);
    else if (o != NOT_READ)
        s->dw = build(&s->b, OP_linear_grad_weight, IN(s->d, s->y), NO_ATTRS);
    if (o == DW_READ_BEFORE)
        s->dw = build(&s->b, OP_relu, IN(s->dw), NO_ATTRS);
    if (o == D_OVERWRITTEN)
        (void)build(&s->b, OP_fill, IN(s->d), NO_ATTRS);
    s->b.block = 0;
}

static void add_grad(struct small *s, bool gelu, enum obstacle o)
{
    value_id x = o == OTHER_X ? s->other_x : s->x;
    value_id bias = o == OTHER_BIAS ? s->other_bias : s->bias;
    if (gelu)
        s->dx = build(&s->b, OP_gelu_bias_grad, IN(s->dy, x, bias, s->acc),
                      ATTRS({"approximate", .i = o != OTHER_ATTRIBUTE}));
    else
        s->dx = build(&s->b, OP_silu_gate_grad, IN(s->dy, x), NO_ATTRS);
}

static void small_init(struct small *s, bool gelu, bool dw_first, enum obstacle o)
{
    int64_t width = gelu ? 4 : 8;
    *s = (struct small){.dw = VALUE_NONE};
    expect_ok(graph_new(&s->g, "small"));
    builder_init(&s->b, s->g);
    s->x = input(s, "x", width);
    s->other_x = input(s, "other_x", width);
    s->bias = row(s, "bias", width);
    s->other_bias = row(s, "other_bias", width);
    s->acc = row(s, "acc", width);
    s->d = input(s, "d", 6);
    s->dy = input(s, "dy", 4);
    s->b.block = 0;
    s->y = gelu ? build(&s->b, OP_gelu_bias, IN(s->x, s->bias), ATTRS({"approximate", .i = true}))
                : build(&s->b, OP_silu_gate, IN(s->x), NO_ATTRS);
    (void)build(&s->b, OP_relu, IN(s->y), NO_ATTRS); /* the next layer */
    value_id view = build(&s->b, OP_reshape, IN(s->y), ATTRS({"dims", .n_ints = 1, .ints = {12}}));
    s->b.pass = PASS_BACKWARD;
    if (dw_first)
        add_weight_grad(s, o);
    else
        add_grad(s, gelu, o);
    if (o == READ_TWICE)
        (void)build(&s->b, OP_relu, IN(s->y), NO_ATTRS);
    if (o == TWO_WEIGHTS)
        (void)build(&s->b, OP_linear_grad_weight, IN(s->d, s->y), NO_ATTRS);
    if (o == READ_AS_VIEW)
        (void)build(&s->b, OP_relu, IN(view), NO_ATTRS);
    if (dw_first)
        add_grad(s, gelu, o);
    else
        add_weight_grad(s, o);
    expect_ok(builder_status(&s->b));
    expect_ok(graph_check(s->g));
}

static int count(const struct graph *g, enum op_id op)
{
    int n = 0;
    for (size_t k = 0; k < g->nodes.n; k++)
        n += graph_node(g, (node_id)k)->op == op;
    return n;
}

static void the_gradient_makes_the_output_that_the_weight_gradient_reads(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) { /* the order of the two gradients does not matter */
        bool gelu = way & 1;
        struct small s;
        small_init(&s, gelu, way & 2, NOTHING);
        size_t n_nodes = s.g->nodes.n;
        expect_ok(rewrite_apply(s.g, REWRITE_GRADIENT));
        expect_ok(graph_check(s.g));
        assert_int_equal(s.g->nodes.n, n_nodes);
        const struct node *n = graph_node(s.g, (node_id)n_nodes - 2);
        const struct node *weight = graph_node(s.g, (node_id)n_nodes - 1);
        assert_int_equal(n->op, gelu ? OP_gelu_bias_with_grad : OP_silu_gate_with_grad);
        assert_int_equal(n->n_in, gelu ? 4 : 2);
        assert_int_equal(n->n_out, gelu ? 3 : 2);
        assert_int_equal(n->in[0], s.dy);
        assert_int_equal(n->in[1], s.x);
        assert_int_equal(n->out[0], s.dx);
        if (gelu)
            assert_true(node_attr(n, "approximate")->i);
        assert_int_equal(weight->op, OP_linear_grad_weight);
        assert_int_equal(weight->in[0], s.d);
        assert_int_equal(weight->in[1], n->out[n->n_out - 1]);
        assert_int_equal(weight->out[0], s.dw);
        assert_int_equal(graph_node(s.g, 0)->out[0], s.y); /* the next layer still reads y */
        expect_ok(rewrite_apply(s.g, REWRITE_GRADIENT));   /* once is enough */
        assert_int_equal(count(s.g, n->op), 1);
        graph_free(s.g);
    }
}

static void gradients_stay_where_something_is_in_the_way(void **state)
{
    (void)state;
    for (enum obstacle o = NOTHING; o < N_OBSTACLES; o++) {
        for (int gelu = 0; gelu < 2; gelu++) {
            bool none = o == NOTHING || (!gelu && (o == OTHER_BIAS || o == OTHER_ATTRIBUTE));
            struct small s;
            small_init(&s, gelu, true, o);
            expect_ok(rewrite_apply(s.g, REWRITE_GRADIENT));
            expect_ok(graph_check(s.g));
            int n = count(s.g, gelu ? OP_gelu_bias_with_grad : OP_silu_gate_with_grad);
            if (n != none)
                fail_msg("obstacle %d, gelu %d: applied %d times", (int)o, gelu, n);
            assert_int_equal(count(s.g, gelu ? OP_gelu_bias_grad : OP_silu_gate_grad), !none);
            graph_free(s.g);
        }
    }
}

static void without_a_backward_pass_nothing_changes(void **state)
{
    (void)state;
    struct small s;
    small_init(&s, false, true, NOTHING);
    s.g->nodes.n = 3; /* the activation and who reads it */
    expect_ok(rewrite_apply(s.g, REWRITE_GRADIENT));
    assert_int_equal(s.g->nodes.n, 3);
    assert_int_equal(graph_node(s.g, 0)->op, OP_silu_gate);
    graph_free(s.g);
}

/* ---- whole models --------------------------------------------------------------------------- */

static const struct {
    enum op_id forward, grad, both;
} activations[] = {
    {OP_silu_gate, OP_silu_gate_grad, OP_silu_gate_with_grad},
    {OP_gelu_bias, OP_gelu_bias_grad, OP_gelu_bias_with_grad},
};

static void replace_input(struct graph *g, value_id from, value_id to)
{
    for (size_t k = 0; k < g->nodes.n; k++) {
        struct node *n = graph_node(g, (node_id)k);
        for (int i = 0; i < n->n_in; i++) {
            if (n->in[i] == from)
                n->in[i] = to;
        }
    }
}

static value_id output_of(const struct graph *g, enum op_id op, value_id x)
{
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, (node_id)k);
        if (n->op == op && n->in[0] == x)
            return n->out[0];
    }
    return VALUE_NONE;
}

/* Activations that the rule is about. */
static int count_activations(const struct graph *g)
{
    int n = 0;
    for (size_t k = 0; k < g->nodes.n * ARRAY_LEN(activations); k++) {
        const struct node *node = graph_node(g, (node_id)(k / ARRAY_LEN(activations)));
        n += node->op == activations[k % ARRAY_LEN(activations)].forward;
    }
    return n;
}

/* What the rule did, undone. Returns how often. */
static int take_apart(struct graph *g)
{
    int n_undone = 0;
    for (size_t k = 0; k < g->nodes.n * ARRAY_LEN(activations); k++) {
        struct node *n = graph_node(g, (node_id)(k / ARRAY_LEN(activations)));
        size_t i = k % ARRAY_LEN(activations);
        if (n->op != activations[i].both)
            continue;
        value_id again = n->out[--n->n_out], y = output_of(g, activations[i].forward, n->in[1]);
        assert_int_not_equal(y, VALUE_NONE);
        n->op = activations[i].grad;
        graph_value(g, again)->producer = NODE_NONE;
        replace_input(g, again, y);
        n_undone++;
    }
    expect_ok(graph_check(g));
    return n_undone;
}

enum { N_STEPS = 4 };

struct result {
    float losses[N_STEPS];
    uint64_t digest;
    int64_t n_bytes;
};

static void train(const struct training_options *o, bool apart, bool recompute, struct result *r)
{
    struct training t;
    training_init(&t, o);
    if (apart) {
        assert_int_equal(take_apart(t.stage->graph), count_activations(t.stage->graph));
        plan_release(&t.stage->plan);
        expect_ok(plan_init(&t.stage->plan, t.stage->graph, t.options.n_micro));
    }
    plan_recompute_cheap(&t.stage->plan, t.stage->graph);
    for (int b = 0; recompute && b < t.stage->plan.n_blocks; b++)
        plan_recompute_block(&t.stage->plan, t.stage->graph, b);
    training_emit(&t);
    training_start(&t);
    for (int i = 0; i < N_STEPS; i++) {
        training_step(&t, i);
        r->losses[i] = training_output(&t, "loss");
    }
    r->digest = training_digest(&t);
    r->n_bytes = t.stage->program->n_bytes[TIER_DEVICE];
    training_expect_prediction(&t);
    training_release(&t);
}

static void training_is_the_same_to_the_bit(void **state)
{
    (void)state;
    for (int i = 0; golden_names[i]; i++) {
        for (int way = 0; way < 8; way++) {
            struct training_options o = {.golden = golden_names[i],
                                         .batch = 2,
                                         .seq_len = 16,
                                         .n_micro = way & 1 ? 2 : 1,
                                         .max_grad_norm = way & 1 ? 1.0 : 0.0,
                                         .bf16 = way & 2};
            struct result apart, both;
            train(&o, true, way & 4, &apart);
            train(&o, false, way & 4, &both);
            for (int k = 0; k < N_STEPS; k++)
                assert_memory_equal(&apart.losses[k], &both.losses[k], sizeof(float));
            assert_true(apart.digest == both.digest);
            if (both.n_bytes > apart.n_bytes)
                fail_msg("%s, way %d: %lld bytes, %lld without", golden_names[i], way,
                         (long long)both.n_bytes, (long long)apart.n_bytes);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gradient_makes_the_output_that_the_weight_gradient_reads),
        cmocka_unit_test(gradients_stay_where_something_is_in_the_way),
        cmocka_unit_test(without_a_backward_pass_nothing_changes),
        cmocka_unit_test(training_is_the_same_to_the_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
