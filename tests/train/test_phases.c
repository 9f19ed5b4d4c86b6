/* Runs in predictive phases: a jump that is rejected leaves every bit, one that is accepted lowers
 * the loss, a run that was stopped goes on as it would have, memory is what was planned. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "support/apart_device.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "support/train_session.h"

enum { MOST_STEPS = 80, MOST_MORE = 16 };

static const char config_text[] =
    "model: {model_type: llama, vocab_size: 257, hidden_size: 16, intermediate_size: 32,"
    " num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1,"
    " max_position_embeddings: 64}\n"
    "tokenizer: bytes\n"
    "datasets: [{type: synthetic, n_tokens: 9000}]\n"
    "max_seq_length: 24\n"
    "per_device_train_batch_size: 2\n"
    "learning_rate: 1e-3\n"
    "lr_scheduler_type: constant\n"
    "max_steps: 24\n"
    "num_threads: 1\n"
    "device: cpu\n"
    "save_strategy: \"no\"\n"
    "report_to: none\n";

/* Warmup 4, Full 6, a jump after step 10; Correct 3, Full 6, a jump after step 19. */
#define PHASES                                                                             \
    "predictive_phases=linear", "phase_warmup_steps=4", "full_steps=6", "correct_steps=3", \
        "snapshot_count=3", "snapshot_steps=2", "probe_batches=3"

struct seen {
    int n_steps, n_jumps;
    double losses[MOST_STEPS]; /* by step */
    struct jump_record jumps[16];
    const char *phases[MOST_STEPS];
    struct phase_totals totals;
    int64_t host_bytes, host_predicted;
    struct scratch *scratch;
    int64_t ask_after; /* another budget, after this step */
    int n_changed;
};

static enum status on_step(void *user, const struct step_record *r)
{
    struct seen *s = user;
    assert_in_range(r->step, 1, MOST_STEPS - 1);
    s->losses[r->step] = r->loss;
    s->phases[r->step] = r->phase;
    s->n_steps++;
    assert_int_equal(r->arena_bytes, r->arena_predicted);
    if (r->step == s->ask_after)
        scratch_write_text(s->scratch, "out/BUDGET", "id-1\ndevice_memory=auto\n");
    return OK;
}

static enum status on_jump(void *user, const struct jump_record *r)
{
    struct seen *s = user;
    assert_in_range(s->n_jumps, 0, 15);
    s->jumps[s->n_jumps++] = *r;
    return OK;
}

static enum status on_budget(void *user, const struct budget_record *r)
{
    ((struct seen *)user)->n_changed += r->changed;
    return OK;
}

static void run_in(struct seen *seen, const char *const *more)
{
    char path[SCRATCH_PATH], out[SCRATCH_PATH + 16];
    const char *overrides[MOST_MORE + 1] = {out};
    struct train_observer observer = {
        .user = seen, .on_step = on_step, .on_jump = on_jump, .on_budget = on_budget};
    struct train_result result;
    struct config *cfg;
    struct session s;
    size_t n = 1;
    (void)snprintf(out, sizeof(out), "output_dir=%s/out", seen->scratch->folder);
    for (; more[n - 1]; n++) {
        assert_in_range(n, 1, MOST_MORE);
        overrides[n] = more[n - 1];
    }
    scratch_write_text(seen->scratch, "tiny.yaml", config_text);
    expect_ok(config_load(&cfg, scratch_path(seen->scratch, "tiny.yaml", path), overrides, n));
    expect_ok(config_resolve(cfg, 1));
    expect_ok(session_open(&s, cfg, &(struct session_options){.train = true}));
    expect_ok(session_data(&s));
    expect_ok(session_start(&s));
    expect_ok(train_session(&s, &(struct train_options){.observers = &observer, .n_observers = 1},
                            &result));
    seen->totals = result.phases;
    seen->host_bytes = result.host_bytes;
    seen->host_predicted = s.engine.forecast.host_bytes;
    train_result_release(&result);
    session_close(&s);
    config_free(cfg);
}

/* In a folder that goes with it. */
static void run(struct seen *seen, const char *const *more)
{
    struct scratch scratch;
    int64_t ask_after = seen->ask_after;
    scratch_init(&scratch);
    *seen = (struct seen){.scratch = &scratch, .ask_after = ask_after};
    run_in(seen, more);
    scratch_release(&scratch);
}

