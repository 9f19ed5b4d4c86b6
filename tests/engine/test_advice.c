/* The change that is named when a plan does not fit: it fits when it is made, the mathematics are
 * changed only when they have to be, and what is named saves what there is most of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/host_memory.h"
#include "base/log.h"
#include "base/machine.h"
#include "engine/engine.h"
#include "engine/model_open.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "task/language.h"

static struct device device;

static int open_device(void **state)
{
    (void)state;
    expect_ok(device_open_cpu(&device, 1));
    return 0;
}

struct planned {
    struct config *config;
    struct model *model;
    struct task task;
    char *folder;
    struct stage_request stages[2];
    struct engine engine;
};

enum { TRAINS = 1, EVALUATES = 2 };

enum { MOST_SETTINGS = 16 };

/* A model with settings on top (NULL-terminated). */
static void plan(struct planned *p, const char *const *settings, unsigned what)
{
    int n_stages = 0;
    const char *overrides[MOST_SETTINGS];
    size_t n = 0;
    for (; settings[n]; n++)
        overrides[n] = settings[n];
    struct settings typed;
    *p = (struct planned){0};
    expect_ok(config_load(&p->config, NULL, overrides, n));
    expect_ok(config_resolve(p->config, 1));
    expect_ok(open_model(p->config, NULL, &p->model, &p->folder));
    p->task = language_task(p->model);
    expect_ok(settings_from_config(&typed, p->config, &device));
    if (what & TRAINS)
        expect_ok(request_from_config(&p->stages[n_stages++], STAGE_TRAIN, p->config, &p->task));
    if (what & EVALUATES)
        expect_ok(request_from_config(&p->stages[n_stages++], STAGE_EVAL, p->config, &p->task));
    engine_init(&p->engine, &typed, p->task, &device);
    p->engine.config = p->config;
    expect_ok(engine_plan(&p->engine,
                          &(struct engine_request){.stages = p->stages, .n_stages = n_stages}));
}

static void drop(struct planned *p)
{
    engine_close(&p->engine);
    model_free(p->model);
    mem_free(p->folder);
    config_free(p->config);
}

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SMALL         "model_name_or_path=tests/golden/llama", "max_seq_length=32"
#define BATCH         "per_device_train_batch_size=8"
#define HELD                                                                                  \
    "gradient_checkpointing=false", "activation_offloading=false", "offload_optimizer=false", \
        "offload_param=false"
/* Nearly all of it is weights and states, more than the host has room for: they cannot leave. */
#define WEIGHTY                                                                        \
    "model={model_type: gpt2, vocab_size: 256, n_embd: 4096, n_layer: 4, n_head: 32, " \
    "n_positions: 64}",                                                                \
        "max_seq_length=8", "per_device_train_batch_size=1", "device_memory=1024GiB",  \
        "host_memory=1GiB"

static int64_t needs(const char *const *settings, unsigned what)
{
    struct planned p;
    plan(&p, settings, what);
    int64_t n_bytes = p.engine.forecast.budget.needs[TIER_DEVICE];
    drop(&p);
    return n_bytes;
}

static struct advice ask(const char *const *settings, int64_t limit, unsigned what)
{
    struct planned p;
    struct advice advice;
    plan(&p, settings, what);
    engine_advise(&p.engine, TIER_DEVICE, limit, &advice);
    drop(&p);
    for (int i = 0; i < advice.n; i++)
        assert_true(advice.remedies[i].n_bytes <= limit);
    return advice;
}

static void expect_text(const struct advice *a, const char *part)
{
    const char *first = a->n ? a->remedies[0].text : "none";
    if (!strstr(first, part))
        fail_msg("'%s' is not in the advice: %s", part, first);
}

/* With one byte less each time: first what is held may leave, then batches are cut, and the
 * numerics change last. */
