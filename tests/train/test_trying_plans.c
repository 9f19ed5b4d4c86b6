/* A run inside a budget that tries several plans, on a device with a memory of its own: every loss
 * is that of the run that tries none, the arena is what was predicted with each plan, and the
 * budget is kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "support/apart_device.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "support/train_session.h"

enum {
    FIRST_TURN = TRIALS_FIRST + TRIALS_STEPS,
    N_STEPS = FIRST_TURN + 6 * TRIALS_STEPS, /* three plans twice, and as long as one of them */
    MOST_RECORDS = 8,
};

/* ---- a run ----------------------------------------------------------------------------------- */

/* Tensors are no small ones, which stay where they are. */
static const char config_text[] =
    "model: {model_type: llama, vocab_size: 257, hidden_size: 192, intermediate_size: 384,"
    " num_hidden_layers: 4, num_attention_heads: 2, num_key_value_heads: 1,"
    " max_position_embeddings: 96}\n"
    "tokenizer: bytes\n"
    "datasets: [{type: synthetic, n_tokens: 9000}]\n"
    "val_set_size: 0.1\n"
    "eval_max_batches: 1\n"
    "max_seq_length: 16\n"
    "per_device_train_batch_size: 2\n"
    "max_grad_norm: 1\n"
    "num_threads: 1\n"
    "device: cpu\n"
    "save_strategy: \"no\"\n"
    "overwrite_output_dir: true\n"
    "report_to: none\n";

struct seen {
    const struct scratch *scratch;
    int64_t budget;
    int64_t asks_at; /* the step after which another budget is asked for; 0: none */
    bool defers;     /* with the first plan updates are made in the next step */
    double losses[N_STEPS];
    int n_records, n_budgets;
    struct trials_record records[MOST_RECORDS];
    struct plan_trial tried[MAX_FINDINGS]; /* of the last */
};

static enum status on_step(void *user, const struct step_record *r)
{
    struct seen *s = user;
    char text[96];
    s->losses[r->step - 1] = r->loss;
    if (!s->defers) /* a first step without updates does not fill its arena */
        assert_int_equal(r->arena_bytes, r->arena_predicted);
    if (s->budget > 0 && !s->defers)
        assert_true(r->arena_bytes <= s->budget);
    (void)snprintf(text, sizeof(text), "id\ndevice_memory=%lld\n",
                   (long long)(s->budget - (1 << 16)));
    if (r->step == s->asks_at)
        scratch_write_text(s->scratch, "out/BUDGET", text);
    return OK;
}

static enum status on_trials(void *user, const struct trials_record *r)
{
    struct seen *s = user;
    assert_true(s->n_records < MOST_RECORDS);
    s->records[s->n_records++] = *r;
    memcpy(s->tried, r->tried, (size_t)r->n_tried * sizeof(*r->tried));
    assert_true(r->forecast->fits);
    assert_true(r->forecast->budget.needs[TIER_DEVICE] <= s->budget);
    return OK;
}

static enum status on_budget(void *user, const struct budget_record *r)
{
    struct seen *s = user;
    assert_true(r->changed);
    s->n_budgets++;
    return OK;
}

/* Planned by rates: searches of one program that follow each other find the same. */
static void open_session(const struct scratch *scratch, int64_t budget, const char *const *more,
                         size_t n_more, struct config **cfg, struct session *s)
{
    char path[SCRATCH_PATH], out[SCRATCH_PATH + 16], limit[64], steps[32];
    const char *overrides[16] = {out, steps, limit};
    (void)snprintf(out, sizeof(out), "output_dir=%s/out", scratch->folder);
    (void)snprintf(steps, sizeof(steps), "max_steps=%d", (int)N_STEPS);
    (void)snprintf(limit, sizeof(limit), budget > 0 ? "device_memory=%lld" : "device_memory=auto",
                   (long long)budget);
    memcpy(overrides + 3, more, n_more * sizeof(*more));
    scratch_write_text(scratch, "tiny.yaml", config_text);
    expect_ok(config_load(cfg, scratch_path(scratch, "tiny.yaml", path), overrides, 3 + n_more));
    expect_ok(config_resolve(*cfg, 1));
    expect_ok(session_open(
        s, *cfg, &(struct session_options){.train = true, .evaluate = true, .untimed = true}));
}

