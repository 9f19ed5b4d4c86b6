/* Keys of predictive phases: when a jump is tried, how far it goes, what it goes by, what becomes
 * of it. Plain SGD at a small rate goes down a path that is nearly straight: jumps along it help.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "keys/keys.h"
#include "support/trial.h"

/* A run of 24 steps: Warmup 4, Full 5, a jump, Correct 5, Full 5, a jump. */
#define PLAIN "optim=sgd", "learning_rate=0.1", "max_steps=24"
#define PHASES                                                                                     \
    PLAIN, "predictive_phases=linear", "phase_warmup_steps=4", "full_steps=5", "snapshot_count=3", \
        "snapshot_steps=2", "probe_batches=4", "max_predict_steps=20"

static struct snug_phases run(struct trial *t, const char *const *keys)
{
    struct snug_train_result r;
    struct snug_run *run = trial_train_open(t, keys);
    snug_run_result(run, &r);
    struct snug_phases phases = r.phases;
    trial_close(run);
    return phases;
}

#define RUN(t, ...) run(t, OVERRIDES(__VA_ARGS__))

/* The first step whose loss is another; 0: none. */
static int64_t first_other(const struct trial *a, const struct trial *b)
{
    assert_int_equal(a->n_steps, b->n_steps);
    for (int i = 0; i < a->n_steps; i++) {
        if (a->steps[i].loss != b->steps[i].loss)
            return a->steps[i].step;
    }
    return 0;
}

void key_predictive_phases(void)
{
    struct trial plain, t[3];
    assert_false(RUN(&plain, PLAIN).has_phases);
    static const char *const methods[] = {
        "predictive_phases=linear", "predictive_phases=least_squares", "predictive_phases=dmd"};
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        struct snug_phases p = RUN(&t[i], PHASES, methods[i]);
        assert_true(p.has_phases && p.n_accepted > 0 && p.share > 0);
        assert_true(first_other(&plain, &t[i]) >= 10);
    }
    assert_true(first_other(&t[0], &t[1]) > 0);
    assert_true(first_other(&t[0], &t[2]) > 0);
    assert_true(first_other(&t[1], &t[2]) > 0);
}

void key_phase_warmup_steps(void)
{
    struct trial plain, t;
    TRAIN(&plain, PLAIN);
    RUN(&t, PHASES, "phase_warmup_steps=7");
    assert_int_equal(first_other(&plain, &t), 13);
    RUN(&t, PHASES, "phase_warmup_steps=0");
    assert_int_equal(first_other(&plain, &t), 6);
    REFUSED("phase_warmup_steps is of predictive phases", "phase_warmup_steps=7");
}

void key_full_steps(void)
{
    struct trial plain, t;
    TRAIN(&plain, PLAIN);
    RUN(&t, PHASES, "full_steps=8");
    assert_int_equal(first_other(&plain, &t), 13);
    REFUSED("full_steps is 4, and 3 snapshots every 2 steps need more than 4", PHASES,
            "full_steps=4");
}

void key_max_predict_steps(void)
{
    struct trial t;
    struct snug_phases p = RUN(&t, PHASES, "max_predict_steps=3");
    assert_true(p.n_accepted > 0 && p.n_jumped <= 3.0 * (double)p.n_accepted);
    p = RUN(&t, PHASES, "max_steps=9");
    assert_int_equal(p.n_accepted, 1);
    assert_true(p.n_jumped == 10); /* 20 times the square of 0.7 is less than the shortest */
    assert_true(RUN(&t, PHASES, "max_steps=9", "max_predict_steps=40").n_jumped == 19);
}

/* With one step of Correct the second jump comes four steps earlier. */
void key_correct_steps(void)
{
    struct trial a, b;
    struct snug_phases p = RUN(&a, PHASES, "max_steps=15");
    assert_int_equal(p.n_accepted + p.n_rejected, 1);
    p = RUN(&b, PHASES, "max_steps=15", "correct_steps=1");
    assert_int_equal(p.n_accepted + p.n_rejected, 2);
}

