/* Any bytes as a tokenizer.json: it opens or is refused, and what opens encodes without harm. What
 * encodes without a normalizer, a prefix space or stripping decodes to something, too. */
#include <stdint.h>
#include <string.h>

#include "base/status.h"
#include "data/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void encode_and_decode(const struct tokenizer *t, const char *text, size_t n_bytes)
{
    struct token_list ids = {0};
    struct str out = {0};
    if (tokenizer_encode(t, text, n_bytes, ENCODE_TEMPLATE, &ids) == OK) {
        for (size_t i = 0; i < ids.n; i++)
            BUG_ON(ids.items[i] < 0 || ids.items[i] >= tokenizer_vocab_size(t));
        BUG_ON(tokenizer_decode(t, ids.items, ids.n, 0, &out) != OK);
    }
    str_release(&out);
    token_list_release(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char *const texts[] = {
        "",
        " ",
        "ab aab  bb",
        "Hello's 123\n\n x<|endoftext|> <s>y",
        "e\xCC\x81t\xC3\xA9\xE3\x80\x80z",
        "\xFFz\xC3\xED\xA0\x80\xF0\x9F\x98\x80",
    };
    struct tokenizer *t;
    if (tokenizer_open_text(&t, (const char *)data, n_bytes, "fuzz") != OK)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        encode_and_decode(t, texts[i], strlen(texts[i]));
    encode_and_decode(t, (const char *)data, n_bytes < 256 ? n_bytes : 256);
    tokenizer_free(t);
    return 0;
}
