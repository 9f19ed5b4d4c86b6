/* Learning rates by step against those of transformers' schedulers (tests/golden/schedules.json).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <jansson.h>

#include "support/golden.h"
#include "train/rate.h"

enum { MOST_SETTINGS = 16 };

static const char base[] = "model: {model_type: gpt2}\ndatasets: [{type: synthetic}]\n"
                           "learning_rate: 0.01\nmax_steps: 24\n";

static json_t *read_golden(void)
{
    json_t *root = json_load_file(SNUG_SOURCE_DIR "/tests/golden/schedules.json", 0, NULL);
    assert_non_null(root);
    return root;
}

static struct config *load(const json_t *settings, const char *extra)
{
    const char *overrides[MOST_SETTINGS];
    size_t n = json_array_size(settings);
    struct config *cfg;
    assert_in_range(n, 1, MOST_SETTINGS - 2);
    for (size_t i = 0; i < n; i++)
        overrides[i] = json_string_value(json_array_get(settings, i));
    if (extra) {
        overrides[n++] = extra;
        overrides[n++] = "val_set_size=0.5";
        overrides[n++] = "eval_strategy=steps";
    }
    expect_ok(config_load_text(&cfg, base, sizeof(base) - 1, "base", overrides, n));
    expect_ok(config_resolve(cfg, 1));
    return cfg;
}

static void expect_rate(const json_t *of, size_t i, double got)
{
    double due = json_number_value(json_array_get(json_object_get(of, "rates"), i));
    char *text = NULL;
    if (fabs(got - due) <= 1e-14)
        return;
    text = json_dumps(json_object_get(of, "settings"), 0);
    fail_msg("%s: step %zu: %.17g, not %.17g", text, i, got, due);
}

static void every_schedule_has_the_rates_of_transformers(void **state)
{
    json_t *root = read_golden(), *one;
    size_t i, n_steps = (size_t)json_integer_value(json_object_get(root, "steps"));
    (void)state;
    assert_int_equal(n_steps, 24);
    json_array_foreach(json_object_get(root, "schedules"), i, one)
    {
        struct config *cfg = load(json_object_get(one, "settings"), NULL);
        struct schedule s = rate_schedule(cfg, (int64_t)n_steps);
        for (size_t k = 0; k < n_steps; k++)
            expect_rate(one, k, schedule_at(&s, (int64_t)k));
        config_free(cfg);
    }
    assert_true(i >= 16);
    json_decref(root);
}

static void a_plateau_lowers_the_rate_as_in_torch(void **state)
{
    json_t *root = read_golden(), *one, *metric;
    size_t i, k;
    (void)state;
    json_array_foreach(json_object_get(root, "plateaus"), i, one)
    {
        struct config *cfg =
            load(json_object_get(one, "settings"), "lr_scheduler_type=reduce_lr_on_plateau");
        struct plateau p = rate_plateau(cfg, false);
        struct plateau_state s = {.lr = cfg->learning_rate, .best = (double)NAN};
        json_array_foreach(json_object_get(one, "metrics"), k, metric)
        {
            plateau_step(&p, &s, json_number_value(metric));
            expect_rate(one, k, s.lr);
        }
        assert_true(s.lr < cfg->learning_rate);
        config_free(cfg);
    }
    assert_true(i >= 3);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_has_the_rates_of_transformers),
        cmocka_unit_test(a_plateau_lowers_the_rate_as_in_torch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
