#include "device/cuda/declared/experts.h"

#include <stddef.h>

#include "base/compiler.h"
#include "device/cuda/declared/declared.h"
#include "device/cuda/declared/sums.h"

/* ---- routing --------------------------------------------------------------------------------- */

const char *cuda_route_declines(const struct op_call *c, const struct kernel_env *env)
{
    if (c->in[0].shape.dim[1] > ROUTE_MOST_EXPERTS)
        return "takes at most 8192 experts";
    return cuda_declines_f64(c, env);
}

/* The counts of each chunk, by expert. */
int64_t cuda_route_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    int64_t n_chunks = ceil_div(shape_elems(&c->out[1].shape), ROUTE_CHUNK);
    return n_chunks * c->in[0].shape.dim[1] * (int64_t)sizeof(int32_t);
}

int64_t router_grad_parts(const struct op_call *c, const struct kernel_env *env)
{
    enum { LEAST_TOKENS = 256 };
    const struct shape *dw = &c->out[1].shape;
    int64_t n_tiles = ceil_div(dw->dim[0], SIMT_TILE) * ceil_div(dw->dim[1], SIMT_TILE);
    int64_t full = 4 * (int64_t)env->gpu->n_multiprocessors;
    int64_t most = ceil_div(c->in[0].shape.dim[0], LEAST_TOKENS);
    return MAX(MIN(ceil_div(full, MAX(n_tiles, (int64_t)1)), most), (int64_t)1);
}

int64_t cuda_router_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return router_grad_parts(c, env) * shape_elems(&c->out[1].shape) * (int64_t)sizeof(float);
}

int64_t cuda_square_lse_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return c->in[0].shape.dim[0] * (int64_t)sizeof(float);
}

/* ---- grouped products ------------------------------------------------------------------------ */

/* Tensor cores load 16 bytes at a time: every row of the operands begins at a multiple of that. */
static const char *tensor_cores_decline(const struct op_call *c, const struct kernel_env *env,
                                        int64_t n_groups)
{
    const char *why = cuda_declines_unless_half(c, env);
    if (why)
        return why;
    if (!env->gpu || env->gpu->major < 8)
        return "needs compute capability 8.0";
    if (env->gpu->shared_per_block_optin < GROUPED_SHARED_BYTES)
        return "needs 150 KiB of shared memory";
    if (n_groups > GROUPED_MOST)
        return "takes at most 1024 groups";
    for (int i = 0; i < 2; i++) {
        if (shape_last(&c->in[i].shape) % 8 != 0)
            return "needs rows of a multiple of 8 elements";
    }
    return NULL;
}

const char *cuda_grouped_declines(const struct op_call *c, const struct kernel_env *env)
{
    bool wide = c->out[0].dtype == c->in[0].dtype || c->out[0].dtype == DTYPE_F32;
    if (!wide)
        return "gives its operands' dtype or f32";
    return tensor_cores_decline(c, env, c->in[2].shape.dim[0] - 1);
}

/* The copy engine counts rows in 32 bits, and results are stored 16 bytes at a time. */
const char *cuda_grouped_warpgroups_declines(const struct op_call *c, const struct kernel_env *env)
{
    const char *why = cuda_grouped_declines(c, env);
    if (why)
        return why;
    if (env->gpu->major != 9 || env->gpu->minor != 0)
        return "needs compute capability 9.0";
    if (env->gpu->shared_per_block_optin < WARPGROUPS_SHARED_BYTES)
        return "needs 202 KiB of shared memory";
    if (shape_last(&c->out[0].shape) % 8 != 0)
        return "needs rows of a multiple of 8 elements";
    for (int i = 0; i < 2; i++) {
        for (int d = 0; d < c->in[i].shape.rank; d++) {
            if (c->in[i].shape.dim[d] > INT32_MAX)
                return "takes at most 2147483647 rows and columns";
        }
    }
    return NULL;
}

/* A block for every tile there could be: each group may leave one partly filled. */
const char *cuda_grouped_plain_declines(const struct op_call *c, const struct kernel_env *env)
{
    const struct shape *y = &c->out[0].shape;
    int64_t n_groups = c->in[2].shape.dim[0] - 1, columns = ceil_div(shape_last(y), SIMT_TILE);
    int64_t rows = y->rank == 3 ? n_groups * ceil_div(y->dim[1], SIMT_TILE)
                                : ceil_div(y->dim[0], SIMT_TILE) + n_groups;
    if (y->rank == 2 && n_groups > GROUPED_MOST)
        return "takes at most 1024 groups";
    if (rows > INT32_MAX / MAX(columns, (int64_t)1))
        return "more tiles than a launch has blocks";
    return cuda_declines_f64(c, env);
}

const char *cuda_group_sum_rows_declines(const struct op_call *c, const struct kernel_env *env)
{
    enum { MOST_GROUPS = 65535 }; /* blocks of a launch, along y */
    return c->out[0].shape.dim[0] > MOST_GROUPS ? "takes at most 65535 groups"
                                                : cuda_declines_f64(c, env);
}
