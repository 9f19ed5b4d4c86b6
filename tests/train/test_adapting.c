/* Runs that adapt to what others have left of a device, as a made-up driver tells it: they give way
 * and take back with the same losses to the bit; or their micro-batch shrinks and grows while the
 * batch stays what it is. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "support/crowded_device.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "support/train_session.h"

enum { MOST_STEPS = 96, MOST_CHANGES = 8 };

/* ---- runs ------------------------------------------------------------------------------------ */

struct change {
    int64_t step, arena, batch, n_micro;
    bool changed, was_planned;
    char why[256];
};

struct watched {
    const struct scratch *scratch;
    struct session *session;
    int64_t needs; /* of the device, at first */
    int64_t left;  /* of it by others, while they are there */
    void (*after_step)(struct watched *w, int64_t step);
    int64_t n_units; /* of every step */
    struct change changes[MOST_CHANGES];
    int n_changes;
    double losses[MOST_STEPS];
    int64_t n_steps, first_step;
};

static enum status on_step(void *user, const struct step_record *r)
{
    struct watched *w = user;
    assert_int_equal(r->arena_bytes, r->arena_predicted);
    if (w->n_steps == 0)
        w->first_step = r->step;
    w->losses[w->n_steps++] = r->loss;
    if (w->n_units == 0)
        w->n_units = r->n_units;
    assert_int_equal(r->n_units, w->n_units);
    if (w->after_step)
        w->after_step(w, r->step);
    return OK;
}

static enum status on_budget(void *user, const struct budget_record *r)
{
    struct watched *w = user;
    assert_true(w->n_changes < MOST_CHANGES);
    struct change *c = &w->changes[w->n_changes++];
    *c = (struct change){.step = r->step,
                         .arena = r->forecast->arena_bytes,
                         .batch = r->batch,
                         .n_micro = r->n_micro,
                         .changed = r->changed,
                         .was_planned = r->was_planned};
    (void)snprintf(c->why, sizeof(c->why), "%s", r->why ? r->why : "");
    return OK;
}

static const char config_text[] =
    "model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 64,"
    " num_hidden_layers: 3, num_attention_heads: 2, num_key_value_heads: 1,"
    " max_position_embeddings: 96}\n"
    "tokenizer: bytes\n"
    "datasets: [{type: synthetic, n_tokens: 60000}]\n"
    "max_seq_length: 48\n"
    "per_device_train_batch_size: 8\n"
    "num_threads: 1\n"
    "device: cpu\n"
    "overwrite_output_dir: true\n"
    "save_strategy: \"no\"\n"
    "report_to: none\n";

static void open_session(struct watched *w, const char *const *more, struct session *s,
                         struct config **cfg)
{
    char path[SCRATCH_PATH], out[SCRATCH_PATH + 16];
    const char *overrides[24] = {out};
    size_t n = 1;
    (void)snprintf(out, sizeof(out), "output_dir=%s/out", w->scratch->folder);
    while (*more)
        overrides[n++] = *more++;
    scratch_write_text(w->scratch, "tiny.yaml", config_text);
    expect_ok(config_load(cfg, scratch_path(w->scratch, "tiny.yaml", path), overrides, n));
    expect_ok(config_resolve(*cfg, 1));
    expect_ok(session_open(s, *cfg, &(struct session_options){.train = true}));
    w->session = s;
    w->needs = s->engine.forecast.budget.needs[TIER_DEVICE];
}

static void run(struct watched *w, const char *const *more)
{
    struct train_observer observer = {.user = w, .on_step = on_step, .on_budget = on_budget};
    struct train_result result;
    struct config *cfg;
    struct session s;
    open_session(w, more, &s, &cfg);
    expect_ok(session_data(&s));
    expect_ok(session_start(&s));
    expect_ok(train_session(&s, &(struct train_options){.observers = &observer, .n_observers = 1},
                            &result));
    train_result_release(&result);
    session_close(&s);
    config_free(cfg);
}

#define RUN(w, ...) run(w, (const char *const[]){__VA_ARGS__, NULL})

