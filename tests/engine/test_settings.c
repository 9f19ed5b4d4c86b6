/* Every key that a graph, a decision or a budget follows from reaches its typed setting. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/model_open.h"
#include "engine/settings.h"
#include "support/golden.h"
#include "support/scratch.h"
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

static struct config *load(const char *text)
{
    struct config *cfg;
    expect_ok(config_load_text(&cfg, text, strlen(text), "run.yaml", NULL, 0));
    expect_ok(config_resolve(cfg, 1));
    return cfg;
}

#define MODEL "model_name_or_path: tests/golden/llama\nmax_seq_length: 16\n"

/* The settings stay valid for as long as the config does. */
static struct config *read(const char *keys, struct settings *s)
{
    char text[1024];
    (void)snprintf(text, sizeof(text), MODEL "%s", keys);
    struct config *cfg = load(text);
    expect_ok(settings_from_config(s, cfg, &device));
    return cfg;
}

static void expect_real(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want)))
        fail_msg("%.17g instead of %.17g", got, want);
}

static void the_optimizer_is_told_what_the_config_says(void **state)
{
    struct settings s;
    (void)state;
    config_free(read("adam_beta1: 0.7\nadam_beta2: 0.8\nadam_epsilon: 1e-5\nweight_decay: 0.3\n"
                     "max_grad_norm: 2.5\nbf16: false\n",
                     &s));
    const struct optimizer_options *o = &s.numerics.optimizer;
    assert_int_equal(o->kind, OPTIMIZER_ADAMW);
    expect_real(o->beta1, 0.7);
    expect_real(o->beta2, 0.8);
    expect_real(o->epsilon, 1e-5);
    expect_real(o->weight_decay, 0.3);
    expect_real(o->max_grad_norm, 2.5);
    assert_int_equal(o->seed, 0); /* f32: nothing is rounded by chance */
    expect_real(o->scaling.initial, 0);
    config_free(read("optim: sgd\nmomentum: 0.6\nnesterov: true\n", &s));
    assert_int_equal(o->kind, OPTIMIZER_SGD);
    expect_real(o->momentum, 0.6);
    assert_true(o->nesterov);
}

static void states_have_the_format_that_optim_says(void **state)
{
    const struct {
        const char *keys;
        enum format states;
    } cases[] = {
        {"optim: adamw\n", FORMAT_F32},
        {"optim: adamw\noptim_state_dtype: bf16\n", FORMAT_BF16},
        {"optim: adamw_bnb_8bit\n", FORMAT_BLOCK8},
        {"optim: paged_adamw_32bit\n", FORMAT_F32},
        {"optim: paged_adamw_8bit\n", FORMAT_BLOCK8},
        {"optim: adafactor\n", FORMAT_FACTORED},
        {"optim: muon\n", FORMAT_F32},
        {"optim: muon_8bit\n", FORMAT_BLOCK8},
        {"optim: lion_32bit\n", FORMAT_F32},
        {"optim: lion\noptim_state_dtype: bf16\n", FORMAT_BF16},
        {"optim: lion_8bit\n", FORMAT_BLOCK8},
        {"optim: paged_lion_32bit\n", FORMAT_F32},
        {"optim: paged_lion_8bit\n", FORMAT_BLOCK8},
        {"optim: sgd\nmomentum: 0.9\n", FORMAT_F32},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct settings s;
        config_free(read(cases[i].keys, &s));
        assert_int_equal(s.numerics.precision.states, cases[i].states);
    }
}

static void rounding_by_chance_follows_the_seed(void **state)
{
    struct settings a, b;
    (void)state;
    config_free(read("bf16: true\nmaster_dtype: bf16\nseed: 5\n", &a));
    config_free(read("bf16: true\nmaster_dtype: bf16\nseed: 6\n", &b));
    assert_true(a.numerics.optimizer.seed > 0);
    assert_int_not_equal(a.numerics.optimizer.seed, b.numerics.optimizer.seed);
    assert_int_equal(a.seed, 5);
}

