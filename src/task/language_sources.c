#include "task/language_sources.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "task/language.h"

/* ---- kinds ----------------------------------------------------------------------------------- */

static enum source_kind source_kind(enum config_dataset_type type)
{
    static const enum source_kind kinds[] = {
        [CONFIG_DATASET_AUTO] = SOURCE_AUTO,
        [CONFIG_DATASET_TEXT] = SOURCE_TEXT,
        [CONFIG_DATASET_JSONL] = SOURCE_JSONL,
        [CONFIG_DATASET_TOKENS] = SOURCE_TOKENS,
        [CONFIG_DATASET_NANOGPT] = SOURCE_TOKENS,
        [CONFIG_DATASET_SYNTHETIC] = SOURCE_SYNTHETIC,
        [CONFIG_DATASET_RANDOM] = SOURCE_RANDOM,
        [CONFIG_DATASET_CHAT] = SOURCE_EXAMPLES,
        [CONFIG_DATASET_ALPACA] = SOURCE_EXAMPLES,
        [CONFIG_DATASET_ALPACA_CHAT] = SOURCE_EXAMPLES,
        [CONFIG_DATASET_PROMPT_COMPLETION] = SOURCE_EXAMPLES,
        [CONFIG_DATASET_INPUT_OUTPUT] = SOURCE_EXAMPLES,
        [CONFIG_DATASET_CSV] = SOURCE_EXAMPLES,
    };
    return kinds[type];
}

static enum example_form example_form(enum config_dataset_type type)
{
    switch (type) {
    case CONFIG_DATASET_CHAT:
        return EXAMPLE_CHAT;
    case CONFIG_DATASET_ALPACA:
        return EXAMPLE_ALPACA;
    case CONFIG_DATASET_ALPACA_CHAT:
        return EXAMPLE_ALPACA_CHAT;
    case CONFIG_DATASET_PROMPT_COMPLETION:
        return EXAMPLE_PROMPT_COMPLETION;
    case CONFIG_DATASET_INPUT_OUTPUT:
        return EXAMPLE_INPUT_OUTPUT;
    default:
        return EXAMPLE_AUTO; /* each record says it */
    }
}

static struct example_fields example_fields(const struct config_dataset *d)
{
    const struct config_fields *f = &d->fields;
    return (struct example_fields){.text = d->text_field,
                                   .messages = f->messages,
                                   .role = f->role,
                                   .content = f->content,
                                   .instruction = f->instruction,
                                   .input = f->input,
                                   .output = f->output,
                                   .system = f->system,
                                   .prompt = f->prompt,
                                   .completion = f->completion};
}

/* An entry that says so, or whose first record does; preferences always are. */
static bool is_examples(const struct config *cfg, const struct config_dataset *d)
{
    enum source_kind kind = source_kind(d->type);
    struct example_fields fields = example_fields(d);
    const struct source_options o = {.kind = kind, .paths = &d->path, .n_paths = 1};
    if (cfg->rl == CONFIG_RL_DPO)
        return true;
    if (kind == SOURCE_EXAMPLES || !d->path || (kind != SOURCE_AUTO && kind != SOURCE_JSONL))
        return kind == SOURCE_EXAMPLES;
    return source_has_examples(&o, &fields);
}

bool language_packs(const struct config *cfg)
{
    const struct source_list_options lists[] = {{.config = cfg, .datasets = &cfg->datasets},
                                                {.config = cfg, .datasets = &cfg->eval_datasets}};
    return cfg->packing == CONFIG_TRISTATE_TRUE &&
           (source_list_has_examples(&lists[0]) || source_list_has_examples(&lists[1]));
}

bool source_list_has_examples(const struct source_list_options *o)
{
    bool any = false;
    for (size_t i = 0; i < o->datasets->n; i++)
        any |= is_examples(o->config, &o->datasets->items[i]);
    return any;
}

/* Streams are one source; records and texts in lines can stand beside each other as examples. */
static enum status need_one_kind(const struct source_list_options *o, bool has_examples)
{
    const struct config_datasets *d = o->datasets;
    for (size_t i = 0; i < d->n; i++) {
        enum config_dataset_type type = d->items[i].type;
        bool may_be = type == CONFIG_DATASET_AUTO || source_kind(type) == SOURCE_JSONL ||
                      source_kind(type) == SOURCE_EXAMPLES;
        if (has_examples ? !may_be : type != d->items[0].type)
            return FAIL(ERR_UNSUPPORTED,
                        "%s: %s mixes dataset types; give all of them type: auto, or "
                        "tokenize them into one format first",
                        config_where(o->config, o->key), o->key);
    }
    return OK;
}

