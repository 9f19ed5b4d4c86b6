/* Networks of a config train as PyTorch trains them, whatever is kept, moved or made again. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "io/safetensors.h"
#include "support/golden.h"
#include "support/network_run.h"

enum { STEPS = 10, TEXT = NETWORK_PATH, LONG_TEXT = TEXT + 64 };

/* ---- beside PyTorch -------------------------------------------------------------------------- */

static float element(const struct st_tensor *t, int64_t i)
{
    float x;
    assert_int_equal(t->dtype, ST_F32);
    memcpy(&x, t->data + i * (int64_t)sizeof(x), sizeof(x));
    return x;
}

/* |a - b| <= tolerance of the largest |b|, a being (before - after) / rate, or after itself. */
static void compare(const struct st_tensor *due, const struct st_tensor *after,
                    const struct st_tensor *before, double rate, double tolerance)
{
    double most = 0;
    assert_int_equal(due->n_elems, after->n_elems);
    for (int64_t i = 0; i < due->n_elems; i++)
        most = fmax(most, fabs((double)element(due, i)));
    for (int64_t i = 0; i < due->n_elems; i++) {
        double x = (double)element(after, i);
        if (before)
            x = ((double)element(before, i) - x) / rate;
        /* where a norm makes a gradient nothing, the last places of weights are left of it */
        if (fabs(x - (double)element(due, i)) > tolerance * (most + 0.03))
            fail_msg("%s[%lld]: %.9g, PyTorch has %.9g", due->name, (long long)i, x,
                     (double)element(due, i));
    }
}

/* Every tensor of the golden file whose name begins with `prefix`. */
static void compare_all(const char *folder, const char *checkpoint, const char *prefix, double rate,
                        double tolerance)
{
    struct st_reader *golden, *start, *end;
    char path[LONG_TEXT];
    int n = 0;
    bool gradients = strcmp(prefix, "grad.") == 0;
    (void)snprintf(path, sizeof(path), "%s/golden.safetensors", folder);
    expect_ok(st_reader_open_file(&golden, path));
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    expect_ok(st_reader_open_file(&start, path));
    expect_ok(st_reader_open_folder(&end, checkpoint));
    for (size_t i = 0; i < st_reader_count(golden); i++) {
        const struct st_tensor *due = st_reader_at(golden, i), *after, *before;
        if (strncmp(due->name, prefix, strlen(prefix)) != 0)
            continue;
        expect_ok(st_reader_get(end, due->name + strlen(prefix), &after));
        expect_ok(st_reader_get(start, due->name + strlen(prefix), &before));
        compare(due, after, gradients ? before : NULL, rate, tolerance);
        n++;
    }
    assert_true(n > 4);
    st_reader_close(golden);
    st_reader_close(start);
    st_reader_close(end);
}

static void compare_losses(const char *folder, const struct network_run *x)
{
    struct st_reader *golden;
    const struct st_tensor *t;
    char path[LONG_TEXT];
    (void)snprintf(path, sizeof(path), "%s/golden.safetensors", folder);
    expect_ok(st_reader_open_file(&golden, path));
    expect_ok(st_reader_get(golden, "losses", &t));
    assert_int_equal(x->n, STEPS);
    for (int i = 0; i < STEPS; i++) {
        double due;
        memcpy(&due, t->data + i * (int)sizeof(due), sizeof(due));
        if (fabs(x->losses[i] - due) > 1e-4 * fabs(due))
            fail_msg("%s: loss of step %d is %.9g, PyTorch has %.9g", folder, i, x->losses[i], due);
    }
    st_reader_close(golden);
}

static void train_golden(struct network_run *x, const char *folder, const char *batch, double rate,
                         const char *steps)
{
    char model[LONG_TEXT], data[LONG_TEXT], lr[64];
    (void)snprintf(lr, sizeof(lr), "learning_rate=%g", rate);
    (void)snprintf(model, sizeof(model), "model_name_or_path=%s", folder);
    (void)snprintf(data, sizeof(data), "datasets.0.path=%s/data.safetensors", folder);
    const char *const settings[] = {model, data, batch, steps, lr, NULL};
    network_train(x, NULL, settings);
}

