/* Fuzz target: any bytes as JSON. What parses must survive being printed and parsed again. */
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static int dump_into_str(const char *text, size_t n, void *str)
{
    str_add_n(str, text, n);
    return ((struct str *)str)->failed;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    json_t *value, *again;
    if (json_read_text(&value, (const char *)data, n_bytes, "input", ERR_DATA) != OK)
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
