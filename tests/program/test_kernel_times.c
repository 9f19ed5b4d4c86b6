/* Times of kernels measured by a device whose figures are made up: what is asked, on what memory,
 * what is kept, and that the forecast is made of it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "program/predict.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "support/training.h"

/* ---- the device ------------------------------------------------------------------------------ */

struct fake {
    struct device device;
    struct device_ops ops;
    int n_timed, n_filled, n_alive;
    int64_t most_bytes;    /* what the device has to give; asked for more, it refuses */
    int64_t largest_bytes; /* asked for and given */
    char *scratch;
    int64_t n_scratch;
    const char *broken; /* an op whose calls cannot be timed; NULL: none */
    bool disturbed;
    double slowness; /* what is measured over the figure */
};
static struct fake fake;

/* The figure of a call: depends on op and size alone. */
static double figure(const struct op_call *c)
{
    return 1e-6 * (double)(1 + (int)c->op) + 1e-9 * (double)shape_elems(&c->out[0].shape);
}

static enum status refuse_or_alloc(struct device *d, enum tier t, int64_t n_bytes, void **out)
{
    (void)d;
    *out = NULL;
    assert_int_equal(t, TIER_DEVICE);
    if (n_bytes > fake.most_bytes)
        return FAIL(ERR_FIT, "too much");
    fake.largest_bytes = MAX(fake.largest_bytes, n_bytes);
    fake.n_alive++;
    fake.n_scratch = n_bytes;
    *out = fake.scratch = aligned_alloc(ARENA_ALIGN, (size_t)n_bytes);
    return OK;
}

static void give_back(struct device *d, enum tier t, void *p, int64_t n_bytes)
{
    (void)d;
    assert_int_equal(t, TIER_DEVICE);
    assert_int_equal(n_bytes, fake.n_scratch);
    fake.n_alive--;
    free(p);
}

static void expect_inside(const struct tensor *t)
{
    const char *p = t->data;
    assert_true(p >= fake.scratch && p + tensor_bytes(t) <= fake.scratch + fake.n_scratch);
    assert_int_equal((uintptr_t)p % ARENA_ALIGN, 0);
}

/* Every byte of an operand can be touched. */
static enum status fill(struct device *d, const struct tensor *t, struct index_rule rule)
{
    (void)d;
    expect_inside(t);
    assert_true(rule.limit >= 1);
    memset(t->data, dtype_is_float(t->dtype) ? 0x3c : 0, (size_t)tensor_bytes(t));
    fake.n_filled++;
    return OK;
}

static bool overlaps(const struct tensor *a, const struct tensor *b)
{
    const char *p = a->data, *q = b->data;
    return p < q + tensor_bytes(b) && q < p + tensor_bytes(a);
}

/* Outputs share memory with nothing but inputs they may overwrite, and then all of it. */
static void expect_sound(const struct op_call *c)
{
    for (int o = 0; o < c->n_out; o++) {
        if (!c->out[o].data)
            continue;
        expect_inside(&c->out[o]);
        for (int i = 0; i < c->n_in; i++) {
            if (call_has(c, i) && overlaps(&c->out[o], &c->in[i]))
                assert_ptr_equal(c->out[o].data, c->in[i].data);
        }
    }
    for (const struct alias_rule *r = op_get(c->op)->aliases; r && r->kind != ALIAS_NONE; r++) {
        if (r->kind == ALIAS_UPDATE && call_has(c, r->in) && c->out[r->out].data)
            assert_ptr_equal(c->out[r->out].data, c->in[r->in].data);
    }
}

static enum status time_calls(struct device *d, const struct timed_calls *t, struct call_time *out)
{
    (void)d;
    if (fake.broken && strcmp(op_get(t->calls[0].op)->name, fake.broken) == 0)
        return FAIL(ERR_FAILED, "the kernel does not run");
    assert_true(t->n >= 1);
    for (int i = 0; i < t->n; i++) {
        expect_sound(&t->calls[i]);
        for (int k = 0; k < i; k++) /* copies do not meet */
            assert_false(overlaps(&t->calls[i].out[0], &t->calls[k].out[0]));
    }
    /* The memory is what the kernel needs: it can be run there. */
    for (int i = 0; i < MIN(t->n, 2); i++)
        expect_ok(t->kernel->run(&t->contexts[i], &t->calls[i]));
    fake.n_timed++;
    *out = (struct call_time){fake.slowness * figure(&t->calls[0]), fake.disturbed};
    return OK;
}

