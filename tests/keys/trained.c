/* Keys of what is trained: adapters, frozen parameters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "keys/keys.h"
#include "support/trial.h"

/* Of the tiny model: hidden size, width of the feed-forward layer, layers. */
static int64_t n_trained(const char *const *overrides)
{
    struct trial t;
    trial_plan(&t, SNUG_TRAIN, overrides);
    return t.plan.n_trainable;
}

#define TRAINED(...) n_trained(OVERRIDES(__VA_ARGS__))

/* Matrices of several blocks of codes: of smaller ones the padding is most. */
#define WIDE "model.hidden_size=128", "model.intermediate_size=512"

/* ---- adapters -------------------------------------------------------------------------------- */

void key_adapter(void)
{
    struct trial all, lora;
    TRAIN(&all, "adapter=none", "learning_rate=0.01");
    TRAIN(&lora, "adapter=lora", "learning_rate=0.01");
    assert_int_equal(all.plan.n_trainable, all.plan.n_params);
    assert_true(lora.plan.n_trainable < all.plan.n_trainable);
    assert_int_equal(lora.plan.n_params, all.plan.n_params + lora.plan.n_trainable);
    assert_int_equal(all.plan.breakdown[SNUG_MEMORY_FROZEN], 0);
    assert_true(lora.plan.breakdown[SNUG_MEMORY_FROZEN] > 0);
    assert_true(lora.plan.breakdown[SNUG_MEMORY_OPTIMIZER] <
                all.plan.breakdown[SNUG_MEMORY_OPTIMIZER]);
    /* An adapter adds nothing until it is trained, and then it does. */
    assert_true(lora.steps[0].loss == all.steps[0].loss);
    assert_true(lora.steps[2].loss != all.steps[2].loss);
    struct trial qlora;
    PLAN(&lora, "adapter=lora", WIDE);
    PLAN(&qlora, "adapter=qlora", WIDE);
    assert_int_equal(qlora.plan.n_trainable, lora.plan.n_trainable);
    assert_true(qlora.plan.breakdown[SNUG_MEMORY_FROZEN] <
                lora.plan.breakdown[SNUG_MEMORY_FROZEN] / 2);
}

void key_lora_r(void)
{
    int64_t four = TRAINED("adapter=lora", "lora_r=4");
    assert_int_equal(TRAINED("adapter=lora", "lora_r=12"), 3 * four);
    assert_int_equal(TRAINED("finetuning_type=lora", "lora_rank=4"), four);
    REFUSED("lora_r is of an adapter, and there is none", "lora_r=4");
}

/* The same step with another scale of what is added: seen where it is trained. */
static void expect_other_losses(const char *a, const char *b, const char *more)
{
    struct trial x, y;
    TRAIN(&x, "adapter=lora", "learning_rate=0.01", a, more);
    TRAIN(&y, "adapter=lora", "learning_rate=0.01", b, more);
    assert_true(x.steps[0].loss == y.steps[0].loss);
    assert_true(x.steps[2].loss != y.steps[2].loss);
}

void key_lora_alpha(void)
{
    expect_other_losses("lora_alpha=8", "lora_alpha=32", "lora_r=8");
}

void key_lora_dropout(void)
{
    struct trial a, b;
    expect_other_losses("lora_dropout=0", "lora_dropout=0.5", "lora_r=8");
    TRAIN(&a, "adapter=lora", "lora_dropout=0.5", "gradient_checkpointing=false");
    TRAIN(&b, "adapter=lora", "lora_dropout=0.5", "gradient_checkpointing=true");
    assert_true(trial_same_losses(&a, &b)); /* the same elements are dropped again */
}

