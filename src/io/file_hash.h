/* file_hash.h: files of any size through a small buffer: checksums, and parts read without mapping
 * (a mapping counts as resident memory, and what is read here is larger than the budget).
 */
#ifndef SNUG_IO_FILE_HASH_H
#define SNUG_IO_FILE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FILE_HASH_BYTES = 256 << 10 }; /* of the buffer */

/* *hash = XXH64 (seed 0, what `xxhsum -H64` prints) of the whole file, *n_bytes its length. */
enum status file_hash(const char *path, uint64_t *hash, int64_t *n_bytes) MUST_CHECK;

/* XXH64 of bytes in memory. */
uint64_t file_hash_bytes(const void *data, size_t n_bytes);

/* A hash as 16 lower-case hexadecimal digits and a NUL; returns out. */
enum { HASH_DIGITS = 16, HASH_TEXT = HASH_DIGITS + 1 };
const char *file_hash_text(char out[HASH_TEXT], uint64_t hash);

/* Length of a regular file; ERR_IO when there is none. */
enum status file_size(const char *path, int64_t *n_bytes) MUST_CHECK;

/* Bytes [offset, offset + n_bytes) of a file into dst; ERR_IO when it ends before. */
enum status file_read_part(const char *path, int64_t offset, void *dst, size_t n_bytes) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
