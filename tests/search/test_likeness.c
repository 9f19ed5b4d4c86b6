/* Which plans are much the same, and which are ways of their own of running a step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "search/likeness.h"

enum { N_BLOCKS = 24, N_PLACES = N_BLOCKS + 2, N_NODES = 4 };

static const enum treatment keeps[N_NODES], makes[N_NODES] = {RECOMPUTE, KEEP, RECOMPUTE, KEEP},
                                            moves[N_NODES] = {KEEP, MOVE, KEEP, MOVE};
static const struct saved_set kept = {keeps, N_NODES, "", ""}, made = {makes, N_NODES, "a, c", ""},
                              moved = {moves, N_NODES, "", "b, d"};

/* The first n_set blocks have a set, and the first n_away a class at home elsewhere. */
struct way {
    struct decisions d;
    struct place_choice places[N_PLACES];
};

static void make_way(struct way *w, const struct saved_set *set, int n_set, enum home_class c,
                     int n_away)
{
    *w = (struct way){.d = {.places = w->places, .n_places = N_PLACES}};
    for (int p = 0; p < N_PLACES; p++) {
        w->places[p].saved = p < n_set ? set : &kept;
        w->places[p].away[c] = p < n_away;
    }
}

static void expect_alike(const struct way *a, const struct way *b, bool are)
{
    assert_int_equal(decisions_are_alike(&a->d, &b->d), are);
    assert_int_equal(decisions_are_alike(&b->d, &a->d), are);
}

static void a_few_blocks_more_are_no_other_way(void **state)
{
    struct way a, b;
    (void)state;
    make_way(&a, &moved, 20, HOME_STATES, 12);
    expect_alike(&a, &a, true);
    make_way(&b, &moved, 14, HOME_STATES, 18); /* more than half of it, and half again */
    expect_alike(&a, &b, true);
    b.d.ring_bytes = 1 << 30;
    expect_alike(&a, &b, true);
    make_way(&a, &kept, 0, HOME_WEIGHTS, 0);
    make_way(&b, &kept, 0, HOME_WEIGHTS, 6); /* little of all there is */
    expect_alike(&a, &b, true);
}

static void what_one_does_and_another_does_not_tells_them_apart(void **state)
{
    const struct saved_set *sets[] = {&made, &moved};
    struct way a, b;
    (void)state;
    make_way(&a, &kept, 0, HOME_WEIGHTS, 0);
    for (int c = 0; c < HOME_CLASS_COUNT; c++) {
        make_way(&b, &kept, 0, (enum home_class)c, 7);
        expect_alike(&a, &b, false);
    }
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        make_way(&b, sets[i], 4, HOME_WEIGHTS, 0); /* two outputs of each */
        expect_alike(&a, &b, false);
    }
    make_way(&a, &moved, 20, HOME_STATES, 20);
    make_way(&b, &made, 20, HOME_STATES, 20);
    expect_alike(&a, &b, false);
    make_way(&b, &moved, 20, HOME_STATES, 9); /* less than half */
    expect_alike(&a, &b, false);
}

static void disks_groups_and_deferred_updates_count(void **state)
{
    struct way a, b;
    (void)state;
    make_way(&a, &moved, 20, HOME_STATES, 20);
    b = a;
    b.d.places = b.places;
    expect_alike(&a, &b, true);
    b.d.disk[EXTENT_STATES] = 10;
    expect_alike(&a, &b, false);
    b.d.disk[EXTENT_STATES] = 0;
    b.d.group = 4;
    expect_alike(&a, &b, false);
    b.d.group = 0;
    b.d.defer_updates = true;
    expect_alike(&a, &b, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_few_blocks_more_are_no_other_way),
        cmocka_unit_test(what_one_does_and_another_does_not_tells_them_apart),
        cmocka_unit_test(disks_groups_and_deferred_updates_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