/* The undisturbed run: bits are compared without sanitizers. */
#define RUN_PLAIN(w, ...)        \
    do {                         \
        if (!SNUG_ASAN)          \
            RUN(w, __VA_ARGS__); \
    } while (0)

static void expect_bits(const struct watched *w, const struct watched *plain)
{
    if (!SNUG_ASAN)
        assert_memory_equal(w->losses, plain->losses, sizeof(w->losses));
}

/* ---- giving way ------------------------------------------------------------------------------ */

/* After the sixth step others take so much that hardly anything is left beside the run. */
static void take_and_leave(struct watched *w, int64_t step)
{
    if (step == 5)
        assert_true(ahead_end(w->session->ahead));
    if (step == 6)
        crowded_leave(w->needs + w->needs / 100);
    if (step == 30)
        crowded_leave(crowded.total);
}

static void a_run_gives_way_and_takes_back(void **state)
{
    struct scratch scratch;
    (void)state;
    scratch_init(&scratch);
    struct watched plain = {.scratch = &scratch}, w = {.scratch = &scratch};
    crowded_begin((int64_t)1 << 30);
    RUN_PLAIN(&plain, "max_steps=96");
    w.after_step = take_and_leave;
    RUN(&w, "max_steps=96", "elastic=true", "elastic_cooldown=2");
    expect_bits(&w, &plain);
    assert_int_equal(plain.n_changes, 0);
    assert_int_equal(w.n_changes, 2);
    const struct change *less = &w.changes[0], *all = &w.changes[1];
    assert_true(less->changed && less->was_planned && less->step >= 6 && less->step < 30);
    assert_non_null(strstr(less->why, "emergency: only "));
    assert_true(less->arena + CROWDED_CONTEXT <= w.needs * 10 / 11);
    assert_true(all->changed && all->step >= 39);
    assert_non_null(strstr(all->why, "memory is back: "));
    assert_int_equal(all->arena + CROWDED_CONTEXT, w.needs);
    scratch_release(&scratch);
}

#define SMALL "max_steps=96", "model.num_hidden_layers=1"

static void take_and_leave_unplanned(struct watched *w, int64_t step)
{
    if (step == 6)
        crowded_leave(w->needs + w->needs / 100);
    if (step == 30)
        crowded_leave(crowded.total);
}

/* The same beside what else cuts a run into parts: each has to come along. */
#define EXPECT_SAME_WITH(...)                                                             \
    do {                                                                                  \
        struct scratch scratch;                                                           \
        scratch_init(&scratch);                                                           \
        struct watched plain = {.scratch = &scratch};                                     \
        struct watched w = {.scratch = &scratch, .after_step = take_and_leave_unplanned}; \
        crowded_begin((int64_t)1 << 30);                                                  \
        RUN_PLAIN(&plain, SMALL, __VA_ARGS__);                                            \
        RUN(&w, SMALL, "elastic=true", "elastic_cooldown=2", __VA_ARGS__);                \
        expect_same(&w, &plain);                                                          \
        scratch_release(&scratch);                                                        \
    } while (0)

static void expect_same(const struct watched *w, const struct watched *plain)
{
    expect_bits(w, plain);
    assert_int_equal(plain->n_changes, 0);
    assert_int_equal(w->n_changes, 2);
    assert_true(w->changes[0].changed && w->changes[1].changed);
    assert_int_equal(w->changes[1].arena + CROWDED_CONTEXT, w->needs);
}

/* Snapshots and probe batches outlive a change, and jumps are what they would have been. */
static void it_gives_way_in_predictive_phases(void **state)
{
    (void)state;
    EXPECT_SAME_WITH("predictive_phases=linear", "phase_warmup_steps=2", "full_steps=6",
                     "correct_steps=3", "snapshot_count=3", "snapshot_steps=2", "probe_batches=3");
}

static void it_gives_way_with_groups_of_micro_batches(void **state)
{
    (void)state;
    EXPECT_SAME_WITH("per_device_train_batch_size=2", "gradient_accumulation_steps=4",
                     "micro_batch_group=2", "max_grad_norm=1.0");
}

/* ---- micro-batches --------------------------------------------------------------------------- */

