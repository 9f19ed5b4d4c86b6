/* json.c: see json.h. Syntax is in json_parse.c. */
#include "base/json.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

/* Before anything can make a value: one allocator for all of them, ours, so that they are counted
 * and their failures can be tested. */
__attribute__((constructor)) static void use_our_heap(void)
{
    json_set_alloc_funcs(mem_alloc, mem_free);
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

json_t *json_finite(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

const char *json_text(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}
