/* Keys of a run that adapts to the memory there is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "keys/keys.h"
#include "support/trial.h"

/* What plans beside the run take is in the forecast; that they are made, and serve, is
 * train/test_elastic's to show. */
void key_elastic_budgets(void)
{
    struct trial without, with;
    TRAIN(&without, trial_text());
    TRAIN(&with, trial_text(), "elastic_budgets=[1GiB, auto]");
    assert_true(with.plan.host_needs > without.plan.host_needs + (4 << 20));
    assert_true(trial_same_losses(&without, &with));
    REFUSED("'8 pounds' is not a size such as 8GiB", "elastic_budgets=[8 pounds]");
    REFUSED("leave one of them out", "elastic_budgets=auto", "compile=max-autotune");
}
