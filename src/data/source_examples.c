/* source_examples.c: a file of records into examples: tokens, labels and where each ends. */
#include <xxhash.h>

#include "base/alloc.h"
#include "data/records.h"
#include "data/source_internal.h"

enum {
    RECORD_BYTES = 1 << 16, /* of a record that the plan has room for; longer ones take what is
                               left of host memory */
    /* Of a byte of a record beside itself and what is parsed of it: its text, rendered, in a buffer
     * that doubled; a symbol and a place in the heap for each of its bytes; an id and a label in
     * lists that doubled. */
    BYTES_PER_BYTE = 96,
};

int64_t source_examples_bytes(void)
{
    return records_bytes(RECORD_BYTES) + (int64_t)BYTES_PER_BYTE * RECORD_BYTES +
           (int64_t)encoder_bytes(RECORD_BYTES) + (int64_t)sizeof(struct example);
}

struct maker {
    const struct source_options *options;
    struct records *records;
    struct encoder *encoder;
    struct example example;
    struct token_writer *writer;
    struct example_counts counts;
};

static size_t count_labels(const struct example *x)
{
    size_t n = 0;
    for (size_t i = 0; i < x->labels.n; i++)
        n += x->labels.items[i] != LABEL_IGNORED;
    return n;
}

static enum status add_example(struct maker *m)
{
    const struct example_options *o = m->options->examples;
    struct example *x = &m->example;
    if (o->max_tokens > 0 && (int64_t)x->ids.n > o->max_tokens) {
        *(o->drops_long ? &m->counts.n_dropped : &m->counts.n_truncated) += 1;
        if (o->drops_long)
            return OK;
        x->ids.n = x->labels.n = (size_t)o->max_tokens;
    }
    if (count_labels(x) == 0) {
        m->counts.n_unlabelled++;
        return OK;
    }
    TRY(token_writer_add(m->writer, x->ids.items, x->labels.items, x->ids.n));
    return token_writer_end_example(m->writer);
}

static enum status add_record(struct maker *m, const json_t *record)
{
    const struct source_options *o = m->options;
    enum status status = example_make(&m->example, record, o->examples, o->tokenizer, m->encoder);
    if (status == OK)
        status = add_example(m);
    return status == OK ? OK : status_prefix(status, "%s", records_where(m->records));
}

static enum status add_records(struct maker *m)
{
    int64_t most = m->options->examples->max_records;
    while (most == 0 || m->counts.n_read < most) {
        json_t *record;
        TRY(records_next(m->records, &record));
        if (!record)
            break;
        m->counts.n_read++;
        enum status status = add_record(m, record);
        json_decref(record);
        TRY(status);
    }
    token_writer_set_counts(m->writer, &m->counts);
    return OK;
}

/* Every record was left out. */
static enum status check_any(const struct maker *m, const char *path)
{
    const struct example_counts *c = &m->counts;
    if (token_writer_n_tokens(m->writer) > 0)
        return OK;
    return FAIL(ERR_DATA,
                "%s: no example is left of %lld records: %lld were too long for max_seq_length, "
                "%lld have nothing to learn in them",
                path, (long long)c->n_read, (long long)c->n_dropped, (long long)c->n_unlabelled);
}

enum status source_read_examples(const struct source_options *options, const char *path,
                                 struct token_writer *w)
{
    struct maker m = {.options = options, .writer = w};
    enum status status;
    if (!options->tokenizer)
        return FAIL(ERR_CONFIG, "%s: text needs a tokenizer: set `tokenizer`", path);
    int64_t most_bytes = MAX(records_bytes(RECORD_BYTES), options->spare_bytes / 3);
    TRY_GOTO(records_open(&m.records, path, most_bytes), out);
    TRY_GOTO(encoder_new(&m.encoder, options->tokenizer), out);
    TRY_GOTO(add_records(&m), out);
    TRY_GOTO(check_any(&m, path), out);
out:
    example_release(&m.example);
    encoder_free(m.encoder);
    records_close(m.records);
    return status;
}

uint64_t source_examples_hash(const struct example_options *o)
{
    const char *const names[] = {o->fields.text,      o->fields.messages,    o->fields.role,
                                 o->fields.content,   o->fields.instruction, o->fields.input,
                                 o->fields.output,    o->fields.system,      o->fields.prompt,
                                 o->fields.completion};
    const int64_t facts[] = {(int64_t)o->form, o->train_on_inputs, o->max_tokens,
                             o->drops_long,    o->max_records,     o->chat != NULL};
    uint64_t hash = o->chat ? chat_template_hash(o->chat) : 0;
    hash = XXH3_64bits_withSeed(facts, sizeof(facts), hash);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        hash = XXH3_64bits_withSeed(names[i] ? names[i] : "", names[i] ? strlen(names[i]) + 1 : 0,
                                    hash + i);
    return hash;
}

/* Texts and ids in lines are one stream, as ever. */
static bool is_examples(const struct records *r, const json_t *record,
                        const struct example_fields *f)
{
    enum example_form form = example_form_of(record, f);
    bool is_stream = form == EXAMPLE_TEXT || form == EXAMPLE_IDS || form == EXAMPLE_AUTO;
    return !is_stream || r->is_csv || r->is_array;
}

static bool peek(const char *path, const struct example_fields *f)
{
    struct records *r;
    json_t *record = NULL;
    bool found = records_open(&r, path, records_bytes(RECORD_BYTES)) == OK &&
                 records_next(r, &record) == OK && record && is_examples(r, record, f);
    json_decref(record);
    records_close(r);
    return found;
}

bool source_has_examples(const struct source_options *options, const struct example_fields *f)
{
    static const char *const endings[] = {".jsonl", ".ndjson", ".json", ".csv"};
    struct path_list paths = {0};
    bool found = false, is_named = options->kind == SOURCE_JSONL;
    if (source_expand_paths(options, &paths) == OK && paths.n > 0) {
        for (size_t i = 0; i < ARRAY_LEN(endings); i++)
            is_named |= str_ends_with(paths.items[0], endings[i]) != 0;
        found = is_named && peek(paths.items[0], f);
    }
    path_list_release(&paths);
    return found;
}
