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
                                      "per_device_train_batch_size=5",
                                      "num_threads=2", /* each has a workspace */
                                      "plan_rank=1"};
    size_t n = 11;
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

/* The gradients that are never whole. */
struct formed {
    int n;
    int64_t n_bytes, largest; /* of what they would take if they were */
};

/* Their slices are no buffers of their size. */
static struct formed find_formed(const struct run *x)
{
    const struct stage *s = workload_stage(&x->session.engine.work, STAGE_TRAIN);
    struct formed f = {0};
    for (value_id v = 0; (size_t)v < s->graph->values.n; v++) {
        int64_t n_bytes = s->plan.treat[v] == FORM ? value_bytes(s->graph, v) : 0;
        f.n += n_bytes > 0;
        f.n_bytes += n_bytes;
        f.largest = MAX(f.largest, n_bytes);
    }
    for (size_t i = 0; i < s->program->buffers.n; i++) {
        const struct buffer *b = &s->program->buffers.items[i];
        if (b->value != VALUE_NONE && s->plan.treat[b->value] == FORM)
            assert_true(b->n_bytes <= value_bytes(s->graph, b->value) / 3);
    }
    return f;
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

/* A run in which nothing but gradients may give way, with too little memory for it: planned for the
 * least. Workspaces are part of that, and differ from machine to machine. */
static void open_least(struct run *x, const char *clipping)
{
    open_run(x, (const char *const[]){clipping, "offload_optimizer=false", "offload_param=false",
                                      "activation_offloading=false", "gradient_checkpointing=false",
                                      "device_memory=1MiB", NULL});
}

static void trains_in(const char *clipping, int64_t limit, const struct run *kept)
{
    struct run formed;
    char budget[64];
    (void)snprintf(budget, sizeof(budget), "device_memory=%lld", (long long)limit);
    train(&formed, (const char *const[]){clipping, budget, NULL});
    assert_true(device_bytes(&formed) <= limit);
    assert_true(find_formed(&formed).n > 0);
    assert_false(decisions_copy(&formed.session.engine.settings.decisions));
    expect_same(kept, &formed);
    finish(&formed);
}

/* In the least there is, and in a budget that has room for wider slices. */
static void trains_in_less(const char *clipping, bool all_at_once)
{
    struct run kept, least;
    train(&kept, (const char *const[]){clipping, NULL});
    assert_int_equal(find_formed(&kept).n, 0);
    open_least(&least, clipping);
    struct formed f = find_formed(&least);
    int64_t needs = device_bytes(&least), saves = device_bytes(&kept) - needs;
    finish(&least);
    assert_true(saves > (all_at_once ? f.n_bytes : f.largest) / 2);
    trains_in(clipping, needs, &kept);
    trains_in(clipping, needs + saves / 2, &kept);
    finish(&kept);
}

static void gradients_that_are_never_whole_give_the_same_bits_in_less_memory(void **state)
{
    (void)state;
    trains_in_less("max_grad_norm=1.0", true);
    /* Updates run early: one gradient at a time is there. */
    trains_in_less("max_grad_norm=0", false);
}

static void what_is_never_whole_is_said(void **state)
{
    struct run x;
    struct str text = {0};
    (void)state;
    open_run(&x, (const char *const[]){"device_memory=8MiB", NULL});
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
