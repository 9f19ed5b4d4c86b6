/* A run whose updates are made in the next step is, from outside, the run that makes them at once:
 * the same losses, evaluations, checkpoints and resumed runs. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "support/train_session.h"

enum { N_STEPS = 9, MOST_EVALS = 8, STOP_AFTER = 4 };

struct seen {
    double losses[N_STEPS], evals[MOST_EVALS];
    uint64_t digest; /* of everything that outlives a step, at the end */
    int n_losses, n_evals;
    int stop_after; /* 0: nobody stops it */
    volatile sig_atomic_t stop;
};

static enum status on_step(void *user, const struct step_record *r)
{
    struct seen *x = user;
    assert_in_range(r->step, 1, N_STEPS);
    x->losses[r->step - 1] = r->loss;
    x->n_losses++;
    if (r->step == x->stop_after)
        x->stop = SIGINT;
    return OK;
}

static enum status on_eval(void *user, const struct eval_record *r)
{
    struct seen *x = user;
    assert_true(x->n_evals < MOST_EVALS);
    x->evals[x->n_evals++] = r->result.loss;
    return OK;
}

/* By name: homes differ, and with them the order. */
static uint64_t digest_of(const struct engine *e)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < e->work.storage.entries.n; i++) {
        const struct storage_entry *entry = &e->work.storage.entries.items[i];
        const unsigned char *p = executor_storage_pointer(e->executor, entry);
        uint64_t h = 1469598103934665603u;
        if (entry->kind == MEMORY_STAGING)
            continue;
        for (const char *c = entry->name; *c; c++)
            h = (h ^ (unsigned char)*c) * 1099511628211u;
        for (int64_t k = 0; k < entry->n_bytes; k++)
            h = (h ^ p[k]) * 1099511628211u;
        sum += h;
    }
    return sum;
}

/* What a search would have chosen on a device with a link. */
static void defer_updates(struct engine *e)
{
    e->settings.decisions = (struct decisions){.n = {[EXTENT_STATES] = EXTENT_WHOLE,
                                                     [EXTENT_GRADIENTS] = 1,
                                                     [EXTENT_WEIGHTS] = EXTENT_WHOLE},
                                               .defer_updates = true,
                                               .ring_bytes = 32 << 10};
    expect_ok(workload_decide(&e->work, &e->settings.decisions));
    expect_ok(workload_emit(&e->work));
    assert_non_null(program_section(e->work.stages[0].program, "finish"));
}

static enum status train(const struct scratch *s, bool deferred, const char *extra, struct seen *x)
{
    char path[SCRATCH_PATH], output[SCRATCH_PATH + 32];
    (void)snprintf(output, sizeof(output), "output_dir=%s", scratch_path(s, "out", path));
    const char *overrides[] = {output,
                               extra,
                               "model_name_or_path=tests/golden/llama",
                               "max_seq_length=24",
                               "per_device_train_batch_size=2",
                               "max_grad_norm=0.1",
                               "learning_rate=1e-2",
                               "max_steps=9",
                               "warmup_steps=3", /* every step has a learning rate of its own */
                               "datasets.0.type=synthetic",
                               "datasets.0.n_tokens=4000",
                               "val_set_size=0.1",
                               "eval_strategy=steps",
                               "eval_steps=2",
                               "eval_max_batches=2",
                               "save_steps=3",
                               "device=cpu",
                               "log_format=quiet",
                               "report_to=none"};
    struct config *cfg;
    struct session session;
    struct train_result result;
    struct train_observer observer = {.user = x, .on_step = on_step, .on_eval = on_eval};
    struct train_options o = {.observers = &observer, .n_observers = 1, .stop = &x->stop};
    expect_ok(config_load(&cfg, NULL, overrides, ARRAY_LEN(overrides)));
    expect_ok(config_resolve(cfg, 1));
    expect_ok(
        session_open(&session, cfg,
                     &(struct session_options){.train = true, .evaluate = true, .untimed = true}));
    if (deferred)
        defer_updates(&session.engine);
    expect_ok(session_data(&session));
    expect_ok(session_start(&session));
    enum status status = train_session(&session, &o, &result);
    x->digest = digest_of(&session.engine);
    train_result_release(&result);
    session_close(&session);
    config_free(cfg);
    return status;
}

static void expect_same(const struct seen *want, const struct seen *got)
{
    assert_int_equal(got->n_evals, want->n_evals);
    assert_memory_equal(got->losses, want->losses, sizeof(want->losses));
    assert_memory_equal(got->evals, want->evals, (size_t)want->n_evals * sizeof(*want->evals));
    assert_true(got->digest == want->digest);
}

static void the_run_is_the_same_from_outside(void **state)
{
    (void)state;
    struct scratch s;
    struct seen plain = {0}, deferred = {0};
    scratch_init(&s);
    expect_ok(train(&s, false, "seed=1", &plain));
    scratch_release(&s);
    assert_int_equal(plain.n_losses, N_STEPS);
    assert_true(plain.n_evals >= 4 && plain.losses[0] != plain.losses[1]);
    scratch_init(&s);
    expect_ok(train(&s, true, "seed=1", &deferred));
    expect_same(&plain, &deferred);
    scratch_release(&s);
}

/* Stopped between two evaluations, where updates are pending; then on from its checkpoint, with
 * updates at once and deferred. */
static void a_run_that_was_stopped_goes_on_exactly(void **state)
{
    (void)state;
    struct scratch s;
    struct seen plain = {0};
    scratch_init(&s);
    expect_ok(train(&s, false, "eval_strategy=no", &plain));
    scratch_release(&s);
    for (int deferred = 0; deferred <= 1; deferred++) {
        struct seen got = {.stop_after = STOP_AFTER};
        scratch_init(&s);
        assert_int_equal(train(&s, true, "eval_strategy=no", &got), ERR_INTERRUPTED);
        assert_int_equal(got.n_losses, STOP_AFTER);
        got.stop_after = 0;
        got.stop = 0;
        expect_ok(train(&s, deferred, "resume_from_checkpoint=auto", &got));
        assert_memory_equal(got.losses, plain.losses, sizeof(plain.losses));
        assert_true(got.digest == plain.digest);
        scratch_release(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_run_is_the_same_from_outside),
        cmocka_unit_test(a_run_that_was_stopped_goes_on_exactly),
    };
    log_set_level(LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
