/* weights_identity.c: whether weights are those that they were, without reading all of them. */
#include "base/hash.h"
#include "io/file_hash.h"
#include "io/hf_dir.h"
#include "io/weights.h"

/* Bytes looked at from each end of a tensor: whatever trained it has changed some of them. */
enum { LOOKED_AT = 4096 };

static uint64_t tensor_hash(const struct st_tensor *t)
{
    int64_t n = MIN((int64_t)LOOKED_AT, t->n_bytes);
    const uint64_t parts[] = {
        hash_text(t->name),
        (uint64_t)t->dtype,
        file_hash_bytes(t->dims, (size_t)t->rank * sizeof(*t->dims)),
        file_hash_bytes(t->data, (size_t)n),
        file_hash_bytes(t->data + t->n_bytes - n, (size_t)n),
    };
    return file_hash_bytes(parts, sizeof(parts));
}

/* A sum does not depend on the order of tensors: shards may be cut anew. */
enum status weights_identity(const char *folder, char out[HASH_TEXT])
{
    struct st_reader *reader;
    uint64_t sum = 0;
    TRY(hf_dir_open_weights(&reader, folder));
    for (size_t i = 0; i < st_reader_count(reader); i++)
        sum += tensor_hash(st_reader_at(reader, i));
    st_reader_close(reader);
    (void)file_hash_text(out, sum);
    return OK;
}
