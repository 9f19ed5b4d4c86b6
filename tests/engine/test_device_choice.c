/* What a config asks of its device: had, or refused with the place and the reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/device_choice.h"

static struct config *load(const char *text)
{
    struct config *cfg;
    if (config_load_text(&cfg, text, strlen(text), "demo.yaml", NULL, 0) != OK)
        fail_msg("%s", status_message());
    return cfg;
}

static struct device_tuning chosen(const char *text)
{
    struct config *cfg = load(text);
    struct device d;
    if (device_choose(&d, cfg, NULL, 0) != OK)
        fail_msg("%s: %s", text, status_message());
    struct device_tuning t = d.tuning;
    device_close(&d);
    config_free(cfg);
    return t;
}

static void refuses(const char *text, enum status code, const char *part)
{
    struct config *cfg = load(text);
    struct device d;
    enum status status = device_choose(&d, cfg, NULL, 0);
    if (status != code || !strstr(status_message(), part))
        fail_msg("%s: %s, %s", text, status_name(status), status_message());
    assert_null(d.ops);
    config_free(cfg);
}

static void the_cpu_runs_what_it_has(void **state)
{
    (void)state;
    assert_false(chosen("device: cpu\n").unrecorded);
    assert_true(chosen("device: cpu\ncompile: default\n").unrecorded);
    assert_true(chosen("device: cpu\ncompile: none\n").unrecorded);
    assert_false(chosen("device: cpu\ntf32: auto\n").tf32);
    assert_false(chosen("device: cpu\ndeterministic: true\n").search);
}

static void the_cpu_refuses_what_it_has_not(void **state)
{
    (void)state;
    refuses("device: cpu\ncompile: max-autotune\n", ERR_UNSUPPORTED, "demo.yaml:2");
    refuses("device: cpu\ncompile: max-autotune\n", ERR_UNSUPPORTED, "use compile: default");
    refuses("device: cpu\ncompile: reduce-overhead\n", ERR_UNSUPPORTED, "the cpu");
    refuses("device: cpu\ntf32: true\n", ERR_UNSUPPORTED, "demo.yaml:2: tf32");
}

/* On a machine with a GPU; without one there is nothing to tune. */
static void a_gpu_takes_it_up(void **state)
{
    (void)state;
    if (device_count_cuda() == 0)
        skip();
    assert_false(chosen("device: cuda\n").unrecorded);
    assert_true(chosen("device: cuda\ncompile: default\n").unrecorded);
    assert_true(chosen("device: cuda\ncompile: max-autotune\n").search);
    refuses("device: cuda\ncompile: max-autotune\ndeterministic: true\n", ERR_CONFIG,
            "use compile: reduce-overhead");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cpu_runs_what_it_has),
        cmocka_unit_test(the_cpu_refuses_what_it_has_not),
        cmocka_unit_test(a_gpu_takes_it_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
