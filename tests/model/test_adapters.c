/* Adapters against PEFT: logits, and the gradient of everything that is trained. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/autodiff.h"
#include "base/alloc.h"
#include "io/peft.h"
#include "support/golden.h"

static struct model_request request(enum model_purpose purpose, enum dtype dtype)
{
    return (struct model_request){
        .purpose = purpose, .batch = GOLDEN_BATCH, .seq_len = GOLDEN_LENGTH, .dtype = dtype};
}

static void expect_close(const char *model, const char *what, double error, double tolerance)
{
    if (!(error <= tolerance))
        fail_msg("%s: %s differs by %.3g (allowed %.3g)", model, what, error, tolerance);
}

static void check_logits(const struct golden_adapter *a, enum dtype dtype, double tolerance)
{
    struct golden g;
    struct model_request r = request(MODEL_SCORE, dtype);
    golden_open_adapted(&g, a, &r);
    golden_start(&g);
    golden_fill(&g, golden_input(&g, "tokens"), "tokens");
    expect_ok(eval_run(g.eval));
    double *due, *got = golden_value(&g, g.built.logits);
    int64_t n = golden_get(&g, "logits", &due);
    expect_close(a->name, "logits", relative_error(got, due, n), tolerance);
    mem_free(due);
    mem_free(got);
    golden_close(&g);
}

static void logits_equal_those_of_peft(void **state)
{
    (void)state;
    for (const struct golden_adapter *a = golden_adapters; a->name; a++) {
        check_logits(a, DTYPE_F32, 1e-5);
        check_logits(a, DTYPE_F64, 5e-7);
    }
}

/* ---- gradients ------------------------------------------------------------------------------- */

struct gradients {
    struct golden g;
    value_id seed, wanted[128], grads[128];
    const struct model_param *params[128];
    size_t n;
};

static void differentiate(struct gradients *x, const struct golden_adapter *a, enum dtype dtype)
{
    struct model_request r = request(MODEL_TRAIN, dtype);
    memset(x, 0, sizeof(*x));
    golden_open_adapted(&x->g, a, &r);
    value_id loss = golden_loss(&x->g);
    x->seed = build_value(&x->g.builder, "seed", ROLE_INPUT, graph_value(x->g.graph, loss)->dtype,
                          shape_of(1, INT64_C(1)));
    for (int i = 0; i < x->g.built.n_params; i++) {
        if (x->g.built.params[i].frozen)
            continue;
        x->params[x->n] = &x->g.built.params[i];
        x->wanted[x->n++] = x->g.built.params[i].value;
    }
    expect_ok(autodiff(x->g.graph, loss, x->seed, x->wanted, x->n, x->grads));
    expect_ok(graph_check(x->g.graph));
}

static double count_targets(const struct golden *g)
{
    struct tensor t = eval_tensor(g->eval, golden_input(g, "targets"));
    int n = 0;
    for (int64_t i = 0; i < shape_elems(&t.shape); i++)
        n += ((const int32_t *)t.data)[i] >= 0;
    return n;
}

/* The gradient of what the adapter's file has as parameter i, by the names it has there. */
static void check_gradient(const struct gradients *x, const struct peft_table *t, int i,
                           const char *name, double tolerance)
{
    const struct model_param *p = &t->params[i];
    double *due, *got = golden_value(&x->g, x->grads[i]), *at = got;
    assert_int_equal(p->value, x->wanted[i]);
    for (int k = 0; k < p->n_pieces; k++) {
        char tensor[256];
        (void)snprintf(tensor, sizeof(tensor), "grad.%s", p->pieces[k].name);
        int64_t n = golden_get(&x->g, tensor, &due);
        assert_int_equal(n, p->pieces[k].rows * param_row_elems(p));
        expect_close(name, tensor, relative_error(at, due, n), tolerance);
        mem_free(due);
        at += n;
    }
    mem_free(got);
}

