/* attention_tiles.h: what the attention kernels share: which keys a query sees, tiles of rows as
 * padded f32, and the forward pass over a block of queries. Products of tiles are
 * tile_math.h's.
 *
 * Everything is computed tile by tile, CPU_TILE queries by CPU_TILE keys; no matrix of scores over
 * all tokens exists. Tiles hold rows of `width` floats: head_dim rounded up to whole vector tiles,
 * the rest zero, so that products need no edge cases.
 */
#ifndef SNUG_DEVICE_CPU_ATTENTION_ATTENTION_TILES_H
#define SNUG_DEVICE_CPU_ATTENTION_ATTENTION_TILES_H

#include <stdbool.h>
#include <string.h>

#include "base/sanitizer.h"
#include "device/cpu/attention/tile_math.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/products/micro.h"
#include "device/cpu/support/math.h"
#include "ops/attention_dropout.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CPU_TILE = 96,              /* a multiple of all rows and columns of struct tile_math */
    CPU_QUERIES = 4 * CPU_TILE, /* queries that share a loaded tile of keys */
    CPU_LANES = 16,             /* softmax loops go by whole groups of this many keys */
};

/* Tasks of so many multiplications that are worth handing to another thread. */
static inline int64_t cpu_attention_grain(double task_work)
{
    return (int64_t)(1e5 / (task_work + 1.0));
}

/* Which keys a query sees. The query at position p sees keys first .. last, neither of which falls
 * as p rises. */
struct attention_mask {
    bool causal;
    int64_t window; /* 0: none */
    int64_t block;  /* the window consists of whole blocks; 0: of tokens */
    int64_t n_keys;
    const int32_t *positions; /* of the row's tokens in their samples; NULL: it is one sample */
    const int32_t *keys;      /* of each key: 0 says that it is padding; NULL: none is */
};

/* Is any of keys k .. k + n_k more than padding? */
static inline bool mask_has_key(const struct attention_mask *m, int64_t k, int64_t n_k)
{
    for (int64_t j = k; m->keys && j < k + n_k; j++) {
        if (m->keys[j])
            return true;
    }
    return !m->keys && n_k > 0;
}

static inline int64_t mask_first(const struct attention_mask *m, int64_t p)
{
    int64_t first = attention_first(p, m->window, m->block);
    return m->positions ? MAX(first, p - m->positions[p]) : first;
}

static inline int64_t mask_last(const struct attention_mask *m, int64_t p)
{
    return m->causal ? MIN(p, m->n_keys - 1) : m->n_keys - 1;
}

/* Rows of positions that a call has as input i; NULL: it has none. */
static inline const int32_t *mask_positions(const struct op_call *c, int i, int64_t batch,
                                            int64_t n_tokens)
{
    return call_has(c, i) ? (const int32_t *)c->in[i].data + batch * n_tokens : NULL;
}

/* Does any query of positions [p, p + n_p) see any key of [k, k + n_k)? */
static inline bool mask_meets(const struct attention_mask *m, int64_t p, int64_t n_p, int64_t k,
                              int64_t n_k)
{
    return k <= mask_last(m, p + n_p - 1) && k + n_k - 1 >= mask_first(m, p);
}

/* Rows of one head in a tensor: row i begins at element first + i * stride. */
struct head_rows {
    const struct tensor *t;
    int64_t first, stride;
};

static inline int64_t tile_width(int64_t head_dim)
{
    return micro_round_up(head_dim, MICRO_COLUMNS);
}

/* dst[n_padded, width]: rows i .. i + n, zero elsewhere. */
static inline void tile_load(float *dst, const struct head_rows *src, int64_t i, int64_t n,
                             int64_t n_padded, int64_t head_dim)
{
    int64_t width = tile_width(head_dim);
    for (int64_t r = 0; r < n; r++) {
        cpu_load_f32(dst + r * width, src->t->data, src->t->dtype,
                     src->first + (i + r) * src->stride, head_dim);
        memset(dst + r * width + head_dim, 0, (size_t)(width - head_dim) * sizeof(float));
    }
    memset(dst + n * width, 0, (size_t)((n_padded - n) * width) * sizeof(float));
}

/* Rows of a tile of keys or values from k on that are padding become 0: what they hold may not even
 * be a number, and products must not meet it. */
static inline void tile_blank(float *tile, const struct attention_mask *m, int64_t k, int64_t n_k,
                              int64_t head_dim)
{
    int64_t width = tile_width(head_dim);
    for (int64_t r = 0; m->keys && r < n_k; r++) {
        if (!m->keys[k + r])
            memset(tile + r * width, 0, (size_t)width * sizeof(float));
    }
}

