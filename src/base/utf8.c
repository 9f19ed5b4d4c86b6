#include "base/utf8.h"

#include <utf8proc.h>

size_t utf8_prefix(const char *text, size_t n_bytes)
{
    const utf8proc_uint8_t *bytes = (const utf8proc_uint8_t *)text;
    size_t i = 0;
    while (i < n_bytes) {
        if (bytes[i] < 0x80) {
            i++;
            continue;
        }
        utf8proc_int32_t code_point;
        utf8proc_ssize_t n_left = (utf8proc_ssize_t)(n_bytes - i);
        utf8proc_ssize_t length = utf8proc_iterate(bytes + i, n_left, &code_point);
        if (length <= 0)
            break;
        i += (size_t)length;
    }
    return i;
}
