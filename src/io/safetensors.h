/* safetensors.h: reading and writing safetensors files, one or sharded.
 *
 * Layout of a file: u64 little-endian header length N; N bytes of JSON,
 *     {"__metadata__": {"format": "pt"}, "name": {"dtype": "F32", "shape": [2, 3],
 *      "data_offsets": [begin, end]}, ...}
 * padded with spaces; then the data, row-major little-endian, offsets counted from its start.
 *
 * The reader maps files and checks everything before it hands out a pointer: whatever opens
 * without error can be read to the last byte. A refused file is ERR_DATA, and the message names
 * the file, the tensor and what to do.
 *
 * The writer streams: tensors are declared first, then their bytes are appended in the order
 * that st_writer_next() asks for, so nothing is ever held in memory twice.
 */
#ifndef SNUG_IO_SAFETENSORS_H
#define SNUG_IO_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ST_DTYPE(name in the file, bits per element) */
#define ST_DTYPES            \
    ST_DTYPE(BOOL, 8)        \
    ST_DTYPE(U8, 8)          \
    ST_DTYPE(I8, 8)          \
    ST_DTYPE(F4, 4)          \
    ST_DTYPE(F6_E2M3, 6)     \
    ST_DTYPE(F6_E3M2, 6)     \
    ST_DTYPE(F8_E5M2, 8)     \
    ST_DTYPE(F8_E4M3, 8)     \
    ST_DTYPE(F8_E8M0, 8)     \
    ST_DTYPE(F8_E4M3FNUZ, 8) \
    ST_DTYPE(F8_E5M2FNUZ, 8) \
    ST_DTYPE(I16, 16)        \
    ST_DTYPE(U16, 16)        \
    ST_DTYPE(F16, 16)        \
    ST_DTYPE(BF16, 16)       \
    ST_DTYPE(I32, 32)        \
    ST_DTYPE(U32, 32)        \
    ST_DTYPE(F32, 32)        \
    ST_DTYPE(C64, 64)        \
    ST_DTYPE(F64, 64)        \
    ST_DTYPE(I64, 64)        \
    ST_DTYPE(U64, 64)

enum st_dtype {
#define ST_DTYPE(name, bits) ST_##name,
    ST_DTYPES
#undef ST_DTYPE
        ST_DTYPE_COUNT
};

const char *st_dtype_name(enum st_dtype dtype);
int st_dtype_bits(enum st_dtype dtype);
int st_dtype_parse(const char *name, enum st_dtype *dtype); /* false when there is none */

/* *n_bytes = bytes of a tensor; ERR_DATA when a dimension is negative, a product overflows or the
 * bits do not fill whole bytes. The message does not name the tensor: callers prefix it. */
enum status st_tensor_bytes(enum st_dtype dtype, int rank, const int64_t *dims, int64_t *n_elems,
                            int64_t *n_bytes) MUST_CHECK;

/* ---- reading ---- */

struct st_reader;

/* Everything is borrowed from the reader and lives until st_reader_close. */
struct st_tensor {
    const char *name;
    const char *file; /* path of the file it is in */
    enum st_dtype dtype;
    int rank;            /* 0 for a scalar */
    const int64_t *dims; /* [rank], outermost first; NULL when rank is 0 */
    int64_t n_elems, n_bytes;
    int64_t offset;      /* of its first byte in the file, for reads that go around the mapping */
    const uint8_t *data; /* n_bytes; NOT necessarily aligned for the dtype */
};

/* One file; a folder holding model.safetensors, or model.safetensors.index.json and its shards
 * (the index says which shard a tensor comes from; tensors it does not list are left out); or
 * bytes in memory, which must outlive the reader (`what` names them in messages). */
enum status st_reader_open_file(struct st_reader **out, const char *path) MUST_CHECK;
enum status st_reader_open_folder(struct st_reader **out, const char *folder) MUST_CHECK;
enum status st_reader_open_memory(struct st_reader **out, const void *data, size_t n_bytes,
                                  const char *what) MUST_CHECK;
void st_reader_close(struct st_reader *r); /* NULL is fine */

/* Tensors by number, in the order of their bytes on disk (shard after shard). */
size_t st_reader_count(const struct st_reader *r);
const struct st_tensor *st_reader_at(const struct st_reader *r, size_t i);
int64_t st_reader_bytes(const struct st_reader *r); /* of all tensors together */

const struct st_tensor *st_reader_find(const struct st_reader *r, const char *name); /* or NULL */
/* The same, with ERR_DATA that names the nearest tensor when there is none of that name. */
enum status st_reader_get(const struct st_reader *r, const char *name,
                          const struct st_tensor **out) MUST_CHECK;

/* A value of __metadata__ (the first shard's), or NULL. */
const char *st_reader_metadata(const struct st_reader *r, const char *key);

/* ---- writing ---- */

struct st_writer;

/* What Hugging Face cuts at by default. */
#define ST_DEFAULT_SHARD_BYTES INT64_C(50000000000)

/* A writer starts with the metadata {"format": "pt"}. Name and dims are copied. */
enum status st_writer_new(struct st_writer **out) MUST_CHECK;
void st_writer_free(struct st_writer *w); /* NULL is fine; closes what is open */

enum status st_writer_metadata(struct st_writer *w, const char *key, const char *value) MUST_CHECK;
/* Declares tensor number 0, 1, 2, ... in order of the calls. */
enum status st_writer_add(struct st_writer *w, const char *name, enum st_dtype dtype, int rank,
                          const int64_t *dims) MUST_CHECK;

/* Ends the declarations and writes the (first) header: to one file; or to a folder, as
 * model.safetensors, or as model-00001-of-000NN.safetensors + index when the data is larger than
 * max_shard_bytes (a tensor is never cut; one larger than that gets a shard to itself).
 * Both write under the final names: for atomicity give a temporary name or folder and rename. */
enum status st_writer_open_file(struct st_writer *w, const char *path) MUST_CHECK;
enum status st_writer_open_folder(struct st_writer *w, const char *folder,
                                  int64_t max_shard_bytes) MUST_CHECK;

/* Number of the tensor whose bytes come next, -1 when all are written. That is the order of
 * declaration, except that tensors of wider dtypes come first in their file (as other readers
 * need tensors aligned) and empty ones are never asked for. */
int64_t st_writer_next(const struct st_writer *w);

/* Appends bytes of that tensor: all of it or a part, never past its end. */
enum status st_writer_append(struct st_writer *w, const void *data, size_t n_bytes) MUST_CHECK;

/* Checks that every tensor was written, writes the index, closes; with `sync` what was written
 * (files, and the folder where one was given) is on disk on return. The writer can only be freed
 * afterwards. */
enum status st_writer_finish(struct st_writer *w, int sync) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
