/* Keys of the device and of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/alloc.h"
#include "base/file.h"
#include "keys/keys.h"
#include "support/scratch.h"
#include "support/trial.h"

/* ---- the device ------------------------------------------------------------------------------ */

void key_device(void)
{
    struct trial t;
    PLAN(&t, "device=cpu");
    assert_memory_equal(t.device, "cpu", 3);
    if (snug_env_require_gpu() != SNUG_OK) {
        REFUSED("device", "device=cuda");
        PLAN(&t, "device=auto");
        assert_memory_equal(t.device, "cpu", 3);
    }
}

void key_use_cpu(void)
{
    struct trial t;
    PLAN(&t, "device=auto", "use_cpu=true");
    assert_memory_equal(t.device, "cpu", 3);
    REFUSED("keep one", "device=cuda", "use_cpu=true");
}

static int n_nodes(const char *compile)
{
    int n = 0;
    char *text = GRAPH(compile);
    for (const char *at = text; (at = strstr(at, " = ")); at++)
        n++;
    snug_free(text);
    return n;
}

void key_compile(void)
{
    struct trial a, b;
    assert_true(n_nodes("compile=default") < n_nodes("compile=none"));
    assert_int_equal(n_nodes("compile=auto"), n_nodes("compile=default"));
    REFUSED("records and replays CUDA graphs", "compile=reduce-overhead");
    REFUSED("records and replays CUDA graphs", "compile=max-autotune");
    TRAIN(&a, "compile=default");
    TRAIN(&b, "compile=none");
    expect_within(a.steps[2].loss, b.steps[2].loss, 1e-4);
}

/* Every op that a step is made of repeats itself: nothing is refused, and so it is. */
void key_deterministic(void)
{
    struct trial a, b;
    TRAIN(&a, "deterministic=true", "num_threads=2");
    TRAIN(&b, "deterministic=true", "num_threads=2");
    assert_true(trial_same_losses(&a, &b));
    REFUSED("compile", "deterministic=true", "compile=max-autotune");
}

void key_num_threads(void)
{
    struct trial t;
    PLAN(&t, "num_threads=1");
    assert_non_null(strstr(t.device, "1 thread"));
    PLAN(&t, "num_threads=2");
    assert_non_null(strstr(t.device, "2 threads"));
}

/* ---- budgets --------------------------------------------------------------------------------- */

/* `key` of this many bytes. */
static const char *bytes(const char *key, int64_t n)
{
    static char text[64];
    (void)snprintf(text, sizeof(text), "%s=%lld", key, (long long)n);
    return text;
}

void key_device_memory(void)
{
    struct trial t, u;
    PLAN(&t, "seed=7");
    assert_false(t.plan.device_budget_given);
    PLAN(&u, bytes("device_memory", t.plan.device_needs));
    assert_true(u.plan.fits && u.plan.device_budget_given);
    assert_int_equal(u.plan.device_budget, t.plan.device_needs);
    TRAIN(&u, bytes("device_memory", t.plan.device_needs));
    assert_int_equal(u.steps[0].arena_bytes, t.plan.arena_bytes);
    TRAIN(&t, "seed=7");
    TRAIN(&u, "seed=7", bytes("device_memory", t.plan.device_needs * 3 / 4));
    assert_true(u.plan.fits && u.plan.device_needs <= t.plan.device_needs * 3 / 4);
    assert_int_equal(u.steps[0].arena_bytes, u.plan.arena_bytes);
    assert_true(trial_same_losses(&t, &u));
    REFUSED("does not fit: device memory", bytes("device_memory", 65536));
}

void key_host_memory(void)
{
    struct trial t, u;
    PLAN(&t, "seed=7");
    assert_false(t.plan.host_budget_given);
    PLAN(&u, bytes("host_memory", 2 * t.plan.host_needs));
    assert_true(u.plan.fits && u.plan.host_budget_given);
    assert_int_equal(u.plan.host_budget, 2 * t.plan.host_needs);
    PLAN(&u, bytes("host_memory", t.plan.host_needs / 2));
    assert_false(u.plan.fits);
    REFUSED("does not fit: host memory", bytes("host_memory", t.plan.host_needs / 2));
}

/* ---- what leaves the device ------------------------------------------------------------------ */

/* Blocks whose weights and activations are just large enough to be worth a copy, and steps enough
 * for one to see the updates of another. */
