/* Keys of the model, the tokenizer and the data. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "keys/keys.h"
#include "support/process.h"
#include "support/trial.h"

/* ---- model and tokenizer --------------------------------------------------------------------- */

/* Weights of a folder are the same whatever the seed. */
void key_model_name_or_path(void)
{
    struct trial a, b;
    const char *folder = "model_name_or_path=tests/golden/gpt2";
    TRAIN(&a, "model=", folder, "tokenizer=bytes", "seed=1", "data_seed=3");
    TRAIN(&b, "model=", folder, "tokenizer=bytes", "seed=2", "data_seed=3");
    assert_true(trial_same_losses(&a, &b));
    TRAIN(&b, "seed=2", "data_seed=3");
    assert_true(a.plan.n_params != b.plan.n_params);
}

void key_model(void)
{
    struct trial t;
    PLAN(&t, "model.num_hidden_layers=1");
    assert_int_equal(t.plan.n_layers, 1);
    int64_t one = t.plan.n_params;
    PLAN(&t, "model.num_hidden_layers=3");
    assert_int_equal(t.plan.n_layers, 3);
    assert_true(t.plan.n_params > one);
}

/* Four samples of two numbers and one; the third has a number that is none. */
static void write_bad_samples(void)
{
    static const char header[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, %d), }\n";
    const float input[8] = {1, 2, 3, 4, (float)NAN, 6, 7, 8}, target[4] = {1, 2, 3, 4};
    char folder[SCRATCH_PATH], path[SCRATCH_PATH + 16], bytes[256] = "\x93NUMPY\x01";
    assert_int_equal(file_make_folders(scratch_path(trials_scratch(), "bad", folder)), OK);
    for (int k = 1; k <= 2; k++) {
        int n = snprintf(bytes + 10, sizeof(bytes) - 10, header, k);
        size_t n_data = k == 2 ? sizeof(input) : sizeof(target);
        bytes[8] = (char)n;
        memcpy(bytes + 10 + n, k == 2 ? input : target, n_data);
        (void)snprintf(path, sizeof(path), "%s/%s.npy", folder, k == 2 ? "input" : "target");
        assert_int_equal(file_write_atomic(path, bytes, 10 + (size_t)n + n_data), OK);
    }
}

void key_skip_bad_samples(void)
{
    struct trial t;
    const char *net = "model={input: [2], layers: [{linear: 1}], loss: mse}";
    write_bad_samples();
    const char *data = trial_path("datasets.0.path", "bad");
    REFUSED("sample 2, element 0 is NaN", net, "max_seq_length=", "shuffle=false", data);
    TRAIN(&t, net, "max_seq_length=", "shuffle=false", "skip_bad_samples=true", data);
    assert_int_equal(t.n_steps, 3);
}

static int64_t count_tokens(const char *tokenizer, const char *text)
{
    char out[SCRATCH_PATH], in[SCRATCH_PATH];
    struct snug_tokenized result;
    scratch_write_text(trials_scratch(), "words.txt", text);
    scratch_path(trials_scratch(), "words.bin", out);
    const char *inputs[] = {scratch_path(trials_scratch(), "words.txt", in)};
    struct snug_config *config = trial_config(OVERRIDES(tokenizer));
    assert_int_equal(snug_tokenize(config, NULL, inputs, 1, out, &result), SNUG_OK);
    snug_config_free(config);
    return result.n_tokens;
}

/* What documents end with is told before they are read. */
static void expect_told(void)
{
    struct process p;
    char config[SCRATCH_PATH];
    write_tiny_config(trials_scratch(), "told.yaml", "max_steps: 1\nsave_strategy: no\n", config);
    PROCESS_RUN(&p, trials_scratch(), "train", config, "report_to=none", trial_text());
    expect_exit(&p, 0);
    expect_stderr(&p, "documents end with <|endoftext|> (256)");
    process_release(&p);
}

void key_tokenizer(void)
{
    expect_told();
    scratch_write_text(
        trials_scratch(), "pairs/tokenizer.json",
        "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"model\":{"
        "\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}");
    int64_t with_pairs = count_tokens(trial_path("tokenizer", "pairs"), "abababab");
    assert_int_equal(count_tokens("tokenizer=bytes", "abababab"), 8 + 1);
    assert_in_range(with_pairs, 4, 5); /* and an end of text, if one is known */
    REFUSED("nowhere", trial_text(), trial_path("tokenizer", "nowhere"));
}

/* ---- which data ------------------------------------------------------------------------------ */

#define EPOCH "max_steps=-1", "num_train_epochs=1"

