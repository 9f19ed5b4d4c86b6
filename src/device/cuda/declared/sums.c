#include "device/cuda/declared/sums.h"

#include <stddef.h>

#include "base/compiler.h"
#include "device/cuda/declared/declared.h"
#include "ops/row_pairs.h"
#include "ops/update_support.h"

int64_t columns_bands(const struct kernel_env *env, int64_t n_rows, int64_t n_blocks)
{
    int64_t want = COLUMNS_BLOCKS * (int64_t)env->gpu->n_multiprocessors / n_blocks;
    int64_t most = ceil_div(n_rows, 4 * COLUMNS_LINES);
    int64_t n = MIN(MIN(want, most), (int64_t)COLUMNS_MAX_BANDS);
    return MAX(n, (int64_t)1);
}

/* ---- sum, mean, sum_rows --------------------------------------------------------------------- */

int64_t sum_chunk_count(const struct box *box)
{
    return ceil_div(box->length, SUM_CHUNK);
}

int64_t sum_columns_each(const struct op_call *c, const struct box *box)
{
    int64_t n = 16 / dtype_size(c->in[0].dtype);
    return box->n_inner % n == 0 ? n : 1;
}

int64_t sum_band_count(const struct op_call *c, const struct kernel_env *env, const struct box *box)
{
    int64_t n_tiles = ceil_div(box->n_inner, COLUMNS_LANES * sum_columns_each(c, box));
    return columns_bands(env, box->length, box->n_outer * n_tiles);
}

static int64_t column_workspace(const struct op_call *c, const struct kernel_env *env,
                                const struct box *box)
{
    return box->n_outer * sum_band_count(c, env, box) * box->n_inner * (int64_t)sizeof(float);
}

const char *cuda_sum_boxes_declines(const struct op_call *c, const struct kernel_env *env)
{
    struct box box;
    if (!sum_box(c, &box))
        return "takes reduced axes next to each other only";
    return cuda_declines_f64(c, env);
}

int64_t cuda_sum_boxes_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct box box;
    sum_box(c, &box);
    if (box.n_inner > 1)
        return column_workspace(c, env, &box);
    return box.length <= SUM_SHORT_ROW
               ? 0
               : box.n_outer * sum_chunk_count(&box) * (int64_t)sizeof(double);
}

int64_t cuda_sum_rows_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct box box = box_of(&c->in[0].shape, 0, 0);
    return column_workspace(c, env, &box);
}

/* ---- norms of gradients ---------------------------------------------------------------------- */

int64_t squares_chunk_elems(const struct op_call *c)
{
    const int64_t one_block = 64 * SQUARES_THREADS, chunk = 32 * SQUARES_THREADS;
    return c->n_in == 1 && shape_elems(&c->in[0].shape) <= one_block ? one_block : chunk;
}

int64_t squares_chunk_count(const struct op_call *c)
{
    int64_t n = 0;
    for (int i = 0; i < c->n_in; i++)
        n += ceil_div(shape_elems(&c->in[i].shape), squares_chunk_elems(c));
    return n;
}

int64_t cuda_sum_squares_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return squares_chunk_count(c) * (int64_t)sizeof(double);
}

int64_t row_product_chunks(const struct op_call *c)
{
    const int64_t n_blocks = 1024, least = 8 * SQUARES_THREADS;
    int64_t n_products = 2 * row_pair_count(shape_rows(&c->in[0].shape));
    int64_t width = MAX(shape_last(&c->in[0].shape), shape_last(&c->in[1].shape));
    int64_t n = MIN(ceil_div(width, least), n_blocks / MAX(n_products, (int64_t)1));
    return MAX(n, (int64_t)1);
}

/* A product of rows for each pair, factor and chunk. */
int64_t cuda_product_squares_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return 2 * row_pair_count(shape_rows(&c->in[0].shape)) * row_product_chunks(c) *
           (int64_t)sizeof(double);
}

int64_t cuda_clip_scale_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)c;
    (void)env;
    return (int64_t)sizeof(double);
}

/* ---- adafactor ------------------------------------------------------------------------------- */

struct adafactor_sums adafactor_sums_of(const struct factored_layout *l)
{
    return (struct adafactor_sums){.n_lines = l->n_experts * factored_expert_lines(l),
                                   .n_means = factored_all_pieces(l) * l->n_inner,
                                   .n_tensors = factored_all_tensors(l)};
}

int64_t cuda_adafactor_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    struct factored_layout l = adafactor_layout(c);
    struct adafactor_sums n = adafactor_sums_of(&l);
    return (2 * n.n_lines + n.n_means + n.n_tensors * ADAFACTOR_NUMBERS) * (int64_t)sizeof(double);
}
