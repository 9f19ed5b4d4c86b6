/* Networks that use one set of weights for every frame of a clip: the same bits whatever is kept,
 * moved or made again, and budgets that hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "support/golden.h"
#include "support/network_run.h"

static const char frame_cnn[] = "model: {model_type: frame_cnn, temporal_frames: 3, "
                                "image_height: 10, image_width: 12, width_divisor: 8}\n";

static const char three_branch[] =
    "model: {model_type: three_branch, frames: 4, image_height: 16, image_width: 24, "
    "width_divisor: 16, siamese: cnn, tracks: true, grid_height: 2, grid_width: 2}\n";

static const char image_branch[] =
    "model: {model_type: three_branch, branches: image, frames: 4, image_height: 16, "
    "image_width: 24, width_divisor: 16}\n";

/* Runs with each of the settings: all like the first. */
static void expect_same_bits(const char *text, const char *const *ways, size_t n)
{
    struct network_run first, x;
    for (size_t i = 0; i < n; i++) {
        const char *const settings[] = {"max_steps=2", "per_device_train_batch_size=3", ways[i],
                                        NULL};
        network_train(i ? &x : &first, text, settings);
        if (i == 0)
            continue;
        assert_memory_equal(first.losses, x.losses, sizeof(x.losses));
        network_expect_same(&first, &x);
        network_finish(&x);
    }
    network_finish(&first);
}

static void frames_made_again_change_no_bit(void **state)
{
    static const char *const ways[] = {"gradient_checkpointing=false",
                                       "gradient_checkpointing=true", "gradient_checkpointing=0-1",
                                       "model.segments=sequence"};
    (void)state;
    expect_same_bits(frame_cnn, ways, ARRAY_LEN(ways));
}

static void branches_made_again_change_no_bit(void **state)
{
    static const char *const ways[] = {"gradient_checkpointing=false",
                                       "gradient_checkpointing=true", "gradient_checkpointing=2-9",
                                       "model.segments=sequence"};
    (void)state;
    expect_same_bits(three_branch, ways, ARRAY_LEN(ways));
}

/* No loss of theirs looks at more than one sample; batch norm takes each micro-batch by itself. */
static void branches_are_made_again_in_micro_batches_too(void **state)
{
    struct network_run a, b;
    const char *const kept[] = {"max_steps=2", "per_device_train_batch_size=2",
                                "gradient_accumulation_steps=2", "gradient_checkpointing=false",
                                NULL};
    const char *const again[] = {"max_steps=2", "per_device_train_batch_size=2",
                                 "gradient_accumulation_steps=2", "gradient_checkpointing=true",
                                 NULL};
    (void)state;
    network_train(&a, three_branch, kept);
    network_train(&b, three_branch, again);
    assert_memory_equal(a.losses, b.losses, sizeof(b.losses));
    network_expect_same(&a, &b);
    network_finish(&a);
    network_finish(&b);
}

#define VARIANT(name)                                                                       \
    "model: {model_type: frame_cnn, temporal_frames: 3, image_height: 8, image_width: 16, " \
    "width_divisor: 16, variance_lambda: 0, architecture: " name "}\n"

/* Graphs, scans, recurrent cells and their dropout are made again to the bit. */
static void variants_made_again_change_no_bit(void **state)
{
    static const char *const texts[] = {VARIANT("multi_scale"), VARIANT("gnn"), VARIANT("ssm"),
                                        VARIANT("lstm"), VARIANT("cnn")};
    static const char *const ways[] = {"gradient_checkpointing=false",
                                       "gradient_checkpointing=true"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        expect_same_bits(texts[i], ways, ARRAY_LEN(ways));
}

/* What a document's network crashed with: compiled and checkpointed at once. */
static void compiled_networks_are_made_again_to_the_bit(void **state)
{
    static const char *const texts[] = {
        frame_cnn,
        three_branch,
        VARIANT("gnn"),
        VARIANT("ssm"),
        "model: {model_type: three_branch, frames: 4, image_height: 16, image_width: 24, "
        "width_divisor: 16, siamese: efficientnet}\n",
        "model: {model_type: wide_autoencoder, width_divisor: 64, frames: 2, frame_height: 4, "
        "frame_width: 5, n_voxels: 40, n_mels: 4, text_dim: 12}\n"};
    static const char *const modes[] = {"compile=default", "compile=none"}; /* which a CPU has */
    (void)state;
    for (size_t i = SNUG_ASAN ? 4 : 0; i < ARRAY_LEN(texts);
         i++) { /* 0 to 3 are made again above */
        struct network_run kept, again;
        const char *const plain[] = {"max_steps=2", "per_device_train_batch_size=3",
                                     modes[i % ARRAY_LEN(modes)], "gradient_checkpointing=false",
                                     NULL};
        const char *const checkpointed[] = {"max_steps=2", "per_device_train_batch_size=3",
                                            modes[i % ARRAY_LEN(modes)],
                                            "gradient_checkpointing=true", NULL};
        network_train(&kept, texts[i], plain);
        network_train(&again, texts[i], checkpointed);
        assert_memory_equal(kept.losses, again.losses, sizeof(again.losses));
        network_expect_same(&kept, &again);
        network_finish(&kept);
        network_finish(&again);
    }
}

static void a_frame_is_a_block_and_so_may_be_the_sequence(void **state)
{
    static const char *const segments[] = {"model.segments=frame", "model.segments=sequence"};
    static const int n_blocks[] = {3 + 1, 1 + 1}; /* and what comes after the frames */
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(segments); i++) {
        struct network_run x = {0};
        const char *const settings[] = {segments[i], NULL};
        scratch_init(&x.scratch);
        expect_ok(network_load(&x, frame_cnn, settings));
        assert_int_equal(x.session.engine.model->n_layers, n_blocks[i]);
        network_finish(&x);
    }
}

