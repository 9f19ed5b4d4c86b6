/* Update rules over a few steps against their references (tools/make_optimizer_goldens.py), as the
 * optimizer's stage writes them into a graph. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "io/safetensors.h"
#include "optim/optimizer.h"
#include "support/golden.h"

enum { STEPS = 4 };
static const double LR = 0.02;

/* ---- the formulas of the tool ---------------------------------------------------------------- */

static float start(int64_t i)
{
    return (float)cos(0.11 * (double)i + 0.5);
}

static float gradient(int64_t k, int step)
{
    double i = (double)k;
    return (float)(sin(0.37 * i * (1 + 0.01 * i) + 1.3 * step) * pow(10.0, -3 + fmod(i, 7) / 3));
}

/* ---- a graph of one parameter and its update ------------------------------------------------- */

struct update {
    struct graph *g;
    struct eval *eval;
    struct optimizer_param param;
    value_id count;
};

static void clear_states(const struct update *u)
{
    for (value_id v = 0; (size_t)v < u->g->values.n; v++) {
        const struct value *x = graph_value(u->g, v);
        struct tensor t = eval_tensor(u->eval, v);
        if (x->producer == NODE_NONE && x->role == ROLE_STATE)
            memset(t.data, 0, (size_t)tensor_bytes(&t));
    }
}

/* `as` says which tensors of files the parameter holds. */
static void update_init_as(struct update *u, const struct optimizer_options *o, struct shape shape,
                           const struct optimizer_param *as)
{
    struct builder b;
    *u = (struct update){.param = *as};
    u->param.name = "p";
    u->param.decay = u->param.hidden = true;
    expect_ok(graph_new(&u->g, "update"));
    builder_init(&b, u->g);
    u->param.value = build_value(&b, "p", ROLE_PARAMETER, DTYPE_F32, shape);
    u->param.grad = build_value(&b, "g", ROLE_INPUT, DTYPE_F32, shape);
    u->count = build_value(&b, "count", ROLE_INPUT, DTYPE_F32, shape_of(1, INT64_C(1)));
    expect_ok(builder_status(&b));
    const struct graph_output sums[] = {{"count", u->count}};
    expect_ok(optimizer_apply(u->g, o, &u->param, 1, &(struct optimizer_sums){sums, 1, 0}));
    expect_ok(graph_check(u->g));
    expect_ok(eval_new(&u->eval, u->g, &(struct eval_options){.poison = 0xA5}));
    clear_states(u);
    float *p = eval_tensor(u->eval, u->param.value).data;
    for (int64_t i = 0; i < shape_elems(&shape); i++)
        p[i] = start(i);
}

static void update_init(struct update *u, const struct optimizer_options *o, struct shape shape)
{
    update_init_as(u, o, shape, &(struct optimizer_param){0});
}

static void *input(const struct update *u, const char *name)
{
    value_id v = graph_find_value(u->g, name);
    assert_true(v != VALUE_NONE);
    return eval_tensor(u->eval, v).data;
}

/* The parameter after so many steps. */
static const float *run_steps(struct update *u, int n_steps)
{
    int64_t n = shape_elems(&graph_value(u->g, u->param.value)->shape);
    for (int step = 1; step <= n_steps; step++) {
        float *g = input(u, "g");
        for (int64_t i = 0; i < n; i++)
            g[i] = gradient(i, step);
        *(float *)input(u, "lr") = (float)LR;
        *(int32_t *)input(u, "step") = step;
        *(float *)input(u, "count") = 1.0f;
        expect_ok(eval_run(u->eval));
    }
    return eval_tensor(u->eval, u->param.value).data;
}

