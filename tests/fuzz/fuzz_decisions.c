/* Fuzz target: any JSON as decisions that are kept. What is taken prints as what it is. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/json_text.h"
#include "search/decisions_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void print(const struct decisions *d, struct str *out)
{
    BUG_ON(json_text_take(decisions_to_json(d), JSON_COMPACT, out) != OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    enum { PLACES = 4 };
    struct decisions d = {0}, again = {0};
    struct str text = {0}, text_again = {0};
    struct pool pool;
    json_t *json;
    if (json_read_text(&json, (const char *)data, n_bytes, "input", ERR_DATA) != OK)
        return 0;
    pool_init(&pool);
    if (decisions_from_json(json, PLACES, &pool, &d) == OK) {
        print(&d, &text);
        json_decref(json);
        BUG_ON(json_read_text(&json, text.text, text.n, "printed", ERR_DATA) != OK);
        BUG_ON(decisions_from_json(json, PLACES, &pool, &again) != OK);
        print(&again, &text_again);
        BUG_ON(strcmp(text.text, text_again.text) != 0);
    }
    json_decref(json);
    str_release(&text);
    str_release(&text_again);
    pool_release(&pool);
    return 0;
}
