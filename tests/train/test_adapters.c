/* Whole training steps with adapters against PEFT, and under budgets: config to program to losses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/golden.h"
#include "support/golden_training.h"

static void train(const struct golden_adapter *a, int n_micro, const char *extra,
                  struct trained *out)
{
    char adapter[256];
    (void)snprintf(adapter, sizeof(adapter), "adapter_name_or_path=tests/golden/adapters/%s",
                   a->name);
    train_golden("cpu", a->base, n_micro, adapter, extra, out);
}

static void expect_losses_of_peft(const struct golden_adapter *a, const struct trained *t,
                                  double tolerance)
{
    char name[128];
    double want[N_STEPS];
    (void)snprintf(name, sizeof(name), "adapters/%s", a->name);
    golden_losses(name, want);
    expect_near(a->name, t->losses, want, tolerance);
}

static void twenty_steps_give_the_losses_of_peft(void **state)
{
    (void)state;
    for (const struct golden_adapter *a = golden_adapters; a->name; a++) {
        struct trained t;
        train(a, 1, NULL, &t);
        expect_losses_of_peft(a, &t, 1e-5);
        train(a, 3, NULL, &t);
        expect_losses_of_peft(a, &t, 1e-5);
        train(a, 1, "compile=none", &t);
        expect_losses_of_peft(a, &t, 1e-5);
    }
}

static void bf16_follows_the_f32_losses(void **state)
{
    (void)state;
    for (const struct golden_adapter *a = golden_adapters; a->name; a++) {
        struct trained t;
        train(a, 1, "bf16=true", &t);
        expect_losses_of_peft(a, &t, 2e-2);
    }
}

static void expect_equal(const struct trained *a, const struct trained *b)
{
    assert_memory_equal(a->losses, b->losses, sizeof(a->losses));
    assert_memory_equal(a->norms, b->norms, sizeof(a->norms));
    for (int tier = 0; tier < TIER_COUNT; tier++)
        assert_int_equal(b->measured[tier], b->predicted[tier]);
}

static void plans_change_no_bit_of_any_loss(void **state)
{
    static const char *const plans[] = {"gradient_checkpointing=true", "offload_param=true",
                                        "offload_optimizer=true", "activation_offloading=true"};
    (void)state;
    for (const struct golden_adapter *a = golden_adapters; a->name; a++) {
        struct trained plain, other;
        train(a, 1, NULL, &plain);
        for (size_t i = 0; i < ARRAY_LEN(plans); i++) {
            train(a, 1, plans[i], &other);
            expect_equal(&plain, &other);
        }
    }
}

int main(void)
{
    if (SNUG_ASAN)
        golden_shorten(3);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twenty_steps_give_the_losses_of_peft),
        cmocka_unit_test(bf16_follows_the_f32_losses),
        cmocka_unit_test(plans_change_no_bit_of_any_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
