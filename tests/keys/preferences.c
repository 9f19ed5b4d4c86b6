/* Keys of training on preferences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "keys/keys.h"
#include "support/trial.h"

static const char *write_preferences(void)
{
    scratch_write_text(trials_scratch(), "pairs.jsonl",
                       "{\"prompt\":\"2+2=\",\"chosen\":\"4\",\"rejected\":\"five\"}\n"
                       "{\"prompt\":\"sky: \",\"chosen\":\"blue\",\"rejected\":\"up\"}\n");
    return trial_path("datasets.0.path", "pairs.jsonl");
}

/* A step sees pairs and not tokens; the first loss of all is log 2. */
void key_rl(void)
{
    struct trial dpo, stage;
    const char *data = write_preferences();
    TRAIN(&dpo, "rl=dpo", data);
    TRAIN(&stage, "stage=dpo", data);
    assert_int_equal(dpo.steps[0].n_tokens, TRIAL_BATCH);
    expect_within(dpo.steps[0].loss, 0.69314718, 1e-6);
    assert_true(trial_same_losses(&dpo, &stage));
    PLAN(&stage, "stage=sft");
    REFUSED("dpo", "rl=kto", data);
    REFUSED("answers have rows of their own", "rl=dpo", data, "packing=true");
    REFUSED("there have to be records", "rl=dpo", "datasets=[{type: synthetic}]");
    REFUSED("below 0.5", "rl=dpo", data, "label_smoothing=0.5");
}

void key_dpo_beta(void)
{
    struct trial low, high, same;
    const char *data = write_preferences();
    TRAIN(&low, "rl=dpo", data, "dpo_beta=0.1", "learning_rate=0.01");
    TRAIN(&high, "rl=dpo", data, "beta=0.5", "learning_rate=0.01");
    TRAIN(&same, "rl=dpo", data, "rl_beta=0.5", "learning_rate=0.01");
    assert_true(low.steps[2].loss != high.steps[2].loss);
    assert_true(trial_same_losses(&high, &same));
    REFUSED("write rl: dpo too", "dpo_beta=0.2");
}

void key_dpo_loss(void)
{
    struct trial t;
    const char *data = write_preferences();
    TRAIN(&t, "rl=dpo", data, "loss_type=sigmoid");
    TRAIN(&t, "rl=dpo", data, "pref_loss=sigmoid");
    REFUSED("sigmoid", "rl=dpo", data, "loss_type=ipo");
    REFUSED("sigmoid", "rl=dpo", data, "dpo_loss=hinge");
    REFUSED("write rl: dpo too", "dpo_loss=sigmoid");
}
