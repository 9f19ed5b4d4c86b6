/* Samples that share a row: losses and gradients are those of rows of their own, and what a
 * neighbour says changes not one bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/autodiff.h"
#include "base/alloc.h"
#include "support/golden.h"

enum { MOST_PARAMS = 64, SAMPLES = 2, ALL = SAMPLES * GOLDEN_LENGTH, PADDED = ALL + 9 };

/* A training graph of a golden model with its gradients. */
struct step {
    struct golden g;
    value_id seed, grads[MOST_PARAMS];
};

static void open_step(struct step *s, const char *name, const struct model_request *r)
{
    value_id wanted[MOST_PARAMS];
    struct autodiff_root roots[MODEL_MOST_LOSSES];
    struct golden *g = &s->g;
    golden_open(g, name, "config.json", r);
    s->seed = build_value(&g->builder, "seed", ROLE_INPUT, DTYPE_F32, shape_of(1, INT64_C(1)));
    for (int i = 0; i < g->built.n_losses; i++) {
        const struct model_loss *l = &g->built.losses[i];
        value_id own =
            build(&g->builder, OP_scale, IN(s->seed), ATTRS({.name = "factor", .f = l->weight}));
        roots[i] = (struct autodiff_root){g->built.sums[l->sum].value, own};
    }
    assert_in_range(g->built.n_params, 1, MOST_PARAMS);
    for (int i = 0; i < g->built.n_params; i++)
        wanted[i] = g->built.params[i].value;
    expect_ok(autodiff_roots(g->graph, roots, (size_t)g->built.n_losses, wanted,
                             (size_t)g->built.n_params, s->grads));
    golden_start(g);
    *(float *)eval_tensor(g->eval, s->seed).data = 1.0f / ALL;
}

/* The golden tensor, sample after sample, and `rest` behind it. */
static void fill(const struct golden *g, const char *name, int32_t rest)
{
    const struct st_tensor *from;
    struct tensor t = eval_tensor(g->eval, golden_input(g, name));
    expect_ok(st_reader_get(g->reader, name, &from));
    memcpy(t.data, from->data, ALL * sizeof(int32_t));
    for (int64_t i = ALL; i < shape_elems(&t.shape); i++)
        ((int32_t *)t.data)[i] = rest;
}

static int32_t *input(const struct golden *g, const char *name)
{
    return eval_tensor(g->eval, golden_input(g, name)).data;
}

/* One row with all samples, and padding behind them where it is longer. */
static void open_packed(struct step *s, const char *name, int64_t length)
{
    struct model_request r = {
        .purpose = MODEL_TRAIN, .batch = 1, .seq_len = length, .dtype = DTYPE_F32, .packed = true};
    open_step(s, name, &r);
    fill(&s->g, "tokens", 3);
    fill(&s->g, "targets", -100);
    int32_t *positions = input(&s->g, "positions");
    for (int64_t i = 0; i < length; i++)
        positions[i] = i < ALL ? (int32_t)(i % GOLDEN_LENGTH) : 0;
}

static void expect_equal(const char *model, const char *what, const struct golden *a, value_id x,
                         const struct golden *b, value_id y)
{
    double *got = golden_value(a, x), *due = golden_value(b, y);
    int64_t n = shape_elems(&graph_value(a->graph, x)->shape);
    double error = relative_error(got, due, n);
    if (!(error <= 1e-6))
        fail_msg("%s: %s differs by %.3g", model, what, error);
    mem_free(got);
    mem_free(due);
}

/* Routers see padding, and their losses count it: those rows have none. */
static void check_model(const char *name)
{
    struct model_request rows = {
        .purpose = MODEL_TRAIN, .batch = SAMPLES, .seq_len = GOLDEN_LENGTH, .dtype = DTYPE_F32};
    struct step apart, packed;
    open_step(&apart, name, &rows);
    fill(&apart.g, "tokens", 0);
    fill(&apart.g, "targets", 0);
    open_packed(&packed, name, golden_facts_of(name).has_experts ? ALL : PADDED);
    expect_ok(eval_run(apart.g.eval));
    expect_ok(eval_run(packed.g.eval));
    for (int i = 0; i < apart.g.built.n_sums; i++)
        expect_equal(name, apart.g.built.sums[i].name, &packed.g, packed.g.built.sums[i].value,
                     &apart.g, apart.g.built.sums[i].value);
    for (int i = 0; i < apart.g.built.n_params; i++)
        expect_equal(name, apart.g.built.params[i].name, &packed.g, packed.grads[i], &apart.g,
                     apart.grads[i]);
    golden_close(&apart.g);
    golden_close(&packed.g);
}

static void packed_samples_have_the_losses_and_gradients_of_rows_of_their_own(void **state)
{
    (void)state;
    for (int i = 0; golden_trained[i]; i++)
        check_model(golden_trained[i]);
}

/* Loss and gradients of one sample alone, with the other as `shift` makes it. */
static void run_one(struct step *s, const char *name, int own, int32_t shift)
{
    open_packed(s, name, PADDED);
    int32_t *tokens = input(&s->g, "tokens"), *targets = input(&s->g, "targets");
    for (int i = 0; i < ALL; i++) {
        if (i / GOLDEN_LENGTH == own)
            continue;
        tokens[i] = (tokens[i] + shift) % GOLDEN_VOCAB;
        targets[i] = -100;
    }
    expect_ok(eval_run(s->g.eval));
}

static void expect_same_bits(const struct step *a, const struct step *b, value_id x, value_id y)
{
    struct tensor s = eval_tensor(a->g.eval, x), t = eval_tensor(b->g.eval, y);
    assert_int_equal(tensor_bytes(&s), tensor_bytes(&t));
    for (int64_t i = 0; i < shape_elems(&s.shape); i++)
        assert_true(((float *)s.data)[i] == ((float *)t.data)[i]);
}

static void what_a_neighbour_says_changes_nothing(void **state)
{
    static const char *const names[] = {"gpt2", "llama3", "gemma2"};
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        struct step a, b;
        run_one(&a, names[k], (int)k % SAMPLES, 0);
        run_one(&b, names[k], (int)k % SAMPLES, 31);
        assert_true(*(float *)eval_tensor(a.g.eval, golden_loss(&a.g)).data > 0);
        expect_same_bits(&a, &b, golden_loss(&a.g), golden_loss(&b.g));
        for (int i = 0; i < a.g.built.n_params; i++)
            expect_same_bits(&a, &b, a.grads[i], b.grads[i]);
        golden_close(&a.g);
        golden_close(&b.g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_samples_have_the_losses_and_gradients_of_rows_of_their_own),
        cmocka_unit_test(what_a_neighbour_says_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
