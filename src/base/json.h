/* json.h: reading JSON into Jansson's values, with our errors and on our heap.
 *
 * Duplicate keys are refused; messages say line and column. An integer beyond 64 bits is a real,
 * strings may hold U+0000 (use json_string_length), a byte order mark in front is passed over.
 * Values are plain json_t: use Jansson's own accessors on them, and json_decref when done.
 */
#ifndef SNUG_BASE_JSON_H
#define SNUG_BASE_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `what` names the source in messages (a path, usually); `code` is the status of a syntax error. */
enum status json_read_text(json_t **out, const char *text, size_t n_bytes, const char *what,
                           enum status code) MUST_CHECK;
enum status json_read_file(json_t **out, const char *path, enum status code) MUST_CHECK;

/* A new number, or null when it is not finite: JSON has no NaN. */
json_t *json_finite(double value);

/* The text of a string that holds no U+0000; NULL for all else. */
const char *json_text(const json_t *value);

#ifdef __cplusplus
}
#endif
#endif
