/* A training step as the search sees it: places in the order of the forward pass, each with its
 * first phases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "search/clocks.h"
#include "support/golden.h"
#include "support/paper_device.h"
#include "support/training.h"

enum { MOST_PLACES = 8 };

/* The first phase of a pass in a place; -1: it has none. */
static int first_phase(const struct survey *s, int place, enum pass pass)
{
    for (node_id k = 0; (size_t)k < s->graph->nodes.n; k++) {
        int phase = s->phase_of[k];
        if (phase >= 0 && s->phases[phase].place == place && graph_node(s->graph, k)->pass == pass)
            return phase;
    }
    return -1;
}

static void open_survey(struct training *t, struct survey *s)
{
    static const struct decisions everything_kept = {0};
    training_init(t, &(struct training_options){.golden = "llama", .batch = 2, .seq_len = 8});
    expect_ok(survey_init(s, &t->engine.work, NULL, &everything_kept));
    assert_in_range(s->n_places, 4, MOST_PLACES); /* two blocks, what is before and behind */
}

static void each_place_knows_the_first_phase_of_each_pass(void **state)
{
    struct training t;
    struct survey s;
    int n_backward = 0;
    (void)state;
    open_survey(&t, &s);
    for (int p = 0; p < s.n_places; p++) {
        assert_int_equal(s.places[p].forward, first_phase(&s, p, PASS_FORWARD));
        assert_int_equal(s.places[p].backward, first_phase(&s, p, PASS_BACKWARD));
        n_backward += s.places[p].backward > s.places[p].forward;
    }
    assert_true(n_backward > 1);
    survey_release(&s);
    training_release(&t);
}

static void places_come_in_the_order_of_the_forward_pass(void **state)
{
    struct training t;
    struct survey s;
    int n_times[MOST_PLACES] = {0};
    (void)state;
    open_survey(&t, &s);
    for (int i = 0; i < s.n_places; i++) {
        assert_in_range(s.order[i], 0, s.n_places - 1);
        n_times[s.order[i]]++;
        if (i > 0)
            assert_true(s.places[s.order[i]].forward > s.places[s.order[i - 1]].forward);
    }
    for (int p = 0; p < s.n_places; p++)
        assert_int_equal(n_times[p], 1);
    survey_release(&s);
    training_release(&t);
}

/* Addresses take no more than what is live at once: the program keeps everything. */
static void the_highest_peak_is_that_of_the_program(void **state)
{
    struct training t;
    struct survey s;
    int64_t peaks[256], most = 0;
    (void)state;
    open_survey(&t, &s);
    assert_true(s.n_phases > 0 && s.n_phases <= 256);
    const struct program *p = t.engine.work.stages[0].program;
    expect_ok(survey_peaks(&s, p, peaks));
    for (int i = 0; i < s.n_phases; i++)
        most = MAX(most, peaks[i]);
    assert_int_equal(most + s.storage_bytes[TIER_DEVICE], t.engine.work.n_bytes[TIER_DEVICE]);
    survey_release(&s);
    training_release(&t);
}

/* Updates of the last micro-step run between its backward nodes, which are phases of the others:
 * what blocks still keep then is known by these. */
static void updates_of_micro_steps_stand_beside_the_backward_pass(void **state)
{
    static const struct decisions everything_kept = {0};
    struct training t;
    struct survey s;
    int n_beside = 0;
    (void)state;
    training_init(
        &t, &(struct training_options){.golden = "llama", .batch = 2, .seq_len = 8, .n_micro = 2});
    expect_ok(survey_init(&s, &t.engine.work, NULL, &everything_kept));
    for (int q = 0; q < s.n_phases; q++) {
        int beside = s.phases[q].beside;
        assert_true(beside <= q);
        if (beside < q) {
            assert_true(s.phases[beside].section < s.phases[q].section);
            n_beside++;
        }
    }
    assert_true(n_beside > 1);
    survey_release(&s);
    training_release(&t);
}

/* Bytes of weights that the phases of a pass fetch in a place. */
static int64_t fetched_bytes(const struct survey *s, int place, enum pass pass)
{
    int64_t n_bytes = 0;
    for (int i = 0; i < s->n_touches; i++) {
        const struct touch *x = &s->touches[i];
        node_id k = 0;
        while (s->phase_of[k] != x->phase)
            k++;
        if (x->home == HOME_WEIGHTS && x->place == place && graph_node(s->graph, k)->pass == pass)
            n_bytes += x->n_in;
    }
    return n_bytes;
}

/* Ternary weights are never kept: the backward pass rounds the matrices anew, and needs them. */
static void what_is_made_again_is_fetched_again(void **state)
{
    static const struct decisions everything_kept = {0};
    struct training t;
    struct survey s;
    (void)state;
    training_init(&t, &(struct training_options){.golden = "bitnet", .batch = 2, .seq_len = 8});
    expect_ok(survey_init(&s, &t.engine.work, NULL, &everything_kept));
    for (int i = 1; i < s.n_places - 1; i++) {
        int64_t forward = fetched_bytes(&s, s.order[i], PASS_FORWARD);
        assert_true(forward > 0);
        assert_in_range(fetched_bytes(&s, s.order[i], PASS_BACKWARD), forward * 9 / 10, forward);
    }
    survey_release(&s);
    training_release(&t);
}