/* Numbers of a query's row for keys k .. k + n_k: those of padding become `x`. */
static inline void tile_pad(float *row, const struct attention_mask *m, int64_t k, int64_t n_k,
                            float x)
{
    if (!m->keys)
        return;
    const int32_t *keys = m->keys + k;
#pragma omp simd
    for (int64_t j = 0; j < n_k; j++)
        row[j] = keys[j] ? row[j] : x;
}

/* dst[head_dim, CPU_TILE] = transpose of src[CPU_TILE, width]. dst has room for head_dim rounded up
 * to MICRO_SQUARE rows. */
static inline UNSANITIZED void tile_transpose(float *SNUG_RESTRICT dst,
                                              const float *SNUG_RESTRICT src, int64_t head_dim)
{
    int64_t width = tile_width(head_dim);
    sanitizer_expect(src, (size_t)(CPU_TILE * width) * sizeof(float));
    sanitizer_expect(dst,
                     (size_t)(micro_round_up(head_dim, MICRO_SQUARE) * CPU_TILE) * sizeof(float));
    for (int64_t r = 0; r < CPU_TILE; r += MICRO_SQUARE) {
        for (int64_t e = 0; e < head_dim; e += MICRO_SQUARE) {
            float a[MICRO_SQUARE * MICRO_SQUARE];
            int64_t n_e = MIN(width - e, MICRO_SQUARE);
            for (int64_t i = 0; i < MICRO_SQUARE; i++) {
                for (int64_t j = 0; j < MICRO_SQUARE; j++)
                    a[i * MICRO_SQUARE + j] = j < n_e ? src[(r + i) * width + e + j] : 0.0f;
            }
            micro_transpose(a);
            for (int64_t j = 0; j < MICRO_SQUARE; j++) {
                for (int64_t i = 0; i < MICRO_SQUARE; i++)
                    dst[(e + j) * CPU_TILE + r + i] = a[j * MICRO_SQUARE + i];
            }
        }
    }
}

/* Floats of a transposed tile. */
static inline int64_t tile_across(int64_t head_dim)
{
    return micro_round_up(head_dim, MICRO_SQUARE) * CPU_TILE;
}

/* n scores under a cap; 0: as they are. */
static inline void tile_cap(float *p, int64_t n, float cap)
{
    if (cap == 0.0f)
        return;
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        p[j] = cap * cpu_tanhf(p[j] / cap);
}

/* One head's attention of queries against keys; query i is at position `position` + i. */
struct attention_job {
    struct head_rows q, k, v;
    struct attention_mask mask;
    int64_t position, head_dim;
    float scale, cap;         /* cap 0: none */
    const struct tensor *out; /* its row for query i at element out_first + i * out_stride */
    int64_t out_first, out_stride;
    float *lse; /* per query, or NULL */
    struct attention_dropout dropout;
    int64_t head; /* batch entry * heads + head: its row in what is dropped */
};

/* Floats of scratch for cpu_attention_block, a multiple of 16. */
int64_t cpu_attention_scratch(int64_t head_dim);
/* Queries i .. i + n of a job, n <= CPU_QUERIES. */
void cpu_attention_block(const struct attention_job *job, int64_t i, int64_t n, float *scratch);

/* ---- the gradient (attention_grad_tiles.c) --------------------------------------------------- */

/* Heads of head_dim elements that lie side by side in rows, from element `at` of a row on; a batch
 * entry has n_rows of them. The gradient lies as the numbers do. */
struct head_layout {
    const struct tensor *t, *gradient;
    int64_t n_rows, width, at;
};

/* A call of a gradient. */
struct attention_grad {
    int64_t batch, heads, kv_heads, head_dim;
    struct head_layout q, k, v;
    struct head_layout out;     /* its gradient is dout */
    const float *lse;           /* [batch, heads, queries] */
    const int32_t *positions;   /* [batch, queries], or NULL */
    const int32_t *keys;        /* [batch, keys]: 0 is padding; or NULL */
    struct attention_mask mask; /* of all batch entries: without positions and keys */
    float scale, cap;           /* cap 0: none */
    struct attention_dropout dropout;
};

int64_t cpu_attention_grad_bytes(const struct attention_grad *g, const struct kernel_env *env);
void cpu_attention_grad(const struct kernel_ctx *x, const struct attention_grad *g);

#ifdef __cplusplus
}
#endif
#endif