static void open_fake(struct training *t)
{
    fake = (struct fake){
        .device = t->device, .ops = *t->device.ops, .most_bytes = INT64_MAX, .slowness = 1};
    fake.ops.memory_alloc = refuse_or_alloc;
    fake.ops.memory_free = give_back;
    fake.ops.fill = fill;
    fake.ops.time_calls = time_calls;
    fake.device.ops = &fake.ops;
    fake.device.cache_bytes = 1 << 16;
    (void)snprintf(fake.device.identity, sizeof(fake.device.identity), "a device of the test");
}

/* In memory that the program will have anyway. */
static enum status measure(struct kernel_times *times, const struct program *p)
{
    return kernel_times_measure(times, p, p->n_bytes[TIER_DEVICE]);
}

static void open_training(struct training *t)
{
    training_init(t, &(struct training_options){
                         .golden = "llama", .batch = 2, .seq_len = 16, .max_grad_norm = 1.0});
    training_emit(t);
    open_fake(t);
}

/* ---- sums ------------------------------------------------------------------------------------ */

static double figure_of(const struct program *p, int32_t at)
{
    const struct node *n = graph_node(p->graph, p->instrs.items[at].node);
    struct tensor in[16], out[MAX_OUTPUTS];
    struct op_call c;
    assert_true(n->n_in <= 16 && n->n_out <= 8);
    node_call(p->graph, n, in, out, &c);
    return figure(&c);
}

static bool is_compute(const struct program *p, int32_t at)
{
    return p->instrs.items[at].kind == INSTR_COMPUTE;
}

static int32_t first_compute(const struct program *p)
{
    int32_t at = 0;
    while (!is_compute(p, at))
        at++;
    return at;
}

static double rate_of(const struct program *p, int32_t at)
{
    struct program_cost cost;
    program_cost(p, at, 1, &fake.device, &cost);
    return cost.time_s;
}

/* Calls of the broken op, copies, and everything when nothing was timed go by rate. */
static double expected_step(const struct program *p, bool timed)
{
    double sum = 0;
    for (int32_t at = 0; (size_t)at < p->instrs.n; at++) {
        bool call = is_compute(p, at);
        const char *op =
            call ? op_get(graph_node(p->graph, p->instrs.items[at].node)->op)->name : "";
        bool broken = fake.broken && strcmp(op, fake.broken) == 0;
        sum += call && timed && !broken ? figure_of(p, at) : rate_of(p, at);
    }
    return sum;
}

static double predicted_step(const struct program *p, const struct kernel_times *times,
                             struct prediction *prediction)
{
    double seconds;
    expect_ok(predict(prediction, p, &fake.device, times));
    expect_ok(predict_step(prediction, p, &fake.device, 1, &seconds));
    return seconds;
}

static void the_forecast_is_the_sum_of_the_figures(void **state)
{
    (void)state;
    struct training t;
    struct kernel_times *times;
    struct prediction x;
    open_training(&t);
    expect_ok(kernel_times_open(&times, &fake.device, NULL));
    expect_ok(measure(times, t.stage->program));
    double seconds = predicted_step(t.stage->program, times, &x);
    assert_true(fake.n_timed > 10 && fake.n_filled > fake.n_timed);
    assert_int_equal(fake.n_alive, 0);
    assert_true(fake.largest_bytes <= t.stage->program->n_bytes[TIER_DEVICE]);
    assert_int_equal(x.n_calls, fake.n_timed);
    assert_int_equal(x.n_by_rate, 0);
    double expected = expected_step(t.stage->program, true);
    assert_true(fabs(seconds - expected) < 1e-6 * expected);
    prediction_release(&x);
    kernel_times_free(times);
    training_release(&t);
}

