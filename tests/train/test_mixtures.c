/* Mixtures of experts under budgets: the same bits in less memory, and as much as was predicted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "support/golden.h"
#include "support/golden_training.h"

static const char *const mixtures[] = {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "moe"};

static void a_budget_changes_no_bit_and_is_kept_to_the_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(mixtures); i++) {
        struct trained free, kept;
        char budget[64];
        train_golden("cpu", mixtures[i], 1, "bf16=true", NULL, &free);
        int64_t limit = free.predicted[TIER_DEVICE] * 3 / 4;
        (void)snprintf(budget, sizeof(budget), "device_memory=%lld", (long long)limit);
        train_golden("cpu", mixtures[i], 1, "bf16=true", budget, &kept);
        assert_memory_equal(free.losses, kept.losses, sizeof(free.losses));
        assert_true(kept.predicted[TIER_DEVICE] <= limit);
        for (int tier = 0; tier < TIER_COUNT; tier++)
            assert_int_equal(kept.measured[tier], kept.predicted[tier]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_budget_changes_no_bit_and_is_kept_to_the_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
