/* The order in which advice tries variants, over a run that is made up: bytes by formula. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "search/refusal.h"

/* A run of 1000 bytes of weights and 100 for each of `batch` sequences. Change 0 halves the
 * weights, change 1 takes 200 bytes off them, change 2 cannot be made; recomputing halves a
 * sequence. */
enum { WEIGHTS = 1000, SEQUENCE = 100, BATCH = 6 };

struct made_up {
    int n_planned;
    struct variant last;
    unsigned ways;             /* that there are: bit i is way i */
    unsigned refuted;          /* of these: as it would run, it does not fit */
    double units_s[WAY_COUNT]; /* of each; of changes that of WAY_NONE */
};

static int64_t weights_of(const struct variant *v)
{
    int64_t n = v->changes & 1 ? WEIGHTS / 2 : WEIGHTS;
    return v->changes & 2 ? n - 200 : n;
}

static int64_t least(void *user, const struct variant *v)
{
    (void)user;
    if (v->way != WAY_NONE)
        return 0;
    return v->changes & 4 ? INT64_MAX : weights_of(v);
}

static bool plan(void *user, const struct variant *v, int64_t needs[TIER_COUNT])
{
    struct made_up *m = user;
    m->n_planned++;
    m->last = *v;
    if (v->way != WAY_NONE) {
        needs[TIER_DEVICE] = v->way == WAY_MORE ? WEIGHTS + BATCH * SEQUENCE : 0;
        return m->ways >> v->way & 1;
    }
    needs[TIER_DEVICE] =
        weights_of(v) + BATCH / v->n_parts * (v->release ? SEQUENCE / 2 : SEQUENCE);
    return true;
}

static void describe(void *user, const struct remedy *r, struct str *out)
{
    const struct variant *v = &r->variant;
    (void)user;
    if (v->way != WAY_NONE)
        str_addf(out, "way %d", (int)v->way);
    else
        str_addf(out, "changes %u, release %d, parts %d", v->changes, v->release, (int)v->n_parts);
}

static bool price(void *user, struct remedy *r)
{
    struct made_up *m = user;
    r->units_s = m->units_s[r->variant.way];
    return !(m->refuted >> r->variant.way & 1);
}

static struct advice ask(int64_t limit, bool may_release, struct made_up *m)
{
    static const int harshness[] = {5, 1, 2};
    struct forecast now = {.breakdown = {[MEMORY_WEIGHTS] = WEIGHTS}};
    struct advice advice;
    struct variants x = {.harshness = harshness,
                         .n_changes = 3,
                         .may_release = may_release,
                         .batch = BATCH,
                         .user = m,
                         .least = least,
                         .plan = plan,
                         .describe = describe,
                         .has_ways = m->ways != 0,
                         .price = m->ways ? price : NULL};
    now.budget.needs[TIER_DEVICE] = WEIGHTS + BATCH * SEQUENCE;
    advice_find(&x, &now, TIER_DEVICE, limit, &advice);
    return advice;
}

static void expect_advice(int64_t limit, bool may_release, const char *text, int64_t n_bytes)
{
    struct made_up m = {0};
    struct advice a = ask(limit, may_release, &m);
    assert_true(a.n > 0);
    assert_string_equal(a.remedies[0].text, text);
    assert_int_equal(a.remedies[0].n_bytes, n_bytes);
}

static void recomputing_comes_before_smaller_batches_before_other_numerics(void **state)
{
    (void)state;
    expect_advice(1599, true, "changes 0, release 1, parts 1", 1300);
    expect_advice(1299, true, "changes 0, release 1, parts 2", 1150);
    expect_advice(1149, true, "changes 0, release 1, parts 3", 1100);
    expect_advice(1099, true, "changes 0, release 1, parts 6", 1050);
    expect_advice(1049, true, "changes 2, release 1, parts 2", 950);
}

static void the_mildest_change_that_fits_is_named(void **state)
{
    (void)state;
    expect_advice(849, true, "changes 1, release 1, parts 1", 800);
    expect_advice(549, true, "changes 3, release 1, parts 2", 450);
}

/* Three mild changes save as much as one of twice their kind. */
static int64_t least_of_four(void *user, const struct variant *v)
{
    (void)user;
    return v->changes == 8 || v->changes == 7 ? WEIGHTS / 2 : WEIGHTS;
}