static void the_loss_scale_is_fixed_or_moves(void **state)
{
    struct settings s;
    (void)state;
    config_free(read("fp16: true\ninitial_scale_power: 10\nmin_loss_scale: 2\n"
                     "loss_scale_window: 30\nloss_scale_hysteresis: 4\n",
                     &s));
    const struct loss_scaling *x = &s.numerics.optimizer.scaling;
    expect_real(x->initial, 1024);
    expect_real(x->minimum, 2);
    assert_true(x->growth > 1 && x->backoff < 1);
    assert_int_equal(x->window, 30);
    assert_int_equal(x->hysteresis, 4);
    config_free(read("fp16: true\nloss_scale: 64\n", &s));
    expect_real(x->initial, 64);
    expect_real(x->growth, 1);
    expect_real(x->backoff, 1);
    expect_real(x->minimum, 64);
}

static void the_loss_is_the_one_that_was_asked_for(void **state)
{
    struct settings s;
    (void)state;
    config_free(read("label_smoothing_factor: 0.25\nz_loss: 0.125\nlmhead_chunks: 3\n", &s));
    expect_real(s.numerics.label_smoothing, 0.25);
    expect_real(s.numerics.z_loss, 0.125);
    assert_int_equal(s.numerics.loss_chunks, 3);
    config_free(read("lmhead_chunks: auto\n", &s));
    assert_int_equal(s.numerics.loss_chunks, 0);
}

static void compile_and_deterministic_reach_the_graphs(void **state)
{
    struct settings s;
    (void)state;
    config_free(read("compile: none\n", &s));
    assert_true(s.numerics.unfused);
    assert_null(s.numerics.deterministic);
    struct config *cfg = read("compile: default\ndeterministic: true\n", &s);
    assert_false(s.numerics.unfused);
    assert_string_equal(s.numerics.deterministic, "run.yaml:4");
    config_free(cfg);
}

static void each_tier_has_its_limit(void **state)
{
    struct settings s;
    (void)state;
    config_free(read("device_memory: 1GiB\nhost_memory: 2GiB\ndisk_memory: 3GiB\n"
                     "offload_folder: /tmp\n",
                     &s));
    for (int t = 0; t < TIER_COUNT; t++)
        assert_int_equal(s.limits.n_bytes[t], (int64_t)(t + 1) << 30);
    config_free(read("host_memory: 0\n", &s));
    assert_int_equal(s.limits.n_bytes[TIER_DEVICE], LIMIT_OPEN);
    assert_int_equal(s.limits.n_bytes[TIER_HOST], 0);
    assert_int_equal(s.limits.n_bytes[TIER_DISK], LIMIT_OPEN);
}

static void checkpointed_blocks_are_decisions(void **state)
{
    struct settings s;
    (void)state;
    struct config *cfg = read("gradient_checkpointing: 0-1\n", &s);
    assert_true(block_set_has(&s.decisions.recompute, 0));
    assert_true(block_set_has(&s.decisions.recompute, 1));
    assert_false(block_set_has(&s.decisions.recompute, 2));
    assert_true(s.decisions.recompute_cheap);
    assert_int_equal(s.decisions.slice_bytes, SLICE_BYTES);
    assert_true(s.bounds.fixed[EXTENT_RECOMPUTED]);
    config_free(cfg);
}

