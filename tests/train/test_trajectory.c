/* What jumps go by: paths of a known shape are followed as they go on, and what watches the losses
 * tells trouble from noise. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/rng.h"
#include "train/phases.h"
#include "train/probe.h"
#include "train/trajectory.h"

enum { N = 5, ELEMS = 40 };

struct path {
    float places[N][ELEMS];
    const float *x[N];
};

static void make_path(struct path *p, double (*place)(int element, double t))
{
    for (int i = 0; i < N; i++) {
        p->x[i] = p->places[i];
        for (int e = 0; e < ELEMS; e++)
            p->places[i][e] = (float)place(e, i);
    }
}

static void expect_places(const float *at, double (*place)(int element, double t), double t)
{
    for (int e = 0; e < ELEMS; e++) {
        if (fabs((double)at[e] - place(e, t)) > 2e-4)
            fail_msg("element %d: %g, not %g", e, (double)at[e], place(e, t));
    }
}

static double straight(int e, double t)
{
    return 0.1 * e + t * (e % 7 - 3);
}

/* Two modes that die out at their own rates, to a place of their own: a quadratic's descent. */
static double settling(int e, double t)
{
    return sin(e) + cos(3.0 * e) * pow(0.8, t) + sin(5.0 * e + 1) * pow(0.4, t);
}

static double growing(int e, double t)
{
    return (e % 5 + 1) * pow(2.0, t);
}

static void dmd(const struct path *p, double k, float *to)
{
    double gram[(N - 1) * (N - 1)] = {0}, q[TRAJECTORY_MOST];
    trajectory_add_gram(p->x, N, ELEMS, gram);
    trajectory_dmd(N, gram, k, q);
    trajectory_follow(p->x, N, q, ELEMS, to);
}

static void lines_go_on(void **state)
{
    struct path p;
    double q[TRAJECTORY_MOST];
    float to[ELEMS];
    (void)state;
    make_path(&p, straight);
    trajectory_linear(N, 3.5, q);
    trajectory_follow(p.x, N, q, ELEMS, to);
    expect_places(to, straight, N - 1 + 3.5);
    trajectory_follow_lines(p.x, N, 2, 2, ELEMS, to);
    expect_places(to, straight, N - 1 + 2);
    dmd(&p, 3.5, to);
    expect_places(to, straight, N - 1 + 3.5);
}

/* Where a line would go far beyond, the modes end. */
static void modes_die_out_as_they_do(void **state)
{
    struct path p;
    float to[ELEMS];
    (void)state;
    make_path(&p, settling);
    dmd(&p, 4, to);
    expect_places(to, settling, N - 1 + 4);
    dmd(&p, 60, to);
    expect_places(to, settling, 1000);
}

/* A step that doubles is taken again, not doubled: no direction grows. */
static void nothing_grows(void **state)
{
    struct path p;
    float to[ELEMS];
    (void)state;
    make_path(&p, growing);
    dmd(&p, 3, to);
    for (int e = 0; e < ELEMS; e++) {
        double last = (double)p.places[N - 1][e], step = last - (double)p.places[N - 2][e];
        assert_true(fabs((double)to[e] - (last + 3 * step)) < 1e-3);
    }
}

static void noise_stays_where_it_is(void **state)
{
    struct path p;
    float to[ELEMS];
    struct rng rng = {.key = 5};
    (void)state;
    make_path(&p, straight);
    for (int i = 0; i < N; i++) {
        for (int e = 0; e < ELEMS; e += 2) /* noise on every second, and nothing else */
            p.places[i][e] = (float)rng_below(&rng, 1000);
    }
    int64_t n = trajectory_follow_lines(p.x, N, 2, 4, ELEMS, to);
    int64_t n_straight = 0;
    for (int e = 1; e < ELEMS; e += 2)
        n_straight += e % 7 != 3;
    assert_in_range(n, n_straight, n_straight + 3);
    assert_true(trajectory_follow_lines(p.x, N, 2, 0, ELEMS, to) > n + 10);
}

/* ---- the paired test ------------------------------------------------------------------------- */

static void differences_are_paired(void **state)
{
    const double before[] = {1, 5, 9, 3}, after[] = {0.9, 4.9, 8.7, 2.9};
    (void)state;
    struct probe_difference d = probe_compare(before, after, 4);
    assert_true(fabs(d.before - 4.5) < 1e-12 && fabs(d.mean + 0.15) < 1e-12);
    assert_true(fabs(d.error - 0.05) < 1e-12); /* not that of the losses, which is 1.7 */
}

/* ---- divergence ------------------------------------------------------------------------------ */

static double noise(struct rng *rng)
{
    return 0.1 * ((double)rng_below(rng, 2000) / 1000.0 - 1.0);
}

static void quiet_runs_are_quiet(void **state)
{
    struct divergence d = {0};
    struct rng rng = {.key = 9};
    int n_level[4] = {0};
    (void)state;
    for (int i = 0; i < 2000; i++)
        n_level[divergence_step(&d, 3, 3 + noise(&rng), 1 + noise(&rng))]++;
    print_message("caution %d, warning %d of 2000\n", n_level[1], n_level[2]);
    assert_true(n_level[DIVERGENCE_NONE] > 1900);
    assert_int_equal(n_level[DIVERGENCE_WARNING] + n_level[DIVERGENCE_CRITICAL], 0);
}

