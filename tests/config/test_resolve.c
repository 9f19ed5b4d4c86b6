/* Derived values, contradictions, printing back, running out of memory, and the shipped configs. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"

#define MODEL "model: {model_type: gpt2}\n"

static enum status resolve_text(const char *text, int64_t n_ranks, struct config **out)
{
    enum status status = config_load_text(out, text, strlen(text), "demo.yaml", NULL, 0);
    if (status != OK)
        fail_msg("does not load: %s", status_message());
    return config_resolve(*out, n_ranks);
}

static struct config *resolved(const char *text, int64_t n_ranks)
{
    struct config *cfg;
    if (resolve_text(text, n_ranks, &cfg) != OK)
        fail_msg("%s", status_message());
    return cfg;
}

static void contradicts(const char *text, int64_t n_ranks, const char *expected)
{
    struct config *cfg;
    enum status status = resolve_text(text, n_ranks, &cfg);
    config_free(cfg);
    if (status != ERR_CONFIG)
        fail_msg("%s for: %s", status_name(status), text);
    if (!strstr(status_message(), expected))
        fail_msg("no \"%s\" in: %s", expected, status_message());
}

static void batch_is(const char *text, int64_t n_ranks, int64_t micro, int64_t accumulation,
                     int64_t total)
{
    struct config *cfg = resolved(text, n_ranks);
    assert_int_equal(cfg->per_device_train_batch_size, micro);
    assert_int_equal(cfg->gradient_accumulation_steps, accumulation);
    assert_int_equal(cfg->train_batch_size, total);
    config_free(cfg);
}

static void any_two_batch_sizes_imply_the_third(void **state)
{
    (void)state;
    batch_is(MODEL, 1, 8, 1, 8);
    batch_is(MODEL "micro_batch_size: 2\ngradient_accumulation_steps: 3\n", 4, 2, 3, 24);
    batch_is(MODEL "micro_batch_size: 2\ntrain_batch_size: 24\n", 4, 2, 3, 24);
    batch_is(MODEL "gradient_accumulation_steps: 3\ntrain_batch_size: 24\n", 4, 2, 3, 24);
    batch_is(MODEL "train_batch_size: 24\n", 4, 6, 1, 24);
    batch_is(MODEL "micro_batch_size: 2\ngradient_accumulation_steps: auto\n", 4, 2, 1, 8);
    batch_is(MODEL "micro_batch_size: 2\ngradient_accumulation_steps: auto\n"
                   "train_batch_size: 24\n",
             4, 2, 3, 24);
    batch_is(MODEL "micro_batch_size: 2\ngradient_accumulation_steps: 3\ntrain_batch_size: 6\n", 1,
             2, 3, 6);
}

static void contradictory_batches_show_the_arithmetic(void **state)
{
    (void)state;
    contradicts(MODEL "per_device_train_batch_size: 8\ngradient_accumulation_steps: 4\n"
                      "train_batch_size: 30\n",
                1,
                "train_batch_size 30 (demo.yaml:4) is not per_device_train_batch_size 8 "
                "(demo.yaml:2) x gradient_accumulation_steps 4 (demo.yaml:3) x 1 rank = 32");
    contradicts(MODEL "per_device_train_batch_size: 8\ntrain_batch_size: 30\n", 2,
                "train_batch_size 30 (demo.yaml:3) is not a multiple of "
                "per_device_train_batch_size 8 (demo.yaml:2) x 2 ranks = 16; write 16");
}

static void unset_keys_are_derived(void **state)
{
    (void)state;
    struct config *cfg = resolved(MODEL "seed: 7\noutput_dir: here\nsave_steps: 50\n"
                                        "learning_rate: 1e-2\nlr_scheduler_type: cosine\n"
                                        "min_lr_ratio: 0.1\nper_device_train_batch_size: 3\n",
                                  1);
    assert_int_equal(cfg->data_seed, 7);
    assert_int_equal(cfg->eval_steps, 50);
    assert_int_equal(cfg->per_device_eval_batch_size, 3);
    assert_string_equal(cfg->logging_dir, "here/runs");
    assert_string_equal(cfg->run_name, "here");
    assert_string_equal(cfg->tokenizer, "bytes");
    assert_true(fabs(cfg->min_lr - 1e-3) < 1e-15);
    assert_int_equal(cfg->datasets.n, 1);
    assert_int_equal(cfg->datasets.items[0].type, CONFIG_DATASET_SYNTHETIC);
    assert_int_equal(cfg->max_steps, 100);
    assert_string_equal(config_where(cfg, "data_seed"), "derived");
    assert_string_equal(config_where(cfg, "seed"), "demo.yaml:2");
    config_free(cfg);
}

static void decay_is(const char *text, double beta2)
{
    struct config *cfg = resolved(text, 1);
    assert_true(cfg->adam_beta2 == beta2);
    config_free(cfg);
}

static void lion_remembers_a_hundred_steps_unless_it_is_told(void **state)
{
    (void)state;
    decay_is(MODEL, 0.999);
    decay_is(MODEL "optim: lion\n", 0.99);
    decay_is(MODEL "optim: paged_lion_8bit\n", 0.99);
    decay_is(MODEL "optim: lion\nadam_beta2: 0.999\n", 0.999);
    decay_is(MODEL "optim: lion_8bit\noptim_args: beta2=0.95\n", 0.95);
}

static void warmup_is_steps_or_a_fraction(void **state)
{
    (void)state;
    struct config *cfg = resolved(MODEL "warmup_steps: 10\n", 1);
    assert_int_equal(config_warmup_steps(cfg, 1000), 10);
    config_free(cfg);
    cfg = resolved(MODEL "warmup_steps: 0.03\n", 1);
    assert_int_equal(config_warmup_steps(cfg, 1010), 31);
    config_free(cfg);
    cfg = resolved(MODEL "warmup_ratio: 0.1\nwarmup_steps: 0\n", 1);
    assert_int_equal(config_warmup_steps(cfg, 1000), 100);
    config_free(cfg);
}

static void contradictions_name_both_places(void **state)
{
    (void)state;
    contradicts("seed: 1\n", 1, "no model: write model_name_or_path");
    contradicts(MODEL "warmup_steps: 10\nwarmup_ratio: 0.1\n", 1,
                "warmup_steps 10 (demo.yaml:2) and warmup_ratio");
    contradicts(MODEL "warmup_steps: 1.5\n", 1, "demo.yaml:2: warmup_steps 1.5");
    contradicts(MODEL "warmup_steps: 5\nlr_scheduler_type: constant\n", 1, "constant_with_warmup");
    contradicts(MODEL "bf16: true\nfp16: true\n", 1, "bf16 (demo.yaml:2) and fp16 (demo.yaml:3)");
    contradicts(MODEL "eval_strategy: steps\n", 1, "demo.yaml:2: evaluation is asked for");
    contradicts(MODEL "eval_on_start: true\n", 1, "demo.yaml:2: evaluation is asked for");
    contradicts(MODEL "max_steps: 0\n", 1, "demo.yaml:2: max_steps 0");
    contradicts(MODEL "max_steps: -1\n", 1, "demo.yaml:2: synthetic data has no end");
    contradicts(MODEL "min_lr: 1\nlr_scheduler: cosine\n", 1, "min_lr 1 (demo.yaml:2) is above");
    contradicts(MODEL "min_lr: 1e-6\n", 1, "demo.yaml:2: min_lr belongs to cosine");
    contradicts(MODEL "lr_scheduler: cosine_with_min_lr\n", 1, "needs min_lr");
    contradicts(MODEL "lr_scheduler: cosine\nmin_lr: 0\nmin_lr_ratio: 0\n", 1, "keep one");
    contradicts(MODEL "momentum: 0.9\n", 1, "demo.yaml:2: momentum belongs to optim sgd");
    contradicts(MODEL "optim: sgd\nnesterov: true\n", 1, "demo.yaml:3: nesterov needs");
    contradicts(MODEL "optim: adamw_8bit\noptim_state_dtype: bf16\n", 1,
                "demo.yaml:3: optim: adamw_8bit keeps its moments in 8-bit codes");
    contradicts(MODEL "optim: paged_adamw\noffload_optimizer: false\n", 1,
                "demo.yaml:3: optim: paged_adamw may keep its moments in host memory");
    contradicts(MODEL "val_set_size: 2.5\n", 1, "demo.yaml:2: val_set_size 2.5");
    contradicts(MODEL "val_set_size: 0.1\neval_datasets: x\n", 1, "evaluate on one");
    contradicts(MODEL "report_to: [none, tensorboard]\n", 1, "none stands alone");
}

/* Every spelling of other tools: what it keeps its moments in, and whether they may leave. */
static void spellings_of_adamw_mean_its_formats(void **state)
{
    static const struct {
        const char *word;
        bool is_8bit, is_paged;
    } words[] = {
        {"adamw", false, false},
        {"adamw_torch", false, false},
        {"adamw_torch_fused", false, false},
        {"adamw_8bit", true, false},
        {"adamw_bnb_8bit", true, false},
        {"adamw_torch_8bit", true, false},
        {"ao_adamw_8bit", true, false},
        {"paged_adamw", false, true},
        {"paged_adamw_32bit", false, true},
        {"paged_adamw_8bit", true, true},
        {"sgd", false, false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        char text[256];
        (void)snprintf(text, sizeof(text), MODEL "optim: %s\n", words[i].word);
        struct config *cfg = resolved(text, 1);
        assert_int_equal(config_optim_is_8bit(cfg), words[i].is_8bit);
        assert_int_equal(config_optim_is_paged(cfg), words[i].is_paged);
        config_free(cfg);
    }
}

static void round_trips(const char *text)
{
    struct config *a = resolved(text, 2), *b;
    struct str yaml = {0}, again = {0};
    json_t *before, *after;
    assert_int_equal(config_print_yaml(a, &yaml), OK);
    if (config_load_text(&b, str_text(&yaml), yaml.n, "printed", NULL, 0) != OK ||
        config_resolve(b, 2) != OK)
        fail_msg("%s\n%s", status_message(), str_text(&yaml));
    assert_int_equal(config_json(a, &before), OK);
    assert_int_equal(config_json(b, &after), OK);
    if (!json_equal(before, after))
        fail_msg("printed config differs:\n%s", str_text(&yaml));
    assert_int_equal(config_print_yaml(b, &again), OK);
    assert_string_equal(str_text(&yaml), str_text(&again));
    json_decref(before);
    json_decref(after);
    str_release(&yaml);
    str_release(&again);
    config_free(a);
    config_free(b);
}

static void a_printed_config_loads_back_the_same(void **state)
{
    (void)state;
    round_trips(MODEL);
    round_trips(
        "base_model: 'some folder/x: y'\n"
        "datasets:\n"
        "  - {path: \"tab\\there \\u00e9\\U0001F600 \\\"q\\\"\", type: jsonl, text_field: '12'}\n"
        "  - {path: x.bin, type: nanogpt, token_dtype: u32, split: train}\n"
        "  - {path: y.bin, token_dtype: u32}\n"
        "  - {type: random, n_tokens: 77}\n"
        "eval_datasets: e.txt\n"
        "learning_rate: 0.1234567890123456789\nlr_scheduler: cosine\nmin_lr_ratio: 0.3\n"
        "train_batch_size: 8\ngradient_accumulation_steps: 2\n"
        "save_strategy: no\nbf16: auto\ndevice_memory: 13.3GiB\nlmhead_chunks: 3\n"
        "gradient_checkpointing: 0-3,7\nresume: true\nmax_time: 1h30m\nrun_name: 'null'\n"
        "warmup_steps: 0.5\nreport_to: none\nnum_threads: 3\nseed: 1e6\n");
    round_trips("base_model: x\nmodel: {a: [1, 2.0, null, {b: no, c: {}}], 'key: odd': 1e-5, e: "
                "'', f: '1', g: true, "
                "h: 1e300, i: -0.0, j: \"true\", k: []}\nmax_steps: 3\noptim: sgd\nmomentum: 0.9\n"
                "nesterov: true\n");
}

static void every_shipped_config_loads_and_resolves(void **state)
{
    (void)state;
    DIR *folder = opendir(SNUG_SOURCE_DIR "/configs");
    assert_non_null(folder);
    int n_found = 0;
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        char path[1024];
        struct config *cfg;
        if (!str_ends_with(entry->d_name, ".yaml"))
            continue;
        (void)snprintf(path, sizeof(path), "%s/configs/%s", SNUG_SOURCE_DIR, entry->d_name);
        if (config_load(&cfg, path, NULL, 0) != OK || config_resolve(cfg, 1) != OK)
            fail_msg("%s", status_message());
        assert_true(cfg->model_name_or_path || json_object_get(cfg->model, "model_type") ||
                    json_object_get(cfg->model, "layers"));
        config_free(cfg);
        n_found++;
    }
    closedir(folder);
    assert_true(n_found >= 8);
}

