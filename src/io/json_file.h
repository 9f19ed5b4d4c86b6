/* json_file.h: JSON values as text and as files people can read (indented, a newline at the end).
 * Reading is in base/json.h.
 */
#ifndef SNUG_IO_JSON_FILE_H
#define SNUG_IO_JSON_FILE_H

#include <jansson.h>

#include "base/status.h"
#include "base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds the text of an array or object to `out`. Reals keep every bit. `value` NULL is ERR_MEMORY:
 * what Jansson gives when it could not build one. */
enum status json_add_text(struct str *out, const json_t *value) MUST_CHECK;

/* folder/name = that text, written atomically and synced. */
enum status json_file_write(const char *folder, const char *name, const json_t *value) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