#define RUN(seen, ...) run(seen, (const char *const[]){__VA_ARGS__, NULL})

static void expect_same_losses(const struct seen *a, const struct seen *b, const char *what)
{
    for (int i = 1; i < MOST_STEPS; i++) {
        if (a->losses[i] != b->losses[i])
            fail_msg("%s: step %d: %.17g and %.17g", what, i, a->losses[i], b->losses[i]);
    }
}

/* ---- rejected -------------------------------------------------------------------------------- */

static void rejected_jumps_leave_every_bit(void **state)
{
    static const char *const cases[][2] = {
        {"bf16=false", "optim=adamw"},        {"bf16=true", "gradient_accumulation_steps=2"},
        {"bf16=true", "master_dtype=24bit"},  {"bf16=true", "master_dtype=bf16"},
        {"fp16=true", "ema_decay=0"},         {"ema_decay=0.9", "lookahead_steps=3"},
        {"adapter=lora", "optim=adamw_8bit"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct seen plain = {0}, phases = {0};
        RUN(&plain, cases[i][0], cases[i][1]);
        assert_null(plain.phases[1]);
        RUN(&phases, PHASES, "jump_z=1000", cases[i][0], cases[i][1]);
        assert_int_equal(phases.totals.n_rejected, 2);
        assert_int_equal(phases.jumps[0].n_tried, 3);
        assert_true(phases.jumps[0].difference != 0);
        expect_same_losses(&plain, &phases, cases[i][0]);
    }
}

/* Weights and states away from the device, updates deferred; memory that the host cannot address.
 */
static void wherever_the_weights_are(void **state)
{
    struct seen plain = {0}, phases = {0}, moved = {0};
    (void)state;
    RUN(&plain, "bf16=true");
    RUN(&phases, "bf16=true", PHASES);
    assert_true(phases.totals.n_accepted > 0);
    cpu_opens_apart = true;
    RUN(&moved, "bf16=true", PHASES, "jump_z=1000", "offload_optimizer=true", "offload_param=true");
    expect_same_losses(&plain, &moved, "rejected");
    RUN(&moved, "bf16=true", PHASES, "offload_optimizer=true");
    expect_same_losses(&phases, &moved, "accepted");
    cpu_opens_apart = false;
}

/* ---- accepted -------------------------------------------------------------------------------- */

static void accepted_jumps_lower_the_loss(void **state)
{
    static const char *const methods[] = {
        "predictive_phases=linear", "predictive_phases=least_squares", "predictive_phases=dmd"};
    struct seen plain = {0};
    (void)state;
    RUN(&plain, "max_steps=24");
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        struct seen s = {0};
        RUN(&s, PHASES, methods[i]);
        assert_true(s.totals.n_accepted > 0);
        const struct jump_record *j = &s.jumps[0];
        assert_int_equal(j->step, 10);
        assert_int_equal(j->outcome, JUMP_ACCEPTED);
        assert_true(j->difference < -2 * j->error && j->length > 0 && j->length <= j->n_steps);
        print_message("%s: %g steps, probe loss %.4f %+.4f\n", methods[i], j->length, j->probe_loss,
                      j->difference);
        for (int k = 1; k <= 10; k++)
            assert_true(s.losses[k] == plain.losses[k]);
        assert_true(s.losses[24] < plain.losses[24]);
        assert_string_equal(s.phases[4], "warmup");
        assert_string_equal(s.phases[10], "full");
        assert_string_equal(s.phases[11], "correct");
        assert_string_equal(s.phases[14], "full");
    }
}

/* A loss that is hardly above what is expected is critical here: what follows is Full from where
 * the jump began. */
static void a_jump_that_does_harm_is_undone(void **state)
{
    struct seen s = {0};
    (void)state;
    RUN(&s, PHASES, "phase_warmup_steps=60", "max_steps=75", "divergence_sigma=0.02", "jump_z=0",
        "learning_rate=1e-6", "correct_steps=6");
    assert_int_equal(s.n_jumps, (int)(s.totals.n_accepted + s.totals.n_rejected +
                                      s.totals.n_withheld + s.totals.n_undone));
    assert_true(s.totals.n_undone > 0);
    for (int i = 1; i < s.n_jumps; i++) {
        if (s.jumps[i].outcome != JUMP_UNDONE)
            continue;
        assert_int_equal(s.jumps[i - 1].outcome, JUMP_ACCEPTED);
        if (s.jumps[i].step < 75)
            assert_string_equal(s.phases[s.jumps[i].step + 1], "full");
    }
}

