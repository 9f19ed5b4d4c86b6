/* The optimizer's stage on its own: which states, masters and updates a parameter gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "autodiff/autodiff.h"
#include "base/compiler.h"
#include "optim/optimizer.h"
#include "support/golden.h"

enum { TABLE, WEIGHT, BIAS, HEAD, N_PARAMS };

static const char *const names[N_PARAMS] = {"table", "weight", "bias", "head"};

/* loss = cross entropy of head (weight table[ids] + bias); matrices have 4096 elements, the
 * bias 64.
 */
struct net {
    struct graph *g;
    struct optimizer_param params[N_PARAMS];
    value_id loss, count;
};

static void net_init(struct net *n)
{
    struct builder b;
    struct shape square = shape_of(2, INT64_C(64), INT64_C(64)), row = shape_of(1, INT64_C(64));
    struct optimizer_param *p = n->params;
    *n = (struct net){0};
    expect_ok(graph_new(&n->g, "net"));
    builder_init(&b, n->g);
    b.pass = PASS_FORWARD;
    value_id ids = build_value(&b, "ids", ROLE_INPUT, DTYPE_I32, shape_of(1, INT64_C(3)));
    value_id targets = build_value(&b, "targets", ROLE_INPUT, DTYPE_I32, shape_of(1, INT64_C(3)));
    for (int i = 0; i < N_PARAMS; i++) {
        value_id v = build_value(&b, names[i], ROLE_PARAMETER, DTYPE_F32, i == BIAS ? row : square);
        p[i] = (struct optimizer_param){.name = names[i], .value = v, .decay = i != BIAS};
    }
    value_id x = build(&b, OP_embedding, IN(p[TABLE].value, ids), NO_ATTRS);
    value_id y = build(&b, OP_linear, IN(x, p[WEIGHT].value, p[BIAS].value), NO_ATTRS);
    n->loss = build(&b, OP_linear_cross_entropy, IN(y, p[HEAD].value, targets), NO_ATTRS);
    n->count = build_output(&b, 1);
    expect_ok(builder_status(&b));
}

static enum status net_finish(struct net *n, const struct optimizer_options *o)
{
    value_id seed;
    expect_ok(
        graph_add_value(n->g, "seed", ROLE_INPUT, DTYPE_F32, shape_of(1, INT64_C(1)), NULL, &seed));
    expect_ok(
        optimizer_gradients(n->g, &(struct autodiff_root){n->loss, seed}, 1, n->params, N_PARAMS));
    n->loss = adopted_value(n->g, n->loss);
    n->count = adopted_value(n->g, n->count);
    expect_ok(adopt_forward(n->g));
    expect_ok(precision_apply(n->g, &o->precision));
    const struct graph_output sums[] = {{"loss", n->loss}, {"count", n->count}};
    TRY(optimizer_apply(n->g, o, n->params, N_PARAMS,
                        &(struct optimizer_sums){sums, ARRAY_LEN(sums), 1}));
    return graph_check(n->g);
}

static struct optimizer_options adamw_with(struct precision p)
{
    return (struct optimizer_options){.kind = OPTIMIZER_ADAMW,
                                      .beta1 = 0.9,
                                      .beta2 = 0.99,
                                      .epsilon = 1e-8,
                                      .weight_decay = 0.1,
                                      .n_micro = 1,
                                      .nominal_count = 1.0,
                                      .precision = p};
}

/* The value that outlives a step under a name, or NULL. */
static const struct value *kept(const struct net *n, const char *prefix, const char *name,
                                const char *suffix)
{
    char text[128];
    (void)snprintf(text, sizeof(text), "%s%s%s", prefix, name, suffix);
    value_id v = graph_find_value(n->g, text);
    return v == VALUE_NONE ? NULL : graph_value(n->g, v);
}

static int count_nodes(const struct net *n, enum op_id op)
{
    int count = 0;
    for (size_t k = 0; k < n->g->nodes.n; k++)
        count += graph_node(n->g, (node_id)k)->op == op;
    return count;
}

