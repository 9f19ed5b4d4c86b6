/* Every update rule in whole runs: it learns, takes the memory that was predicted, and leaves the
 * same bits wherever its states live, with several micro-steps too. */
#include <math.h>
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
    bool split;    /* masters of 24 bits */
    bool averages; /* of the weights, and slow ones */
} rules[] = {
    {"adamw, 24 bits", OPTIMIZER_ADAMW, FORMAT_F32, true, 1e-3, true, false},
    {"adamw_8bit, 24 bits", OPTIMIZER_ADAMW, FORMAT_BLOCK8, true, 1e-3, true, false},
    {"lion_8bit, 24 bits", OPTIMIZER_LION, FORMAT_BLOCK8, true, 3e-4, true, false},
    {"muon, 24 bits", OPTIMIZER_MUON, FORMAT_F32, true, 1e-3, true, false},
    {"adamw, averages", OPTIMIZER_ADAMW, FORMAT_F32, false, 1e-3, false, true},
    {"adamw, bf16, averages", OPTIMIZER_ADAMW, FORMAT_F32, true, 1e-3, false, true},
    {"lion", OPTIMIZER_LION, FORMAT_F32, false, 3e-4, false, false},
    {"lion, bf16", OPTIMIZER_LION, FORMAT_F32, true, 3e-4, false, false},
    {"lion_8bit", OPTIMIZER_LION, FORMAT_BLOCK8, false, 3e-4, false, false},
    {"lion_8bit, bf16", OPTIMIZER_LION, FORMAT_BLOCK8, true, 3e-4, false, false},
    {"adafactor", OPTIMIZER_ADAFACTOR, FORMAT_FACTORED, false, 1e-3, false, false},
    {"adafactor, bf16", OPTIMIZER_ADAFACTOR, FORMAT_FACTORED, true, 1e-3, false, false},
    {"muon", OPTIMIZER_MUON, FORMAT_F32, false, 1e-3, false, false},
    {"muon, bf16", OPTIMIZER_MUON, FORMAT_F32, true, 1e-3, false, false},
    {"muon_8bit", OPTIMIZER_MUON, FORMAT_BLOCK8, false, 1e-3, false, false},
    {"muon_8bit, bf16", OPTIMIZER_MUON, FORMAT_BLOCK8, true, 1e-3, false, false},
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
    r->precision.split_masters = rule->split;
    r->optimizer = (struct optimizer_options){.kind = rule->kind,
                                              .beta1 = 0.9,
                                              .beta2 = 0.99,
                                              .epsilon = 1e-8,
                                              .adafactor = {-0.8, 1.0, false, false, false},
                                              .muon = {0.95, true, true, 5},
                                              .weight_decay = 0.1,
                                              .max_grad_norm = 1.0,
                                              .seed = rule->split ? 3 : 0};
    if (rule->averages) {
        r->optimizer.ema_decay = 0.9;
        r->optimizer.lookahead.period = 2;
        r->optimizer.lookahead.rate = 0.8;
    }
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
    int n_steps = SNUG_ASAN ? 4 : 30; /* too few to have learnt, enough for every kernel */
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        struct run r;
        run_init(&r, &rules[i], 1);
        run_steps(&r, 1);
        double before = loss_of(&r);
        for (int step = 1; step < n_steps; step++)
            training_step(&r.training, step);
        print_message("%s: from %.4f to %.4f\n", rules[i].name, before, loss_of(&r));
        assert_true(SNUG_ASAN || loss_of(&r) < 0.85 * before);
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

/* Beside bf16 weights: two bytes of moments with their scales, a byte of master. */
static void adamw_of_8_bits_and_24_bit_masters_has_5_bytes_a_parameter(void **state)
{
    struct run r;
    int64_t by_class[MEMORY_CLASS_COUNT], n_params = 0, n_large = 0;
    (void)state;
    run_init(&r, &rules[1], 1);
    training_emit(&r.training);
    const struct stage *s = r.training.stage;
    for (int i = 0; i < s->io.n_params; i++) {
        int64_t n = shape_elems(&graph_value(s->graph, s->io.params[i].value)->shape);
        n_params += n;
        n_large += n >= 4096 ? n : 0;
    }
    program_memory_at(s->program, &r.training.engine.work.storage, TIER_DEVICE,
                      program_peak(s->program, TIER_DEVICE), by_class);
    int64_t n_small = n_params - n_large; /* f32, and its moments too: norms */
    int64_t have = by_class[MEMORY_WEIGHTS] + by_class[MEMORY_MASTERS] + by_class[MEMORY_OPTIMIZER];
    assert_int_equal(by_class[MEMORY_MASTERS], n_large);
    assert_true(have >= 5 * n_large + 12 * n_small);
    assert_true((double)have < 5.04 * (double)n_large + 12.0 * (double)n_small + 4096.0);
    training_release(&r.training);
}

/* Loss of the first steps, on average: a last one depends on how a single rounding went. */
static double mean_loss(const struct rule *rule, int n_steps)
{
    double sum = 0;
    struct run r;
    run_init(&r, rule, 1);
    for (int step = 0; step < n_steps; step++) {
        if (step == 0)
            run_steps(&r, 1);
        else
            training_step(&r.training, step);
        sum += loss_of(&r);
    }
    training_release(&r.training);
    return sum / n_steps;
}

/* Bytes behind bf16 weights learn what f32 behind them does. */
static void masters_of_24_bits_learn_like_f32(void **state)
{
    struct rule rule = rules[0];
    (void)state;
    if (SNUG_ASAN) /* steps that all do the same to memory */
        skip();
    double split = mean_loss(&rule, 40);
    rule.split = false;
    double f32 = mean_loss(&rule, 40);
    print_message("f32 masters %.5f, 24-bit masters %.5f\n", f32, split);
    assert_true(fabs(split - f32) < 0.002 * f32); /* without the bytes: 0.4 % */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_learns_in_the_memory_that_was_predicted),
        cmocka_unit_test(every_rule_leaves_the_same_bits_wherever_its_states_live),
        cmocka_unit_test(adamw_of_8_bits_and_24_bit_masters_has_5_bytes_a_parameter),
        cmocka_unit_test(masters_of_24_bits_learn_like_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