static void every_call_is_timed_once(void **state)
{
    (void)state;
    struct training t;
    struct kernel_times *times;
    struct prediction x;
    open_training(&t);
    expect_ok(kernel_times_open(&times, &fake.device, NULL));
    expect_ok(measure(times, t.stage->program));
    int n = fake.n_timed;
    int32_t n_compute = 0;
    for (int32_t at = 0; (size_t)at < t.stage->program->instrs.n; at++)
        n_compute += is_compute(t.stage->program, at);
    assert_true(n < n_compute / 2); /* layers are alike */
    expect_ok(measure(times, t.stage->program));
    assert_int_equal(fake.n_timed, n);
    assert_int_equal(kernel_times_n_measured(times), n);
    (void)predicted_step(t.stage->program, times, &x);
    assert_int_equal(x.n_calls, n);
    prediction_release(&x);
    kernel_times_free(times);
    training_release(&t);
}

static void times_are_kept_for_one_device_and_build(void **state)
{
    (void)state;
    struct training t;
    struct kernel_times *times;
    struct scratch s;
    open_training(&t);
    scratch_init(&s);
    expect_ok(kernel_times_open(&times, &fake.device, s.folder));
    expect_ok(measure(times, t.stage->program));
    kernel_times_free(times);
    int n = fake.n_timed;

    expect_ok(kernel_times_open(&times, &fake.device, s.folder)); /* another process */
    expect_ok(measure(times, t.stage->program));
    assert_int_equal(fake.n_timed, n);
    int32_t at = first_compute(t.stage->program);
    assert_true(fabs(kernel_times_find(times, t.stage->program, at) -
                     figure_of(t.stage->program, at)) < 1e-12);
    kernel_times_free(times);

    (void)snprintf(fake.device.identity, sizeof(fake.device.identity), "another driver");
    expect_ok(kernel_times_open(&times, &fake.device, s.folder));
    expect_ok(measure(times, t.stage->program));
    assert_int_equal(fake.n_timed, 2 * n);
    kernel_times_free(times);
    scratch_release(&s);
    training_release(&t);
}

static void values_that_are_no_times_are_measured_again(void **state)
{
    (void)state;
    struct training t;
    struct kernel_times *times;
    struct scratch s;
    char path[SCRATCH_PATH], *text;
    size_t n_bytes;
    open_training(&t);
    scratch_init(&s);
    expect_ok(kernel_times_open(&times, &fake.device, s.folder));
    expect_ok(measure(times, t.stage->program));
    kernel_times_free(times);
    int n = fake.n_timed;
    expect_ok(file_read(scratch_path(&s, "kernel-times", path), &text, &n_bytes));
    char *e = strstr(text, "e-12 "); /* the end of the first time */
    assert_non_null(e);
    memcpy(e, "e+99", 4);
    expect_ok(file_write_atomic(path, text, n_bytes));
    mem_free(text);
    expect_ok(kernel_times_open(&times, &fake.device, s.folder));
    expect_ok(measure(times, t.stage->program));
    assert_int_equal(fake.n_timed, n + 1);
    kernel_times_free(times);
    scratch_release(&s);
    training_release(&t);
}

static int n_lines(const struct scratch *s)
{
    char path[SCRATCH_PATH], *text;
    size_t n_bytes;
    int n = 0;
    expect_ok(file_read(scratch_path(s, "kernel-times", path), &text, &n_bytes));
    for (size_t i = 0; i < n_bytes; i++)
        n += text[i] == '\n';
    mem_free(text);
    return n - 1; /* the first names the format */
}

/* Every build has times of its own: those of builds that are long gone make room. */
static void the_file_does_not_grow_without_end(void **state)
{
    (void)state;
    struct training t;
    struct kernel_times *times;
    struct scratch s;
    struct str text = {0};
    open_training(&t);
    scratch_init(&s);
    str_add(&text, "snug-cache 1\n");
    for (int i = 0; i < 9000; i++)
        str_addf(&text, "%016d add/gone f32[8]\t23562e-12%s\n", i, i % 2 ? " 1700000000" : "");
    scratch_write_text(&s, "kernel-times", str_text(&text));
    str_release(&text);
    expect_ok(kernel_times_open(&times, &fake.device, s.folder));
    expect_ok(measure(times, t.stage->program));
    kernel_times_free(times);
    int n = fake.n_timed, left = n_lines(&s);
    assert_true(left <= 8192 && left > 4096);
    expect_ok(kernel_times_open(&times, &fake.device, s.folder));
    expect_ok(measure(times, t.stage->program));
    assert_int_equal(fake.n_timed, n); /* what was just measured is what stays */
    assert_int_equal(n_lines(&s), left);
    kernel_times_free(times);
    scratch_release(&s);
    training_release(&t);
}

