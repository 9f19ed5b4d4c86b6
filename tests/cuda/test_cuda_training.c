/* Whole training steps on a GPU: the models of tests/golden against PyTorch, the same bits from run
 * to run, the predicted arena to the byte. Skipped without a GPU. Arguments, since under a checker
 * all takes long: a pattern of the tests to run, the model to run them with, the number of steps.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/dropout_training.h"
#include "support/golden.h"
#include "support/golden_training.h"
#include "support/gpu.h"

static const char *const *models = golden_names;

/* How near 16-bit losses are; where there are experts, a rounding may send a token elsewhere. */
static double half_tolerance(const char *name)
{
    return golden_facts_of(name).has_experts ? 6e-2 : 2e-2;
}

static void f32_losses_are_those_of_pytorch(void **state)
{
    (void)state;
    for (const char *const *name = models; *name; name++) {
        struct trained t;
        double want[N_STEPS];
        train_golden("cuda", *name, 1, NULL, NULL, &t);
        golden_losses(*name, want);
        expect_near(*name, t.losses, want, 1e-4);
    }
}

static void adapters_have_the_losses_of_peft(void **state)
{
    (void)state;
    for (const struct golden_adapter *a = golden_adapters; a->name; a++) {
        char adapter[256], name[128];
        struct trained t, half, again;
        double want[N_STEPS];
        (void)snprintf(name, sizeof(name), "adapters/%s", a->name);
        (void)snprintf(adapter, sizeof(adapter), "adapter_name_or_path=tests/golden/%s", name);
        golden_losses(name, want);
        train_golden("cuda", a->base, 1, adapter, NULL, &t);
        expect_near(a->name, t.losses, want, 1e-4);
        train_golden("cuda", a->base, 1, adapter, "bf16=true", &half);
        expect_near(a->name, half.losses, want, half_tolerance(a->base));
        train_golden("cuda", a->base, 1, adapter, "offload_param=true", &again);
        assert_memory_equal(t.losses, again.losses, sizeof(t.losses));
        for (int k = 0; k < TIER_COUNT; k++)
            assert_int_equal(again.measured[k], again.predicted[k]);
    }
}

static void bf16_losses_follow_those_of_pytorch(void **state)
{
    (void)state;
    for (const char *const *name = models; *name; name++) {
        struct trained t;
        double want[N_STEPS];
        train_golden("cuda", *name, 1, "bf16=true", NULL, &t);
        golden_losses(*name, want);
        expect_near(*name, t.losses, want, half_tolerance(*name));
    }
}

/* Roles of precision beside the plain ones; the GPU's roundings by chance are the CPU's. */
static void other_precisions_follow_those_of_pytorch(void **state)
{
    static const struct {
        const char *first, *second;
    } roles[] = {
        {"bf16=true", "master_dtype=bf16"},
        {"bf16=true", "optim_state_dtype=bf16"},
        {"bf16=true", "gradient_dtype=bf16"},
        {"optim_state_dtype=bf16", NULL},
        {"fp16=true", NULL},
        {"fp16=true", "initial_scale_power=10"},
    };
    (void)state;
    for (const char *const *name = models; *name; name++) {
        for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
            struct trained t, again;
            double want[N_STEPS];
            train_golden("cuda", *name, 1, roles[i].first, roles[i].second, &t);
            golden_losses(*name, want);
            expect_near(*name, t.losses, want, half_tolerance(*name));
            train_golden("cuda", *name, 1, roles[i].first, roles[i].second, &again);
            assert_memory_equal(t.losses, again.losses, sizeof(t.losses));
        }
    }
}

static void micro_batches_give_the_losses_of_the_whole_batch(void **state)
{
    (void)state;
    for (const char *const *name = models; *name; name++) {
        struct trained whole, parts;
        if (golden_facts_of(*name).is_coupled)
            continue;
        train_golden("cuda", *name, 1, NULL, NULL, &whole);
        train_golden("cuda", *name, GOLDEN_BATCH, NULL, NULL, &parts);
        expect_near(*name, parts.losses, whole.losses, 1e-4);
    }
}