void key_lora_target_modules(void)
{
    int64_t q = TRAINED("adapter=lora", "lora_target_modules=q_proj");
    int64_t v = TRAINED("adapter=lora", "lora_target_modules=v_proj");
    int64_t one = TRAINED("adapter=lora", "lora_target_modules=model.layers.1.self_attn.q_proj");
    assert_int_equal(TRAINED("adapter=lora", "lora_target=[q_proj, v_proj]"), q + v);
    assert_int_equal(TRAINED("adapter=lora", "lora_target_modules=q_proj,v_proj"), q + v);
    assert_int_equal(one * TRIAL_LAYERS, q);
    assert_true(TRAINED("adapter=lora", "lora_target=all") > q + v);
    REFUSED("no linear layer of the model is called 'query'", "adapter=lora", "lora_target=query");
    REFUSED("is a pattern", "adapter=lora", "lora_target_modules=.*_proj");
}

void key_lora_target_linear(void)
{
    assert_int_equal(
        TRAINED("adapter=lora", "lora_target_modules=q_proj", "lora_target_linear=true"),
        TRAINED("adapter=lora", "lora_target_modules=all-linear"));
}

void key_use_rslora(void)
{
    expect_other_losses("use_rslora=false", "peft_use_rslora=true", "lora_r=8");
    struct trial a, b;
    TRAIN(&a, "adapter=lora", "lora_r=4", "lora_alpha=8", "use_rslora=true");
    TRAIN(&b, "adapter=lora", "lora_r=4", "lora_alpha=16");
    assert_true(trial_same_losses(&a, &b)); /* 8 / sqrt(4) is 16 / 4 */
}

void key_use_dora(void)
{
    int64_t plain = TRAINED("adapter=lora", "lora_target=[q_proj]");
    int64_t rows = TRAINED("adapter=lora", "lora_target=[q_proj]", "use_dora=true") - plain;
    assert_true(rows > 0 && rows % TRIAL_LAYERS == 0);
    struct trial a, b;
    TRAIN(&a, "adapter=lora", "learning_rate=0.01");
    TRAIN(&b, "adapter=lora", "learning_rate=0.01", "peft_use_dora=true");
    expect_within(b.steps[0].loss, a.steps[0].loss, 1e-6); /* lengths are those of the weights */
    assert_true(a.steps[2].loss != b.steps[2].loss);
    REFUSED("set lora_dropout: 0", "adapter=lora", "use_dora=true", "lora_dropout=0.1");
}

void key_lora_modules_to_save(void)
{
    struct trial t;
    int64_t plain = TRAINED("adapter=lora", "model.tie_word_embeddings=false");
    PLAN(&t, "adapter=lora", "model.tie_word_embeddings=false", "modules_to_save=[lm_head]");
    assert_true(t.plan.n_trainable > plain);
    assert_int_equal((t.plan.n_trainable - plain) % t.plan.vocab_size, 0);
    REFUSED("means no parameter", "adapter=lora", "lora_modules_to_save=score");
    REFUSED("is computed as one with", "adapter=lora", "lora_modules_to_save=q_proj");
    REFUSED("is also the head", "adapter=lora", "model.tie_word_embeddings=true",
            "lora_modules_to_save=embed_tokens");
}

void key_lora_bias(void)
{
    const char *biased = "model.attention_bias=true", *out = "lora_target_modules=[o_proj]";
    int64_t none = TRAINED("adapter=lora", biased, out);
    int64_t own = TRAINED("adapter=lora", biased, out, "lora_bias=lora_only");
    int64_t all = TRAINED("adapter=lora", biased, out, "lora_bias=all");
    assert_true(none < own && own < all);
}

void key_rank_pattern(void)
{
    const char *target = "lora_target_modules=[q_proj, o_proj]";
    int64_t q = TRAINED("adapter=lora", "lora_target_modules=q_proj");
    int64_t both = TRAINED("adapter=lora", target);
    assert_int_equal(TRAINED("adapter=lora", target, "rank_pattern={q_proj: 16}"), both + q);
    assert_int_equal(
        TRAINED("adapter=lora", target, "rank_pattern={layers.0.self_attn.q_proj: 16}"),
        both + q / TRIAL_LAYERS);
    REFUSED("must be a whole number", "adapter=lora", "rank_pattern={q_proj: 1.5}");
}

void key_alpha_pattern(void)
{
    expect_other_losses("alpha_pattern=", "alpha_pattern={o_proj: 64}", "lora_r=8");
}

