/* manifest.h: the records of a JSONL file by number: where each line begins is held, one record at
 * a time is parsed. */
#ifndef SNUG_DATA_MANIFEST_H
#define SNUG_DATA_MANIFEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Does the name end in .jsonl or .ndjson? */
bool manifest_is_named(const char *path);

struct manifest;

/* Finds the lines; blank ones are none. ERR_DATA for a line that is too long, and for no lines. */
enum status manifest_open(struct manifest **out, const char *path) MUST_CHECK;
void manifest_close(struct manifest *m); /* NULL is fine */

int64_t manifest_count(const struct manifest *m);
/* Of record i: "clips.jsonl:12"; lives until the next call. */
const char *manifest_where(struct manifest *m, int64_t i);
/* Record i, an object, which lives until the next call. ERR_DATA, with file, line and column, for
 * what is no JSON object. */
enum status manifest_read(struct manifest *m, int64_t i, const json_t **out) MUST_CHECK;

/* Of the size of the file and its first and last lines. */
uint64_t manifest_hash(const struct manifest *m);

#ifdef __cplusplus
}
#endif
#endif