static bool plan_four(void *user, const struct variant *v, int64_t needs[TIER_COUNT])
{
    needs[TIER_DEVICE] = least_of_four(user, v);
    return true;
}

static void one_change_is_named_before_several_that_sum_up_to_more(void **state)
{
    static const int harshness[] = {1, 1, 1, 2};
    struct forecast now = {.breakdown = {[MEMORY_WEIGHTS] = WEIGHTS}};
    struct variants x = {.harshness = harshness,
                         .n_changes = 4,
                         .batch = 1,
                         .least = least_of_four,
                         .plan = plan_four,
                         .describe = describe};
    struct advice a;
    (void)state;
    now.budget.needs[TIER_DEVICE] = WEIGHTS;
    advice_find(&x, &now, TIER_DEVICE, WEIGHTS / 2, &a);
    assert_true(a.n > 0);
    assert_string_equal(a.remedies[0].text, "changes 8, release 0, parts 1");
}

static void what_is_not_held_is_not_let_go(void **state)
{
    (void)state;
    expect_advice(1599, false, "changes 0, release 0, parts 2", 1300);
}

static void what_cannot_fit_is_not_planned(void **state)
{
    struct made_up m = {0};
    (void)state;
    struct advice a = ask(299, true, &m);
    assert_int_equal(a.n, 0);
    assert_int_equal(m.n_planned, 0);
    assert_int_equal(a.least, 300); /* the least of all variants, known without planning */
    assert_int_equal(a.most, MEMORY_WEIGHTS);
    assert_int_equal(a.most_bytes, WEIGHTS);
}

/* Each does by itself: none asks for all that another asks for, and more. */
static void other_ways_follow_from_the_mildest_on(void **state)
{
    struct made_up m = {0};
    (void)state;
    struct advice a = ask(1400, true, &m);
    const char *const texts[] = {"changes 0, release 1, parts 1", "changes 2, release 0, parts 1",
                                 "changes 1, release 0, parts 1"};
    const int64_t n_bytes[] = {1300, 1400, 1100};
    assert_int_equal(a.n, ARRAY_LEN(texts));
    for (int i = 0; i < a.n; i++) {
        assert_string_equal(a.remedies[i].text, texts[i]);
        assert_int_equal(a.remedies[i].n_bytes, n_bytes[i]);
    }
}

/* ---- other ways out -------------------------------------------------------------------------- */

#define BIT(way) (1u << (way))

static void expect_remedies(const struct advice *a, const char *const texts[], int n)
{
    assert_int_equal(a->n, n);
    for (int i = 0; i < n; i++)
        assert_string_equal(a->remedies[i].text, texts[i]);
}

