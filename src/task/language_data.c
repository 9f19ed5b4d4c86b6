/* language_data.c: the data of language modelling: a tokenizer, streams of tokens, windows of them.
 */
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "data/source_survey.h"
#include "data/windows.h"
#include "io/file_hash.h"
#include "task/language.h"

struct language_data {
    struct task_data_options options;
    const struct config *config;         /* of the options */
    struct tokenizer *tokenizer;         /* NULL when the data needs none */
    struct source *source, *eval_source; /* eval_source: NULL when split off the training data */
    struct windows *windows[2];          /* to train on, to evaluate on */
};

/* ---- the tokenizer --------------------------------------------------------------------------- */

enum status language_open_tokenizer(const struct config *cfg, const struct model *model,
                                    const char *model_folder, struct tokenizer **out)
{
    const char *name = cfg->tokenizer ? cfg->tokenizer : model_folder ? model_folder : "bytes";
    TRY(tokenizer_open(out, name));
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

/* ---- sources ----------------------------------------------------------------------------------
 */

static enum source_kind source_kind(enum config_dataset_type type)
{
    static const enum source_kind kinds[] = {
        [CONFIG_DATASET_AUTO] = SOURCE_AUTO,      [CONFIG_DATASET_TEXT] = SOURCE_TEXT,
        [CONFIG_DATASET_JSONL] = SOURCE_JSONL,    [CONFIG_DATASET_TOKENS] = SOURCE_TOKENS,
        [CONFIG_DATASET_NANOGPT] = SOURCE_TOKENS, [CONFIG_DATASET_SYNTHETIC] = SOURCE_SYNTHETIC,
        [CONFIG_DATASET_RANDOM] = SOURCE_RANDOM,
    };
    return kinds[type];
}

/* Synthetic data without an end: so much that no run comes round to it again, and the same amount
 * for every run, so that one can be resumed with more steps. */
#define ENDLESS_TOKENS ((int64_t)1 << 40)

static enum status need_one_kind(const struct config *cfg, const struct config_datasets *d,
                                 const char *key)
{
    for (size_t i = 1; i < d->n; i++) {
        if (d->items[i].type != d->items[0].type)
            return FAIL(ERR_UNSUPPORTED,
                        "%s: %s mixes dataset types; give all of them type: auto, or "
                        "tokenize them into one format first",
                        config_where(cfg, key), key);
    }
    return OK;
}

static enum status open_tokenizer(struct language_data *x)
{
    const struct task_data_options *o = &x->options;
    return language_open_tokenizer(o->config, o->task->model, o->model_folder, &x->tokenizer);
}

/* What a list of datasets is to a source; the paths are the caller's to free. */
static enum status describe_source(const struct language_data *x, const struct config_datasets *d,
                                   struct source_options *o, const char ***paths)
{
    const struct config *cfg = x->config;
    size_t n_paths = 0;
    TRY(mem_try_array(paths, MAX(d->n, (size_t)1), sizeof(**paths)));
    for (size_t i = 0; i < d->n; i++) {
        if (d->items[i].path)
            (*paths)[n_paths++] = d->items[i].path;
    }
    *o = (struct source_options){
        .kind = d->n ? source_kind(d->items[0].type) : SOURCE_SYNTHETIC,
        .paths = *paths,
        .n_paths = n_paths,
        .vocab_size = x->options.task->model->language.vocab_size,
        .text_field = d->n ? d->items[0].text_field : NULL,
        .n_tokens = d->n && d->items[0].n_tokens > 0 ? d->items[0].n_tokens : ENDLESS_TOKENS,
        .seed = (uint64_t)cfg->data_seed,
    };
    if (d->n && d->items[0].type == CONFIG_DATASET_NANOGPT)
        o->headerless = d->items[0].token_dtype == CONFIG_TOKEN_U32 ? TOKEN_U32 : TOKEN_U16;
    return OK;
}

/* Where tokenised text is kept: where the config says, else with what else is kept for the next
 * run, else with the run itself. */
static enum status tokens_folder(const struct language_data *x, struct str *out)
{
    const struct config *cfg = x->config;
    if (cfg->dataset_prepared_path) {
        str_add(out, cfg->dataset_prepared_path);
        return str_status(out);
    }
    if (x->options.cache_folder) {
        str_addf(out, "%s/tokens", x->options.cache_folder);
        if (str_status(out) == OK && file_make_folders(str_text(out)) == OK)
            return OK;
        str_clear(out);
    }
    str_addf(out, "%s/tokens", cfg->output_dir);
    return str_status(out);
}

static enum status open_source(struct language_data *x, const struct config_datasets *d,
                               const char *key, int64_t spare_bytes, struct source **out)
{
    const char **paths = NULL;
    struct source_options o;
    struct str folder = {0};
    enum status status;
    TRY(need_one_kind(x->config, d, key));
    TRY_GOTO(describe_source(x, d, &o, &paths), out);
    TRY_GOTO(tokens_folder(x, &folder), out);
    bool synthetic = o.kind == SOURCE_SYNTHETIC || o.kind == SOURCE_RANDOM;
    if (!synthetic && o.kind != SOURCE_TOKENS && !x->tokenizer)
        TRY_GOTO(open_tokenizer(x), out);
    o.tokenizer = x->tokenizer;
    o.cache_folder = str_text(&folder);
    o.spare_bytes = spare_bytes;
    if (x->tokenizer && out == &x->source && source_open_bytes(&o) > 0)
        language_tell_documents(x->tokenizer);
    TRY_GOTO(source_open(out, &o), out);
out:
    str_release(&folder);
    mem_free(paths);
    return status;
}

/* Memory that reading a list of datasets takes, beside a tokenizer. */
static int64_t data_bytes(const struct language_data *x, const struct config_datasets *d)
{
    const char **paths = NULL;
    struct source_options o;
    int64_t n_bytes = describe_source(x, d, &o, &paths) == OK ? source_open_bytes(&o) : 0;
    mem_free(paths);
    return n_bytes;
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
    if (!x)
        return;
    windows_free(x->windows[0]);
    windows_free(x->windows[1]);
    source_free(x->source);
    source_free(x->eval_source);
    tokenizer_free(x->tokenizer);
    mem_free(x);
}

/* A tokenizer that cannot be opened is not planned with; training says what is wrong with it. */
static int64_t read_bytes(void *data)
{
    struct language_data *x = data;
    const struct config *cfg = x->config;
    int64_t n_bytes = MAX(data_bytes(x, &cfg->datasets), data_bytes(x, &cfg->eval_datasets));
    if (n_bytes > 0 && open_tokenizer(x) != OK)
        x->tokenizer = NULL;
    return n_bytes;
}

static enum status read_data(void *data, int64_t spare_bytes)
{
    struct language_data *x = data;
    const struct config *cfg = x->config;
    bool own_eval = x->options.evaluate && cfg->eval_datasets.n > 0;
    if (x->options.train || !own_eval)
        TRY(open_source(x, &cfg->datasets, "datasets", spare_bytes, &x->source));
    if (own_eval)
        TRY(open_source(x, &cfg->eval_datasets, "eval_datasets", spare_bytes, &x->eval_source));
    return OK;
}

static enum status dataset(void *data, bool eval, struct dataset *out)
{
    struct language_data *x = data;
    const struct source *from = eval && x->eval_source ? x->eval_source : x->source;
    TRY(windows_open(&x->windows[eval], from, x->config->max_seq_length));
    *out = windows_dataset(x->windows[eval]);
    return OK;
}

const struct source *language_source(const void *data)
{
    return ((const struct language_data *)data)->source;
}

/* ---- which data it is ------------------------------------------------------------------------ */

static bool is_made_up(const struct config_datasets *d)
{
    enum config_dataset_type type = d->items[0].type;
    return type == CONFIG_DATASET_SYNTHETIC || type == CONFIG_DATASET_RANDOM;
}

/* Of what `key` names. */
static enum status look_through(const struct config *cfg, const struct source *source,
                                const char *key, struct source_survey *out)
{
    bool is_eval = strcmp(key, "eval_datasets") == 0;
    bool computed = is_made_up(is_eval ? &cfg->eval_datasets : &cfg->datasets);
    TRY(source_survey(source, computed ? SURVEY_MADE_UP : SURVEY_ALL, out));
    if (out->is_whole && out->n_labels == 0)
        return FAIL(ERR_DATA, "%s: no token of %s is a label: all are masked (-100)",
                    config_where(cfg, key), key);
    return OK;
}

static enum status identity(const void *data, json_t **out)
{
    const struct language_data *x = data;
    struct source_survey survey;
    char digits[HASH_TEXT];
    if (x->eval_source)
        TRY(look_through(x->config, x->eval_source, "eval_datasets", &survey));
    TRY(look_through(x->config, x->source, "datasets", &survey));
    *out = json_pack("{s:I, s:s}", "tokens", (json_int_t)survey.n_tokens, "hash",
                     file_hash_text(digits, survey.hash));
    return *out ? OK : FAIL(ERR_MEMORY, "out of memory for the run's settings");
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
};
