#include "base/json.h"

#include "base/alloc.h"
#include "base/file.h"

enum status json_read_text(json_t **out, const char *text, size_t n_bytes, const char *what,
                           enum status code)
{
    json_error_t e;
    *out = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &e);
    /* Where its parser runs out of memory, it mostly says nothing at all. */
    if (!*out && (json_error_code(&e) == json_error_out_of_memory || !e.text[0]))
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
