/* Profiles of the demo's training steps: the trace that comes out, and what is refused. */
#include <locale.h>
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
#include "base/json.h"
#include "base/log.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "support/train_session.h"
#include "train/trace.h"
#include "train/trainer.h"

/* ---- a run ----------------------------------------------------------------------------------- */

struct run {
    struct scratch scratch;
    struct config *config;
    struct session session;
    struct train_result result;
    char path[SCRATCH_PATH]; /* of the trace */
};

/* The demo's model on made-up tokens, a smaller batch of them. */
static void open_run(struct run *r, const char *accumulation, const char *max_steps)
{
    char folder[SCRATCH_PATH];
    *r = (struct run){0};
    scratch_init(&r->scratch);
    (void)snprintf(folder, sizeof(folder), "output_dir=%s/out", r->scratch.folder);
    const char *overrides[] = {"datasets=[{type: synthetic, n_tokens: 20000}]",
                               "val_set_size=0",
                               "eval_strategy=no",
                               "save_strategy=no",
                               "per_device_train_batch_size=2",
                               "max_seq_length=32",
                               "num_threads=2",
                               "device=cpu",
                               accumulation,
                               max_steps,
                               folder};
    expect_ok(config_load(&r->config, SNUG_SOURCE_DIR "/configs/demo.yaml", overrides,
                          ARRAY_LEN(overrides)));
    expect_ok(config_resolve(r->config, 1));
    expect_ok(session_open(&r->session, r->config, &(struct session_options){.train = true}));
    expect_ok(session_data(&r->session));
    expect_ok(session_start(&r->session));
    (void)scratch_path(&r->scratch, "trace.json", r->path);
}

static enum status train(struct run *r, int64_t n_steps)
{
    struct profile_options profile = {.path = r->path, .n_steps = n_steps};
    struct train_options o = {.profile = &profile};
    return train_session(&r->session, &o, &r->result);
}

static void close_run(struct run *r)
{
    train_result_release(&r->result);
    session_close(&r->session);
    config_free(r->config);
    scratch_release(&r->scratch);
}

/* ---- reading a trace ------------------------------------------------------------------------- */

enum { MEASURED = 1, PREDICTED = 2 };

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    assert_non_null(text);
    return text;
}

static double number_of(const json_t *event, const char *key)
{
    const json_t *x = json_object_get(event, key);
    assert_true(json_is_number(x));
    return json_number_value(x);
}

static bool is_kind(const json_t *event, const char *kind)
{
    return strcmp(text_of(event, "ph"), kind) == 0;
}

static json_t *read_trace(const struct run *r)
{
    json_t *trace;
    expect_ok(json_read_file(&trace, r->path, ERR_DATA));
    assert_true(json_is_array(json_object_get(trace, "traceEvents")));
    return trace;
}

struct span {
    double begin, end;
};

