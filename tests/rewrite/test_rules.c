/* The rules of src/rewrite: where they apply and where they must not, what they leave of whole
 * models, and that the numbers stay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/autodiff.h"
#include "rewrite/rewrite.h"
#include "support/golden.h"
#include "support/training.h"

/* ---- small graphs --------------------------------------------------------------------------- */

/* x [2,3,8], w [6,8], bias [6], r [2,3,6]: enough for each pattern. */
struct small {
    struct graph *g;
    struct builder b;
    value_id x, w, bias, r;
};

static value_id input(struct small *s, const char *name, struct shape shape)
{
    return build_value(&s->b, name, ROLE_INPUT, DTYPE_F32, shape);
}

static void small_init(struct small *s)
{
    expect_ok(graph_new(&s->g, "small"));
    builder_init(&s->b, s->g);
    s->x = input(s, "x", shape_of(3, (int64_t)2, (int64_t)3, (int64_t)8));
    s->w = input(s, "w", shape_of(2, (int64_t)6, (int64_t)8));
    s->bias = input(s, "bias", shape_of(1, (int64_t)6));
    s->r = input(s, "r", shape_of(3, (int64_t)2, (int64_t)3, (int64_t)6));
}

static value_id linear(struct small *s)
{
    return build(&s->b, OP_linear, IN(s->x, s->w, s->bias), NO_ATTRS);
}

static value_id add(struct small *s, value_id a, value_id b)
{
    return build(&s->b, OP_add, IN(a, b), NO_ATTRS);
}

static void output(struct small *s, const char *name, value_id v)
{
    expect_ok(builder_status(&s->b));
    expect_ok(graph_add_output(s->g, name, v));
}

static int count(const struct graph *g, enum op_id op)
{
    int n = 0;
    for (size_t k = 0; k < g->nodes.n; k++)
        n += graph_node(g, (node_id)k)->op == op;
    return n;
}

/* Rewrites and ends the graph; `op` must be there n times then. */
static void expect_count(struct small *s, enum rewrite_stage stage, enum op_id op, int n)
{
    expect_ok(graph_check(s->g));
    expect_ok(rewrite_apply(s->g, stage));
    expect_ok(graph_check(s->g));
    int is = count(s->g, op);
    if (is != n)
        fail_msg("%d nodes of %s, want %d", is, op_get(op)->name, n);
    graph_free(s->g);
}

/* ---- residual_into_linear ------------------------------------------------------------------- */

static void a_residual_moves_into_the_linear(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        struct small s;
        small_init(&s);
        value_id y = way & 1 ? linear(&s) : build(&s.b, OP_linear, IN(s.x, s.w), NO_ATTRS);
        y = build_name(&s.b, y, "product");
        y = way & 2 ? add(&s, s.r, y) : add(&s, y, s.r);
        output(&s, "y", y);
        expect_ok(rewrite_apply(s.g, REWRITE_FORWARD));
        expect_ok(graph_check(s.g));
        assert_int_equal(s.g->nodes.n, 1);
        const struct node *n = graph_node(s.g, 0);
        assert_int_equal(n->n_in, 4);
        assert_int_equal(n->in[2], way & 1 ? s.bias : VALUE_NONE);
        assert_int_equal(n->in[3], s.r);
        assert_int_equal(n->out[0], y); /* who held the sum still does */
        assert_int_equal(graph_find_value(s.g, "product"), y);
        graph_free(s.g);
    }
}

/* An adapter's product has the one it is beside as its residual: the block's goes into that. */
static void a_residual_moves_through_a_sum_of_products(void **state)
{
    (void)state;
    struct small s;
    small_init(&s);
    value_id a = linear(&s), b = linear(&s), y = add(&s, s.r, add(&s, a, b));
    output(&s, "y", y);
    expect_ok(rewrite_apply(s.g, REWRITE_FORWARD));
    expect_ok(graph_check(s.g));
    assert_int_equal(s.g->nodes.n, 2);
    assert_int_equal(graph_node(s.g, 0)->in[3], s.r);
    assert_int_equal(graph_node(s.g, 1)->in[3], graph_node(s.g, 0)->out[0]);
    assert_int_equal(graph_node(s.g, 1)->out[0], y);
    graph_free(s.g);
}

