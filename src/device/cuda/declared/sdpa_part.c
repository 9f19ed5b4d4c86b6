#include "device/cuda/declared/sdpa_part.h"

#include "base/compiler.h"

/* Queries that a block of the engines works on: for counting blocks, not for correctness. */
enum { QUERIES_PER_BLOCK = 128, BLOCKS_PER_MULTIPROCESSOR = 2 };

int64_t sdpa_part_whole(const struct sdpa_shape *whole)
{
    return whole->batch * whole->kv_heads;
}

int64_t sdpa_part_next(const struct sdpa_shape *whole, int64_t n)
{
    int64_t heads = whole->kv_heads, rows = whole->batch;
    /* A part begins at some head's lse, which must be aligned to 16 bytes. */
    if (whole->n_tokens % 4 != 0)
        return n < rows * heads ? rows * heads : 0;
    for (int64_t i = n + 1; i <= heads; i++) {
        if (heads % i == 0)
            return i;
    }
    for (int64_t i = n / heads + 1; i <= rows; i++) {
        if (rows % i == 0)
            return i * heads;
    }
    return 0;
}

int64_t sdpa_part_previous(const struct sdpa_shape *whole, int64_t n)
{
    int64_t last = 0;
    for (int64_t i = sdpa_part_next(whole, 0); i > 0 && i < n; i = sdpa_part_next(whole, i))
        last = i;
    return last;
}

struct sdpa_shape sdpa_part_shape(const struct sdpa_shape *whole, int64_t n)
{
    struct sdpa_shape part = *whole;
    part.batch = n < whole->kv_heads ? 1 : n / whole->kv_heads;
    part.kv_heads = MIN(n, whole->kv_heads);
    part.heads = part.kv_heads * (whole->heads / whole->kv_heads);
    return part;
}

static int64_t qkv_bytes(const struct sdpa_shape *s)
{
    int64_t width = (s->heads + 2 * s->kv_heads) * s->head_dim;
    return s->batch * s->n_tokens * width * dtype_size(s->dtype);
}

/* Memory like that of the activations is fair; memory for every pair of tokens is not, beyond a
 * 64th of what the GPU has. Where the activations are small, enough for a row of 32 heads and 2048
 * tokens: smaller parts leave multiprocessors idle at the end of each (on an H200 one row at a time
 * takes a fifth longer than two, two a tenth longer than eight). The gradient runs when its block's
 * other activations are gone: it seldom makes the peak. */
static int64_t fair_bytes(const struct sdpa_shape *whole, const struct sdpa_machine *m)
{
    const int64_t mib = 1 << 20;
    int64_t fair = MAX(qkv_bytes(whole) * 3 / 2 + 80 * mib, 320 * mib);
    return MAX(fair, m->memory_bytes / 64);
}

int64_t sdpa_part_most_bytes(const struct sdpa_shape *whole, const struct sdpa_machine *m)
{
    return MAX(fair_bytes(whole, m), 3 * qkv_bytes(whole));
}

static bool fills(const struct sdpa_shape *whole, int64_t n, int n_multiprocessors)
{
    int64_t tiles = (whole->n_tokens + QUERIES_PER_BLOCK - 1) / QUERIES_PER_BLOCK;
    return n * (whole->heads / whole->kv_heads) * tiles >=
           (int64_t)BLOCKS_PER_MULTIPROCESSOR * n_multiprocessors;
}

/* Workspace is proportional to the groups of a part. */
int64_t sdpa_part_choose(const struct sdpa_shape *whole, int64_t n_bytes,
                         const struct sdpa_machine *m)
{
    int64_t fair = fair_bytes(whole, m), most = sdpa_part_most_bytes(whole, m), chosen = 0;
    int64_t group_bytes = n_bytes / MAX(sdpa_part_whole(whole), 1);
    for (int64_t n = sdpa_part_next(whole, 0); n > 0; n = sdpa_part_next(whole, n)) {
        if (n * group_bytes <= fair ||
            (n * group_bytes <= most && !fills(whole, chosen, m->n_multiprocessors)))
            chosen = n;
    }
    return chosen;
}
