#include "support/network_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "io/safetensors.h"
#include "support/golden.h"
#include "support/train_session.h"

enum { MOST_SETTINGS = 32 };

static enum status note_step(void *user, const struct step_record *r)
{
    struct network_run *x = user;
    x->losses[x->n++] = r->loss;
    return OK;
}

enum status network_load(struct network_run *x, const char *text, const char *const *settings)
{
    char out[NETWORK_PATH];
    const char *all[MOST_SETTINGS] = {
        "device=cpu",      "optim=sgd",           "weight_decay=0",
        "max_grad_norm=0", "shuffle=false",       "lr_scheduler_type=constant",
        "save_steps=1000", "save_strategy=steps", "learning_rate=0.05"};
    size_t n = 9;
    (void)snprintf(out, sizeof(out), "output_dir=%s/out", x->scratch.folder);
    all[n++] = out;
    while (*settings)
        all[n++] = *settings++;
    TRY(text ? config_load_text(&x->config, text, strlen(text), "net.yaml", all, n)
             : config_load(&x->config, NULL, all, n));
    TRY(config_resolve(x->config, 1));
    return session_open(&x->session, x->config,
                        &(struct session_options){.train = true, .untimed = true});
}

/* The arenas are what was planned, whatever the plan. */
static void check_arenas(const struct network_run *x)
{
    for (int t = 0; t < TIER_COUNT; t++)
        assert_int_equal(executor_high_water(x->session.engine.executor, (enum tier)t),
                         x->session.engine.work.n_bytes[t]);
}

void network_train(struct network_run *x, const char *text, const char *const *settings)
{
    struct train_result result = {0};
    struct train_observer observer = {.on_step = note_step, .user = x};
    *x = (struct network_run){0};
    scratch_init(&x->scratch);
    expect_ok(network_load(x, text, settings));
    expect_ok(session_data(&x->session));
    expect_ok(session_start(&x->session));
    expect_ok(train_session(
        &x->session, &(struct train_options){.observers = &observer, .n_observers = 1}, &result));
    check_arenas(x);
    if (result.last_checkpoint)
        (void)snprintf(x->checkpoint, sizeof(x->checkpoint), "%s", result.last_checkpoint);
    train_result_release(&result);
}

void network_finish(struct network_run *x)
{
    session_close(&x->session);
    config_free(x->config);
    scratch_release(&x->scratch);
}

void network_expect_same(const struct network_run *a, const struct network_run *b)
{
    struct st_reader *x, *y;
    expect_ok(st_reader_open_folder(&x, a->checkpoint));
    expect_ok(st_reader_open_folder(&y, b->checkpoint));
    assert_int_equal(st_reader_count(x), st_reader_count(y));
    for (size_t i = 0; i < st_reader_count(x); i++) {
        const struct st_tensor *t = st_reader_at(x, i), *u;
        expect_ok(st_reader_get(y, t->name, &u));
        assert_int_equal(t->n_bytes, u->n_bytes);
        if (memcmp(t->data, u->data, (size_t)t->n_bytes) != 0)
            fail_msg("%s differs", t->name);
    }
    st_reader_close(x);
    st_reader_close(y);
}
