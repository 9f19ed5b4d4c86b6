/* Queues side by side: what waits for what, and copies that slow each other and kernels. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "program/predict.h"
#include "program/queues.h"
#include "support/golden.h"

enum { MOST = 16 };

/* Ten bytes a second one way; both ways 8 come in and 5 go out. */
static void *queue(struct device *d, enum queue q)
{
    (void)q;
    return d;
}

static enum status begin_recording(struct device *d)
{
    (void)d;
    return OK;
}

static const struct device_ops recorded = {.queue = queue, .capture_begin = begin_recording};
static const struct device_ops enqueued = {.queue = queue};
static const struct device_ops in_line = {.queue = NULL};

struct scene {
    struct program p;
    struct device device;
    struct section section;
    double alone[MOST], starts[MOST];
};

static void scene_init(struct scene *s, const struct device_ops *ops)
{
    *s = (struct scene){.device = {.ops = ops}, .p = {.n_events = MOST}};
    struct device_rates *r = &s->device.rates;
    r->launch_s = 0.25;
    r->links[TIER_HOST][TIER_DEVICE] = (struct link_rate){.alone = 10, .both = 8};
    r->links[TIER_DEVICE][TIER_HOST] = (struct link_rate){.alone = 10, .both = 5};
}

static void add(struct scene *s, enum instr_kind kind, enum queue q, double seconds, int event)
{
    bool in = q == QUEUE_IN;
    struct instr i = {.kind = kind, .queue = q, .event = event, .node = NODE_NONE};
    i.first_operand = (int32_t)s->p.operands.n;
    expect_ok(vec_push(&s->p.operands, (struct operand){.tier = in ? TIER_HOST : TIER_DEVICE}));
    expect_ok(vec_push(&s->p.operands, (struct operand){.tier = in ? TIER_DEVICE : TIER_HOST}));
    s->alone[s->p.instrs.n] = seconds;
    expect_ok(vec_push(&s->p.instrs, i));
}

static void add_copy(struct scene *s, enum queue q, double seconds)
{
    add(s, INSTR_COPY, q, seconds, 0);
}

static void expect_end(struct scene *s, double want)
{
    double seconds;
    s->section = (struct section){.n = (int32_t)s->p.instrs.n};
    expect_ok(queues_run(&s->p, &s->device, &s->section, s->alone, s->starts, &seconds));
    if (fabs(seconds - want) > 1e-9)
        fail_msg("it ends after %g s, not %g", seconds, want);
    vec_release(&s->p.instrs);
    vec_release(&s->p.operands);
}

static void expect_start(const struct scene *s, int k, double want)
{
    if (fabs(s->starts[k] - want) > 1e-9)
        fail_msg("instruction %d begins at %g s, not %g", k, s->starts[k], want);
}

static void a_copy_alone_runs_at_the_rate_of_one_way(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &recorded);
    add_copy(&s, QUEUE_IN, 1);
    add_copy(&s, QUEUE_IN, 2);
    add(&s, INSTR_COMPUTE, QUEUE_COMPUTE, 2.5, 0);
    expect_end(&s, 3);
    expect_start(&s, 1, 1);
    expect_start(&s, 2, 0);
}

/* In: 0.8 of its speed until it is done at 1.25 s; out has 0.375 s left then, at full speed. */
static void copies_both_ways_slow_each_other_while_both_run(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &recorded);
    add_copy(&s, QUEUE_IN, 1);
    add_copy(&s, QUEUE_OUT, 1);
    expect_end(&s, 1.625);
    scene_init(&s, &recorded);
    add_copy(&s, QUEUE_OUT, 1); /* done at 2 s, when 1.6 s of what comes in is */
    add_copy(&s, QUEUE_IN, 4);
    expect_end(&s, 4.4);
}

/* What comes later because a copy was slowed is slowed too, or is not any more. */
static void what_is_slowed_moves_what_waits_for_it(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &recorded);
    add_copy(&s, QUEUE_OUT, 1);
    add_copy(&s, QUEUE_IN, 0.8); /* 0: done at 1 s */
    add(&s, INSTR_RECORD, QUEUE_IN, 0, 3);
    add(&s, INSTR_WAIT, QUEUE_COMPUTE, 0, 3);
    add(&s, INSTR_COMPUTE, QUEUE_COMPUTE, 1, 0); /* from 1 to 2 s */
    add(&s, INSTR_RECORD, QUEUE_COMPUTE, 0, 4);
    add(&s, INSTR_WAIT, QUEUE_IN, 0, 4);
    add_copy(&s, QUEUE_IN, 1); /* nothing goes out any more: until 3 s */
    expect_end(&s, 3);
    expect_start(&s, 4, 1);
    expect_start(&s, 7, 2);
}