#define EXPECT_REMEDIES(a, ...)                            \
    expect_remedies(a, (const char *const[]){__VA_ARGS__}, \
                    sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

#define CHANGES_OF_1040                                               \
    "changes 2, release 1, parts 2", "changes 1, release 1, parts 1", \
        "changes 3, release 0, parts 1"

/* Memory before other numerics, the faster kind of it first, and another training last. */
static void what_costs_the_least_comes_first(void **state)
{
    struct made_up m = {.ways = BIT(WAY_HOST) | BIT(WAY_DISK) | BIT(WAY_LORA) | BIT(WAY_QLORA),
                        .units_s = {[WAY_HOST] = 1, [WAY_DISK] = 2, [WAY_LORA] = 9}};
    (void)state;
    struct advice a = ask(1040, true, &m);
    EXPECT_REMEDIES(&a, "way 3", "way 2", CHANGES_OF_1040, "way 4");
    m.units_s[WAY_HOST] = 3;
    a = ask(1040, true, &m);
    EXPECT_REMEDIES(&a, "way 2", "way 3", CHANGES_OF_1040, "way 4");
}

/* Weights of fewer bits are for where those that there are do not fit. */
static void the_smaller_adapter_is_for_where_the_larger_one_is_none(void **state)
{
    struct made_up m = {.ways = BIT(WAY_QLORA)};
    (void)state;
    struct advice a = ask(1040, true, &m);
    EXPECT_REMEDIES(&a, CHANGES_OF_1040, "way 5");
}

/* Where letting go is enough, nobody has to buy memory; more of a budget costs nothing. */
static void what_fits_as_it_is_asks_for_nothing_else(void **state)
{
    struct made_up m = {.ways = ~0U};
    (void)state;
    struct advice a = ask(1599, true, &m);
    assert_string_equal(a.remedies[0].text, "changes 0, release 1, parts 1");
    assert_string_equal(a.remedies[1].text, "way 1");
    assert_int_equal(a.remedies[1].n_bytes, WEIGHTS + BATCH * SEQUENCE);
    for (int i = 2; i < a.n; i++)
        assert_int_equal(a.remedies[i].variant.way, WAY_NONE);
}

/* The smallest plan fits, and none that would run does. */
static void what_does_not_fit_as_it_would_run_is_no_remedy(void **state)
{
    struct made_up m = {.ways = BIT(WAY_HOST) | BIT(WAY_LORA), .refuted = BIT(WAY_HOST)};
    (void)state;
    struct advice a = ask(1040, true, &m);
    EXPECT_REMEDIES(&a, CHANGES_OF_1040, "way 4");
}

/* ---- words ----------------------------------------------------------------------------------- */

#define GIB ((int64_t)1 << 30)

static const char *words_for(struct advice *advice)
{
    const struct budget b = {.n_bytes = {5 * GIB, 6 * GIB, 0},
                             .had = {80 * GIB, 80 * GIB, 0},
                             .needs = {8 * GIB, 9 * GIB, 0},
                             .given = {[TIER_DEVICE] = true, [TIER_HOST] = true}};
    const struct shortage s = {&b, TIER_DEVICE, .is_given = true};
    advice->unit = "tokens";
    assert_int_equal(refuse_run(&s, advice), ERR_FIT);
    return status_message();
}

static void expect_line(struct advice *advice, const char *line)
{
    const char *text = words_for(advice);
    if (!strstr(text, line))
        fail_msg("'%s' is not in: %s", line, text);
}

static void a_remedy_says_what_it_takes_and_costs(void **state)
{
    struct advice a = {.n = 1, .remedies = {{.n_bytes = GIB, .text = "a=b"}}};
    struct remedy *r = a.remedies;
    (void)state;
    r->variant.n_parts = 1;
    expect_line(&a, "\n  a=b   (needs 1.00 GiB, the same losses)");
    r->units_s = 1234.4;
    expect_line(&a, "\n  a=b   (needs 1.00 GiB, 1,234 tokens/s, the same losses)");
    r->variant.n_parts = 2;
    expect_line(&a, "tokens/s, the same sums in another order)");
    a.parts_matter = true;
    expect_line(&a, "tokens/s, other numerics)");
    a.parts_matter = false;
    r->variant.changes = 1;
    expect_line(&a, "tokens/s, other numerics)");
    r->variant = (struct variant){.n_parts = 1, .way = WAY_MORE};
    expect_line(&a, "tokens/s, there is that much, the same losses)");
    r->variant.way = WAY_HOST;
    expect_line(&a, "tokens/s, there is that much, the same losses)");
    a.host_is_elsewhere = true;
    expect_line(&a, "tokens/s, where there is that much, the same losses)");
    r->variant.way = WAY_DISK;
    r->needs[TIER_DISK] = 3 * GIB;
    expect_line(&a, "tokens/s, 3.00 GiB of the disk, the same losses)");
    r->variant.way = WAY_QLORA;
    expect_line(&a, "tokens/s, trains an adapter instead of the model)");
}

static void a_second_shortage_is_told(void **state)
{
    struct advice a = {0};
    (void)state;
    expect_line(&a, "and host memory lacks 3.00 GiB of 9.00 GiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recomputing_comes_before_smaller_batches_before_other_numerics),
        cmocka_unit_test(the_mildest_change_that_fits_is_named),
        cmocka_unit_test(one_change_is_named_before_several_that_sum_up_to_more),
        cmocka_unit_test(what_is_not_held_is_not_let_go),
        cmocka_unit_test(what_cannot_fit_is_not_planned),
        cmocka_unit_test(other_ways_follow_from_the_mildest_on),
        cmocka_unit_test(what_costs_the_least_comes_first),
        cmocka_unit_test(the_smaller_adapter_is_for_where_the_larger_one_is_none),
        cmocka_unit_test(what_fits_as_it_is_asks_for_nothing_else),
        cmocka_unit_test(what_does_not_fit_as_it_would_run_is_no_remedy),
        cmocka_unit_test(a_remedy_says_what_it_takes_and_costs),
        cmocka_unit_test(a_second_shortage_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