static void networks_train_as_pytorch_trains_them(void **state)
{
    static const struct {
        const char *name, *batch;
        double rate;
    } cases[] = {{"mlp", "per_device_train_batch_size=8", 0.05},
                 {"cnn", "per_device_train_batch_size=6", 0.05},
                 {"branches", "per_device_train_batch_size=6", 0.05},
                 {"wide_autoencoder", "per_device_train_batch_size=8", 0.0001},
                 {"frame_cnn", "per_device_train_batch_size=8", 0.002},
                 {"three_branch", "per_device_train_batch_size=3", 0.01},
                 {"frames", "per_device_train_batch_size=7", 0.05},
                 {"multi_scale", "per_device_train_batch_size=6", 0.002},
                 {"gnn", "per_device_train_batch_size=6", 0.002},
                 {"ssm", "per_device_train_batch_size=6", 0.002},
                 {"lstm", "per_device_train_batch_size=6", 0.002},
                 {"plain_cnn", "per_device_train_batch_size=6", 0.05},
                 {"sequences", "per_device_train_batch_size=4", 0.05},
                 {"graphs", "per_device_train_batch_size=4", 0.05},
                 {"masked", "per_device_train_batch_size=5", 0.05}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct network_run x;
        char folder[TEXT];
        (void)snprintf(folder, sizeof(folder), "%s/tests/golden/networks/%s", SNUG_SOURCE_DIR,
                       cases[i].name);
        train_golden(&x, folder, cases[i].batch, 0.05, "max_steps=1");
        compare_all(folder, x.checkpoint, "grad.", 0.05, 1e-3);
        network_finish(&x);
        train_golden(&x, folder, cases[i].batch, cases[i].rate, "max_steps=10");
        compare_losses(folder, &x);
        compare_all(folder, x.checkpoint, "trained.", cases[i].rate,
                    1e-3); /* running statistics too */
        network_finish(&x);
    }
}

/* ---- the same bits --------------------------------------------------------------------------- */

static const char cnn[] = "model:\n"
                          "  input: [8, 8, 2]\n"
                          "  layers:\n"
                          "    - conv: {out: 6, kernel: 3, padding: 1}\n"
                          "    - batch_norm\n"
                          "    - relu\n"
                          "    - residual:\n"
                          "        - conv: {out: 6, kernel: 3, padding: 1}\n"
                          "        - batch_norm\n"
                          "        - dropout: 0.2\n"
                          "    - max_pool: 2\n"
                          "    - conv: {out: 8, kernel: 3}\n"
                          "    - batch_norm\n"
                          "    - relu\n"
                          "    - flatten\n"
                          "    - linear: 4\n"
                          "  loss: cross_entropy\n";

static void running_statistics_are_updated_once_whatever_is_made_again(void **state)
{
    static const char *const ways[] = {"gradient_checkpointing=false",
                                       "gradient_checkpointing=true", "gradient_checkpointing=1-2"};
    static const char *const micro[] = {"gradient_accumulation_steps=1",
                                        "gradient_accumulation_steps=3"};
    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(micro); m++) {
        struct network_run first, x;
        for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
            const char *const settings[] = {"max_steps=6", "per_device_train_batch_size=4", ways[i],
                                            micro[m], NULL};
            network_train(i ? &x : &first, cnn, settings);
            if (i == 0)
                continue;
            assert_memory_equal(first.losses, x.losses, sizeof(x.losses));
            network_expect_same(&first, &x);
            network_finish(&x);
        }
        network_finish(&first);
    }
}

static void a_network_goes_on_from_a_checkpoint_with_the_same_bits(void **state)
{
    struct network_run whole, half, rest;
    char from[TEXT + 32];
    const char *const all[] = {"max_steps=8", "per_device_train_batch_size=4", "optim=adamw", NULL};
    const char *const begin[] = {"max_steps=4", "per_device_train_batch_size=4", "optim=adamw",
                                 NULL};
    (void)state;
    network_train(&whole, cnn, all);
    network_train(&half, cnn, begin);
    (void)snprintf(from, sizeof(from), "resume_from_checkpoint=%s", half.checkpoint);
    const char *const go_on[] = {"max_steps=8", "per_device_train_batch_size=4", "optim=adamw",
                                 from, NULL};
    network_train(&rest, cnn, go_on);
    assert_int_equal(rest.n, 4);
    assert_memory_equal(whole.losses + 4, rest.losses, 4 * sizeof(double));
    network_expect_same(&whole, &rest);
    network_finish(&whole);
    network_finish(&half);
    network_finish(&rest);
}

static void half_precision_trains_too(void **state)
{
    struct network_run x;
    const char *const settings[] = {"max_steps=30",       "per_device_train_batch_size=8",
                                    "bf16=true",          "optim=adamw",
                                    "learning_rate=0.01", NULL};
    (void)state;
    network_train(&x, cnn, settings);
    assert_true(x.losses[29] < 0.7 * x.losses[0]);
    network_finish(&x);
}

/* ---- samples that know of each other --------------------------------------------------------- */