static void check_training(const struct golden_adapter *a, enum dtype dtype, double tolerance)
{
    static struct gradients x;
    differentiate(&x, a, dtype);
    golden_start(&x.g);
    golden_fill(&x.g, golden_input(&x.g, "tokens"), "tokens");
    golden_fill(&x.g, golden_input(&x.g, "targets"), "targets");
    struct tensor seed = eval_tensor(x.g.eval, x.seed);
    double count = count_targets(&x.g);
    if (seed.dtype == DTYPE_F64)
        *(double *)seed.data = 1 / count;
    else
        *(float *)seed.data = (float)(1 / count);
    expect_ok(eval_run(x.g.eval));
    /* What PEFT trains and what we do is the same: the golden file has these and no others. */
    struct peft_table t;
    int n_due = 0, n_pieces = 0;
    expect_ok(peft_table_make(&t, x.g.built.params, x.g.built.n_params));
    assert_int_equal(t.n, x.n);
    for (int i = 0; i < t.n; i++) {
        n_pieces += t.params[i].n_pieces;
        check_gradient(&x, &t, i, a->name, tolerance);
    }
    for (size_t i = 0; i < st_reader_count(x.g.adapter_reader); i++)
        n_due += strncmp(st_reader_at(x.g.adapter_reader, i)->name, "grad.", 5) == 0;
    assert_int_equal(n_pieces, n_due);
    peft_table_release(&t);
    golden_close(&x.g);
}

static void every_gradient_equals_that_of_peft(void **state)
{
    (void)state;
    for (const struct golden_adapter *a = golden_adapters; a->name; a++) {
        check_training(a, DTYPE_F32, 1e-5);
        check_training(a, DTYPE_F64, 2e-6);
    }
}

/* ---- what is built --------------------------------------------------------------------------- */

static void frozen_weights_are_a_role_of_their_own(void **state)
{
    (void)state;
    struct golden g;
    struct model_request r = request(MODEL_TRAIN, DTYPE_F32);
    golden_open_adapted(&g, &golden_adapters[1], &r);
    int n_trained = 0;
    for (int i = 0; i < g.built.n_params; i++) {
        const struct model_param *p = &g.built.params[i];
        bool is_head = strcmp(p->name, "head.weight") == 0;
        assert_int_equal(!p->frozen, p->adapter || is_head);
        assert_int_equal(graph_value(g.graph, p->value)->role,
                         p->frozen ? ROLE_FROZEN : ROLE_PARAMETER);
        n_trained += !p->frozen;
    }
    assert_int_equal(n_trained, 17);
    assert_int_equal(g.built.n_adapters, 8);
    golden_close(&g);
}

/* No product makes the gradient of a weight that is not trained, and nothing that the first block
 * reads has a gradient: no parameter lies behind it. */
static void no_gradient_is_made_that_nothing_reads(void **state)
{
    (void)state;
    static struct gradients x;
    for (const struct golden_adapter *a = golden_adapters; a->name; a++) {
        differentiate(&x, a, DTYPE_F32);
        for (size_t i = 0; i < x.n; i++)
            expect_ok(graph_add_output(x.g.graph, x.params[i]->name, x.grads[i]));
        for (int i = 0; i < x.g.built.n_sums; i++)
            expect_ok(graph_add_output(x.g.graph, x.g.built.sums[i].name, x.g.built.sums[i].value));
        expect_ok(graph_add_output(x.g.graph, "minimised", golden_loss(&x.g)));
        size_t n_nodes = x.g.graph->nodes.n;
        expect_ok(graph_eliminate_dead(x.g.graph));
        /* beside the loss's count of targets, which belongs to the loss's own node */
        assert_int_equal(x.g.graph->nodes.n, n_nodes);
        golden_close(&x.g);
    }
}

/* The head is frozen in all of these but one, whose file names it. */
static void a_frozen_head_has_no_gradient_of_its_weight(void **state)
{
    (void)state;
    static struct gradients x;
    for (const struct golden_adapter *a = golden_adapters; a->name; a++) {
        int n_whole = 0, n_input = 0;
        differentiate(&x, a, DTYPE_F32);
        for (size_t i = 0; i < x.g.graph->nodes.n; i++) {
            n_whole += x.g.graph->nodes.items[i].op == OP_linear_cross_entropy_grad;
            n_input += x.g.graph->nodes.items[i].op == OP_linear_cross_entropy_grad_input;
        }
        bool is_trained = strcmp(a->name, "llama_patterns") == 0;
        assert_int_equal(n_whole, is_trained);
        assert_int_equal(n_input, !is_trained);
        golden_close(&x.g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_equal_those_of_peft),
        cmocka_unit_test(every_gradient_equals_that_of_peft),
        cmocka_unit_test(frozen_weights_are_a_role_of_their_own),
        cmocka_unit_test(no_gradient_is_made_that_nothing_reads),
        cmocka_unit_test(a_frozen_head_has_no_gradient_of_its_weight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
