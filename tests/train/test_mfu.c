/* Model FLOPs utilisation is a share of what the machine can do, also where that was measured
 * badly.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/log.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "support/train_session.h"
#include "train/trainer.h"

static enum status expect_a_share(void *user, const struct step_record *r)
{
    double *most = user;
    assert_true(r->mfu > 0.0 && r->mfu <= 1.0);
    *most = MAX(*most, r->mfu);
    return OK;
}

static void a_peak_measured_on_a_busy_machine_gives_no_more_than_all_of_it(void **state)
{
    (void)state;
    struct scratch scratch;
    struct config *config;
    struct session session;
    struct train_result result = {0};
    char folder[SCRATCH_PATH];
    double most = 0.0;
    scratch_init(&scratch);
    (void)snprintf(folder, sizeof(folder), "output_dir=%s/out", scratch.folder);
    const char *overrides[] = {"datasets=[{type: synthetic, n_tokens: 20000}]",
                               "val_set_size=0",
                               "eval_strategy=no",
                               "save_strategy=no",
                               "per_device_train_batch_size=2",
                               "max_seq_length=32",
                               "device=cpu",
                               "max_steps=4",
                               folder};
    expect_ok(config_load(&config, SNUG_SOURCE_DIR "/configs/demo.yaml", overrides,
                          ARRAY_LEN(overrides)));
    expect_ok(config_resolve(config, 1));
    expect_ok(session_open(&session, config, &(struct session_options){.train = true}));
    expect_ok(session_data(&session));
    expect_ok(session_start(&session));
    session.engine.device->rates.matmul_flops = 1e6; /* any step goes beyond that */
    struct train_observer observer = {.on_step = expect_a_share, .user = &most};
    struct train_options options = {.observers = &observer, .n_observers = 1};
    expect_ok(train_session(&session, &options, &result));
    assert_true(most == 1.0); /* the first step is the measure */
    assert_true(result.mfu > 0.0 && result.mfu <= 1.0);
    train_result_release(&result);
    session_close(&session);
    config_free(config);
    scratch_release(&scratch);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peak_measured_on_a_busy_machine_gives_no_more_than_all_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
