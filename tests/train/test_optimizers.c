/* Every update rule in whole runs: it learns, takes the memory that was predicted, and leaves the
 * same bits wherever its states live, with several micro-steps too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/golden.h"
#include "support/training.h"

/* Matrices of 4096 elements and more, and small ones beside them. */
static const char model[] = "{\"model_type\": \"llama\", \"vocab_size\": 96, \"hidden_size\": 64, "
                            "\"intermediate_size\": 128, \"num_hidden_layers\": 2, "
                            "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
                            "\"max_position_embeddings\": 64}";

static const struct rule {
    const char *name;
    enum optimizer_kind kind;
    enum format states;
    bool bf16;
    double lr;
} rules[] = {
    {"lion", OPTIMIZER_LION, FORMAT_F32, false, 3e-4},
    {"lion, bf16", OPTIMIZER_LION, FORMAT_F32, true, 3e-4},
    {"lion_8bit", OPTIMIZER_LION, FORMAT_BLOCK8, false, 3e-4},
    {"lion_8bit, bf16", OPTIMIZER_LION, FORMAT_BLOCK8, true, 3e-4},
    {"adafactor", OPTIMIZER_ADAFACTOR, FORMAT_FACTORED, false, 1e-3},
    {"adafactor, bf16", OPTIMIZER_ADAFACTOR, FORMAT_FACTORED, true, 1e-3},
    {"muon", OPTIMIZER_MUON, FORMAT_F32, false, 1e-3},
    {"muon, bf16", OPTIMIZER_MUON, FORMAT_F32, true, 1e-3},
    {"muon_8bit", OPTIMIZER_MUON, FORMAT_BLOCK8, false, 1e-3},
    {"muon_8bit, bf16", OPTIMIZER_MUON, FORMAT_BLOCK8, true, 1e-3},
};

struct run {
    struct precision precision;
    struct optimizer_options optimizer;
    struct training training;
};

static void run_init(struct run *r, const struct rule *rule, int64_t n_micro)
{
    r->precision = rule->bf16 ? precision_bf16() : precision_f32();
    r->precision.states = rule->states;
    r->optimizer = (struct optimizer_options){.kind = rule->kind,
                                              .beta1 = 0.9,
                                              .beta2 = 0.99,
                                              .epsilon = 1e-8,
                                              .adafactor = {-0.8, 1.0, false, false, false},
                                              .muon = {0.95, true, true, 5},
                                              .weight_decay = 0.1,
                                              .max_grad_norm = 1.0};
    struct training_options o = {.config = model,
                                 .batch = 2,
                                 .seq_len = 24,
                                 .n_micro = n_micro,
                                 .one_batch = true,
                                 .lr = rule->lr,
                                 .precision = &r->precision,
                                 .optimizer = &r->optimizer};
    training_init(&r->training, &o);
}

static void run_steps(struct run *r, int n_steps)
{
    training_emit(&r->training);
    training_start(&r->training);
    for (int step = 0; step < n_steps; step++)
        training_step(&r->training, step);
}

static double loss_of(const struct run *r)
{
    const struct training *t = &r->training;
    return (double)training_output(t, "loss") / (double)training_output(t, "count");
}

static void every_rule_learns_in_the_memory_that_was_predicted(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        struct run r;
        run_init(&r, &rules[i], 1);
        run_steps(&r, 1);
        double before = loss_of(&r);
        for (int step = 1; step < 30; step++)
            training_step(&r.training, step);
        print_message("%s: from %.4f to %.4f\n", rules[i].name, before, loss_of(&r));
        assert_true(loss_of(&r) < 0.85 * before);
        training_expect_prediction(&r.training);
        training_release(&r.training);
    }
}

static void every_rule_leaves_the_same_bits_wherever_its_states_live(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        uint64_t digest[2];
        for (int away = 0; away <= 1; away++) {
            struct run r;
            run_init(&r, &rules[i], 1 + (int64_t)i % 2);
            if (away)
                training_go_away(&r.training);
            run_steps(&r, 3);
            digest[away] = training_digest(&r.training);
            training_expect_prediction(&r.training);
            training_release(&r.training);
        }
        if (digest[0] != digest[1])
            fail_msg("%s: other bits where states live on the host", rules[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_learns_in_the_memory_that_was_predicted),
        cmocka_unit_test(every_rule_leaves_the_same_bits_wherever_its_states_live),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
