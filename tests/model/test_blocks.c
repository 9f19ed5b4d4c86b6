/* Sets of blocks: what is one, and which blocks are in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "model/blocks.h"

static struct pool pool;

static int open_pool(void **state)
{
    (void)state;
    pool_init(&pool);
    return 0;
}

static int close_pool(void **state)
{
    (void)state;
    pool_release(&pool);
    return 0;
}

static bool parse(struct block_set *s, const char *text)
{
    bool valid;
    assert_int_equal(block_set_parse(s, text, &pool, &valid), OK);
    return valid;
}

static void a_list_has_every_block_of_its_ranges(void **state)
{
    static const char *const texts[] = {"0-3,7", "0-3, 7", "7,0-3", "0,1,2,3,7-7", "0-2,1-3,7"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct block_set s;
        assert_true(parse(&s, texts[i]));
        assert_string_equal(s.text, texts[i]);
        for (int64_t b = 0; b < 20; b++)
            assert_int_equal(block_set_has(&s, b), b <= 3 || b == 7);
        assert_int_equal(block_set_end(&s), 8);
    }
}

static void words_mean_all_blocks_or_none(void **state)
{
    struct block_set s;
    (void)state;
    assert_true(parse(&s, "yes"));
    assert_string_equal(s.text, "true");
    assert_true(block_set_has(&s, 0) && block_set_has(&s, 1000));
    assert_int_equal(block_set_end(&s), 0); /* no block is named: it goes with every model */
    assert_true(parse(&s, "false"));
    assert_string_equal(s.text, "false");
    assert_false(block_set_has(&s, 0));
    assert_false(block_set_has(&(struct block_set){0}, 0));
}

static void parts_of_blocks_are_named_in_a_list(void **state)
{
    (void)state;
    struct block_set s;
    assert_true(parse(&s, "attention"));
    assert_int_equal(s.modules, 1u << MODULE_ATTENTION);
    assert_false(s.all || s.is_open || block_set_has(&s, 0));
    assert_int_equal(block_set_end(&s), 0);
    assert_true(parse(&s, "norm,mlp, attention"));
    assert_int_equal(s.modules, 1u << MODULE_ATTENTION | 1u << MODULE_MLP | 1u << MODULE_NORM);
    assert_string_equal(s.text, "norm,mlp, attention");
    assert_true(parse(&s, "0-3"));
    assert_int_equal(s.modules, 0);
}

static void other_texts_are_no_sets(void **state)
{
    static const char *const texts[] = {"",      "x",    "-1",    "3-1",   "0-",        "0,",
                                        "0,,1",  "0 1",  "0-1-",  "1.5",   "0,-1",      "0, ",
                                        "0-3;7", "0-x",  "mlp,",  "mlp, ", "mlp,,norm", "mlps",
                                        "ml",    "none", "0,mlp", "mlp,0"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct block_set s;
        if (parse(&s, texts[i]))
            fail_msg("'%s' was taken for a set of blocks", texts[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_list_has_every_block_of_its_ranges, open_pool,
                                        close_pool),
        cmocka_unit_test_setup_teardown(words_mean_all_blocks_or_none, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(parts_of_blocks_are_named_in_a_list, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(other_texts_are_no_sets, open_pool, close_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
