/* Samples of tensors in a batch: what rows hold that do not count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "data/samples.h"
#include "support/golden.h"

enum { CLASSES = 5, NONE = -100 };

/* A class that the network looks up, a number, and a class that it is to find. */
static const struct model_field fields[] = {
    {.name = "kind", .n_classes = CLASSES},
    {.name = "input", .shape = {.rank = 1, .dim = {2}}},
    {.name = "target", .is_target = true, .n_classes = CLASSES}};
static const struct sample_facts facts = {.fields = fields, .n_fields = 3};

/* Sample 0 is a good one; sample 1 has no class anywhere, and does not count. */
static enum status read(void *user, int f, int64_t i, void *out, bool *counts)
{
    (void)user;
    if (fields[f].n_classes)
        *(int32_t *)out = i == 0 ? 3 : NONE;
    else
        ((float *)out)[0] = ((float *)out)[1] = 7;
    *counts &= i == 0;
    return OK;
}

static int32_t class_in(struct batch *b, int f, int64_t row)
{
    return *(const int32_t *)batch_row(b, f, row);
}

/* An id outside of a table ends the run, also in a row that fills a batch up. */
static void what_is_looked_up_is_a_class_in_every_row(void **state)
{
    const struct sample_source source = {.n_samples = 2, .read = read};
    struct samples *s;
    struct batch b = {0};
    void *memory;
    (void)state;
    samples_describe(&b, &facts, 3, DTYPE_F32);
    memory = aligned_alloc(BATCH_ALIGN, batch_bytes(&b));
    batch_place(&b, memory);
    expect_ok(samples_open(&s, &facts, &source));
    struct dataset d = samples_dataset(s);
    expect_ok(d.read(d.user, 0, &b, 0));
    expect_ok(d.read(d.user, 1, &b, 1));
    d.blank(d.user, &b, 2);
    assert_int_equal(class_in(&b, 0, 0), 3);
    for (int row = 1; row < 3; row++) {
        assert_in_range(class_in(&b, 0, row), 0, CLASSES - 1);
        assert_true(class_in(&b, 2, row) < 0);
        assert_true(*(const float *)batch_row(&b, 3, row) == 0);
    }
    assert_int_equal(b.n_valid, 1);
    samples_free(s);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_looked_up_is_a_class_in_every_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