static void of_two_linears_the_later_takes_the_other(void **state)
{
    (void)state;
    struct small s;
    small_init(&s);
    value_id a = linear(&s), b = linear(&s);
    output(&s, "y", add(&s, a, b));
    expect_count(&s, REWRITE_FORWARD, OP_add, 0);
}

static void a_linear_with_another_reader_stays(void **state)
{
    (void)state;
    struct small s;
    small_init(&s);
    value_id y = linear(&s);
    output(&s, "y", add(&s, s.r, y));
    output(&s, "z", build(&s.b, OP_relu, IN(y), NO_ATTRS));
    expect_count(&s, REWRITE_FORWARD, OP_add, 1);

    small_init(&s); /* twice the same operand */
    y = linear(&s);
    output(&s, "y", add(&s, y, y));
    expect_count(&s, REWRITE_FORWARD, OP_add, 1);

    small_init(&s); /* read from outside */
    y = linear(&s);
    output(&s, "y", add(&s, s.r, y));
    output(&s, "z", y);
    expect_count(&s, REWRITE_FORWARD, OP_add, 1);
}

static void a_sum_that_broadcasts_stays(void **state)
{
    (void)state;
    struct small s;
    small_init(&s);
    output(&s, "y", add(&s, linear(&s), input(&s, "v", shape_of(1, (int64_t)6))));
    expect_count(&s, REWRITE_FORWARD, OP_add, 1);

    small_init(&s); /* the other way around: the linear is spread over the sum */
    value_id row =
        build(&s.b, OP_linear, IN(input(&s, "z", shape_of(1, (int64_t)8)), s.w), NO_ATTRS);
    output(&s, "y", add(&s, s.r, row));
    expect_count(&s, REWRITE_FORWARD, OP_add, 1);
}

static void a_residual_made_later_stays(void **state)
{
    (void)state;
    struct small s;
    small_init(&s);
    value_id y = linear(&s), later = build(&s.b, OP_relu, IN(s.r), NO_ATTRS);
    output(&s, "y", add(&s, later, y));
    expect_count(&s, REWRITE_FORWARD, OP_add, 1);
}

static void a_residual_of_another_dtype_stays(void **state)
{
    (void)state;
    struct small s;
    small_init(&s);
    output(&s, "y", add(&s, s.r, linear(&s)));
    graph_value(s.g, s.r)->dtype = DTYPE_BF16; /* as no builder would */
    expect_ok(rewrite_apply(s.g, REWRITE_FORWARD));
    assert_int_equal(count(s.g, OP_add), 1);
    graph_free(s.g);
}

static void a_linear_takes_one_residual(void **state)
{
    (void)state;
    struct small s;
    small_init(&s);
    output(&s, "y", add(&s, s.r, add(&s, linear(&s), s.r)));
    expect_count(&s, REWRITE_FORWARD, OP_add, 1);
}

static void rules_do_not_reach_into_another_block_or_pass(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        struct small s;
        small_init(&s);
        value_id y = linear(&s), z = linear(&s);
        if (way)
            s.b.block = 1;
        else
            s.b.pass = PASS_BACKWARD;
        output(&s, "y", add(&s, s.r, y));
        output(&s, "z", build(&s.b, OP_gelu, IN(z), NO_ATTRS));
        expect_ok(rewrite_apply(s.g, REWRITE_FORWARD));
        assert_int_equal(count(s.g, OP_add), 1);
        assert_int_equal(count(s.g, OP_gelu), 1);
        graph_free(s.g);
    }
}

/* ---- bias_into_gelu ------------------------------------------------------------------------- */