static void update_release(struct update *u)
{
    eval_free(u->eval);
    graph_free(u->g);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static const struct st_tensor *golden(struct st_reader **r, const char *rule, const char *name)
{
    const struct st_tensor *t;
    char text[64];
    (void)snprintf(text, sizeof(text), "%s.%s", rule, name);
    expect_ok(st_reader_open_file(r, SNUG_SOURCE_DIR "/tests/golden/optimizers.safetensors"));
    expect_ok(st_reader_get(*r, text, &t));
    return t;
}

static void expect_golden(const char *rule, const char *name, const float *got, int64_t n,
                          double most)
{
    struct st_reader *r;
    const struct st_tensor *t = golden(&r, rule, name);
    assert_int_equal(t->n_bytes, n * (int64_t)sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        double want = (double)((const float *)t->data)[i];
        if (!(fabs((double)got[i] - want) <= most * (1.0 + fabs(want))))
            fail_msg("%s of %s, element %lld: %.9g, should be %.9g", rule, name, (long long)i,
                     (double)got[i], want);
    }
    st_reader_close(r);
}

static struct optimizer_options rule_of(enum optimizer_kind kind)
{
    return (struct optimizer_options){.kind = kind,
                                      .beta1 = 0.9,
                                      .beta2 = 0.99,
                                      .epsilon = 1e-8,
                                      .adafactor = {-0.8, 1.0, false, false, false},
                                      .muon = {0.95, true, false, 5},
                                      .weight_decay = 0.1,
                                      .n_micro = 1,
                                      .nominal_count = 1.0,
                                      .precision = precision_f32()};
}

/* A wide matrix, a tall one, a vector. */
static void expect_goldens(const char *rule, const struct optimizer_options *o, double most)
{
    const struct {
        const char *name;
        struct shape shape;
    } params[] = {{"wide", shape_of(2, INT64_C(6), INT64_C(10))},
                  {"tall", shape_of(2, INT64_C(12), INT64_C(5))},
                  {"bias", shape_of(1, INT64_C(7))}};
    for (size_t i = 0; i < ARRAY_LEN(params); i++) {
        struct update u;
        update_init(&u, o, params[i].shape);
        expect_golden(rule, params[i].name, run_steps(&u, STEPS), shape_elems(&params[i].shape),
                      most);
        update_release(&u);
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void lion_is_the_papers(void **state)
{
    struct optimizer_options o = rule_of(OPTIMIZER_LION);
    (void)state;
    expect_goldens("lion", &o, 1e-6);
}

/* A code may be the neighbour where a number lies on a border but for its last place; the sign of a
 * step then changes nowhere in these. */
static void lion_with_8_bits_is_that_of_bitsandbytes(void **state)
{
    enum { N = 4096 };
    struct optimizer_options o = rule_of(OPTIMIZER_LION);
    struct update u;
    struct st_reader *r;
    int n_other = 0;
    (void)state;
    o.precision.states = FORMAT_BLOCK8;
    update_init(&u, &o, shape_of(2, INT64_C(64), INT64_C(64)));
    expect_golden("lion_8bit", "p", run_steps(&u, STEPS), N, 1e-6);
    const uint8_t *codes = input(&u, "m.p"), *want = golden(&r, "lion_8bit", "codes")->data;
    for (int i = 0; i < N; i++) {
        assert_true(abs(codes[i] - want[i]) <= 1);
        n_other += codes[i] != want[i];
    }
    assert_true(n_other <= N / 100);
    st_reader_close(r);
    update_release(&u);
}

static void adafactor_is_that_of_transformers(void **state)
{
    struct optimizer_options o = rule_of(OPTIMIZER_ADAFACTOR);
    (void)state;
    o.precision.states = FORMAT_FACTORED;
    expect_goldens("adafactor", &o, 2e-6);
    o.adafactor = (struct adafactor_options){-0.5, 0.7, true, true, false};
    expect_goldens("adafactor_relative", &o, 2e-6);
    o.adafactor = (struct adafactor_options){-0.8, 1.0, true, true, true};
    expect_goldens("adafactor_warmup", &o, 2e-6);
}

/* q, k and v of one matrix, experts, convolutions: what files have apart is updated as transformers
 * updates it there. */
static void adafactor_of_what_a_parameter_holds_is_that_of_each(void **state)
{
    static const struct hf_piece matrices[] = {{"a", 4}, {"b", 2}, {"c", 6}},
                                 vectors[] = {{"a", 3}, {"b", 4}},
                                 experts[] = {{"0.a", 4}, {"0.b", 2}, {"1.a", 4}, {"1.b", 2}},
                                 biases[] = {{"0.a", 3}, {"0.b", 2}, {"1.a", 3}, {"1.b", 2}};
    static const struct {
        const char *name;
        struct shape shape, moment;
        struct optimizer_param as;
    } params[] = {
        {"pieces", {2, {12, 5}}, {2, {1, 12 + 3 * 5}}, {.pieces = matrices, .n_pieces = 3}},
        {"pieces_bias", {1, {7}}, {1, {7}}, {.pieces = vectors, .n_pieces = 2}},
        {"experts",
         {3, {2, 6, 5}},
         {2, {2, 6 + 2 * 5}},
         {.pieces = experts, .n_pieces = 4, .n_experts = 2}},
        {"experts_bias",
         {2, {2, 5}},
         {2, {2, 5}},
         {.pieces = biases, .n_pieces = 4, .n_experts = 2}},
        {"conv", {4, {2, 3, 2, 5}}, {2, {2, (3 + 2) * 5}}, {.channels_last = true}},
        {"conv_3d", {5, {2, 2, 3, 2, 3}}, {2, {2 * 2, (3 + 2) * 3}}, {.channels_last = true}},
        {"conv_1d", {3, {3, 4, 5}}, {2, {3, 4 + 5}}, {0}},
    };
    struct optimizer_options o = rule_of(OPTIMIZER_ADAFACTOR);
    (void)state;
    o.precision.states = FORMAT_FACTORED;
    o.adafactor = (struct adafactor_options){-0.5, 0.7, true, true, false};
    for (size_t i = 0; i < ARRAY_LEN(params); i++) {
        struct update u;
        update_init_as(&u, &o, params[i].shape, &params[i].as);
        value_id v = graph_find_value(u.g, "v.p");
        assert_true(shape_equal(&graph_value(u.g, v)->shape, &params[i].moment));
        expect_golden("adafactor_held", params[i].name, run_steps(&u, STEPS),
                      shape_elems(&params[i].shape), 2e-6);
        update_release(&u);
    }
}

/* An attribute has no place for the rows of more. */
static void adafactor_says_of_how_many_tensors_it_can_update_each(void **state)
{
    struct hf_piece pieces[MAX_ATTR_INTS + 1];
    struct optimizer_options o = rule_of(OPTIMIZER_ADAFACTOR);
    struct optimizer_param p = {.name = "p", .pieces = pieces, .n_pieces = ARRAY_LEN(pieces)};
    struct graph *g;
    struct builder b;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++)
        pieces[i] = (struct hf_piece){"a", 1};
    o.precision.states = FORMAT_FACTORED;
    expect_ok(graph_new(&g, "update"));
    builder_init(&b, g);
    struct shape shape = shape_of(2, (int64_t)ARRAY_LEN(pieces), INT64_C(3));
    p.value = build_value(&b, "p", ROLE_PARAMETER, DTYPE_F32, shape);
    p.grad = build_value(&b, "g", ROLE_INPUT, DTYPE_F32, shape);
    value_id count = build_value(&b, "count", ROLE_INPUT, DTYPE_F32, shape_of(1, INT64_C(1)));
    const struct graph_output sums[] = {{"count", count}};
    assert_int_equal(optimizer_apply(g, &o, &p, 1, &(struct optimizer_sums){sums, 1, 0}),
                     ERR_UNSUPPORTED);
    assert_non_null(strstr(status_message(), "'p' is stacked of 9 tensors"));
    graph_free(g);
}

/* The vector is AdamW's. */
static void muon_is_that_of_pytorch(void **state)
{
    struct optimizer_options o = rule_of(OPTIMIZER_MUON);
    (void)state;
    expect_goldens("muon", &o, 1e-5);
    o.muon = (struct muon_options){0.8, false, true, 3};
    expect_goldens("muon_rms", &o, 1e-5);
}

/* q, k and v of one matrix are made orthogonal one by one. */
static void pieces_of_a_matrix_are_matrices_to_muon(void **state)
{
    const struct hf_piece pieces[] = {{"a", 4}, {"b", 2}, {"c", 6}};
    struct optimizer_options o = rule_of(OPTIMIZER_MUON);
    struct update u;
    (void)state;
    update_init_as(&u, &o, shape_of(2, INT64_C(12), INT64_C(5)),
                   &(struct optimizer_param){.pieces = pieces, .n_pieces = ARRAY_LEN(pieces)});
    expect_golden("muon_pieces", "tall", run_steps(&u, STEPS), 60, 1e-5);
    update_release(&u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lion_is_the_papers),
        cmocka_unit_test(lion_with_8_bits_is_that_of_bitsandbytes),
        cmocka_unit_test(adafactor_is_that_of_transformers),
        cmocka_unit_test(adafactor_of_what_a_parameter_holds_is_that_of_each),
        cmocka_unit_test(adafactor_says_of_how_many_tensors_it_can_update_each),
        cmocka_unit_test(muon_is_that_of_pytorch),
        cmocka_unit_test(pieces_of_a_matrix_are_matrices_to_muon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
