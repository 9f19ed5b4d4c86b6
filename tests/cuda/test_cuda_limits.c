/* Host memory that cannot be pinned: the run is refused with bytes and the fix, and nothing of it
 * stays on the GPU. Skipped without a GPU.
 */
#include <setjmp.h>
#include <snug.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "support/gpu.h"
#include "support/scratch.h"

/* ---- a driver that pins nothing ----------------------------------------------------------------
 */

enum { CUDA_ERROR_MEMORY_ALLOCATION = 2 }; /* cudaErrorMemoryAllocation */

static bool refuses;

/* Weak: in a build without CUDA there is none, and it is never called. */
__attribute__((weak)) int __real_cudaHostRegister(void *p, size_t n_bytes, unsigned flags);
int __wrap_cudaHostRegister(void *p, size_t n_bytes, unsigned flags);

/* The linker puts it in the place of cudaHostRegister (--wrap). */
int __wrap_cudaHostRegister(void *p, size_t n_bytes, unsigned flags)
{
    return refuses ? CUDA_ERROR_MEMORY_ALLOCATION : __real_cudaHostRegister(p, n_bytes, flags);
}

/* ---- runs --------------------------------------------------------------------------------------
 */

/* Opening the GPU pins a little too, to measure its links: it is refused what comes after that. */
static enum snug_status train(const struct scratch *s, bool is_refused)
{
    char path[SCRATCH_PATH], out[SCRATCH_PATH + 16];
    struct snug_config *config;
    struct snug_run *run;
    scratch_write_text(s, "tiny.yaml",
                       "model: {model_type: llama, vocab_size: 257, hidden_size: 64,"
                       " intermediate_size: 128, num_hidden_layers: 2, num_attention_heads: 2,"
                       " num_key_value_heads: 2, max_position_embeddings: 96}\n"
                       "tokenizer: bytes\n"
                       "datasets: [{type: synthetic, n_tokens: 9000}]\n"
                       "max_seq_length: 64\n"
                       "per_device_train_batch_size: 2\n"
                       "device: cuda\n"
                       "bf16: true\n"
                       "offload_optimizer: true\n"
                       "offload_param: true\n"
                       "max_steps: 2\n"
                       "overwrite_output_dir: true\n"
                       "report_to: none\n");
    (void)snprintf(out, sizeof(out), "output_dir=%s/out", s->folder);
    const char *overrides[] = {out};
    scratch_path(s, "tiny.yaml", path);
    const struct snug_settings settings = {.cache_folder = gpu_cache_folder()};
    assert_int_equal(snug_config_load(&config, path, overrides, 1), SNUG_OK);
    assert_int_equal(snug_run_open(&run, config, &settings, SNUG_TRAIN), SNUG_OK);
    refuses = is_refused;
    enum snug_status status = snug_run_train(run, &(struct snug_train_options){0});
    refuses = false;
    snug_run_close(run);
    snug_config_free(config);
    return status;
}

static void a_run_whose_host_memory_cannot_be_pinned_is_refused(void **state)
{
    struct scratch s;
    (void)state;
    scratch_init(&s);
    assert_int_equal(train(&s, true), SNUG_ERR_FIT);
    assert_non_null(strstr(snug_error_message(), "the host arena needs"));
    assert_non_null(strstr(snug_error_message(), "bytes)"));
    assert_non_null(strstr(snug_error_message(), "could not be pinned"));
    assert_non_null(strstr(snug_error_message(), "host_memory"));
    assert_int_equal(train(&s, false), SNUG_OK); /* the error of before is not met again */
    scratch_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_whose_host_memory_cannot_be_pinned_is_refused),
    };
    struct device d;
    if (!gpu_open(&d))
        return GPU_SKIPPED;
    device_close(&d);
    log_set_level(LOG_QUIET);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
