/* The choice along a chain: of each link one option, so that what is kept fits and costs least. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "search/chain.h"
#include "support/golden.h"

enum { MOST_LINKS = 4, OPTIONS = 2 };

/* The options of each link are (cost, bytes kept): 5 for nothing, 1 for `kept`. */
static int n_keeping(int n_links, int64_t kept, int64_t room)
{
    struct pool pool;
    struct link_option options[MOST_LINKS * OPTIONS];
    int n_each[MOST_LINKS], chosen[MOST_LINKS], n = 0;
    for (int i = 0; i < n_links; i++) {
        options[OPTIONS * i] = (struct link_option){.cost = 5};
        options[OPTIONS * i + 1] = (struct link_option){.cost = 1, .n_kept = kept, .n_need = kept};
        n_each[i] = OPTIONS;
    }
    struct chain c = {.n_links = n_links,
                      .n_options = OPTIONS,
                      .n_each = n_each,
                      .options = options,
                      .n_bytes = CHAIN_SLOTS};
    pool_init(&pool);
    expect_ok(chain_solve(&c, &pool));
    bool fits = chain_choose(&c, room, chosen);
    for (int i = 0; i < n_links; i++)
        n += fits && chosen[i] == 1;
    pool_release(&pool);
    return fits ? n : -1;
}

/* To the last slot: all of the room is somebody's. */
static void what_fits_exactly_is_kept(void **state)
{
    (void)state;
    assert_int_equal(n_keeping(1, CHAIN_SLOTS, CHAIN_SLOTS), 1);
    assert_int_equal(n_keeping(1, CHAIN_SLOTS, CHAIN_SLOTS - 1), 0);
    assert_int_equal(n_keeping(4, CHAIN_SLOTS / 4, CHAIN_SLOTS), 4);
    assert_int_equal(n_keeping(4, CHAIN_SLOTS / 4, CHAIN_SLOTS - 1), 3);
    assert_int_equal(n_keeping(4, CHAIN_SLOTS / 2, CHAIN_SLOTS), 2);
}

static void no_room_is_no_choice(void **state)
{
    (void)state;
    assert_int_equal(n_keeping(3, 1, 0), 0);
    assert_int_equal(n_keeping(3, 1, -1), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_exactly_is_kept),
        cmocka_unit_test(no_room_is_no_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