/* Rows are cut one way or the other: asked for what the data cannot have, say so. */
static enum status check_packing(const struct source_list_options *o, bool has_examples)
{
    enum config_tristate packing = o->config->packing;
    if (!has_examples && packing == CONFIG_TRISTATE_FALSE)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: packing: texts are one stream, cut into rows; write packing: true, or "
                    "leave it out",
                    config_where(o->config, "packing"));
    return OK;
}

/* ---- streams --------------------------------------------------------------------------------- */

/* Synthetic data without an end: so much that no run comes round to it again, and the same amount
 * for every run, so that one can be resumed with more steps. */
#define ENDLESS_TOKENS ((int64_t)1 << 40)

/* What a list of datasets is to a source; the paths are the caller's to free. */
static enum status describe_stream(const struct source_list_options *l, struct source_options *o,
                                   const char ***paths)
{
    const struct config_datasets *d = l->datasets;
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
        .vocab_size = l->vocab_size,
        .text_field = d->n ? d->items[0].text_field : NULL,
        .n_tokens = d->n && d->items[0].n_tokens > 0 ? d->items[0].n_tokens : ENDLESS_TOKENS,
        .seed = (uint64_t)l->config->data_seed,
    };
    if (d->n && d->items[0].type == CONFIG_DATASET_NANOGPT)
        o->headerless = d->items[0].token_dtype == CONFIG_TOKEN_U32 ? TOKEN_U32 : TOKEN_U16;
    return OK;
}

bool source_list_reads_text(const struct source_list_options *o)
{
    return source_list_bytes(o) > 0;
}

int64_t source_list_bytes(const struct source_list_options *l)
{
    const char **paths = NULL;
    struct source_options o;
    if (describe_stream(l, &o, &paths) != OK)
        return 0;
    if (source_list_has_examples(l))
        o.kind = SOURCE_EXAMPLES;
    int64_t n_bytes = source_open_bytes(&o);
    mem_free(paths);
    return n_bytes;
}

/* Where tokenised text is kept: where the config says, else with what else is kept for the next
 * run, else with the run itself. */
static enum status tokens_folder(const struct source_list_options *o, struct str *out)
{
    const struct config *cfg = o->config;
    if (cfg->dataset_prepared_path) {
        str_add(out, cfg->dataset_prepared_path);
        return str_status(out);
    }
    if (o->cache_folder) {
        str_addf(out, "%s/tokens", o->cache_folder);
        if (str_status(out) == OK && file_make_folders(str_text(out)) == OK)
            return OK;
        str_clear(out);
    }
    str_addf(out, "%s/tokens", cfg->output_dir);
    return str_status(out);
}

/* What is said about records would do nothing here. */
static enum status refuse_record_keys(const struct source_list_options *l)
{
    const struct config_fields none = {0};
    for (size_t i = 0; i < l->datasets->n; i++) {
        const struct config_dataset *d = &l->datasets->items[i];
        bool is_said = d->max_samples || (d->weight > 0 && d->weight != 1) ||
                       memcmp(&d->fields, &none, sizeof(none)) != 0;
        if (is_said || l->config->max_samples)
            return FAIL(ERR_CONFIG,
                        "%s: %s: this data is one stream of tokens, and max_samples, weight and "
                        "the names of fields are about records: leave them out; max_steps or a "
                        "smaller file limit it",
                        is_said ? d->where : config_where(l->config, "max_samples"), l->key);
    }
    return OK;
}

static enum status open_stream(struct source_list *out, const struct source_list_options *l,
                               const char *folder)
{
    const char **paths = NULL;
    struct source_options o;
    TRY(refuse_record_keys(l));
    TRY(describe_stream(l, &o, &paths));
    o.tokenizer = l->tokenizer;
    o.cache_folder = folder;
    o.spare_bytes = l->spare_bytes;
    out->n = 1;
    enum status status = source_open(&out->items[0], &o);
    mem_free(paths);
    return status;
}

