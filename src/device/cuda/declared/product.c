/* product.c: the products of the linear ops, and what they are given.
 *
 * The allowance follows what cuBLASLt 13 asks for on an H200 (2,900 products of transformer shapes,
 * rows of 256 to 32768) when it is offered 32 MiB:
 *
 *   - of 16-bit factors, 256 bytes, unless it splits the sum: a long one (k at least four times the
 *     result's sides) of a result too small to fill the GPU twice with tiles of 128 x 128. Then one
 *     f32 copy of the result per part, with parts of more than 1024 terms;
 *   - of f32 factors (as tf32) an f32 tile of 256 x 128 for each multiprocessor, less where the
 *     result is smaller.
 *
 * So its first choice is among the algorithms that do with the allowance, but for results of a few
 * hundred rows with sums over 150 thousand terms: those are split into fewer parts.
 */
#include "device/cuda/declared/product.h"

#include <stddef.h>

#include "base/compiler.h"
#include "device/cuda/declared/declared.h"
#include "device/cuda/declared/sums.h"

/* ---- workspace ------------------------------------------------------------------------------- */

enum { SPLIT_TILE = 128, SPLIT_RATIO = 4, SPLIT_TERMS = 1024, HELD_TILE_BYTES = 128 << 10 };

/* Parts that a sum of 16-bit factors is split into, at most; 1: it is not. */
static int64_t split_parts(const struct gpu_model *gpu, const struct cuda_gemm *g)
{
    int64_t n_tiles = ceil_div(g->m, SPLIT_TILE) * ceil_div(g->n, SPLIT_TILE);
    int64_t full = 2 * (int64_t)gpu->n_multiprocessors;
    if (n_tiles > full || g->k < SPLIT_RATIO * MAX(g->m, g->n))
        return 1;
    return MIN(g->k / SPLIT_TERMS, ceil_div(full, MAX(n_tiles, (int64_t)1)));
}

int64_t product_allowance(const struct gpu_model *gpu, const struct cuda_gemm *g)
{
    int64_t elems = g->m * g->n, n_bytes = 0;
    if (g->dtype == DTYPE_F32) {
        int64_t held = gpu->n_multiprocessors * (int64_t)HELD_TILE_BYTES;
        n_bytes = MIN(held, 2 * (int64_t)gpu->n_multiprocessors * elems) + 4 * PRODUCT_ALIGN;
    } else {
        int64_t n_parts = split_parts(gpu, g);
        n_bytes = (n_parts > 1 ? n_parts * elems * (int64_t)sizeof(float) : 0) + PRODUCT_ALIGN;
    }
    return MIN(ceil_div(n_bytes, PRODUCT_ALIGN) * PRODUCT_ALIGN, (int64_t)PRODUCT_WORKSPACE_MOST);
}

/* ---- answers --------------------------------------------------------------------------------- */

const char *product_declines(const struct kernel_env *env, const struct cuda_gemm *g)
{
    if (!env->gpu)
        return "there is no cuBLASLt without a GPU";
    if (g->m == 0 || g->n == 0)
        return NULL;
    return env->gpu->answers->product_declines(env, g);
}

int64_t product_workspace(const struct kernel_env *env, const struct cuda_gemm *g)
{
    return env->gpu->answers->product_workspace(env, g);
}

const char *cuda_gemm_tiled_declines(const struct cuda_gemm *g)
{
    bool fits = ceil_div(g->m, PRODUCT_TILE) * ceil_div(g->n, PRODUCT_TILE) <= INT32_MAX;
    return fits ? NULL : "more tiles than a launch has blocks";
}

/* ---- the linear ops -------------------------------------------------------------------------- */