/* Of a memory of 200 bytes a second one copy takes a tenth, two take what they still get. */
static void copies_slow_kernels_while_they_run(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &recorded);
    s.device.rates.memory_bytes = 200;
    add_copy(&s, QUEUE_IN, 1);
    add(&s, INSTR_COMPUTE, QUEUE_COMPUTE, 2, 0);
    expect_end(&s, 2.1);
    scene_init(&s, &recorded);
    s.device.rates.memory_bytes = 200;
    add_copy(&s, QUEUE_IN, 0.8);
    add_copy(&s, QUEUE_OUT, 0.5); /* both until 1 s, at 8 and 5 bytes a second */
    add(&s, INSTR_COMPUTE, QUEUE_COMPUTE, 2, 0);
    expect_end(&s, 2.13);
    scene_init(&s, &recorded);
    s.device.rates.memory_bytes = 10; /* no more than what a link takes: kernels go on */
    add_copy(&s, QUEUE_IN, 1);
    add(&s, INSTR_COMPUTE, QUEUE_COMPUTE, 0.25, 0);
    expect_end(&s, 1);
    expect_start(&s, 1, 0);
}

/* Compute stops for a moment at each wait, whether or not there is anything to wait for; copies do
 * not. */
static void a_wait_of_compute_takes_its_time(void **state)
{
    (void)state;
    struct scene s;
    struct prediction p;
    double seconds;
    scene_init(&s, &recorded);
    s.device.rates.wait_s = 0.125;
    add(&s, INSTR_RECORD, QUEUE_COMPUTE, 0, 4);
    add(&s, INSTR_WAIT, QUEUE_IN, 0, 4);
    add(&s, INSTR_RECORD, QUEUE_IN, 0, 3);
    add(&s, INSTR_WAIT, QUEUE_COMPUTE, 0, 3);
    add(&s, INSTR_WAIT, QUEUE_COMPUTE, 0, 3);
    s.section = (struct section){.n = (int32_t)s.p.instrs.n};
    expect_ok(predict(&p, &s.p, &s.device, NULL));
    expect_ok(predict_section(&p, &s.p, &s.device, &s.section, NULL, &seconds));
    assert_float_equal(seconds, 0.25, 1e-9);
    prediction_release(&p);
    vec_release(&s.p.instrs);
    vec_release(&s.p.operands);
}

/* Event 3 is recorded twice: a wait is for the record before it. */
static void a_wait_is_for_the_record_before_it(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &recorded);
    add(&s, INSTR_WAIT, QUEUE_OUT, 0, 3); /* of nothing in this section */
    add_copy(&s, QUEUE_IN, 1);
    add(&s, INSTR_RECORD, QUEUE_IN, 0, 3);
    add(&s, INSTR_WAIT, QUEUE_COMPUTE, 0, 3);
    add(&s, INSTR_COMPUTE, QUEUE_COMPUTE, 0.5, 0);
    add_copy(&s, QUEUE_IN, 1);
    add(&s, INSTR_RECORD, QUEUE_IN, 0, 3);
    add(&s, INSTR_WAIT, QUEUE_COMPUTE, 0, 3);
    add(&s, INSTR_COMPUTE, QUEUE_COMPUTE, 0.5, 0);
    expect_end(&s, 2.5);
    expect_start(&s, 0, 0);
    expect_start(&s, 4, 1);
    expect_start(&s, 8, 2);
}

static void what_is_not_recorded_waits_for_the_host(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &enqueued);
    add_copy(&s, QUEUE_IN, 1);  /* enqueued at 0.25 s */
    add_copy(&s, QUEUE_OUT, 1); /* at 0.5 s, when 0.75 s of the other are left: done at 1.4375 s */
    expect_end(&s, 0.5 + 0.75 / 0.8 + (1 - 0.5 * 0.75 / 0.8));
    expect_start(&s, 0, 0.25);
    expect_start(&s, 1, 0.5);
}

static void without_queues_all_is_one_line(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, &in_line);
    add_copy(&s, QUEUE_IN, 1);
    add(&s, INSTR_COMPUTE, QUEUE_COMPUTE, 2, 0);
    add_copy(&s, QUEUE_OUT, 1);
    expect_end(&s, 4);
    expect_start(&s, 2, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_alone_runs_at_the_rate_of_one_way),
        cmocka_unit_test(copies_both_ways_slow_each_other_while_both_run),
        cmocka_unit_test(what_is_slowed_moves_what_waits_for_it),
        cmocka_unit_test(copies_slow_kernels_while_they_run),
        cmocka_unit_test(a_wait_of_compute_takes_its_time),
        cmocka_unit_test(a_wait_is_for_the_record_before_it),
        cmocka_unit_test(what_is_not_recorded_waits_for_the_host),
        cmocka_unit_test(without_queues_all_is_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