static int by_begin(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* The spans of a row, in order; *n of them. */
static struct span *spans_of(const json_t *trace, int process, int thread, size_t *n)
{
    const json_t *events = json_object_get(trace, "traceEvents"), *e;
    struct span *spans = calloc(json_array_size(events) + 1, sizeof(*spans));
    size_t i;
    *n = 0;
    json_array_foreach(events, i, e)
    {
        if (!is_kind(e, "X") || (int)number_of(e, "pid") != process ||
            (int)number_of(e, "tid") != thread)
            continue;
        double begin = number_of(e, "ts");
        assert_true(number_of(e, "dur") >= 0);
        spans[(*n)++] = (struct span){begin, begin + number_of(e, "dur")};
    }
    qsort(spans, *n, sizeof(*spans), by_begin);
    return spans;
}

static void expect_no_overlap(const json_t *trace)
{
    for (int process = MEASURED; process <= PREDICTED; process++) {
        for (int thread = 1; thread <= QUEUE_COUNT; thread++) {
            size_t n;
            struct span *s = spans_of(trace, process, thread, &n);
            for (size_t i = 1; i < n; i++)
                assert_true(s[i].begin >= s[i - 1].end - 1e-3); /* microseconds: sums of doubles */
            assert_true(n > 0 || thread > 3);
            free(s);
        }
    }
}

/* Milliseconds of all events of a process. */
static double sum_ms(const json_t *trace, int process)
{
    double sum = 0;
    for (int thread = 1; thread <= QUEUE_COUNT; thread++) {
        size_t n;
        struct span *s = spans_of(trace, process, thread, &n);
        for (size_t i = 0; i < n; i++)
            sum += (s[i].end - s[i].begin) / 1e3;
        free(s);
    }
    return sum;
}

static void expect_times(const json_t *trace, const struct run *r)
{
    const json_t *other = json_object_get(trace, "otherData");
    double n_steps = number_of(other, "steps");
    double measured = sum_ms(trace, MEASURED) / n_steps, step = number_of(other, "step_ms");
    assert_true(measured <= step * 1.0001);
    assert_true(measured > 0.5 * step);
    double predicted = sum_ms(trace, PREDICTED) / n_steps;
    assert_true(fabs(predicted / (1e3 * r->session.engine.forecast.step_s) - 1) < 1e-3);
    assert_true(number_of(other, "step_ms_unwatched") > 0);
    assert_string_equal(text_of(other, "predicted_from"), "measured kernels");
}

/* Every compute instruction of a step once per run of its section, with its arguments. */
static void expect_instructions(const json_t *trace, const struct run *r, int process,
                                int64_t n_steps)
{
    const struct program *p = r->session.train->program;
    const json_t *events = json_object_get(trace, "traceEvents"), *e;
    int64_t n_micro = r->config->gradient_accumulation_steps, n_found = 0, n_wanted = 0;
    size_t i;
    for (size_t k = 0; k < p->sections.n; k++) {
        const struct section *s = &p->sections.items[k];
        int64_t times = n_steps * section_runs(p, s, n_micro);
        for (int32_t at = s->first; at < s->first + s->n; at++)
            n_wanted += p->instrs.items[at].kind == INSTR_COMPUTE ? times : 0;
    }
    json_array_foreach(events, i, e)
    {
        const json_t *args = json_object_get(e, "args");
        if (!is_kind(e, "X") || (int)number_of(e, "pid") != process ||
            !json_object_get(args, "kernel"))
            continue;
        const struct instr *x = &p->instrs.items[(size_t)number_of(args, "instruction")];
        const char *op = op_get(graph_node(p->graph, x->node)->op)->name;
        assert_true(strncmp(text_of(e, "name"), op, strlen(op)) == 0);
        assert_string_equal(text_of(args, "kernel"), x->kernel->name);
        assert_true(number_of(args, "predicted_us") > 0 && number_of(args, "measured_us") >= 0);
        assert_true(number_of(args, "bytes") > 0 && number_of(args, "flops") >= 0);
        assert_true(strchr(text_of(args, "out"), '[') != NULL);
        n_found++;
    }
    assert_int_equal(n_found, n_wanted);
}

static void expect_bytes(const json_t *trace, const struct run *r)
{
    const json_t *events = json_object_get(trace, "traceEvents"), *e, *x;
    int64_t most = 0;
    size_t i;
    const char *name;
    json_array_foreach(events, i, e)
    {
        int64_t sum = 0;
        if (!is_kind(e, "C") || strcmp(text_of(e, "name"), "device memory") != 0)
            continue;
        json_object_foreach(json_object_get(e, "args"), name, x) sum += json_integer_value(x);
        most = MAX(most, sum);
    }
    const struct forecast *f = &r->session.engine.forecast;
    assert_int_equal(most, f->arena_bytes - f->fragmentation);
}

static int count_instants(const json_t *trace, const char *begins)
{
    const json_t *events = json_object_get(trace, "traceEvents"), *e;
    size_t i;
    int n = 0;
    json_array_foreach(events, i, e)
    {
        n += is_kind(e, "i") && strncmp(text_of(e, "name"), begins, strlen(begins)) == 0;
    }
    return n;
}

static void check_trace(const struct run *r, int64_t n_steps)
{
    json_t *trace = read_trace(r);
    expect_no_overlap(trace);
    expect_times(trace, r);
    expect_instructions(trace, r, MEASURED, n_steps);
    expect_instructions(trace, r, PREDICTED, n_steps);
    expect_bytes(trace, r);
    assert_int_equal(count_instants(trace, "step "), 2 * n_steps);
    assert_int_equal(count_instants(trace, "end of step "), n_steps);
    json_decref(trace);
}

static bool has_instant(const json_t *trace, const char *name)
{
    const json_t *event;
    size_t i;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        if (is_kind(event, "i") && strcmp(text_of(event, "name"), name) == 0)
            return true;
    }
    return false;
}

