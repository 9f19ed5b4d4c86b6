/* The page of a plan: one file that fetches nothing and has the plan's own bytes in it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/file.h"
#include "program/program.h"
#include "support/process.h"

static struct scratch scratch;
static char config[SCRATCH_PATH], path[SCRATCH_PATH];

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    write_tiny_config(&scratch, "tiny.yaml", "report_to: none\n", config);
    scratch_path(&scratch, "plan.html", path);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

static char *page_of(const char *const *args, int exit_code)
{
    struct process p;
    char *page = NULL;
    size_t n;
    process_run(&p, &scratch, NULL, args);
    expect_exit(&p, exit_code);
    process_release(&p);
    assert_int_equal(file_read(path, &page, &n), OK);
    assert_int_equal(strlen(page), n);
    return page;
}

#define PAGE_OF(code, ...) \
    page_of((const char *const[]){"plan", config, "--html", path, __VA_ARGS__, NULL}, code)

static int count(const char *text, const char *part)
{
    int n = 0;
    while ((text = strstr(text, part))) {
        text += strlen(part);
        n++;
    }
    return n;
}

/* What stands in the element "plan". */
static json_t *data_of(const char *page)
{
    static const char begin[] = "<script type=\"application/json\" id=\"plan\">";
    const char *from = strstr(page, begin);
    assert_non_null(from);
    from += sizeof(begin) - 1;
    const char *to = strstr(from, "</script>");
    assert_non_null(to);
    json_error_t error;
    json_t *data = json_loadb(from, (size_t)(to - from), JSON_REJECT_DUPLICATES, &error);
    if (!data)
        fail_msg("the data of the page: %s", error.text);
    return data;
}

static int64_t cell(const json_t *table, const char *column, size_t i)
{
    const json_t *x = json_array_get(json_object_get(table, column), i);
    assert_true(json_is_integer(x));
    return json_integer_value(x);
}

static size_t n_rows(const json_t *table)
{
    size_t n = 0;
    const char *name;
    json_t *column;
    json_object_foreach((json_t *)table, name, column)
    {
        assert_true(n == 0 || json_array_size(column) == n);
        n = json_array_size(column);
    }
    return n;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void the_page_fetches_nothing(void **state)
{
    (void)state;
    char *page = PAGE_OF(0, "max_steps=1");
    static const char *const absent[] = {"http://", "https://", "//cdn",  " src=",         " href=",
                                         "@import", "url(",     "fetch(", "XMLHttpRequest"};
    for (size_t i = 0; i < ARRAY_LEN(absent); i++)
        if (strstr(page, absent[i]))
            fail_msg("the page has %s in it", absent[i]);
    assert_non_null(strstr(page, "default-src 'none'"));
    assert_int_equal(strncmp(page, "<!doctype html>", 15), 0);
    static const char *const pairs[] = {"html", "head", "body", "main", "style", "script", "title"};
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        char open[32], close[32];
        (void)snprintf(open, sizeof(open), "<%s>", pairs[i]);
        (void)snprintf(close, sizeof(close), "</%s>", pairs[i]);
        int with_attributes = strcmp(pairs[i], "html") == 0 || strcmp(pairs[i], "script") == 0;
        assert_int_equal(count(page, open) + with_attributes, count(page, close));
    }
    assert_int_equal(count(page, "@"), count(page, "@media")); /* every place was filled */
    mem_free(page);
}

/* The buffers of the page, added up instant by instant, give the arena that was planned. */
static void the_buffers_add_up_to_the_arenas(void **state)
{
    (void)state;
    char *page = PAGE_OF(0, "max_steps=1", "offload_optimizer=true", "model.hidden_size=256");
    json_t *data = data_of(page);
    const json_t *buffers = json_at(data, "plan.buffers"), *arenas = json_at(data, "plan.arenas");
    size_t n = n_rows(buffers), n_instrs = n_rows(json_at(data, "plan.instrs"));
    assert_true(n > 20 && n_instrs > 20);
    for (int64_t tier = 0; tier < 2; tier++) {
        int64_t most = 0, end = 0;
        for (size_t at = 0; at < n_instrs; at++) {
            int64_t live = 0;
            for (size_t i = 0; i < n; i++) {
                bool own = cell(buffers, "tier", i) == tier && cell(buffers, "into", i) < 0;
                if (!own || cell(buffers, "first", i) > (int64_t)at ||
                    cell(buffers, "last", i) < (int64_t)at)
                    continue;
                int64_t size = (cell(buffers, "bytes", i) + 255) / 256 * 256;
                live += size;
                end = MAX(end, cell(buffers, "offset", i) + size);
            }
            most = MAX(most, live);
        }
        assert_int_equal(most, json_int_at(json_array_get(arenas, (size_t)tier), "lower_bound"));
        assert_int_equal(end, json_int_at(json_array_get(arenas, (size_t)tier), "bytes"));
    }
    assert_int_equal(json_int_at(data, "forecast.predicted.arena_bytes"),
                     json_int_at(json_array_get(arenas, 0), "bytes"));
    json_decref(data);
    mem_free(page);
}