/* An adapter that a run has saved is where another begins: the losses go on, and nothing else of
 * the model has changed. */
void key_adapter_name_or_path(void)
{
    struct trial a, b;
    char folder[SCRATCH_PATH + 64];
    TRAIN(&a, "adapter=lora", "learning_rate=0.01", "save_strategy=steps", "save_steps=2");
    (void)snprintf(folder, sizeof(folder), "adapter_name_or_path=%s/checkpoint-2", a.folder);
    TRAIN(&b, folder, "learning_rate=0.01");
    assert_int_equal(a.plan.n_trainable, b.plan.n_trainable);
    assert_true(b.steps[0].loss != a.steps[0].loss);
    REFUSED("has its own; leave it out", folder, "lora_r=4");
    REFUSED("no such folder", "adapter_name_or_path=/no/such/adapter");
}

/* ---- quantised weights ----------------------------------------------------------------------- */

static int64_t frozen_bytes(const char *const *overrides)
{
    struct trial t;
    trial_plan(&t, SNUG_TRAIN, overrides);
    return t.plan.breakdown[SNUG_MEMORY_FROZEN];
}

#define FROZEN(...) frozen_bytes(OVERRIDES(__VA_ARGS__))

void key_load_in_4bit(void)
{
    struct trial whole, four;
    TRAIN(&whole, "adapter=lora", "learning_rate=0.01", WIDE);
    TRAIN(&four, "adapter=lora", "learning_rate=0.01", WIDE, "load_in_4bit=true");
    assert_true(four.plan.breakdown[SNUG_MEMORY_FROZEN] < whole.plan.breakdown[SNUG_MEMORY_FROZEN]);
    assert_true(four.steps[0].loss != whole.steps[0].loss);
    expect_within(four.steps[0].loss, whole.steps[0].loss, 0.05);
    assert_true(four.steps[2].loss != four.steps[0].loss);
    REFUSED("weights in nf4 are not trained", "load_in_4bit=true");
    REFUSED("not in both", "adapter=lora", "load_in_4bit=true", "load_in_8bit=true");
}

void key_load_in_8bit(void)
{
    struct trial whole, eight;
    TRAIN(&whole, "adapter=lora", WIDE);
    TRAIN(&eight, "adapter=lora", "load_in_8bit=true", WIDE);
    assert_true(eight.steps[0].loss != whole.steps[0].loss);
    expect_within(eight.steps[0].loss, whole.steps[0].loss, 0.01);
    assert_true(FROZEN("adapter=qlora", WIDE) < FROZEN("adapter=lora", "load_in_8bit=true", WIDE));
    REFUSED("not in both", "adapter=qlora", "load_in_8bit=true");
}

void key_quantization_bit(void)
{
    assert_int_equal(FROZEN("adapter=lora", "quantization_bit=4"), FROZEN("adapter=qlora"));
    assert_int_equal(FROZEN("adapter=lora", "quantization_bit=8"),
                     FROZEN("adapter=lora", "load_in_8bit=true"));
    REFUSED("4 or 8 bits", "adapter=lora", "quantization_bit=3");
}

void key_bnb_4bit_quant_type(void)
{
    struct trial a, b;
    TRAIN(&a, "adapter=qlora", "bnb_4bit_quant_type=nf4");
    TRAIN(&b, "adapter=qlora", "quantization_type=fp4");
    assert_int_equal(a.plan.breakdown[SNUG_MEMORY_FROZEN], b.plan.breakdown[SNUG_MEMORY_FROZEN]);
    assert_true(a.steps[0].loss != b.steps[0].loss);
    REFUSED("write load_in_4bit: true too", "adapter=lora", "bnb_4bit_quant_type=fp4");
}

void key_bnb_4bit_use_double_quant(void)
{
    struct trial a, b;
    TRAIN(&a, "adapter=qlora", "bnb_4bit_use_double_quant=true", WIDE);
    TRAIN(&b, "adapter=qlora", "double_quantization=false", WIDE);
    assert_true(a.steps[0].loss != b.steps[0].loss);
    expect_within(a.steps[0].loss, b.steps[0].loss, 0.01);
}

