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

/* Runs with each of the settings: all like the first. */
static void expect_same_bits(const char *text, const char *const *ways, size_t n)
{
    struct network_run first, x;
    for (size_t i = 0; i < n; i++) {
        const char *const settings[] = {"max_steps=4", "per_device_train_batch_size=6", ways[i],
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

/* What the frames save is most of what there is: three quarters of it are kept to by making them
 * again. */
static void a_budget_makes_frames_again(void **state)
{
    struct network_run free_run, tight;
    char budget[64];
    const char *const plain[] = {"max_steps=2", "per_device_train_batch_size=6",
                                 "gradient_checkpointing=false", NULL};
    (void)state;
    network_train(&free_run, frame_cnn, plain);
    (void)snprintf(budget, sizeof(budget), "device_memory=%lld",
                   (long long)(arena(&free_run) * 3 / 4));
    const char *const within[] = {"max_steps=2", "per_device_train_batch_size=6", budget, NULL};
    network_train(&tight, frame_cnn, within);
    assert_true(arena(&tight) <= arena(&free_run) * 3 / 4);
    assert_memory_equal(free_run.losses, tight.losses, sizeof(tight.losses));
    network_finish(&free_run);
    network_finish(&tight);
}

static void expect_learns(const char *text, double share)
{
    struct network_run x;
    double first = 0, last = 0;
    const char *const settings[] = {"max_steps=50", "per_device_train_batch_size=8", "optim=adamw",
                                    "learning_rate=0.003", NULL};
    network_train(&x, text, settings);
    for (int k = 0; k < 10; k++) {
        first += x.losses[k];
        last += x.losses[40 + k];
    }
    if (!(last < share * first))
        fail_msg("the loss goes from %g to %g", first / 10, last / 10);
    network_finish(&x);
}

static void a_tiny_frame_cnn_learns(void **state)
{
    (void)state;
    expect_learns(frame_cnn, 0.8);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_made_again_change_no_bit),
        cmocka_unit_test(a_frame_is_a_block_and_so_may_be_the_sequence),
        cmocka_unit_test(micro_batches_are_refused_with_the_loss_that_looks_at_all_samples),
        cmocka_unit_test(a_budget_makes_frames_again),
        cmocka_unit_test(a_tiny_frame_cnn_learns),
    };
    return cmocka_run_group_tests_name("video_networks", tests, NULL, NULL);
}
