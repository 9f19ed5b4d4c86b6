/* Keys of a run that adapts to the memory there is, on a device whose memory others take and leave.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/alloc.h"
#include "base/file.h"
#include "keys/keys.h"
#include "support/crowded_device.h"
#include "support/trial.h"

/* ---- what became of a run -------------------------------------------------------------------- */

struct changes {
    int n, n_refused;
    int n_planned;    /* beforehand */
    int64_t step[16]; /* after which they came */
    int64_t batch;    /* after the last */
    char why[256];    /* of the first */
};

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static void add_change(struct changes *c, const json_t *o)
{
    assert_true(c->n + c->n_refused < 16);
    c->step[c->n + c->n_refused] = json_integer_value(json_object_get(o, "step"));
    if (c->n + c->n_refused == 0)
        (void)snprintf(c->why, sizeof(c->why), "%s", text_of(o, "why"));
    c->batch = json_integer_value(json_object_get(o, "micro_batch"));
    c->n_planned += json_is_true(json_object_get(o, "planned_beforehand"));
    if (json_is_true(json_object_get(o, "changed")))
        c->n++;
    else
        c->n_refused++;
}

/* As metrics.jsonl has them. */
static struct changes changes_of(const struct trial *t)
{
    char path[2 * SCRATCH_PATH], *text, *rest;
    struct changes c = {0};
    size_t n_bytes;
    (void)snprintf(path, sizeof(path), "%s/metrics.jsonl", t->folder);
    assert_int_equal(file_read(path, &text, &n_bytes), 0);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *o = json_loads(line, 0, NULL);
        assert_non_null(o);
        if (strcmp(text_of(o, "kind"), "budget") == 0)
            add_change(&c, o);
        json_decref(o);
    }
    mem_free(text);
    return c;
}

/* Activations are most of what these need, and nothing but the number of sequences, or recompute,
 * makes them less. */
#define DEEP                                          \
    "model.num_hidden_layers=4", "max_seq_length=64", \
        "datasets=[{type: synthetic, n_tokens: 60000}]", "train_batch_size=8", "max_steps=40"
#define HELD                                                                         \
    "offload_optimizer=false", "offload_param=false", "activation_offloading=false", \
        "gradient_checkpointing=false"

static int64_t needs; /* of the device, by the runs of a test */

static void begin(const char *const *overrides)
{
    struct trial t;
    crowded_begin((int64_t)1 << 30);
    trial_plan(&t, SNUG_TRAIN, overrides);
    needs = t.plan.device_needs;
}

static void end(void)
{
    trial_after_step = NULL;
    crowded_begin(0);
}

/* ---- giving way ------------------------------------------------------------------------------ */

/* Others leave so many percent of what the run needs, and of that again after 20 steps. */
static int percent;

static void take(int64_t step)
{
    if (step == 2)
        crowded_leave(needs * percent / 100);
}

static struct changes gives_way(int left, const char *const *overrides)
{
    struct trial t;
    percent = left;
    crowded_leave(crowded.total);
    trial_after_step = take;
    trial_train(&t, overrides);
    return changes_of(&t);
}
#define GIVES_WAY(left, ...) gives_way(left, OVERRIDES(DEEP, __VA_ARGS__))

void key_elastic(void)
{
    struct changes c;
    begin(OVERRIDES(DEEP, "per_device_train_batch_size=8"));
    c = GIVES_WAY(101, "per_device_train_batch_size=8", "elastic=true");
    assert_int_equal(c.n, 1);
    assert_non_null(strstr(c.why, "emergency: only "));
    c = GIVES_WAY(101, "per_device_train_batch_size=8");
    assert_int_equal(c.n, 0);
    end();
}

/* 107 % of what is needed are 93 % that is taken. */
void key_elastic_profile(void)
{
    struct changes c;
    begin(OVERRIDES(DEEP, "per_device_train_batch_size=8"));
    c = GIVES_WAY(107, "per_device_train_batch_size=8", "elastic=true");
    assert_int_equal(c.n, 1);
    assert_non_null(strstr(c.why, "warning: only "));
    c = GIVES_WAY(107, "per_device_train_batch_size=8", "elastic=true",
                  "elastic_profile=aggressive");
    assert_int_equal(c.n, 0);
    c = GIVES_WAY(107, "per_device_train_batch_size=8", "elastic=true",
                  "elastic_profile=conservative");
    assert_int_equal(c.n, 1);
    assert_non_null(strstr(c.why, "critical: only "));
    REFUSED("says nothing without elastic: true", "elastic_profile=aggressive");
    end();
}

