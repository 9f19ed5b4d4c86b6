/* Everything that follows training on a device whose memory the host cannot address: saving,
 * resuming, evaluating, generating, exporting. Host code that takes a device address for a pointer
 * of its own ends this program with a segmentation fault; the results are those of the plain CPU.
 */
#include <setjmp.h>
#include <signal.h>
#include <snug.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/file.h"
#include "base/log.h"
#include "support/apart_device.h"
#include "support/raw_copy.h"
#include "support/scratch.h"

enum { N_STEPS = 6, HALF = 3 };

/* ---- a run ----------------------------------------------------------------------------------- */

static const char *precision;

static struct snug_config *load(const struct scratch *s, int n_steps, const char *more)
{
    char path[SCRATCH_PATH], out[SCRATCH_PATH + 16], steps[32];
    struct snug_config *config;
    scratch_write_text(s, "tiny.yaml",
                       "model: {model_type: llama, vocab_size: 257, hidden_size: 32,"
                       " intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 2,"
                       " num_key_value_heads: 1, max_position_embeddings: 96}\n"
                       "tokenizer: bytes\n"
                       "datasets: [{type: synthetic, n_tokens: 9000}]\n"
                       "val_set_size: 0.1\n"
                       "eval_strategy: steps\n"
                       "eval_steps: 3\n"
                       "eval_max_batches: 2\n"
                       "max_seq_length: 32\n"
                       "per_device_train_batch_size: 2\n"
                       "lr_scheduler_type: constant\n"
                       "num_threads: 1\n"
                       "device: cpu\n"
                       "save_steps: 3\n"
                       "report_to: none\n");
    (void)snprintf(out, sizeof(out), "output_dir=%s/out", s->folder);
    (void)snprintf(steps, sizeof(steps), "max_steps=%d", n_steps);
    const char *overrides[] = {out, steps, precision, more};
    scratch_path(s, "tiny.yaml", path);
    assert_int_equal(snug_config_load(&config, path, overrides, more ? 4 : 3), SNUG_OK);
    return config;
}

struct results {
    double losses[N_STEPS], eval_loss;
    char text[256];
    char *weights; /* of the export, as a file */
    size_t n_bytes;
};

static void train(const struct scratch *s, int n_steps, const char *resume, double *losses)
{
    struct snug_config *config = load(s, n_steps, resume);
    struct snug_run *run;
    struct snug_train_result r;
    assert_int_equal(snug_run_open(&run, config, NULL, SNUG_TRAIN), SNUG_OK);
    if (snug_run_train(run, &(struct snug_train_options){0}) != SNUG_OK)
        fail_msg("%s", snug_error_message());
    snug_run_result(run, &r);
    assert_int_equal(r.n_steps, HALF);
    memcpy(losses, r.losses, HALF * sizeof(*losses));
    snug_run_close(run);
    snug_config_free(config);
}

static void evaluate(const struct snug_config *config, struct results *out)
{
    struct snug_run *run;
    struct snug_evaluation e;
    assert_int_equal(snug_run_open(&run, config, NULL, SNUG_EVALUATE), SNUG_OK);
    assert_int_equal(snug_run_evaluate(run, "last", &e), SNUG_OK);
    out->eval_loss = e.loss;
    snug_run_close(run);
}

static void generate(const struct snug_config *config, struct results *out)
{
    struct snug_generator *g;
    struct snug_generation made;
    struct snug_generate_request request = {
        .prompt = "once upon", .max_new_tokens = 12, .temperature = 0, .top_p = 1};
    assert_int_equal(snug_generator_open(&g, config, NULL, "last", &request), SNUG_OK);
    assert_int_equal(snug_generate(g, NULL, NULL, NULL, &made), SNUG_OK);
    (void)snprintf(out->text, sizeof(out->text), "%s", made.text);
    snug_generator_close(g);
}

static void export_weights(const struct scratch *s, const struct snug_config *config,
                           struct results *out)
{
    char folder[SCRATCH_PATH], file[SCRATCH_PATH];
    struct snug_export_options o = {.checkpoint = "last",
                                    .out_dir = scratch_path(s, "export", folder)};
    struct snug_exported made;
    if (snug_export(config, NULL, &o, &made) != SNUG_OK)
        fail_msg("%s", snug_error_message());
    snug_free(made.weights);
    scratch_path(s, "export/model.safetensors", file);
    assert_int_equal(file_read(file, &out->weights, &out->n_bytes), OK);
}

