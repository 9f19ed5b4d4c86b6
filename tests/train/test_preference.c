/* DPO: its loss, gradients and steps against PyTorch with PEFT, and whole runs: the reference's
 * numbers computed once, the same bits under every plan and after a resume. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "support/apart_device.h"
#include "support/golden.h"
#include "support/trial.h"
#include "train/session.h"

enum { PAIRS = 4, STEPS = 10 };

struct golden_preference {
    const char *name, *base, *adapter, *beta, *smoothing;
};
static const struct golden_preference cases[] = {
    {"llama", "llama", "llama_lora", "beta=0.1", "label_smoothing=0"},
    {"qwen2", "qwen2", "qwen2_lora", "beta=0.3", "label_smoothing=0.1"},
};

/* ---- against PyTorch ------------------------------------------------------------------------- */

struct opened {
    struct config *config;
    struct session s;
    struct st_reader *golden;
};

static void open_case(struct opened *x, const struct golden_preference *c, int n_micro,
                      const char *extra)
{
    char model[128], adapter[128], batch[64], micro[64], file[128];
    (void)snprintf(model, sizeof(model), "model_name_or_path=tests/golden/%s", c->base);
    (void)snprintf(adapter, sizeof(adapter), "adapter_name_or_path=tests/golden/adapters/%s",
                   c->adapter);
    (void)snprintf(batch, sizeof(batch), "per_device_train_batch_size=%d", PAIRS / n_micro);
    (void)snprintf(micro, sizeof(micro), "gradient_accumulation_steps=%d", n_micro);
    (void)snprintf(file, sizeof(file), "tests/golden/preferences/%s.safetensors", c->name);
    const char *overrides[] = {model,
                               adapter,
                               batch,
                               micro,
                               c->beta,
                               extra,
                               c->smoothing,
                               "rl=dpo",
                               "loss_type=sigmoid",
                               "device=cpu",
                               "max_seq_length=24",
                               "learning_rate=3e-3",
                               "adam_beta2=0.95",
                               strcmp(extra, "optim=sgd") ? "weight_decay=0.1" : "max_grad_norm=0",
                               "datasets=tests/golden/preferences/none.jsonl"};
    expect_ok(config_load(&x->config, NULL, overrides, ARRAY_LEN(overrides)));
    expect_ok(config_resolve(x->config, 1));
    expect_ok(
        session_open(&x->s, x->config, &(struct session_options){.train = true, .untimed = true}));
    expect_ok(session_start(&x->s));
    expect_ok(st_reader_open_file(&x->golden, file));
}

static void close_case(struct opened *x)
{
    st_reader_close(x->golden);
    session_close(&x->s);
    config_free(x->config);
}

/* n pairs from the first on of one of the golden tensors. */
static void set_input(struct opened *x, const struct stage *stage, const char *name, int first,
                      int n)
{
    const struct st_tensor *t = st_reader_find(x->golden, name);
    size_t each = (size_t)t->n_bytes / PAIRS;
    memcpy(engine_input(&x->s.engine, stage, name), (const char *)t->data + (size_t)first * each,
           (size_t)n * each);
}

static void set_pairs(struct opened *x, int first, int n)
{
    set_input(x, x->s.train, "tokens", first, n);
    set_input(x, x->s.train, "targets", first, n);
    set_input(x, x->s.train, "reference", first, n);
    float *is_pair = engine_input(&x->s.engine, x->s.train, "is_pair");
    for (int i = 0; i < n; i++)
        is_pair[i] = 1;
}

static double output(const struct opened *x, const char *name)
{
    return (double)*(const float *)engine_output(&x->s.engine, x->s.train, name);
}

/* The loss of an optimizer step. */
static double step(struct opened *x, int n_micro, int number, double lr)
{
    struct engine *e = &x->s.engine;
    int n = PAIRS / n_micro;
    *(float *)engine_input(e, x->s.train, LOSS_SEED) = 1.0f / PAIRS;
    *(float *)engine_input(e, x->s.train, "lr") = (float)lr;
    int32_t *at = engine_input(e, x->s.train, "step");
    if (at)
        *at = number;
    if (n_micro > 1)
        expect_ok(engine_run(e, x->s.train, "begin"));
    for (int i = 0; i < n_micro; i++) {
        const char *last = n_micro > 1 ? "last" : "step";
        set_pairs(x, i * n, n);
        expect_ok(engine_run(e, x->s.train, i + 1 < n_micro ? "micro" : last));
    }
    return output(x, "loss") / output(x, "count");
}