void key_bnb_4bit_compute_dtype(void)
{
    struct trial a, b;
    TRAIN(&a, "adapter=qlora", "bnb_4bit_compute_dtype=bfloat16");
    TRAIN(&b, "adapter=qlora", "bf16=true");
    assert_string_equal(a.precision, "bf16 with f32 masters");
    assert_true(trial_same_losses(&a, &b));
    REFUSED("says another", "adapter=qlora", "bnb_4bit_compute_dtype=float32", "bf16=true");
}

void key_llm_int8_skip_modules(void)
{
    struct trial head, all;
    int64_t plain = FROZEN("adapter=qlora", WIDE),
            kept = FROZEN("adapter=qlora", WIDE, "llm_int8_skip_modules=[lm_head, down_proj]");
    assert_true(kept > plain);
    TRAIN(&head, "adapter=qlora", WIDE);
    TRAIN(&all, "adapter=qlora", WIDE, "llm_int8_skip_modules=[]");
    assert_true(all.plan.breakdown[SNUG_MEMORY_FROZEN] < plain);
    assert_true(all.steps[0].loss != head.steps[0].loss);
    expect_within(all.steps[0].loss, head.steps[0].loss, 0.05);
    REFUSED("write load_in_4bit: true or load_in_8bit: true too", "llm_int8_skip_modules=[]");
}

/* Norms before the last layer of each half, and nothing else, are parameters beside a Llama's. */
void key_quantization(void)
{
    enum { N = 12 };
    struct trial plain, t, again;
    TRAIN(&plain, "max_steps=1");
    TRAIN(&t, "quantization=bitnet", "max_steps=12", "learning_rate=0.01", trial_text());
    assert_true(t.plan.n_params > plain.plan.n_params);
    assert_int_equal(t.plan.n_trainable, t.plan.n_params);
    assert_int_equal(t.n_steps, N);
    assert_true(t.steps[N - 1].loss < 0.9 * t.steps[0].loss);
    TRAIN(&again, "quantization=bitnet", "max_steps=12", "learning_rate=0.01", trial_text(),
          "gradient_checkpointing=true");
    assert_true(trial_same_losses(&t, &again));
    REFUSED("trains the weights themselves", "quantization=bitnet", "adapter=lora");
    REFUSED("model_type llama", "quantization=bitnet", "model.model_type=qwen3");
    REFUSED("are of another", "quantization=bitnet",
            "model=", "model_name_or_path=tests/golden/llama");
}

/* ---- frozen parameters ----------------------------------------------------------------------- */

void key_freeze(void)
{
    struct trial all, some;
    TRAIN(&all, "learning_rate=0.01");
    TRAIN(&some, "learning_rate=0.01", "freeze=[model.embed_tokens, 0-0]");
    assert_int_equal(all.plan.n_params, some.plan.n_params);
    assert_true(some.plan.n_trainable < all.plan.n_trainable);
    assert_true(some.steps[0].loss == all.steps[0].loss);
    assert_true(some.steps[2].loss != all.steps[2].loss);
    assert_int_equal(TRAINED("freeze=*.mlp.*"), TRAINED("freeze=*.mlp.*_proj.weight"));
    REFUSED("means no parameter of the model", "freeze=encoder");
    REFUSED("name all parts", "freeze=*.q_proj.weight");
    REFUSED("nothing is left to train", "freeze=*");
    REFUSED("nothing is left to train", "freeze=*", "max_grad_norm=0");
    REFUSED("lora_modules_to_save", "adapter=lora", "freeze=0-0");
}

void key_unfreeze(void)
{
    int64_t all = TRAINED("seed=1"), blocks = all - TRAINED("freeze=[0-1]");
    assert_int_equal(TRAINED("unfreeze=0-1"), blocks);
    assert_int_equal(TRAINED("freeze=*", "unfreeze=[0, 1]"), blocks);
    assert_int_equal(TRAINED("freeze=0-1", "unfreeze=1"), all - blocks / TRIAL_LAYERS);
}