struct cuda_gemm linear_product(const struct op_call *c)
{
    int64_t n_out = c->in[1].shape.dim[0], n_in = c->in[1].shape.dim[1];
    struct cuda_gemm g = {
        .m = shape_elems(&c->out[0].shape) / n_out,
        .n = n_out,
        .k = n_in,
        .a = {c->in[0].data, 0, n_in, false},
        .b = {c->in[1].data, 0, n_in, true},
        .dtype = c->in[0].dtype,
        .c = c->out[0].data,
        .c_row = n_out,
        .c_dtype = c->out[0].dtype,
    };
    /* At plan time there are no addresses, yet the choice must know what comes. */
    if (call_has(c, 2))
        g.bias = cuda_gemm_planned(c->in[2].data);
    if (call_has(c, 3))
        g.residual = cuda_gemm_planned(c->in[3].data);
    return g;
}

struct cuda_gemm linear_grad_input_product(const struct op_call *c)
{
    int64_t n_out = c->in[1].shape.dim[0], n_in = c->in[1].shape.dim[1];
    return (struct cuda_gemm){
        .m = shape_elems(&c->out[0].shape) / n_in,
        .n = n_in,
        .k = n_out,
        .a = {c->in[0].data, 0, n_out, false},
        .b = {c->in[1].data, 0, n_in, false},
        .dtype = c->in[0].dtype,
        .c = c->out[0].data,
        .c_row = n_in,
        .c_dtype = c->out[0].dtype,
    };
}

struct cuda_gemm linear_grad_weight_product(const struct op_call *c)
{
    int64_t n_rows = c->out[0].shape.dim[0], n_in = c->out[0].shape.dim[1];
    int64_t first = c->first_element / MAX(n_in, (int64_t)1);
    struct cuda_gemm g = {
        .m = n_rows,
        .n = n_in,
        .k = shape_rows(&c->in[0].shape),
        .a = {c->in[0].data, first, shape_last(&c->in[0].shape), true},
        .b = {c->in[1].data, 0, n_in, false},
        .dtype = c->in[0].dtype,
        .c = c->out[0].data,
        .c_row = n_in,
        .c_dtype = c->out[0].dtype,
    };
    if (call_has(c, 2))
        g.residual = cuda_gemm_planned(c->in[2].data);
    return g;
}

/* A library chooses how it multiplies by the shape: rows by themselves are not the bits of the same
 * rows of the whole. */
static const char *part_declines(const struct op_call *c, const struct kernel_env *env)
{
    if (op_get(c->op)->by_rows && c->out[0].shape.dim[0] != shape_last(&c->in[0].shape))
        return "it gives some of the rows other bits than all of them";
    return cuda_declines_f64(c, env);
}

static const char *library_declines(const struct op_call *c, const struct kernel_env *env,
                                    struct cuda_gemm g)
{
    const char *why = part_declines(c, env);
    return why ? why : product_declines(env, &g);
}

static const char *plain_declines(const struct op_call *c, const struct kernel_env *env,
                                  struct cuda_gemm g)
{
    const char *why = part_declines(c, env);
    return why ? why : cuda_gemm_tiled_declines(&g);
}

const char *cuda_linear_grad_weight_outer_declines(const struct op_call *c,
                                                   const struct kernel_env *env)
{
    struct cuda_gemm g = linear_grad_weight_product(c);
    bool fits = g.k <= OUTER_TERMS &&
                g.n * ceil_div(shape_last(&c->in[0].shape), OUTER_BLOCK_ROWS) <= INT32_MAX;
    return fits ? cuda_declines_f64(c, env) : "too many terms for sums in registers";
}

/* What the three lists of the linear ops declare, each of its product. */
#define DECLARE(op)                                                                               \
    const char *cuda_##op##_declines(const struct op_call *c, const struct kernel_env *env)       \
    {                                                                                             \
        return library_declines(c, env, op##_product(c));                                         \
    }                                                                                             \
    int64_t cuda_##op##_workspace(const struct op_call *c, const struct kernel_env *env)          \
    {                                                                                             \
        struct cuda_gemm g = op##_product(c);                                                     \
        return product_workspace(env, &g);                                                        \
    }                                                                                             \
    const char *cuda_##op##_plain_declines(const struct op_call *c, const struct kernel_env *env) \
    {                                                                                             \
        return plain_declines(c, env, op##_product(c));                                           \
    }
DECLARE(linear)
DECLARE(linear_grad_input)
DECLARE(linear_grad_weight)
