/* The graphs of stages: what tests build with settings of their own is what a config builds; each
 * numeric setting shows in the graph, and nothing else does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/model_open.h"
#include "support/golden.h"
#include "support/training.h"
#include "task/language.h"

static struct device device;

static int open_device(void **state)
{
    (void)state;
    expect_ok(device_open_cpu(&device, 1));
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    device_close(&device);
    return 0;
}

/* ---- graphs as text -------------------------------------------------------------------------- */

static void print_graph(const char *const *settings, size_t n, enum stage_purpose purpose,
                        struct str *out)
{
    struct config *cfg;
    struct model *model;
    char *folder;
    struct settings typed;
    struct engine e;
    struct stage_request r;
    str_clear(out);
    expect_ok(config_load(&cfg, NULL, settings, n));
    expect_ok(config_resolve(cfg, 1));
    expect_ok(open_model(cfg, NULL, &model, &folder));
    expect_ok(settings_from_config(&typed, cfg, &device));
    const struct task task = language_task(model);
    expect_ok(request_from_config(&r, purpose, cfg, &task));
    engine_init(&e, &typed, task, &device);
    expect_ok(engine_build(&e, &(struct engine_request){.stages = &r, .n_stages = 1}));
    expect_ok(graph_print(e.work.stages[0].graph, out));
    engine_close(&e);
    model_free(model);
    mem_free(folder);
    config_free(cfg);
}

#define LLAMA "model_name_or_path=tests/golden/llama", "max_seq_length=16", "device=cpu"

static void print_with(const char *extra, enum stage_purpose purpose, struct str *out)
{
    const char *settings[] = {LLAMA, "bf16=false", "per_device_train_batch_size=2", extra};
    print_graph(settings, ARRAY_LEN(settings), purpose, out);
}

/* ---- tests and configs ----------------------------------------------------------------------- */

static void tests_build_the_graph_that_a_config_builds(void **state)
{
    static const struct {
        struct training_options options;
        const char *settings[9];
    } cases[] = {
        {{.golden = "llama", .batch = 3, .seq_len = 16},
         {LLAMA, "per_device_train_batch_size=3", "adam_beta2=0.95", "weight_decay=0.1",
          "max_grad_norm=0", "bf16=false", "seed=1"}},
        {{.golden = "llama",
          .batch = 1,
          .seq_len = 16,
          .n_micro = 3,
          .max_grad_norm = 1,
          .bf16 = true},
         {LLAMA, "per_device_train_batch_size=1", "adam_beta2=0.95", "weight_decay=0.1",
          "gradient_accumulation_steps=3", "bf16=true", "seed=1"}},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct training t;
        struct str ours = {0}, theirs = {0};
        training_init(&t, &cases[i].options);
        expect_ok(graph_print(t.stage->graph, &ours));
        print_graph(cases[i].settings, ARRAY_LEN(cases[i].settings), STAGE_TRAIN, &theirs);
        assert_string_equal(ours.text, theirs.text);
        training_release(&t);
        str_release(&ours);
        str_release(&theirs);
    }
}

/* ---- what shows in a graph ------------------------------------------------------------------- */

static void expect_change(const char *setting, enum stage_purpose purpose, bool changes)
{
    struct str plain = {0}, other = {0};
    print_with("seed=42", purpose, &plain);
    print_with(setting, purpose, &other);
    if ((strcmp(plain.text, other.text) != 0) != changes)
        fail_msg("%s %s the graph of %s", setting, changes ? "does not change" : "changes",
                 purpose == STAGE_TRAIN ? "training" : "evaluation");
    str_release(&plain);
    str_release(&other);
}

static void numerics_show_in_the_graph_of_training(void **state)
{
    static const char *const settings[] = {
        "label_smoothing_factor=0.1",
        "z_loss=0.01",
        "lmhead_chunks=2",
        "adam_beta1=0.5",
        "weight_decay=0.5",
        "max_grad_norm=0.5",
        "optim=sgd",
        "compile=none",
        "gradient_accumulation_steps=2",
        "optim_state_dtype=bf16",
        "max_seq_length=8",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(settings); i++)
        expect_change(settings[i], STAGE_TRAIN, true);
}

static void only_the_numerics_show_in_a_graph(void **state)
{
    static const char *const settings[] = {"gradient_checkpointing=true", "device_memory=1GiB",
                                           "host_memory=1GiB", "learning_rate=1", "num_threads=2"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(settings); i++)
        expect_change(settings[i], STAGE_TRAIN, false);
}

/* A loss that is smoothed for training would not compare with anybody's. */
static void evaluation_measures_the_plain_loss(void **state)
{
    (void)state;
    expect_change("label_smoothing_factor=0.1", STAGE_EVAL, false);
    expect_change("z_loss=0.01", STAGE_EVAL, false);
    expect_change("per_device_eval_batch_size=5", STAGE_EVAL, true);
}

/* ---- updates --------------------------------------------------------------------------------- */

static size_t backward_nodes_after_the_first_update(const struct graph *g)
{
    size_t n = 0;
    bool updating = false;
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *x = graph_node(g, (node_id)k);
        updating |= x->pass == PASS_UPDATE;
        n += updating && x->pass == PASS_BACKWARD;
    }
    return n;
}

static void updates_run_where_their_gradient_is_complete(void **state)
{
    (void)state;
    for (int64_t n_micro = 1; n_micro <= 2; n_micro++) {
        struct training t;
        training_init(&t, &(struct training_options){
                              .golden = "llama", .batch = 1, .seq_len = 8, .n_micro = n_micro});
        assert_true(backward_nodes_after_the_first_update(t.stage->graph) > 0);
        training_release(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tests_build_the_graph_that_a_config_builds),
        cmocka_unit_test(numerics_show_in_the_graph_of_training),
        cmocka_unit_test(only_the_numerics_show_in_a_graph),
        cmocka_unit_test(evaluation_measures_the_plain_loss),
        cmocka_unit_test(updates_run_where_their_gradient_is_complete),
    };
    log_set_level(LOG_WARN);
    return cmocka_run_group_tests(tests, open_device, close_device);
}
