/* Whole training steps with adapters against PEFT, and under budgets, on a device whose memory is
 * apart from the host's: config to program to losses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/apart_device.h"
#include "support/golden.h"
#include "support/golden_training.h"
#include "support/trial.h"
#include "train/session.h"

/* ---- losses ---------------------------------------------------------------------------------- */

static void train(const struct golden_adapter *a, int n_micro, const char *extra,
                  struct trained *out)
{
    char adapter[256];
    (void)snprintf(adapter, sizeof(adapter), "adapter_name_or_path=tests/golden/adapters/%s",
                   a->name);
    train_golden("cpu", a->base, n_micro, adapter, extra, out);
}

static void expect_losses_of_peft(const struct golden_adapter *a, const struct trained *t,
                                  double tolerance)
{
    char name[128];
    double want[N_STEPS];
    (void)snprintf(name, sizeof(name), "adapters/%s", a->name);
    golden_losses(name, want);
    expect_near(a->name, t->losses, want, tolerance);
}

/* Packed products of which parts are adapted, with the head trained; DoRA; weights in codes. */
static const struct golden_adapter planned[] = {{"llama_patterns", "llama"},
                                                {"mistral_dora", "mistral"},
                                                {"llama_qlora", "llama_nf4"},
                                                {"qwen3_moe_qlora", "qwen3_moe_nf4"},
                                                {NULL, NULL}};

static void twenty_steps_give_the_losses_of_peft(void **state)
{
    (void)state;
    for (const struct golden_adapter *a = golden_adapters; a->name; a++) {
        struct trained t;
        train(a, 1, NULL, &t);
        expect_losses_of_peft(a, &t, 1e-5);
    }
}

static void micro_batches_and_unfused_ops_give_them_too(void **state)
{
    (void)state;
    for (const struct golden_adapter *a = planned; a->name; a++) {
        struct trained t;
        train(a, 3, NULL, &t);
        expect_losses_of_peft(a, &t, 1e-5);
        train(a, 1, "compile=none", &t);
        expect_losses_of_peft(a, &t, 1e-5);
    }
}

static void bf16_follows_the_f32_losses(void **state)
{
    (void)state;
    for (const struct golden_adapter *a = golden_adapters; a->name; a++) {
        struct trained t;
        train(a, 1, "bf16=true", &t);
        expect_losses_of_peft(a, &t, 2e-2);
    }
}

/* Codes are the same whether they are made here or were stored so. */
static void weights_quantised_when_loaded_are_those_that_were_stored(void **state)
{
    static const struct {
        const char *model, *stored, *adapter;
    } cases[] = {{"llama", "llama_nf4", "adapter_name_or_path=tests/golden/adapters/llama_qlora"},
                 {"qwen3_moe", "qwen3_moe_nf4",
                  "adapter_name_or_path=tests/golden/adapters/qwen3_moe_qlora"}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trained stored, made;
        train_golden("cpu", cases[i].stored, 1, cases[i].adapter, NULL, &stored);
        train_golden("cpu", cases[i].model, 1, cases[i].adapter, "load_in_4bit=true", &made);
        assert_memory_equal(stored.losses, made.losses, sizeof(made.losses));
        assert_int_equal(stored.predicted[TIER_DEVICE], made.predicted[TIER_DEVICE]);
    }
}

/* bitsandbytes' layer has them in f16 before it codes them: a code may be a neighbour's. */
static void a_folder_in_8_bits_loads_as_it_is(void **state)
{
    const char *adapter = "adapter_name_or_path=tests/golden/adapters/llama_lora";
    struct trained stored, made;
    (void)state;
    train_golden("cpu", "llama_int8", 1, adapter, NULL, &stored);
    train_golden("cpu", "llama", 1, adapter, "load_in_8bit=true", &made);
    expect_near("llama_int8", stored.losses, made.losses, 2e-3);
    assert_int_equal(stored.predicted[TIER_DEVICE], made.predicted[TIER_DEVICE]);
}