static void ten_steps_give_the_losses_of_pytorch(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (int n_micro = 1; n_micro <= 2; n_micro++) {
            struct opened x;
            double want[STEPS];
            open_case(&x, &cases[i], n_micro, "max_grad_norm=1");
            memcpy(want, st_reader_find(x.golden, "adamw_losses")->data, sizeof(want));
            for (int k = 0; k < STEPS; k++)
                assert_true(fabs(step(&x, n_micro, k + 1, 3e-3) - want[k]) < 1e-5);
            close_case(&x);
        }
    }
}

static void rewards_and_margins_are_told(void **state)
{
    struct opened x;
    double chosen = 0, rejected = 0, better = 0;
    (void)state;
    open_case(&x, &cases[0], 1, "max_grad_norm=1");
    const float *rewards = (const float *)(const void *)st_reader_find(x.golden, "rewards")->data;
    for (int i = 0; i < PAIRS; i++) {
        chosen += (double)rewards[2 * i];
        rejected += (double)rewards[2 * i + 1];
        better += rewards[2 * i] > rewards[2 * i + 1];
    }
    (void)step(&x, 1, 1, 0);
    assert_true(fabs(output(&x, "rewards/chosen") - chosen) < 1e-5);
    assert_true(fabs(output(&x, "rewards/rejected") - rejected) < 1e-5);
    assert_true(fabs(output(&x, "rewards/margins") - (chosen - rejected)) < 1e-5);
    assert_true(output(&x, "rewards/accuracies") == better);
    close_case(&x);
}

/* A tensor of the run, as it is now. */
static void copy_param(const struct opened *x, int i, float *out)
{
    const struct tensor *t = &x->s.engine.param_tensors[i];
    memcpy(out, t->data, (size_t)tensor_bytes(t));
}

/* A step of SGD with rate 1 takes the gradient off. */
static void check_gradient(struct opened *x, int i, const float *before)
{
    enum { MOST = 4096 };
    char name[256];
    float after[MOST];
    const struct model_param *p = &x->s.engine.params[i];
    (void)snprintf(name, sizeof(name), "grad.%s", p->pieces[0].name);
    const struct st_tensor *t = st_reader_find(x->golden, name);
    assert_non_null(t);
    const float *want = (const float *)(const void *)t->data;
    int64_t n = shape_elems(&p->shape);
    assert_true(n <= MOST);
    copy_param(x, i, after);
    for (int64_t k = 0; k < n; k++)
        assert_true(fabsf(before[k] - after[k] - want[k]) < 1e-5f * fmaxf(1, fabsf(want[k])));
}

static void every_gradient_equals_that_of_pytorch(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        static float before[64][4096];
        struct opened x;
        int n_checked = 0;
        open_case(&x, &cases[i], 1, "optim=sgd");
        for (int k = 0, at = 0; k < x.s.engine.n_params; k++) {
            if (x.s.engine.params[k].adapter)
                copy_param(&x, k, before[at++]);
        }
        (void)step(&x, 1, 1, 1.0);
        for (int k = 0; k < x.s.engine.n_params; k++) {
            if (x.s.engine.params[k].adapter)
                check_gradient(&x, k, before[n_checked++]);
        }
        assert_true(n_checked >= 8);
        close_case(&x);
    }
}

/* The program without the adapter gives PEFT's numbers with the adapter disabled. */
static void the_reference_is_the_model_without_its_adapter(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct opened x;
        open_case(&x, &cases[i], 1, "max_grad_norm=1");
        set_input(&x, x.s.reference, "tokens", 0, PAIRS);
        set_input(&x, x.s.reference, "targets", 0, PAIRS);
        expect_ok(engine_run(&x.s.engine, x.s.reference, "forward"));
        const float *got = engine_output(&x.s.engine, x.s.reference, REFERENCE_OUTPUT);
        const float *want =
            (const float *)(const void *)st_reader_find(x.golden, "reference")->data;
        for (int k = 0; k < 2 * PAIRS; k++)
            assert_true(fabsf(got[k] - want[k]) < 1e-5f * fabsf(want[k]));
        close_case(&x);
    }
}

/* ---- whole runs ------------------------------------------------------------------------------ */