static void a_bias_moves_into_gelu(void **state)
{
    (void)state;
    struct small s;
    small_init(&s);
    value_id y = build(&s.b, OP_gelu, IN(linear(&s)), ATTRS({"approximate", .i = true}));
    output(&s, "y", y);
    expect_ok(rewrite_apply(s.g, REWRITE_FORWARD));
    expect_ok(graph_check(s.g));
    assert_int_equal(s.g->nodes.n, 2);
    const struct node *l = graph_node(s.g, 0), *n = graph_node(s.g, 1);
    assert_int_equal(l->n_in, 2);
    assert_int_equal(n->op, OP_gelu_bias);
    assert_int_equal(n->in[0], l->out[0]);
    assert_int_equal(n->in[1], s.bias);
    assert_int_equal(n->out[0], y);
    assert_true(node_attr(n, "approximate")->i);
    graph_free(s.g);
}

static value_id gelu(struct small *s, value_id x)
{
    return build(&s->b, OP_gelu, IN(x), NO_ATTRS);
}

static void gelu_stays_where_no_bias_can_move(void **state)
{
    (void)state;
    struct small s;
    small_init(&s); /* no bias */
    output(&s, "y", gelu(&s, build(&s.b, OP_linear, IN(s.x, s.w), NO_ATTRS)));
    expect_count(&s, REWRITE_FORWARD, OP_gelu, 1);

    small_init(&s); /* another reader of the product */
    value_id y = linear(&s);
    output(&s, "y", gelu(&s, y));
    output(&s, "z", build(&s.b, OP_relu, IN(y), NO_ATTRS));
    expect_count(&s, REWRITE_FORWARD, OP_gelu, 1);

    small_init(&s); /* a residual comes between */
    output(&s, "y", gelu(&s, add(&s, s.r, linear(&s))));
    expect_count(&s, REWRITE_FORWARD, OP_gelu, 1);

    small_init(&s); /* not a linear */
    output(&s, "y", gelu(&s, s.r));
    expect_count(&s, REWRITE_FORWARD, OP_gelu, 1);
}

static void a_bias_overwritten_before_gelu_stays(void **state)
{
    (void)state;
    struct small s;
    small_init(&s);
    value_id y = linear(&s);
    value_id cleared = build(&s.b, OP_fill, IN(s.bias), NO_ATTRS);
    output(&s, "y", gelu(&s, y));
    output(&s, "z", cleared);
    expect_count(&s, REWRITE_FORWARD, OP_gelu, 1);
}

/* ---- add_into_norm_grad --------------------------------------------------------------------- */

static value_id norm_grad(struct small *s, bool layer_norm, value_id added)
{
    struct shape rows = shape_of(2, (int64_t)2, (int64_t)3);
    value_id rstd = input(s, "rstd", rows), dy = input(s, "dy", *build_shape(&s->b, s->r));
    if (layer_norm)
        return build(&s->b, OP_layer_norm_grad,
                     IN(dy, s->r, s->bias, input(s, "mean", rows), rstd, added), NO_ATTRS);
    return build(&s->b, OP_rms_norm_grad, IN(dy, s->r, s->bias, rstd, added), NO_ATTRS);
}

static void a_sum_moves_into_the_norm_gradient(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        struct small s;
        small_init(&s);
        value_id dx = norm_grad(&s, way & 1, VALUE_NONE), dw = build_output(&s.b, 1);
        value_id y = way & 2 ? add(&s, s.r, dx) : add(&s, dx, s.r);
        output(&s, "y", y);
        output(&s, "dw", dw);
        expect_ok(rewrite_apply(s.g, REWRITE_GRADIENT));
        expect_ok(graph_check(s.g));
        assert_int_equal(s.g->nodes.n, 1);
        const struct node *n = graph_node(s.g, 0);
        assert_int_equal(n->in[way & 1 ? 5 : 4], s.r);
        assert_int_equal(n->out[0], y);
        assert_int_equal(n->out[1], dw);
        graph_free(s.g);
    }
}