static void expect_equal(const struct trained *a, const struct trained *b)
{
    assert_memory_equal(a->losses, b->losses, sizeof(a->losses));
    assert_memory_equal(a->norms, b->norms, sizeof(a->norms));
    for (int tier = 0; tier < TIER_COUNT; tier++)
        assert_int_equal(b->measured[tier], b->predicted[tier]);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void plans_change_no_bit_of_any_loss(void **state)
{
    static const char *const plans[] = {"gradient_checkpointing=true",
                                        "gradient_checkpointing=attention"};
    (void)state;
    for (const struct golden_adapter *a = planned; a->name; a++) {
        struct trained plain, other;
        train(a, 1, NULL, &plain);
        cpu_opens_apart = true;
        apart_staging_bytes = 1100; /* weights and codes come in parts */
        for (size_t i = 0; i < ARRAY_LEN(plans); i++) {
            train(a, 1, plans[i], &other);
            expect_equal(&plain, &other);
        }
        cpu_opens_apart = false;
        apart_staging_bytes = 0;
    }
}

static void a_smaller_budget_changes_no_bit_either(void **state)
{
    (void)state;
    cpu_opens_apart = true;
    for (const struct golden_adapter *a = planned; a->name; a++) {
        struct trained plain, less;
        char budget[64];
        train(a, 1, NULL, &plain);
        int64_t n_bytes = plain.predicted[TIER_DEVICE] / 8 * 7;
        (void)snprintf(budget, sizeof(budget), "device_memory=%lld", (long long)n_bytes);
        train(a, 1, budget, &less);
        expect_equal(&plain, &less);
        assert_true(less.predicted[TIER_DEVICE] <= n_bytes);
    }
    cpu_opens_apart = false;
}

/* ---- frozen weights that live on the host ------------------------------------------------------
 */

struct copies {
    int in, out; /* of frozen weights: to the device, and back */
    int trained_out;
};

static struct copies count_copies(const struct stage *s)
{
    struct copies n = {0};
    const struct program *p = s->program;
    for (size_t i = 0; i < p->instrs.n; i++) {
        const struct instr *x = &p->instrs.items[i];
        if (x->kind != INSTR_COPY)
            continue;
        const struct operand *o = &p->operands.items[x->first_operand];
        enum role role = graph_value(s->graph, value_root(s->graph, o[0].value))->role;
        bool leaves = o[1].tier == TIER_HOST;
        n.in += role == ROLE_FROZEN && !leaves;
        n.out += role == ROLE_FROZEN && leaves;
        n.trained_out += role == ROLE_PARAMETER && leaves;
    }
    return n;
}

static void frozen_weights_are_fetched_and_never_written_back(void **state)
{
    /* Small tensors stay where they are: these are large enough to leave. */
    const char *overrides[] = {"model={model_type: llama, vocab_size: 512, hidden_size: 512, "
                               "intermediate_size: 1024, num_hidden_layers: 2, "
                               "num_attention_heads: 2, max_position_embeddings: 64}",
                               "adapter=lora",
                               "lora_r=512",
                               "max_seq_length=24",
                               "device=cpu",
                               "offload_param=true"};
    struct config *cfg;
    struct session s;
    (void)state;
    expect_ok(config_load(&cfg, NULL, overrides, ARRAY_LEN(overrides)));
    expect_ok(config_resolve(cfg, 1));
    cpu_opens_apart = true;
    expect_ok(session_open(&s, cfg, &(struct session_options){.train = true, .untimed = true}));
    cpu_opens_apart = false;
    struct copies n = count_copies(s.train);
    assert_true(n.in > 0);
    assert_int_equal(n.out, 0);
    assert_true(n.trained_out > 0);
    session_close(&s);
    config_free(cfg);
}

static int begin(void **state)
{
    (void)state;
    trials_begin(); /* which measure the CPU once */
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
    if (SNUG_ASAN)
        golden_shorten(3);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twenty_steps_give_the_losses_of_peft),
        cmocka_unit_test(micro_batches_and_unfused_ops_give_them_too),
        cmocka_unit_test(bf16_follows_the_f32_losses),
        cmocka_unit_test(weights_quantised_when_loaded_are_those_that_were_stored),
        cmocka_unit_test(a_folder_in_8_bits_loads_as_it_is),
        cmocka_unit_test(plans_change_no_bit_of_any_loss),
        cmocka_unit_test(a_smaller_budget_changes_no_bit_either),
        cmocka_unit_test(frozen_weights_are_fetched_and_never_written_back),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
