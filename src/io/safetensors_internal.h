/* safetensors_internal.h: what the reader, the folder reader and the writer share. */
#ifndef SNUG_IO_SAFETENSORS_INTERNAL_H
#define SNUG_IO_SAFETENSORS_INTERNAL_H

#include "base/file.h"
#include "base/pool.h"
#include "base/vec.h"
#include "io/safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The format's own limit; a longer header is refused unread. */
#define ST_MAX_HEADER_BYTES INT64_C(100000000)
#define ST_PREFIX_BYTES     8 /* the header length */

struct st_pair {
    const char *key, *value;
};

struct st_name {
    const char *name;
    const struct st_tensor *tensor;
};

struct st_reader {
    struct pool pool; /* names, paths, dims, metadata */
    VEC(struct file_map) maps;
    VEC(struct st_tensor) tensors; /* file by file, by offset */
    VEC(struct st_pair) metadata;  /* of the first file parsed */
    struct st_name *by_name;       /* [tensors.n] sorted; made by st_reader_index */
    int64_t n_bytes;
};

enum status st_reader_new(struct st_reader **out) MUST_CHECK;
/* Maps one file and adds its tensors. */
enum status st_reader_add_file(struct st_reader *r, const char *path) MUST_CHECK;
/* Ends the building: lookups work from here on. */
enum status st_reader_index(struct st_reader *r) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