static void only_a_rise_is_trouble(void **state)
{
    struct divergence d = {0};
    struct rng rng = {.key = 9};
    (void)state;
    for (int i = 0; i < 200; i++)
        (void)divergence_step(&d, 3, 3 + noise(&rng), 1);
    struct divergence before = d;
    assert_int_equal(divergence_step(&d, 3, 1, 1), DIVERGENCE_NONE);
    d = before;
    assert_int_equal(divergence_step(&d, 3, 4, 1), DIVERGENCE_CRITICAL);
    d = before;
    assert_int_equal(divergence_step(&d, 3, 3, 20), DIVERGENCE_WARNING);
    d = before;
    assert_int_equal(divergence_step(&d, 3, 3, 200), DIVERGENCE_CRITICAL);
    d = before;
    assert_int_equal(divergence_step(&d, 3, (double)NAN, 1), DIVERGENCE_CRITICAL);
    d = before; /* a loss that a jump has lowered is held against what was expected of it */
    divergence_expect(&d, -1);
    assert_int_equal(divergence_step(&d, 3, 3, 1), DIVERGENCE_CRITICAL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(divergence_step(&before, 3, 3, 30),
                         i < 2 ? DIVERGENCE_WARNING : DIVERGENCE_CRITICAL);
}

/* ---- phases ---------------------------------------------------------------------------------- */

static const struct config settings = {.predictive_phases = CONFIG_PHASES_LINEAR,
                                       .phase_warmup_steps = 2,
                                       .full_steps = 5,
                                       .max_predict_steps = 40,
                                       .correct_steps = 2,
                                       .snapshot_count = 3,
                                       .snapshot_steps = 2,
                                       .divergence_sigma = 3};

static struct phase_action steps(struct phase_state *p, int n)
{
    struct phase_action a = {0};
    for (int i = 0; i < n; i++)
        a = phases_step(p, &settings, 3, 1);
    return a;
}

static void phases_follow_one_another(void **state)
{
    struct phase_state p = phases_begin(&settings);
    (void)state;
    assert_int_equal(p.kind, PHASE_WARMUP);
    (void)steps(&p, 2);
    assert_int_equal(p.kind, PHASE_FULL);
    assert_int_equal(steps(&p, 1).snapshot, 0);
    assert_int_equal(steps(&p, 1).snapshot, -1);
    assert_int_equal(steps(&p, 1).snapshot, 1);
    assert_int_equal(p.slots, 3);
    struct phase_action a = steps(&p, 2);
    assert_true(a.snapshot == 2 && a.n_steps == 19); /* 40 times the square of 0.7 */
    phases_jumped(&p, &settings, 19, 9.5, -0.1);
    assert_true(p.kind == PHASE_CORRECT && p.slots == 4 && p.n_accepted == 1);
    assert_true(p.confidence < 0.7);
    (void)steps(&p, 2);
    assert_true(p.kind == PHASE_FULL && p.slots == 0 && p.n_full == 5);
}

static void rejections_make_jumps_rarer_and_shorter(void **state)
{
    struct phase_state p = phases_begin(&settings);
    const int64_t lengths[] = {10, 20, 40, 40};
    (void)state;
    (void)steps(&p, 2);
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        struct phase_action a = steps(&p, (int)p.n_full);
        assert_true(a.n_steps > 0 && a.snapshot == 2);
        phases_jumped(&p, &settings, a.n_steps, 0, 0.1);
        assert_int_equal(p.n_full, lengths[i]);
    }
    assert_true(steps(&p, (int)p.n_full).n_steps == 10); /* no shorter */
    phases_jumped(&p, &settings, 10, 10, 0);
    (void)steps(&p, 2);
    assert_int_equal(p.n_full, 5);
}

static void what_was_saved_is_read(void **state)
{
    struct phase_state p = phases_begin(&settings), q = p, none = {0};
    (void)state;
    (void)steps(&p, 6);
    json_t *o = phases_json(&p);
    assert_int_equal(phases_read(&q, &settings, o), OK);
    assert_memory_equal(&p.divergence, &q.divergence, sizeof(p.divergence));
    assert_true(p.kind == q.kind && p.n_done == q.n_done && p.slots == q.slots);
    assert_int_equal(phases_read(&none, &settings, o), OK);
    assert_int_equal(none.kind, PHASE_NONE);
    assert_int_equal(json_object_set_new(o, "slots", json_integer(8)), 0);
    assert_int_equal(phases_read(&q, &settings, o), ERR_CHECKPOINT);
    assert_int_equal(json_object_del(o, "done"), 0);
    assert_int_equal(phases_read(&q, &settings, o), ERR_CHECKPOINT);
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_go_on),
        cmocka_unit_test(modes_die_out_as_they_do),
        cmocka_unit_test(nothing_grows),
        cmocka_unit_test(noise_stays_where_it_is),
        cmocka_unit_test(differences_are_paired),
        cmocka_unit_test(quiet_runs_are_quiet),
        cmocka_unit_test(only_a_rise_is_trouble),
        cmocka_unit_test(phases_follow_one_another),
        cmocka_unit_test(rejections_make_jumps_rarer_and_shorter),
        cmocka_unit_test(what_was_saved_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
