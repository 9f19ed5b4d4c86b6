/* The ways that what outlives a step takes when budgets change, and what becomes of a run where one
 * of them fails: every loss is that of the undisturbed run to the bit. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "engine/carrier.h"
#include "engine/route.h"
#include "support/apart_device.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "support/train_session.h"

enum { N_STEPS = 10, MOST_CHANGES = 4 };

/* ---- a run with a script --------------------------------------------------------------------- */

/* After every second step another budget, in percent of the arena without one; 0: none. */
struct script {
    int percent[MOST_CHANGES];
    void (*before)(int i_change); /* NULL: nothing */
};

struct seen {
    const struct scratch *scratch;
    const struct script *script;
    int64_t needs, arena; /* of the device, without a budget */
    int n_asked, n_changed, n_refused;
    struct changeover over[MOST_CHANGES];
    char why[MOST_CHANGES][512]; /* refused */
    double losses[N_STEPS];
};

static enum status on_step(void *user, const struct step_record *r)
{
    struct seen *s = user;
    char text[96];
    int i = (int)r->step / 2 - 1;
    s->losses[r->step - 1] = r->loss;
    assert_int_equal(r->arena_bytes, r->arena_predicted);
    if (!s->script || r->step % 2 || i >= MOST_CHANGES || !s->script->percent[i])
        return OK;
    int percent = s->script->percent[i];
    if (s->script->before)
        s->script->before(i);
    (void)snprintf(text, sizeof(text), "id\ndevice_memory=%lld\n",
                   (long long)(s->needs - s->arena * (100 - percent) / 100));
    scratch_write_text(s->scratch, "out/BUDGET",
                       percent >= 100 ? "id\ndevice_memory=auto\n" : text);
    return OK;
}

static enum status on_budget(void *user, const struct budget_record *r)
{
    struct seen *s = user;
    int i = s->n_asked++;
    assert_true(i < MOST_CHANGES);
    s->over[i] = r->over;
    s->n_changed += r->changed;
    s->n_refused += !r->changed;
    if (!r->changed)
        (void)snprintf(s->why[i], sizeof(s->why[i]), "%s", r->text);
    return OK;
}

static const char config_text[] =
    "model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 64,"
    " num_hidden_layers: 3, num_attention_heads: 2, num_key_value_heads: 1,"
    " max_position_embeddings: 96}\n"
    "tokenizer: bytes\n"
    "datasets: [{type: synthetic, n_tokens: 9000}]\n"
    "max_seq_length: 48\n"
    "per_device_train_batch_size: 4\n"
    "max_steps: 10\n"
    "bf16: true\n"
    "num_threads: 2\n"
    "device: cpu\n"
    "save_strategy: \"no\"\n"
    "report_to: none\n";

static enum status run(struct seen *seen, const struct scratch *scratch,
                       const struct script *script, const char *more)
{
    char path[SCRATCH_PATH], out[SCRATCH_PATH + 16];
    const char *overrides[2] = {out, more};
    struct train_observer observer = {.user = seen, .on_step = on_step, .on_budget = on_budget};
    struct train_result result = {0};
    struct config *cfg;
    struct session s;
    *seen = (struct seen){.scratch = scratch, .script = script};
    (void)snprintf(out, sizeof(out), "output_dir=%s/out", scratch->folder);
    scratch_write_text(scratch, "tiny.yaml", config_text);
    expect_ok(config_load(&cfg, scratch_path(scratch, "tiny.yaml", path), overrides, more ? 2 : 1));
    expect_ok(config_resolve(cfg, 1));
    expect_ok(session_open(&s, cfg, &(struct session_options){.train = true}));
    seen->needs = s.engine.forecast.budget.needs[TIER_DEVICE];
    seen->arena = s.engine.forecast.arena_bytes;
    expect_ok(session_data(&s));
    expect_ok(session_start(&s));
    enum status status = train_session(
        &s, &(struct train_options){.observers = &observer, .n_observers = 1}, &result);
    train_result_release(&result);
    session_close(&s);
    config_free(cfg);
    return status;
}

/* The same run, disturbed and not: how the device's memory lies is nothing to its losses. */
static struct seen expect_same_losses(const struct script *script, const char *more)
{
    static struct seen plain;
    struct seen seen;
    struct scratch scratch;
    scratch_init(&scratch);
    if (!plain.scratch)
        expect_ok(run(&plain, &scratch, NULL, NULL));
    expect_ok(run(&seen, &scratch, script, more));
    for (int i = 0; i < N_STEPS; i++) {
        if (memcmp(&plain.losses[i], &seen.losses[i], sizeof(plain.losses[i])) != 0)
            fail_msg("step %d: %.17g, undisturbed %.17g", i + 1, seen.losses[i], plain.losses[i]);
    }
    scratch_release(&scratch);
    return seen;
}

static int begin_apart(void **state)
{
    (void)state;
    cpu_opens_apart = true;
    return 0;
}

static int end(void **state)
{
    (void)state;
    cpu_opens_apart = false;
    route_keep_memory_to(-1);
    carrier_fail_after(0);
    apart_fail_allocations(0, 0);
    return 0;
}

/* ---- ways ------------------------------------------------------------------------------------ */

/* 80 and 60 percent are too much for each other: one arena goes before the other comes. */
static const struct script up_and_down = {.percent = {80, 60, 100, 70}};