static void write_windows(const char *name, int n_windows, char letter)
{
    char text[TRIAL_WINDOWS * TRIAL_WINDOW + 1];
    int n = n_windows * TRIAL_WINDOW;
    memset(text, letter, (size_t)n);
    text[n] = '\0';
    scratch_write_text(trials_scratch(), name, text);
}

/* What the datasets are is not even looked at. */
void key_synthetic(void)
{
    struct trial a, b;
    const char *missing = trial_path("datasets.0.path", "there-is-none.txt");
    TRAIN(&a, "datasets.0.type=synthetic");
    TRAIN(&b, missing, "synthetic=true");
    assert_true(trial_same_losses(&a, &b));
}

void key_datasets(void)
{
    struct trial a, b;
    write_windows("six.txt", 6, 'x');
    write_windows("eight.txt", 8, 'y');
    const char *six = trial_path("datasets.0.path", "six.txt");
    const char *eight = trial_path("datasets.0.path", "eight.txt");
    TRAIN(&a, six, EPOCH, "learning_rate=0");
    TRAIN(&b, eight, EPOCH, "learning_rate=0");
    assert_int_equal(a.n_steps, 6 / TRIAL_BATCH);
    assert_int_equal(b.n_steps, 8 / TRIAL_BATCH);
    assert_true(a.steps[0].loss != b.steps[0].loss);
}

void key_eval_datasets(void)
{
    struct trial a, b;
    write_windows("six.txt", 6, 'x');
    write_windows("eight.txt", 8, 'y');
    const char *six = trial_path("eval_datasets.0.path", "six.txt");
    const char *eight = trial_path("eval_datasets.0.path", "eight.txt");
    TRAIN(&a, six, "eval_on_start=true");
    TRAIN(&b, eight, "eval_on_start=true");
    assert_int_equal(a.evals[0].n_tokens, 6 * TRIAL_LENGTH);
    assert_int_equal(b.evals[0].n_tokens, 8 * TRIAL_LENGTH);
    assert_true(a.evals[0].loss != b.evals[0].loss);
    assert_true(trial_same_losses(&a, &b));
}

/* The first or the last windows of the trials' text, as a text of their own. */
static void write_part(const char *name, int first, int n_windows)
{
    char path[SCRATCH_PATH], *text;
    size_t n_bytes;
    assert_int_equal(file_read(scratch_path(trials_scratch(), "text.txt", path), &text, &n_bytes),
                     0);
    scratch_write(trials_scratch(), name, text + first * TRIAL_WINDOW,
                  (size_t)(n_windows * TRIAL_WINDOW));
    mem_free(text);
}

/* The last windows are held out: what is trained and evaluated on is as if they were two texts. */
void key_val_set_size(void)
{
    struct trial split, apart;
    enum { HELD_OUT = 4, REST = TRIAL_WINDOWS - HELD_OUT };
    write_part("rest.txt", 0, REST);
    write_part("held_out.txt", REST, HELD_OUT);
    const char *rest = trial_path("datasets.0.path", "rest.txt");
    const char *held_out = trial_path("eval_datasets.0.path", "held_out.txt");
    TRAIN(&split, trial_text(), "val_set_size=4", EPOCH, "eval_strategy=epoch");
    TRAIN(&apart, rest, held_out, EPOCH, "eval_strategy=epoch");
    assert_int_equal(split.n_steps, REST / TRIAL_BATCH);
    assert_true(trial_same_losses(&split, &apart));
    assert_int_equal(split.evals[0].n_tokens, HELD_OUT * TRIAL_LENGTH);
    assert_true(split.evals[0].loss == apart.evals[0].loss);
    TRAIN(&split, trial_text(), "val_set_size=0.1", EPOCH, "eval_strategy=epoch");
    assert_int_equal(split.evals[0].n_tokens, TRIAL_WINDOWS / 10 * TRIAL_LENGTH);
}

static bool in_scratch(const char *name)
{
    char path[SCRATCH_PATH];
    return file_exists(scratch_path(trials_scratch(), name, path));
}

/* Where it says; else the cache folder; else, where that cannot be had, the run's own. */
void key_dataset_prepared_path(void)
{
    struct trial t;
    char cached[SCRATCH_PATH];
    TRAIN(&t, trial_text(), trial_path("dataset_prepared_path", "prepared/deep"));
    assert_true(in_scratch("prepared/deep"));
    assert_false(in_scratch("cache/tokens") || trial_has_file(&t, "tokens"));
    TRAIN(&t, trial_text(), "dataset_prepared_path=");
    assert_true(in_scratch("cache/tokens"));
    assert_false(trial_has_file(&t, "tokens"));
    assert_int_equal(file_remove_tree(scratch_path(trials_scratch(), "cache/tokens", cached)), 0);
    scratch_write_text(trials_scratch(), "cache/tokens", "a file in the way");
    TRAIN(&t, trial_text(), "dataset_prepared_path=");
    assert_true(trial_has_file(&t, "tokens"));
    assert_int_equal(remove(cached), 0);
}