/* Others come twice: the second time counts when the run has been left alone for long enough. */
static void take_twice(int64_t step)
{
    if (step == 2)
        crowded_leave(needs * 101 / 100);
    if (step == 8)
        crowded_leave(needs * 91 / 100);
}

void key_elastic_cooldown(void)
{
    struct trial t;
    struct changes c;
    begin(OVERRIDES(DEEP, "per_device_train_batch_size=8"));
    trial_after_step = take_twice;
    TRAIN(&t, DEEP, "per_device_train_batch_size=8", "elastic=true", "elastic_cooldown=0");
    c = changes_of(&t);
    assert_true(c.n >= 2);
    crowded_leave(crowded.total);
    TRAIN(&t, DEEP, "per_device_train_batch_size=8", "elastic=true", "elastic_cooldown=1000");
    c = changes_of(&t);
    assert_int_equal(c.n, 1);
    end();
}

/* Less is asked for after the third step, and what it had after the sixth. */
static void ask(int64_t step)
{
    char text[128];
    (void)snprintf(text, sizeof(text), "id-1\ndevice_memory=%lld\n", (long long)(needs * 3 / 4));
    if (step == 3)
        scratch_write_text(trials_scratch(), "asked/BUDGET", text);
    if (step == 6)
        scratch_write_text(trials_scratch(), "asked/BUDGET", "id-2\ndevice_memory=auto\n");
}

/* The way back is always planned beforehand; that others are is train/test_elastic's to show, where
 * a run waits for it. */
void key_elastic_budgets(void)
{
    struct trial plain, t;
    const char *out = trial_path("output_dir", "asked");
    begin(OVERRIDES(DEEP, "per_device_train_batch_size=8"));
    TRAIN(&plain, DEEP, "per_device_train_batch_size=8", "max_steps=8");
    trial_after_step = ask;
    TRAIN(&t, DEEP, out, "per_device_train_batch_size=8", "max_steps=8");
    assert_true(trial_same_losses(&plain, &t));
    assert_int_equal(changes_of(&t).n, 2);
    assert_int_equal(changes_of(&t).n_planned, 0);
    TRAIN(&t, DEEP, out, "per_device_train_batch_size=8", "max_steps=8",
          "elastic_budgets=[1GiB, auto]", "overwrite_output_dir=true");
    assert_true(trial_same_losses(&plain, &t));
    assert_int_equal(changes_of(&t).n, 2);
    assert_true(changes_of(&t).n_planned >= 1);
    end();
    REFUSED("'8 pounds' is not a size such as 8GiB", "elastic_budgets=[8 pounds]");
}

/* ---- micro-batches --------------------------------------------------------------------------- */

/* With the device as it is: the budget says how much there is. */
static struct changes adapts(int64_t budget, const char *const *overrides)
{
    const char *all[48];
    char text[64];
    struct trial t;
    size_t n = 0;
    (void)snprintf(text, sizeof(text), "device_memory=%lld", (long long)budget);
    all[n++] = text;
    while (*overrides)
        all[n++] = *overrides++;
    all[n] = NULL;
    trial_train(&t, all);
    for (int i = 0; i < t.n_steps; i++)
        assert_int_equal(t.steps[i].n_tokens, t.steps[0].n_tokens);
    return changes_of(&t);
}

#define DYNAMIC \
    "dynamic_batch=true", "dynamic_batch_warmup=2", "dynamic_batch_every=3", "max_steps=6"
/* From one sequence at a time, with room for many; and from eight, with hardly any. */
#define GROWS(...) \
    adapts(4 * needs, OVERRIDES(DEEP, HELD, DYNAMIC, "per_device_train_batch_size=1", __VA_ARGS__))
#define SHRINKS(...)        \
    adapts(needs * 21 / 20, \
           OVERRIDES(DEEP, HELD, DYNAMIC, "per_device_train_batch_size=8", __VA_ARGS__))

static void begin_dynamic(void)
{
    begin(OVERRIDES(DEEP, HELD, "per_device_train_batch_size=8"));
}

