/* Updates are deferred where that hides what crosses the link, and only there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "search/deferral.h"
#include "support/golden.h"
#include "support/training.h"

static const char config[] =
    "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":4096,"
    "\"intermediate_size\":11008,\"num_hidden_layers\":6,\"num_attention_heads\":32,"
    "\"num_key_value_heads\":32,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5,"
    "\"hidden_act\":\"silu\",\"rope_theta\":10000.0}";

static void *some_queue(struct device *d, enum queue q)
{
    (void)q;
    return d;
}

/* The rates of a GPU whose copies run beside its kernels; nothing runs on it. */
static struct device fast_device(struct device_ops *ops)
{
    struct device d;
    expect_ok(device_open_cpu(&d, 1));
    *ops = *d.ops;
    ops->queue = some_queue;
    d.ops = ops;
    d.tuning.unrecorded = false;
    struct link_rate link = {.alone = 55e9, .both = 47e9, .latency_s = 5e-6};
    d.rates = (struct device_rates){
        .matmul_flops = 60e12, .half_matmul_flops = 640e12, .memory_bytes = 4e12, .launch_s = 1e-6};
    d.rates.links[TIER_HOST][TIER_DEVICE] = d.rates.links[TIER_DEVICE][TIER_HOST] = link;
    return d;
}

static double seconds_of(struct training *t)
{
    struct prediction p;
    double seconds;
    expect_ok(predict(&p, t->stage->program, &t->device, NULL));
    expect_ok(predict_step(&p, t->stage->program, &t->device, 1, &seconds));
    prediction_release(&p);
    return seconds;
}

static const struct limits no_limits = {
    .n_bytes = {(int64_t)1 << 40, (int64_t)1 << 40, LIMIT_OPEN}};

static const struct decisions away = {.n = {[EXTENT_RECOMPUTED] = EXTENT_WHOLE,
                                            [EXTENT_STATES] = EXTENT_WHOLE,
                                            [EXTENT_GRADIENTS] = EXTENT_WHOLE,
                                            [EXTENT_WEIGHTS] = EXTENT_WHOLE},
                                      .small_bytes = 1 << 20,
                                      .ring_bytes = (int64_t)2 << 30};

static void open_training(struct training *t, const struct device *d, double max_grad_norm,
                          const struct decisions *decisions)
{
    training_init(t, &(struct training_options){.config = config,
                                                .batch = 8,
                                                .seq_len = 4096,
                                                .bf16 = true,
                                                .max_grad_norm = max_grad_norm,
                                                .device = d});
    expect_ok(workload_decide(&t->engine.work, decisions));
    expect_ok(workload_emit(&t->engine.work));
}

static void updates_hide_in_the_next_forward_pass(void **state)
{
    (void)state;
    struct device_ops ops;
    struct device d = fast_device(&ops);
    struct training t;
    struct decisions chosen = away;
    open_training(&t, &d, 1.0, &away);
    double before = seconds_of(&t);
    int64_t n_bytes = t.engine.work.n_bytes[TIER_DEVICE];
    expect_ok(deferral_try(&t.engine.work, &no_limits, NULL, true, &chosen));
    print_message("%.3f s, %.2f GB; deferred %.3f s, %.2f GB\n", before, (double)n_bytes / 1e9,
                  seconds_of(&t), (double)t.engine.work.n_bytes[TIER_DEVICE] / 1e9);
    assert_true(chosen.defer_updates && t.stage->plan.defer_updates);
    assert_true(seconds_of(&t) < 0.95 * before);
    training_release(&t);
    d.ops->close(&d);
}

/* Nothing crosses the link; or there would be no room for gradients that are there for longer. */
static void updates_stay_where_there_is_nothing_to_gain(void **state)
{
    (void)state;
    struct device_ops ops;
    struct device d = fast_device(&ops);
    struct training t;
    struct decisions chosen = {0};
    open_training(&t, &d, 1.0, &chosen);
    expect_ok(deferral_try(&t.engine.work, &no_limits, NULL, true, &chosen));
    assert_false(chosen.defer_updates);
    training_release(&t);
    chosen = away;
    open_training(&t, &d, 1.0, &away);
    struct limits tight = no_limits;
    tight.n_bytes[TIER_DEVICE] = t.engine.work.n_bytes[TIER_DEVICE];
    expect_ok(deferral_try(&t.engine.work, &tight, NULL, true, &chosen));
    assert_false(chosen.defer_updates || t.stage->plan.defer_updates);
    assert_null(program_section(t.stage->program, "finish"));
    assert_int_equal(t.engine.work.n_bytes[TIER_DEVICE], tight.n_bytes[TIER_DEVICE]);
    training_release(&t);
    d.ops->close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_hide_in_the_next_forward_pass),
        cmocka_unit_test(updates_stay_where_there_is_nothing_to_gain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
