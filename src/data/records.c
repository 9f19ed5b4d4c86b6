/* records.c: JSON lines, and arrays cut into their elements without reading them as a whole. */
#include "data/records.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"

/* Of a byte of a record: itself in a buffer that doubled, and what it becomes when it is parsed,
 * which is most for arrays of numbers with one digit. */
enum { BYTES_PER_BYTE = 48 };

int64_t records_bytes(int64_t record_bytes)
{
    return (int64_t)sizeof(struct records) + BYTES_PER_BYTE * record_bytes;
}

int records_is_csv(const char *path)
{
    return str_ends_with(path, ".csv");
}

int records_byte(struct records *r)
{
    int c = reader_next(&r->in);
    r->line += c == '\n';
    return c;
}

enum status records_keep(struct records *r, int byte)
{
    const char c = (char)byte;
    char bytes[BYTES_TEXT];
    if (r->text.n >= r->most)
        return FAIL(ERR_FIT,
                    "a record of more than %s: host_memory leaves no room to read more in one "
                    "piece. Raise host_memory, or cut it into several",
                    format_bytes(bytes, (int64_t)r->most));
    str_add_n(&r->text, &c, 1);
    return str_status(&r->text);
}

/* ---- opening --------------------------------------------------------------------------------- */

static int is_space(int c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Whether the file is one array; the bracket is read then. */
static int begins_array(struct records *r)
{
    static const int mark[] = {0xEF, 0xBB, 0xBF};
    for (size_t i = 0; i < ARRAY_LEN(mark); i++)
        if (reader_next(&r->in) != mark[i]) {
            reader_seek(&r->in, 0);
            break;
        }
    while (is_space(reader_peek(&r->in)))
        (void)records_byte(r);
    if (r->is_csv || reader_peek(&r->in) != '[')
        return 0;
    (void)records_byte(r);
    return 1;
}

static enum status refuse_tables(const struct file_in *f)
{
    char magic[6] = {0};
    if (f->n_bytes >= (int64_t)sizeof(magic) && file_in_read(f, 0, magic, sizeof(magic)) != OK)
        return ERR_DATA;
    int is_parquet = memcmp(magic, "PAR1", 4) == 0 || str_ends_with(f->path, ".parquet");
    if (!is_parquet && memcmp(magic, "ARROW1", 6) != 0 && !str_ends_with(f->path, ".arrow"))
        return OK;
    return FAIL(ERR_UNSUPPORTED,
                "%s: %s files are not read; make JSONL of it, in Python: pandas.read_%s(\"%s\")"
                ".to_json(\"data.jsonl\", orient=\"records\", lines=True)",
                f->path, is_parquet ? "Parquet" : "Arrow", is_parquet ? "parquet" : "feather",
                f->path);
}

enum status records_open(struct records **out, const char *path, int64_t most_bytes)
{
    struct records *r;
    enum status status;
    *out = NULL;
    TRY(mem_try_array(&r, 1, sizeof(*r)));
    r->file.fd = -1;
    status = file_in_open(&r->file, path) == OK ? OK : ERR_DATA;
    if (status != OK)
        goto out;
    TRY_GOTO(refuse_tables(&r->file), out);
    r->in.file = &r->file;
    r->is_csv = records_is_csv(path);
    r->most = (size_t)MAX(most_bytes / BYTES_PER_BYTE, (int64_t)1);
    r->line = r->first = 1;
    r->is_array = begins_array(r);
    *out = r;
out:
    if (status != OK)
        records_close(r);
    return status;
}

void records_close(struct records *r)
{
    if (!r)
        return;
    file_in_close(&r->file);
    str_release(&r->text);
    str_release(&r->where);
    json_decref(r->header);
    mem_free(r);
}

/* ---- records --------------------------------------------------------------------------------- */

const char *records_where(const struct records *r)
{
    return str_text(&r->where);
}

static enum status read_line(struct records *r)
{
    while (is_space(reader_peek(&r->in))) /* and empty lines */
        (void)records_byte(r);
    r->first = r->line;
    for (int c = records_byte(r); c >= 0 && c != '\n'; c = records_byte(r))
        TRY(records_keep(r, c));
    return OK;
}

/* An element up to the comma or bracket behind it, which it is cut at: what is between is for the
 * parser to judge. */
static enum status read_element(struct records *r)
{
    int depth = 0, in_string = 0;
    while (is_space(reader_peek(&r->in)))
        (void)records_byte(r);
    r->first = r->line;
    for (int c = reader_peek(&r->in); c >= 0; c = reader_peek(&r->in)) {
        if (!in_string && depth == 0 && (c == ',' || c == ']'))
            return OK;
        (void)records_byte(r);
        TRY(records_keep(r, c));
        if (in_string && c == '\\' && reader_peek(&r->in) >= 0)
            TRY(records_keep(r, records_byte(r)));
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string)
            depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    }
    return FAIL(ERR_DATA, "the array does not end");
}

/* What separates the elements of an array: 0 at its end. */
static enum status next_element(struct records *r, int *more)
{
    while (is_space(reader_peek(&r->in)))
        (void)records_byte(r);
    int c = reader_peek(&r->in);
    *more = c != ']';
    if (*more && r->has_begun) {
        if (c != ',')
            return FAIL(ERR_DATA, "the array does not end");
        (void)records_byte(r);
    }
    r->has_begun = 1;
    return *more ? read_element(r) : OK;
}

static enum status next_json(struct records *r, json_t **out)
{
    int more = 1;
    TRY(r->is_array ? next_element(r, &more) : read_line(r));
    TRY(r->in.status);
    if (!more || (!r->is_array && r->text.n == 0))
        return OK;
    TRY(json_read_text(out, str_text(&r->text), r->text.n, "record", ERR_DATA));
    if (json_is_object(*out))
        return OK;
    json_decref(*out);
    *out = NULL;
    return FAIL(ERR_DATA, "not a JSON object; each %s is one",
                r->is_array ? "element of the array" : "line of a JSONL file");
}

enum status records_next(struct records *r, json_t **out)
{
    *out = NULL;
    str_clear(&r->text);
    enum status status = r->is_csv ? records_next_csv(r, out) : next_json(r, out);
    str_clear(&r->where);
    str_addf(&r->where, "%s: line %" PRId64, r->file.path, r->first);
    TRY(str_status(&r->where));
    return status == OK ? OK : status_prefix(status, "%s", str_text(&r->where));
}
