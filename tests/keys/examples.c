/* Keys of fine-tuning data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "keys/keys.h"
#include "support/trial.h"

#define EPOCH "max_steps=-1", "num_train_epochs=1"
#define ROOMY "max_seq_length=176", "model.max_position_embeddings=176"
#define LONG  "max_seq_length=96", "model.max_position_embeddings=96"

static const char *write_chats(int n)
{
    char text[4096];
    size_t at = 0;
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at,
                               "{\"messages\":[{\"role\":\"user\",\"content\":\"ask %d\"},"
                               "{\"role\":\"assistant\",\"content\":\"answer %d\"}]}\n",
                               i, i);
    scratch_write_text(trials_scratch(), "chats.jsonl", text);
    return trial_path("datasets.0.path", "chats.jsonl");
}

void key_chat_template(void)
{
    struct trial a, b;
    const char *data = write_chats(4);
    REFUSED("has no chat template", LONG, data);
    TRAIN(&a, LONG, data, EPOCH, "chat_template=chatml", "shuffle=false");
    TRAIN(&b, LONG, data, EPOCH, "chat_template=zephyr", "shuffle=false");
    assert_int_equal(a.n_steps, 4 / TRIAL_BATCH);
    assert_true(a.steps[0].loss != b.steps[0].loss);
    REFUSED("tokenizer_default", LONG, data, "chat_template=jinja");
}

/* The labels of an evaluation are counted: those of the answer, and those of everything. */
void key_train_on_inputs(void)
{
    struct snug_evaluation e;
    const char *data = write_chats(1);
    EVALUATE(&e, LONG, data, "chat_template=chatml");
    assert_int_equal(e.n_tokens, strlen("answer 0<|im_end|>"));
    EVALUATE(&e, LONG, data, "chat_template=chatml", "train_on_inputs=true");
    assert_int_equal(e.n_tokens, strlen("<|im_start|>user\nask 0<|im_end|>\n<|im_start|>assistant\n"
                                        "answer 0<|im_end|>\n") -
                                     1);
}

void key_max_samples(void)
{
    struct trial t;
    const char *data = write_chats(6);
    TRAIN(&t, LONG, data, EPOCH, "chat_template=chatml", "max_samples=4");
    assert_int_equal(t.n_steps, 4 / TRIAL_BATCH);
    TRAIN(&t, LONG, data, EPOCH, "chat_template=chatml", "max_samples=4",
          "datasets.0.max_samples=2");
    assert_int_equal(t.n_steps, 2 / TRIAL_BATCH);
    TRAIN(&t, LONG, data, EPOCH, "chat_template=chatml", "datasets.0.weight=2");
    assert_int_equal(t.n_steps, 12 / TRIAL_BATCH);
    REFUSED("are about records", trial_text(), "max_samples=4");
}

/* One text fits, the other is cut to the length, or left out. */
void key_excess_length_strategy(void)
{
    struct snug_evaluation e;
    scratch_write_text(trials_scratch(), "long.json",
                       "[{\"text\":\"short\"},{\"text\":\"longer than sixteen tokens are\"}]");
    const char *data = trial_path("datasets.0.path", "long.json");
    EVALUATE(&e, data);
    assert_int_equal(e.n_tokens, 5 + (TRIAL_LENGTH - 1)); /* a first token is no label */
    EVALUATE(&e, data, "excess_length_strategy=drop");
    assert_int_equal(e.n_tokens, 5);
}

/* Four records of 76 tokens: a row each, or two rows; the losses and updates of a step that sees
 * all of them are the same. */