/* Texts; messages after a prompt; lists that begin alike; messages before an answer of one. */
static const char *write_preferences(void)
{
    scratch_write_text(trials_scratch(), "preferences.jsonl",
                       "{\"prompt\":\"2+2=\",\"chosen\":\"4\",\"rejected\":\"five\"}\n"
                       "{\"prompt\":\"sky is \",\"chosen\":\"blue\",\"rejected\":\"up\"}\n"
                       "{\"prompt\":[{\"role\":\"user\",\"content\":\"hi\"}],"
                       "\"chosen\":[{\"role\":\"assistant\",\"content\":\"hello\"}],"
                       "\"rejected\":[{\"role\":\"assistant\",\"content\":\"no\"}]}\n"
                       "{\"chosen\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
                       "\"content\":\"b\"}],\"rejected\":[{\"role\":\"user\",\"content\":\"a\"},"
                       "{\"role\":\"assistant\",\"content\":\"c\"}]}\n"
                       "{\"conversations\":[{\"from\":\"human\",\"value\":\"x\"}],"
                       "\"chosen\":{\"from\":\"gpt\",\"value\":\"yes\"},"
                       "\"rejected\":{\"from\":\"gpt\",\"value\":\"no\"}}\n");
    return trial_path("datasets.0.path", "preferences.jsonl");
}

#define DPO                                                                     \
    "rl=dpo", write_preferences(), "chat_template=chatml", "max_seq_length=96", \
        "model.max_position_embeddings=96", "learning_rate=0.01", "max_steps=6"

/* Before anything is trained both answers are as likely as they were: log 2, whatever beta is. */
static void a_run_begins_at_log_2_and_learns(void **state)
{
    struct trial all, lora;
    (void)state;
    TRAIN(&all, DPO);
    TRAIN(&lora, DPO, "adapter=lora");
    for (int i = 0; i < 2; i++) {
        const struct trial *t = i ? &lora : &all;
        assert_int_equal(t->n_steps, 6);
        expect_within(t->steps[0].loss, log(2), 1e-6);
        assert_true(t->steps[5].loss < t->steps[0].loss - 0.001);
        assert_true(t->steps[0].arena_bytes == t->steps[0].arena_predicted);
    }
}

/* GPT-2's biases go into GELU, but not those of layers with an adapter. */
static void biases_have_one_format_with_the_adapter_and_without(void **state)
{
    static const char gpt2[] = "model={model_type: gpt2, vocab_size: 320, n_embd: 32, n_head: 2, "
                               "n_layer: 1, n_positions: 96}";
    struct trial t;
    (void)state;
    TRAIN(&t, "rl=dpo", write_preferences(), "chat_template=chatml", "max_seq_length=96", gpt2,
          "adapter=lora", "bf16=true", "max_steps=2");
    expect_within(t.steps[0].loss, log(2), 1e-3);
}

static void budgets_and_plans_change_no_bit(void **state)
{
    struct trial plain, less, again;
    char budget[64];
    (void)state;
    TRAIN(&plain, DPO, "adapter=lora");
    (void)snprintf(budget, sizeof(budget), "device_memory=%lld",
                   (long long)plain.plan.arena_bytes / 16 * 15);
    TRAIN(&less, DPO, "adapter=lora", budget);
    TRAIN(&again, DPO, "adapter=lora", "gradient_checkpointing=true");
    assert_true(less.plan.arena_bytes < plain.plan.arena_bytes);
    assert_true(trial_same_losses(&plain, &less));
    assert_true(trial_same_losses(&plain, &again));
}

static void micro_batches_give_the_same_losses(void **state)
{
    struct trial one, two;
    (void)state;
    TRAIN(&one, DPO, "per_device_train_batch_size=2");
    TRAIN(&two, DPO, "per_device_train_batch_size=1", "gradient_accumulation_steps=2");
    for (int i = 0; i < 2; i++) /* an epoch: its end is cut in another way */
        expect_within(two.steps[i].loss, one.steps[i].loss, 1e-5);
}

static void expect_resumed(const char *adapter, const char *folder, bool keeps)
{
    struct trial whole, first, rest;
    char path[SCRATCH_PATH];
    const char *own = trial_path("output_dir", folder);
    TRAIN(&whole, DPO, adapter);
    TRAIN(&first, DPO, adapter, own, "max_steps=3", "lr_scheduler_type=constant",
          "save_strategy=steps", "save_steps=3");
    (void)snprintf(path, sizeof(path), "%s/reference-train", strchr(own, '=') + 1);
    assert_true(file_is_regular(path));
    if (!keeps)
        assert_int_equal(remove(path), 0);
    TRAIN(&rest, DPO, adapter, own, "lr_scheduler_type=constant", "resume_from_checkpoint=last");
    assert_int_equal(rest.n_steps, 3);
    for (int i = 0; i < 3; i++)
        assert_true(rest.steps[i].loss == whole.steps[3 + i].loss);
}

