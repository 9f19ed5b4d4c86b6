/* utf8.h: where text stops being UTF-8. */
#ifndef SNUG_BASE_UTF8_H
#define SNUG_BASE_UTF8_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Length of the well-formed UTF-8 that `text` starts with. */
size_t utf8_prefix(const char *text, size_t n_bytes);

#ifdef __cplusplus
}
#endif
#endif
