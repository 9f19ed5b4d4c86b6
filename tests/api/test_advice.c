/* What a refusal advises: the mildest change that fits, which is then seen to fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

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

#define SIX    "per_device_train_batch_size=6"
#define THREES "per_device_train_batch_size=3 gradient_accumulation_steps=2"
#define TWOS   "per_device_train_batch_size=2 gradient_accumulation_steps=3"
#define ONES   "per_device_train_batch_size=1 gradient_accumulation_steps=6"

/* The first that fits; the next one where that is faster, as what only just fits may be slow. */
static void expect_cut(int64_t n_bytes, const char *cut, const char *once_more)
{
    REFUSED("per_device_train_batch_size=", WIDE, SIX, budget(n_bytes));
    const char *text = snug_error_message();
    if (!strstr(text, cut) && !strstr(text, once_more))
        fail_msg("neither '%s' nor '%s' is in the message: %s", cut, once_more, text);
}

/* Of the ways to cut six sequences (3 x 2, 2 x 3, 1 x 6). */
static void micro_batches_are_cut_no_smaller_than_they_must(void **state)
{
    (void)state;
    int64_t six = needs(SIX, "gradient_accumulation_steps=1");
    int64_t three = needs("per_device_train_batch_size=3", "gradient_accumulation_steps=2");
    int64_t two = needs("per_device_train_batch_size=2", "gradient_accumulation_steps=3");
    int64_t one = needs("per_device_train_batch_size=1", "gradient_accumulation_steps=6");
    assert_true(six > three && three > two && two > one);
    struct trial t;
    PLAN(&t, WIDE, SIX, budget(six));
    assert_true(t.plan.fits);
    expect_cut(three, THREES, TWOS);
    expect_cut(three - 1, TWOS, ONES);
    expect_cut(two - 1, ONES, ONES);
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
