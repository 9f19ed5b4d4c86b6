/* Keys of samples: what is gone on from, when, how far, and how tokens are drawn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "keys/keys.h"
#include "support/trial.h"

#define TWO_PROMPTS "sample_prompts=[\"ab, c\", \"de\"]"

/* Steps of the first prompt's samples, ended by 0. */
static void expect_steps(const struct trial *t, const int64_t *steps)
{
    int n = 0;
    for (int i = 0; i < t->n_samples; i++) {
        if (t->samples[i].index == 0)
            assert_int_equal(t->samples[i].step, steps[n++]);
    }
    assert_int_equal(steps[n], 0);
}
#define STEPS(...) ((const int64_t[]){__VA_ARGS__, 0})

static void expect_in_metrics(const struct trial *t, const char *part)
{
    char path[SCRATCH_PATH + 32], *text;
    size_t n;
    (void)snprintf(path, sizeof(path), "%s/metrics.jsonl", t->folder);
    assert_int_equal(file_read(path, &text, &n), OK);
    assert_non_null(strstr(text, part));
    mem_free(text);
}

/* What the model of a run's last checkpoint writes by itself. */
static void generate(const struct trial *t, const char *prompt, char *out, size_t size)
{
    char folder[SCRATCH_PATH + 16];
    struct snug_generator *g;
    struct snug_generation made;
    const struct snug_generate_request request = {
        .prompt = prompt, .max_new_tokens = 12, .top_p = 1};
    (void)snprintf(folder, sizeof(folder), "output_dir=%s", t->folder);
    struct snug_config *config = trial_config(OVERRIDES(folder));
    assert_int_equal(snug_generator_open(&g, config, NULL, "last", &request), SNUG_OK);
    assert_int_equal(snug_generate(g, NULL, NULL, NULL, &made), SNUG_OK);
    (void)snprintf(out, size, "%s", made.text);
    snug_generator_close(g);
    snug_config_free(config);
}

/* They change no step, and no byte that was not predicted; what is written is what the model of
 * that step writes. */
void key_sample_prompts(void)
{
    struct trial none, two;
    char text[256];
    TRAIN(&none, trial_text(), "max_steps=6", "bf16=true");
    assert_int_equal(none.n_samples, 0);
    TRAIN(&two, trial_text(), "max_steps=6", "bf16=true", TWO_PROMPTS, "sample_steps=3",
          "sample_max_new_tokens=12", "sample_temperature=0", "save_strategy=steps");
    assert_true(trial_same_losses(&none, &two));
    assert_int_equal(two.n_samples, 4);
    assert_string_equal(two.samples[0].prompt, "ab, c");
    assert_string_equal(two.samples[1].prompt, "de");
    assert_true(two.plan.arena_bytes > none.plan.arena_bytes);
    assert_int_equal(two.steps[5].arena_bytes, two.plan.arena_bytes);
    for (int i = 2; i < 4; i++) {
        generate(&two, two.samples[i].prompt, text, sizeof(text));
        assert_string_equal(two.samples[i].text, text);
    }
    expect_in_metrics(&two, "\"prompt\":\"ab, c\"");
    TRAIN(&two, trial_text(), "sample_prompts=ab, c", "sample_max_new_tokens=2");
    assert_int_equal(two.n_samples, 1);
    assert_string_equal(two.samples[0].prompt, "ab, c");
    REFUSED("positions for 64", "sample_prompts=0123456789012345678901234567890123456789"
                                "0123456789012345678901234567890123456789");
}

void key_sample_steps(void)
{
    struct trial t;
    TRAIN(&t, trial_text(), "max_steps=7", TWO_PROMPTS, "sample_steps=3",
          "sample_max_new_tokens=2");
    expect_steps(&t, STEPS(3, 6, 7));
    TRAIN(&t, trial_text(), "max_steps=7", TWO_PROMPTS, "save_steps=5", "sample_max_new_tokens=2");
    expect_steps(&t, STEPS(5, 7)); /* unset: as often as saving */
    TRAIN(&t, trial_text(), "max_steps=7", TWO_PROMPTS, "val_set_size=4", "eval_strategy=steps",
          "eval_steps=2", "sample_max_new_tokens=2");
    expect_steps(&t, STEPS(2, 4, 6, 7)); /* or as evaluating */
    REFUSED("set sample_prompts", "sample_steps=2");
}

void key_sample_max_new_tokens(void)
{
    struct trial few, more;
    TRAIN(&few, trial_text(), TWO_PROMPTS, "sample_temperature=0", "sample_max_new_tokens=3");
    TRAIN(&more, trial_text(), TWO_PROMPTS, "sample_temperature=0", "sample_max_new_tokens=9");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(few.samples[i].n_tokens, 3);
        assert_int_equal(more.samples[i].n_tokens, 9);
        assert_memory_equal(more.samples[i].text, few.samples[i].text, strlen(few.samples[i].text));
    }
    assert_true(more.plan.arena_bytes > few.plan.arena_bytes);
    TRAIN(&more, trial_text(), TWO_PROMPTS, "sample_temperature=0", "sample_max_new_tokens=900");
    assert_int_equal(more.samples[0].n_tokens, 64 - 5); /* no more positions */
}

/* At a rate of 0 the model is the same after every step: the likeliest tokens are too, and those
 * that are drawn are not. */
void key_sample_temperature(void)
{
    struct trial cold, warm, again;
#define STILL trial_text(), "learning_rate=0", TWO_PROMPTS, "sample_steps=1"
    TRAIN(&cold, STILL, "sample_temperature=0");
    TRAIN(&warm, STILL, "sample_temperature=1");
    TRAIN(&again, STILL, "sample_temperature=1");
    assert_string_equal(cold.samples[0].text, cold.samples[2].text);
    assert_string_not_equal(warm.samples[0].text, warm.samples[2].text);
    assert_string_not_equal(warm.samples[0].text, cold.samples[0].text);
    assert_string_equal(warm.samples[2].text, again.samples[2].text);
#undef STILL
}
