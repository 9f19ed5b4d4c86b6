/* A plan that was searched for is kept: asked for again it is the same without a search, and where
 * anything that it was made from is another one, or the file is, a search is made. The device
 * exists on paper. */
#include <dirent.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_text.h"
#include "engine/kept_plans.h"
#include "engine/model_open.h"
#include "search/decisions_json.h"
#include "support/failures.h"
#include "support/golden.h"
#include "support/paper_device.h"
#include "support/scratch.h"
#include "task/language.h"

#define HEAD "snug-plan "

static struct device device;
static struct device_ops ops;
static struct scratch scratch;
static double kernel_s; /* what every kernel takes */
/* Of all plans: what is free differs from moment to moment, and under a sanitizer a process grows
 * with each. */
static struct surroundings around;

static enum status made_up_time(struct device *d, const struct timed_calls *t,
                                struct call_time *out)
{
    (void)d;
    (void)t;
    *out = (struct call_time){.seconds = kernel_s};
    return OK;
}

static int open_device(void **state)
{
    (void)state;
    scratch_init(&scratch);
    expect_ok(device_open_cpu(&device, 2));
    const struct device_ops *cpu = device.ops;
    paper_device_make(&device);
    ops = *device.ops;
    ops.fill = cpu->fill;
    ops.time_calls = made_up_time;
    device.ops = &ops;
    device.limits.total_s = 1e9; /* all kernels, however busy the machine is */
    surroundings_read(&around, &device);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    device_close(&device);
    scratch_release(&scratch);
    return 0;
}

/* ---- an engine, planned ---------------------------------------------------------------------- */

struct planned {
    struct config *config;
    struct model *model;
    char *folder;
    struct stage_request stage;
    struct settings settings;
    struct kernel_times *times; /* NULL: by rates */
    struct surroundings around;
    struct engine e;
};

static struct engine_request request_of(const struct planned *p)
{
    return (struct engine_request){.stages = &p->stage, .n_stages = 1};
}

/* Everything up to the plan; `change` is made to the config, "" is none. */
static void begin(struct planned *p, const char *change)
{
    const char *overrides[] = {"max_seq_length=512",
                               "model.max_position_embeddings=512",
                               "per_device_train_batch_size=16",
                               "bf16=true",
                               "model.num_hidden_layers=2",
                               "device_memory=110MiB",
                               change};
    *p = (struct planned){0};
    expect_ok(config_load(&p->config, "configs/demo.yaml", overrides,
                          ARRAY_LEN(overrides) - (*change == '\0')));
    expect_ok(config_resolve(p->config, 1));
    expect_ok(open_model(p->config, NULL, &p->model, &p->folder));
    struct task task = language_task(p->model);
    expect_ok(settings_from_config(&p->settings, p->config, &device));
    expect_ok(request_from_config(&p->stage, STAGE_TRAIN, p->config, &task));
    engine_init(&p->e, &p->settings, task, &device);
    p->e.cache_folder = scratch.folder;
    p->around = around;
    p->e.around = &p->around;
}

static void finish(struct planned *p)
{
    const struct engine_request r = request_of(p);
    p->e.times = p->times;
    expect_ok(engine_plan(&p->e, &r));
}

static void plan(struct planned *p, const char *change)
{
    begin(p, change);
    finish(p);
    assert_true(p->e.forecast.fits && p->e.report.n_findings > 1);
}

static void end(struct planned *p)
{
    engine_close(&p->e); /* its kernel times too */
    model_free(p->model);
    mem_free(p->folder);
    config_free(p->config);
}

/* Plans and says whether that took no search. */
static bool is_kept(const char *change)
{
    struct planned p;
    plan(&p, change);
    bool kept = p.e.took.was_kept;
    end(&p);
    return kept;
}

static void forget_all(void)
{
    char path[SCRATCH_PATH];
    expect_ok(file_remove_tree(scratch_path(&scratch, "plans", path)));
}

static int count_kept(void)
{
    char path[SCRATCH_PATH];
    int n = 0;
    DIR *d = opendir(scratch_path(&scratch, "plans", path));
    for (struct dirent *entry = d ? readdir(d) : NULL; entry; entry = readdir(d))
        n += entry->d_name[0] != '.';
    if (d)
        (void)closedir(d);
    return n;
}

/* ---- the same again -------------------------------------------------------------------------- */