#define LARGE                                                                            \
    "model.hidden_size=256", "model.intermediate_size=512", "model.num_hidden_layers=2", \
        "max_seq_length=64", "per_device_train_batch_size=8", "max_steps=2"

#define HELD                                                                                  \
    "gradient_checkpointing=false", "activation_offloading=false", "offload_optimizer=false", \
        "offload_param=false"

/* `key` with a word for its value. */
static const char *word(const char *key, const char *value)
{
    static char texts[4][64];
    static int next;
    char *text = texts[next++ % 4];
    (void)snprintf(text, sizeof(texts[0]), "%s=%s", key, value);
    return text;
}

/* Bytes of a class on the host; the key of the optimizer's states speaks for gradients that wait
 * for their update too, and which of them leave depends on what is faster. */
static int64_t away_bytes(const struct trial *t, enum snug_memory what)
{
    int64_t n_bytes = t->plan.host_breakdown[what];
    return n_bytes +
           (what == SNUG_MEMORY_OPTIMIZER ? t->plan.host_breakdown[SNUG_MEMORY_GRADIENTS] : 0);
}

/* A key that keeps something in host memory: as asked, where that makes room for what does not fit,
 * and not at all where it says so. */
static void expect_offloading(const char *key, enum snug_memory what)
{
    struct trial held, away;
    TRAIN(&held, LARGE, HELD);
    TRAIN(&away, LARGE, HELD, word(key, "true"));
    assert_true(away.plan.arena_bytes < held.plan.arena_bytes);
    assert_true(away.plan.host_breakdown[what] > held.plan.host_breakdown[what]);
    assert_true(trial_same_losses(&held, &away));
    PLAN(&away, LARGE, HELD, word(key, "auto"));
    assert_int_equal(away.plan.arena_bytes, held.plan.arena_bytes);
    const char *budget = bytes("device_memory", held.plan.device_needs - 1);
    TRAIN(&away, LARGE, HELD, word(key, "auto"), budget);
    assert_true(away_bytes(&away, what) > away_bytes(&held, what));
    assert_true(trial_same_losses(&held, &away));
    REFUSED("it fits with", LARGE, HELD, budget);
}

void key_activation_offloading(void)
{
    expect_offloading("activation_offloading", SNUG_MEMORY_ACTIVATIONS);
}

/* What neither memory has room for. */
void key_disk_memory(void)
{
    struct trial t, u;
    const char *folder = trial_path("offload_folder", "offload");
    PLAN(&t, LARGE, folder, "offload_optimizer=disk", "disk_memory=3GiB");
    assert_int_equal(t.plan.disk_budget, INT64_C(3) << 30);
    assert_true(t.plan.fits && t.plan.disk_budget_given && t.plan.disk_bytes > 0);
    PLAN(&u, LARGE, folder, "offload_optimizer=disk", bytes("disk_memory", t.plan.disk_bytes - 1));
    assert_false(u.plan.fits);
    REFUSED("does not fit: disk memory", LARGE, folder, "offload_optimizer=disk",
            bytes("disk_memory", t.plan.disk_bytes - 1));
    REFUSED("no folder is named for it: set offload_folder", "disk_memory=3GiB");
}

/* Losses are those of the run that keeps everything in memory, and nothing stays in the folder. */
void key_offload_folder(void)
{
    struct trial t, u;
    char path[SCRATCH_PATH];
    const char *folder = trial_path("offload_folder", "offload");
    TRAIN(&t, LARGE);
    assert_true(t.plan.disk_bytes == 0 && !t.plan.disk_folder);
    TRAIN(&u, LARGE, folder, "offload_optimizer=disk");
    assert_true(u.plan.disk_breakdown[SNUG_MEMORY_OPTIMIZER] > 0);
    assert_true(u.plan.disk_written >= u.plan.disk_breakdown[SNUG_MEMORY_OPTIMIZER]);
    assert_true(u.plan.disk_read_rate > 0 && u.plan.disk_write_rate > 0);
    assert_true(trial_same_losses(&t, &u));
    (void)scratch_path(trials_scratch(), "offload", path);
    assert_int_equal(rmdir(path), 0); /* it was made, and is empty */
}

