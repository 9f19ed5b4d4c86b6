/* Arenas that the system does not give, or does not pin: the run is refused before it begins, and
 * what another run has left in its folder stays.
 */
#include <setjmp.h>
#include <snug.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/file.h"
#include "base/log.h"
#include "device/device.h"
#include "support/scratch.h"

/* ---- a device that gives none ------------------------------------------------------------------
 */

static enum tier refused = TIER_COUNT;
static struct device_ops ops;
static enum status (*give)(struct device *d, enum tier t, int64_t n_bytes, void **out);

static enum status give_or_refuse(struct device *d, enum tier t, int64_t n_bytes, void **out)
{
    if (t != refused)
        return give(d, t, n_bytes, out);
    return t == TIER_HOST ? room_refuse_pinned("the host arena", n_bytes, "injected")
                          : room_refuse_host("the device arena", n_bytes, "injected");
}

enum status __real_device_open_cpu_cached(struct device *d, int n_threads,
                                          const char *cache_folder);
enum status __wrap_device_open_cpu_cached(struct device *d, int n_threads,
                                          const char *cache_folder);

/* The linker puts it in the place of device_open_cpu_cached (--wrap). */
enum status __wrap_device_open_cpu_cached(struct device *d, int n_threads, const char *cache_folder)
{
    TRY(__real_device_open_cpu_cached(d, n_threads, cache_folder));
    ops = *d->ops;
    give = ops.memory_alloc;
    ops.memory_alloc = give_or_refuse;
    d->ops = &ops;
    return OK;
}

/* ---- runs --------------------------------------------------------------------------------------
 */

static struct scratch scratch;

static enum snug_status train(enum tier without)
{
    char path[SCRATCH_PATH], out[SCRATCH_PATH + 16];
    struct snug_config *config;
    struct snug_run *run;
    scratch_write_text(&scratch, "tiny.yaml",
                       "model: {model_type: llama, vocab_size: 257, hidden_size: 32,"
                       " intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 2,"
                       " num_key_value_heads: 1, max_position_embeddings: 96}\n"
                       "tokenizer: bytes\n"
                       "datasets: [{type: synthetic, n_tokens: 9000}]\n"
                       "max_seq_length: 32\n"
                       "per_device_train_batch_size: 2\n"
                       "num_threads: 1\n"
                       "device: cpu\n"
                       "max_steps: 2\n"
                       "overwrite_output_dir: true\n"
                       "report_to: none\n");
    (void)snprintf(out, sizeof(out), "output_dir=%s/out", scratch.folder);
    const char *overrides[] = {out};
    scratch_path(&scratch, "tiny.yaml", path);
    assert_int_equal(snug_config_load(&config, path, overrides, 1), SNUG_OK);
    assert_int_equal(snug_run_open(&run, config, NULL, SNUG_TRAIN), SNUG_OK);
    refused = without;
    enum snug_status status = snug_run_train(run, &(struct snug_train_options){0});
    refused = TIER_COUNT;
    snug_run_close(run);
    snug_config_free(config);
    return status;
}

static void expect_refused(enum tier without, const char *what, const char *fix)
{
    char checkpoint[SCRATCH_PATH], metrics[SCRATCH_PATH];
    struct file_map before, after;
    scratch_path(&scratch, "out/metrics.jsonl", metrics);
    assert_int_equal(train(TIER_COUNT), SNUG_OK);
    assert_int_equal(file_map_open(&before, metrics), OK);
    assert_int_equal(train(without), SNUG_ERR_FIT);
    assert_non_null(strstr(snug_error_message(), what));
    assert_non_null(strstr(snug_error_message(), "bytes)"));
    assert_non_null(strstr(snug_error_message(), fix));
    assert_true(file_exists(scratch_path(&scratch, "out/checkpoint-2/state.json", checkpoint)));
    assert_int_equal(file_map_open(&after, metrics), OK);
    assert_int_equal(after.n_bytes, before.n_bytes);
    file_map_close(&before);
    file_map_close(&after);
}

static void memory_that_is_not_pinned_refuses_the_run_and_leaves_the_folder(void **state)
{
    (void)state;
    expect_refused(TIER_HOST, "the host arena needs", "host_memory");
}

static void memory_that_is_not_given_refuses_the_run_and_leaves_the_folder(void **state)
{
    (void)state;
    expect_refused(TIER_DEVICE, "the device arena needs", "host_memory");
}

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_is_not_pinned_refuses_the_run_and_leaves_the_folder),
        cmocka_unit_test(memory_that_is_not_given_refuses_the_run_and_leaves_the_folder),
    };
    log_set_level(LOG_QUIET);
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
