#include "device/cuda/declared/head_loss.h"

#include <stddef.h>

#include "base/compiler.h"
#include "device/cuda/declared/declared.h"
#include "device/cuda/declared/sums.h"
#include "ops/layer_support.h"

enum {
    ALIGN = 256,
    WORDS = 64,        /* rows of logits are a multiple of it: whole vectors, fast products */
    AUTO_LEAST = 2048, /* rows of a chunk */
    AUTO_MOST = 2816,
    AUTO_ROWS = 128,     /* a multiple of it */
    CHUNKS_UNSUMMED = 2, /* of a dw of 16 bits */
};

/* ---- sizes ----------------------------------------------------------------------------------- */

static int64_t chunk_for(int64_t n_rows)
{
    int64_t most = MIN(MAX(n_rows / 4, (int64_t)AUTO_LEAST), (int64_t)AUTO_MOST);
    int64_t n_chunks = MAX(ceil_div(n_rows, most), (int64_t)1);
    return ceil_div(ceil_div(n_rows, n_chunks), AUTO_ROWS) * AUTO_ROWS;
}

struct head_sizes head_sizes_of(const struct op_call *c, bool gradient)
{
    struct head_sizes s = {0};
    int64_t n_chunks = call_int(c, HEAD_LOSS_CHUNKS);
    bool makes_dw = gradient && c->n_out > 3;
    bool narrow = makes_dw && c->out[3].dtype != DTYPE_F32;
    s.n_words = c->in[1].shape.dim[0];
    s.n_columns = c->in[1].shape.dim[1];
    s.n_rows = shape_elems(&c->in[2].shape);
    s.row = ceil_div(s.n_words, WORDS) * WORDS;
    s.row_bytes = s.row * dtype_size(c->in[0].dtype);
    s.chunk_rows = n_chunks > 0 ? ceil_div(s.n_rows, n_chunks) : chunk_for(s.n_rows);
    int64_t sums = s.row * s.n_columns * (int64_t)sizeof(float);
    int64_t half = ceil_div(s.n_rows, CHUNKS_UNSUMMED * AUTO_ROWS) * AUTO_ROWS;
    if (n_chunks == 0 && narrow && (half - s.chunk_rows) * s.row_bytes <= sums)
        s.chunk_rows = MAX(half, s.chunk_rows);
    s.chunk_rows = MAX(MIN(s.chunk_rows, s.n_rows), (int64_t)1);
    s.padded = s.n_words % HEAD_VECTOR != 0;
    s.summed = narrow && s.n_rows > CHUNKS_UNSUMMED * s.chunk_rows;
    s.n_products = s.padded ? s.row : s.n_words;
    s.makes_dw = makes_dw;
    s.n_main = s.summed || !makes_dw ? 0 : s.padded ? s.n_words / WORDS * WORDS : s.n_words;
    return s;
}

static int64_t align(int64_t n_bytes)
{
    return ceil_div(n_bytes, ALIGN) * ALIGN;
}

static int64_t logits_bytes(const struct head_sizes *s)
{
    return align(s->chunk_rows * s->row_bytes);
}

static int64_t losses_bytes(const struct head_sizes *s)
{
    return align(s->n_rows * (int64_t)sizeof(float));
}

static int64_t weights_bytes(const struct op_call *c, const struct head_sizes *s)
{
    return s->padded ? align(s->row * s->n_columns * dtype_size(c->in[1].dtype)) : 0;
}

/* Words from n_main on. */
static int64_t sums_bytes(const struct head_sizes *s)
{
    int64_t n_words = s->makes_dw ? s->n_products - s->n_main : 0;
    return align(n_words * s->n_columns * (int64_t)sizeof(float));
}

/* The next n_bytes of a workspace; there is none while a call is planned. */
static void *take(void *workspace, int64_t *at, int64_t n_bytes)
{
    void *taken = workspace ? (char *)workspace + *at : NULL;
    *at += n_bytes;
    return taken;
}

struct head_work head_work_of(const struct op_call *c, const struct head_sizes *s, void *workspace)
{
    struct head_work w;
    int64_t at = 0;
    w.logits = take(workspace, &at, logits_bytes(s));
    w.losses = take(workspace, &at, losses_bytes(s));
    w.weights = take(workspace, &at, weights_bytes(c, s));
    w.weights = s->padded ? w.weights : c->in[1].data;
    w.sums = take(workspace, &at, sums_bytes(s));
    w.gemm = take(workspace, &at, 0);
    return w;
}

/* ---- products -------------------------------------------------------------------------------- */

struct cuda_gemm head_logits_product(const struct op_call *c, const struct head_sizes *s,
                                     const struct head_work *w, int64_t first, int64_t n)
{
    return (struct cuda_gemm){
        .m = n,
        .n = s->n_products,
        .k = s->n_columns,
        .a = {c->in[0].data, first * s->n_columns, s->n_columns, false},
        .b = {w->weights, 0, s->n_columns, true},
        .dtype = c->in[0].dtype,
        .c = w->logits,
        .c_row = s->row,
        .c_dtype = c->in[0].dtype,
    };
}

/* dw[word .., C] += logits[n, word ..]^T x[first .. first + n, C] for n_words words; the result is
 * set by the caller. */