static void run_all(bool apart, struct results *out)
{
    struct scratch s;
    *out = (struct results){0};
    cpu_opens_apart = apart;
    scratch_init(&s);
    train(&s, HALF, NULL, out->losses);
    train(&s, N_STEPS, "resume_from_checkpoint=last", out->losses + HALF);
    struct snug_config *config = load(&s, N_STEPS, NULL);
    evaluate(config, out);
    generate(config, out);
    export_weights(&s, config, out);
    snug_config_free(config);
    scratch_release(&s);
    cpu_opens_apart = false;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void expect_same(const char *which)
{
    struct results plain, apart;
    precision = which;
    run_all(false, &plain);
    run_all(true, &apart);
    assert_memory_equal(plain.losses, apart.losses, sizeof(plain.losses));
    assert_true(plain.eval_loss == apart.eval_loss);
    assert_string_equal(plain.text, apart.text);
    assert_int_equal(plain.n_bytes, apart.n_bytes);
    assert_memory_equal(plain.weights, apart.weights, plain.n_bytes);
    mem_free(plain.weights);
    mem_free(apart.weights);
}

static void every_command_gives_what_the_plain_cpu_gives(void **state)
{
    (void)state;
    expect_same("bf16=false");
}

static void masters_of_16_bit_weights_follow_them(void **state)
{
    (void)state;
    expect_same("bf16=true");
}

/* Most are larger than it, and none a multiple of it. */
static void tensors_go_through_a_small_staging_in_parts(void **state)
{
    (void)state;
    apart_staging_bytes = 1000;
    expect_same("bf16=true");
    apart_staging_bytes = 0;
}

/* A run with much of it on the host leaves behind what it held beside that: plans of later
 * processes count with it (device/beside.h). */
static void a_run_keeps_what_it_held_beside_its_arenas(void **state)
{
    struct scratch s;
    char path[SCRATCH_PATH], cache[SCRATCH_PATH];
    struct snug_run *run;
    (void)state;
    precision = "bf16=false";
    scratch_init(&s);
    struct snug_settings settings = {.cache_folder = scratch_path(&s, "cache", cache)};
    cpu_opens_apart = true;
    struct snug_config *config = load(&s, 1, NULL); /* writes the file */
    snug_config_free(config);
    const char *overrides[] = {"model.vocab_size=300000",
                               "offload_optimizer=true",
                               "max_steps=1",
                               "eval_strategy=no",
                               "save_strategy=no",
                               "output_dir=",
                               NULL};
    char out[SCRATCH_PATH + 16];
    (void)snprintf(out, sizeof(out), "output_dir=%s/out", s.folder);
    overrides[5] = out;
    assert_int_equal(snug_config_load(&config, scratch_path(&s, "tiny.yaml", path), overrides, 6),
                     SNUG_OK);
    assert_int_equal(snug_run_open(&run, config, &settings, SNUG_TRAIN), SNUG_OK);
    if (snug_run_train(run, &(struct snug_train_options){0}) != SNUG_OK)
        fail_msg("%s", snug_error_message());
    snug_run_close(run);
    snug_config_free(config);
    cpu_opens_apart = false;
    assert_true(file_exists(scratch_path(&s, "cache/processes", path)));
    scratch_release(&s);
}

/* The other tests prove something only if this holds. */
static void the_host_cannot_read_device_memory(void **state)
{
    (void)state;
    struct device d;
    void *p;
    int how;
    float out = 1, back = 0;
    cpu_opens_apart = true;
    assert_int_equal(device_open_cpu(&d, 1), OK);
    cpu_opens_apart = false;
    assert_int_equal(d.ops->memory_alloc(&d, TIER_DEVICE, 4096, &p), OK);
    pid_t child = fork();
    if (child == 0) {
        (void)signal(SIGSEGV, SIG_DFL);
        _exit(*(volatile const char *)p);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGSEGV);
    raw_copy(&d, QUEUE_IN, p, &out, sizeof(out));
    raw_copy(&d, QUEUE_OUT, &back, p, sizeof(back));
    assert_true(back == 1);
    d.ops->memory_free(&d, TIER_DEVICE, p, 4096);
    device_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_keeps_what_it_held_beside_its_arenas), /* first: peaks stay */
        cmocka_unit_test(the_host_cannot_read_device_memory),
        cmocka_unit_test(every_command_gives_what_the_plain_cpu_gives),
        cmocka_unit_test(masters_of_16_bit_weights_follow_them),
        cmocka_unit_test(tensors_go_through_a_small_staging_in_parts),
    };
    log_set_level(LOG_QUIET);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
