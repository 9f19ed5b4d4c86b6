/* gguf.c: see gguf.h. */
#include "io/gguf.h"

#include "base/half.h"

/* What a value is, in the file. */
enum { VALUE_U32 = 4, VALUE_F32 = 6, VALUE_BOOL = 7, VALUE_TEXT = 8, VALUE_LIST = 9 };
enum { VERSION = 3 };

static void put(struct str *s, uint64_t value, int n_bytes)
{
    char bytes[8];
    for (int i = 0; i < n_bytes; i++)
        bytes[i] = (char)(unsigned char)(value >> 8 * i & 0xff);
    str_add_n(s, bytes, (size_t)n_bytes);
}

static void put_text(struct str *s, const char *text, size_t n)
{
    put(s, n, 8);
    str_add_n(s, text, n);
}

/* ---- keys ---- */

static void put_key(struct gguf *g, const char *key, uint32_t type)
{
    put_text(&g->keys, key, strlen(key));
    put(&g->keys, type, 4);
    g->n_keys++;
}

void gguf_key_u32(struct gguf *g, const char *key, uint32_t value)
{
    put_key(g, key, VALUE_U32);
    put(&g->keys, value, 4);
}

void gguf_key_f32(struct gguf *g, const char *key, float value)
{
    put_key(g, key, VALUE_F32);
    put(&g->keys, f32_bits(value), 4);
}

void gguf_key_bool(struct gguf *g, const char *key, bool value)
{
    put_key(g, key, VALUE_BOOL);
    put(&g->keys, value, 1);
}

void gguf_key_text(struct gguf *g, const char *key, const char *text, size_t n)
{
    put_key(g, key, VALUE_TEXT);
    put_text(&g->keys, text, n);
}

void gguf_key_list(struct gguf *g, const char *key, enum gguf_item type, uint64_t n)
{
    put_key(g, key, VALUE_LIST);
    put(&g->keys, (uint64_t)type, 4);
    put(&g->keys, n, 8);
}

void gguf_item_i32(struct gguf *g, int32_t value)
{
    put(&g->keys, (uint32_t)value, 4);
}

void gguf_item_f32(struct gguf *g, float value)
{
    put(&g->keys, f32_bits(value), 4);
}

void gguf_item_bool(struct gguf *g, bool value)
{
    put(&g->keys, value, 1);
}

void gguf_item_text(struct gguf *g, const char *text, size_t n)
{
    put_text(&g->keys, text, n);
}

/* ---- tensors ---- */

static int64_t aligned(int64_t n)
{
    return (n + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
}

int64_t gguf_data_bytes(const struct gguf *g)
{
    if (g->tensors.n == 0)
        return 0;
    const struct gguf_place *last = &g->tensors.items[g->tensors.n - 1];
    return last->offset + last->n_bytes;
}

enum status gguf_tensor(struct gguf *g, const char *name, enum gguf_type type, int rank,
                        const int64_t *dims)
{
    const struct gguf_type_info *info = &gguf_types[type];
    struct gguf_place place = {.offset = aligned(gguf_data_bytes(g)), .n_bytes = info->bytes};
    BUG_ON(rank < 1 || rank > GGUF_MOST_DIMS || dims[rank - 1] % info->elems != 0);
    put_text(&g->infos, name, strlen(name));
    put(&g->infos, (uint64_t)rank, 4);
    for (int i = rank - 1; i >= 0; i--) {
        put(&g->infos, (uint64_t)dims[i], 8);
        place.n_bytes *= i == rank - 1 ? dims[i] / info->elems : dims[i];
    }
    put(&g->infos, info->id, 4);
    put(&g->infos, (uint64_t)place.offset, 8);
    return vec_push(&g->tensors, place);
}

/* ---- the file ---- */

static enum status pad(struct gguf *g, int64_t n_bytes)
{
    static const char zeros[GGUF_ALIGNMENT];
    return n_bytes ? file_out_write(&g->output.file, zeros, (size_t)n_bytes) : OK;
}

static enum status write_header(struct gguf *g)
{
    struct str head = {0};
    str_add(&head, "GGUF");
    put(&head, VERSION, 4);
    put(&head, g->tensors.n, 8);
    put(&head, g->n_keys, 8);
    int64_t n_bytes = (int64_t)(head.n + g->keys.n + g->infos.n);
    enum status status = str_status(&head);
    if (status == OK)
        status = file_out_write(&g->output.file, head.text, head.n);
    str_release(&head);
    TRY(status);
    TRY(file_out_write(&g->output.file, str_text(&g->keys), g->keys.n));
    TRY(file_out_write(&g->output.file, str_text(&g->infos), g->infos.n));
    return pad(g, aligned(n_bytes) - n_bytes);
}

enum status gguf_open(struct gguf *g, const char *path)
{
    TRY(str_status(&g->keys));
    TRY(str_status(&g->infos));
    TRY(output_open(&g->output, path));
    g->is_open = true;
    return write_header(g);
}

enum status gguf_append(struct gguf *g, const void *data, size_t n_bytes)
{
    BUG_ON(g->at >= g->tensors.n);
    const struct gguf_place *place = &g->tensors.items[g->at];
    BUG_ON(g->n_written + (int64_t)n_bytes > place->n_bytes);
    TRY(file_out_write(&g->output.file, data, n_bytes));
    g->n_written += (int64_t)n_bytes;
    if (g->n_written < place->n_bytes)
        return OK;
    g->at++;
    g->n_written = 0;
    return pad(g, aligned(place->n_bytes) - place->n_bytes);
}

enum status gguf_commit(struct gguf *g)
{
    if (g->at < g->tensors.n)
        return FAIL(ERR_INTERNAL, "%s: tensor %zu of %zu is not completely written",
                    g->output.final, g->at, g->tensors.n);
    return output_commit(&g->output);
}

void gguf_release(struct gguf *g)
{
    if (g->is_open)
        output_abandon(&g->output);
    str_release(&g->keys);
    str_release(&g->infos);
    vec_release(&g->tensors);
    *g = (struct gguf){0};
}
