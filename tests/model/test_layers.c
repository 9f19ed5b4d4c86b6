/* Lists of layers: what they become, and what is said of what does not go together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "config/config.h"
#include "support/golden.h"

static enum status load(const char *text, struct config **cfg)
{
    *cfg = NULL;
    TRY(config_load_text(cfg, text, strlen(text), "net.yaml", NULL, 0));
    return config_resolve(*cfg, 1);
}

/* Of the parameters whose names begin with `prefix`. */
static int64_t count_below(const char *text, const char *prefix)
{
    struct config *cfg;
    struct model *m;
    struct graph *g;
    struct builder b;
    struct model_graph io;
    int64_t n = 0;
    expect_ok(load(text, &cfg));
    struct key_origin origin = config_model_origin(cfg, NULL);
    expect_ok(model_new(&m, cfg->model, &origin));
    expect_ok(graph_new(&g, "count"));
    builder_init(&b, g);
    expect_ok(model_build(m, &b,
                          &(struct model_request){
                              .purpose = MODEL_EVAL, .batch = 1, .seq_len = 1, .dtype = DTYPE_F32},
                          &io));
    for (int i = 0; i < io.n_params; i++) {
        const struct model_param *p = &io.params[i];
        if (!p->buffer && strncmp(p->name, prefix, strlen(prefix)) == 0)
            n += shape_elems(&p->shape);
    }
    if (*prefix == '\0')
        assert_true(n == model_count_params(&io));
    graph_free(g);
    model_free(m);
    config_free(cfg);
    return n;
}

static int64_t count_params(const char *text)
{
    return count_below(text, "");
}

static void parameters_are_counted_without_buffers(void **state)
{
    (void)state;
    assert_int_equal(count_params("model:\n"
                                  "  input: [8, 8, 3]\n"
                                  "  layers:\n"
                                  "    - conv: {out: 4, kernel: 3, bias: false}\n"
                                  "    - batch_norm\n"
                                  "    - flatten\n"
                                  "    - linear: 5\n"
                                  "  loss: cross_entropy\n"),
                     4 * 3 * 9 + 2 * 4 + 6 * 6 * 4 * 5 + 5);
}

static void the_wide_autoencoder_has_the_parameters_of_its_document(void **state)
{
    (void)state;
    assert_true(count_params("model: {model_type: wide_autoencoder, audio_mode: mel, n_mels: 128, "
                             "text_dim: 1024, n_voxels: 85810}") == INT64_C(8499653234));
    assert_true(count_params("model: {model_type: wide_autoencoder, text_dim: 3072, "
                             "n_voxels: 77347}") == INT64_C(8359824355));
    assert_true(count_params("model: {model_type: wide_autoencoder, text_dim: 3072, frame_skip: 4, "
                             "n_voxels: 85810}") == INT64_C(3543969010));
}

static void the_frame_cnn_has_the_parameters_of_its_document(void **state)
{
    (void)state;
    assert_int_equal(count_params("model: {model_type: frame_cnn}"), 536846);
    assert_int_equal(count_params("model: {model_type: frame_cnn, memory_optimized: true}"),
                     143886);
}

static void the_variants_of_the_frame_cnn_have_the_parameters_of_theirs(void **state)
{
    static const struct {
        const char *text;
        int64_t n;
    } due[] = {{"model: {model_type: frame_cnn, architecture: multi_scale}", 3392781},
               {"model: {model_type: frame_cnn, architecture: {name: gnn}}", 1559821},
               {"model: {model_type: frame_cnn, architecture: ssm}", 941581},
               {"model: {model_type: frame_cnn, architecture: lstm}", 1556493},
               {"model: {model_type: frame_cnn, architecture: cnn}", 468481}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(due); i++) {
        int64_t n = count_params(due[i].text);
        if (n != due[i].n)
            fail_msg("%s: %lld parameters", due[i].text, (long long)n);
    }
}