/* ---- states by format ------------------------------------------------------------------------ */

static void states_are_tensors_of_the_format_that_was_asked_for(void **state)
{
    const struct {
        enum format format;
        enum dtype dtype;
    } cases[] = {{FORMAT_F32, DTYPE_F32}, {FORMAT_BF16, DTYPE_BF16}};
    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        struct net n;
        struct precision p = precision_f32();
        p.states = cases[c].format;
        struct optimizer_options o = adamw_with(p);
        net_init(&n);
        expect_ok(net_finish(&n, &o));
        for (int i = 0; i < N_PARAMS; i++) {
            const struct value *m = kept(&n, "m.", names[i], ""), *v = kept(&n, "v.", names[i], "");
            assert_int_equal(m->role, ROLE_STATE);
            assert_int_equal(m->dtype, cases[c].dtype);
            assert_int_equal(v->dtype, cases[c].dtype);
            assert_true(shape_equal(&m->shape, &graph_value(n.g, n.params[i].value)->shape));
            assert_null(kept(&n, "master.", names[i], ""));
        }
        assert_int_equal(count_nodes(&n, OP_adamw), N_PARAMS);
        graph_free(n.g);
    }
}

static void block_wise_states_are_codes_and_scales_and_small_tensors_keep_f32(void **state)
{
    (void)state;
    for (int masters = 0; masters <= 1; masters++) {
        struct net n;
        struct precision p = precision_bf16();
        p.states = FORMAT_BLOCK8;
        p.masters = masters;
        struct optimizer_options o = adamw_with(p);
        net_init(&n);
        expect_ok(net_finish(&n, &o));
        const struct value *m = kept(&n, "m.", "weight", ""), *v = kept(&n, "v.", "weight", "");
        assert_int_equal(m->dtype, DTYPE_U8);
        assert_int_equal(v->dtype, DTYPE_U8);
        assert_true(shape_equal(&m->shape, &graph_value(n.g, n.params[WEIGHT].value)->shape));
        m = kept(&n, "m.", "weight", ".absmax");
        assert_int_equal(m->role, ROLE_STATE);
        assert_int_equal(m->dtype, DTYPE_F32);
        assert_int_equal(shape_elems(&m->shape), 64 * 64 / 256);
        assert_int_equal(kept(&n, "m.", "bias", "")->dtype, DTYPE_F32);
        assert_null(kept(&n, "m.", "bias", ".absmax"));
        assert_int_equal(count_nodes(&n, masters ? OP_adamw_8bit_master : OP_adamw_8bit), 3);
        assert_int_equal(count_nodes(&n, masters ? OP_adamw_master : OP_adamw), 1);
        graph_free(n.g);
    }
}

/* ---- gradients that are products ------------------------------------------------------------- */

enum { WIDE = 1024 };

/* loss = the sum of `weight` x, for some rows of x. */
static void wide_init(struct net *n, int64_t n_rows)
{
    struct builder b;
    *n = (struct net){0};
    expect_ok(graph_new(&n->g, "wide"));
    builder_init(&b, n->g);
    b.pass = PASS_FORWARD;
    value_id x = build_value(&b, "x", ROLE_INPUT, DTYPE_F32, shape_of(2, n_rows, (int64_t)WIDE));
    value_id w = build_value(&b, "weight", ROLE_PARAMETER, DTYPE_F32,
                             shape_of(2, (int64_t)WIDE, (int64_t)WIDE));
    n->params[0] = (struct optimizer_param){.name = "weight", .value = w};
    value_id y = build(&b, OP_linear, IN(x, w), NO_ATTRS);
    n->loss = build(&b, OP_sum, IN(y), NO_ATTRS);
    expect_ok(builder_status(&b));
}

