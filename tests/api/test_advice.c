/* What a refusal advises: the mildest change that fits, which is then seen to fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "support/trial.h"

/* Six sequences whose activations are most of the memory. */
#define WIDE "model.num_hidden_layers=4", "max_seq_length=64"

static const char *budget(int64_t n_bytes)
{
    static char text[64];
    (void)snprintf(text, sizeof(text), "device_memory=%lld", (long long)n_bytes);
    return text;
}

/* The least there is: of a plan that not even that was enough for. */
static int64_t needs(const char *batch, const char *n_micro)
{
    struct trial t;
    PLAN(&t, WIDE, batch, n_micro, budget(65536));
    assert_false(t.plan.fits);
    return t.plan.device_needs;
}

/* Of the ways to cut six sequences (3 x 2, 2 x 3, 1 x 6) the first that fits. */
static void micro_batches_are_cut_no_smaller_than_they_must(void **state)
{
    (void)state;
    int64_t six = needs("per_device_train_batch_size=6", "gradient_accumulation_steps=1");
    int64_t three = needs("per_device_train_batch_size=3", "gradient_accumulation_steps=2");
    int64_t two = needs("per_device_train_batch_size=2", "gradient_accumulation_steps=3");
    int64_t one = needs("per_device_train_batch_size=1", "gradient_accumulation_steps=6");
    assert_true(six > three && three > two && two > one);
#define EXPECT(n_bytes, advice) \
    REFUSED(advice, WIDE, "per_device_train_batch_size=6", budget(n_bytes))
    struct trial t;
    PLAN(&t, WIDE, "per_device_train_batch_size=6", budget(six));
    assert_true(t.plan.fits);
    EXPECT(three, "per_device_train_batch_size=3 gradient_accumulation_steps=2");
    EXPECT(three - 1, "per_device_train_batch_size=2 gradient_accumulation_steps=3");
    EXPECT(two - 1, "per_device_train_batch_size=1 gradient_accumulation_steps=6");
}

static int begin(void **state)
{
    (void)state;
    trials_begin();
    return 0;
}

static int end(void **state)
{
    (void)state;
    trials_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_batches_are_cut_no_smaller_than_they_must),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
