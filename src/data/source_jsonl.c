/* source_jsonl.c: JSONL files into token ids: texts, or lists of ids with their labels. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "data/document.h"
#include "data/json_line.h"
#include "data/source_internal.h"

enum { TEXT, IDS, LABELS, ATTENTION, N_MEMBERS };
enum { PIECE_BYTES = 16384, PIECE_IDS = 2048 };

struct jsonl_reader {
    const struct source_options *options;
    struct file_in file;
    struct document document;
    struct token_writer *writer;
    struct byte_reader lines;              /* looks through one line after the other */
    struct byte_reader values[N_MEMBERS];  /* reads what the line at hand has */
    struct json_member members[N_MEMBERS]; /* of that line */
    char piece[PIECE_BYTES];               /* of a text */
    int32_t ids[PIECE_IDS], labels[PIECE_IDS];
    size_t n_ids;
};

int64_t source_jsonl_bytes(void)
{
    return (int64_t)sizeof(struct jsonl_reader);
}

static enum status add_text(struct jsonl_reader *r)
{
    const struct json_member *text = &r->members[TEXT];
    struct byte_reader *value = &r->values[TEXT];
    if (text->kind != MEMBER_STRING)
        return FAIL(ERR_DATA, "\"%s\" is not a string", text->key);
    if (!r->options->tokenizer)
        return FAIL(ERR_CONFIG, "text needs a tokenizer: set `tokenizer`");
    json_string_begin(value, text->at);
    for (size_t n; (n = json_string_read(value, r->piece, sizeof(r->piece))) > 0;)
        TRY(document_add(&r->document, r->piece, n));
    TRY(value->status);
    return document_end(&r->document);
}

/* ---- ids --------------------------------------------------------------------------------------
 */

static enum status check_id(const struct source_options *options, int64_t i, int64_t id)
{
    if (id < 0 || id >= options->vocab_size)
        return FAIL(ERR_DATA,
                    "input_ids[%" PRId64 "] is %" PRId64 ", outside the vocabulary of %" PRId64
                    ": tokenise with the tokenizer that belongs to the model, or use a model with "
                    "a larger vocab_size",
                    i, id, options->vocab_size);
    return OK;
}

/* An array beside input_ids: one of another length is ERR_DATA. */
static enum status check_side(const struct json_member *m, int64_t n_ids)
{
    if (m->kind == MEMBER_ABSENT || m->kind == MEMBER_NULL || m->n_elements == n_ids)
        return OK;
    return FAIL(ERR_DATA, "%s has %" PRId64 " elements, input_ids %" PRId64, m->key, m->n_elements,
                n_ids);
}

static enum status flush_ids(struct jsonl_reader *r)
{
    size_t n = r->n_ids;
    r->n_ids = 0;
    return token_writer_add(r->writer, r->ids, r->labels, n);
}

/* Element i of a member: `absent` where there is no array, ERR_DATA where it is no whole number. */
static enum status read_element(struct jsonl_reader *r, int member, int64_t i, int64_t absent,
                                int64_t *value)
{
    *value = absent;
    if (r->members[member].kind != MEMBER_ARRAY || json_array_next(&r->values[member], value))
        return r->values[member].status;
    return FAIL(ERR_DATA, "%s[%" PRId64 "] is not an integer", r->members[member].key, i);
}

static enum status read_label(struct jsonl_reader *r, int64_t i, int64_t id, int64_t *label)
{
    TRY(read_element(r, LABELS, i, id, label));
    if (*label != LABEL_IGNORED && *label != id)
        return FAIL(ERR_DATA,
                    "labels[%" PRId64 "] is neither input_ids[%" PRId64 "] (%" PRId64 ") nor %d", i,
                    i, id, (int)LABEL_IGNORED);
    return OK;
}

static enum status add_ids(struct jsonl_reader *r)
{
    const struct json_member *ids = &r->members[IDS];
    int is_first = 1;
    if (ids->kind != MEMBER_ARRAY)
        return FAIL(ERR_DATA, "input_ids is not an array");
    for (int m = IDS; m < N_MEMBERS; m++) {
        TRY(check_side(&r->members[m], ids->n_elements));
        if (r->members[m].kind == MEMBER_ARRAY)
            json_array_begin(&r->values[m], r->members[m].at);
    }
    for (int64_t i = 0; i < ids->n_elements; i++) {
        int64_t id, label, attention;
        TRY(read_element(r, IDS, i, 0, &id));
        TRY(check_id(r->options, i, id));
        TRY(read_label(r, i, id, &label));
        TRY(read_element(r, ATTENTION, i, 1, &attention));
        if (attention == 0)
            continue;
        if (r->n_ids == PIECE_IDS)
            TRY(flush_ids(r));
        r->ids[r->n_ids] = (int32_t)id;
        r->labels[r->n_ids++] = is_first ? LABEL_IGNORED : (int32_t)label;
        is_first = 0;
    }
    return flush_ids(r);
}

/* ---- lines ------------------------------------------------------------------------------------
 */

static enum status add_line(struct jsonl_reader *r)
{
    char first_key[JSON_KEY_BYTES];
    int is_blank;
    const char *field = r->options->text_field ? r->options->text_field : "text";
    const char *const keys[N_MEMBERS] = {field, "input_ids", "labels", "attention_mask"};
    for (int m = 0; m < N_MEMBERS; m++)
        r->members[m] = (struct json_member){.key = keys[m]};
    TRY(json_line_scan(&r->lines, r->members, N_MEMBERS, first_key, &is_blank));
    if (is_blank)
        return OK;
    if (r->members[IDS].kind != MEMBER_ABSENT)
        return add_ids(r);
    if (r->members[TEXT].kind != MEMBER_ABSENT)
        return add_text(r);
    return FAIL(ERR_DATA,
                "has neither \"%s\" nor \"input_ids\" (its first key is \"%s\"); name the field "
                "with `text_field`",
                field, first_key);
}

/* Some editors put one in front of UTF-8. */
static void skip_byte_order_mark(struct byte_reader *r)
{
    static const int mark[] = {0xEF, 0xBB, 0xBF};
    for (size_t i = 0; i < ARRAY_LEN(mark); i++)
        if (reader_next(r) != mark[i]) {
            reader_seek(r, 0);
            return;
        }
}

static enum status add_lines(struct jsonl_reader *r)
{
    skip_byte_order_mark(&r->lines);
    for (int64_t number = 1; reader_at(&r->lines) < r->file.n_bytes; number++) {
        enum status status = add_line(r);
        if (status != OK)
            return status_prefix(status, "%s: line %" PRId64, r->file.path, number);
    }
    return OK;
}

enum status source_read_jsonl(const struct source_options *options, const char *path,
                              struct token_writer *w)
{
    struct jsonl_reader *r;
    TRY(mem_try_array(&r, 1, sizeof(*r)));
    r->options = options;
    r->writer = w;
    document_init(&r->document, options->tokenizer, w, options->spare_bytes);
    enum status status = source_open_file(&r->file, path);
    r->lines.file = &r->file;
    for (int m = 0; m < N_MEMBERS; m++)
        r->values[m].file = &r->file;
    if (status == OK)
        status = r->file.n_bytes == 0 ? FAIL(ERR_DATA, "%s: the JSONL file is empty", path)
                                      : add_lines(r);
    document_release(&r->document);
    file_in_close(&r->file);
    mem_free(r);
    return status;
}
