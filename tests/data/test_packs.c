/* Which samples share a row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/rng.h"
#include "data/packs.h"

enum { ROOM = 100, MANY = 2000 };

/* Every sample once, none beyond the room, members and packs in order. Returns all lengths. */
static int64_t check(const struct packs *p, const int32_t *lengths, int64_t n)
{
    int64_t n_seen = 0, sum = 0, newest = -1;
    bool seen[MANY] = {false};
    assert_int_equal(p->begin[0], 0);
    assert_int_equal(p->begin[p->n], n);
    for (int64_t k = 0; k < p->n; k++) {
        int64_t filled = 0;
        assert_true(p->members[p->begin[k]] > newest);
        newest = p->members[p->begin[k]];
        for (int64_t i = p->begin[k]; i < p->begin[k + 1]; i++) {
            int64_t sample = p->members[i];
            assert_true(i == p->begin[k] || sample > p->members[i - 1]);
            assert_false(seen[sample]);
            seen[sample] = true;
            filled += lengths[sample];
            n_seen++;
        }
        assert_in_range(filled, 1, ROOM);
        sum += filled;
    }
    assert_int_equal(n_seen, n);
    return sum;
}

static void samples_go_where_the_least_room_is_left(void **state)
{
    static const int32_t lengths[] = {60, 30, 100, 40, 35, 5, 25};
    static const int64_t members[] = {0, 3, 1, 4, 5, 6, 2};
    struct packs p;
    (void)state;
    assert_int_equal(packs_make(&p, lengths, ARRAY_LEN(lengths), ROOM), OK);
    assert_int_equal(p.n, 3);
    check(&p, lengths, ARRAY_LEN(lengths));
    assert_memory_equal(p.members, members, sizeof(members));
    packs_release(&p);
}

static void many_samples_fill_nearly_all_rows(void **state)
{
    static int32_t lengths[MANY];
    struct rng rng = {.key = 3};
    struct packs p;
    (void)state;
    for (int i = 0; i < MANY; i++)
        lengths[i] = 1 + (int32_t)rng_below(&rng, ROOM / 2);
    assert_int_equal(packs_make(&p, lengths, MANY, ROOM), OK);
    int64_t sum = check(&p, lengths, MANY);
    assert_true((double)sum > 0.98 * (double)p.n * ROOM);
    packs_release(&p);
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_go_where_the_least_room_is_left),
        cmocka_unit_test(many_samples_fill_nearly_all_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
