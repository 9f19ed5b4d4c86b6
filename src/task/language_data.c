/* language_data.c: the data of language modelling: a tokenizer, streams of tokens and windows of
 * them, or examples. */
#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "data/examples.h"
#include "data/source_survey.h"
#include "data/windows.h"
#include "io/file_hash.h"
#include "task/language.h"
#include "task/language_sources.h"

struct language_data {
    struct task_data_options options;
    const struct config *config; /* of the options */
    struct tokenizer *tokenizer; /* NULL when the data needs none */
    /* to train on, to evaluate on: */
    struct source_list sources[2]; /* n 0: of the second, when it is split off the first */
    struct windows *windows[2];    /* of streams */
    struct examples *examples[2];
};

/* ---- the tokenizer --------------------------------------------------------------------------- */

const char *language_tokenizer_name(const struct config *cfg, const char *model_folder)
{
    return cfg->tokenizer ? cfg->tokenizer : model_folder ? model_folder : "bytes";
}

enum status language_open_template(const struct config *cfg, const char *name,
                                   const struct tokenizer *t, struct chat_template **out)
{
    bool is_own = cfg->chat_template == CONFIG_CHAT_TOKENIZER_DEFAULT;
    const char *family = config_choice_name("chat_template", (int)cfg->chat_template);
    return chat_template_open(out, is_own ? NULL : family, name, t);
}

enum status language_open_tokenizer(const struct config *cfg, const struct model *model,
                                    const char *model_folder, struct tokenizer **out)
{
    TRY(tokenizer_open(out, language_tokenizer_name(cfg, model_folder)));
    if (tokenizer_eos(*out) < 0 && model->language.eos_token >= 0 &&
        model->language.eos_token < model->language.vocab_size)
        tokenizer_set_eos(*out, (int32_t)model->language.eos_token);
    return OK;
}

static void add_names(const struct tokenizer *t, const int32_t *ids, size_t n, struct str *out)
{
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes;
        const char *name = tokenizer_token_bytes(t, ids[i], &n_bytes);
        str_add(out, i ? ", " : "");
        if (name)
            str_add_n(out, name, n_bytes);
        str_addf(out, name ? " (%d)" : "token %d", (int)ids[i]);
    }
}

void language_tell_documents(const struct tokenizer *t)
{
    int32_t begin[DOCUMENT_IDS], end[DOCUMENT_IDS];
    size_t n_begin = tokenizer_document_begin(t, begin), n_end = tokenizer_document_end(t, end);
    struct str text = {0};
    str_add(&text, n_begin ? "documents begin with " : "documents");
    add_names(t, begin, n_begin, &text);
    str_add(&text, n_begin && n_end ? " and end with " : n_end ? " end with " : "");
    add_names(t, end, n_end, &text);
    if (n_end)
        log_info("%s", str_text(&text));
    else
        log_warn("no end-of-text token is known: documents are joined without one. Name it as "
                 "eos_token in tokenizer_config.json or as eos_token_id in config.json");
    str_release(&text);
}

/* ---- sources --------------------------------------------------------------------------------- */

static enum status open_tokenizer(struct language_data *x)
{
    const struct task_data_options *o = &x->options;
    return language_open_tokenizer(o->config, o->task->model, o->model_folder, &x->tokenizer);
}

static struct source_list_options describe(const struct language_data *x, bool eval)
{
    const struct config *cfg = x->config;
    return (struct source_list_options){
        .config = cfg,
        .datasets = eval ? &cfg->eval_datasets : &cfg->datasets,
        .key = eval ? "eval_datasets" : "datasets",
        .vocab_size = x->options.task->model->language.vocab_size,
        .cache_folder = x->options.cache_folder,
        .tokenizer = x->tokenizer,
        .tokenizer_name = language_tokenizer_name(cfg, x->options.model_folder),
    };
}

