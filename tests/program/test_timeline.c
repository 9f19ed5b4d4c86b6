/* The drawings say what the program's own accounting says. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "program/predict.h"
#include "program/timeline.h"
#include "support/golden.h"
#include "support/training.h"

static const char gpt2_124m[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":50304,\"n_positions\":1024,\"n_embd\":768,"
    "\"n_layer\":12,\"n_head\":12,\"activation_function\":\"gelu_new\",\"embd_pdrop\":0,"
    "\"attn_pdrop\":0,\"resid_pdrop\":0,\"layer_norm_epsilon\":1e-5}";

static void open_gpt2(struct training *t, bool recompute)
{
    training_init(t, &(struct training_options){.config = gpt2_124m, .batch = 4, .seq_len = 256});
    for (int b = 0; recompute && b < 12; b++)
        plan_recompute_block(&t->stage->plan, t->stage->graph, b);
    training_emit(t);
    expect_ok(program_check(t->stage->program, &t->engine.work.storage));
}

static enum status look(struct timeline *line, const struct training *t, int n_columns)
{
    return timeline_init(line,
                         &(struct timeline_view){t->stage->program, &t->engine.work.storage,
                                                 TIER_DEVICE, n_columns, NULL, t->stage->n_micro});
}

static void the_peak_is_that_of_the_program(void **state)
{
    (void)state;
    struct training t;
    struct timeline line;
    int64_t by_class[MEMORY_CLASS_COUNT];
    open_gpt2(&t, true);
    for (int n_columns = 1; n_columns < 3000; n_columns = n_columns * 3 + 1) {
        expect_ok(look(&line, &t, n_columns));
        int32_t at = program_peak(t.stage->program, TIER_DEVICE);
        program_memory_at(t.stage->program, &t.engine.work.storage, TIER_DEVICE, at, by_class);
        assert_int_equal(line.peak.instr, at);
        assert_memory_equal(line.peak.by_class, by_class, sizeof(by_class));
        assert_int_equal(line.peak.total, t.stage->program->lower_bound[TIER_DEVICE]);
        int64_t most = 0;
        for (int k = 0; k < line.n_columns; k++) {
            program_memory_at(t.stage->program, &t.engine.work.storage, TIER_DEVICE,
                              line.columns[k].instr, by_class);
            assert_memory_equal(line.columns[k].by_class, by_class, sizeof(by_class));
            most = MAX(most, line.columns[k].total);
        }
        assert_int_equal(most, line.peak.total);
        timeline_release(&line);
    }
    training_release(&t);
}

static void the_terminal_drawing_names_the_peak(void **state)
{
    (void)state;
    struct training t;
    struct timeline line;
    struct str text = {0};
    open_gpt2(&t, false);
    expect_ok(look(&line, &t, 72));
    struct timeline_style style = {.budget = line.arena_bytes + line.arena_bytes / 8};
    expect_ok(timeline_draw(&line, &style, &text));
    (void)fputs(text.text, stdout); /* print_message would cut it short */
    assert_non_null(strstr(text.text, line.peak_place));
    assert_non_null(strstr(text.text, "budget"));
    assert_non_null(strstr(text.text, "backward"));
    assert_null(strchr(text.text, '\x1b'));
    str_clear(&text);
    style.colour = true;
    expect_ok(timeline_draw(&line, &style, &text));
    assert_non_null(strchr(text.text, '\x1b'));
    str_release(&text);
    timeline_release(&line);
    training_release(&t);
}

/* Set SNUG_TIMELINE_FOLDER to look at the pictures. */
static void keep_picture(const char *name, const struct str *svg)
{
    char path[512];
    const char *folder = getenv("SNUG_TIMELINE_FOLDER");
    if (!folder)
        return;
    (void)snprintf(path, sizeof(path), "%s/%s.svg", folder, name);
    expect_ok(file_write_atomic(path, svg->text, svg->n));
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        n++;
    return n;
}

