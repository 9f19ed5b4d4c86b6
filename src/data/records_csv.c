/* records_csv.c: comma-separated values with a header (RFC 4180): a record is an object with a
 * string for each column. */
#include <string.h>

#include "base/json.h"
#include "data/records.h"

/* A field into r->text; *last: it ends the line. Quotes inside quotes are doubled. */
static enum status read_field(struct records *r, int *last)
{
    int quoted = reader_peek(&r->in) == '"';
    str_clear(&r->text);
    if (quoted)
        (void)records_byte(r);
    for (;;) {
        int c = records_byte(r);
        if (quoted && c == '"') {
            quoted = reader_peek(&r->in) == '"';
            if (quoted)
                TRY(records_keep(r, records_byte(r)));
            continue;
        }
        if (c < 0 && quoted)
            return FAIL(ERR_DATA, "a quoted field does not end");
        if (!quoted && (c == ',' || c == '\n' || c < 0)) {
            *last = c != ',';
            return OK;
        }
        if (quoted || c != '\r' || reader_peek(&r->in) != '\n')
            TRY(records_keep(r, c));
    }
}

static enum status take_text(struct records *r, json_t **out)
{
    *out = json_stringn(str_text(&r->text), r->text.n);
    return *out ? OK : FAIL(ERR_DATA, "a field is not UTF-8");
}

static enum status add_column(struct records *r)
{
    json_t *name;
    TRY(take_text(r, &name));
    if (!json_text(name)) {
        json_decref(name);
        return FAIL(ERR_DATA, "a column's name holds a zero byte");
    }
    return json_array_append_new(r->header, name) == 0
               ? OK
               : FAIL(ERR_MEMORY, "out of memory for the header");
}

static enum status read_header(struct records *r)
{
    int last = 0;
    r->header = json_array();
    while (!last) {
        TRY(read_field(r, &last));
        TRY(add_column(r));
    }
    return OK;
}

static enum status add_field(struct records *r, json_t *record, size_t i)
{
    const char *name = json_text(json_array_get(r->header, i));
    json_t *value;
    if (!name)
        return FAIL(ERR_DATA, "has more fields than the header, which has %zu",
                    json_array_size(r->header));
    if (json_object_get(record, name))
        return FAIL(ERR_DATA, "the header has \"%s\" twice", name);
    TRY(take_text(r, &value));
    return json_object_set_new(record, name, value) == 0
               ? OK
               : FAIL(ERR_MEMORY, "out of memory for a record");
}

static enum status read_fields(struct records *r, json_t *record)
{
    int last = 0;
    size_t n = 0;
    while (!last) {
        TRY(read_field(r, &last));
        TRY(add_field(r, record, n++));
    }
    if (n < json_array_size(r->header))
        return FAIL(ERR_DATA, "has %zu fields; the header has %zu", n, json_array_size(r->header));
    return OK;
}

enum status records_next_csv(struct records *r, json_t **out)
{
    if (!r->header)
        TRY(read_header(r));
    while (reader_peek(&r->in) == '\n' || reader_peek(&r->in) == '\r')
        (void)records_byte(r); /* empty lines */
    r->first = r->line;
    if (reader_peek(&r->in) < 0)
        return r->in.status;
    json_t *record = json_object();
    enum status status =
        record ? read_fields(r, record) : FAIL(ERR_MEMORY, "out of memory for a record");
    if (status == OK && r->in.status == OK)
        *out = record;
    else
        json_decref(record);
    return status == OK ? r->in.status : status;
}