static void what_keeps_the_mathematics_comes_first(void **state)
{
    (void)state;
    const char *const *settings = SETTINGS(SMALL, BATCH, HELD);
    struct advice a = ask(settings, needs(settings, TRAINS) - 1, TRAINS);
    assert_string_equal(a.remedies[0].text,
                        "gradient_checkpointing=auto activation_offloading=auto "
                        "offload_optimizer=auto offload_param=auto");
    a = ask(settings, a.remedies[0].n_bytes - 1, TRAINS);
    expect_text(&a, "per_device_train_batch_size=4 gradient_accumulation_steps=2 "
                    "gradient_checkpointing=auto");
    while (a.n && a.remedies[0].variant.changes == 0) {
        expect_text(&a, "per_device_train_batch_size=");
        a = ask(settings, a.remedies[0].n_bytes - 1, TRAINS);
    }
    assert_true(a.n > 0);
}

static void what_may_leave_needs_no_other_settings(void **state)
{
    (void)state;
    const char *const *settings = SETTINGS(SMALL, BATCH);
    struct advice a = ask(settings, needs(settings, TRAINS) - 1, TRAINS);
    expect_text(&a, "device_memory=");
}

static void weights_and_states_are_cut_where_they_are_most(void **state)
{
    (void)state;
    const char *const *settings = SETTINGS(WEIGHTY);
    int64_t all = needs(settings, TRAINS);
    int64_t half_states = needs(SETTINGS(WEIGHTY, "optim_state_dtype=bf16"), TRAINS);
    assert_true(half_states < all);
    struct advice a = ask(settings, half_states, TRAINS);
    assert_true(a.n > 0 && a.remedies[0].variant.changes != 0);
    assert_null(strstr(a.remedies[0].text, "max_seq_length"));
    a = ask(settings, all / 2, TRAINS);
    expect_text(&a, "optim=adamw_8bit");
    a = ask(settings, all / 3, TRAINS);
    expect_text(&a, "bf16");
    assert_null(strstr(a.remedies[0].text, "max_seq_length"));
}

/* Another optimizer is another training: only AdamW becomes AdamW in 8 bits. */
static void the_optimizer_is_the_users(void **state)
{
    (void)state;
    const char *const *settings = SETTINGS(WEIGHTY, "optim=lion");
    int64_t all = needs(settings, TRAINS);
    for (int part = 2; part <= 4; part++) {
        struct advice a = ask(settings, all * part / 5, TRAINS);
        for (int i = 0; i < a.n; i++)
            assert_null(strstr(a.remedies[i].text, "adamw"));
    }
}

/* SGD has no bytes beside bf16 weights: such a config is refused, and so no advice. */
static void what_is_advised_goes_together(void **state)
{
    static const char *const settings[] = {WEIGHTY, "bf16=true", "master_dtype=24bit", NULL};
    bool is_advised = false;
    (void)state;
    int64_t all = needs(settings, TRAINS);
    for (int part = 1; part < 5; part++) {
        struct advice a = ask(settings, all * part / 8, TRAINS);
        for (int i = 0; i < a.n; i++) {
            bool with_sgd = strstr(a.remedies[i].text, "optim=sgd");
            is_advised |= with_sgd;
            assert_true(!with_sgd || strstr(a.remedies[i].text, "master_dtype=bf16"));
        }
    }
    assert_true(is_advised);
}

static void clipping_is_given_up_where_gradients_are_in_the_way(void **state)
{
    (void)state;
    int64_t unclipped =
        needs(SETTINGS(WEIGHTY, "bf16=true", "master_dtype=bf16", "gradient_dtype=bf16",
                       "optim=adamw_8bit", "max_grad_norm=0"),
              TRAINS);
    struct advice a = ask(SETTINGS(WEIGHTY), unclipped, TRAINS);
    expect_text(&a, "max_grad_norm=0");
}

