/* gguf_file.h: a GGUF file read back, and held to the format: a reader of its own, which shares
 * nothing with the writer. Everything fails the test instead of returning an error. */
#ifndef SNUG_TESTS_GGUF_FILE_H
#define SNUG_TESTS_GGUF_FILE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gguf_read_tensor {
    char name[65];
    int rank;
    int64_t dims[4]; /* the innermost first, as in the file */
    int64_t n_elems, n_bytes;
    uint32_t type;
    const uint8_t *data;
};

struct gguf_read {
    char *text; /* of the file */
    size_t n_bytes, at;
    json_t *keys; /* lists as arrays */
    struct gguf_read_tensor *tensors;
    size_t n_tensors;
};

/* Checks that every byte of the file is accounted for, and every tensor where it should be. */
void gguf_read_open(struct gguf_read *r, const char *path);
void gguf_read_close(struct gguf_read *r);
const struct gguf_read_tensor *gguf_read_find(const struct gguf_read *r, const char *name);

/* n elements of a type of the file, written from the format's description. */
void gguf_read_decode(uint32_t type, const uint8_t *data, int64_t n, float *out);
/* CRC-32 as zlib has it; `before`: of what came before, or 0. */
uint32_t crc32_of(uint32_t before, const void *data, size_t n_bytes);

#ifdef __cplusplus
}
#endif
#endif
