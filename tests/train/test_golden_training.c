/* Whole training steps against PyTorch: config to program to losses, on the models of tests/golden.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/golden.h"
#include "support/golden_training.h"

/* Always on the CPU, whatever else the machine has. */
static void train(const char *name, int n_micro, const char *extra1, const char *extra2,
                  struct trained *out)
{
    train_golden("cpu", name, n_micro, extra1, extra2, out);
}

static void twenty_steps_give_the_losses_of_pytorch(void **state)
{
    (void)state;
    for (const char *const *name = golden_trained; *name; name++) {
        struct trained t;
        double want[N_STEPS];
        train(*name, 1, NULL, NULL, &t);
        golden_losses(*name, want);
        expect_near(*name, t.losses, want, 1e-5);
    }
}

static void micro_batches_give_the_losses_of_the_whole_batch(void **state)
{
    (void)state;
    for (const char *const *name = golden_trained; *name; name++) {
        struct trained t;
        double want[N_STEPS];
        if (golden_facts_of(*name).is_coupled)
            continue;
        train(*name, 3, NULL, NULL, &t);
        golden_losses(*name, want);
        expect_near(*name, t.losses, want, 1e-5);
    }
}

static void the_high_water_mark_is_the_prediction(void **state)
{
    (void)state;
    for (const char *const *name = golden_trained; *name; name++) {
        struct trained t;
        for (int n_micro = 1; n_micro <= 3; n_micro += 2) {
            train(*name, n_micro, "gradient_checkpointing=true", NULL, &t);
            for (int tier = 0; tier < TIER_COUNT; tier++)
                assert_int_equal(t.measured[tier], t.predicted[tier]);
        }
    }
}

static void recompute_changes_no_bit_of_any_loss(void **state)
{
    (void)state;
    for (const char *const *name = golden_trained; *name; name++) {
        struct trained kept, again, some;
        train(*name, 1, "gradient_checkpointing=false", NULL, &kept);
        train(*name, 1, "gradient_checkpointing=true", NULL, &again);
        train(*name, 1, "gradient_checkpointing=1-1", NULL, &some);
        assert_memory_equal(kept.losses, again.losses, sizeof(kept.losses));
        assert_memory_equal(kept.norms, again.norms, sizeof(kept.norms));
        assert_memory_equal(kept.losses, some.losses, sizeof(kept.losses));
        assert_true(again.predicted[TIER_DEVICE] < kept.predicted[TIER_DEVICE]);
    }
}

static void bf16_weights_follow_the_f32_losses(void **state)
{
    (void)state;
    for (const char *const *name = golden_trained; *name; name++) {
        struct trained t;
        double want[N_STEPS];
        train(*name, 1, "bf16=true", NULL, &t);
        golden_losses(*name, want);
        expect_bf16_near(*name, t.losses, want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twenty_steps_give_the_losses_of_pytorch),
        cmocka_unit_test(micro_batches_give_the_losses_of_the_whole_batch),
        cmocka_unit_test(the_high_water_mark_is_the_prediction),
        cmocka_unit_test(recompute_changes_no_bit_of_any_loss),
        cmocka_unit_test(bf16_weights_follow_the_f32_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