/* Opens the table as a process of its own would, measures, and gives the time of one call. */
static double measured_by_a_process(const struct scratch *s, const struct program *p)
{
    struct kernel_times *times;
    expect_ok(kernel_times_open(&times, &fake.device, s->folder));
    expect_ok(measure(times, p));
    expect_ok(measure(times, p)); /* once a process is enough */
    double seconds = kernel_times_find(times, p, first_compute(p));
    kernel_times_free(times);
    return seconds;
}

static void expect_near(double seconds, double expected)
{
    assert_true(fabs(seconds - expected) < 1e-3 * expected);
}

static void a_disturbed_time_is_used_and_measured_again_by_the_next_process(void **state)
{
    (void)state;
    struct training t;
    struct scratch s;
    open_training(&t);
    scratch_init(&s);
    double figure = figure_of(t.stage->program, first_compute(t.stage->program));
    fake.disturbed = true;
    fake.slowness = 40;
    expect_near(measured_by_a_process(&s, t.stage->program), 40 * figure);
    int n = fake.n_timed;
    fake.slowness = 70; /* of two disturbed times the shorter one */
    expect_near(measured_by_a_process(&s, t.stage->program), 40 * figure);
    assert_int_equal(fake.n_timed, 2 * n);
    fake.disturbed = false;
    fake.slowness = 1;
    expect_near(measured_by_a_process(&s, t.stage->program), figure);
    assert_int_equal(fake.n_timed, 3 * n);
    expect_near(measured_by_a_process(&s, t.stage->program), figure); /* and now it is known */
    assert_int_equal(fake.n_timed, 3 * n);
    scratch_release(&s);
    training_release(&t);
}

static void calls_beyond_the_limits_are_not_run(void **state)
{
    static const struct timing_limits limits[] = {{.call_s = 1e-12}, {.n_bytes = ARENA_ALIGN}};
    (void)state;
    struct training t;
    struct kernel_times *times;
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        open_training(&t);
        fake.device.limits = limits[i];
        expect_ok(kernel_times_open(&times, &fake.device, NULL));
        expect_ok(measure(times, t.stage->program));
        assert_int_equal(fake.n_timed, 0);
        assert_true(fake.largest_bytes <= ARENA_ALIGN);
        assert_true(kernel_times_find(times, t.stage->program, first_compute(t.stage->program)) <
                    0);
        kernel_times_free(times);
        training_release(&t);
    }
}

static void what_does_not_fit_into_the_time_is_left_to_the_next_process(void **state)
{
    (void)state;
    struct training t;
    struct scratch s;
    open_training(&t);
    scratch_init(&s);
    fake.device.limits.total_s = 1e-12;
    (void)measured_by_a_process(&s, t.stage->program);
    assert_int_equal(fake.n_timed, 1);
    (void)measured_by_a_process(&s, t.stage->program);
    assert_int_equal(fake.n_timed, 2);
    scratch_release(&s);
    training_release(&t);
}

static void a_call_that_cannot_be_timed_goes_by_rate(void **state)
{
    (void)state;
    struct training t;
    struct kernel_times *times;
    struct prediction x;
    open_training(&t);
    fake.broken = "rms_norm";
    expect_ok(kernel_times_open(&times, &fake.device, NULL));
    expect_ok(measure(times, t.stage->program));
    double seconds = predicted_step(t.stage->program, times, &x);
    double expected = expected_step(t.stage->program, true);
    assert_true(x.n_by_rate >= 1 && x.n_by_rate < x.n_calls);
    assert_true(fabs(seconds - expected) < 1e-6 * expected);
    prediction_release(&x);
    kernel_times_free(times);
    training_release(&t);
}