/* ---- examples -------------------------------------------------------------------------------- */

static enum status open_examples(struct source_list *out, const struct source_list_options *l,
                                 const char *folder, struct example_options *e)
{
    for (size_t i = 0; i < l->datasets->n; i++) {
        const struct config_dataset *d = &l->datasets->items[i];
        const struct source_options o = {.kind = SOURCE_EXAMPLES,
                                         .paths = &d->path,
                                         .n_paths = 1,
                                         .tokenizer = l->tokenizer,
                                         .vocab_size = l->vocab_size,
                                         .examples = e,
                                         .cache_folder = folder,
                                         .spare_bytes = l->spare_bytes};
        e->form = example_form(d->type);
        e->fields = example_fields(d);
        e->max_records = d->max_samples ? d->max_samples : l->config->max_samples;
        out->weights[i] = d->weight > 0 ? d->weight : 1;
        out->n = i + 1;
        TRY(source_open(&out->items[i], &o));
    }
    return OK;
}

/* Without a template there may still be records that need none: the first that needs one says why
 * there is none. */
static enum status open_with_template(struct source_list *out, const struct source_list_options *l,
                                      const char *folder)
{
    const struct config *cfg = l->config;
    struct chat_template *chat = NULL;
    struct str missing = {0};
    enum status status;
    if (language_open_template(cfg, l->tokenizer_name, l->tokenizer, &chat) != OK)
        str_add(&missing, status_message());
    struct example_options e = {
        .chat = chat,
        .chat_missing = str_text(&missing),
        .train_on_inputs = cfg->train_on_inputs,
        .max_tokens = cfg->max_seq_length,
        .drops_long = cfg->excess_length_strategy == CONFIG_OVERFLOW_DROP,
        .pairs = cfg->rl == CONFIG_RL_DPO,
    };
    status = open_examples(out, l, folder, &e);
    chat_template_free(chat);
    str_release(&missing);
    return status;
}

/* ---- lists ----------------------------------------------------------------------------------- */

enum status source_list_open(struct source_list *out, const struct source_list_options *o)
{
    struct str folder = {0};
    enum status status;
    size_t most = MAX(o->datasets->n, (size_t)1);
    *out = (struct source_list){.has_examples = source_list_has_examples(o)};
    TRY(need_one_kind(o, out->has_examples));
    TRY(check_packing(o, out->has_examples));
    TRY_GOTO(mem_try_array(&out->items, most, sizeof(*out->items)), out);
    TRY_GOTO(mem_try_array(&out->weights, most, sizeof(*out->weights)), out);
    TRY_GOTO(tokens_folder(o, &folder), out);
    status = out->has_examples ? open_with_template(out, o, str_text(&folder))
                               : open_stream(out, o, str_text(&folder));
out:
    str_release(&folder);
    if (status != OK)
        source_list_close(out);
    return status;
}

void source_list_close(struct source_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        source_free(l->items[i]);
    mem_free(l->items);
    mem_free(l->weights);
    *l = (struct source_list){0};
}

void source_list_tell(const struct source_list *l, const char *key)
{
    struct example_counts sum = {0};
    int64_t n_examples = 0, n_tokens = 0;
    for (size_t i = 0; i < l->n; i++) {
        struct example_counts c = source_counts(l->items[i]);
        sum.n_truncated += c.n_truncated;
        sum.n_dropped += c.n_dropped;
        sum.n_unlabelled += c.n_unlabelled;
        n_examples += source_n_examples(l->items[i]);
        n_tokens += source_n_tokens(l->items[i]);
    }
    log_info("%s: %lld examples of %lld tokens", key, (long long)n_examples, (long long)n_tokens);
    if (sum.n_truncated)
        log_warn("%s: %lld examples were cut to max_seq_length (excess_length_strategy: truncate)",
                 key, (long long)sum.n_truncated);
    if (sum.n_dropped)
        log_warn("%s: %lld records longer than max_seq_length were left out "
                 "(excess_length_strategy: drop)",
                 key, (long long)sum.n_dropped);
    if (sum.n_unlabelled)
        log_warn("%s: %lld records with nothing to learn in them were left out", key,
                 (long long)sum.n_unlabelled);
}
