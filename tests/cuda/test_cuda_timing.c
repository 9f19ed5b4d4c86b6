/* Times on a GPU: kernels timed for the forecast, steps timed instruction by instruction. Skipped
 * without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/log.h"
#include "base/machine.h"
#include "support/golden.h"
#include "support/gpu.h"
#include "support/scratch.h"
#include "support/train_session.h"
#include "train/trainer.h"

enum { N_STEPS = 12, COPIES = 16, PART_BYTES = 32 << 20 };

struct run {
    struct scratch scratch;
    struct config *config;
    struct session session;
    struct train_result result;
    double open_s;
};

/* GPT-2 124M in bf16 on made-up tokens. */
static void open_run(struct run *r, const char *cache_folder, const char *extra)
{
    char folder[SCRATCH_PATH], steps[32];
    *r = (struct run){0};
    scratch_init(&r->scratch);
    (void)snprintf(folder, sizeof(folder), "output_dir=%s/out", r->scratch.folder);
    (void)snprintf(steps, sizeof(steps), "max_steps=%d", N_STEPS);
    const char *overrides[] = {"datasets=[{type: synthetic, n_tokens: 2000000}]",
                               "eval_strategy=no",
                               "save_strategy=no",
                               "per_device_train_batch_size=8",
                               "device=cuda",
                               "bf16=true",
                               folder,
                               steps,
                               extra};
    expect_ok(config_load(&r->config, SNUG_SOURCE_DIR "/configs/gpt2-124m.yaml", overrides,
                          ARRAY_LEN(overrides)));
    expect_ok(config_resolve(r->config, 1));
    double start = now_s();
    struct session_options o = {.train = true, .cache_folder = cache_folder};
    expect_ok(session_open(&r->session, r->config, &o));
    r->open_s = now_s() - start;
}

static void train(struct run *r, const struct profile_options *profile)
{
    struct train_options o = {.profile = profile};
    expect_ok(session_data(&r->session));
    expect_ok(session_start(&r->session));
    expect_ok(train_session(&r->session, &o, &r->result));
}

static void close_run(struct run *r)
{
    train_result_release(&r->result);
    session_close(&r->session);
    config_free(r->config);
    scratch_release(&r->scratch);
}

static void expect_forecast(const char *extra)
{
    struct run r;
    open_run(&r, NULL, extra);
    const struct forecast *f = &r.session.engine.forecast;
    assert_string_equal(forecast_source(f), "measured kernels");
    assert_int_equal(f->n_by_rate, 0);
    train(&r, NULL);
    print_message(
        "%s: predicted %.3f ms, measured %.3f ms (%+.1f%%); %d kernels, opened in %.2f s\n", extra,
        1e3 * f->step_s, 1e3 * r.result.median_step_s,
        100.0 * (f->step_s / r.result.median_step_s - 1.0), f->n_calls, r.open_s);
    assert_true(fabs(f->step_s / r.result.median_step_s - 1.0) < 0.2);
    close_run(&r);
}

static void the_forecast_is_within_a_fifth_of_the_step(void **state)
{
    (void)state;
    expect_forecast("gradient_checkpointing=false");
    expect_forecast("gradient_checkpointing=true");
    expect_forecast("gradient_accumulation_steps=2");
}

static void kernels_are_timed_once_per_machine(void **state)
{
    (void)state;
    struct run first, second;
    struct scratch cache;
    scratch_init(&cache);
    open_run(&first, cache.folder, "seed=1");
    assert_true(kernel_times_n_measured(first.session.engine.times) > 10);
    double step_s = first.session.engine.forecast.step_s;
    double open_s = first.open_s;
    close_run(&first);
    open_run(&second, cache.folder, "seed=2");
    assert_int_equal(kernel_times_n_measured(second.session.engine.times), 0);
    assert_true(fabs(second.session.engine.forecast.step_s / step_s - 1) < 0.05);
    print_message("opened in %.2f s, then in %.2f s\n", open_s, second.open_s);
    close_run(&second);
    scratch_release(&cache);
}

