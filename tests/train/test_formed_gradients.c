/* Gradients of wide layers that are never whole: the bits of a run that keeps them, in a memory
 * that has no room for them, and nothing leaves the device for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/golden.h"
#include "support/scratch.h"
#include "support/train_session.h"

enum { STEPS = 3, MOST_SETTINGS = 32, TEXT = SCRATCH_PATH + 64 };

struct run {
    struct scratch scratch;
    struct config *config;
    struct session session;
    double losses[STEPS], norms[STEPS];
    int n;
};

static enum status note_step(void *user, const struct step_record *r)
{
    struct run *x = user;
    x->losses[x->n] = r->loss;
    x->norms[x->n++] = r->grad_norm;
    return OK;
}

/* The wide autoencoder, small: settings, NULL-terminated, on top of bf16 with 8-bit moments. */
static void open_run(struct run *x, const char *const *settings)
{
    char out[TEXT], path[TEXT];
    const char *all[MOST_SETTINGS] = {"model.width_divisor=16",
                                      "model.frame_height=6",
                                      "model.frame_width=10",
                                      "model.n_voxels=1000",
                                      "model.frames=8",
                                      "device=cpu",
                                      "max_steps=3",
                                      "shuffle=false",
                                      "plan_rank=1"};
    size_t n = 9;
    *x = (struct run){0};
    scratch_init(&x->scratch);
    (void)snprintf(out, sizeof(out), "output_dir=%s/out", x->scratch.folder);
    (void)snprintf(path, sizeof(path), "%s/configs/wide_autoencoder.yaml", SNUG_SOURCE_DIR);
    all[n++] = out;
    while (*settings)
        all[n++] = *settings++;
    expect_ok(config_load(&x->config, path, all, n));
    expect_ok(config_resolve(x->config, 1));
    expect_ok(session_open(&x->session, x->config,
                           &(struct session_options){.train = true, .untimed = true}));
}

static void train(struct run *x, const char *const *settings)
{
    struct train_result result = {0};
    struct train_observer observer = {.on_step = note_step, .user = x};
    open_run(x, settings);
    expect_ok(session_data(&x->session));
    expect_ok(session_start(&x->session));
    expect_ok(train_session(
        &x->session, &(struct train_options){.observers = &observer, .n_observers = 1}, &result));
    train_result_release(&result);
    for (int t = 0; t < TIER_COUNT; t++)
        assert_int_equal(executor_high_water(x->session.engine.executor, (enum tier)t),
                         x->session.engine.work.n_bytes[t]);
}

static void finish(struct run *x)
{
    session_close(&x->session);
    config_free(x->config);
    scratch_release(&x->scratch);
}

static int64_t device_bytes(const struct run *x)
{
    return x->session.engine.work.n_bytes[TIER_DEVICE];
}

/* The gradients that are never whole, and that their slices are no buffers of their size. */
static int count_formed(const struct run *x)
{
    const struct stage *s = workload_stage(&x->session.engine.work, STAGE_TRAIN);
    int n = 0;
    for (size_t v = 0; v < s->graph->values.n; v++)
        n += s->plan.treat[v] == FORM;
    for (size_t i = 0; i < s->program->buffers.n; i++) {
        const struct buffer *b = &s->program->buffers.items[i];
        if (b->value != VALUE_NONE && s->plan.treat[b->value] == FORM)
            assert_true(b->n_bytes <= value_bytes(s->graph, b->value) / 3);
    }
    return n;
}

static void expect_same(const struct run *a, const struct run *b)
{
    const struct storage *storage = &a->session.engine.work.storage;
    assert_int_equal(a->n, STEPS);
    assert_memory_equal(a->losses, b->losses, sizeof(a->losses));
    assert_memory_equal(a->norms, b->norms, sizeof(a->norms));
    for (size_t i = 0; i < storage->entries.n; i++) {
        const struct storage_entry *x = &storage->entries.items[i], *y;
        y = storage_find(&b->session.engine.work.storage, x->name);
        assert_non_null(y);
        assert_memory_equal(executor_storage_pointer(a->session.engine.executor, x),
                            executor_storage_pointer(b->session.engine.executor, y),
                            (size_t)x->n_bytes);
    }
}

/* A budget that has room for storage and a part of what lived beside it. */
static void trains_in_less(const char *clipping, const char *batch, double share)
{
    struct run kept, formed;
    char budget[64];
    train(&kept, (const char *const[]){clipping, batch, NULL});
    assert_int_equal(count_formed(&kept), 0);
    int64_t n_storage = kept.session.engine.work.storage.n_bytes[TIER_DEVICE];
    int64_t limit = n_storage + (int64_t)(share * (double)(device_bytes(&kept) - n_storage));
    (void)snprintf(budget, sizeof(budget), "device_memory=%lld", (long long)limit);
    train(&formed, (const char *const[]){clipping, batch, budget, NULL});
    assert_true(device_bytes(&formed) <= limit);
    assert_true(count_formed(&formed) > 0);
    assert_false(decisions_copy(&formed.session.engine.settings.decisions));
    expect_same(&kept, &formed);
    finish(&kept);
    finish(&formed);
}

static void gradients_that_are_never_whole_give_the_same_bits_in_less_memory(void **state)
{
    (void)state;
    trains_in_less("max_grad_norm=1.0", "per_device_train_batch_size=5", 0.34);
    /* Updates run early: one gradient at a time is there. */
    trains_in_less("max_grad_norm=0", "per_device_train_batch_size=5", 0.75);
}

static void what_is_never_whole_is_said(void **state)
{
    struct run x;
    struct str text = {0};
    (void)state;
    open_run(&x,
             (const char *const[]){"device_memory=8MiB", "per_device_train_batch_size=5", NULL});
    decisions_add_text(&x.session.engine.settings.decisions, 26, &text);
    assert_non_null(strstr(str_text(&text), "large gradients made in slices, never whole"));
    str_release(&text);
    finish(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_that_are_never_whole_give_the_same_bits_in_less_memory),
        cmocka_unit_test(what_is_never_whole_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