void key_offload_optimizer(void)
{
    expect_offloading("offload_optimizer", SNUG_MEMORY_OPTIMIZER);
    REFUSED("offload_optimizer=auto", LARGE, "offload_optimizer=false", "device_memory=9MiB");
}

void key_offload_param(void)
{
    expect_offloading("offload_param", SNUG_MEMORY_WEIGHTS);
}

/* Groups of micro-batches have the losses of one at a time; where nothing is away they gain
 * nothing, and take memory. */
void key_micro_batch_group(void)
{
    struct trial one, two, left_over;
    TRAIN(&one, "gradient_accumulation_steps=3");
    assert_int_equal(one.plan.micro_batch_group, 1);
    TRAIN(&two, "gradient_accumulation_steps=3", "micro_batch_group=3");
    assert_int_equal(two.plan.micro_batch_group, 3);
    assert_true(two.plan.arena_bytes > one.plan.arena_bytes);
    TRAIN(&left_over, "gradient_accumulation_steps=3", "micro_batch_group=2");
    assert_true(trial_same_losses(&one, &two) && trial_same_losses(&one, &left_over));
    REFUSED("but a step has 2 micro-batches", "gradient_accumulation_steps=2",
            "micro_batch_group=3");
}

/* A share of what a run needs in which there is more than one plan: plans are told apart by their
 * time, and on a busy machine one kernel's may hide the others'. */
static int64_t budget_with_a_choice(int64_t n_bytes)
{
    static const int percent[] = {67, 50, 75, 60, 85};
    for (size_t i = 0; i < ARRAY_LEN(percent); i++) {
        int64_t budget = n_bytes * percent[i] / 100;
        if (trial_is_planned(OVERRIDES(LARGE, bytes("device_memory", budget), "plan_rank=2")))
            return budget;
    }
    fail_msg("no budget has a second plan");
    return 0;
}

/* The next best plan keeps the budget and has the same losses (that it is another one, and slower,
 * is search/test_search's to show: here kernels are timed, and times differ); there is one where
 * there is something to choose. */
void key_plan_rank(void)
{
    struct trial held, best, next;
    TRAIN(&held, LARGE);
    int64_t n_bytes = budget_with_a_choice(held.plan.device_needs);
    const char *budget = bytes("device_memory", n_bytes);
    TRAIN(&best, LARGE, budget);
    TRAIN(&next, LARGE, budget, "plan_rank=2");
    assert_true(next.plan.fits && next.plan.device_needs <= n_bytes);
    assert_true(trial_same_losses(&best, &next));
    REFUSED("plan_rank is 2, but 1 plan was found", LARGE, "plan_rank=2");
}

/* How many plans a run has tried when it settled for one, as metrics.jsonl has it. */
static size_t n_tried(const struct trial *t)
{
    char path[2 * SCRATCH_PATH], *text, *rest;
    size_t n_bytes, n = 0;
    (void)snprintf(path, sizeof(path), "%s/metrics.jsonl", t->folder);
    assert_int_equal(file_read(path, &text, &n_bytes), 0);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *o = json_loads(line, 0, NULL);
        assert_non_null(o);
        if (json_is_true(json_object_get(o, "settled")))
            n = json_array_size(json_object_get(o, "tried"));
        json_decref(o);
    }
    mem_free(text);
    return n;
}

#define LONG LARGE, "max_steps=80", "max_seq_length=16", "per_device_train_batch_size=2"

/* That they are the next ones, and that the fastest is taken, is train/test_trying_plans's to show.
 * Which budgets have two plans that are close goes by the machine; a run that everything fits into
 * has one. */
void key_plan_trials(void)
{
    struct trial best, tried;
    size_t n = 0;
    TRAIN(&best, LONG, "plan_trials=2");
    assert_int_equal(n_tried(&best), 0);
    for (int percent = 85; percent >= 50 && n < 2; percent -= 5) {
        const char *budget = bytes("device_memory", best.plan.device_needs * percent / 100);
        TRAIN(&tried, LONG, budget, "plan_trials=2");
        n = n_tried(&tried);
        assert_true(trial_same_losses(&best, &tried));
    }
    assert_int_equal(n, 2);
    REFUSED("and elastic (", "plan_trials=2", "elastic=true");
    REFUSED("and elastic_budgets (", "plan_trials=2", "elastic_budgets=auto");
    REFUSED("and dynamic_batch (", "plan_trials=2", "dynamic_batch=true");
    REFUSED("and plan_rank (", "plan_trials=2", "plan_rank=2");
    REFUSED("and group_by_length (", "plan_trials=2", "group_by_length=true", "packing=false");
    REFUSED("and predicted_gradients (", "plan_trials=2", "predicted_gradients=residual");
}