/* As the search does where copies run beside kernels; it may take more than the budget. */
static void defer_updates(struct engine *e)
{
    struct decisions d = e->settings.decisions;
    d.defer_updates = true;
    expect_ok(workload_decide(&e->work, &d));
    expect_ok(workload_emit(&e->work));
    assert_non_null(program_section(e->work.stages[0].program, "finish"));
    e->settings.decisions = d;
    expect_ok(engine_forecast(e));
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The time of a step that a run reports is that of the plan it ended with. */
static void expect_time_of_last_plan(const struct seen *seen, const struct train_result *result)
{
    double seconds[N_STEPS];
    int64_t first = 0;
    for (int i = 0; i < seen->n_records; i++)
        first = seen->records[i].changed ? seen->records[i].step : first;
    size_t n = (size_t)(N_STEPS - first);
    memcpy(seconds, result->step_seconds + first, n * sizeof(*seconds));
    qsort(seconds, n, sizeof(*seconds), compare_doubles);
    assert_true(result->median_step_s == seconds[n / 2]);
}

/* Begins with what *seen says of it. */
static void run_seen(struct seen *seen, const char *const *more, size_t n_more)
{
    struct train_observer observer = {
        .user = seen, .on_step = on_step, .on_trials = on_trials, .on_budget = on_budget};
    struct train_result result;
    struct config *cfg;
    struct session s;
    open_session(seen->scratch, seen->budget, more, n_more, &cfg, &s);
    if (seen->defers)
        defer_updates(&s.engine);
    expect_ok(session_data(&s));
    expect_ok(session_start(&s));
    expect_ok(train_session(&s, &(struct train_options){.observers = &observer, .n_observers = 1},
                            &result));
    assert_int_equal(result.n_steps, N_STEPS);
    if (seen->n_records > 0 && seen->n_budgets == 0)
        assert_int_equal(s.engine.report.chosen + 1, seen->records[seen->n_records - 1].rank);
    if (seen->n_budgets == 0)
        expect_time_of_last_plan(seen, &result);
    train_result_release(&result);
    session_close(&s);
    config_free(cfg);
}

#define RATE "learning_rate=1e-2"
#define SETTINGS(...) \
    (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

/* How many plans of a budget are close enough to be tried, of three. */
static int n_close(const struct scratch *scratch, int64_t budget)
{
    static const char *const more[] = {"plan_trials=3"};
    struct plan_trials_run trials;
    struct config *cfg;
    struct session s;
    open_session(scratch, budget, more, 1, &cfg, &s);
    plan_trials_run_init(&trials, &s);
    int n = s.engine.forecast.fits ? trials.trials.n_plans : 0;
    plan_trials_run_release(&trials);
    session_close(&s);
    config_free(cfg);
    return n;
}

/* A share of what the run needs, without what it would keep because there is room, that leaves
 * three such plans: which are close goes by the rates of this machine. */
static int64_t budget_with_a_choice(const struct scratch *scratch)
{
    static const char *const none[] = {"gradient_checkpointing=false"};
    struct config *cfg;
    struct session s;
    open_session(scratch, 0, none, 1, &cfg, &s);
    int64_t needs = s.engine.forecast.budget.needs[TIER_DEVICE];
    int64_t arena = s.engine.forecast.arena_bytes;
    session_close(&s);
    config_free(cfg);
    for (int percent = 90; percent >= 40; percent -= 5) {
        int64_t budget = needs - arena * (100 - percent) / 100;
        if (n_close(scratch, budget) == 3)
            return budget;
    }
    fail_msg("no budget has three plans that are close");
    return 0;
}

static struct scratch scratch;
static int64_t budget;
static struct seen plain; /* of one plan; a rate at which an update that was left out shows */

static int begin(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR);
    cpu_opens_apart = true;
    scratch_init(&scratch);
    budget = budget_with_a_choice(&scratch);
    plain = (struct seen){.scratch = &scratch, .budget = budget};
    run_seen(&plain, SETTINGS(RATE));
    assert_int_equal(plain.n_records, 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    scratch_release(&scratch);
    cpu_opens_apart = false;
    return 0;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void expect_same_losses(const struct seen *a, const struct seen *b)
{
    for (int i = 0; i < N_STEPS; i++) {
        if (memcmp(&a->losses[i], &b->losses[i], sizeof(a->losses[i])) != 0)
            fail_msg("step %d: %.17g, and %.17g with one plan", i + 1, b->losses[i], a->losses[i]);
    }
}

/* One plan after the other and back, and the last word is for the one that was the fastest. */
static void expect_trials(const struct seen *s)
{
    static const int ranks[] = {2, 3, 3, 2, 1};
    const struct trials_record *last = &s->records[5];
    int best = 0;
    assert_int_equal(s->n_records, 6);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(s->records[i].rank, ranks[i]);
        assert_true(s->records[i].changed && !s->records[i].is_settled);
        assert_true(s->records[i].was_planned || i < 2);
    }
    assert_true(last->is_settled);
    assert_int_equal(last->n_tried, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(s->tried[i].measured_s > 0 && s->tried[i].planned_s > 0);
        if (s->tried[i].measured_s < s->tried[best].measured_s)
            best = i;
    }
    assert_int_equal(last->rank, best + 1);
    assert_int_equal(last->changed, best != 0);
}

static void losses_are_those_of_one_plan(void **state)
{
    struct seen tried = {.scratch = &scratch, .budget = budget};
    (void)state;
    run_seen(&tried, SETTINGS(RATE, "plan_trials=3"));
    expect_trials(&tried);
    assert_int_equal(tried.records[0].step, FIRST_TURN);
    assert_int_equal(tried.records[1].step, FIRST_TURN + TRIALS_STEPS);
    assert_int_equal(tried.records[5].step, FIRST_TURN + 5 * TRIALS_STEPS);
    expect_same_losses(&plain, &tried);
}

/* Updates may be pending when a plan changes; steps after an evaluation or a checkpoint are not
 * counted: here ten of the first 34. */
static void steps_after_other_things_do_not_count(void **state)
{
    struct seen one = {.scratch = &scratch, .budget = budget}, tried = one;
    (void)state;
    run_seen(&one, SETTINGS("bf16=true"));
    run_seen(&tried, SETTINGS("bf16=true", "plan_trials=2", "eval_strategy=steps", "eval_steps=5",
                              "save_strategy=steps", "save_steps=7"));
    assert_true(tried.n_records >= 1);
    assert_int_equal(tried.records[0].step, FIRST_TURN + 10);
    expect_same_losses(&one, &tried);
}

/* Nothing of a step is left behind with the programs that made it. */
static void updates_that_are_pending_are_made_first(void **state)
{
    struct seen deferred = {.scratch = &scratch, .budget = budget, .defers = true};
    (void)state;
    run_seen(&deferred, SETTINGS(RATE, "plan_trials=2"));
    assert_true(deferred.n_records >= 1);
    expect_same_losses(&plain, &deferred);
}

/* Those that were tried are plans of another budget from then on. */
static void another_budget_ends_the_trials(void **state)
{
    struct seen asked = {.scratch = &scratch, .budget = budget, .asks_at = FIRST_TURN + 2};
    (void)state;
    run_seen(&asked, SETTINGS(RATE, "plan_trials=3"));
    assert_int_equal(asked.n_budgets, 1);
    assert_int_equal(asked.n_records, 1);
    expect_same_losses(&plain, &asked);
}

static void where_everything_fits_nothing_is_tried(void **state)
{
    struct seen s;
    (void)state;
    s = (struct seen){.scratch = &scratch};
    run_seen(&s, SETTINGS("plan_trials=3"));
    assert_int_equal(s.n_records, 0);
}

/* By its rank, and back by the decisions of before; a rank that there is not changes nothing. */
static void a_session_changes_to_the_plan_of_a_rank(void **state)
{
    static const char *const more[] = {"plan_trials=3"};
    struct session_change c = {.rank = 2, .over.folder = scratch.folder};
    struct decisions first;
    struct config *cfg;
    struct session s;
    struct pool pool;
    (void)state;
    pool_init(&pool);
    open_session(&scratch, budget, more, 1, &cfg, &s);
    expect_ok(session_data(&s));
    expect_ok(session_start(&s));
    expect_ok(session_start_loader(&s, false));
    expect_ok(decisions_keep(&s.engine.settings.decisions, &pool, &first));
    const struct forecast before = s.engine.forecast;
    c.limits = s.engine.settings.limits;
    expect_ok(session_change(&s, &c));
    assert_false(c.is_idle || c.was_planned);
    assert_int_equal(s.engine.report.chosen, 1);
    expect_ok(session_change(&s, &c));
    assert_true(c.is_idle); /* it is what runs */
    c.rank = 1;
    c.known = &first;
    expect_ok(session_change(&s, &c));
    assert_true(!c.is_idle && c.was_planned);
    assert_int_equal(s.engine.report.chosen, 0);
    assert_int_equal(s.engine.forecast.arena_bytes, before.arena_bytes);
    assert_int_equal(s.engine.forecast.host_bytes, before.host_bytes);
    c.rank = 2;
    c.known = NULL;
    c.limits.n_bytes[TIER_DEVICE] = INT64_MAX; /* everything fits: there is one plan */
    assert_int_equal(session_change(&s, &c), ERR_CONFIG);
    assert_non_null(strstr(status_message(), "but 1 plan was found"));
    assert_false(c.is_lost);
    assert_int_equal(s.engine.forecast.arena_bytes, before.arena_bytes);
    loader_stop(s.loader);
    session_close(&s);
    config_free(cfg);
    pool_release(&pool);
}

/* Searches beside the arenas: the forecast counts what they hold. */
static void memory_for_planning_is_counted(void **state)
{
    static const char *const more[] = {"plan_trials=1", "plan_trials=2"};
    int64_t counted[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct config *cfg;
        struct session s;
        open_session(&scratch, budget, &more[i], 1, &cfg, &s);
        counted[i] = s.engine.work.ahead_bytes;
        session_close(&s);
        config_free(cfg);
    }
    assert_int_equal(counted[0], 0);
    assert_true(counted[1] > 0);
}

/* Steps that take so long, with the plan that runs, until something is wanted. */
static enum trials_wish pretend(struct plan_trials *t, double seconds)
{
    enum trials_wish wish = TRIALS_NONE;
    while (wish == TRIALS_NONE)
        wish = plan_trials_step(t, seconds, N_STEPS);
    return wish;
}

static void open_running(const char *setting, struct config **cfg, struct session *s)
{
    open_session(&scratch, budget, &setting, 1, cfg, s);
    expect_ok(session_data(s));
    expect_ok(session_start(s));
    expect_ok(session_start_loader(s, false));
}

static void close_running(struct config *cfg, struct session *s)
{
    loader_stop(s->loader);
    session_close(s);
    config_free(cfg);
}

/* What is tried is what the search has found: of plans that fit with their addresses, too, none is
 * searched for again. */
static void nor_does_a_plan_that_was_found(void **state)
{
    struct trials_record r = {0};
    struct plan_trials_run x;
    struct config *cfg;
    struct session s;
    int n_planned = 0;
    (void)state;
    open_running("plan_trials=3", &cfg, &s);
    const struct search_report found = s.engine.report;
    plan_trials_run_init(&x, &s);
    assert_int_equal(x.n_listed, found.n_findings);
    for (int i = 1; i < 3; i++) {
        expect_ok(plan_trials_run_follow(&x, &s, pretend(&x.trials, 1), &r));
        assert_true(r.changed);
        if (r.was_planned)
            assert_true(s.engine.forecast.step_s == found.findings[i].seconds);
        n_planned += r.was_planned;
    }
    assert_true(n_planned > 0);
    plan_trials_run_release(&x);
    close_running(cfg, &s);
}

/* To the third, back to the first, and to the second for good, which runs as it did. */
static void the_way_back_takes_no_search(void **state)
{
    static const double seconds[] = {3, 1, 2, 2, 1, 3};
    struct trials_record r = {0};
    struct plan_trials_run x;
    struct config *cfg;
    struct session s;
    (void)state;
    open_running("plan_trials=3", &cfg, &s);
    plan_trials_run_init(&x, &s);
    for (int i = 0; i < 6; i++) {
        expect_ok(plan_trials_run_follow(&x, &s, pretend(&x.trials, seconds[i]), &r));
        assert_true(r.changed && (r.was_planned || i < 2));
    }
    assert_int_equal(r.rank, 2);
    assert_true(r.is_settled && r.was_planned);
    assert_true(s.engine.forecast.step_s == x.trials.tried[1].planned_s);
    assert_int_equal(s.engine.report.chosen, 1);
    plan_trials_run_release(&x);
    close_running(cfg, &s);
}

/* The first and the third are close; the round between them is by the decisions of the first one.
 */
static void nor_does_another_round(void **state)
{
    static const double seconds[] = {1, 1.02, 1.001, 1.001, 1.02, 1, 1, 1, 1, 1, 1, 1, 1};
    static const int ranks[] = {2, 3, 3, 2, 1, 1, 3, 3, 1, 1, 3, 3, 1};
    struct trials_record r = {0};
    struct plan_trials_run x;
    struct config *cfg;
    struct session s;
    (void)state;
    open_running("plan_trials=3", &cfg, &s);
    plan_trials_run_init(&x, &s);
    for (size_t i = 0; i < ARRAY_LEN(ranks); i++) {
        expect_ok(plan_trials_run_follow(&x, &s, pretend(&x.trials, seconds[i]), &r));
        assert_true(r.changed && !r.is_settled);
        assert_int_equal(r.rank, ranks[i]);
        assert_true(r.was_planned || i < 2);
        assert_int_equal(s.engine.report.chosen, r.rank - 1);
        assert_true(s.engine.forecast.step_s == x.trials.tried[r.rank - 1].planned_s);
    }
    r = (struct trials_record){0};
    expect_ok(plan_trials_run_follow(&x, &s, pretend(&x.trials, 1), &r));
    assert_true(r.is_settled && !r.changed);
    plan_trials_run_release(&x);
    close_running(cfg, &s);
}

/* Times that are measured after a search may change the order: what runs is then the plan that is
 * asked for, and the one that has taken its place is tried instead. */
static void a_plan_that_runs_is_not_its_own_trial(void **state)
{
    struct trials_record r = {0};
    struct plan_trials_run x;
    struct config *cfg;
    struct session s;
    (void)state;
    open_running("plan_rank=2", &cfg, &s);
    plan_trials_run_init(&x, &s);
    plan_trials_init(&x.trials, &s.engine.report, 2, s.engine.forecast.step_s);
    assert_int_equal(s.engine.report.chosen, 1);
    expect_ok(plan_trials_run_follow(&x, &s, pretend(&x.trials, 1), &r));
    assert_true(r.changed && !r.is_settled);
    assert_int_equal(s.engine.report.chosen, 0);
    assert_int_equal(x.trials.n_tried, 2);
    plan_trials_run_release(&x);
    close_running(cfg, &s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_one_plan),
        cmocka_unit_test(steps_after_other_things_do_not_count),
        cmocka_unit_test(updates_that_are_pending_are_made_first),
        cmocka_unit_test(another_budget_ends_the_trials),
        cmocka_unit_test(the_way_back_takes_no_search),
        cmocka_unit_test(nor_does_another_round),
        cmocka_unit_test(nor_does_a_plan_that_was_found),
        cmocka_unit_test(where_everything_fits_nothing_is_tried),
        cmocka_unit_test(a_session_changes_to_the_plan_of_a_rank),
        cmocka_unit_test(a_plan_that_runs_is_not_its_own_trial),
        cmocka_unit_test(memory_for_planning_is_counted),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
