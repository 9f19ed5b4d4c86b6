/* session_data.c: the data of a session: tokenizer, sources, loaders. */
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "train/session.h"

enum status session_open_tokenizer(const struct config *cfg, const struct model *model,
                                   const char *model_folder, struct tokenizer **out)
{
    const char *name = cfg->tokenizer ? cfg->tokenizer : model_folder ? model_folder : "bytes";
    TRY(tokenizer_open(out, name));
    if (tokenizer_eos(*out) < 0 && model->eos_token >= 0 && model->eos_token < model->vocab_size)
        tokenizer_set_eos(*out, (int32_t)model->eos_token);
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

void session_tell_documents(const struct tokenizer *t)
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

/* What a list of datasets is to a source; the paths are the caller's to free. */
static enum status describe_source(const struct session *s, const struct config_datasets *d,
                                   struct source_options *o, const char ***paths)
{
    const struct config *cfg = s->config;
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
        .vocab_size = s->engine.model->vocab_size,
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
static enum status tokens_folder(const struct session *s, struct str *out)
{
    const struct config *cfg = s->config;
    if (cfg->dataset_prepared_path) {
        str_add(out, cfg->dataset_prepared_path);
        return str_status(out);
    }
    if (s->options.cache_folder) {
        str_addf(out, "%s/tokens", s->options.cache_folder);
        if (str_status(out) == OK && file_make_folders(str_text(out)) == OK)
            return OK;
        str_clear(out);
    }
    str_addf(out, "%s/tokens", cfg->output_dir);
    return str_status(out);
}

static enum status open_source(struct session *s, const struct config_datasets *d, const char *key,
                               struct source **out)
{
    const struct budget *b = &s->engine.forecast.budget;
    const char **paths = NULL;
    struct source_options o;
    struct str folder = {0};
    enum status status;
    TRY(need_one_kind(s->config, d, key));
    TRY_GOTO(describe_source(s, d, &o, &paths), out);
    TRY_GOTO(tokens_folder(s, &folder), out);
    bool synthetic = o.kind == SOURCE_SYNTHETIC || o.kind == SOURCE_RANDOM;
    if (!synthetic && o.kind != SOURCE_TOKENS && !s->tokenizer)
        TRY_GOTO(session_open_tokenizer(s->config, s->engine.model, s->engine.model_folder,
                                        &s->tokenizer),
                 out);
    o.tokenizer = s->tokenizer;
    o.cache_folder = str_text(&folder);
    o.spare_bytes = b->n_bytes[TIER_HOST] - b->needs[TIER_HOST];
    if (s->tokenizer && out == &s->source && source_open_bytes(&o) > 0)
        session_tell_documents(s->tokenizer);
    TRY_GOTO(source_open(out, &o), out);
out:
    str_release(&folder);
    mem_free(paths);
    return status;
}

/* Memory that reading a list of datasets takes, beside a tokenizer. */
static int64_t data_bytes(const struct session *s, const struct config_datasets *d)
{
    const char **paths = NULL;
    struct source_options o;
    int64_t n_bytes = describe_source(s, d, &o, &paths) == OK ? source_open_bytes(&o) : 0;
    mem_free(paths);
    return n_bytes;
}

/* A tokenizer that cannot be opened is not planned with; training says what is wrong with it. */
int64_t session_data_bytes(struct session *s)
{
    const struct config *cfg = s->config;
    int64_t n_bytes = MAX(data_bytes(s, &cfg->datasets), data_bytes(s, &cfg->eval_datasets));
    if (n_bytes > 0 &&
        session_open_tokenizer(cfg, s->engine.model, s->engine.model_folder, &s->tokenizer) != OK)
        s->tokenizer = NULL;
    return n_bytes;
}

struct loader_options session_loader_options(const struct session *s, bool eval)
{
    const struct config *cfg = s->config;
    bool split = !cfg->eval_datasets.n && cfg->val_set_size > 0;
    struct loader_options o = {
        .split = !split ? SPLIT_ALL
                 : eval ? SPLIT_EVAL
                        : SPLIT_TRAIN,
        .val_set_size = cfg->val_set_size,
        .shuffle = eval ? 0 : cfg->shuffle,
        .seed = (uint64_t)cfg->data_seed,
        .keep_last = eval || !cfg->dataloader_drop_last,
        .n_ranks = 1,
        .n_slots = cfg->dataloader_prefetch,
    };
    windows_describe(&o.batch,
                     eval ? cfg->per_device_eval_batch_size : cfg->per_device_train_batch_size,
                     cfg->max_seq_length);
    return o;
}

static enum status open_loader(struct session *s, bool eval)
{
    struct loader_options o = session_loader_options(s, eval);
    const struct source *from = eval && s->eval_source ? s->eval_source : s->source;
    struct windows **windows = eval ? &s->eval_windows : &s->windows;
    TRY(windows_open(windows, from, s->config->max_seq_length));
    struct dataset data = windows_dataset(*windows);
    return loader_open(eval ? &s->eval_loader : &s->loader, &data, &o);
}

enum status session_data(struct session *s)
{
    const struct config *cfg = s->config;
    bool own_eval = s->options.evaluate && cfg->eval_datasets.n > 0;
    if (s->options.train || !own_eval)
        TRY(open_source(s, &cfg->datasets, "datasets", &s->source));
    if (own_eval)
        TRY(open_source(s, &cfg->eval_datasets, "eval_datasets", &s->eval_source));
    if (s->options.train)
        TRY(open_loader(s, false));
    if (s->options.evaluate)
        TRY(open_loader(s, true));
    mem_trim();
    return OK;
}