static void a_second_run_gives_the_same_bits(void **state)
{
    static const char *const precisions[] = {"bf16=false", "bf16=true"};
    (void)state;
    for (const char *const *name = models; *name; name++) {
        for (size_t i = 0; i < ARRAY_LEN(precisions); i++) {
            struct trained a, b;
            train_golden("cuda", *name, 1, precisions[i], NULL, &a);
            train_golden("cuda", *name, 1, precisions[i], NULL, &b);
            assert_memory_equal(a.losses, b.losses, sizeof(a.losses));
            assert_memory_equal(a.norms, b.norms, sizeof(a.norms));
        }
    }
}

static void recompute_changes_no_bit_of_any_loss(void **state)
{
    (void)state;
    for (const char *const *name = models; *name; name++) {
        struct trained kept, again;
        train_golden("cuda", *name, 1, "bf16=true", "gradient_checkpointing=false", &kept);
        train_golden("cuda", *name, 1, "bf16=true", "gradient_checkpointing=true", &again);
        assert_memory_equal(kept.losses, again.losses, sizeof(kept.losses));
    }
}

/* The draws are the CPU's, so the losses follow the CPU's; recompute drops what was dropped. */
static void dropout_drops_what_the_cpu_drops(void **state)
{
    static const struct dropout_model *const dropouts[] = {&dropout_gpt2, &dropout_llama};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(dropouts); i++) {
        double want[DROPOUT_STEPS], got[DROPOUT_STEPS], again[DROPOUT_STEPS];
        dropout_train(dropouts[i], 0.2, "cpu", "seed=1", want);
        dropout_train(dropouts[i], 0.2, "cuda", "seed=1", got);
        for (int k = 0; k < DROPOUT_STEPS; k++)
            assert_true(fabs(got[k] - want[k]) < 1e-4 * want[k]);
        dropout_train(dropouts[i], 0.2, "cuda", "bf16=true", got);
        dropout_train(dropouts[i], 0.2, "cuda", "bf16=true", again);
        assert_memory_equal(got, again, sizeof(got));
        dropout_train(dropouts[i], 0.2, "cuda", "gradient_checkpointing=false", got);
        dropout_train(dropouts[i], 0.2, "cuda", "gradient_checkpointing=true", again);
        assert_memory_equal(got, again, sizeof(got));
    }
}

static void the_high_water_mark_is_the_prediction(void **state)
{
    (void)state;
    for (const char *const *name = models; *name; name++) {
        struct trained t;
        train_golden("cuda", *name, 1, "bf16=true", NULL, &t);
        for (int k = 0; k < TIER_COUNT; k++)
            assert_int_equal(t.measured[k], t.predicted[k]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_losses_are_those_of_pytorch),
        cmocka_unit_test(adapters_have_the_losses_of_peft),
        cmocka_unit_test(bf16_losses_follow_those_of_pytorch),
        cmocka_unit_test(other_precisions_follow_those_of_pytorch),
        cmocka_unit_test(micro_batches_give_the_losses_of_the_whole_batch),
        cmocka_unit_test(a_second_run_gives_the_same_bits),
        cmocka_unit_test(recompute_changes_no_bit_of_any_loss),
        cmocka_unit_test(dropout_drops_what_the_cpu_drops),
        cmocka_unit_test(the_high_water_mark_is_the_prediction),
    };
    if (device_count_cuda() == 0) {
        (void)fprintf(stderr, "skipped: no GPU\n");
        return GPU_SKIPPED;
    }
    const char *one[] = {argc > 2 ? argv[2] : NULL, NULL};
    if (argc > 2)
        models = one;
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    if (argc > 3)
        golden_shorten((int)strtol(argv[3], NULL, 10));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