/* How its weight is updated: how often by each op, and whether its gradient is made. */
static void expect_update(int64_t n_rows, int n_micro, enum op_id op, bool is_made)
{
    struct net n;
    value_id seed;
    struct precision p = precision_f32();
    p.states = FORMAT_BLOCK8;
    struct optimizer_options o = adamw_with(p);
    o.n_micro = n_micro;
    wide_init(&n, n_rows);
    expect_ok(
        graph_add_value(n.g, "seed", ROLE_INPUT, DTYPE_F32, shape_of(1, INT64_C(1)), NULL, &seed));
    expect_ok(optimizer_gradients(n.g, &(struct autodiff_root){n.loss, seed}, 1, n.params, 1));
    n.loss = adopted_value(n.g, n.loss);
    expect_ok(adopt_forward(n.g));
    expect_ok(precision_apply(n.g, &o.precision));
    const struct graph_output sums[] = {{"loss", n.loss}};
    expect_ok(optimizer_apply(n.g, &o, n.params, 1, &(struct optimizer_sums){sums, 1, 0}));
    expect_ok(graph_check(n.g));
    assert_int_equal(count_nodes(&n, op), 1);
    assert_int_equal(count_nodes(&n, OP_linear_grad_weight), is_made);
    graph_free(n.g);
}

static void a_product_of_a_few_rows_is_updated_by_and_never_made(void **state)
{
    (void)state;
    expect_update(2, 1, OP_adamw_8bit_product, false);
    expect_update(4, 1, OP_adamw_8bit_product, false);
    expect_update(5, 1, OP_adamw_8bit, true);
    expect_update(2, 3, OP_adamw_8bit, true); /* a sum of products is none */
}

static void a_rule_without_an_op_for_a_format_says_so(void **state)
{
    struct net n;
    struct precision p = precision_f32();
    (void)state;
    p.states = FORMAT_BLOCK8;
    struct optimizer_options o = adamw_with(p);
    o.kind = OPTIMIZER_SGD;
    o.momentum = 0.9;
    net_init(&n);
    assert_int_equal(net_finish(&n, &o), ERR_UNSUPPORTED);
    assert_string_equal(status_message(), "sgd with momentum has no update for states in 8-bit");
    graph_free(n.g);
}

static void a_master_goes_to_the_update_that_has_one(void **state)
{
    struct net n;
    struct optimizer_options o = adamw_with(precision_bf16());
    (void)state;
    net_init(&n);
    expect_ok(net_finish(&n, &o));
    for (int i = 0; i < N_PARAMS; i++) {
        assert_int_equal(kept(&n, "master.", names[i], "")->role, ROLE_MASTER);
        assert_int_equal(kept(&n, "master.", names[i], "")->dtype, DTYPE_F32);
    }
    assert_int_equal(count_nodes(&n, OP_adamw_master), N_PARAMS);
    assert_int_equal(count_nodes(&n, OP_adamw), 0);
    graph_free(n.g);
}

static void momentum_is_kept_in_f32_or_bf16_beside_a_master_or_not(void **state)
{
    const enum format formats[] = {FORMAT_F32, FORMAT_BF16};
    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(formats); i++) {
        struct net n;
        struct precision p = precision_bf16();
        p.states = formats[i / 2];
        p.masters = i % 2;
        struct optimizer_options o = adamw_with(p);
        o.kind = OPTIMIZER_SGD;
        o.momentum = 0.9;
        net_init(&n);
        expect_ok(net_finish(&n, &o));
        assert_int_equal(count_nodes(&n, OP_sgd_momentum) + count_nodes(&n, OP_sgd_momentum_master),
                         N_PARAMS);
        assert_int_equal(count_nodes(&n, OP_sgd_momentum_master) > 0, p.masters);
        assert_int_equal(kept(&n, "master.", "weight", "") != NULL, p.masters);
        graph_free(n.g);
    }
}

