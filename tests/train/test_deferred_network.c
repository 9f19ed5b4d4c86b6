/* A network with running statistics whose updates are made in the next step, on a device with a
 * memory of its own: statistics that live on the host are renewed by the forward pass, not by an
 * update, and every loss is that of the run where all stays on the device. */
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

enum { N_STEPS = 4 };

static const char config_text[] = "model:\n"
                                  "  input: [6, 6, 2]\n"
                                  "  layers:\n"
                                  "    - conv: {out: 8, kernel: 3, padding: 1}\n"
                                  "    - batch_norm\n"
                                  "    - relu\n"
                                  "    - flatten\n"
                                  "    - linear: 16\n"
                                  "    - batch_norm\n"
                                  "    - linear: 3\n"
                                  "  loss: cross_entropy\n"
                                  "datasets: [{type: synthetic, n_samples: 64}]\n"
                                  "per_device_train_batch_size: 4\n"
                                  "max_grad_norm: 1\n"
                                  "max_steps: 4\n"
                                  "num_threads: 1\n"
                                  "device: cpu\n"
                                  "save_strategy: \"no\"\n"
                                  "report_to: none\n";

static enum status on_step(void *user, const struct step_record *r)
{
    double *losses = user;
    losses[r->step - 1] = r->loss;
    return OK;
}

/* As a search may decide: everything that outlives a step is on the host, also what is small. */
static void send_all_away(struct engine *e)
{
    const struct decisions d = {.n = {[EXTENT_STATES] = EXTENT_WHOLE,
                                      [EXTENT_GRADIENTS] = EXTENT_WHOLE,
                                      [EXTENT_WEIGHTS] = EXTENT_WHOLE},
                                .defer_updates = true};
    expect_ok(workload_decide(&e->work, &d));
    expect_ok(workload_emit(&e->work));
    assert_non_null(program_section(e->work.stages[0].program, "finish"));
    e->settings.decisions = d;
    expect_ok(engine_forecast(e));
}

static void run(bool defers, double losses[N_STEPS])
{
    struct train_observer observer = {.user = losses, .on_step = on_step};
    struct scratch scratch;
    char path[SCRATCH_PATH], out[SCRATCH_PATH + 16];
    const char *overrides[] = {out};
    struct train_result result;
    struct config *cfg;
    struct session s;
    scratch_init(&scratch);
    (void)snprintf(out, sizeof(out), "output_dir=%s/out", scratch.folder);
    scratch_write_text(&scratch, "net.yaml", config_text);
    expect_ok(config_load(&cfg, scratch_path(&scratch, "net.yaml", path), overrides, 1));
    expect_ok(config_resolve(cfg, 1));
    expect_ok(session_open(&s, cfg, &(struct session_options){.train = true, .untimed = true}));
    if (defers)
        send_all_away(&s.engine);
    expect_ok(session_data(&s));
    expect_ok(session_start(&s));
    expect_ok(train_session(&s, &(struct train_options){.observers = &observer, .n_observers = 1},
                            &result));
    assert_int_equal(result.n_steps, N_STEPS);
    train_result_release(&result);
    session_close(&s);
    config_free(cfg);
    scratch_release(&scratch);
}

static void statistics_that_are_away_are_those_of_the_step_before(void **state)
{
    double plain[N_STEPS], deferred[N_STEPS];
    (void)state;
    run(false, plain);
    run(true, deferred);
    assert_memory_equal(plain, deferred, sizeof(plain));
}

int main(void)
{
    log_set_level(LOG_ERROR);
    cpu_opens_apart = true;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_that_are_away_are_those_of_the_step_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