static void a_norm_gradient_stays_where_the_sum_cannot_move(void **state)
{
    (void)state;
    for (int layer_norm = 0; layer_norm < 2; layer_norm++) {
        struct small s;
        small_init(&s); /* another reader */
        value_id dx = norm_grad(&s, layer_norm, VALUE_NONE);
        output(&s, "y", add(&s, s.r, dx));
        output(&s, "dx", dx);
        expect_count(&s, REWRITE_GRADIENT, OP_add, 1);

        small_init(&s); /* the other gradient comes later */
        dx = norm_grad(&s, layer_norm, VALUE_NONE);
        output(&s, "y", add(&s, build(&s.b, OP_relu, IN(s.r), NO_ATTRS), dx));
        expect_count(&s, REWRITE_GRADIENT, OP_add, 1);

        small_init(&s); /* other shapes */
        dx = norm_grad(&s, layer_norm, VALUE_NONE);
        output(&s, "y", add(&s, dx, s.bias));
        expect_count(&s, REWRITE_GRADIENT, OP_add, 1);

        small_init(&s); /* one sum is in it already */
        dx = norm_grad(&s, layer_norm, s.r);
        output(&s, "y", add(&s, s.r, dx));
        expect_count(&s, REWRITE_GRADIENT, OP_add, 1);

        small_init(&s); /* another output of the gradient */
        (void)norm_grad(&s, layer_norm, VALUE_NONE);
        output(&s, "y", add(&s, s.bias, build_output(&s.b, 1)));
        expect_count(&s, REWRITE_GRADIENT, OP_add, 1);

        small_init(&s); /* another dtype */
        dx = norm_grad(&s, layer_norm, VALUE_NONE);
        value_id other = input(&s, "other", *build_shape(&s.b, dx));
        output(&s, "y", add(&s, other, dx));
        graph_value(s.g, other)->dtype = DTYPE_F16;
        expect_ok(rewrite_apply(s.g, REWRITE_GRADIENT));
        assert_int_equal(count(s.g, OP_add), 1);
        graph_free(s.g);
    }
}

/* ---- batch norms ------------------------------------------------------------------------------
 */

static value_id batch_norm(struct small *s)
{
    return build(&s->b, OP_batch_norm, IN(s->r, s->bias, s->bias),
                 ATTRS({.name = "epsilon", .f = 0.5}));
}

static value_id leaky(struct small *s, value_id x)
{
    return build(&s->b, OP_leaky_relu, IN(x), ATTRS({.name = "slope", .f = 0.2}));
}

static value_id per_sample(struct small *s, const char *name)
{
    return input(s, name, shape_of(2, (int64_t)2, (int64_t)6));
}

static void an_activation_moves_into_the_batch_norm(void **state)
{
    static const enum op_id ops[] = {OP_leaky_relu, OP_relu, OP_silu};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        struct small s;
        small_init(&s);
        value_id z = batch_norm(&s), mean = build_output(&s.b, 1);
        value_id y = i == 0 ? leaky(&s, z) : build(&s.b, ops[i], IN(z), NO_ATTRS);
        output(&s, "y", y);
        output(&s, "mean", mean);
        expect_ok(rewrite_apply(s.g, REWRITE_FORWARD));
        expect_ok(graph_check(s.g));
        assert_int_equal(s.g->nodes.n, 1);
        const struct node *n = graph_node(s.g, 0);
        assert_int_equal(n->op, OP_batch_norm_activation);
        assert_int_equal(n->out[0], y);
        assert_int_equal(n->out[1], mean);
        assert_true(node_attr(n, "epsilon")->f == 0.5);
        assert_true(node_attr(n, "slope")->f == (i == 0 ? 0.2 : 0.0));
        assert_int_equal(node_attr(n, "silu")->i, ops[i] == OP_silu);
        graph_free(s.g);
    }
}

static void film_moves_behind_the_activation_of_a_batch_norm(void **state)
{
    (void)state;
    for (int shifts = 0; shifts < 2; shifts++) {
        struct small s;
        small_init(&s);
        value_id scale = per_sample(&s, "scale"), shift = per_sample(&s, "shift");
        value_id y = leaky(&s, batch_norm(&s));
        y = shifts ? build(&s.b, OP_film, IN(y, scale, shift), NO_ATTRS)
                   : build(&s.b, OP_film, IN(y, scale), NO_ATTRS);
        output(&s, "y", y);
        expect_ok(rewrite_apply(s.g, REWRITE_FORWARD));
        expect_ok(graph_check(s.g));
        assert_int_equal(s.g->nodes.n, 1);
        const struct node *n = graph_node(s.g, 0);
        assert_int_equal(n->n_in, shifts ? 5 : 4);
        assert_int_equal(n->in[3], scale);
        assert_int_equal(n->out[0], y);
        graph_free(s.g);
    }
}

