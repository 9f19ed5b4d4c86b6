/* kvfile.h: a small file of keys and values that is worth keeping and never needed: what was
 * measured once and may be measured again.
 *
 *     snug-cache 1
 *     KEY<tab>VALUE
 *     ...
 *
 * Keys and values are printable ASCII, keys in order. A file that is damaged in any way counts as
 * empty, with a warning, and the next save replaces it. Values come from a file anybody may have
 * written: who reads one checks it.
 */
#ifndef SNUG_BASE_KVFILE_H
#define SNUG_BASE_KVFILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KVFILE_KEY_MOST = 512, /* characters */
    KVFILE_VALUE_MOST = 4096,
    KVFILE_ENTRIES_MOST = 65536,
};

struct kvfile;

/* Reads the file; none there is fine. ERR_MEMORY is the only failure. */
enum status kvfile_open(struct kvfile **out, const char *path) MUST_CHECK;
/* The same with the file of that name in a cache folder. */
enum status kvfile_open_in(struct kvfile **out, const char *folder, const char *name) MUST_CHECK;
void kvfile_free(struct kvfile *f); /* does not save; NULL is fine */

/* The value, or NULL; valid until the key is put again or the file freed. */
const char *kvfile_get(const struct kvfile *f, const char *key);
/* ERR_USAGE for a key or value that the file cannot hold. */
enum status kvfile_put(struct kvfile *f, const char *key, const char *value) MUST_CHECK;

/* Entries beyond `most` go at a save: first those whose values say that they were put longest ago
 * (`when`, in whatever unit), until three quarters of `most` are left. */
void kvfile_bound(struct kvfile *f, size_t most, int64_t (*when)(const char *value));

/* When something was put since: writes the file atomically, folders included, with what others have
 * added to it in between. */
enum status kvfile_save(struct kvfile *f) MUST_CHECK;

/* Adds the entries of a file's text: all of them, or none and ERR_DATA. Keys already there keep
 * their values. */
enum status kvfile_parse(struct kvfile *f, const char *text, size_t n_bytes) MUST_CHECK;
/* The whole file as text; the caller frees it with mem_free. */
enum status kvfile_print(const struct kvfile *f, char **text, size_t *n_bytes) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
