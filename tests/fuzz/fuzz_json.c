/* Fuzz target: any bytes as JSON. What parses must survive being printed and parsed again, and be
 * what Jansson's own parser makes of it, which reads all that ours does except for integers beyond
 * 64 bits and a byte order mark. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static int dump_into_str(const char *text, size_t n, void *str)
{
    str_add_n(str, text, n);
    return ((struct str *)str)->failed;
}

static void compare_with_jansson(const json_t *value, const char *text, size_t n_bytes)
{
    json_error_t e;
    if (memchr(text, '\0', n_bytes))
        return; /* Jansson takes a NUL behind a number for white space */
    json_t *other = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
    if (other)
        BUG_ON(!value || !json_equal(value, other));
    else if (value)
        BUG_ON(json_error_code(&e) != json_error_numeric_overflow && memcmp(text, "\xEF", 1) != 0);
    json_decref(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    json_t *value, *again;
    enum status status = json_read_text(&value, (const char *)data, n_bytes, "input", ERR_DATA);
    compare_with_jansson(value, (const char *)data, n_bytes);
    if (status != OK)
        return 0;
    struct str text = {0};
    BUG_ON(json_dump_callback(value, dump_into_str, &text, JSON_COMPACT) != 0);
    BUG_ON(json_read_text(&again, text.text, text.n, "printed", ERR_DATA) != OK);
    BUG_ON(!json_equal(value, again));
    json_decref(again);
    json_decref(value);
    str_release(&text);
    return 0;
}