/* ---- what is computed twice, or in pieces ---------------------------------------------------- */

/* Six blocks, with sequences long enough that their activations are what memory is for. */
#define DEEP "model.num_hidden_layers=6", "max_seq_length=64", "per_device_train_batch_size=8"

/* Parts of every block: between nothing and all of it, and the same losses. */
static void expect_parts(const struct trial *none, const struct trial *all)
{
    struct trial attention, mlp, both;
    TRAIN(&attention, DEEP, "gradient_checkpointing=attention");
    TRAIN(&mlp, DEEP, "gradient_checkpointing=mlp");
    TRAIN(&both, DEEP, "gradient_checkpointing=[mlp, attention, norm]");
    assert_int_equal(attention.plan.n_blocks_recomputed, 6);
    assert_true(attention.plan.arena_bytes < none->plan.arena_bytes);
    assert_true(mlp.plan.arena_bytes < none->plan.arena_bytes);
    assert_true(both.plan.arena_bytes < attention.plan.arena_bytes);
    assert_true(both.plan.arena_bytes < mlp.plan.arena_bytes);
    double least = none->plan.recompute_flops;
    expect_within(both.plan.recompute_flops - least,
                  attention.plan.recompute_flops + mlp.plan.recompute_flops - 2 * least, 1e-9);
    assert_true(both.plan.recompute_flops < all->plan.recompute_flops);
    assert_true(trial_same_losses(none, &attention) && trial_same_losses(none, &mlp) &&
                trial_same_losses(none, &both));
    REFUSED("gradient_checkpointing", DEEP, "gradient_checkpointing=attentions");
}

void key_gradient_checkpointing(void)
{
    struct trial none, some, all;
    TRAIN(&none, DEEP, "gradient_checkpointing=false");
    TRAIN(&some, DEEP, "gradient_checkpointing=0-3");
    TRAIN(&all, DEEP, "gradient_checkpointing=true");
    assert_int_equal(none.plan.n_blocks_recomputed, 0);
    assert_int_equal(some.plan.n_blocks_recomputed, 4);
    assert_int_equal(all.plan.n_blocks_recomputed, 6);
    double flops = all.plan.recompute_flops - none.plan.recompute_flops;
    expect_within(some.plan.recompute_flops - none.plan.recompute_flops, flops * 4 / 6, 0.05);
    assert_true(all.plan.arena_bytes < some.plan.arena_bytes);
    assert_true(some.plan.arena_bytes < none.plan.arena_bytes);
    assert_true(trial_same_losses(&none, &some) && trial_same_losses(&none, &all));
    TRAIN(&some, DEEP, "gradient_checkpointing=1,4-5");
    assert_int_equal(some.plan.n_blocks_recomputed, 3);
    REFUSED("gradient_checkpointing", DEEP, "gradient_checkpointing=4-6"); /* there is no 6 */
    expect_parts(&none, &all);
    const char *budget = bytes("device_memory", none.plan.device_needs * 3 / 4);
    PLAN(&some, DEEP, "activation_offloading=false", "offload_optimizer=false",
         "offload_param=false", "gradient_checkpointing=auto", budget);
    assert_true(some.plan.fits && some.plan.n_blocks_recomputed > 0);
    PLAN(&some, DEEP, "gradient_checkpointing=false", budget);
    assert_int_equal(some.plan.n_blocks_recomputed, 0);
}

void key_lmhead_chunks(void)
{
    struct trial one, eight;
    TRAIN(&one, "lmhead_chunks=1", "max_seq_length=64", "per_device_train_batch_size=8");
    TRAIN(&eight, "lmhead_chunks=8", "max_seq_length=64", "per_device_train_batch_size=8");
    int64_t logits = 8 * 64 * TRIAL_VOCAB * (int64_t)sizeof(float);
    assert_true(eight.plan.arena_bytes < one.plan.arena_bytes - logits / 2);
    expect_within(one.steps[2].loss, eight.steps[2].loss, 1e-5);
}