static void sgd_keeps_a_buffer_only_with_momentum(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct net n;
        struct optimizer_options o = adamw_with(precision_f32());
        o.kind = OPTIMIZER_SGD;
        o.momentum = i ? 0.9 : 0.0;
        net_init(&n);
        expect_ok(net_finish(&n, &o));
        assert_int_equal(kept(&n, "momentum.", "weight", "") != NULL, i);
        assert_null(kept(&n, "m.", "weight", ""));
        assert_int_equal(count_nodes(&n, i ? OP_sgd_momentum : OP_sgd), N_PARAMS);
        graph_free(n.g);
    }
}

static void decay_and_rounding_seeds_are_each_parameters_own(void **state)
{
    struct net n;
    struct optimizer_options o = adamw_with(precision_f32());
    int64_t seeds[N_PARAMS];
    int n_updates = 0;
    (void)state;
    o.seed = 5;
    net_init(&n);
    expect_ok(net_finish(&n, &o));
    for (size_t k = 0; k < n.g->nodes.n; k++) {
        const struct node *node = graph_node(n.g, (node_id)k);
        if (node->op != OP_adamw)
            continue;
        bool is_bias = node->in[0] == n.params[BIAS].value;
        assert_true(node_attr(node, "weight_decay")->f == (is_bias ? 0.0 : 0.1));
        seeds[n_updates++] = node_attr(node, "seed")->i;
    }
    assert_int_equal(n_updates, N_PARAMS);
    assert_true(seeds[0] != 0 && seeds[0] != seeds[1] && seeds[1] != seeds[2]);
    graph_free(n.g);
}

/* Each update belongs to the block its gradient is of; the norm is over all, and so of none. */
static void the_norm_belongs_to_no_block(void **state)
{
    struct net n;
    struct optimizer_options o = adamw_with(precision_f32());
    int n_clips = 0;
    (void)state;
    o.max_grad_norm = 1.0;
    net_init(&n);
    for (size_t k = 0; k < n.g->nodes.n; k++)
        n.g->nodes.items[k].block = 1;
    expect_ok(net_finish(&n, &o));
    for (size_t k = 0; k < n.g->nodes.n; k++) {
        const struct node *node = graph_node(n.g, (node_id)k);
        if (node->op == OP_adamw)
            assert_int_equal(node->block, 1);
        n_clips += node->op == OP_clip_scale;
        if (node->op == OP_clip_scale)
            assert_int_equal(node->block, BLOCK_NONE);
    }
    assert_int_equal(n_clips, 1);
    graph_free(n.g);
}

/* Sums over micro-steps are of the blocks their gradients are of; those of the losses of none. */
static void sums_of_losses_belong_to_no_block(void **state)
{
    struct net n;
    struct optimizer_options o = adamw_with(precision_f32());
    int n_sums = 0;
    (void)state;
    o.n_micro = 4;
    net_init(&n);
    for (size_t k = 0; k < n.g->nodes.n; k++)
        n.g->nodes.items[k].block = 1;
    expect_ok(net_finish(&n, &o));
    for (size_t k = 0; k < n.g->nodes.n; k++) {
        const struct node *node = graph_node(n.g, (node_id)k);
        const struct value *root = graph_value(n.g, value_root(n.g, node->out[0]));
        if (node->op != OP_accumulate)
            continue;
        n_sums += root->role == ROLE_METRIC;
        assert_int_equal(node->block, root->role == ROLE_METRIC ? BLOCK_NONE : 1);
    }
    assert_true(n_sums > 0);
    graph_free(n.g);
}

/* ---- frozen parameters ----------------------------------------------------------------------- */