/* ---- going on -------------------------------------------------------------------------------- */

/* Stopped among the snapshots of Full and in Correct. */
static void a_resumed_run_jumps_as_it_would_have(void **state)
{
    struct seen whole = {0};
    struct scratch scratch;
    (void)state;
    RUN(&whole, PHASES);
    assert_true(whole.totals.n_accepted > 0);
    scratch_init(&scratch);
    struct seen parts = {.scratch = &scratch};
    run_in(&parts, (const char *const[]){PHASES, "max_steps=8", "save_strategy=steps", NULL});
    run_in(&parts, (const char *const[]){PHASES, "max_steps=12", "save_strategy=steps",
                                         "resume_from_checkpoint=last", NULL});
    run_in(&parts,
           (const char *const[]){PHASES, "max_steps=24", "resume_from_checkpoint=last", NULL});
    expect_same_losses(&whole, &parts, "resumed");
    assert_int_equal(parts.totals.n_accepted, whole.totals.n_accepted);
    assert_int_equal(parts.totals.n_rejected, whole.totals.n_rejected);
    run_in(&parts,
           (const char *const[]){"predictive_phases=none", "allow_resume_changes=true",
                                 "max_steps=14", "resume_from_checkpoint=checkpoint-8", NULL});
    assert_false(parts.totals.has_phases);
    scratch_release(&scratch);
}

/* Other programs in the middle of the snapshots: they and the probe batches come along. */
static void snapshots_outlive_a_change_of_budgets(void **state)
{
    struct seen plain = {0}, changed = {.ask_after = 8};
    (void)state;
    RUN(&plain, PHASES);
    RUN(&changed, PHASES);
    assert_int_equal(changed.n_changed, 1);
    expect_same_losses(&plain, &changed, "budget");
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int64_t host_bytes(const char *const *more, int64_t *n_trained)
{
    struct config *cfg;
    struct session s;
    char path[SCRATCH_PATH];
    struct scratch scratch;
    size_t n = 0;
    scratch_init(&scratch);
    scratch_write_text(&scratch, "tiny.yaml", config_text);
    while (more[n])
        n++;
    expect_ok(config_load(&cfg, scratch_path(&scratch, "tiny.yaml", path), more, n));
    expect_ok(config_resolve(cfg, 1));
    expect_ok(session_open(&s, cfg, &(struct session_options){.train = true}));
    int64_t n_bytes = s.engine.forecast.host_bytes;
    *n_trained = s.engine.forecast.n_trained;
    assert_true(s.engine.forecast.fits);
    session_close(&s);
    config_free(cfg);
    scratch_release(&scratch);
    return n_bytes;
}

/* The host's arena is larger by the snapshots, the part that moves, the batches and their losses;
 * the device's is as it was. */
static void snapshots_and_probes_are_planned_to_the_byte(void **state)
{
    int64_t n_trained;
    (void)state;
    int64_t plain = host_bytes((const char *const[]){"max_steps=24", NULL}, &n_trained);
    int64_t phases = host_bytes((const char *const[]){PHASES, NULL}, &n_trained);
    int64_t snapshots = 3 * 4 * n_trained + 4 * (1 << 18);
    int64_t batches = 3 * (2 * 2 * 24 * 4 + 2 * 8), outputs = phases - plain - snapshots - batches;
    assert_in_range(outputs, 0, 1024); /* alignment, and what the probe's program gives */
    struct seen s = {0};
    RUN(&s, PHASES);
    assert_true(s.host_bytes <= s.host_predicted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rejected_jumps_leave_every_bit),
        cmocka_unit_test(wherever_the_weights_are),
        cmocka_unit_test(accepted_jumps_lower_the_loss),
        cmocka_unit_test(a_jump_that_does_harm_is_undone),
        cmocka_unit_test(a_resumed_run_jumps_as_it_would_have),
        cmocka_unit_test(snapshots_outlive_a_change_of_budgets),
        cmocka_unit_test(snapshots_and_probes_are_planned_to_the_byte),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