static enum status open_sources(struct language_data *x, bool eval, int64_t spare_bytes)
{
    struct source_list_options o = describe(x, eval);
    struct source_list *list = &x->sources[eval];
    bool reads_text = source_list_reads_text(&o);
    if (!x->tokenizer && reads_text)
        TRY(open_tokenizer(x));
    o.tokenizer = x->tokenizer;
    o.spare_bytes = spare_bytes;
    if (reads_text && !eval && !source_list_has_examples(&o))
        language_tell_documents(x->tokenizer);
    TRY(source_list_open(list, &o));
    if (list->has_examples)
        source_list_tell(list, o.key);
    return OK;
}

/* ---- the task's data ------------------------------------------------------------------------- */

static enum status open_data(void **data, const struct task_data_options *o)
{
    struct language_data *x;
    TRY(mem_try_array(&x, 1, sizeof(*x)));
    x->options = *o;
    x->config = o->config;
    *data = x;
    return OK;
}

static void close_data(void *data)
{
    struct language_data *x = data;
    for (int i = 0; x && i < 2; i++) {
        windows_free(x->windows[i]);
        examples_free(x->examples[i]);
        source_list_close(&x->sources[i]);
    }
    if (x)
        tokenizer_free(x->tokenizer);
    mem_free(x);
}

/* A tokenizer that cannot be opened is not planned with; training says what is wrong with it. */
static int64_t read_bytes(void *data)
{
    struct language_data *x = data;
    struct source_list_options train = describe(x, false), eval = describe(x, true);
    int64_t n_bytes = MAX(source_list_bytes(&train), source_list_bytes(&eval));
    if (n_bytes > 0 && open_tokenizer(x) != OK)
        x->tokenizer = NULL;
    return n_bytes;
}

static enum status read_data(void *data, int64_t spare_bytes)
{
    struct language_data *x = data;
    bool own_eval = x->options.evaluate && x->config->eval_datasets.n > 0;
    if (x->options.train || !own_eval)
        TRY(open_sources(x, false, spare_bytes));
    if (own_eval)
        TRY(open_sources(x, true, spare_bytes));
    return OK;
}

/* What rows are filled up with does not count, but has to be a token. */
static int32_t padding(const struct language_data *x)
{
    const struct tokenizer *t = x->tokenizer;
    int32_t id = !t ? 0 : tokenizer_pad(t) >= 0 ? tokenizer_pad(t) : tokenizer_eos(t);
    return id >= 0 && id < x->options.task->model->language.vocab_size ? id : 0;
}

static void tell_packing(const struct examples *x, const char *what, int64_t length)
{
    struct packing_counts c = examples_packing(x);
    log_info("%s: %lld examples packed into %lld rows of %lld tokens, %.1f %% of them filled", what,
             (long long)c.n_examples, (long long)c.n_rows, (long long)length,
             100.0 * (double)c.n_tokens / ((double)c.n_rows * (double)length));
}

static enum status open_examples(struct language_data *x, const struct source_list *from, bool eval)
{
    const struct config *cfg = x->config;
    struct example_set *sets;
    TRY(mem_try_array(&sets, from->n, sizeof(*sets)));
    for (size_t i = 0; i < from->n; i++)
        sets[i] = (struct example_set){from->items[i], from->weights[i]};
    bool is_split = !cfg->eval_datasets.n && cfg->val_set_size > 0;
    const struct examples_options o = {
        .sets = sets,
        .n_sets = from->n,
        .seq_len = cfg->max_seq_length,
        .padding = padding(x),
        .held_out = is_split ? cfg->val_set_size : 0,
        .wants_held = eval && is_split,
        .packed = x->options.task->packed,
        .pairs = cfg->rl == CONFIG_RL_DPO,
        .seed = (uint64_t)cfg->data_seed,
    };
    enum status status = examples_open(&x->examples[eval], &o);
    mem_free(sets);
    if (status == OK && o.packed)
        tell_packing(x->examples[eval], eval ? "evaluation" : "training", o.seq_len);
    return status;
}

static enum status dataset(void *data, bool eval, struct dataset *out)
{
    struct language_data *x = data;
    const struct source_list *from = &x->sources[eval && x->sources[true].n];
    if (from->has_examples) {
        TRY(open_examples(x, from, eval));
        *out = examples_dataset(x->examples[eval]);
        return OK;
    }
    TRY(windows_open(&x->windows[eval], from->items[0], x->config->max_seq_length));
    *out = windows_dataset(x->windows[eval]);
    return OK;
}