static void when_nothing_helps_the_largest_part_is_named(void **state)
{
    (void)state;
    double start = now_s();
    struct advice a = ask(SETTINGS(WEIGHTY), 1000, TRAINS);
    assert_int_equal(a.n, 0);
    assert_int_equal(a.most, MEMORY_OPTIMIZER);
    assert_true(a.most_bytes > needs(SETTINGS(WEIGHTY), TRAINS) / 4);
    assert_true(a.least > 1000 && a.least < needs(SETTINGS(WEIGHTY), TRAINS));
    assert_true(now_s() - start < 30.0);
}

/* States that were sent to the host do not fit there: what makes them smaller is named. */
static void the_host_gets_advice_too(void **state)
{
    (void)state;
    struct planned p;
    struct advice a;
    char budget[64]; /* beside the process, which is larger under sanitizers */
    int64_t limit = process_resident() + ((int64_t)2 << 30);
    (void)snprintf(budget, sizeof(budget), "host_memory=%lld", (long long)limit);
    plan(&p, SETTINGS(WEIGHTY, "offload_optimizer=true", budget), TRAINS);
    assert_int_equal(budget_over(&p.engine.forecast.budget), TIER_HOST);
    engine_advise(&p.engine, TIER_HOST, p.engine.forecast.budget.n_bytes[TIER_HOST], &a);
    drop(&p);
    assert_true(a.remedies[0].n_bytes <= limit);
    expect_text(&a, "optim=adamw_8bit");
}

static void evaluation_gets_advice_of_its_own(void **state)
{
    (void)state;
    struct planned p;
    plan(&p, SETTINGS(SMALL, "per_device_eval_batch_size=8"), EVALUATES);
    int64_t all = p.engine.forecast.budget.needs[TIER_DEVICE];
    drop(&p);
    struct advice a = ask(SETTINGS(SMALL, "per_device_eval_batch_size=8"), all - 1, EVALUATES);
    expect_text(&a, "device_memory="); /* weights leave */
    a = ask(SETTINGS(SMALL, "per_device_eval_batch_size=8"), a.remedies[0].n_bytes - 1, EVALUATES);
    expect_text(&a, "per_device_eval_batch_size=");
    assert_null(strstr(a.remedies[0].text, "checkpointing"));
    assert_null(strstr(a.remedies[0].text, "optim"));
}

/* Smaller micro-batches come with smaller evaluations, which are part of the settings to paste. */
static void the_batch_of_evaluations_is_changed_only_where_that_is_said(void **state)
{
    enum { BOTH = TRAINS | EVALUATES };
    static const char *const large[] = {SMALL, "per_device_train_batch_size=2",
                                        "per_device_eval_batch_size=64", NULL};
    (void)state;
    int64_t limit = needs(
        SETTINGS(SMALL, "per_device_train_batch_size=2", "per_device_eval_batch_size=2"), BOTH);
    struct advice a = ask(large, limit, BOTH);
    expect_text(&a, "per_device_train_batch_size=1 gradient_accumulation_steps=2 "
                    "per_device_eval_batch_size=1");
    a = ask(SETTINGS(SMALL, "per_device_train_batch_size=2"), a.remedies[0].n_bytes, BOTH);
    assert_null(strstr(a.remedies[0].text, "eval")); /* it follows */
}