static void expect_colour(const char *page, const char *prefix, const char *name)
{
    char variable[64];
    (void)snprintf(variable, sizeof(variable), "%s%s: #", prefix, name);
    if (!strstr(page, variable))
        fail_msg("the style sheet has no %s", variable);
}

static void every_class_and_part_has_a_colour(void **state)
{
    (void)state;
    char *page = PAGE_OF(0, "max_steps=1");
    for (int i = 0; i < MEMORY_CLASS_COUNT; i++)
        expect_colour(page, "--", memory_class_name((enum memory_class)i));
    for (int i = 0; i < PASS_COUNT; i++)
        expect_colour(page, "--part-", pass_name((enum pass)i));
    for (int i = 0; i < QUEUE_COUNT; i++)
        expect_colour(page, "--part-", queue_name((enum queue)i));
    expect_colour(page, "--part-", "recompute");
    mem_free(page);
}

static const char *text_of(const json_t *data, const char *list, int64_t number)
{
    const char *text = json_string_value(json_array_get(json_at(data, list), (size_t)number));
    assert_non_null(text);
    return text;
}

static void every_buffer_says_what_it_is_and_why(void **state)
{
    (void)state;
    char *page = PAGE_OF(0, "max_steps=1", "offload_optimizer=true", "gradient_checkpointing=true",
                         "model.hidden_size=256", "model.intermediate_size=512");
    json_t *data = data_of(page);
    const json_t *buffers = json_at(data, "plan.buffers");
    bool has_weight = false, has_state = false, has_fetched = false, has_again = false;
    for (size_t i = 0; i < n_rows(buffers); i++) {
        const char *name = text_of(data, "plan.names", cell(buffers, "name", i));
        const char *why = text_of(data, "plan.purposes", cell(buffers, "purpose", i));
        const char *kind = text_of(data, "plan.classes", cell(buffers, "class", i));
        const char *tier = text_of(data, "plan.tiers", cell(buffers, "tier", i));
        assert_true(name[0] && why[0]);
        has_weight |= strcmp(name, "embed.weight") == 0 && strcmp(kind, "weights") == 0 &&
                      strstr(why, "at home on the device");
        has_state |= strcmp(kind, "optimizer") == 0 && strcmp(tier, "host") == 0 &&
                     strstr(why, "to leave room");
        has_fetched |= strcmp(kind, "staging") == 0 && strstr(why, "fetched from its home") != NULL;
        has_again |= strcmp(kind, "recompute") == 0 && strstr(why, "a second time") != NULL;
    }
    assert_true(has_weight && has_state && has_fetched && has_again);
    json_decref(data);
    mem_free(page);
}

static void times_are_those_of_the_forecast(void **state)
{
    (void)state;
    char *page = PAGE_OF(0, "max_steps=1", "gradient_accumulation_steps=3");
    json_t *data = data_of(page);
    const json_t *sections = json_at(data, "plan.sections");
    double sum = 0;
    for (size_t i = 0; i < json_array_size(sections); i++) {
        const json_t *s = json_array_get(sections, i);
        sum += (double)json_int_at(s, "ns") * (double)json_int_at(s, "repeats");
    }
    assert_int_equal(json_array_size(sections), 3);
    assert_true(fabs(sum / 1e6 / json_number_at(data, "forecast.predicted.step_ms") - 1.0) < 1e-3);
    json_decref(data);
    mem_free(page);
}

