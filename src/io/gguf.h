/* gguf.h: writing GGUF files (version 3), the format of llama.cpp:
 *
 *     "GGUF", u32 version, u64 tensors, u64 keys
 *     keys:    text name, u32 type, value
 *     tensors: text name, u32 rank, u64 dims (the innermost first), u32 type, u64 offset
 *     data:    from a multiple of 32 on, each tensor at a multiple of 32 from there
 *
 * where a text is u64 length and bytes; all little-endian.
 *
 *     struct gguf g = {0};
 *     gguf_key_u32(&g, "llama.block_count", 2);
 *     TRY_GOTO(gguf_tensor(&g, "output.weight", GGUF_Q8_0, 2, dims), out);
 *     TRY_GOTO(gguf_open(&g, path), out);
 *     ... gguf_append(&g, bytes, n) of each tensor in the order of declaration ...
 *     TRY_GOTO(gguf_commit(&g), out);
 *     out: gguf_release(&g);
 *
 * The file appears whole or not at all (base/output.h).
 */
#ifndef SNUG_IO_GGUF_H
#define SNUG_IO_GGUF_H

#include "base/output.h"
#include "base/str.h"
#include "base/vec.h"
#include "io/gguf_types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GGUF_ALIGNMENT = 32, GGUF_MOST_DIMS = 4 };

struct gguf_place {
    int64_t offset, n_bytes; /* in the data */
};

struct gguf {
    struct str keys, infos; /* as in the file; failures stick */
    uint64_t n_keys;
    VEC(struct gguf_place) tensors;
    size_t at;         /* tensor whose bytes come next */
    int64_t n_written; /* of it */
    struct output output;
    bool is_open;
};

void gguf_key_u32(struct gguf *g, const char *key, uint32_t value);
void gguf_key_f32(struct gguf *g, const char *key, float value);
void gguf_key_bool(struct gguf *g, const char *key, bool value);
void gguf_key_text(struct gguf *g, const char *key, const char *text, size_t n);

/* A list: its key, then each element by gguf_item_*. */
enum gguf_item {
    GGUF_ITEM_U32 = 4,
    GGUF_ITEM_I32 = 5,
    GGUF_ITEM_F32 = 6,
    GGUF_ITEM_BOOL = 7,
    GGUF_ITEM_TEXT = 8
};
void gguf_key_list(struct gguf *g, const char *key, enum gguf_item type, uint64_t n);
void gguf_item_i32(struct gguf *g, int32_t value);
void gguf_item_f32(struct gguf *g, float value);
void gguf_item_bool(struct gguf *g, bool value);
void gguf_item_text(struct gguf *g, const char *text, size_t n);

/* dims as ours: the outermost first. The innermost one is whole blocks of the type. */
enum status gguf_tensor(struct gguf *g, const char *name, enum gguf_type type, int rank,
                        const int64_t *dims) MUST_CHECK;

enum status gguf_open(struct gguf *g, const char *path) MUST_CHECK;
enum status gguf_append(struct gguf *g, const void *data, size_t n_bytes) MUST_CHECK;
enum status gguf_commit(struct gguf *g) MUST_CHECK;
void gguf_release(struct gguf *g);

/* Of the data that was declared. */
int64_t gguf_data_bytes(const struct gguf *g);

#ifdef __cplusplus
}
#endif
#endif