/* What may leave the device has nowhere to go: room on the host is advice too, and enough. */
static void a_host_that_is_too_small_is_named(void **state)
{
#define MIDDLE                                                                       \
    "model={model_type: gpt2, vocab_size: 256, n_embd: 512, n_layer: 4, n_head: 8, " \
    "n_positions: 64}",                                                              \
        "max_seq_length=8", "per_device_train_batch_size=1"
    const int64_t some = 8 << 20;
    struct planned p;
    struct advice a;
    char device_memory[64], host_memory[64];
    (void)state;
    int64_t half = needs(SETTINGS(MIDDLE), TRAINS) / 2;
    int64_t process = process_resident(), little = process + some;
    (void)snprintf(device_memory, sizeof(device_memory), "device_memory=%lldB", (long long)half);
    (void)snprintf(host_memory, sizeof(host_memory), "host_memory=%lldB", (long long)little);
    plan(&p, SETTINGS(MIDDLE, device_memory, host_memory), TRAINS);
    assert_false(p.engine.forecast.fits);
    engine_advise_short(&p.engine, &(struct shortage){&p.engine.forecast.budget, TIER_DEVICE, true},
                        &a);
    drop(&p);
    int64_t host_bytes = 0;
    for (int i = 0; i < a.n; i++)
        host_bytes =
            a.remedies[i].variant.way == WAY_HOST ? a.remedies[i].needs[TIER_HOST] : host_bytes;
    assert_true(host_bytes > little);
    /* What sanitizers hold back of freed memory makes the process larger from plan to plan. */
    process = MAX(process_resident() - process, 0);
    (void)snprintf(host_memory, sizeof(host_memory), "host_memory=%lldB",
                   (long long)(host_bytes + process + some));
    plan(&p, SETTINGS(MIDDLE, device_memory, host_memory), TRAINS);
    assert_true(p.engine.forecast.fits);
    drop(&p);
}

static bool advises(const struct planned *p, const struct budget *b, enum advice_way way)
{
    struct advice a;
    engine_advise_short(&p->engine, &(struct shortage){b, TIER_DEVICE, true}, &a);
    for (int i = 0; i < a.n; i++) {
        if (a.remedies[i].variant.way == way)
            return true;
    }
    return false;
}

/* Up to the last byte, and where nothing else is short. */
static void more_of_a_budget_is_named_as_far_as_there_is(void **state)
{
    struct planned p;
    (void)state;
    plan(&p, SETTINGS(MIDDLE, "device_memory=1MiB"), TRAINS);
    struct budget b = p.engine.forecast.budget;
    b.had[TIER_DEVICE] = b.needs[TIER_DEVICE];
    assert_true(advises(&p, &b, WAY_MORE));
    b.had[TIER_DEVICE]--;
    assert_false(advises(&p, &b, WAY_MORE));
    b.had[TIER_DEVICE]++;
    b.n_bytes[TIER_HOST] = b.needs[TIER_HOST] - 1;
    assert_false(advises(&p, &b, WAY_MORE));
    drop(&p);
}

static int n_looks;

static enum status count_looks(struct device *d, struct device_room *out)
{
    (void)d;
    n_looks++;
    room_of_host(out);
    return OK;
}

/* Dozens of plans are tried; the system's files about memory are not read for each. */
static void the_machine_is_looked_at_once_for_all_trials(void **state)
{
    (void)state;
    const struct device_ops *real = device.ops;
    struct device_ops counting = *real;
    struct planned p;
    struct advice advice;
    counting.room = count_looks;
    plan(&p, SETTINGS(SMALL, BATCH), TRAINS);
    device.ops = &counting;
    engine_advise(&p.engine, TIER_DEVICE, 1 << 20, &advice);
    device.ops = real;
    drop(&p);
    assert_int_equal(n_looks, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_keeps_the_mathematics_comes_first),
        cmocka_unit_test(what_may_leave_needs_no_other_settings),
        cmocka_unit_test(weights_and_states_are_cut_where_they_are_most),
        cmocka_unit_test(the_optimizer_is_the_users),
        cmocka_unit_test(what_is_advised_goes_together),
        cmocka_unit_test(clipping_is_given_up_where_gradients_are_in_the_way),
        cmocka_unit_test(when_nothing_helps_the_largest_part_is_named),
        cmocka_unit_test(the_host_gets_advice_too),
        cmocka_unit_test(evaluation_gets_advice_of_its_own),
        cmocka_unit_test(a_host_that_is_too_small_is_named),
        cmocka_unit_test(more_of_a_budget_is_named_as_far_as_there_is),
        cmocka_unit_test(the_batch_of_evaluations_is_changed_only_where_that_is_said),
        cmocka_unit_test(the_machine_is_looked_at_once_for_all_trials),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, open_device, NULL);
}