/* A run of a few steps, of which some were timed. */
static void what_was_measured_stands_beside_what_was_predicted(void **state)
{
    (void)state;
    char *page = page_of((const char *const[]){"train", config, "--html", path, "max_steps=6",
                                               "datasets=[{type: synthetic, n_tokens: 20000}]",
                                               "gradient_accumulation_steps=2", "save_strategy=no",
                                               "--quiet", NULL},
                         0);
    json_t *data = data_of(page);
    const json_t *instrs = json_at(data, "plan.instrs"), *sections = json_at(data, "plan.sections");
    double sum = 0;
    for (size_t i = 0; i < json_array_size(sections); i++) {
        const json_t *s = json_array_get(sections, i);
        int64_t first = json_int_at(s, "first"), n = json_int_at(s, "n");
        for (int64_t k = first; k < first + n; k++) {
            assert_true(cell(instrs, "measured_ns", (size_t)k) >= 0);
            assert_true(k == 0 || cell(instrs, "measured_start", (size_t)k) >=
                                      cell(instrs, "measured_start", (size_t)k - 1));
            sum +=
                (double)cell(instrs, "measured_ns", (size_t)k) * (double)json_int_at(s, "repeats");
        }
    }
    /* On the CPU one instruction follows the other, and a step is little else. */
    double step_ms = json_number_at(data, "forecast.measured.step_ms");
    assert_true(sum / 1e6 > 0.1 * step_ms && sum / 1e6 < 10 * step_ms);
    assert_int_equal(json_int_at(data, "forecast.measured.arena_bytes"),
                     json_int_at(data, "forecast.predicted.arena_bytes"));
    json_decref(data);
    mem_free(page);
}

static void hostile_names_stay_text(void **state)
{
    (void)state;
    char *page = PAGE_OF(0, "max_steps=1", "output_dir=</script><script>alert(1)</script><!--");
    assert_null(strstr(page, "alert(1)</script>"));
    assert_null(strstr(page, "<!--"));
    json_t *data = data_of(page);
    bool found = false;
    const json_t *lines = json_at(data, "decisions");
    for (size_t i = 0; i < json_array_size(lines); i++)
        found |= strstr(json_string_value(json_array_get(lines, i)),
                        "</script><script>alert(1)</script><!--") != NULL;
    assert_true(found); /* in the settings filled in: a run is named after its folder */
    json_decref(data);
    mem_free(page);
}

static void the_picture_shows_every_memory_and_queue(void **state)
{
    (void)state;
    struct process p;
    char svg[SCRATCH_PATH], *text = NULL;
    size_t n;
    scratch_path(&scratch, "plan.svg", svg);
    PROCESS_RUN(&p, &scratch, "plan", config, "max_steps=1", "offload_optimizer=true",
                "model.hidden_size=256", "--svg", svg);
    expect_exit(&p, 0);
    process_release(&p);
    assert_int_equal(file_read(svg, &text, &n), OK);
    static const char *const parts[] = {"Device memory", "Host memory", "Queues",   ">compute ",
                                        ">in ",          "backward",    "optimizer"};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (!strstr(text, parts[i]))
            fail_msg("the picture has no %s", parts[i]);
    assert_int_equal(count(text, "<text"), count(text, "</text>"));
    assert_int_equal(count(text, "(null)"), 0); /* every part has a colour */
    mem_free(text);
}

/* Rows of the page are rows of --json: rank, predicted time, bytes and what differs. */
static void runners_up_are_on_the_page(void **state)
{
    (void)state;
    char *page =
        PAGE_OF(0, "max_steps=1", "model.hidden_size=256", "device_memory=7MiB", "plan_rank=2");
    json_t *data = data_of(page);
    const json_t *rows = json_at(data, "forecast.runners_up");
    assert_int_equal(json_int_at(data, "forecast.plan_rank"), 2);
    assert_true(json_array_size(rows) >= 1); /* how many fit depends on what was measured */
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        int64_t rank = json_int_at(row, "rank");
        assert_int_equal(rank, i == 0 ? 1 : (int64_t)i + 2);
        assert_true((json_number_at(row, "slower_percent") > 0) == (rank > 2));
        assert_true(json_number_at(row, "step_ms") > 0 && json_int_at(row, "device_bytes") > 0);
        assert_true(json_int_at(row, "host_bytes") >= 0 && *json_text_at(row, "differs"));
    }
    json_decref(data);
    mem_free(page);
}

static void a_plan_that_does_not_fit_has_a_page_too(void **state)
{
    (void)state;
    char *page = PAGE_OF(3, "max_steps=1", "device_memory=16KiB", "host_memory=64MiB");
    json_t *data = data_of(page);
    assert_false(json_bool_at(data, "forecast.fits"));
    assert_non_null(strstr(json_text_at(data, "forecast.error.message"), "device_memory"));
    json_decref(data);
    mem_free(page);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_scratch, drop_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_page_fetches_nothing),
        TEST(the_buffers_add_up_to_the_arenas),
        TEST(every_class_and_part_has_a_colour),
        TEST(every_buffer_says_what_it_is_and_why),
        TEST(times_are_those_of_the_forecast),
        TEST(what_was_measured_stands_beside_what_was_predicted),
        TEST(hostile_names_stay_text),
        TEST(the_picture_shows_every_memory_and_queue),
        TEST(runners_up_are_on_the_page),
        TEST(a_plan_that_does_not_fit_has_a_page_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