/* Nothing but the micro-batch can make it smaller. */
#define HELD                                                                         \
    "offload_optimizer=false", "offload_param=false", "activation_offloading=false", \
        "gradient_checkpointing=false", "max_steps=24", "dynamic_batch=true",        \
        "dynamic_batch_warmup=4", "dynamic_batch_every=4", "dynamic_batch_smooth=2"

/* What others leave when micro-batches of 4 are to take the share that dynamic_batch aims at: those
 * of 8 have to shrink, and what they have become is left alone. Workspaces of kernels differ from
 * machine to machine: of a fixed share of what 8 need, 4 may still be too many. */
static int64_t room_for_half(const struct scratch *scratch)
{
    static const char *const half[] = {HELD, "per_device_train_batch_size=4",
                                       "gradient_accumulation_steps=2", NULL};
    struct watched w = {.scratch = scratch};
    struct config *cfg;
    struct session s;
    open_session(&w, half, &s, &cfg);
    int64_t left = (int64_t)((double)w.needs / cfg->dynamic_batch_target);
    session_close(&s);
    config_free(cfg);
    return left;
}

static void take_half(struct watched *w, int64_t step)
{
    if (step == 5)
        crowded_leave(w->left);
    if (step == 13)
        crowded_leave(crowded.total);
}

static void expect_close(const struct watched *a, const struct watched *b)
{
    for (int64_t i = 0; i < a->n_steps; i++) {
        if (fabs(a->losses[i] - b->losses[i]) > 1e-4 * fabs(b->losses[i]))
            fail_msg("step %d: loss %.9g, with one micro-batch %.9g", (int)i + 1, a->losses[i],
                     b->losses[i]);
    }
}

/* Every step has the same number of labels (on_step), whatever it is cut into. */
static void micro_batches_follow_the_memory(void **state)
{
    struct scratch scratch;
    (void)state;
    scratch_init(&scratch);
    struct watched plain = {.scratch = &scratch}, w = {.scratch = &scratch};
    crowded_begin((int64_t)1 << 30);
    RUN(&plain, "max_steps=24");
    w.left = room_for_half(&scratch);
    assert_true(w.left < plain.needs);
    crowded_begin(plain.needs * 10 / 8);
    w.after_step = take_half;
    RUN(&w, HELD);
    assert_int_equal(w.n_changes, 2);
    const struct change *less = &w.changes[0], *more = &w.changes[1];
    assert_int_equal(less->step, 8);
    assert_true(less->changed && less->batch < 8);
    assert_int_equal(less->batch * less->n_micro, 8);
    assert_non_null(strstr(less->why, "dynamic_batch, to shrink: only "));
    assert_int_equal(more->step, 16);
    assert_true(more->changed && more->batch == 8 && more->n_micro == 1);
    expect_close(&w, &plain);
    assert_true(memcmp(w.losses, plain.losses, 24 * sizeof(double)) != 0);
    scratch_release(&scratch);
}

static void take_early(struct watched *w, int64_t step)
{
    (void)step;
    crowded_leave(w->left);
}

/* 24 batches of 8 sequences, and a few that are left out: an epoch. */
#define AN_EPOCH                                                                                   \
    "max_steps=-1", "num_train_epochs=1", "datasets.0.n_tokens=9555", "dataloader_drop_last=true", \
        "save_strategy=steps", "save_steps=10"

/* A run that is resumed goes on with the micro-batch it had, gives the bits that it would have
 * given, and is no longer or shorter: an epoch has the steps that it had when the run began. */
static void a_resumed_run_has_the_micro_batch_it_had(void **state)
{
    struct scratch scratch;
    (void)state;
    scratch_init(&scratch);
    struct watched w = {.scratch = &scratch}, again = {.scratch = &scratch};
    crowded_begin((int64_t)1 << 30);
    w.left = room_for_half(&scratch);
    w.after_step = take_early;
    RUN(&w, HELD, AN_EPOCH);
    assert_int_equal(w.n_changes, 1);
    assert_true(w.changes[0].batch < 8);
    assert_int_equal(w.n_steps, 24);
    RUN(&again, HELD, AN_EPOCH, "resume_from_checkpoint=checkpoint-10");
    assert_int_equal(again.first_step, 11);
    assert_int_equal(again.session ? again.n_changes : -1, 0);
    assert_int_equal(again.n_steps, 14);
    assert_memory_equal(again.losses, w.losses + 10, 14 * sizeof(double));
    scratch_release(&scratch);
}