static void a_full_device_leaves_all_to_the_rates(void **state)
{
    (void)state;
    struct training t;
    struct kernel_times *times;
    struct prediction x;
    open_training(&t);
    fake.most_bytes = 0;
    expect_ok(kernel_times_open(&times, &fake.device, NULL));
    expect_ok(measure(times, t.stage->program));
    double seconds = predicted_step(t.stage->program, times, &x);
    double expected = expected_step(t.stage->program, false);
    assert_int_equal(fake.n_timed, 0);
    assert_int_equal(x.n_by_rate, x.n_calls);
    assert_true(fabs(seconds - expected) < 1e-6 * expected);
    prediction_release(&x);
    kernel_times_free(times);
    training_release(&t);
}

/* Running out of heap anywhere is an error and leaves nothing behind. */
static void running_out_of_memory_is_told(void **state)
{
    (void)state;
    struct training t;
    open_training(&t);
    int64_t live = mem_live();
    bool failed = true;
    for (int64_t n = 1; failed && n < 4000; n += 1 + n / 8) {
        struct kernel_times *times = NULL;
        struct prediction x = {0};
        mem_fail_after(n, 0);
        enum status status = kernel_times_open(&times, &fake.device, NULL);
        if (status == OK)
            status = measure(times, t.stage->program);
        if (status == OK)
            status = predict(&x, t.stage->program, &fake.device, times);
        mem_fail_after(0, 0);
        failed = status != OK;
        assert_true(status == OK || status == ERR_MEMORY);
        prediction_release(&x);
        kernel_times_free(times);
        assert_int_equal(mem_live(), live);
        assert_int_equal(fake.n_alive, 0);
    }
    training_release(&t);
}

/* ---- queues ---------------------------------------------------------------------------------- */

static void *a_queue(struct device *d, enum queue q)
{
    (void)d;
    (void)q;
    return NULL;
}

/* With everything moved to the host and back, copies out run beside the computing queue where there
 * are queues (copies in are waited for), and between its instructions where there are none. */
static void queues_run_beside_each_other(void **state)
{
    (void)state;
    struct training t;
    struct prediction x;
    double one_by_one, beside, compute = 0, copies = 0;
    training_init(&t, &(struct training_options){.golden = "llama", .batch = 2, .seq_len = 16});
    for (int b = 0; b < t.stage->io.n_blocks; b++)
        plan_move_block(&t.stage->plan, t.stage->graph, b, TIER_HOST);
    t.stage->plan.behind_bytes = INT64_MAX / 4;
    training_emit(&t);
    open_fake(&t);
    expect_ok(predict(&x, t.stage->program, &fake.device, NULL));
    for (int32_t at = 0; (size_t)at < t.stage->program->instrs.n; at++) {
        enum instr_kind kind = t.stage->program->instrs.items[at].kind;
        x.seconds[at] = kind == INSTR_COMPUTE ? 1.0 : kind == INSTR_COPY ? 0.5 : 0.0;
        *(is_compute(t.stage->program, at) ? &compute : &copies) += x.seconds[at];
    }
    expect_ok(predict_step(&x, t.stage->program, &fake.device, 1, &one_by_one));
    fake.ops.queue = a_queue;
    fake.device.rates.memory_bytes = 0; /* so that copies take none of it from kernels */
    expect_ok(predict_step(&x, t.stage->program, &fake.device, 1, &beside));
    assert_true(fabs(one_by_one - compute - copies) < 1e-9 * one_by_one);
    assert_true(beside < compute + 0.75 * copies);
    assert_true(beside >= compute);
    prediction_release(&x);
    training_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_forecast_is_the_sum_of_the_figures),
        cmocka_unit_test(every_call_is_timed_once),
        cmocka_unit_test(times_are_kept_for_one_device_and_build),
        cmocka_unit_test(the_file_does_not_grow_without_end),
        cmocka_unit_test(values_that_are_no_times_are_measured_again),
        cmocka_unit_test(a_disturbed_time_is_used_and_measured_again_by_the_next_process),
        cmocka_unit_test(calls_beyond_the_limits_are_not_run),
        cmocka_unit_test(what_does_not_fit_into_the_time_is_left_to_the_next_process),
        cmocka_unit_test(a_call_that_cannot_be_timed_goes_by_rate),
        cmocka_unit_test(a_full_device_leaves_all_to_the_rates),
        cmocka_unit_test(running_out_of_memory_is_told),
        cmocka_unit_test(queues_run_beside_each_other),
    };
    log_set_level(LOG_QUIET);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
