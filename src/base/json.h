/* json.h: reading JSON through Jansson, with our errors.
 *
 * Duplicate keys are refused; messages say line and column. Values are plain json_t: use Jansson's
 * own accessors on them, and json_decref when done.
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

#ifdef __cplusplus
}
#endif
#endif
