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
           (int64_t)encoder_bytes(RECORD_BYTES) + 2 * (int64_t)sizeof(struct example);
}

struct maker {
    const struct source_options *options;
    struct records *records;
    struct encoder *encoder;
    struct example examples[2]; /* of a preference both are there before one is written */
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

static bool is_long(const struct maker *m, const struct example *x)
{
    int64_t most = m->options->examples->max_tokens;
    return most > 0 && (int64_t)x->ids.n > most;
}

static void cut(const struct maker *m, struct example *x)
{
    if (is_long(m, x))
        x->ids.n = x->labels.n = (size_t)m->options->examples->max_tokens;
}

/* The examples of a record: all of them are written, or none is. */
static enum status add_examples(struct maker *m, int n)
{
    bool any_long = false, any_empty = false;
    for (int i = 0; i < n; i++) {
        any_long |= is_long(m, &m->examples[i]);
        cut(m, &m->examples[i]);
        any_empty |= count_labels(&m->examples[i]) == 0;
    }
    if (any_long && m->options->examples->drops_long) {
        m->counts.n_dropped++;
        return OK;
    }
    m->counts.n_truncated += any_long;
    m->counts.n_unlabelled += any_empty;
    for (int i = 0; i < n && !any_empty; i++) {
        const struct example *x = &m->examples[i];
        TRY(token_writer_add(m->writer, x->ids.items, x->labels.items, x->ids.n));
        TRY(token_writer_end_example(m->writer));
    }
    return OK;
}

static enum status make_pair(struct maker *m, const json_t *record)
{
    const struct source_options *o = m->options;
    for (int i = 0; i < 2; i++) {
        struct example_options one = *o->examples;
        one.form = i ? EXAMPLE_REJECTED : EXAMPLE_CHOSEN;
        TRY(example_make(&m->examples[i], record, &one, o->tokenizer, m->encoder));
    }
    return OK;
}

static enum status add_record(struct maker *m, const json_t *record)
{
    const struct source_options *o = m->options;
    bool pairs = o->examples->pairs != 0;
    enum status status =
        pairs ? make_pair(m, record)
              : example_make(&m->examples[0], record, o->examples, o->tokenizer, m->encoder);
    if (status == OK)
        status = add_examples(m, pairs ? 2 : 1);
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
    example_release(&m.examples[0]);
    example_release(&m.examples[1]);
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
    const int64_t facts[] = {(int64_t)o->form, o->train_on_inputs, o->max_tokens, o->drops_long,
                             o->max_records,   o->chat != NULL,    o->pairs};
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