static void a_frozen_parameter_gets_no_gradient_no_state_and_no_master(void **state)
{
    struct net n;
    struct optimizer_options o = adamw_with(precision_bf16());
    (void)state;
    net_init(&n);
    n.params[WEIGHT].frozen = true;
    expect_ok(net_finish(&n, &o));
    assert_int_equal(n.params[WEIGHT].grad, VALUE_NONE);
    assert_null(kept(&n, "m.", "weight", ""));
    assert_null(kept(&n, "v.", "weight", ""));
    assert_null(kept(&n, "master.", "weight", ""));
    assert_non_null(kept(&n, "m.", "table", ""));
    assert_int_equal(count_nodes(&n, OP_adamw_master), N_PARAMS - 1);
    assert_int_equal(count_nodes(&n, OP_linear_grad_weight), 0);
    assert_int_equal(count_nodes(&n, OP_linear_grad_input), 1);
    assert_int_equal(graph_value(n.g, n.params[WEIGHT].value)->dtype, DTYPE_BF16);
    graph_free(n.g);
}

static void nothing_is_built_behind_the_first_trained_parameter(void **state)
{
    struct net n;
    struct optimizer_options o = adamw_with(precision_f32());
    (void)state;
    net_init(&n);
    n.params[TABLE].frozen = true;
    expect_ok(net_finish(&n, &o));
    assert_int_equal(count_nodes(&n, OP_embedding_grad), 0);
    assert_int_equal(count_nodes(&n, OP_linear_grad_input), 0);
    assert_int_equal(count_nodes(&n, OP_linear_grad_weight), 1);
    graph_free(n.g);
}

/* Sums over micro-steps, norm and updates leave frozen ones out. */
static void accumulation_and_norm_leave_frozen_parameters_out(void **state)
{
    struct net n;
    struct optimizer_options o = adamw_with(precision_f32());
    (void)state;
    o.n_micro = 4;
    o.max_grad_norm = 1.0;
    net_init(&n);
    for (int i = 0; i < N_PARAMS; i++)
        n.params[i].frozen = i != WEIGHT;
    expect_ok(net_finish(&n, &o));
    assert_null(kept(&n, "grad.", "table", ""));
    assert_non_null(kept(&n, "grad.", "weight", ""));
    assert_int_equal(count_nodes(&n, OP_sum_squares), 1);
    assert_int_equal(count_nodes(&n, OP_adamw), 1);
    graph_free(n.g);
}

/* A run in which nothing learns is the forward pass and its loss. */
static void with_every_parameter_frozen_there_is_no_backward_pass(void **state)
{
    struct net n;
    struct optimizer_options o = adamw_with(precision_f32());
    (void)state;
    net_init(&n);
    for (int i = 0; i < N_PARAMS; i++)
        n.params[i].frozen = true;
    expect_ok(net_finish(&n, &o));
    for (size_t k = 0; k < n.g->nodes.n; k++)
        assert_int_not_equal(graph_node(n.g, (node_id)k)->pass, PASS_BACKWARD);
    assert_int_equal(count_nodes(&n, OP_linear_cross_entropy), 1);
    graph_free(n.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_tensors_of_the_format_that_was_asked_for),
        cmocka_unit_test(block_wise_states_are_codes_and_scales_and_small_tensors_keep_f32),
        cmocka_unit_test(a_product_of_a_few_rows_is_updated_by_and_never_made),
        cmocka_unit_test(a_rule_without_an_op_for_a_format_says_so),
        cmocka_unit_test(a_master_goes_to_the_update_that_has_one),
        cmocka_unit_test(momentum_is_kept_in_f32_or_bf16_beside_a_master_or_not),
        cmocka_unit_test(sgd_keeps_a_buffer_only_with_momentum),
        cmocka_unit_test(decay_and_rounding_seeds_are_each_parameters_own),
        cmocka_unit_test(the_norm_belongs_to_no_block),
        cmocka_unit_test(sums_of_losses_belong_to_no_block),
        cmocka_unit_test(a_frozen_parameter_gets_no_gradient_no_state_and_no_master),
        cmocka_unit_test(nothing_is_built_behind_the_first_trained_parameter),
        cmocka_unit_test(accumulation_and_norm_leave_frozen_parameters_out),
        cmocka_unit_test(with_every_parameter_frozen_there_is_no_backward_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
