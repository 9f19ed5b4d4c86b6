/* What a session makes of its data: the ends of documents, the steps of an epoch, and the tokens at
 * which generated text ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/golden.h"
#include "support/scratch.h"
#include "task/language.h"
#include "train/session.h"
#include "train/stop_tokens.h"
#include "train/trainer.h"

#define MODEL                                                                                \
    "model={model_type: gpt2, vocab_size: 300, n_embd: 8, n_layer: 1, n_head: 1, n_ctx: 8, " \
    "n_positions: 8, eos_token_id: 7}"

/* A vocabulary of two bytes, in which no token has the name of an end. */
static const char plain_tokenizer[] =
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}";

struct fixture {
    struct scratch scratch;
    struct config *config;
    struct session session;
};

static void open_session(struct fixture *f, const char *tokenizer, const char *file,
                         const char *extra)
{
    char data[600], output[600], name[600];
    (void)snprintf(data, sizeof(data), "datasets=[{path: %s/%s}]", f->scratch.folder, file);
    (void)snprintf(output, sizeof(output), "output_dir=%s/out", f->scratch.folder);
    (void)snprintf(name, sizeof(name), "tokenizer=%s", tokenizer);
    const char *overrides[] = {MODEL,
                               data,
                               output,
                               name,
                               "max_seq_length=4",
                               "per_device_train_batch_size=4",
                               "num_train_epochs=2",
                               "device=cpu",
                               extra};
    expect_ok(config_load(&f->config, NULL, overrides, ARRAY_LEN(overrides)));
    expect_ok(config_resolve(f->config, 1));
    expect_ok(session_open(&f->session, f->config, &(struct session_options){.train = true}));
    expect_ok(session_data(&f->session));
}

static void close_session(struct fixture *f)
{
    session_close(&f->session);
    config_free(f->config);
    scratch_release(&f->scratch);
}

static void the_models_end_of_text_serves_a_tokenizer_without_one(void **state)
{
    (void)state;
    struct fixture f;
    char path[SCRATCH_PATH];
    int32_t tokens[30], labels[30];
    scratch_init(&f.scratch);
    scratch_write_text(&f.scratch, "tokenizer.json", plain_tokenizer);
    scratch_write_text(&f.scratch, "a.txt", "ababababababababababababababa");
    open_session(&f, scratch_path(&f.scratch, "tokenizer.json", path), "a.txt", "seed=1");
    assert_int_equal(source_n_tokens(language_source(f.session.data)), 30);
    assert_int_equal(source_read(language_source(f.session.data), 0, 30, tokens, labels), OK);
    assert_int_equal(tokens[28], 0);
    assert_int_equal(tokens[29], 7);
    close_session(&f);
}

/* 22 sequences of 4 + 1 bytes: five batches of 4 and a rest of 2. */
static void write_sequences(struct fixture *f)
{
    char text[111];
    memset(text, 'x', sizeof(text));
    text[110] = '\0';
    scratch_init(&f->scratch);
    scratch_write_text(&f->scratch, "a.txt", text);
}

static void the_rest_of_an_epoch_is_a_batch_unless_it_is_dropped(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int64_t n_batches;
    } cases[] = {{"dataloader_drop_last=false", 6}, {"dataloader_drop_last=true", 5}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct fixture f;
        write_sequences(&f);
        open_session(&f, "bytes", "a.txt", cases[i].key);
        assert_int_equal(loader_n_samples(f.session.loader), 22);
        assert_int_equal(loader_n_batches(f.session.loader), cases[i].n_batches);
        int64_t n_steps;
        expect_ok(train_total_steps(&f.session, &n_steps));
        assert_int_equal(n_steps, 2 * cases[i].n_batches);
        close_session(&f);
    }
}

/* A run that has another micro-batch by now is as long as when it began: 22 sequences were then
 * three batches of 8, or without the rest two. */
static void an_epoch_is_as_long_as_it_was_with_the_first_micro_batch(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int64_t n_batches;
    } cases[] = {{"dataloader_drop_last=false", 3}, {"dataloader_drop_last=true", 2}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct fixture f;
        int64_t n_steps;
        write_sequences(&f);
        open_session(&f, "bytes", "a.txt", cases[i].key);
        f.config->train_batch_size = 8; /* in two micro-batches of 4 */
        f.config->gradient_accumulation_steps = 2;
        f.session.first_batch = 8;
        expect_ok(train_total_steps(&f.session, &n_steps));
        assert_int_equal(n_steps, 2 * cases[i].n_batches);
        close_session(&f);
    }
}

/* Evaluations that end early are comparable: they read the same samples, in their order. */
static void training_is_shuffled_and_evaluation_is_not(void **state)
{
    struct fixture f;
    (void)state;
    write_sequences(&f);
    open_session(&f, "bytes", "a.txt", "shuffle=true");
    assert_true(session_loader_options(&f.session, false).shuffle);
    assert_false(session_loader_options(&f.session, true).shuffle);
    close_session(&f);
}

static void every_end_of_text_that_the_folder_names_stops_generation(void **state)
{
    (void)state;
    struct scratch s;
    struct model *model;
    struct tokenizer *t;
    struct token_list stops = {0};
    scratch_init(&s);
    json_t *config = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:[i,i]}", "model_type", "gpt2",
                               "vocab_size", 300, "n_embd", 8, "n_layer", 1, "n_head", 1,
                               "n_positions", 8, "eos_token_id", 3, 5);
    expect_ok(model_new(&model, config, &(struct key_origin){.where = "config.json"}));
    expect_ok(tokenizer_open(&t, "bytes"));
    expect_ok(stop_tokens_read(&stops, t, model, s.folder));
    const int32_t without[] = {256, 3, 5};
    assert_int_equal(stops.n, 3);
    assert_memory_equal(stops.items, without, sizeof(without));

    scratch_write_text(&s, "generation_config.json", "{\"eos_token_id\": [9, 11]}");
    stops.n = 0;
    expect_ok(stop_tokens_read(&stops, t, model, s.folder));
    const int32_t with[] = {256, 3, 5, 9, 11};
    assert_int_equal(stops.n, 5);
    assert_memory_equal(stops.items, with, sizeof(with));

    scratch_write_text(&s, "generation_config.json", "{\"eos_token_id\": \"</s>\"}");
    assert_int_equal(stop_tokens_read(&stops, t, model, s.folder), ERR_DATA);
    expect_message("generation_config.json: eos_token_id");
    token_list_release(&stops);
    tokenizer_free(t);
    model_free(model);
    json_decref(config);
    scratch_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_models_end_of_text_serves_a_tokenizer_without_one),
        cmocka_unit_test(training_is_shuffled_and_evaluation_is_not),
        cmocka_unit_test(the_rest_of_an_epoch_is_a_batch_unless_it_is_dropped),
        cmocka_unit_test(an_epoch_is_as_long_as_it_was_with_the_first_micro_batch),
        cmocka_unit_test(every_end_of_text_that_the_folder_names_stops_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