/* Steps of the run [first, last] are the ones that were timed. */
static void expect_steps(const struct run *r, int first, int last)
{
    json_t *trace = read_trace(r);
    for (int step = 1; step <= last + 1; step++) {
        char begin[32], end[32];
        (void)snprintf(begin, sizeof(begin), "step %d", step);
        (void)snprintf(end, sizeof(end), "end of step %d", step);
        assert_int_equal(has_instant(trace, begin), step >= first && step <= last);
        assert_int_equal(has_instant(trace, end), step >= first && step <= last);
    }
    json_decref(trace);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void a_profile_of_the_demo_is_a_sound_trace(void **state)
{
    (void)state;
    struct run r;
    open_run(&r, "gradient_accumulation_steps=1", "max_steps=6");
    expect_ok(train(&r, 2));
    check_trace(&r, 2);
    expect_steps(&r, 4, 5); /* the first three are not like the others */
    assert_non_null(r.result.profile);
    assert_non_null(strstr(r.result.profile, "linear_grad_weight"));
    assert_non_null(strstr(r.result.profile, "whole step, unwatched"));
    close_run(&r);
}

static void accumulated_steps_show_every_micro_step(void **state)
{
    (void)state;
    struct run r;
    open_run(&r, "gradient_accumulation_steps=3", "max_steps=4");
    expect_ok(train(&r, 1));
    check_trace(&r, 1);
    close_run(&r);
}

static void a_run_that_is_too_short_is_refused(void **state)
{
    (void)state;
    struct run r;
    open_run(&r, "gradient_accumulation_steps=1", "max_steps=5");
    assert_int_equal(train(&r, 3), ERR_USAGE);
    expect_message("raise max_steps to at least 6");
    assert_int_equal(r.result.n_steps, 0);
    close_run(&r);
}

static void a_place_that_cannot_be_written_is_known_before_training(void **state)
{
    (void)state;
    struct run r;
    open_run(&r, "gradient_accumulation_steps=1", "max_steps=6");
    (void)snprintf(r.path, sizeof(r.path), "%s/no/such/folder.json", r.scratch.folder);
    assert_int_equal(train(&r, 1), ERR_IO);
    expect_message("no/such/folder.json");
    assert_int_equal(r.result.n_steps, 0);
    close_run(&r);
}

/* The first file is the empty one; some write of the full one fails, whichever it is. */
static void a_full_disk_is_told(void **state)
{
    (void)state;
    struct run r;
    bool told = false;
    open_run(&r, "gradient_accumulation_steps=1", "max_steps=4");
    struct profile_options o = {.path = r.path, .n_steps = 1};
    struct profile p;
    expect_ok(profile_init(&p, &r.session, &o, 4));
    executor_time_into(r.session.engine.executor, r.session.train->handle, &p.timing);
    *(int32_t *)executor_input(r.session.engine.executor, r.session.train->handle, "step") = 1;
    profile_step_begin(&p, PROFILE_FIRST_STEP);
    expect_ok(executor_run(r.session.engine.executor, r.session.train->handle, "step"));
    file_fail_after(1);
    told = profile_step_end(&p, PROFILE_FIRST_STEP, 0.1) == ERR_IO;
    file_fail_after(0);
    assert_true(told);
    expect_message("trace.json");
    profile_release(&p);
    json_t *trace = read_trace(&r); /* what was there is whole */
    assert_int_equal(json_array_size(json_object_get(trace, "traceEvents")), 0);
    json_decref(trace);
    close_run(&r);
}

static void expect_name(const char *text, const char *wanted)
{
    struct str s = {0};
    trace_add_string(&s, text);
    json_t *j = json_loads(str_text(&s), JSON_DECODE_ANY, NULL);
    assert_non_null(j);
    assert_string_equal(json_string_value(j), wanted);
    json_decref(j);
    str_release(&s);
}

static void names_may_hold_anything(void **state)
{
    (void)state;
    expect_name("plain.0.weight", "plain.0.weight");
    expect_name("a \"b\" \\ c", "a \"b\" \\ c");
    expect_name("tab\tnewline\nbell\a\x7f", "tab\tnewline\nbell\a\x7f");
    expect_name("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
    expect_name("broken \xff end \xe2\x82", "broken \xef\xbf\xbd end \xef\xbf\xbd");
    expect_name("", "");
}

static void expect_number(double x, int decimals, const char *wanted)
{
    struct str s = {0};
    trace_add_number(&s, x, decimals);
    assert_string_equal(str_text(&s), wanted);
    str_release(&s);
}

static void numbers_are_the_same_in_every_locale(void **state)
{
    (void)state;
    static const char *const locales[] = {"C", "de_DE.UTF-8", "fr_FR.UTF-8"};
    for (size_t i = 0; i < ARRAY_LEN(locales); i++) {
        (void)setlocale(LC_ALL, locales[i]); /* one that is not there changes nothing */
        expect_number(1.5, 3, "1.500");
        expect_number(-0.0625, 3, "-0.063");
        expect_number(0, 0, "0");
        expect_number(12345678.9, 0, "12345679");
        expect_number(0.001, 3, "0.001");
        expect_number(3.4e38, 0, "null");
        expect_number((double)NAN, 3, "null");
        expect_number(-(double)INFINITY, 3, "null");
    }
    (void)setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_profile_of_the_demo_is_a_sound_trace),
        cmocka_unit_test(accumulated_steps_show_every_micro_step),
        cmocka_unit_test(a_run_that_is_too_short_is_refused),
        cmocka_unit_test(a_place_that_cannot_be_written_is_known_before_training),
        cmocka_unit_test(a_full_disk_is_told),
        cmocka_unit_test(names_may_hold_anything),
        cmocka_unit_test(numbers_are_the_same_in_every_locale),
    };
    log_set_level(LOG_QUIET);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