static void expect_same_decisions(const struct decisions *a, const struct decisions *b)
{
    struct str x = {0}, y = {0};
    expect_ok(json_text_take(decisions_to_json(a), JSON_COMPACT, &x));
    expect_ok(json_text_take(decisions_to_json(b), JSON_COMPACT, &y));
    assert_string_equal(str_text(&x), str_text(&y));
    str_release(&x);
    str_release(&y);
}

static void expect_same_report(const struct search_report *a, const struct search_report *b)
{
    assert_int_equal(a->n_ranked, b->n_ranked);
    assert_int_equal(a->n_emitted, b->n_emitted);
    assert_int_equal(a->chosen, b->chosen);
    assert_int_equal(a->n_findings, b->n_findings);
    for (int i = 0; i < a->n_findings; i++) {
        assert_true(a->findings[i].seconds == b->findings[i].seconds);
        assert_memory_equal(a->findings[i].n_bytes, b->findings[i].n_bytes,
                            sizeof(a->findings[i].n_bytes));
        assert_string_equal(a->findings[i].text, b->findings[i].text);
        expect_same_decisions(&a->findings[i].decisions, &b->findings[i].decisions);
    }
}

static void expect_same_program(const struct engine *a, const struct engine *b)
{
    struct str x = {0}, y = {0};
    expect_ok(program_print(a->work.stages[0].program, &x));
    expect_ok(program_print(b->work.stages[0].program, &y));
    assert_string_equal(x.text, y.text);
    str_release(&x);
    str_release(&y);
}

static void asked_again_it_takes_no_search_and_is_the_same(void **state)
{
    static const char *const changes[] = {"", "plan_rank=2", "gradient_accumulation_steps=4",
                                          "max_grad_norm=0"};
    (void)state;
    for (size_t i = 0; i < (SNUG_ASAN ? 2 : ARRAY_LEN(changes)); i++) {
        struct planned first, again;
        forget_all();
        plan(&first, changes[i]);
        plan(&again, changes[i]);
        assert_false(first.e.took.was_kept);
        assert_true(again.e.took.was_kept);
        assert_true(first.e.forecast.step_s == again.e.forecast.step_s);
        assert_memory_equal(first.e.work.n_bytes, again.e.work.n_bytes,
                            sizeof(first.e.work.n_bytes));
        expect_same_decisions(&first.e.settings.decisions, &again.e.settings.decisions);
        expect_same_report(&first.e.report, &again.e.report);
        expect_same_program(&first.e, &again.e);
        end(&first);
        end(&again);
    }
}

static void whoever_wants_a_search_gets_one(void **state)
{
    struct planned p;
    (void)state;
    forget_all();
    assert_false(is_kept(""));
    begin(&p, "");
    p.e.replans = true;
    finish(&p);
    assert_false(p.e.took.was_kept);
    end(&p);
    begin(&p, "");
    p.e.cache_folder = NULL;
    finish(&p);
    assert_false(p.e.took.was_kept);
    end(&p);
    assert_true(is_kept(""));
}

/* ---- something else -------------------------------------------------------------------------- */

static void what_is_another_plan_is_searched_for(void **state)
{
    static const char *const changes[] = {"device_memory=105MiB",
                                          "host_memory=8GiB",
                                          "per_device_train_batch_size=15",
                                          "plan_rank=2",
                                          "activation_offloading=false",
                                          "max_seq_length=480",
                                          "optim=adamw_8bit",
                                          "gradient_accumulation_steps=2"};
    const size_t n_changes = SNUG_ASAN ? 3 : ARRAY_LEN(changes);
    (void)state;
    forget_all();
    assert_false(is_kept(""));
    for (size_t i = 0; i < n_changes; i++)
        assert_false(is_kept(changes[i]));
    for (size_t i = 0; i < n_changes; i++)
        assert_true(is_kept(changes[i]));
    const double rate = device.rates.memory_bytes;
    device.rates.memory_bytes *= 1.001;
    assert_false(is_kept(""));
    device.rates.memory_bytes = rate;
    assert_true(is_kept(""));
}

static bool is_kept_with_kernels_of(double seconds)
{
    struct planned p;
    begin(&p, "");
    expect_ok(kernel_times_open(&p.times, &device, scratch.folder));
    kernel_s = seconds;
    finish(&p);
    bool kept = p.e.took.was_kept;
    end(&p);
    return kept;
}

