/* Micro-batches run in groups where that saves fetches that a step waits for, and only there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "search/search.h"
#include "support/golden.h"
#include "support/paper_device.h"
#include "support/training.h"

static const char config[] =
    "{\"model_type\":\"llama\",\"vocab_size\":8000,\"hidden_size\":2048,"
    "\"intermediate_size\":5504,\"num_hidden_layers\":6,\"num_attention_heads\":16,"
    "\"num_key_value_heads\":16,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5,"
    "\"hidden_act\":\"silu\",\"rope_theta\":10000.0}";

static struct device device;

static int open_device(void **state)
{
    (void)state;
    expect_ok(device_open_cpu(&device, 1));
    paper_device_make(&device);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    device_close(&device);
    return 0;
}

struct outcome {
    int group;
    double seconds;
    int64_t n_bytes;
};

/* 4 micro-batches a step, in that much of the device's memory. */
static struct outcome plan(int64_t n_bytes, bool fixed, int group)
{
    struct training t;
    struct outcome x;
    struct search_report report = {0};
    const struct limits limits = {.n_bytes = {n_bytes, (int64_t)1 << 40, LIMIT_OPEN}};
    const struct search_bounds bounds = {.fixed_group = fixed};
    struct decisions d = {.recompute_cheap = true, .slice_bytes = SLICE_BYTES, .group = group};
    training_init(&t, &(struct training_options){.config = config,
                                                 .batch = 1,
                                                 .seq_len = 1024,
                                                 .n_micro = 4,
                                                 .bf16 = true,
                                                 .device = &device});
    expect_ok(search_plan(&t.engine.work, &limits, &bounds, NULL, &d, &report));
    expect_ok(forecast_seconds(&t.engine.work, NULL, &x.seconds));
    expect_ok(program_check(t.stage->program, &t.engine.work.storage));
    x.group = t.stage->group;
    x.n_bytes = t.engine.work.n_bytes[TIER_DEVICE];
    assert_int_equal(x.group, MAX(d.group, 1));
    training_release(&t);
    return x;
}

static void groups_are_chosen_where_weights_are_away(void **state)
{
    (void)state;
    const int64_t little = (int64_t)1 << 30;
    struct outcome one = plan(little, true, 1), chosen = plan(little, false, 1);
    print_message("one at a time: %.1f ms; in groups of %d: %.1f ms\n", 1e3 * one.seconds,
                  chosen.group, 1e3 * chosen.seconds);
    assert_int_equal(one.group, 1);
    assert_true(chosen.group > 1);
    assert_true(chosen.seconds < 0.97 * one.seconds);
    assert_true(chosen.n_bytes <= little);
}

static void what_fits_runs_one_at_a_time(void **state)
{
    (void)state;
    assert_int_equal(plan((int64_t)1 << 40, false, 1).group, 1);
    assert_int_equal(plan((int64_t)1 << 40, true, 2).group, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_chosen_where_weights_are_away),
        cmocka_unit_test(what_fits_runs_one_at_a_time),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
