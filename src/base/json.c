#include "base/json.h"

#include <stdbool.h>

#include "base/alloc.h"
#include "base/file.h"

/* Without memory Jansson says nothing, or takes a string that it cannot hold for a syntax error:
 * the heap is asked for as much as the text may have needed. */
static bool lacks_memory(const json_error_t *e, size_t n_bytes)
{
    enum { SMALL = 1 << 16 };
    if (json_error_code(e) == json_error_out_of_memory || !e->text[0])
        return true;
    void *probe = mem_alloc(n_bytes + SMALL);
    mem_free(probe);
    return !probe;
}

enum status json_read_text(json_t **out, const char *text, size_t n_bytes, const char *what,
                           enum status code)
{
    json_error_t e;
    *out = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &e);
    if (!*out && lacks_memory(&e, n_bytes))
        return FAIL(ERR_MEMORY, "%s: out of memory while reading it", what);
    if (!*out)
        return FAIL(code, "%s:%d:%d: not valid JSON: %s", what, e.line, e.column, e.text);
    return OK;
}

enum status json_read_file(json_t **out, const char *path, enum status code)
{
    char *text;
    size_t n_bytes;
    *out = NULL;
    TRY(file_read(path, &text, &n_bytes));
    enum status status = json_read_text(out, text, n_bytes, path, code);
    mem_free(text);
    return status;
}
