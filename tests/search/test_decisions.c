/* Decisions in words, and the names that reports give them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "search/decisions.h"
#include "support/golden.h"

enum { N_BLOCKS = 12 };

static void expect_text(const struct decisions *d, const char *want)
{
    struct str text = {0};
    decisions_add_text(d, N_BLOCKS, &text);
    assert_string_equal(str_text(&text), want);
    str_release(&text);
}

static void every_extent_is_told_with_its_blocks(void **state)
{
    (void)state;
    expect_text(&(struct decisions){.small_bytes = -1}, "");
    expect_text(&(struct decisions){.n = {[EXTENT_MOVED] = 3}, .small_bytes = -1},
                "saved activations of 3 of 12 blocks on the host");
    expect_text(&(struct decisions){.n = {[EXTENT_RECOMPUTED] = EXTENT_WHOLE}, .small_bytes = -1},
                "all 12 blocks recomputed");
    expect_text(&(struct decisions){.n = {[EXTENT_STATES] = N_BLOCKS,
                                          [EXTENT_GRADIENTS] = 1,
                                          [EXTENT_WEIGHTS] = EXTENT_WHOLE},
                                    .small_bytes = -1},
                "optimizer states of all 12 blocks on the host; gradients of 1 of 12 blocks on the "
                "host; weights of all blocks, embedding and head on the host");
}

static void what_is_fetched_ahead_is_told_where_anything_is_fetched(void **state)
{
    (void)state;
    expect_text(&(struct decisions){.n = {[EXTENT_WEIGHTS] = 2}, .ring_bytes = 64 << 20},
                "weights of 2 of 12 blocks on the host; 64.00 MiB fetched ahead");
    expect_text(&(struct decisions){.n = {[EXTENT_WEIGHTS] = 2}},
                "weights of 2 of 12 blocks on the host");
    expect_text(&(struct decisions){.n = {[EXTENT_RECOMPUTED] = 2}, .ring_bytes = 64 << 20},
                "2 of 12 blocks recomputed");
}

static void each_extent_but_recompute_copies(void **state)
{
    (void)state;
    assert_false(decisions_copy(&(struct decisions){.ring_bytes = 1, .small_bytes = 1}));
    for (int e = 0; e < EXTENT_COUNT; e++) {
        struct decisions d = {0};
        d.n[e] = 1;
        assert_int_equal(decisions_copy(&d), e != EXTENT_RECOMPUTED);
        assert_true(strcmp(extent_name((enum extent)e), "") != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_extent_is_told_with_its_blocks),
        cmocka_unit_test(what_is_fetched_ahead_is_told_where_anything_is_fetched),
        cmocka_unit_test(each_extent_but_recompute_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
