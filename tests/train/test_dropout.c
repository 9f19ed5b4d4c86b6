/* Training with the dropout of a Hugging Face folder: it changes the losses, and nothing but the
 * run, the step and the node decides what is dropped: not recompute, not an interruption. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/dropout_training.h"

enum { STEPS = DROPOUT_STEPS };

static void train(const struct dropout_model *m, double share, const char *extra,
                  double losses[STEPS])
{
    dropout_train(m, share, "cpu", extra, losses);
}

static void check_drops(const struct dropout_model *m)
{
    double without[STEPS], with[STEPS], other[STEPS];
    train(m, 0.0, "seed=1", without);
    train(m, 0.1, "seed=1", with);
    train(m, 0.1, "seed=2", other);
    for (int i = 0; i < STEPS; i++) {
        assert_true(isfinite(with[i]));
        assert_true(with[i] != without[i]);
        assert_true(with[i] != other[i]); /* another run drops something else */
        assert_true(fabs(with[i] - without[i]) < 0.5);
    }
}

static void a_folder_with_the_default_dropout_trains(void **state)
{
    (void)state;
    check_drops(&dropout_gpt2);
    check_drops(&dropout_llama);
}

static void check_recompute(const struct dropout_model *m)
{
    double kept[STEPS], again[STEPS], some[STEPS], bf16[STEPS], bf16_again[STEPS];
    train(m, 0.1, "gradient_checkpointing=false", kept);
    train(m, 0.1, "gradient_checkpointing=true", again);
    train(m, 0.1, "gradient_checkpointing=1-1", some);
    assert_memory_equal(kept, again, sizeof(kept));
    assert_memory_equal(kept, some, sizeof(kept));
    train(m, 0.1, "bf16=true", bf16);
    train(m, 0.1, "bf16=true", bf16_again);
    assert_memory_equal(bf16, bf16_again, sizeof(kept));
}

static void recompute_drops_what_was_dropped(void **state)
{
    (void)state;
    check_recompute(&dropout_gpt2);
    check_recompute(&dropout_llama);
}

static void check_resume(const struct dropout_model *m)
{
    double whole[STEPS], parts[STEPS];
    struct scratch s;
    train(m, 0.1, "seed=1", whole);
    scratch_init(&s);
    dropout_write_folder(&s, m, 0.1);
    dropout_train_to(&s, "cpu", 5, "seed=1", parts);
    dropout_train_to(&s, "cpu", STEPS, "seed=1", parts + 5);
    scratch_release(&s);
    assert_memory_equal(whole, parts, sizeof(whole));
}

static void a_resumed_run_drops_what_the_whole_run_drops(void **state)
{
    (void)state;
    check_resume(&dropout_gpt2);
    check_resume(&dropout_llama);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_with_the_default_dropout_trains),
        cmocka_unit_test(recompute_drops_what_was_dropped),
        cmocka_unit_test(a_resumed_run_drops_what_the_whole_run_drops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
