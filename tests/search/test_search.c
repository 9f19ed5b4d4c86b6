/* Smaller and smaller budgets: each is kept to the byte, and the bits are those of the run that
 * keeps everything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "search/search.h"
#include "support/golden.h"
#include "support/training.h"

enum { N_STEPS = 3, N_BUDGETS = 12 };

struct result {
    float losses[N_STEPS], norms[N_STEPS];
    uint64_t digest;
};

static const struct search_bounds free_choice = {0};

static struct limits device_limit(int64_t n_bytes)
{
    return (struct limits){.n_bytes = {n_bytes, LIMIT_OPEN, LIMIT_OPEN}};
}

static void run(struct training *t, struct result *r)
{
    training_start(t);
    for (int i = 0; i < N_STEPS; i++) {
        training_step(t, i);
        r->losses[i] = training_output(t, "loss");
        r->norms[i] = training_output(t, "grad_norm");
    }
    r->digest = training_digest(t);
    training_expect_prediction(t);
    training_stop(t);
}

static void expect_same_bits(const struct result *want, const struct result *got, int64_t budget)
{
    if (memcmp(want, got, sizeof(*want)) != 0)
        fail_msg("%lld bytes: loss %.9g, norm %.9g instead of %.9g, %.9g", (long long)budget,
                 (double)got->losses[N_STEPS - 1], (double)got->norms[N_STEPS - 1],
                 (double)want->losses[N_STEPS - 1], (double)want->norms[N_STEPS - 1]);
}

/* Climbs for budgets from everything down to what nothing fits in; *least = the smallest kept. */
static void climb_down(const struct training_options *o, int64_t *full, int64_t *least)
{
    struct training t;
    struct result kept = {0}, got = {0};
    training_init(&t, o);
    training_emit(&t);
    run(&t, &kept);
    *full = *least = t.engine.work.n_bytes[TIER_DEVICE];
    int n_kept = 0;
    for (int i = 1; i < N_BUDGETS; i++) {
        int64_t budget = *full * (N_BUDGETS - i) / N_BUDGETS;
        const struct limits limits = device_limit(budget);
        struct decisions d = {0};
        struct str text = {0};
        expect_ok(search_plan(&t.engine.work, &limits, &free_choice, NULL, &d, NULL));
        int64_t n_bytes = t.engine.work.n_bytes[TIER_DEVICE];
        decisions_add_text(&d, t.stage->plan.n_blocks, &text);
        print_message("%9lld of %9lld bytes: %s\n", (long long)n_bytes, (long long)budget,
                      str_text(&text));
        str_release(&text);
        if (n_bytes > budget)
            break;
        run(&t, &got);
        expect_same_bits(&kept, &got, budget);
        *least = n_bytes;
        n_kept++;
    }
    assert_true(n_kept >= 4);
    training_release(&t);
}

static void budgets_are_kept(const struct training_options *o)
{
    int64_t full, least;
    climb_down(o, &full, &least);
    assert_true(3 * least < 2 * full);
}

static void gpt2_keeps_its_budgets(void **state)
{
    (void)state;
    budgets_are_kept(&(struct training_options){.golden = "gpt2", .batch = 4, .seq_len = 16});
}

static void llama_keeps_its_budgets_with_clipping(void **state)
{
    (void)state;
    budgets_are_kept(&(struct training_options){
        .golden = "llama", .batch = 4, .seq_len = 16, .max_grad_norm = 0.1});
}

static void micro_steps_keep_their_budgets(void **state)
{
    (void)state;
    budgets_are_kept(&(struct training_options){
        .golden = "llama", .batch = 4, .seq_len = 16, .n_micro = 3, .max_grad_norm = 0.1});
}

static void tied_weights_and_masters_keep_their_budgets(void **state)
{
    (void)state;
    budgets_are_kept(
        &(struct training_options){.golden = "gpt2", .batch = 4, .seq_len = 16, .bf16 = true});
}

static void coded_states_keep_their_budgets(void **state)
{
    (void)state;
    struct precision p = precision_bf16();
    p.masters = false;
    p.states = FORMAT_BLOCK8;
    budgets_are_kept(&(struct training_options){
        .golden = "llama", .batch = 4, .seq_len = 16, .precision = &p, .seed = 3});
}

static void what_is_fixed_stays(void **state)
{
    (void)state;
    struct training t;
    training_init(&t, &(struct training_options){.golden = "llama", .batch = 4, .seq_len = 16});
    training_emit(&t);
    const struct limits limits = device_limit(t.engine.work.n_bytes[TIER_DEVICE] * 3 / 4);
    for (int e = 0; e < EXTENT_COUNT; e++) {
        struct search_bounds bounds = {0};
        struct decisions d = {0};
        bounds.fixed[e] = true;
        expect_ok(search_plan(&t.engine.work, &limits, &bounds, NULL, &d, NULL));
        assert_int_equal(d.n[e], 0);
    }
    training_release(&t);
}