/* Host memory of one plan is this much more than of another, up to an alignment. */
static void expect_more(const struct trial *b, const struct trial *a, int64_t n_bytes)
{
    enum { ALIGNMENT = 256 };
    int64_t more = b->plan.host_breakdown[SNUG_MEMORY_OPTIMIZER] -
                   a->plan.host_breakdown[SNUG_MEMORY_OPTIMIZER];
    assert_in_range(more, n_bytes - ALIGNMENT, n_bytes + ALIGNMENT);
}

void key_snapshot_count(void)
{
    struct trial a, b;
    PLAN(&a, PHASES);
    PLAN(&b, PHASES, "full_steps=20", "snapshot_count=5");
    expect_more(&b, &a, 2 * (int64_t)sizeof(float) * a.plan.n_params);
    PLAN(&b, PLAIN);
    assert_int_equal(b.plan.host_breakdown[SNUG_MEMORY_OPTIMIZER], 0);
    REFUSED("least_squares goes by 3 snapshots", PHASES, "snapshot_count=2",
            "predictive_phases=least_squares");
}

/* Other steps to go by: the same place where the jump is tried, another where it leads to. */
void key_snapshot_steps(void)
{
    struct trial a, b;
    RUN(&a, PHASES);
    RUN(&b, PHASES, "snapshot_steps=1");
    assert_int_equal(first_other(&a, &b), 10);
    REFUSED("need more than", PHASES, "snapshot_steps=3");
}

void key_probe_batches(void)
{
    struct trial a, b;
    PLAN(&a, PHASES);
    PLAN(&b, PHASES, "probe_batches=12");
    int64_t batch = 2 * TRIAL_BATCH * TRIAL_LENGTH * (int64_t)sizeof(int32_t);
    expect_more(&b, &a, 8 * (batch + 2 * (int64_t)sizeof(double)));
    REFUSED("probe_batches is 100, and the training data has 10 batches", PHASES, trial_text(),
            "probe_batches=100");
}

/* What no jump reaches is plain training, to the bit. */
void key_jump_z(void)
{
    struct trial plain, t;
    TRAIN(&plain, PLAIN);
    struct snug_phases p = RUN(&t, PHASES, "jump_z=1000");
    assert_true(p.n_accepted == 0 && p.n_rejected == 2 && trial_same_losses(&plain, &t));
    assert_true(RUN(&t, PHASES, "jump_z=0").n_accepted > 0);
}

/* No slope stands out by a million of its errors, but those of weights that never moved. */
void key_jump_shrinkage(void)
{
    struct trial plain, t;
    TRAIN(&plain, PLAIN);
    struct snug_phases p = RUN(&t, PHASES, "predictive_phases=least_squares", "jump_shrinkage=0");
    assert_true(p.n_accepted > 0);
    double far = t.steps[9].loss - plain.steps[9].loss;
    RUN(&t, PHASES, "predictive_phases=least_squares", "jump_shrinkage=50");
    double near = t.steps[9].loss - plain.steps[9].loss;
    assert_true(far < 0 && near > far && near < -0.001 * far);
    REFUSED("jump_shrinkage belongs to", PHASES, "jump_shrinkage=1");
}

/* The jump leads to the same place; the step after it is another. */
void key_jump_momentum(void)
{
    struct trial a, b;
    const char *adamw = "optim=adamw", *slow = "learning_rate=1e-3";
    assert_int_equal(RUN(&a, PHASES, adamw, slow, "max_steps=12").n_accepted, 1);
    RUN(&b, PHASES, adamw, slow, "max_steps=12", "jump_momentum=zero");
    assert_int_equal(first_other(&a, &b), 11);
    REFUSED("jump_momentum: zero is for the moments", PHASES, "jump_momentum=zero");
}

/* Without a learning rate losses are noise: some are above their mean. */
void key_divergence_sigma(void)
{
    struct trial t;
#define NOISE                                                                               \
    PHASES, "learning_rate=0", "max_steps=64", "phase_warmup_steps=57", "snapshot_count=2", \
        "snapshot_steps=1", "full_steps=2", "jump_z=1000"
    assert_int_equal(RUN(&t, NOISE, "divergence_sigma=1000").n_withheld, 0);
    assert_true(RUN(&t, NOISE, "divergence_sigma=1e-9").n_withheld > 0);
}
