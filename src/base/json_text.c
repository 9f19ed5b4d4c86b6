#include "base/json_text.h"

static int add(const char *text, size_t n, void *str)
{
    str_add_n(str, text, n);
    return ((struct str *)str)->failed;
}

enum status json_text_take(json_t *value, size_t flags, struct str *out)
{
    if (!value)
        return FAIL(ERR_MEMORY, "out of memory for a JSON text");
    int failed = json_dump_callback(value, add, out, flags);
    json_decref(value);
    return failed ? FAIL(ERR_MEMORY, "out of memory for a JSON text") : str_status(out);
}