void key_packing(void)
{
    struct trial t, apart, packed, tight;
    struct snug_evaluation e, f;
    REFUSED("texts are one stream", trial_text(), "packing=false");
    TRAIN(&t, trial_text(), "packing=true");
    const char *data = write_chats(4);
    TRAIN(&t, LONG, data, EPOCH, "chat_template=chatml", "packing=false");
    assert_int_equal(t.n_steps, 4 / TRIAL_BATCH);
    TRAIN(&apart, ROOMY, data, "chat_template=chatml", "gradient_accumulation_steps=2");
    TRAIN(&packed, ROOMY, data, "chat_template=chatml", "packing=true");
    TRAIN(&tight, ROOMY, data, "chat_template=chatml", "packing=true",
          "gradient_checkpointing=true");
    assert_int_equal(packed.n_steps, apart.n_steps);
    for (int i = 0; i < packed.n_steps; i++)
        expect_within(packed.steps[i].loss, apart.steps[i].loss, 1e-6);
    assert_true(trial_same_losses(&packed, &tight));
    EVALUATE(&e, ROOMY, data, "chat_template=chatml");
    EVALUATE(&f, ROOMY, data, "chat_template=chatml", "packing=true");
    assert_int_equal(f.n_tokens, e.n_tokens);
    expect_within(f.loss, e.loss, 1e-6);
}

/* Texts of several lengths, one of which fills a row. */
static const char *write_lengths(void)
{
    static const int lengths[] = {3, 5, 60, 4, 6, 2, 90, 7, 5, 3, 4, 8};
    char text[4096];
    size_t at = 0;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        char row[128];
        for (int k = 0; k < lengths[i]; k++)
            row[k] = (char)('a' + (k + (int)i) % 26);
        row[lengths[i]] = 0;
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s{\"text\":\"%s\"}", i ? "," : "[",
                               row);
    }
    (void)snprintf(text + at, sizeof(text) - at, "]");
    scratch_write_text(trials_scratch(), "lengths.json", text);
    return trial_path("datasets.0.path", "lengths.json");
}

/* The longest record comes first, and the steps of short ones compute fewer tokens; what they come
 * to is what whole rows come to. */
void key_group_by_length(void)
{
    struct trial grouped, again, first, rest, micro;
    const char *data = write_lengths(), *own = trial_path("output_dir", "grouped");
    TRAIN(&grouped, LONG, data, EPOCH, "group_by_length=true");
    assert_int_equal(grouped.n_steps, 12 / TRIAL_BATCH);
    assert_true(grouped.steps[0].n_tokens > 90);
    assert_true(grouped.steps[0].arena_bytes == grouped.steps[0].arena_predicted);
    TRAIN(&again, LONG, data, EPOCH, "group_by_length=true", "gradient_checkpointing=true");
    assert_true(trial_same_losses(&grouped, &again));
    TRAIN(&micro, LONG, data, EPOCH, "group_by_length=true", "per_device_train_batch_size=1",
          "gradient_accumulation_steps=2");
    for (int i = 0; i < grouped.n_steps; i++)
        expect_within(micro.steps[i].loss, grouped.steps[i].loss, 1e-5);
    struct trial still;
    struct snug_evaluation e;
    double sum = 0;
    TRAIN(&still, LONG, data, EPOCH, "group_by_length=true", "learning_rate=0");
    EVALUATE(&e, LONG, data);
    for (int i = 0; i < still.n_steps; i++)
        sum += still.steps[i].loss * (double)still.steps[i].n_tokens;
    expect_within(sum / (double)e.n_tokens, e.loss, 1e-6);
    TRAIN(&first, LONG, data, EPOCH, "group_by_length=true", own, "max_steps=2",
          "save_strategy=steps", "save_steps=2");
    TRAIN(&rest, LONG, data, EPOCH, "group_by_length=true", own, "resume_from_checkpoint=last");
    assert_int_equal(rest.n_steps, 4);
    for (int i = 0; i < 4; i++)
        assert_true(rest.steps[i].loss == grouped.steps[2 + i].loss);
    REFUSED("packed rows have one length", LONG, data, "group_by_length=true", "packing=true");
    REFUSED("have 16 tokens: leave it out", trial_text(), "group_by_length=true");
}
