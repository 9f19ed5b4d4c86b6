/* Estimates of a step, by hand: three phases of a second each, a link of 100 bytes a second that
 * goes half as fast both ways at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "search/clocks.h"
#include "support/golden.h"

enum { N_PHASES = 3, N_PLACES = 3, MOST_TOUCHES = 4 };

struct step {
    struct survey survey;
    struct phase phases[N_PHASES];
    struct place_facts places[N_PLACES];
    struct unit unit; /* of place 1 */
    struct touch touches[MOST_TOUCHES];
    double section_times[2];
    struct option kept, changed; /* of all places, and of place 1 */
    struct options options[N_PLACES];
    int option[N_PLACES];
    bool away[N_PLACES][HOME_CLASS_COUNT];
    struct decisions decisions;
    struct device_ops ops;
    struct device device;
    int64_t ring_bytes;
};

static void *some_queue(struct device *d, enum queue q)
{
    (void)q;
    return d;
}

static void step_init(struct step *s)
{
    *s = (struct step){.section_times = {2, 1}, .ring_bytes = 1000};
    const struct link_rate link = {.alone = 100, .both = 50};
    const struct link_rate disk = {.alone = 10, .both = 5, .latency_s = 0.5};
    s->device.ops = &s->ops;
    s->device.rates.links[TIER_HOST][TIER_DEVICE] = link;
    s->device.rates.links[TIER_DEVICE][TIER_HOST] = link;
    s->device.rates.links[TIER_HOST][TIER_DISK] = disk;
    s->device.rates.links[TIER_DISK][TIER_HOST] = disk;
    for (int i = 0; i < N_PHASES; i++)
        s->phases[i] = (struct phase){.place = i, .seconds = 1};
    for (int i = 0; i < N_PLACES; i++) {
        s->places[i] = (struct place_facts){.forward = i, .backward = -1};
        s->options[i] = (struct options){&s->kept, 1};
    }
    s->survey = (struct survey){.places = s->places,
                                .n_places = N_PLACES,
                                .phases = s->phases,
                                .n_phases = N_PHASES,
                                .section_times = s->section_times,
                                .n_sections = 2,
                                .touches = s->touches};
}

/* Weights of place 1 that cross the link in phase 1. */
static struct touch *touch(struct step *s, int64_t n_in, int64_t largest_in, int64_t n_out)
{
    struct touch *t = &s->touches[s->survey.n_touches++];
    *t = (struct touch){.phase = 1,
                        .place = 1,
                        .home = HOME_WEIGHTS,
                        .n_in = n_in,
                        .n_out = n_out,
                        .largest_in = largest_in,
                        .copies_in = n_in > 0,
                        .copies_out = n_out > 0,
                        .after = -1};
    s->away[1][HOME_WEIGHTS] = true;
    return t;
}