static void batch_norms_stay_where_nothing_can_move(void **state)
{
    (void)state;
    struct small s;
    small_init(&s); /* another reader of what the norm makes */
    value_id z = batch_norm(&s);
    output(&s, "y", leaky(&s, z));
    output(&s, "z", z);
    expect_count(&s, REWRITE_FORWARD, OP_batch_norm, 1);

    small_init(&s); /* the activation of a statistic */
    (void)batch_norm(&s);
    output(&s, "y", leaky(&s, build_output(&s.b, 1)));
    expect_count(&s, REWRITE_FORWARD, OP_batch_norm, 1);

    small_init(&s); /* no activation between them */
    output(&s, "y", build(&s.b, OP_film, IN(batch_norm(&s), per_sample(&s, "a")), NO_ATTRS));
    expect_count(&s, REWRITE_FORWARD, OP_film, 1);

    small_init(&s); /* silu, whose gradient would need a sum more */
    z = build(&s.b, OP_silu, IN(batch_norm(&s)), NO_ATTRS);
    output(&s, "y", build(&s.b, OP_film, IN(z, per_sample(&s, "a")), NO_ATTRS));
    expect_count(&s, REWRITE_FORWARD, OP_film, 1);

    small_init(&s); /* a scale that is made later */
    z = leaky(&s, batch_norm(&s));
    value_id later = build(&s.b, OP_relu, IN(per_sample(&s, "a")), NO_ATTRS);
    output(&s, "y", build(&s.b, OP_film, IN(z, later), NO_ATTRS));
    expect_count(&s, REWRITE_FORWARD, OP_film, 1);

    small_init(&s); /* a second film */
    z = build(&s.b, OP_film, IN(leaky(&s, batch_norm(&s)), per_sample(&s, "a")), NO_ATTRS);
    output(&s, "y", build(&s.b, OP_film, IN(z, per_sample(&s, "b")), NO_ATTRS));
    expect_count(&s, REWRITE_FORWARD, OP_film, 1);
}

/* ---- whole models --------------------------------------------------------------------------- */

static bool comes_from_norm_grad(const struct graph *g, value_id v)
{
    node_id k = graph_value(g, v)->producer;
    enum op_id op = k == NODE_NONE ? OP_COUNT : graph_node(g, k)->op;
    return op == OP_layer_norm_grad || op == OP_rms_norm_grad;
}

/* Sums of [batch, length, hidden] that are left: none but the embeddings of GPT-2. */
static void expect_no_plain_sums(const struct graph *g, bool gpt2)
{
    int n_forward = 0;
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, (node_id)k);
        if (n->op != OP_add)
            continue;
        n_forward += n->pass == PASS_FORWARD;
        assert_false(comes_from_norm_grad(g, n->in[0]));
        assert_false(comes_from_norm_grad(g, n->in[1]));
    }
    assert_int_equal(n_forward, gpt2 ? 1 : 0);
}

static int count_inputs(const struct graph *g, enum op_id op, int i)
{
    int n = 0;
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *x = graph_node(g, (node_id)k);
        n += x->op == op && i < x->n_in && x->in[i] != VALUE_NONE;
    }
    return n;
}