/* ---- in which order -------------------------------------------------------------------------- */

/* At a rate of 0 a loss says which windows were in the batch: those of the first epoch and those of
 * the second. */
static void two_epochs(struct trial *t, const char *key)
{
    TRAIN(t, trial_text(), "learning_rate=0", "max_steps=-1", "num_train_epochs=2", key);
    assert_int_equal(t->n_steps, 2 * TRIAL_WINDOWS / TRIAL_BATCH);
}

static int n_repeated(const struct trial *t)
{
    int n = 0, epoch = t->n_steps / 2;
    for (int i = 0; i < epoch; i++)
        n += t->steps[i].loss == t->steps[epoch + i].loss;
    return n;
}

static double mean_loss(const struct trial *t)
{
    double sum = 0;
    for (int i = 0; i < t->n_steps; i++)
        sum += t->steps[i].loss;
    return sum / t->n_steps;
}

void key_shuffle(void)
{
    struct trial t;
    two_epochs(&t, "shuffle=false");
    assert_int_equal(n_repeated(&t), t.n_steps / 2);
    two_epochs(&t, "shuffle=true");
    assert_in_range(n_repeated(&t), 0, t.n_steps / 4);
}

void key_data_seed(void)
{
    struct trial a, b, again;
    two_epochs(&a, "data_seed=1");
    two_epochs(&b, "data_seed=2");
    two_epochs(&again, "data_seed=1");
    assert_true(trial_same_losses(&a, &again));
    assert_false(trial_same_losses(&a, &b));
    expect_within(mean_loss(&a), mean_loss(&b), 1e-6); /* the same windows, in another order */
}

void key_seed(void)
{
    struct trial a, b, again;
    TRAIN(&a, "seed=1", "data_seed=3");
    TRAIN(&b, "seed=2", "data_seed=3");
    TRAIN(&again, "seed=1", "data_seed=3");
    assert_true(trial_same_losses(&a, &again));
    assert_true(a.steps[0].loss != b.steps[0].loss);
    /* Of dropout too: the same weights from a folder drop other elements. */
    const char *folder = "model_name_or_path=tests/golden/gpt2";
    const char *drops = "model={resid_pdrop: 0.5}";
    TRAIN(&a, folder, drops, "tokenizer=bytes", "seed=1", "data_seed=3");
    TRAIN(&b, folder, drops, "tokenizer=bytes", "seed=2", "data_seed=3");
    assert_true(a.steps[0].loss != b.steps[0].loss);
}

/* ---- how much of it at a time ---------------------------------------------------------------- */

void key_max_seq_length(void)
{
    struct trial t;
    TRAIN(&t, "max_seq_length=8");
    assert_int_equal(t.plan.seq_len, 8);
    assert_int_equal(t.steps[0].n_tokens, TRIAL_BATCH * 8);
    TRAIN(&t, "max_seq_length=32");
    assert_int_equal(t.steps[0].n_tokens, TRIAL_BATCH * 32);
    REFUSED("max_seq_length", "max_seq_length=65"); /* positions that the model does not have */
}

void key_dataloader_drop_last(void)
{
    struct trial t;
    write_windows("seven.txt", 7, 'x');
    const char *seven = trial_path("datasets.0.path", "seven.txt");
    TRAIN(&t, seven, EPOCH, "dataloader_drop_last=true");
    assert_int_equal(t.n_steps, 3);
    assert_int_equal(t.steps[2].n_tokens, TRIAL_BATCH * TRIAL_LENGTH);
    TRAIN(&t, seven, EPOCH, "dataloader_drop_last=false");
    assert_int_equal(t.n_steps, 4);
    assert_int_equal(t.steps[3].n_tokens, TRIAL_LENGTH);
}

void key_dataloader_prefetch(void)
{
    struct trial a, b;
    const int64_t batch = 2 * TRIAL_BATCH * TRIAL_LENGTH * (int64_t)sizeof(int32_t);
    PLAN(&a, "dataloader_prefetch=1");
    PLAN(&b, "dataloader_prefetch=101");
    assert_in_range(b.plan.host_bytes - a.plan.host_bytes, 100 * batch, 110 * batch);
}