static void the_three_branches_have_the_parameters_of_their_document(void **state)
{
    static const char all[] = "model: {model_type: three_branch, siamese: cnn, tracks: true}";
    static const struct {
        const char *branch;
        int64_t n;
    } due[] = {{"unet3d.", 3024193}, {"detector.", 1109254}, {"vectors.", 51205},
               {"tempo.", 1044288},  {"fusion.", 11058338},  {"siamese.", 2018114 + 224 * 256},
               {"tracks.", 181892}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(due); i++) {
        int64_t n = count_below(all, due[i].branch);
        if (n != due[i].n)
            fail_msg("%s has %lld parameters", due[i].branch, (long long)n);
    }
    assert_int_equal(count_params("model: {model_type: three_branch, frames: 87}"), 16287278);
    assert_int_equal(count_params(all), 18544628);
    static const char wide[] =
        "model: {model_type: three_branch, siamese: efficientnet, tracks: true}";
    assert_int_equal(count_below(wide, "siamese.encoder."), 3595388);
    assert_int_equal(count_below(wide, "siamese."), 5240510 + 1840 * 256);
    assert_int_equal(count_params(wide), 22180720);
    assert_int_equal(count_params("model: {model_type: three_branch, branches: image}"), 3024193);
}

static void mistakes_are_told_with_the_entry_and_its_line(void **state)
{
    static const struct {
        const char *layers, *says;
    } cases[] = {
        {"    - linear: 4\n    - rellu\n", "net.yaml:5: layers.1: there is no layer 'rellu'; did "
                                           "you mean 'relu'?"},
        {"    - linear: {out: 0}\n", "net.yaml:4: key 'layers.0.linear.out' is 0"},
        {"    - linear: {aut: 3}\n", "net.yaml:4: key 'layers.0.linear.out' is missing"},
        {"    - relu: 3\n", "net.yaml:4: layers.0: layer 'relu' takes no value"},
        {"    - linear: 4\n    - residual: [{linear: 3}]\n", "net.yaml:5: layers.1 (residual)"},
        {"    - conv: {out: 3, kernel: 3}\n", "net.yaml:4: layers.0 (conv)"},
        {"    - {linear: 4, relu: }\n", "an entry is one layer"},
        {"    - {linear: 4, name: a}\n    - {linear: 4, name: a}\n", "'a' is the name of layers.0"},
        {"    - branch: [[{linear: 2}]]\n", "from 2 to 16"},
        {"    - branch: [[{linear: 2}], [{linear: 3}]]\n      join: add\n", "cannot be added"},
        {"    - {input: other}\n", "none of the network's"},
        {"    - reshape: [7]\n", "(reshape): a sample has 6 elements here, and the new shape 7"},
        {"    - linear: 8\n    - group_norm: 3\n", "net.yaml:5: layers.1 (group_norm)"},
        {"    - reshape: [2, 3]\n    - max_pool: 9\n", "net.yaml:5: layers.1 (max_pool)"},
        {"    - reshape: [2147483647, 2147483647]\n", "2^40"},
        {"    - conv: {out: 3, kernel: 5000}\n", "5000; 1024 is the most"},
        {"    - sequential: [{linear: 3}, {dropout: 7}]\n",
         "net.yaml:4: key 'layers.0.sequential.1.dropout.rate' is 7"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[512];
        struct config *cfg;
        (void)snprintf(text, sizeof(text), "model:\n  input: [6]\n  layers:\n%s  loss: mse\n",
                       cases[i].layers);
        assert_int_equal(load(text, &cfg), ERR_CONFIG);
        if (!strstr(status_message(), cases[i].says))
            fail_msg("'%s' does not say '%s'", status_message(), cases[i].says);
        config_free(cfg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_counted_without_buffers),
        cmocka_unit_test(the_wide_autoencoder_has_the_parameters_of_its_document),
        cmocka_unit_test(the_frame_cnn_has_the_parameters_of_its_document),
        cmocka_unit_test(the_variants_of_the_frame_cnn_have_the_parameters_of_theirs),
        cmocka_unit_test(the_three_branches_have_the_parameters_of_their_document),
        cmocka_unit_test(mistakes_are_told_with_the_entry_and_its_line),
    };
    return cmocka_run_group_tests_name("layers", tests, NULL, NULL);
}
