/* Networks with running statistics on a device whose memory the host cannot address: what is moved
 * there and back, or lives on the host or on disk, changes no bit. */
#include <setjmp.h>
#include <snug.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/file.h"
#include "base/log.h"
#include "support/apart_device.h"
#include "support/scratch.h"

enum { STEPS = 4 };

struct results {
    double losses[STEPS], eval_loss;
    char *weights; /* of the last checkpoint, as a file */
    size_t n_bytes;
};

static void check(enum snug_status status)
{
    if (status != SNUG_OK)
        fail_msg("%s", snug_error_message());
}

static const char *const networks[] = {
    "model:\n"
    "  input: [6, 6, 2]\n"
    "  layers:\n"
    "    - conv: {out: 8, kernel: 3, padding: 1}\n"
    "    - batch_norm\n"
    "    - relu\n"
    "    - residual: [{conv: {out: 8, kernel: 3, padding: 1}}, batch_norm]\n"
    "    - max_pool: 2\n"
    "    - flatten\n"
    "    - linear: 16\n"
    "    - batch_norm\n"
    "    - relu\n"
    "    - linear: 3\n"
    "  loss: cross_entropy\n",
    "model: {model_type: frame_cnn, temporal_frames: 2, image_height: 8, image_width: 9, "
    "width_divisor: 16}\n",
    "model: {model_type: three_branch, frames: 4, image_height: 16, image_width: 16, "
    "width_divisor: 16, siamese: cnn, tracks: true, grid_height: 1, grid_width: 2}\n",
};

static const char settings_of_all[] = "datasets: [{type: synthetic, n_samples: 64}]\n"
                                      "val_set_size: 8\n"
                                      "per_device_train_batch_size: 4\n"
                                      "num_threads: 1\n"
                                      "device: cpu\n"
                                      "max_steps: 4\n"
                                      "save_steps: 4\n"
                                      "report_to: none\n";

static void run(const char *network, const char *const *settings, struct results *out)
{
    struct scratch s;
    struct snug_config *config;
    struct snug_run *x;
    struct snug_train_result r;
    struct snug_evaluation e;
    char text[2048], path[SCRATCH_PATH], file[SCRATCH_PATH + 64], folder[SCRATCH_PATH + 16],
        disk[SCRATCH_PATH + 32];
    const char *overrides[8];
    size_t n = 0;
    scratch_init(&s);
    (void)snprintf(text, sizeof(text), "%s%s", network, settings_of_all);
    scratch_write_text(&s, "net.yaml", text);
    (void)snprintf(folder, sizeof(folder), "output_dir=%s/out", s.folder);
    overrides[n++] = folder;
    (void)snprintf(disk, sizeof(disk), "offload_folder=%s/disk", s.folder);
    overrides[n++] = disk;
    while (*settings)
        overrides[n++] = *settings++;
    check(snug_config_load(&config, scratch_path(&s, "net.yaml", path), overrides, n));
    check(snug_run_open(&x, config, NULL, SNUG_TRAIN));
    check(snug_run_train(x, &(struct snug_train_options){0}));
    snug_run_result(x, &r);
    memcpy(out->losses, r.losses, sizeof(out->losses));
    snug_run_close(x);
    check(snug_run_open(&x, config, NULL, SNUG_EVALUATE));
    check(snug_run_evaluate(x, "last", &e));
    out->eval_loss = e.loss;
    snug_run_close(x);
    snug_config_free(config);
    (void)snprintf(file, sizeof(file), "%s/out/checkpoint-4/model.safetensors", s.folder);
    assert_int_equal(file_read(file, &out->weights, &out->n_bytes), OK);
    scratch_release(&s);
}

static void what_is_moved_changes_no_bit_of_a_network(void **state)
{
    static const char *const ways[][4] = {
        {NULL},
        {"activation_offloading=true", NULL},
        {"offload_optimizer=true", NULL},
        {"offload_optimizer=true", "offload_param=true", "gradient_checkpointing=true", NULL},
        {"offload_optimizer=disk", "offload_param=nvme", "activation_offloading=disk", NULL},
    };
    (void)state;
    /* Sanitizers see the same code again in the others. */
    size_t n_networks = SNUG_ASAN ? 2 : ARRAY_LEN(networks);
    size_t first_way = SNUG_ASAN ? ARRAY_LEN(ways) - 2 : 0;
    for (size_t n = 0; n < n_networks; n++) {
        struct results first, x;
        cpu_opens_apart = false;
        run(networks[n], ways[0], &first);
        cpu_opens_apart = true;
        for (size_t i = n == 0 ? first_way : ARRAY_LEN(ways) - 1; i < ARRAY_LEN(ways); i++) {
            run(networks[n], ways[i], &x); /* the others in the one way that moves most */
            assert_memory_equal(first.losses, x.losses, sizeof(x.losses));
            assert_true(first.eval_loss == x.eval_loss);
            assert_int_equal(first.n_bytes, x.n_bytes);
            assert_memory_equal(first.weights, x.weights, x.n_bytes);
            mem_free(x.weights);
        }
        mem_free(first.weights);
    }
}

/* Running statistics go from micro-batch to micro-batch, in a group as one at a time. */
static void groups_change_no_bit_of_a_network(void **state)
{
    static const char *const ways[][6] = {
        {"gradient_accumulation_steps=4", NULL},
        {"gradient_accumulation_steps=4", "micro_batch_group=4", NULL},
        {"gradient_accumulation_steps=4", "micro_batch_group=3", "offload_param=true",
         "offload_optimizer=true", "gradient_checkpointing=true", NULL},
    };
    static const int chosen[] = {0, 2}; /* the last shares a layer between the blocks of frames */
    (void)state;
    cpu_opens_apart = true;
    for (size_t n = SNUG_ASAN ? 1 : 0; n < ARRAY_LEN(chosen); n++) {
        struct results first, x;
        run(networks[chosen[n]], ways[0], &first);
        for (size_t i = n == 0 ? 1 : ARRAY_LEN(ways) - 1; i < ARRAY_LEN(ways); i++) {
            run(networks[chosen[n]], ways[i], &x);
            assert_memory_equal(first.losses, x.losses, sizeof(x.losses));
            assert_true(first.eval_loss == x.eval_loss);
            assert_int_equal(first.n_bytes, x.n_bytes);
            assert_memory_equal(first.weights, x.weights, x.n_bytes);
            mem_free(x.weights);
        }
        mem_free(first.weights);
    }
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_moved_changes_no_bit_of_a_network),
                                       cmocka_unit_test(groups_change_no_bit_of_a_network)};
    return cmocka_run_group_tests_name("network_moves", tests, NULL, NULL);
}
