/* The order of samples that are grouped by length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "data/length_order.h"

enum { N = 1000, BATCH = 4, SIZE = 512 };

static enum status length(void *user, int64_t i, int64_t *n)
{
    (void)user;
    *n = 1 + (i * 7919) % 400;
    return OK;
}

static const struct dataset data = {.n_samples = N, .size = SIZE, .length = length};

static struct length_order open_order(int64_t step_batches)
{
    struct length_order o;
    const struct length_order_options options = {.data = &data,
                                                 .n_samples = N,
                                                 .batch_samples = BATCH,
                                                 .n_batches = N / BATCH,
                                                 .step_batches = step_batches,
                                                 .seed = 7,
                                                 .shuffle = 1};
    assert_int_equal(length_order_init(&o, &options), OK);
    return o;
}

static void every_sample_comes_once_and_the_longest_first(void **state)
{
    struct length_order o = open_order(1);
    bool seen[N] = {false};
    (void)state;
    assert_int_equal(length_order_step(&o, 3, 0), 400);
    for (int i = 0; i < N; i++) {
        assert_false(seen[o.samples[i]]);
        seen[o.samples[i]] = true;
    }
    length_order_release(&o);
}

/* 200 samples to a stretch: within one they fall, but for the two that were exchanged. */
static void stretches_fall(void **state)
{
    struct length_order o = open_order(1);
    int n_rises = 0;
    (void)state;
    (void)length_order_step(&o, 0, 0);
    for (int i = 1; i < N; i++)
        n_rises += o.lengths[o.samples[i]] > o.lengths[o.samples[i - 1]];
    assert_true(n_rises >= 4 && n_rises <= 6);
    length_order_release(&o);
}

static void an_epoch_has_an_order_of_its_own_and_the_same_again(void **state)
{
    struct length_order a = open_order(1), b = open_order(1);
    int64_t n_same = 0;
    (void)state;
    (void)length_order_step(&a, 0, 0);
    (void)length_order_step(&b, 1, 0);
    for (int i = 0; i < N; i++)
        n_same += a.samples[i] == b.samples[i];
    assert_true(n_same < N / 10);
    (void)length_order_step(&a, 1, 0);
    assert_memory_equal(a.samples, b.samples, N * sizeof(*a.samples));
    length_order_release(&a);
    length_order_release(&b);
}

/* 250 batches are no whole number of steps of 4: the last reaches into the next epoch. */
static void batches_of_a_step_have_one_length(void **state)
{
    struct length_order o = open_order(4);
    (void)state;
    int64_t first = length_order_step(&o, 0, 4 * BATCH);
    for (int i = 5; i < 8; i++)
        assert_int_equal(length_order_step(&o, 0, i * BATCH), first);
    assert_true(first < 400);
    assert_int_equal(length_order_step(&o, 0, 249 * BATCH), SIZE);
    assert_int_equal(length_order_step(&o, 1, 0), SIZE);
    assert_true(length_order_step(&o, 1, 2 * BATCH) < SIZE);
    length_order_release(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_comes_once_and_the_longest_first),
        cmocka_unit_test(stretches_fall),
        cmocka_unit_test(an_epoch_has_an_order_of_its_own_and_the_same_again),
        cmocka_unit_test(batches_of_a_step_have_one_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