const struct source *language_source(const void *data)
{
    return ((const struct language_data *)data)->sources[false].items[0];
}

/* ---- which data it is ------------------------------------------------------------------------ */

static bool is_made_up(const struct config_datasets *d)
{
    enum config_dataset_type type = d->items[0].type;
    return type == CONFIG_DATASET_SYNTHETIC || type == CONFIG_DATASET_RANDOM;
}

/* Where the examples of a source are cut, and how often they are seen. */
static enum status add_examples(const struct source *s, double weight, struct source_survey *out)
{
    int64_t n_examples = source_n_examples(s);
    out->hash = XXH3_64bits_withSeed(&weight, sizeof(weight), out->hash);
    for (int64_t i = 0; i < MIN(n_examples, (int64_t)SURVEY_MADE_UP); i++) {
        int64_t place[2];
        TRY(source_example(s, i, &place[0], &place[1]));
        out->hash = XXH3_64bits_withSeed(place, sizeof(place), out->hash);
    }
    return OK;
}

/* All sources of a list as one. */
static enum status survey_list(const struct source_list *l, int64_t most, struct source_survey *out)
{
    TRY(source_survey(l->items[0], most, out));
    for (size_t i = 0; i < l->n && l->has_examples; i++) {
        struct source_survey one = *out;
        if (i > 0) {
            TRY(source_survey(l->items[i], most, &one));
            out->n_tokens += one.n_tokens;
            out->n_labels += one.n_labels;
            out->is_whole &= one.is_whole;
            out->hash = XXH3_64bits_withSeed(&one.hash, sizeof(one.hash), out->hash);
        }
        TRY(add_examples(l->items[i], l->weights[i], out));
    }
    return OK;
}

static enum status look_through(const struct language_data *x, bool eval, struct source_survey *out)
{
    const struct source_list_options o = describe(x, eval);
    bool computed = is_made_up(o.datasets);
    TRY(survey_list(&x->sources[eval], computed ? SURVEY_MADE_UP : SURVEY_ALL, out));
    if (out->is_whole && out->n_labels == 0)
        return FAIL(ERR_DATA, "%s: no token of %s is a label: all are masked (-100)",
                    config_where(x->config, o.key), o.key);
    return OK;
}

static int64_t count_pairs(const struct source_list *l)
{
    int64_t n = 0;
    for (size_t i = 0; i < l->n; i++)
        n += source_n_examples(l->items[i]) / 2;
    return n;
}

static enum status identity(const void *data, json_t **out)
{
    const struct language_data *x = data;
    struct source_survey survey;
    char digits[HASH_TEXT];
    if (x->sources[true].n)
        TRY(look_through(x, true, &survey));
    TRY(look_through(x, false, &survey));
    bool pairs = x->config->rl == CONFIG_RL_DPO;
    *out = json_pack("{s:I, s:s}", pairs ? "pairs" : "tokens",
                     (json_int_t)(pairs ? count_pairs(&x->sources[false]) : survey.n_tokens),
                     "hash", file_hash_text(digits, survey.hash));
    return *out ? OK : FAIL(ERR_MEMORY, "out of memory for the run's settings");
}

static float *reference(void *data, bool eval, int64_t *n)
{
    struct language_data *x = data;
    *n = 0;
    return x->examples[eval] ? examples_reference(x->examples[eval], n) : NULL;
}

/* The tokenizer that made the tokens, where it is not the one of the model's folder. One that was
 * neither used nor asked for says nothing about the tokens. */
static const char *tokenizer_name(const void *data)
{
    const struct language_data *x = data;
    bool built_in = x->tokenizer && !x->options.model_folder;
    return config_is_set(x->config, "tokenizer") || built_in ? x->config->tokenizer : NULL;
}

const struct task_data_def language_data = {
    .open = open_data,
    .close = close_data,
    .read_bytes = read_bytes,
    .read = read_data,
    .dataset = dataset,
    .identity = identity,
    .tokenizer = tokenizer_name,
    .reference = reference,
};
