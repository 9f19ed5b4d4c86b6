/* When instructions ran: by the clock, and by marks of a device that runs some of them together. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/machine.h"
#include "run/timing.h"
#include "support/golden.h"
#include "support/training.h"

static void open_training(struct training *t, int64_t n_micro)
{
    training_init(t, &(struct training_options){.golden = "llama",
                                                .batch = 2,
                                                .seq_len = 16,
                                                .n_micro = n_micro,
                                                .max_grad_norm = 1.0});
    training_emit(t);
}

/* Nothing overlaps, nothing lies outside the run, and the instructions are most of it. */
static void expect_sound(const struct timing *t, const struct timed_run *r)
{
    double now = 0, sum = 0;
    for (int32_t k = 0; k < r->section->n; k++) {
        assert_true(r->begin[k] >= now - 1e-9);
        assert_true(r->end[k] >= r->begin[k]);
        now = r->end[k];
        sum += r->end[k] - r->begin[k];
    }
    assert_true(now <= r->seconds + 1e-9);
    assert_true(sum > 0.2 * r->seconds || r->section->n < 20);
    assert_true(r->start_s >= 0 && r->start_s + r->seconds <= timing_now(t) + 1e-9);
}

static void the_clock_tells_begin_and_end_of_every_instruction(void **state)
{
    (void)state;
    struct training t;
    struct timing timing;
    open_training(&t, 1);
    training_start(&t);
    expect_ok(timing_init(&timing, t.stage->program, &t.device));
    training_step(&t, 0); /* nobody asks */
    assert_int_equal(timing.runs.n, 0);
    executor_time_into(t.engine.executor, t.stage->handle, &timing);
    training_step(&t, 1);
    training_step(&t, 2);
    executor_time_into(t.engine.executor, t.stage->handle, NULL);
    training_step(&t, 3);
    assert_int_equal(timing.runs.n, 2);
    for (size_t i = 0; i < timing.runs.n; i++)
        expect_sound(&timing, &timing.runs.items[i]);
    timing_clear(&timing);
    assert_int_equal(timing.runs.n, 0);
    timing_release(&timing);
    training_release(&t);
}

static void every_run_of_a_section_is_written_down(void **state)
{
    (void)state;
    static const char *const sections[] = {"begin", "micro", "micro", "last"};
    struct training t;
    struct timing timing;
    open_training(&t, 3);
    training_start(&t);
    expect_ok(timing_init(&timing, t.stage->program, &t.device));
    executor_time_into(t.engine.executor, t.stage->handle, &timing);
    training_step(&t, 0);
    assert_int_equal(timing.runs.n, ARRAY_LEN(sections));
    for (size_t i = 0; i < timing.runs.n; i++) {
        assert_string_equal(timing.runs.items[i].section->name, sections[i]);
        assert_true(i == 0 || timing.runs.items[i].start_s >= timing.runs.items[i - 1].start_s +
                                                                  timing.runs.items[i - 1].seconds -
                                                                  1e-9);
    }
    timing_release(&timing);
    training_release(&t);
}

/* ---- a device with marks --------------------------------------------------------------------- */

enum { MOST_MARKS = 4096 };
static double marks[MOST_MARKS];
static int n_marks, n_batches, n_in_batches;

static enum status prepare_marks(struct device *d, int n)
{
    (void)d;
    assert_true(n <= MOST_MARKS);
    n_marks = MAX(n_marks, n);
    return OK;
}

static enum status mark(struct device *d, enum queue q, int i)
{
    (void)d;
    (void)q;
    assert_in_range(i, 0, n_marks - 1);
    marks[i] = now_s();
    return OK;
}

static enum status mark_seconds(struct device *d, int from, int to, double *seconds)
{
    (void)d;
    assert_true(marks[from] > 0 && marks[to] > 0);
    *seconds = marks[to] - marks[from];
    return OK;
}

/* Updates run one after the other, as one call. */
static const struct kernel *batched;
static enum status run_batch(const struct kernel_ctx *x, const struct op_call *const *calls, int n)
{
    n_batches++;
    n_in_batches += n;
    for (int i = 0; i < n; i++)
        expect_ok(batched->run(x, calls[i]));
    return OK;
}

static kernel_batch *batch(const struct kernel *k)
{
    return k == batched ? run_batch : NULL;
}

static void marks_tell_the_same_and_batches_are_shared_out(void **state)
{
    (void)state;
    struct training t;
    struct timing timing;
    open_training(&t, 1);
    struct device_ops ops = *t.device.ops;
    for (size_t k = 0; k < t.stage->program->instrs.n; k++) {
        const struct instr *i = &t.stage->program->instrs.items[k];
        if (i->kind == INSTR_COMPUTE && graph_node(t.stage->graph, i->node)->op == OP_adamw)
            batched = i->kernel;
    }
    assert_non_null(batched);
    ops.prepare_marks = prepare_marks;
    ops.mark = mark;
    ops.mark_seconds = mark_seconds;
    ops.batch = batch;
    t.device.ops = &ops;
    training_start(&t);
    expect_ok(timing_init(&timing, t.stage->program, &t.device));
    executor_time_into(t.engine.executor, t.stage->handle, &timing);
    training_step(&t, 0);
    assert_true(n_batches >= 1 && n_in_batches > n_batches);
    assert_int_equal(timing.runs.n, 1);
    const struct timed_run *r = &timing.runs.items[0];
    int n_updates = 0;
    double last[QUEUE_COUNT] = {0};
    for (int32_t k = 0; k < r->section->n; k++) { /* a queue is in order; queues are not */
        const struct instr *i = &t.stage->program->instrs.items[r->section->first + k];
        assert_true(r->begin[k] >= last[i->queue] - 1e-9 && r->end[k] >= r->begin[k]);
        last[i->queue] = r->end[k];
        if (i->kind == INSTR_COMPUTE && i->kernel == batched) {
            assert_true(r->end[k] > r->begin[k]); /* its share */
            n_updates++;
        }
        assert_true(r->end[k] <= r->seconds + 1e-9);
    }
    assert_true(n_updates >= n_in_batches);
    timing_release(&timing);
    training_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_clock_tells_begin_and_end_of_every_instruction),
        cmocka_unit_test(every_run_of_a_section_is_written_down),
        cmocka_unit_test(marks_tell_the_same_and_batches_are_shared_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
