#include "data/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/str.h"
#include "base/vec.h"

enum { MOST_LINE_BYTES = 16 << 20, CHUNK = 1 << 16, WHERE = 512 };

struct line {
    int64_t at, number; /* first byte; from 1 on */
    int32_t n_bytes;
};

struct manifest {
    char *path;
    struct file_in file;
    VEC(struct line) lines;
    char *text;     /* the longest line */
    json_t *record; /* the last that was read */
    int64_t i_record;
    char where[WHERE];
};

bool manifest_is_named(const char *path)
{
    return str_ends_with(path, ".jsonl") || str_ends_with(path, ".ndjson");
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* The line that is being read. */
struct scan {
    struct line line;
    int64_t n_bytes;
    bool is_blank;
};

static enum status end_line(struct manifest *m, struct scan *s)
{
    if (!s->is_blank) {
        if (s->n_bytes > MOST_LINE_BYTES)
            return FAIL(ERR_DATA,
                        "%s:%" PRId64 ": a line of %" PRId64 " bytes; at most %d are read", m->path,
                        s->line.number, s->n_bytes, MOST_LINE_BYTES);
        s->line.n_bytes = (int32_t)s->n_bytes;
        TRY(vec_push(&m->lines, s->line));
    }
    s->line.at += s->n_bytes + 1;
    s->line.number++;
    s->n_bytes = 0;
    s->is_blank = true;
    return OK;
}

static enum status find_lines(struct manifest *m)
{
    char chunk[CHUNK];
    struct scan s = {.line = {.number = 1}, .is_blank = true};
    for (int64_t at = 0; at < m->file.n_bytes; at += CHUNK) {
        size_t n = (size_t)MIN((int64_t)CHUNK, m->file.n_bytes - at);
        TRY(file_in_read(&m->file, at, chunk, n));
        for (size_t i = 0; i < n; i++) {
            if (chunk[i] == '\n') {
                TRY(end_line(m, &s));
                continue;
            }
            s.n_bytes++;
            s.is_blank = s.is_blank && strchr(" \t\r", chunk[i]) && chunk[i];
        }
    }
    TRY(end_line(m, &s));
    if (m->lines.n == 0)
        return FAIL(ERR_DATA, "%s: has no samples: it wants a JSON object in each line", m->path);
    return OK;
}

static enum status open_file(struct manifest *m, const char *path)
{
    int32_t longest = 0;
    m->path = mem_strdup(path);
    if (!m->path)
        return FAIL(ERR_MEMORY, "%s: out of memory", path);
    TRY(file_in_open(&m->file, m->path));
    TRY(find_lines(m));
    for (size_t i = 0; i < m->lines.n; i++)
        longest = MAX(longest, m->lines.items[i].n_bytes);
    return mem_try_array(&m->text, (size_t)longest, 1);
}

enum status manifest_open(struct manifest **out, const char *path)
{
    struct manifest *m;
    *out = NULL;
    TRY(mem_try_array(&m, 1, sizeof(*m)));
    m->file.fd = -1;
    m->i_record = -1;
    enum status status = open_file(m, path);
    if (status != OK) {
        manifest_close(m);
        return status;
    }
    *out = m;
    return OK;
}

void manifest_close(struct manifest *m)
{
    if (!m)
        return;
    json_decref(m->record);
    file_in_close(&m->file);
    vec_release(&m->lines);
    mem_free(m->text);
    mem_free(m->path);
    mem_free(m);
}

/* ---- records --------------------------------------------------------------------------------- */

int64_t manifest_count(const struct manifest *m)
{
    return (int64_t)m->lines.n;
}

const char *manifest_where(struct manifest *m, int64_t i)
{
    (void)snprintf(m->where, sizeof(m->where), "%s:%" PRId64, m->path, m->lines.items[i].number);
    return m->where;
}

enum status manifest_read(struct manifest *m, int64_t i, const json_t **out)
{
    const struct line *l = &m->lines.items[i];
    json_error_t error;
    *out = m->record;
    if (m->record && m->i_record == i)
        return OK;
    json_decref(m->record);
    m->record = NULL;
    TRY(file_in_read(&m->file, l->at, m->text, (size_t)l->n_bytes));
    m->record = json_loadb(m->text, (size_t)l->n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!m->record)
        return FAIL(ERR_DATA, "%s: column %d: %s", manifest_where(m, i), error.column, error.text);
    if (!json_is_object(m->record))
        return FAIL(ERR_DATA, "%s: a record is an object: {\"field\": value, ...}",
                    manifest_where(m, i));
    m->i_record = i;
    *out = m->record;
    return OK;
}

uint64_t manifest_hash(const struct manifest *m)
{
    const size_t ends[] = {0, m->lines.n - 1};
    uint64_t h = (uint64_t)m->file.n_bytes;
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        const struct line *l = &m->lines.items[ends[i]];
        if (file_in_read(&m->file, l->at, m->text, (size_t)l->n_bytes) == OK)
            h = h * 31 + hash_bytes(m->text, (size_t)l->n_bytes);
    }
    return h;
}