static struct cuda_gemm words_product(const struct op_call *c, const struct head_sizes *s,
                                      const struct head_work *w, int64_t first, int64_t n,
                                      int64_t word, int64_t n_words)
{
    return (struct cuda_gemm){
        .m = n_words,
        .n = s->n_columns,
        .k = n,
        .a = {w->logits, word, s->row, true},
        .b = {c->in[0].data, first * s->n_columns, s->n_columns, false},
        .dtype = c->in[0].dtype,
        .c_row = s->n_columns,
    };
}

/* dx[first .. first + n, C] = logits[n, V] w[V, C] */
static struct cuda_gemm input_product(const struct op_call *c, const struct head_sizes *s,
                                      const struct head_work *w, int64_t first, int64_t n)
{
    return (struct cuda_gemm){
        .m = n,
        .n = s->n_columns,
        .k = s->n_products,
        .a = {w->logits, 0, s->row, false},
        .b = {w->weights, 0, s->n_columns, false},
        .dtype = c->in[0].dtype,
        .c = c->out[2].data,
        .c_offset = first * s->n_columns,
        .c_row = s->n_columns,
        .c_dtype = c->out[2].dtype,
    };
}

int head_gradient_products(const struct op_call *c, const struct head_sizes *s,
                           const struct head_work *w, int64_t first, int64_t n,
                           struct cuda_gemm out[HEAD_PRODUCTS_MOST])
{
    int n_products = 0;
    if (s->n_main > 0) {
        struct cuda_gemm g = words_product(c, s, w, first, n, 0, s->n_main);
        g.c = c->out[3].data;
        g.c_dtype = c->out[3].dtype;
        g.add = first > 0 || call_has(c, 4);
        out[n_products++] = g;
    }
    if (s->makes_dw && s->n_main < s->n_products) {
        struct cuda_gemm g = words_product(c, s, w, first, n, s->n_main, s->n_products - s->n_main);
        g.c = w->sums;
        g.c_dtype = DTYPE_F32;
        g.add = first > 0;
        out[n_products++] = g;
    }
    out[n_products++] = input_product(c, s, w, first, n);
    return n_products;
}

/* ---- who computes the products --------------------------------------------------------------- */

struct answer {
    const char *declined;
    int64_t n_bytes; /* the most that one of them needs */
};

static void ask_library(const struct kernel_env *env, const struct cuda_gemm *g, struct answer *a)
{
    a->declined = product_declines(env, g);
    if (!a->declined)
        a->n_bytes = MAX(a->n_bytes, product_workspace(env, g));
}

static void ask_plain(const struct kernel_env *env, const struct cuda_gemm *g, struct answer *a)
{
    (void)env;
    a->declined = cuda_gemm_tiled_declines(g);
}

typedef void ask_function(const struct kernel_env *env, const struct cuda_gemm *g,
                          struct answer *a);

/* All products of a call, chunk by chunk, are asked: the offset of a chunk decides its alignment,
 * and with it the algorithm. Stops at the first that is declined. */
static struct answer ask_all(const struct op_call *c, const struct kernel_env *env,
                             ask_function *ask, bool gradient)
{
    struct head_sizes s = head_sizes_of(c, gradient);
    struct head_work w = head_work_of(c, &s, NULL);
    struct answer a = {0};
    for (int64_t first = 0; first < s.n_rows; first += s.chunk_rows) {
        int64_t n = MIN(s.n_rows - first, s.chunk_rows);
        struct cuda_gemm products[1 + HEAD_PRODUCTS_MOST] = {
            head_logits_product(c, &s, &w, first, n)};
        int n_products = 1;
        if (gradient)
            n_products += head_gradient_products(c, &s, &w, first, n, products + 1);
        for (int i = 0; i < n_products && !a.declined; i++)
            ask(env, &products[i], &a);
    }
    return a;
}

static const char *declines(const struct op_call *c, const struct kernel_env *env,
                            ask_function *ask, bool gradient)
{
    const char *why = cuda_declines_f64(c, env);
    return why ? why : ask_all(c, env, ask, gradient).declined;
}

static int64_t workspace(const struct op_call *c, const struct kernel_env *env, ask_function *ask,
                         bool gradient)
{
    struct head_sizes s = head_sizes_of(c, gradient);
    return logits_bytes(&s) + losses_bytes(&s) + weights_bytes(c, &s) + sums_bytes(&s) +
           ask_all(c, env, ask, gradient).n_bytes;
}

#define DECLARE(name, ask, gradient)                                                          \
    const char *cuda_##name##_declines(const struct op_call *c, const struct kernel_env *env) \
    {                                                                                         \
        return declines(c, env, ask, gradient);                                               \
    }                                                                                         \
    int64_t cuda_##name##_workspace(const struct op_call *c, const struct kernel_env *env)    \
    {                                                                                         \
        return workspace(c, env, ask, gradient);                                              \
    }
DECLARE(head_loss, ask_library, false)
DECLARE(head_loss_plain, ask_plain, false)
DECLARE(head_loss_grad, ask_library, true)
DECLARE(head_loss_grad_plain, ask_plain, true)