static void a_training_step_has_no_plain_sum_or_gelu_left(void **state)
{
    (void)state;
    for (int i = 0; golden_names[i]; i++) {
        bool gpt2 = strcmp(golden_names[i], "gpt2") == 0;
        struct golden_facts facts = golden_facts_of(golden_names[i]);
        if (facts.has_experts || facts.norms_sums)
            continue; /* what is added to the residual does not come out of a product */
        for (int64_t n_micro = 1; n_micro <= 2; n_micro++) {
            struct training t;
            training_init(&t, &(struct training_options){.golden = golden_names[i],
                                                         .batch = 2,
                                                         .seq_len = 8,
                                                         .n_micro = n_micro,
                                                         .bf16 = n_micro == 2});
            int n_layers = t.stage->io.n_blocks;
            expect_no_plain_sums(t.stage->graph, gpt2);
            assert_int_equal(count_inputs(t.stage->graph, OP_linear, 3), 2 * n_layers);
            assert_int_equal(count_inputs(t.stage->graph,
                                          gpt2 ? OP_layer_norm_grad : OP_rms_norm_grad,
                                          gpt2 ? 5 : 4),
                             2 * n_layers);
            assert_int_equal(count(t.stage->graph, OP_gelu) + count(t.stage->graph, OP_gelu_grad),
                             0);
            assert_int_equal(count(t.stage->graph, OP_gelu_bias), gpt2 ? n_layers : 0);
            assert_int_equal(count(t.stage->graph, OP_gelu_bias_grad), 0);
            assert_int_equal(count(t.stage->graph, OP_gelu_bias_with_grad), gpt2 ? n_layers : 0);
            /* The sum over micro-steps goes into the op that makes the bias gradient. */
            assert_int_equal(count_inputs(t.stage->graph, OP_gelu_bias_with_grad, 3),
                             gpt2 && n_micro > 1 ? n_layers : 0);
            assert_int_equal(count(t.stage->graph, OP_silu_gate_grad), 0);
            assert_int_equal(count(t.stage->graph, OP_silu_gate_with_grad), gpt2 ? 0 : n_layers);
            training_release(&t);
        }
    }
}

static bool is_activation(const struct node *n)
{
    return n->op == OP_gelu_bias || n->op == OP_silu_gate;
}

/* Neither kept nor made by another node again: the gradient makes it. */
static void what_activations_make_is_not_read_in_the_backward_pass(void **state)
{
    (void)state;
    for (int i = 0; golden_names[i]; i++) {
        struct training t;
        training_init(
            &t, &(struct training_options){.golden = golden_names[i], .batch = 2, .seq_len = 8});
        for (size_t k = 0; k < t.stage->graph->nodes.n; k++) {
            const struct node *n = graph_node(t.stage->graph, (node_id)k);
            for (int in = 0; in < n->n_in && n->pass == PASS_BACKWARD; in++) {
                node_id from = n->in[in] == VALUE_NONE
                                   ? NODE_NONE
                                   : graph_value(t.stage->graph, n->in[in])->producer;
                assert_false(from != NODE_NONE && is_activation(graph_node(t.stage->graph, from)));
            }
        }
        training_release(&t);
    }
}

/* ---- numbers -------------------------------------------------------------------------------- */

enum { MAX_PARAMS = 64 };

/* A golden model's loss and gradients, in a graph that was rewritten or not. */
struct gradients {
    struct golden golden;
    value_id of[MAX_PARAMS];
};

static void gradients_run(struct gradients *x, const char *name, enum dtype dtype, bool fused)
{
    struct golden *d = &x->golden;
    value_id wanted[MAX_PARAMS], seed;
    golden_open(d, name, "config.json",
                &(struct model_request){.purpose = MODEL_TRAIN,
                                        .batch = GOLDEN_BATCH,
                                        .seq_len = GOLDEN_LENGTH,
                                        .dtype = dtype});
    size_t n = (size_t)d->built.n_params;
    assert_true(n <= MAX_PARAMS);
    for (size_t i = 0; i < n; i++)
        wanted[i] = d->built.params[i].value;
    if (fused)
        expect_ok(rewrite_apply(d->graph, REWRITE_FORWARD));
    const struct value *loss = graph_value(d->graph, golden_loss(d));
    expect_ok(graph_add_value(d->graph, "seed", ROLE_INPUT, loss->dtype, loss->shape, NULL, &seed));
    expect_ok(autodiff(d->graph, golden_loss(d), seed, wanted, n, x->of));
    for (size_t i = 0; i < n; i++)
        expect_ok(graph_add_output(d->graph, d->built.params[i].name, x->of[i]));
    expect_ok(graph_add_output(d->graph, "loss", golden_loss(d)));
    if (fused)
        expect_ok(rewrite_apply(d->graph, REWRITE_GRADIENT));
    expect_ok(graph_check(d->graph));
    golden_start(d);
    golden_fill(d, golden_input(d, "tokens"), "tokens");
    golden_fill(d, golden_input(d, "targets"), "targets");
    struct tensor one = eval_tensor(d->eval, seed);
    if (one.dtype == DTYPE_F64)
        *(double *)one.data = 1.0;
    else
        *(float *)one.data = 1.0f;
    expect_ok(eval_run(d->eval));
}

