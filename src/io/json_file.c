/* json_file.c: see json_file.h. */
#include "io/json_file.h"

#include "base/file.h"

static int add_piece(const char *text, size_t n, void *str)
{
    str_add_n(str, text, n);
    return ((struct str *)str)->failed ? -1 : 0;
}

enum status json_add_text(struct str *out, const json_t *value)
{
    if (!value || json_dump_callback(value, add_piece, out, JSON_INDENT(2)) != 0)
        return FAIL(ERR_MEMORY, "out of memory while writing JSON");
    str_add(out, "\n");
    return str_status(out);
}

enum status json_file_write(const char *folder, const char *name, const json_t *value)
{
    struct str text = {0}, path = {0};
    enum status status;
    str_addf(&path, "%s/%s", folder, name);
    TRY_GOTO(str_status(&path), out);
    TRY_GOTO(json_add_text(&text, value), out);
    TRY_GOTO(file_write_atomic(path.text, text.text, text.n), out);
out:
    str_release(&text);
    str_release(&path);
    return status;
}
