/* All that is wrong with a config is told at once; what is no mistake is not told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/problems.h"
#include "base/str.h"
#include "config/config.h"
#include "support/scratch.h"

/* The config is refused, with n_expected errors. */
static void refuses(const char *text, const char *const *overrides, size_t n_overrides,
                    int n_expected)
{
    struct config *cfg;
    int n = 1;
    enum status status =
        config_load_text(&cfg, text, strlen(text), "demo.yaml", overrides, n_overrides);
    if (status == OK) {
        status = config_resolve(cfg, 1);
        config_free(cfg);
    }
    assert_int_equal(status_exit_code(status), 2);
    for (const char *c = status_message(); *c; c++)
        n += *c == '\n';
    if (n != n_expected)
        fail_msg("%d errors instead of %d:\n%s", n, n_expected, status_message());
}

static void all_mistakes_of_a_file_are_told_at_once(void **state)
{
    (void)state;
    const char *overrides[] = {"no_such_key=1", "max_steps=lots"};
    refuses("model: {model_type: gpt2, n_layers: 2, n_head: 0}\n"
            "learning_rte: 1\n"
            "quantization_method: gptq\n"
            "peft_use_x: 8\n"
            "seed: -3\n"
            "optim: lomo\n"
            "datasets: [{pth: x.txt, typ: text}, {path: y, type: arrow}]\n"
            "fp16: {enabled: maybe, loss_scal: 1}\n"
            "warmup_steps: 10\n"
            "warmup_ratio: 0.5\n",
            overrides, ARRAY_LEN(overrides), 15);
    expect_message("demo.yaml:1: key 'n_layers' is not known here; did you mean 'n_layer'?");
    expect_message("demo.yaml:1: key 'n_head' is 0");
    expect_message("\ndemo.yaml:3: quantization_method: not available");
    expect_message("demo.yaml:5: seed: \"-3\" is out of range");
    expect_message("demo.yaml:7: pth: unknown key of a dataset; did you mean path");
    expect_message("demo.yaml:7: typ: unknown key of a dataset; did you mean type");
    expect_message("demo.yaml:7: type: arrow is not in this version");
    expect_message("demo.yaml:8: fp16.loss_scal: unknown key; did you mean loss_scale?");
    expect_message("demo.yaml:8: fp16.enabled: expected true or false");
    expect_message("command line: no_such_key: unknown key");
    expect_message("command line: max_steps: expected a whole number");
    expect_message("warmup_steps 10 (demo.yaml:9) and warmup_ratio 0.5 (demo.yaml:10): keep one");
}

static void what_follows_from_a_mistake_is_no_second_one(void **state)
{
    (void)state;
    refuses("modle: {model_type: gpt2}\n", NULL, 0, 1);
    expect_message("did you mean model?");
    refuses("model: {model_type: gpt2}\nlr_scheduler_type: cosine_with_restarts\nmin_lr: 1e-6\n",
            NULL, 0, 1);
    refuses("model: {model_type: gpt2}\nlr_scheduler_type: cosine\nmin_lr: 1\nlr: 0.1\n", NULL, 0,
            1);
    expect_message("min_lr 1 (demo.yaml:3) is above learning_rate 0.1 (demo.yaml:4)");
    refuses("model: {model_type: gpt2}\neval_strategy: steps\nval_set_sise: 0.1\n", NULL, 0, 1);
    expect_message("did you mean val_set_size?");
}

static void beyond_twenty_mistakes_are_counted(void **state)
{
    (void)state;
    struct str text = {0};
    for (int i = 0; i < 33; i++)
        str_addf(&text, "unheard_of_%d: 1\n", i);
    refuses(str_text(&text), NULL, 0, PROBLEMS_SHOWN + 1); /* the model is missing too */
    expect_message("\nand 14 more");
    str_release(&text);
}

static void running_out_of_memory_among_mistakes_leaks_nothing(void **state)
{
    (void)state;
    static const char text[] = "model: {model_type: gpt2, a: 1, n_head: 0}\nseed: x\nb: 1\n";
    json_set_alloc_funcs(mem_alloc, mem_free); /* Jansson's allocations can fail too */
    int64_t live = mem_live(), n = 0;
    enum status status;
    do {
        struct config *cfg;
        mem_fail_after(++n, 0);
        status = config_load_text(&cfg, text, strlen(text), "demo.yaml", NULL, 0);
        mem_fail_after(0, 0);
        assert_true(status == ERR_CONFIG || status == ERR_MEMORY);
        assert_int_equal(mem_live(), live);
        assert_true(n < 100000);
    } while (status != ERR_CONFIG);
    assert_true(n > 10);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_mistakes_of_a_file_are_told_at_once),
        cmocka_unit_test(what_follows_from_a_mistake_is_no_second_one),
        cmocka_unit_test(beyond_twenty_mistakes_are_counted),
        cmocka_unit_test(running_out_of_memory_among_mistakes_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