static void compare(const struct gradients *plain, const struct gradients *fused, const char *name,
                    double tolerance)
{
    for (int i = 0; i <= plain->golden.built.n_params; i++) {
        bool loss = i == plain->golden.built.n_params;
        value_id a = loss ? golden_loss(&plain->golden) : plain->of[i];
        value_id b = loss ? golden_loss(&fused->golden) : fused->of[i];
        double *x = golden_value(&plain->golden, a), *y = golden_value(&fused->golden, b);
        int64_t n = shape_elems(&graph_value(plain->golden.graph, a)->shape);
        double error = relative_error(y, x, n);
        if (!(error <= tolerance))
            fail_msg("%s: %s differs by %g", name,
                     loss ? "the loss" : plain->golden.built.params[i].name, error);
        mem_free(x);
        mem_free(y);
    }
}

static void rewritten_models_give_the_same_gradients(void **state)
{
    (void)state;
    static const struct {
        enum dtype dtype;
        double tolerance;
    } cases[] = {{DTYPE_F64, 1e-12}, {DTYPE_F32, 1e-5}, {DTYPE_BF16, 0.05}};
    for (int i = 0; golden_names[i]; i++) {
        struct golden_facts facts = golden_facts_of(golden_names[i]);
        bool has_none = facts.norms_sums;
        for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
            struct gradients plain, fused;
            if (facts.has_experts && cases[k].dtype == DTYPE_BF16)
                continue; /* a rounding sends a token to another expert */
            gradients_run(&plain, golden_names[i], cases[k].dtype, false);
            gradients_run(&fused, golden_names[i], cases[k].dtype, true);
            assert_true(has_none || fused.golden.graph->nodes.n < plain.golden.graph->nodes.n);
            compare(&plain, &fused, golden_names[i], cases[k].tolerance);
            golden_close(&plain.golden);
            golden_close(&fused.golden);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_residual_moves_into_the_linear),
        cmocka_unit_test(a_residual_moves_through_a_sum_of_products),
        cmocka_unit_test(of_two_linears_the_later_takes_the_other),
        cmocka_unit_test(a_linear_with_another_reader_stays),
        cmocka_unit_test(a_sum_that_broadcasts_stays),
        cmocka_unit_test(a_residual_made_later_stays),
        cmocka_unit_test(a_residual_of_another_dtype_stays),
        cmocka_unit_test(a_linear_takes_one_residual),
        cmocka_unit_test(rules_do_not_reach_into_another_block_or_pass),
        cmocka_unit_test(a_bias_moves_into_gelu),
        cmocka_unit_test(gelu_stays_where_no_bias_can_move),
        cmocka_unit_test(a_bias_overwritten_before_gelu_stays),
        cmocka_unit_test(a_sum_moves_into_the_norm_gradient),
        cmocka_unit_test(a_norm_gradient_stays_where_the_sum_cannot_move),
        cmocka_unit_test(an_activation_moves_into_the_batch_norm),
        cmocka_unit_test(film_moves_behind_the_activation_of_a_batch_norm),
        cmocka_unit_test(batch_norms_stay_where_nothing_can_move),
        cmocka_unit_test(a_training_step_has_no_plain_sum_or_gelu_left),
        cmocka_unit_test(what_activations_make_is_not_read_in_the_backward_pass),
        cmocka_unit_test(rewritten_models_give_the_same_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