/* With room for everything nothing more leaves, and what has been settled does. */
static void what_is_settled_leaves_although_all_fits(void **state)
{
    (void)state;
    struct training t;
    struct result kept = {0}, got = {0};
    const struct limits limits = device_limit(LIMIT_OPEN);
    struct search_bounds bounds = {0};
    struct decisions d = {.n = {[EXTENT_STATES] = EXTENT_WHOLE}};
    bounds.fixed[EXTENT_STATES] = true;
    training_init(&t, &(struct training_options){.golden = "llama", .batch = 4, .seq_len = 16});
    training_emit(&t);
    run(&t, &kept);
    expect_ok(search_plan(&t.engine.work, &limits, &bounds, NULL, &d, NULL));
    for (int e = 0; e < EXTENT_COUNT; e++)
        assert_int_equal(d.n[e], e == EXTENT_STATES ? EXTENT_WHOLE : 0);
    assert_true(d.small_bytes > 0); /* a copy costs more than the smallest tensors are worth */
    assert_true(d.ring_bytes <= t.engine.work.n_bytes[TIER_HOST]);
    run(&t, &got);
    expect_same_bits(&kept, &got, 0);
    training_release(&t);
}

/* Of the ranks there are, each is slower than the one before, fits, and computes the same. */
static void lower_ranks_are_slower_and_give_the_same_bits(void **state)
{
    (void)state;
    struct training t;
    struct result kept = {0}, got = {0};
    struct search_report report = {0};
    struct search_bounds bounds = {0};
    double before = 0;
    training_init(&t, &(struct training_options){.golden = "llama", .batch = 4, .seq_len = 16});
    training_emit(&t);
    run(&t, &kept);
    const struct limits limits = device_limit(t.engine.work.n_bytes[TIER_DEVICE] * 2 / 3);
    for (bounds.rank = 1; bounds.rank <= 3; bounds.rank++) {
        struct decisions d = {0};
        double seconds;
        expect_ok(search_plan(&t.engine.work, &limits, &bounds, NULL, &d, &report));
        assert_int_equal(report.chosen, bounds.rank - 1);
        assert_true(t.engine.work.n_bytes[TIER_DEVICE] <= limits.n_bytes[TIER_DEVICE]);
        expect_ok(forecast_seconds(&t.engine.work, NULL, &seconds));
        assert_true(seconds == report.findings[report.chosen].seconds && seconds > before);
        before = seconds;
        run(&t, &got);
        expect_same_bits(&kept, &got, limits.n_bytes[TIER_DEVICE]);
    }
    bounds.rank = 1000; /* there are not as many: the last */
    struct decisions d = {0};
    expect_ok(search_plan(&t.engine.work, &limits, &bounds, NULL, &d, &report));
    assert_in_range(report.chosen, 2, 100);
    run(&t, &got);
    expect_same_bits(&kept, &got, limits.n_bytes[TIER_DEVICE]);
    training_release(&t);
}

static void expect_difference(const char *text, const char *from, const char *want)
{
    struct str out = {0};
    finding_add_difference(&(struct finding){.text = text}, &(struct finding){.text = from}, &out);
    assert_string_equal(str_text(&out), want);
    str_release(&out);
}

static void differences_name_what_is_not_shared(void **state)
{
    (void)state;
    expect_difference("a; b 2; c", "a; b; c", "b 2");
    expect_difference("b; x", "a; b; c", "x");
    expect_difference("b", "a; b; c", "not: a; c");
    expect_difference("", "a", "not: a");
    expect_difference("a; b", "", "a; b");
    expect_difference("a", "a", "the same for other blocks");
}

/* A budget that nothing fits in is answered with the smallest plan; one of that size is kept. */
static void the_least_is_a_budget_that_is_kept(void **state)
{
    (void)state;
    struct training t;
    struct decisions d = {0}, again = {0};
    training_init(&t, &(struct training_options){.golden = "llama", .batch = 4, .seq_len = 16});
    training_emit(&t);
    int64_t all = t.engine.work.n_bytes[TIER_DEVICE];
    struct limits limits = device_limit(1024);
    expect_ok(search_plan(&t.engine.work, &limits, &free_choice, NULL, &d, NULL));
    int64_t least = t.engine.work.n_bytes[TIER_DEVICE];
    assert_true(3 * least < 2 * all && decisions_copy(&d));
    limits = device_limit(least);
    expect_ok(search_plan(&t.engine.work, &limits, &free_choice, NULL, &again, NULL));
    assert_true(t.engine.work.n_bytes[TIER_DEVICE] <= least);
    training_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_keeps_its_budgets),
        cmocka_unit_test(llama_keeps_its_budgets_with_clipping),
        cmocka_unit_test(micro_steps_keep_their_budgets),
        cmocka_unit_test(tied_weights_and_masters_keep_their_budgets),
        cmocka_unit_test(coded_states_keep_their_budgets),
        cmocka_unit_test(what_is_fixed_stays),
        cmocka_unit_test(what_is_settled_leaves_although_all_fits),
        cmocka_unit_test(lower_ranks_are_slower_and_give_the_same_bits),
        cmocka_unit_test(differences_name_what_is_not_shared),
        cmocka_unit_test(the_least_is_a_budget_that_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