static void where_kernels_take_another_time_it_is_searched_for_again(void **state)
{
    char times[SCRATCH_PATH];
    (void)state;
    forget_all();
    assert_false(is_kept_with_kernels_of(1e-3));
    assert_true(is_kept_with_kernels_of(1e-3));
    expect_ok(file_remove_tree(scratch_path(&scratch, "kernel-times", times)));
    assert_false(is_kept_with_kernels_of(2e-3));
    assert_true(is_kept_with_kernels_of(2e-3));
}

/* A plan for what memory there is, where so much is free. */
static bool is_kept_with(int64_t n_free, bool *fits)
{
    struct planned p;
    begin(&p, "");
    p.around.host.free_bytes = n_free;
    finish(&p);
    bool kept = p.e.took.was_kept;
    *fits = p.e.forecast.fits;
    end(&p);
    return kept;
}

static void with_more_memory_or_too_little_it_is_searched_for_again(void **state)
{
    const int64_t plenty = around.resident_bytes + ((int64_t)1 << 30);
    bool fits;
    (void)state;
    forget_all();
    assert_false(is_kept_with(plenty, &fits));
    assert_true(fits);
    assert_true(is_kept_with(plenty, &fits));
    assert_true(is_kept_with(plenty + plenty / 128, &fits)); /* what buys nothing */
    assert_true(is_kept_with(plenty - plenty / 4, &fits) && fits);
    assert_false(is_kept_with(2 * plenty, &fits));
    assert_true(is_kept_with(2 * plenty, &fits));
    assert_false(is_kept_with((int64_t)1 << 20, &fits));
    assert_false(fits);
}

/* ---- files that are damaged, or somebody else's ---------------------------------------------- */

static void build_only(struct planned *p, struct kept_plan *k)
{
    begin(p, "");
    const struct engine_request r = request_of(p);
    expect_ok(engine_build(&p->e, &r));
    expect_ok(kept_plan_name(k, &p->e));
}

/* Is that file's plan taken? Where not, the engine's decisions are as configured. */
static bool takes(const char *text, size_t n)
{
    struct planned p;
    struct kept_plan k;
    bool found;
    build_only(&p, &k);
    expect_ok(file_write_atomic(k.path.text, text, n));
    const struct decisions configured = p.e.settings.decisions;
    expect_ok(kept_plan_take(&k, &p.e, &found));
    if (!found) {
        expect_same_decisions(&p.e.settings.decisions, &configured);
        assert_int_equal(p.e.report.n_findings, 0);
    }
    kept_plan_release(&k);
    end(&p);
    return found;
}

static char *read_kept(size_t *n)
{
    struct planned p;
    struct kept_plan k;
    char *text;
    forget_all();
    assert_false(is_kept(""));
    build_only(&p, &k);
    expect_ok(file_read(k.path.text, &text, n));
    kept_plan_release(&k);
    end(&p);
    return text;
}

static void a_file_that_is_cut_or_changed_is_not_taken(void **state)
{
    enum { PLACES = SNUG_ASAN ? 20 : 100 };
    size_t n;
    (void)state;
    char *text = read_kept(&n);
    assert_true(takes(text, n));
    for (size_t i = 0; i < PLACES; i++) {
        const size_t at = n * i / PLACES;
        assert_false(takes(text, at));
        text[at] ^= 1;
        assert_false(takes(text, n));
        text[at] ^= 1;
    }
    assert_true(takes(text, n));
    mem_free(text);
}

/* The file with another text in the place of one, and a first line that says so. */
static bool takes_with(const char *file, const char *from, const char *to)
{
    struct str body = {0}, all = {0};
    const char *json = strchr(file, '\n') + 1, *at = strstr(json, from);
    assert_non_null(at);
    str_add_n(&body, json, (size_t)(at - json));
    str_add(&body, to);
    str_add(&body, at + strlen(from));
    str_addf(&all, HEAD "%016" PRIx64 "\n%s", hash_text(str_text(&body)), str_text(&body));
    expect_ok(str_status(&all));
    bool found = takes(all.text, all.n);
    str_release(&body);
    str_release(&all);
    return found;
}

