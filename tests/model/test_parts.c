/* The pieces of models have no limits of their own: as many parameters and stacked layers as an
 * architecture has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "graph/builder.h"
#include "model/parts.h"
#include "support/golden.h"

enum { HIDDEN = 8, N_PARAMS = 1000 };

struct fixture {
    struct model model;
    struct model_request request;
    struct model_graph out;
    struct graph *g;
    struct builder b;
    struct parts parts;
};

static void open(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    f->model.n_layers = 1;
    f->model.hidden = HIDDEN;
    f->request =
        (struct model_request){.purpose = MODEL_EVAL, .batch = 1, .seq_len = 4, .dtype = DTYPE_F32};
    expect_ok(graph_new(&f->g, "parts"));
    builder_init(&f->b, f->g);
    f->parts = (struct parts){.m = &f->model,
                              .b = &f->b,
                              .r = &f->request,
                              .out = &f->out,
                              .hf_root = "root.",
                              .hf_layers = "h"};
    parts_begin(&f->parts);
}

static void a_layer_has_as_many_parameters_as_it_likes(void **state)
{
    (void)state;
    struct fixture f;
    open(&f);
    for (int i = 0; i < N_PARAMS; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "p%d", i);
        (void)parts_param(&f.parts, name, parts_hf_name(&f.parts, name),
                          shape_of(1, (int64_t)(i + 1)), INIT_ONE, 0);
    }
    expect_ok(builder_status(&f.b));
    assert_int_equal(f.out.n_params, N_PARAMS);
    for (int i = 0; i < N_PARAMS; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "p%d", i);
        assert_string_equal(f.out.params[i].name, name);
        assert_int_equal(f.out.params[i].shape.dim[0], i + 1);
    }
    graph_free(f.g);
}

static void a_linear_layer_is_stacked_from_any_number_of_pieces(void **state)
{
    (void)state;
    struct fixture f;
    open(&f);
    value_id x = build_value(&f.b, "x", ROLE_ACTIVATION, DTYPE_F32,
                             shape_of(3, INT64_C(1), INT64_C(4), (int64_t)HIDDEN));
    value_id y =
        parts_linear(&f.parts, x,
                     &(struct linear_spec){.name = "all",
                                           .n_in = HIDDEN,
                                           PIECES({"a", 1}, {"b", 2}, {"c", 3}, {"d", 4}, {"e", 5}),
                                           .std = 0.02,
                                           .bias = true});
    expect_ok(builder_status(&f.b));
    assert_int_equal(build_shape(&f.b, y)->dim[2], 15);
    assert_int_equal(f.out.n_params, 2);
    assert_int_equal(f.out.params[0].n_pieces, 5);
    assert_string_equal(f.out.params[0].pieces[4].name, "root.e.weight");
    assert_int_equal(f.out.params[1].pieces[4].rows, 5);
    graph_free(f.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_has_as_many_parameters_as_it_likes),
        cmocka_unit_test(a_linear_layer_is_stacked_from_any_number_of_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