static void a_resumed_run_goes_on_bit_for_bit(void **state)
{
    (void)state;
    expect_resumed("adapter=lora", "lora", true);
    expect_resumed("adapter=lora", "lora2", false); /* the model is there: they are made again */
    expect_resumed("adapter=none", "full", true);
}

static void without_the_model_or_its_numbers_nothing_is_resumed(void **state)
{
    struct trial t;
    char path[SCRATCH_PATH];
    const char *own = trial_path("output_dir", "lost");
    (void)state;
    TRAIN(&t, DPO, own, "max_steps=2", "save_strategy=steps", "save_steps=2");
    (void)snprintf(path, sizeof(path), "%s/reference-train", strchr(own, '=') + 1);
    assert_int_equal(remove(path), 0);
    REFUSED("that model is no more", DPO, own, "resume_from_checkpoint=last");
}

static void evaluations_tell_accuracies(void **state)
{
    struct trial t;
    (void)state;
    TRAIN(&t, DPO, "adapter=lora", "eval_strategy=steps", "eval_steps=6", "val_set_size=2");
    assert_int_equal(t.n_evals, 1);
    const struct snug_evaluation *e = &t.evals[0];
    assert_int_equal(e->n_tokens, 2);
    bool found = false;
    for (int i = 0; i < e->n_metrics; i++)
        found |= strcmp(e->metrics[i].name, "rewards/accuracies") == 0 &&
                 e->metrics[i].value >= 0 && e->metrics[i].value <= 1;
    assert_true(found);
}

/* What the model said of them is known: they were trained on. */
static void a_trained_model_is_evaluated_on_what_it_was_trained_on(void **state)
{
    struct trial t;
    struct snug_config *config;
    struct snug_run *run;
    struct snug_evaluation e;
    const char *own = trial_path("output_dir", "trained");
    (void)state;
    TRAIN(&t, DPO, own, "max_steps=2", "save_strategy=steps", "save_steps=2");
    assert_int_equal(snug_config_load(&config, strchr(own, '=') + 1, NULL, 0), SNUG_OK);
    assert_int_equal(snug_run_open(&run, config, NULL, SNUG_EVALUATE), SNUG_OK);
    if (snug_run_evaluate(run, "last", &e) != SNUG_OK)
        fail_msg("%s", snug_error_message());
    assert_true(e.loss < log(2));
    snug_run_close(run);
    snug_config_free(config);
}

static void records_without_two_answers_are_refused(void **state)
{
    (void)state;
    const char *rest = "chat_template=chatml";
    scratch_write_text(trials_scratch(), "one.jsonl", "{\"prompt\":\"a\",\"chosen\":\"b\"}\n");
    REFUSED("has no \"rejected\"", "rl=dpo", trial_path("datasets.0.path", "one.jsonl"), rest);
    REFUSED("trained on with rl: dpo", trial_path("datasets.0.path", "one.jsonl"),
            "datasets.0.type=csv", rest);
}

static int begin(void **state)
{
    (void)state;
    trials_begin();
    return 0;
}

static int end(void **state)
{
    (void)state;
    trials_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_steps_give_the_losses_of_pytorch),
        cmocka_unit_test(rewards_and_margins_are_told),
        cmocka_unit_test(every_gradient_equals_that_of_pytorch),
        cmocka_unit_test(the_reference_is_the_model_without_its_adapter),
        cmocka_unit_test(a_run_begins_at_log_2_and_learns),
        cmocka_unit_test(biases_have_one_format_with_the_adapter_and_without),
        cmocka_unit_test(budgets_and_plans_change_no_bit),
        cmocka_unit_test(micro_batches_give_the_same_losses),
        cmocka_unit_test(a_resumed_run_goes_on_bit_for_bit),
        cmocka_unit_test(without_the_model_or_its_numbers_nothing_is_resumed),
        cmocka_unit_test(evaluations_tell_accuracies),
        cmocka_unit_test(a_trained_model_is_evaluated_on_what_it_was_trained_on),
        cmocka_unit_test(records_without_two_answers_are_refused),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