static void what_a_key_leaves_open_is_not_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool fixed[EXTENT_COUNT];
        int n[EXTENT_COUNT];
    } rows[] = {
        {"seed: 1\n", {false}, {0}},
        {"gradient_checkpointing: auto\n", {false}, {0}},
        {"gradient_checkpointing: false\n", {[EXTENT_RECOMPUTED] = true}, {0}},
        {"activation_offloading: true\n", {[EXTENT_MOVED] = true}, {[EXTENT_MOVED] = EXTENT_WHOLE}},
        {"activation_offloading: false\n", {[EXTENT_MOVED] = true}, {0}},
        {"offload_optimizer: {device: cpu}\n",
         {[EXTENT_STATES] = true},
         {[EXTENT_STATES] = EXTENT_WHOLE}},
        {"offload_optimizer: none\n", {[EXTENT_STATES] = true, [EXTENT_GRADIENTS] = true}, {0}},
        {"offload_param: true\n", {[EXTENT_WEIGHTS] = true}, {[EXTENT_WEIGHTS] = EXTENT_WHOLE}},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct settings s;
        struct config *cfg = read(rows[i].text, &s);
        print_message("%s", rows[i].text);
        for (int e = 0; e < EXTENT_COUNT; e++) {
            assert_int_equal(s.bounds.fixed[e], rows[i].fixed[e]);
            assert_int_equal(s.decisions.n[e], rows[i].n[e]);
        }
        config_free(cfg);
    }
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static enum status request(const char *text, enum stage_purpose purpose, struct stage_request *r)
{
    struct config *cfg = load(text);
    struct model *model;
    char *folder;
    expect_ok(open_model(cfg, NULL, &model, &folder));
    struct task task = language_task(model);
    enum status status = request_from_config(r, purpose, cfg, &task);
    model_free(model);
    mem_free(folder);
    config_free(cfg);
    return status;
}

static void training_and_evaluation_have_sizes_of_their_own(void **state)
{
    static const char text[] = MODEL "per_device_train_batch_size: 3\n"
                                     "per_device_eval_batch_size: 5\n"
                                     "gradient_accumulation_steps: 7\n";
    struct stage_request r;
    (void)state;
    expect_ok(request(text, STAGE_TRAIN, &r));
    assert_int_equal(r.batch, 3);
    assert_int_equal(r.n_micro, 7);
    assert_int_equal(r.seq_len, 16);
    expect_ok(request(text, STAGE_EVAL, &r));
    assert_int_equal(r.batch, 5);
    assert_int_equal(r.n_micro, 1);
    assert_int_equal(r.seq_len, 16);
}

static void blocks_that_the_model_lacks_are_named_with_their_line(void **state)
{
    static const char text[] = MODEL "gradient_checkpointing: 0-2\n";
    struct stage_request r;
    (void)state;
    assert_int_equal(request(text, STAGE_TRAIN, &r), ERR_CONFIG);
    expect_message(
        "run.yaml:3: gradient_checkpointing: '0-2' is not true, false, auto, parts of blocks "
        "(attention, mlp, norm) or a list of blocks between 0 and 1");
    expect_ok(request(text, STAGE_EVAL, &r)); /* which recomputes nothing */
}

static void a_sequence_longer_than_the_context_is_refused(void **state)
{
    struct stage_request r;
    (void)state;
    assert_int_equal(
        request("model_name_or_path: tests/golden/llama\nmax_seq_length: 65\n", STAGE_EVAL, &r),
        ERR_CONFIG);
    expect_message("run.yaml:2: max_seq_length is 65, but the model has positions for 64");
    assert_int_equal(request("model_name_or_path: tests/golden/llama\n", STAGE_TRAIN, &r),
                     ERR_CONFIG);
    expect_message("set max_seq_length=64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_optimizer_is_told_what_the_config_says),
        cmocka_unit_test(states_have_the_format_that_optim_says),
        cmocka_unit_test(rounding_by_chance_follows_the_seed),
        cmocka_unit_test(the_loss_scale_is_fixed_or_moves),
        cmocka_unit_test(the_loss_is_the_one_that_was_asked_for),
        cmocka_unit_test(compile_and_deterministic_reach_the_graphs),
        cmocka_unit_test(each_tier_has_its_limit),
        cmocka_unit_test(checkpointed_blocks_are_decisions),
        cmocka_unit_test(what_a_key_leaves_open_is_not_bounded),
        cmocka_unit_test(training_and_evaluation_have_sizes_of_their_own),
        cmocka_unit_test(blocks_that_the_model_lacks_are_named_with_their_line),
        cmocka_unit_test(a_sequence_longer_than_the_context_is_refused),
    };
    log_set_level(LOG_WARN);
    return cmocka_run_group_tests(tests, open_device, close_device);
}