/* Marks change no bit, and what they say adds up to the step. */
static void a_profile_changes_nothing_and_adds_up(void **state)
{
    (void)state;
    struct run plain, watched;
    char path[SCRATCH_PATH];
    json_t *trace;
    open_run(&plain, NULL, "seed=3");
    train(&plain, NULL);
    open_run(&watched, NULL, "seed=3");
    struct profile_options o = {scratch_path(&watched.scratch, "trace.json", path), 3};
    train(&watched, &o);
    assert_memory_equal(plain.result.losses, watched.result.losses, N_STEPS * sizeof(double));
    assert_non_null(watched.result.profile);
    print_message("%s", watched.result.profile);
    expect_ok(json_read_file(&trace, path, ERR_DATA));
    const json_t *events = json_object_get(trace, "traceEvents"), *e;
    double sum_ms = 0, step_ms = 0, end = 0;
    size_t i;
    json_array_foreach(events, i, e)
    {
        bool measured = json_integer_value(json_object_get(e, "pid")) == 1;
        bool compute = json_integer_value(json_object_get(e, "tid")) == 1;
        if (strcmp(json_string_value(json_object_get(e, "ph")), "X") != 0 || !measured || !compute)
            continue;
        double begin = json_number_value(json_object_get(e, "ts"));
        assert_true(begin >= end - 1e-3);
        end = begin + json_number_value(json_object_get(e, "dur"));
        sum_ms += json_number_value(json_object_get(e, "dur")) / 1e3 / 3.0;
    }
    step_ms = json_number_value(json_object_get(json_object_get(trace, "otherData"), "step_ms"));
    assert_true(sum_ms > 0.8 * step_ms && sum_ms < 1.001 * step_ms);
    json_decref(trace);
    close_run(&plain);
    close_run(&watched);
}

/* A part of each memory goes each way at once, COPIES times: seconds of the fastest round. */
static double seconds_both_ways(struct device *d, const struct memory *device,
                                const struct memory *host)
{
    double best = HUGE_VAL;
    for (int round = 0; round < 4; round++) {
        double start = now_s();
        for (int i = 0; i < COPIES; i++) {
            expect_ok(device_copy(d, QUEUE_OUT, (struct place){host, PART_BYTES},
                                  (struct place){device, PART_BYTES}, PART_BYTES));
            expect_ok(device_copy(d, QUEUE_IN, (struct place){device, 0}, (struct place){host, 0},
                                  PART_BYTES));
        }
        expect_ok(d->ops->sync(d));
        best = fmin(best, now_s() - start);
    }
    return best;
}

/* As much in as out: the slower way beside the other is what both take. */
static void copies_both_ways_take_what_the_rates_say(void **state)
{
    (void)state;
    struct device d;
    struct memory device = {TIER_DEVICE, NULL, 2 * PART_BYTES};
    struct memory host = {TIER_HOST, NULL, 2 * PART_BYTES};
    assert_true(gpu_open(&d));
    expect_ok(d.ops->memory_alloc(&d, TIER_DEVICE, device.n_bytes, &device.base));
    expect_ok(d.ops->memory_alloc(&d, TIER_HOST, host.n_bytes, &host.base));
    double in = d.rates.links[TIER_HOST][TIER_DEVICE].both;
    double out = d.rates.links[TIER_DEVICE][TIER_HOST].both;
    double rate = COPIES * (double)PART_BYTES / seconds_both_ways(&d, &device, &host);
    print_message("both ways at once: %.1f GB/s each; in was measured at %.1f, out at %.1f\n",
                  rate / 1e9, in / 1e9, out / 1e9);
    assert_true(fabs(fmin(in, out) / rate - 1.0) < 0.15);
    d.ops->memory_free(&d, TIER_HOST, host.base, host.n_bytes);
    d.ops->memory_free(&d, TIER_DEVICE, device.base, device.n_bytes);
    device_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_both_ways_take_what_the_rates_say),
        cmocka_unit_test(the_forecast_is_within_a_fifth_of_the_step),
        cmocka_unit_test(kernels_are_timed_once_per_machine),
        cmocka_unit_test(a_profile_changes_nothing_and_adds_up),
    };
    if (device_count_cuda() == 0) {
        print_message("no GPU, or a build without CUDA\n");
        return GPU_SKIPPED;
    }
    log_set_level(LOG_QUIET);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
