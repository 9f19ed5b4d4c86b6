/* Any bytes as a token file, with and without a type for headerless ones: refused, or every token
 * it claims to have can be read. */
#include <stdint.h>

#include "base/status.h"
#include "data/token_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const enum token_dtype types[] = {TOKEN_NONE, TOKEN_U16, TOKEN_U32};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        struct token_file f;
        if (token_file_parse(&f, data, n_bytes, "fuzz", types[i]) != OK)
            continue;
        for (int64_t at = 0; at < f.tokens.n_tokens; at++) {
            int32_t token, label;
            if (token_array_read(&f.tokens, at, 1, 50257, &token, &label) == OK)
                BUG_ON(token < 0 || token >= 50257 || (label != token && label != LABEL_IGNORED));
        }
        token_file_close(&f);
    }
    return 0;
}