static void micro_batches_that_would_change_a_loss_are_refused(void **state)
{
    static const char text[] = "model:\n"
                               "  input: [4]\n"
                               "  layers: [{linear: 2}]\n"
                               "  loss: {mse: {over: batch_std}}\n";
    struct network_run x = {0};
    const char *const settings[] = {"gradient_accumulation_steps=2", NULL};
    (void)state;
    scratch_init(&x.scratch);
    assert_int_equal(network_load(&x, text, settings), ERR_CONFIG);
    assert_non_null(strstr(status_message(), "gradient_accumulation_steps"));
    assert_non_null(strstr(status_message(), "batch_std"));
    config_free(x.config);
    scratch_release(&x.scratch);
}

/* Targets that are all the same have no spread to compare with, or to divide by. */
static void targets_without_a_spread_train_too(void **state)
{
    static const char *const losses[] = {"[mse, {variance: {weight: 0.5}}]",
                                         "{mse: {over: batch_std}}"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(losses); i++) {
        struct scratch data;
        struct network_run x;
        char text[512], path[SCRATCH_PATH], file[SCRATCH_PATH + 32];
        scratch_init(&data);
        scratch_write_text(&data, "same.jsonl",
                           "{\"input\": [1, 2], \"target\": [0.3]}\n"
                           "{\"input\": [3, -1], \"target\": [0.3]}\n");
        (void)snprintf(file, sizeof(file), "datasets.0.path=%s",
                       scratch_path(&data, "same.jsonl", path));
        (void)snprintf(text, sizeof(text), "model: {input: [2], layers: [{linear: 1}], loss: %s}\n",
                       losses[i]);
        const char *const settings[] = {"max_steps=4", "per_device_train_batch_size=2",
                                        "learning_rate=0.1", file, NULL};
        network_train(&x, text, settings);
        for (int k = 0; k < x.n; k++)
            assert_true(x.losses[k] < 100.0);
        assert_true(x.losses[3] < x.losses[0]);
        network_finish(&x);
        scratch_release(&data);
    }
}

/* Settings that batch norm cannot be trained with, by the key that the message names. */
static void expect_no_batch_norm(const char *const *settings)
{
    static const char text[] = "model:\n"
                               "  input: [4]\n"
                               "  layers: [{linear: 2}, batch_norm]\n"
                               "  loss: mse\n";
    struct network_run x = {0};
    scratch_init(&x.scratch);
    assert_int_equal(network_load(&x, text, settings), ERR_CONFIG);
    assert_non_null(strstr(status_message(), "per_device_train_batch_size"));
    config_free(x.config);
    scratch_release(&x.scratch);
}

static void batch_norm_of_one_sample_is_refused(void **state)
{
    const char *const settings[] = {"per_device_train_batch_size=1", NULL};
    (void)state;
    expect_no_batch_norm(settings);
}

static void a_micro_batch_is_not_chosen_for_batch_norm(void **state)
{
    const char *const settings[] = {"per_device_train_batch_size=auto", "train_batch_size=8", NULL};
    (void)state;
    expect_no_batch_norm(settings);
}

/* ---- the wide autoencoder -------------------------------------------------------------------- */

static void a_tiny_wide_autoencoder_learns(void **state)
{
    static const char *const audio[] = {"mel", "codec"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(audio); i++) {
        struct network_run x;
        char text[512];
        (void)snprintf(text, sizeof(text),
                       "model: {model_type: wide_autoencoder, width_divisor: 64, frames: 2, "
                       "frame_height: 3, frame_width: 4, n_mels: 4, audio_dim: 20, text_dim: 12, "
                       "n_voxels: 40, audio_mode: %s, dropout_scale: 0.1}\n",
                       audio[i]);
        const char *const settings[] = {"max_steps=60", "per_device_train_batch_size=16",
                                        "optim=adamw", "learning_rate=0.01", NULL};
        network_train(&x, text, settings);
        double first = 0, last = 0;
        for (int k = 0; k < 5; k++) {
            first += x.losses[k];
            last += x.losses[55 + k];
        }
        assert_true(last < 0.85 * first);
        network_finish(&x);
    }
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_train_as_pytorch_trains_them),
        cmocka_unit_test(running_statistics_are_updated_once_whatever_is_made_again),
        cmocka_unit_test(a_network_goes_on_from_a_checkpoint_with_the_same_bits),
        cmocka_unit_test(half_precision_trains_too),
        cmocka_unit_test(targets_without_a_spread_train_too),
        cmocka_unit_test(micro_batches_that_would_change_a_loss_are_refused),
        cmocka_unit_test(batch_norm_of_one_sample_is_refused),
        cmocka_unit_test(a_micro_batch_is_not_chosen_for_batch_norm),
        cmocka_unit_test(a_tiny_wide_autoencoder_learns),
    };
    return cmocka_run_group_tests_name("networks", tests, NULL, NULL);
}