static void ask_for_less(struct watched *w, int64_t step)
{
    char text[128];
    (void)snprintf(text, sizeof(text), "id-1\ndevice_memory=%lld\n", (long long)(w->needs * 3 / 4));
    if (step == 6)
        scratch_write_text(w->scratch, "out/BUDGET", text);
    if (step == 12)
        scratch_write_text(w->scratch, "out/BUDGET", "id-2\ndevice_memory=auto\n");
}

static void a_budget_that_is_asked_for_changes_it_too(void **state)
{
    struct scratch scratch;
    (void)state;
    scratch_init(&scratch);
    struct watched w = {.scratch = &scratch, .after_step = ask_for_less};
    crowded_begin((int64_t)1 << 30);
    RUN(&w, HELD, "dynamic_batch_every=1000");
    assert_int_equal(w.n_changes, 2);
    assert_true(w.changes[0].changed && w.changes[0].step == 6 && w.changes[0].batch < 8);
    assert_true(w.changes[1].changed && w.changes[1].batch == 8);
    scratch_release(&scratch);
}

/* Others take memory: it is the micro-batch that gives way, to a size that was planned for, and is
 * as large as before when they are gone. */
static void a_run_that_gives_way_may_do_so_by_its_micro_batch(void **state)
{
    struct scratch scratch;
    (void)state;
    scratch_init(&scratch);
    struct watched plain = {.scratch = &scratch}, w = {.scratch = &scratch};
    crowded_begin((int64_t)1 << 30);
    RUN_PLAIN(&plain, "max_steps=96");
    w.after_step = take_and_leave;
    RUN(&w, HELD, "max_steps=96", "dynamic_batch_every=1000", "elastic=true", "elastic_cooldown=2");
    assert_int_equal(w.n_changes, 2);
    const struct change *less = &w.changes[0], *all = &w.changes[1];
    assert_true(less->changed && less->batch < 8);
    assert_true(less->was_planned);
    assert_non_null(strstr(less->why, "emergency: only "));
    assert_true(all->changed && all->batch == 8 && all->was_planned);
    if (!SNUG_ASAN)
        expect_close(&w, &plain);
    scratch_release(&scratch);
}

static void ask_when_planned(struct watched *w, int64_t step)
{
    if (step == 4)
        assert_true(ahead_end(w->session->ahead));
    if (step > 4)
        ask_for_less(w, step);
}

/* Sizes that were planned for beside the run take no search. */
static void micro_batches_are_planned_beforehand(void **state)
{
    struct scratch scratch;
    (void)state;
    scratch_init(&scratch);
    struct watched w = {.scratch = &scratch, .after_step = ask_when_planned};
    crowded_begin((int64_t)1 << 30);
    RUN(&w, HELD, "dynamic_batch_every=1000", "elastic_budgets=auto");
    assert_int_equal(w.n_changes, 2);
    assert_true(w.changes[0].changed && w.changes[0].batch < 8 && w.changes[0].was_planned);
    assert_true(w.changes[1].changed && w.changes[1].batch == 8 && w.changes[1].was_planned);
    scratch_release(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_gives_way_and_takes_back),
        cmocka_unit_test(it_gives_way_in_predictive_phases),
        cmocka_unit_test(it_gives_way_with_groups_of_micro_batches),
        cmocka_unit_test(micro_batches_follow_the_memory),
        cmocka_unit_test(a_resumed_run_has_the_micro_batch_it_had),
        cmocka_unit_test(a_budget_that_is_asked_for_changes_it_too),
        cmocka_unit_test(a_run_that_gives_way_may_do_so_by_its_micro_batch),
        cmocka_unit_test(micro_batches_are_planned_beforehand),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
