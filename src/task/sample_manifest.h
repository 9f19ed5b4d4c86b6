/* sample_manifest.h: samples that a JSONL file lists, a member for each field:
 *
 *     {"images": ["a/0.png", "a/1.png"], "scalars": [0.3, -1], "target": 0.7}
 *
 * A value is a number, lists of numbers, an image file, or a list of image files: frames. Paths are
 * seen from the folder of the list. Bytes of images become 0 .. 1. Of frames that are too few the
 * last is repeated. null is zeros, for inputs.
 */
#ifndef SNUG_TASK_SAMPLE_MANIFEST_H
#define SNUG_TASK_SAMPLE_MANIFEST_H

#include "data/samples.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sample_manifest;

enum status sample_manifest_open(struct sample_manifest **out, const char *path,
                                 const struct sample_facts *facts) MUST_CHECK;
void sample_manifest_close(struct sample_manifest *s); /* NULL is fine */
int64_t sample_manifest_count(const struct sample_manifest *s);
/* "clips.jsonl:12"; lives until the next call. */
const char *sample_manifest_where(struct sample_manifest *s, int64_t i);
/* The numbers of a field of sample i. ERR_DATA, with file, line and field, for what has another
 * shape or cannot be read. */
enum status sample_manifest_read(struct sample_manifest *s, const struct model_field *f, int64_t i,
                                 double *out) MUST_CHECK;

/* Of the list itself: another list has another. */
uint64_t sample_manifest_hash(const struct sample_manifest *s);

#ifdef __cplusplus
}
#endif
#endif