static void the_picture_is_one_document(void **state)
{
    (void)state;
    for (int recompute = 0; recompute < 2; recompute++) {
        struct training t;
        struct timeline line;
        struct str svg = {0};
        open_gpt2(&t, recompute);
        expect_ok(look(&line, &t, 480));
        struct timeline_picture picture = {.title = "gpt2-124m <4 x 256> & AdamW",
                                           .tiers = {&line},
                                           .budgets = {(int64_t)3 << 30}};
        expect_ok(timeline_svg(&picture, &svg));
        keep_picture(recompute ? "recompute" : "kept", &svg);
        assert_non_null(strstr(svg.text, "&lt;4 x 256&gt; &amp; AdamW"));
        assert_non_null(strstr(svg.text, "budget 3.00 GiB"));
        assert_int_equal(count(svg.text, "<svg"), 1);
        assert_int_equal(count(svg.text, "</svg>"), 1);
        assert_int_equal(count(svg.text, "<path"), count(svg.text, "<rect"));
        assert_int_equal(count(svg.text, "nan"), 0);
        str_release(&svg);
        timeline_release(&line);
        training_release(&t);
    }
}

/* By the clock a column is a stretch of time: the peak stays, and lanes are as busy as predicted.
 */
static void columns_of_time_keep_the_peak(void **state)
{
    (void)state;
    struct training t;
    struct timeline by_order, by_time;
    struct lanes lanes;
    struct prediction prediction;
    double *clock, sum = 0, busy = 0;
    open_gpt2(&t, true);
    const struct program *p = t.stage->program;
    const struct storage *storage = &t.engine.work.storage;
    expect_ok(predict(&prediction, p, &t.device, NULL));
    expect_ok(mem_try_array(&clock, p->instrs.n + 1, sizeof(*clock)));
    expect_ok(predict_clock(&prediction, p, &t.device, clock));
    for (size_t k = 0; k < p->instrs.n; k++) {
        assert_true(clock[k] <= clock[k + 1]);
        sum += prediction.seconds[k];
    }
    assert_true(fabs(clock[p->instrs.n] / sum - 1.0) < 1e-9); /* one after the other here */
    expect_ok(
        timeline_init(&by_order, &(struct timeline_view){p, storage, TIER_DEVICE, 100, NULL, 0}));
    expect_ok(
        timeline_init(&by_time, &(struct timeline_view){p, storage, TIER_DEVICE, 100, clock, 0}));
    assert_int_equal(by_time.peak.instr, by_order.peak.instr);
    int64_t most = 0;
    for (int k = 0; k < by_time.n_columns; k++) {
        assert_true(by_time.columns[k].total > 0); /* none is left out */
        most = MAX(most, by_time.columns[k].total);
    }
    assert_int_equal(most, by_order.peak.total);
    assert_int_equal(by_time.columns[by_time.peak_column].total, most);
    expect_ok(lanes_init(&lanes, &prediction, p, &t.device, t.stage->n_micro, 300));
    for (size_t i = 0; i < lanes.spans.n; i++)
        busy += lanes.spans.items[i].busy * lanes.spans.items[i].n_columns / 300;
    assert_true(fabs(busy - 1.0) < 1e-6);
    for (int q = 0; q < QUEUE_COUNT; q++)
        busy -= lanes.busy[q];
    assert_true(fabs(busy) < 1e-6);
    lanes_release(&lanes);
    timeline_release(&by_order);
    timeline_release(&by_time);
    prediction_release(&prediction);
    mem_free(clock);
    training_release(&t);
}

static void a_program_without_instructions_can_be_drawn(void **state)
{
    (void)state;
    struct program p = {.name = "nothing"};
    struct storage storage;
    struct timeline line;
    struct str text = {0};
    storage_init(&storage);
    expect_ok(timeline_init(&line, &(struct timeline_view){&p, &storage, TIER_HOST, 10, NULL, 1}));
    expect_ok(timeline_draw(&line, &(struct timeline_style){0}, &text));
    expect_ok(timeline_svg(&(struct timeline_picture){.tiers = {NULL, &line}}, &text));
    str_release(&text);
    timeline_release(&line);
    storage_release(&storage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_peak_is_that_of_the_program),
        cmocka_unit_test(the_terminal_drawing_names_the_peak),
        cmocka_unit_test(the_picture_is_one_document),
        cmocka_unit_test(columns_of_time_keep_the_peak),
        cmocka_unit_test(a_program_without_instructions_can_be_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