/* Loads, resolves and prints; whatever happens, nothing may be left behind. */
static enum status whole_life(void)
{
    static const char text[] = MODEL "datasets: [a.txt, {path: b, type: jsonl}]\n"
                                     "lr_scheduler_kwargs: {min_lr: 1e-6}\nlr_scheduler: cosine\n"
                                     "report_to: [tensorboard]\ngradient_checkpointing: 0-3\n";
    const char *overrides[] = {"model.task_specific_params.y=[1, {a: 2}]", "datasets.2.path=c",
                               "max_steps=3"};
    struct config *cfg = NULL;
    struct str yaml = {0};
    json_t *json = NULL;
    enum status status;
    TRY_GOTO(
        config_load_text(&cfg, text, strlen(text), "demo.yaml", overrides, ARRAY_LEN(overrides)),
        out);
    TRY_GOTO(config_resolve(cfg, 1), out);
    TRY_GOTO(config_print_yaml(cfg, &yaml), out);
    TRY_GOTO(config_json(cfg, &json), out);
out:
    json_decref(json);
    str_release(&yaml);
    config_free(cfg);
    return status;
}

static void running_out_of_memory_leaks_nothing(void **state)
{
    (void)state;
    json_set_alloc_funcs(mem_alloc, mem_free); /* Jansson's allocations can fail too */
    int64_t live = mem_live();
    int64_t n = 0;
    enum status status;
    do {
        mem_fail_after(++n, 0);
        status = whole_life();
        mem_fail_after(0, 0);
        assert_true(status == OK || status == ERR_MEMORY);
        assert_int_equal(mem_live(), live);
        assert_true(n < 100000);
    } while (status != OK);
    assert_true(n > 10);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_two_batch_sizes_imply_the_third),
        cmocka_unit_test(contradictory_batches_show_the_arithmetic),
        cmocka_unit_test(unset_keys_are_derived),
        cmocka_unit_test(lion_remembers_a_hundred_steps_unless_it_is_told),
        cmocka_unit_test(warmup_is_steps_or_a_fraction),
        cmocka_unit_test(contradictions_name_both_places),
        cmocka_unit_test(spellings_of_adamw_mean_its_formats),
        cmocka_unit_test(a_printed_config_loads_back_the_same),
        cmocka_unit_test(every_shipped_config_loads_and_resolves),
        cmocka_unit_test(running_out_of_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