/* From a device without a budget, and to it, arenas are there at once. */
static void expect_ways(const struct seen *s, bool by_memory, bool by_file)
{
    assert_int_equal(s->n_changed, 4);
    for (int i = 0; i < 4; i++) {
        const struct changeover *o = &s->over[i];
        bool alone = i == 1;
        assert_true(o->moved_bytes > 0);
        assert_int_equal(o->memory_bytes > 0, alone && by_memory);
        assert_int_equal(o->file_bytes > 0, alone && by_file);
    }
}

static void through_memory(void **state)
{
    (void)state;
    struct seen s = expect_same_losses(&up_and_down, NULL);
    expect_ways(&s, true, false);
    assert_true(s.over[0].held[TIER_DEVICE] > s.needs); /* both, and said so */
    assert_true(s.over[1].held[TIER_DEVICE] <= s.needs - s.arena / 5);
}

static void through_a_file(void **state)
{
    (void)state;
    route_keep_memory_to(0);
    struct seen s = expect_same_losses(&up_and_down, NULL);
    expect_ways(&s, false, true);
}

static void through_both(void **state)
{
    (void)state;
    route_keep_memory_to(128 << 10);
    struct seen s = expect_same_losses(&up_and_down, NULL);
    expect_ways(&s, true, true);
}

/* Where the host's memory is limited too, what waits goes into what it has left of the limit. */
static void a_limit_of_the_host_is_kept(void **state)
{
    (void)state;
    struct seen s = expect_same_losses(&up_and_down, "host_memory=3GiB");
    assert_int_equal(s.n_changed, 4);
    for (int i = 0; i < 4; i++)
        assert_true(s.over[i].held[TIER_HOST] <= (int64_t)3 << 30);
}

/* Where pages come and go singly nothing has to wait anywhere. */
static void where_memory_is_one_nothing_waits(void **state)
{
    (void)state;
    struct seen s = expect_same_losses(&up_and_down, NULL);
    expect_ways(&s, false, false);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void fail_first_write(int i_change)
{
    if (i_change == 1)
        carrier_fail_after(1);
}

/* It is refused with the reason, the run goes on as it was, and the next change is made. */
static void expect_refusal(const struct seen *s, const char *reason)
{
    assert_int_equal(s->n_changed, 3);
    assert_int_equal(s->n_refused, 1);
    if (!strstr(s->why[1], reason))
        fail_msg("no \"%s\" in: %s", reason, s->why[1]);
}

static void a_file_that_cannot_be_written_changes_nothing(void **state)
{
    const struct script script = {.percent = {80, 60, 100, 70}, .before = fail_first_write};
    (void)state;
    route_keep_memory_to(0);
    struct seen s = expect_same_losses(&script, NULL);
    expect_refusal(&s, "cannot write the file of a change of budgets");
}

/* One request for what there is here: the first reads it, for the new arenas. */
static void fail_first_read(int i_change)
{
    if (i_change == 1)
        carrier_fail_after(2);
}

static void nor_one_that_cannot_be_read(void **state)
{
    const struct script script = {.percent = {80, 60, 100, 70}, .before = fail_first_read};
    (void)state;
    route_keep_memory_to(0);
    struct seen s = expect_same_losses(&script, NULL);
    expect_refusal(&s, "cannot read the file of a change of budgets");
}

static void refuse_second_arena(int i_change)
{
    if (i_change == 1)
        apart_fail_allocations(1, 1);
}

static void an_arena_that_is_not_to_be_had_changes_nothing(void **state)
{
    const struct script script = {.percent = {80, 60, 100, 70}, .before = refuse_second_arena};
    (void)state;
    struct seen s = expect_same_losses(&script, NULL);
    expect_refusal(&s, "made up");
}

static void refuse_first_arena(int i_change)
{
    if (i_change == 0)
        apart_fail_allocations(1, 1);
}

/* Somebody was faster: then without both at once. */
static void an_arena_that_is_too_much_beside_another_comes_after_it(void **state)
{
    const struct script script = {.percent = {80, 60, 100, 70}, .before = refuse_first_arena};
    (void)state;
    struct seen s = expect_same_losses(&script, NULL);
    assert_int_equal(s.n_changed, 4);
    assert_true(s.over[0].memory_bytes > 0);
}

static void refuse_the_way_back(int i_change)
{
    if (i_change == 1)
        apart_fail_allocations(1, 2);
}

/* Neither the new arena nor the old one: the run ends, and says why. */
static void without_any_arena_a_run_ends(void **state)
{
    const struct script script = {.percent = {80, 60}, .before = refuse_the_way_back};
    struct seen seen;
    struct scratch scratch;
    (void)state;
    scratch_init(&scratch);
    assert_int_equal(run(&seen, &scratch, &script, NULL), ERR_FIT);
    assert_non_null(strstr(status_message(), "made up"));
    scratch_release(&scratch);
}

#define APART(test) cmocka_unit_test_setup_teardown(test, begin_apart, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        APART(through_memory),
        APART(through_a_file),
        APART(through_both),
        APART(a_limit_of_the_host_is_kept),
        cmocka_unit_test(where_memory_is_one_nothing_waits),
        APART(a_file_that_cannot_be_written_changes_nothing),
        APART(nor_one_that_cannot_be_read),
        APART(an_arena_that_is_not_to_be_had_changes_nothing),
        APART(an_arena_that_is_too_much_beside_another_comes_after_it),
        APART(without_any_arena_a_run_ends),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