void key_dynamic_batch(void)
{
    struct changes c;
    struct trial plain, t;
    begin_dynamic();
    c = GROWS("dynamic_batch_max=64");
    assert_int_equal(c.n, 1);
    assert_int_equal(c.step[0], 2);
    assert_int_equal(c.batch, 8);
    assert_non_null(strstr(c.why, "dynamic_batch, to grow"));
    c = SHRINKS("dynamic_batch_max=64");
    assert_int_equal(c.n, 1);
    assert_true(c.batch < 8);
    TRAIN(&plain, DEEP, "max_steps=6");
    TRAIN(&t, DEEP, "max_steps=6", "dynamic_batch=true", "dynamic_batch_warmup=2");
    for (int i = 0; i < 6; i++)
        expect_within(t.steps[i].loss, plain.steps[i].loss, 1e-4);
    assert_int_equal(changes_of(&plain).n, 0);
    REFUSED("leave one of them out", "dynamic_batch=true", "group_by_length=true", "packing=false");
    end();
}

void key_dynamic_batch_min(void)
{
    begin_dynamic();
    assert_true(SHRINKS("dynamic_batch_target=0.5").batch < 4);
    struct changes c = SHRINKS("dynamic_batch_target=0.5", "dynamic_batch_min=4");
    assert_true(c.batch >= 4);
    REFUSED("is more than dynamic_batch_max", "dynamic_batch=true", "dynamic_batch_min=65");
    REFUSED("says nothing without dynamic_batch: true", "dynamic_batch_min=2");
    end();
}

void key_dynamic_batch_max(void)
{
    begin_dynamic();
    assert_int_equal(GROWS("dynamic_batch_max=2").batch, 2);
    assert_int_equal(GROWS("dynamic_batch_max=4").batch, 4);
    end();
}

/* Of four times what eight sequences need a sixth is less than they do. */
void key_dynamic_batch_target(void)
{
    begin_dynamic();
    struct changes c = GROWS("dynamic_batch_target=0.2", "dynamic_batch_grow=0");
    assert_int_equal(c.n, 1);
    assert_true(c.batch > 1 && c.batch < 8);
    end();
}

void key_dynamic_batch_grow(void)
{
    begin_dynamic();
    assert_int_equal(GROWS("dynamic_batch_grow=0.85").n, 0);
    assert_int_equal(GROWS("dynamic_batch_grow=0.2").n, 1);
    end();
}

void key_dynamic_batch_shrink(void)
{
    begin_dynamic();
    assert_int_equal(SHRINKS("dynamic_batch_shrink=0.15").n, 0);
    assert_int_equal(SHRINKS("dynamic_batch_shrink=0.02").n, 1);
    end();
}

/* Where nothing smaller is allowed it says so at every look. */
void key_dynamic_batch_every(void)
{
    begin_dynamic();
    struct changes c = SHRINKS("dynamic_batch_min=8", "dynamic_batch_every=2", "max_steps=5");
    assert_int_equal(c.n, 0);
    assert_int_equal(c.n_refused, 2);
    assert_int_equal(c.step[0], 2);
    assert_int_equal(c.step[1], 4);
    end();
}

void key_dynamic_batch_warmup(void)
{
    begin_dynamic();
    struct changes c = GROWS("dynamic_batch_warmup=4");
    assert_int_equal(c.n, 1);
    assert_int_equal(c.step[0], 4);
    end();
}

/* Full after the first step, a tenth after the second: what is looked at is the mean, or the last.
 */
static void take_once(int64_t step)
{
    crowded_leave(step == 1 ? 1 : 4 * needs);
}

static struct changes smooths(const char *smooth)
{
    struct trial t;
    crowded_leave(crowded.total);
    trial_after_step = take_once;
    TRAIN(&t, DEEP, HELD, DYNAMIC, "per_device_train_batch_size=2", "max_steps=4",
          "dynamic_batch_grow=0.4", smooth);
    return changes_of(&t);
}

void key_dynamic_batch_smooth(void)
{
    begin_dynamic();
    assert_non_null(strstr(smooths("dynamic_batch_smooth=1").why, "to grow"));
    assert_null(strstr(smooths("dynamic_batch_smooth=2").why, "to grow"));
    end();
}