/* Seconds that all fetches of weights take on a link that does nothing else. */
static double link_seconds(const struct survey *s, const struct device *d)
{
    double n_bytes = 0;
    for (int i = 0; i < s->n_touches; i++) {
        const struct touch *x = &s->touches[i];
        if (x->home == HOME_WEIGHTS)
            n_bytes += (double)x->n_in * s->section_times[s->phases[x->phase].section];
    }
    return n_bytes / d->rates.links[TIER_HOST][TIER_DEVICE].alone;
}

/* However far ahead they are fetched. */
static void no_step_is_estimated_below_what_its_fetches_take(void **state)
{
    static const struct decisions everything_kept = {0};
    static const struct saved_bounds open = {0};
    struct training t;
    struct survey s;
    struct device device;
    struct options *options;
    struct clocks clocks;
    int option[MOST_PLACES] = {0};
    bool away[MOST_PLACES][HOME_CLASS_COUNT] = {{false}};
    (void)state;
    expect_ok(device_open_cpu(&device, 1));
    paper_device_make(&device);
    device.rates.links[TIER_HOST][TIER_DEVICE].alone = 1e6; /* so slow that it is all that counts */
    device.rates.links[TIER_HOST][TIER_DEVICE].both = 1e6;
    training_init(
        &t, &(struct training_options){
                .golden = "llama", .batch = 2, .seq_len = 8, .n_micro = 2, .device = &device});
    expect_ok(survey_init(&s, &t.engine.work, NULL, &everything_kept));
    expect_ok(saved_sets_find(&options, &s, &open, 1e-9));
    expect_ok(clocks_init(&clocks, &s, options, &device));
    for (int p = 0; p < s.n_places; p++)
        away[p][HOME_WEIGHTS] = true;
    double least = link_seconds(&s, &device);
    assert_true(least > 0);
    for (int64_t ring = 0; ring < 1 << 20; ring = 2 * ring + 4096) {
        const struct outline o = {.option = option,
                                  .away = (const bool(*)[HOME_CLASS_COUNT])away,
                                  .ring_bytes = ring,
                                  .decisions = &everything_kept};
        assert_true(clocks_step(&clocks, &o) > 0.99 * least);
    }
    survey_release(&s);
    training_release(&t);
    device_close(&device);
}

/* Bytes that a node's outputs take where each is memory of its own; else 0. */
static int64_t output_bytes(const struct graph *g, const struct node *n)
{
    int64_t n_bytes = 0;
    for (int i = 0; i < n->n_out; i++) {
        if (value_root(g, n->out[i]) != n->out[i])
            return 0;
        n_bytes += align_up(value_bytes(g, n->out[i]), ARENA_ALIGN);
    }
    return op_get(n->op)->recompute == RECOMPUTE_ALWAYS ? 0 : n_bytes;
}

static const struct unit *find_unit(const struct place_facts *p, int index)
{
    for (int u = 0; u < p->n_units; u++) {
        if (p->units[u].index == index)
            return &p->units[u];
    }
    return NULL;
}

/* A block with a router has many nodes of a few bytes before those of its experts: what is decided
 * about is what is large, wherever it comes. */
static void of_many_nodes_the_largest_are_decided_about(void **state)
{
    static const struct decisions everything_kept = {0};
    struct training t;
    struct survey s;
    int n_seen[MOST_PLACES] = {0}, n_left_out = 0;
    (void)state;
    training_init(&t, &(struct training_options){.golden = "moe", .batch = 2, .seq_len = 8});
    expect_ok(survey_init(&s, &t.engine.work, NULL, &everything_kept));
    assert_in_range(s.n_places, 1, MOST_PLACES);
    for (node_id k = 0; (size_t)k < s.graph->nodes.n; k++) {
        const struct node *n = graph_node(s.graph, k);
        int place = place_of_node(&t.stage->plan, s.graph, k);
        if (n->pass != PASS_FORWARD)
            continue;
        const struct place_facts *p = &s.places[place];
        int64_t n_bytes = output_bytes(s.graph, n);
        if (find_unit(p, n_seen[place]++) || n_bytes == 0)
            continue;
        n_left_out++;
        assert_int_equal(p->n_units, MAX_UNITS);
        for (int u = 0; u < p->n_units; u++)
            assert_true(p->units[u].n_bytes >= n_bytes);
    }
    assert_true(n_left_out > 0);
    survey_release(&s);
    training_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_place_knows_the_first_phase_of_each_pass),
        cmocka_unit_test(places_come_in_the_order_of_the_forward_pass),
        cmocka_unit_test(the_highest_peak_is_that_of_the_program),
        cmocka_unit_test(updates_of_micro_steps_stand_beside_the_backward_pass),
        cmocka_unit_test(what_is_made_again_is_fetched_again),
        cmocka_unit_test(of_many_nodes_the_largest_are_decided_about),
        cmocka_unit_test(no_step_is_estimated_below_what_its_fetches_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
