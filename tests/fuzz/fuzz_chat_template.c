/* Fuzz target: any text as a chat template: it is refused, or renders an answer that is learnt. */
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "data/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct tokenizer *t;
    struct chat_template *c;
    struct str text = {0};
    const struct chat_message m[] = {{CHAT_USER, "q", 1, 0}, {CHAT_ASSISTANT, "a", 1, 0}};
    struct spanned_text out = {0};
    str_add_n(&text, (const char *)data, n_bytes);
    BUG_ON(tokenizer_open(&t, "bytes") != OK);
    if (chat_template_parse(&c, str_text(&text), "fuzz", t) == OK) {
        BUG_ON(chat_render(c, m, 2, 0, &out) != OK);
        BUG_ON(out.spans.n != 1 || out.spans.items[0].end > out.text.n);
        chat_template_free(c);
    }
    spanned_text_release(&out);
    str_release(&text);
    tokenizer_free(t);
    return 0;
}