static void micro_batches_are_refused_with_the_loss_that_looks_at_all_samples(void **state)
{
    static const struct {
        const char *setting, *says;
    } cases[] = {{"model.hard_mining_k=0", "variances of all outputs"},
                 {"model.variance_lambda=0", "hardest samples"}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct network_run x = {0};
        const char *const settings[] = {"gradient_accumulation_steps=2", cases[i].setting, NULL};
        scratch_init(&x.scratch);
        assert_int_equal(network_load(&x, frame_cnn, settings), ERR_CONFIG);
        assert_non_null(strstr(status_message(), cases[i].says));
        config_free(x.config);
        scratch_release(&x.scratch);
    }
}

static int64_t arena(const struct network_run *x)
{
    return x->session.engine.work.n_bytes[TIER_DEVICE];
}

/* What activations take is kept to by making them again. */
static void expect_budget_holds(const char *text, double share)
{
    struct network_run free_run, tight;
    char budget[64];
    const char *const plain[] = {"max_steps=1", "per_device_train_batch_size=4",
                                 "gradient_checkpointing=false", NULL};
    network_train(&free_run, text, plain);
    int64_t most = (int64_t)(share * (double)arena(&free_run));
    (void)snprintf(budget, sizeof(budget), "device_memory=%lld", (long long)most);
    const char *const within[] = {"max_steps=1", "per_device_train_batch_size=4", budget, NULL};
    network_train(&tight, text, within);
    assert_true(arena(&tight) <= most);
    assert_memory_equal(free_run.losses, tight.losses, sizeof(tight.losses));
    network_finish(&free_run);
    network_finish(&tight);
}

static void budgets_hold_by_making_frames_again(void **state)
{
    (void)state;
    expect_budget_holds(frame_cnn, 0.75);
    expect_budget_holds(three_branch, 0.9);
}

/* A few samples by heart. */
static void expect_learns(const char *text, double share)
{
    enum { STEPS = 30, SEEN = 3 };
    struct network_run x;
    double first = 0, last = 0;
    const char *const settings[] = {"max_steps=30",
                                    "per_device_train_batch_size=8",
                                    "model.dropout_scale=0.2",
                                    "optim=adamw",
                                    "datasets=[{type: synthetic, n_samples: 8}]",
                                    "learning_rate=0.003",
                                    NULL};
    network_train(&x, text, settings);
    for (int k = 0; k < SEEN; k++) {
        first += x.losses[k];
        last += x.losses[STEPS - SEEN + k];
    }
    if (!(last < share * first))
        fail_msg("the loss goes from %g to %g", first / SEEN, last / SEEN);
    network_finish(&x);
}

static void a_tiny_frame_cnn_learns(void **state)
{
    (void)state;
    if (SNUG_ASAN) /* thirty steps that all do the same to memory */
        skip();
    expect_learns(frame_cnn, 0.6);
}

static void tiny_branches_learn(void **state)
{
    (void)state;
    if (SNUG_ASAN)
        skip();
    expect_learns(three_branch, 0.85);
    expect_learns(image_branch, 0.85);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_made_again_change_no_bit),
        cmocka_unit_test(branches_made_again_change_no_bit),
        cmocka_unit_test(branches_are_made_again_in_micro_batches_too),
        cmocka_unit_test(variants_made_again_change_no_bit),
        cmocka_unit_test(compiled_networks_are_made_again_to_the_bit),
        cmocka_unit_test(a_frame_is_a_block_and_so_may_be_the_sequence),
        cmocka_unit_test(micro_batches_are_refused_with_the_loss_that_looks_at_all_samples),
        cmocka_unit_test(budgets_hold_by_making_frames_again),
        cmocka_unit_test(a_tiny_frame_cnn_learns),
        cmocka_unit_test(tiny_branches_learn),
    };
    return cmocka_run_group_tests_name("video_networks", tests, NULL, NULL);
}
