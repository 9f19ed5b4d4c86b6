/* json_text.h: a JSON value as text in memory of ours (json_dumps would hand out libc memory). */
#ifndef SNUG_BASE_JSON_TEXT_H
#define SNUG_BASE_JSON_TEXT_H

#include <jansson.h>

#include "base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Appends `value` to `out` and drops it. NULL is ERR_MEMORY: what json_pack gives when it could
 * not. flags are Jansson's (JSON_COMPACT, JSON_INDENT(2)). */
enum status json_text_take(json_t *value, size_t flags, struct str *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