static void expect_seconds(struct step *s, bool queues, double seconds)
{
    struct clocks c;
    s->ops.queue = queues ? some_queue : NULL;
    pool_init(&s->survey.pool);
    expect_ok(clocks_init(&c, &s->survey, s->options, &s->device));
    const struct outline o = {.option = s->option,
                              .away = (const bool(*)[HOME_CLASS_COUNT])s->away,
                              .ring_bytes = s->ring_bytes,
                              .decisions = &s->decisions};
    assert_float_equal(clocks_step(&c, &o), seconds, 1e-9);
    assert_float_equal(clocks_step(&c, &o), seconds, 1e-9); /* nothing stays behind */
    pool_release(&s->survey.pool);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void phases_take_their_time_as_often_as_their_section_runs(void **state)
{
    struct step s;
    (void)state;
    step_init(&s);
    expect_seconds(&s, true, 6);
    expect_seconds(&s, false, 6);
    s.phases[2].section = 1;
    expect_seconds(&s, true, 5);
    expect_seconds(&s, false, 5);
}

static void fetches_hide_behind_what_runs_before(void **state)
{
    struct step s;
    (void)state;
    step_init(&s);
    s.section_times[0] = 1;
    touch(&s, 100, 100, 0);
    expect_seconds(&s, true, 3);
    s.touches[0].n_in = s.touches[0].largest_in = 400; /* begins after 4 seconds */
    expect_seconds(&s, true, 6);
    s.touches[0].largest_in = 100; /* begins with its first, ends after its last */
    expect_seconds(&s, true, 5.3);
    s.device.rates.links[TIER_HOST][TIER_DEVICE].latency_s = 0.4;
    expect_seconds(&s, true, 5.7);
}

/* Twice its bytes of a memory's 2000 a second, and waits. */
static void copies_take_time_from_kernels_beside_them(void **state)
{
    struct step s;
    (void)state;
    step_init(&s);
    s.section_times[0] = 1;
    s.device.rates.memory_bytes = 2000;
    touch(&s, 100, 100, 0);
    expect_seconds(&s, true, 3.1);
    expect_seconds(&s, false, 4); /* nothing runs beside them */
    s.device.rates.wait_s = 0.25;
    expect_seconds(&s, true, 3.35);
    expect_seconds(&s, false, 4);
    step_init(&s);
    s.section_times[0] = 1;
    s.device.rates.memory_bytes = 2000;
    s.device.rates.wait_s = 0.25;
    touch(&s, 0, 0, 50);
    expect_seconds(&s, true, 3.3);
}

static void what_the_ring_has_no_room_for_waits(void **state)
{
    struct step s;
    (void)state;
    step_init(&s);
    s.section_times[0] = 1;
    s.ring_bytes = 50;
    touch(&s, 100, 100, 0);
    expect_seconds(&s, true, 4);
    s.touches[0].n_in = 200; /* a tensor at a time, each as it is needed */
    expect_seconds(&s, true, 5);
}

static void a_ring_lets_go_of_what_is_read_while_it_is_read(void **state)
{
    struct step s;
    (void)state;
    step_init(&s);
    s.section_times[0] = 1;
    s.ring_bytes = 105; /* of which half a tensor is never full */
    touch(&s, 100, 10, 0);
    touch(&s, 100, 10, 0)->phase = 2; /* from 1.1, as phase 1 goes on; there at 2.1 */
    expect_seconds(&s, true, 3);
    s.touches[0].at_once = s.touches[1].at_once = 190; /* 10 bytes ahead are left of it */
    expect_seconds(&s, true, 3.5);
}

static void a_group_lets_go_when_its_last_micro_batch_has_read(void **state)
{
    struct step s;
    (void)state;
    step_init(&s);
    s.section_times[0] = 1;
    s.survey.group = 4;
    s.ring_bytes = 105;
    touch(&s, 100, 10, 0);
    touch(&s, 100, 10, 0)->phase = 2; /* from 1.775, of phase 1's last quarter; there at 2.775 */
    expect_seconds(&s, true, 3.075);
    s.touches[1].n_in = 0;
    s.ring_bytes = 55; /* half of phase 1's are there at 1, the others after 1.75: at 2.25 */
    expect_seconds(&s, true, 3.55);
}

static void both_ways_at_once_take_longer(void **state)
{
    struct step s;
    (void)state;
    step_init(&s);
    s.section_times[0] = 1;
    touch(&s, 100, 100, 100); /* in by 2, out from 2.5 to 4.5 */
    expect_seconds(&s, true, 4.5);
    s.device.rates.links[TIER_HOST][TIER_DEVICE].both = 0; /* not known: as fast as alone */
    s.device.rates.links[TIER_DEVICE][TIER_HOST].both = 0;
    expect_seconds(&s, true, 3);
}

static void what_is_away_in_no_place_costs_nothing(void **state)
{
    struct step s;
    (void)state;
    step_init(&s);
    touch(&s, 400, 400, 400);
    s.away[1][HOME_WEIGHTS] = false;
    expect_seconds(&s, true, 6);
    s.away[2][HOME_WEIGHTS] = s.away[1][HOME_STATES] = true;
    expect_seconds(&s, true, 6);
}

static void moved_values_come_back_when_they_have_gone(void **state)
{
    struct step s;
    (void)state;
    step_init(&s);
    s.section_times[0] = 1;
    s.unit = (struct unit){.n_movable = 100, .gone = 0, .back = 2};
    s.places[1].units = &s.unit;
    s.places[1].n_units = 1;
    s.places[1].backward = 2;
    s.changed = (struct option){.moved = 1};
    s.options[1].items = &s.changed;
    expect_seconds(&s, true, 3.5); /* gone at 1.5, back at 2.5 */
    s.changed.seconds = 0.5;
    expect_seconds(&s, true, 4);
    s.decisions.disk[EXTENT_MOVED] = EXTENT_WHOLE; /* 10.5 seconds to the disk, and back */
    expect_seconds(&s, true, 21);
}

static void copies_are_part_of_the_line_where_nothing_is_queued(void **state)
{
    struct step s;
    (void)state;
    step_init(&s);
    s.device.rates.launch_s = 0.125;
    touch(&s, 200, 100, 100)->copies_in = 2;
    expect_seconds(&s, false, 2 * (3 + 2 + 1 + 3 * 0.125));
    s.device.rates.links[TIER_HOST][TIER_DEVICE].latency_s = 0.25;
    expect_seconds(&s, false, 2 * (3 + 2 + 1 + 3 * 0.25));
}

static void the_disk_has_a_clock_of_its_own(void **state)
{
    struct step s;
    (void)state;
    step_init(&s);
    s.section_times[0] = 1;
    touch(&s, 20, 20, 20);
    s.decisions.disk[EXTENT_WEIGHTS] = EXTENT_WHOLE;
    expect_seconds(&s, true, 9); /* 4 seconds each way, two calls */
    expect_seconds(&s, false, 2 + 9);
    s.ring_bytes = 0;
    expect_seconds(&s, true, 3 + 9);
    expect_seconds(&s, false, 3 + 9);
}

/* What homes mean is remembered from estimate to estimate, as long as they are the same. */
static void the_same_clocks_go_by_the_homes_they_are_asked_for(void **state)
{
    struct step s;
    struct clocks c;
    (void)state;
    step_init(&s);
    s.section_times[0] = 1;
    s.ops.queue = some_queue;
    s.unit = (struct unit){.n_movable = 100, .gone = 0, .back = 2};
    s.places[1].units = &s.unit;
    s.places[1].n_units = 1;
    s.changed = (struct option){.moved = 1};
    const struct option ways[] = {s.kept, s.changed};
    s.options[1] = (struct options){ways, 2};
    touch(&s, 400, 400, 0);
    pool_init(&s.survey.pool);
    expect_ok(clocks_init(&c, &s.survey, s.options, &s.device));
    static const struct {
        bool away;
        int option, disk;
        double seconds;
    } asked[] = {
        {true, 0, 0, 6},    {false, 0, 0, 3},   {false, 1, 0, 3.5}, {true, 0, 0, 6},
        {true, 0, 1, 40.5}, {false, 1, 0, 3.5}, {false, 0, 0, 3},   {true, 0, 0, 6},
    };
    for (size_t i = 0; i < ARRAY_LEN(asked); i++) {
        s.away[1][HOME_WEIGHTS] = asked[i].away;
        s.option[1] = asked[i].option;
        s.decisions.disk[EXTENT_WEIGHTS] = asked[i].disk ? EXTENT_WHOLE : 0;
        const struct outline o = {.option = s.option,
                                  .away = (const bool(*)[HOME_CLASS_COUNT])s.away,
                                  .ring_bytes = s.ring_bytes,
                                  .decisions = &s.decisions};
        assert_float_equal(clocks_step(&c, &o), asked[i].seconds, 1e-9);
    }
    pool_release(&s.survey.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phases_take_their_time_as_often_as_their_section_runs),
        cmocka_unit_test(fetches_hide_behind_what_runs_before),
        cmocka_unit_test(copies_take_time_from_kernels_beside_them),
        cmocka_unit_test(what_the_ring_has_no_room_for_waits),
        cmocka_unit_test(a_ring_lets_go_of_what_is_read_while_it_is_read),
        cmocka_unit_test(a_group_lets_go_when_its_last_micro_batch_has_read),
        cmocka_unit_test(both_ways_at_once_take_longer),
        cmocka_unit_test(what_is_away_in_no_place_costs_nothing),
        cmocka_unit_test(moved_values_come_back_when_they_have_gone),
        cmocka_unit_test(copies_are_part_of_the_line_where_nothing_is_queued),
        cmocka_unit_test(the_disk_has_a_clock_of_its_own),
        cmocka_unit_test(the_same_clocks_go_by_the_homes_they_are_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