static void a_file_that_lies_is_not_taken(void **state)
{
    static const struct {
        const char *from, *to;
    } lies[] = {
        {"\"seconds\":", "\"seconds\":1e9,\"was\":"},
        {"\"seconds\":", "\"seconds\":-1,\"was\":"},
        {"\"seconds\":", "\"seconds\":\"short\",\"was\":"},
        {"\"n_bytes\":[", "\"n_bytes\":[1,"},
        {"\"n_bytes\":[", "\"n_bytes\":[1,2,3],\"were\":["},
        {"\"room\":[", "\"room\":[1,2,3],\"was\":["},
        {"\"ring_bytes\":", "\"ring_bytes\":-1,\"was\":"},
        {"\"ring_bytes\":", "\"ring_bytes\":9223372036854775807,\"was\":"},
        {"\"group\":", "\"group\":-7,\"was\":"},
        {"\"recompute_cheap\":", "\"recompute_cheap\":3,\"was\":"},
        {"\"away\":[", "\"away\":[99999999999,"},
        {"\"away\":[", "\"away\":[1,2,3,4,5,6],\"was\":["},
        {"\"disk\":[0", "\"disk\":[0.5"},
        {"\"sets\":[[\"", "\"sets\":[[\"zzzz"},
        {"\"sets\":[[\"", "\"sets\":[[1,\""},
        {"\"sets\":", "\"sets\":[],\"were\":"},
        {"\"places\":[[0", "\"places\":[[77"},
        {"\"places\":[[0", "\"places\":[[-1"},
        {"\"places\":[[0", "\"places\":[[0,true"},
        {"\"places\":[", "\"places\":[[0,true,true,true],"},
        {"\"places\":", "\"places\":[],\"were\":"},
        {"\"places\":", "\"places\":7,\"were\":"},
        {"\"decisions\":", "\"decisions\":null,\"were\":"},
        {"\"chosen\":", "\"chosen\":5,\"was\":"},
        {"\"n_ranked\":", "\"n_ranked\":-5,\"was\":"},
        {"\"findings\":", "\"findings\":[],\"were\":"},
        {"\"findings\":[", "\"findings\":[3,"},
        {"\"text\":", "\"text\":3,\"was\":"},
        {"{\"seconds\"", "[{\"seconds\""},
    };
    size_t n;
    (void)state;
    char *text = read_kept(&n);
    assert_true(takes_with(text, "\"seconds\"", "\"seconds\""));
    for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
        print_message("%s becomes %s\n", lies[i].from, lies[i].to);
        assert_false(takes_with(text, lies[i].from, lies[i].to));
    }
    mem_free(text);
}

/* ---- a full disk, no memory, many plans ------------------------------------------------------ */

static void a_plan_that_cannot_be_kept_is_a_plan(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 3; n++) {
        forget_all();
        file_fail_after(n);
        assert_false(is_kept(""));
        file_fail_after(0);
        const int n_kept = count_kept();
        assert_int_equal(n_kept, 0);
        assert_int_equal(is_kept(""), n_kept);
    }
}

static void memory_that_runs_out_is_said_and_leaks_nothing(void **state)
{
    bool found = false;
    (void)state;
    forget_all();
    assert_false(is_kept(""));
    for (int64_t n = 1; !found; n = next_failure(n)) {
        struct planned p;
        struct kept_plan k;
        build_only(&p, &k);
        mem_fail_after(n, 0);
        enum status status = kept_plan_take(&k, &p.e, &found);
        mem_fail_after(0, 0);
        assert_true(status == OK || (status == ERR_MEMORY && !found));
        kept_plan_release(&k);
        end(&p);
    }
}

static void the_folder_keeps_so_many(void **state)
{
    enum { OTHERS = 300 };
    char name[64];
    (void)state;
    forget_all();
    for (int i = 0; i < OTHERS; i++) {
        (void)snprintf(name, sizeof(name), "plans/%016x.json", i);
        scratch_write_text(&scratch, name, "old");
    }
    scratch_write_text(&scratch, "plans/notes", "not ours");
    assert_false(is_kept(""));
    assert_true(count_kept() > 0 && count_kept() < OTHERS);
    assert_true(is_kept(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asked_again_it_takes_no_search_and_is_the_same),
        cmocka_unit_test(whoever_wants_a_search_gets_one),
        cmocka_unit_test(what_is_another_plan_is_searched_for),
        cmocka_unit_test(where_kernels_take_another_time_it_is_searched_for_again),
        cmocka_unit_test(with_more_memory_or_too_little_it_is_searched_for_again),
        cmocka_unit_test(a_file_that_is_cut_or_changed_is_not_taken),
        cmocka_unit_test(a_file_that_lies_is_not_taken),
        cmocka_unit_test(a_plan_that_cannot_be_kept_is_a_plan),
        cmocka_unit_test(memory_that_runs_out_is_said_and_leaks_nothing),
        cmocka_unit_test(the_folder_keeps_so_many),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
