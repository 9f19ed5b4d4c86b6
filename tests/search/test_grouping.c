/* Micro-batches run in groups where that saves fetches that a step waits for, and only there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "search/grouping.h"
#include "search/search.h"
#include "support/golden.h"
#include "support/paper_device.h"
#include "support/training.h"

static const char config[] =
    "{\"model_type\":\"llama\",\"vocab_size\":8000,\"hidden_size\":2048,"
    "\"intermediate_size\":5504,\"num_hidden_layers\":6,\"num_attention_heads\":16,"
    "\"num_key_value_heads\":16,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5,"
    "\"hidden_act\":\"silu\",\"rope_theta\":10000.0}";

static struct device device;

static int open_device(void **state)
{
    (void)state;
    expect_ok(device_open_cpu(&device, 1));
    paper_device_make(&device);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    device_close(&device);
    return 0;
}

struct outcome {
    int group;
    bool states_alone; /* are away, neither weights nor sums of gradients */
    double seconds;
    int64_t n_bytes;
};

/* 4 micro-batches a step. */
static void open_training(struct training *t)
{
    training_init(t, &(struct training_options){.config = config,
                                                .batch = 1,
                                                .seq_len = 1024,
                                                .n_micro = 4,
                                                .bf16 = true,
                                                .device = &device});
}

static struct limits device_memory(int64_t n_bytes)
{
    return (struct limits){.n_bytes = {n_bytes, (int64_t)1 << 40, LIMIT_OPEN}};
}

static const struct decisions one_at_a_time = {
    .recompute_cheap = true, .slice_bytes = SLICE_BYTES, .group = 1};

/* In that much of the device's memory. */
static struct outcome plan(int64_t n_bytes, bool fixed, int group)
{
    struct training t;
    struct outcome x;
    struct search_report report = {0};
    const struct limits limits = device_memory(n_bytes);
    const struct search_bounds bounds = {.fixed_group = fixed};
    struct decisions d = one_at_a_time;
    d.group = group;
    open_training(&t);
    expect_ok(search_plan(&t.engine.work, &limits, &bounds, NULL, &d, &report));
    expect_ok(forecast_seconds(&t.engine.work, NULL, &x.seconds));
    expect_ok(program_check(t.stage->program, &t.engine.work.storage));
    x.group = t.stage->group;
    x.n_bytes = t.engine.work.n_bytes[TIER_DEVICE];
    x.states_alone =
        d.n[EXTENT_STATES] > 0 && d.n[EXTENT_WEIGHTS] == 0 && d.n[EXTENT_GRADIENTS] == 0;
    assert_int_equal(x.group, MAX(d.group, 1));
    training_release(&t);
    return x;
}

static struct outcome expect_groups(int64_t little)
{
    struct outcome one = plan(little, true, 1), chosen = plan(little, false, 1);
    print_message("one at a time: %.1f ms; in groups of %d: %.1f ms\n", 1e3 * one.seconds,
                  chosen.group, 1e3 * chosen.seconds);
    assert_int_equal(one.group, 1);
    assert_true(chosen.group > 1);
    assert_true(chosen.seconds < 0.97 * one.seconds);
    assert_true(chosen.n_bytes <= little);
    return one;
}

static void groups_are_chosen_where_weights_are_away(void **state)
{
    (void)state;
    assert_false(expect_groups((int64_t)1 << 30).states_alone);
}

/* Updates wait for states beside the last micro-batch alone, and in a group beside all of them. */
static void groups_are_chosen_where_states_are_away(void **state)
{
    (void)state;
    assert_true(expect_groups((int64_t)3 << 30).states_alone);
}

static void what_fits_runs_one_at_a_time(void **state)
{
    (void)state;
    assert_int_equal(plan((int64_t)1 << 40, false, 1).group, 1);
    assert_int_equal(plan((int64_t)1 << 40, true, 2).group, 2);
}

/* ---- against what is found without them -------------------------------------------------------
 */

static const struct search_bounds as_given = {.fixed_group = true};

static enum status plan_fixed(const struct group_search *x, double below, struct decisions *d,
                              struct search_report *report, bool *found)
{
    (void)below;
    *found = true;
    return search_plan(x->w, x->limits, &as_given, x->times, d, report);
}

/* They are tried against a plan that may not be the last, then against the last. Returns how much
 * of the time without them is left. */
static double expect_winner(int64_t n_bytes, bool at_once)
{
    double without;
    struct training t;
    const struct limits limits = device_memory(n_bytes);
    const struct search_bounds bounds = {0};
    struct decisions d = one_at_a_time;
    open_training(&t);
    const struct group_search x = {
        .w = &t.engine.work, .limits = &limits, .bounds = &bounds, .plan = plan_fixed};
    struct grouping g = {.search = &x, .configured = &one_at_a_time};
    expect_ok(search_plan(&t.engine.work, &limits, &as_given, NULL, &d, NULL));
    expect_ok(forecast_seconds(&t.engine.work, NULL, &without));
    expect_ok(grouping_try(&g, &d, false));
    assert_true(g.seconds > 0);
    assert_int_equal(g.won, at_once);
    assert_int_equal(t.stage->group, at_once ? g.d.group : 1);
    if (!at_once) {
        expect_ok(workload_place(&t.engine.work));
        expect_ok(grouping_try(&g, &d, true));
    }
    assert_true(g.won && g.d.group > 1);
    assert_int_equal(t.stage->group, g.d.group);
    assert_true(t.engine.work.n_bytes[TIER_DEVICE] <= n_bytes);
    training_release(&t);
    return g.seconds / without;
}

static void groups_that_are_clearly_faster_win_at_once(void **state)
{
    const int64_t little = (int64_t)1 << 30;
    (void)state;
    assert_true(expect_winner(little, true) < 0.8);
}

static void speed_up_links(double times)
{
    for (int from = 0; from < TIER_COUNT; from++) {
        for (int to = 0; to < TIER_COUNT; to++) {
            device.rates.links[from][to].alone *= times;
            device.rates.links[from][to].both *= times;
        }
    }
}

/* The faster the link, the less is gained: here less than what wins at once (grouping.c), and more
 * than a search is worth. Which kernels a processor has makes a difference. */
static void others_wait_for_what_is_found_without_them(void **state)
{
    const struct device before = device;
    (void)state;
    speed_up_links(18);
    double share = expect_winner((int64_t)1 << 30, false);
    print_message("%.4f of the time with groups\n", share);
    assert_true(share > 0.85 && share < 0.97);
    device = before;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_chosen_where_weights_are_away),
        cmocka_unit_test(groups_are_chosen_where_states_are_away),
        cmocka_unit_test(what_fits_runs_one_at_a_time),
        cmocka_unit_test(groups_that_are_clearly_faster_win_at_once),
        cmocka_unit_test(others_wait_for_what_is_found_without_them),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
