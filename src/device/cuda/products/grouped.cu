/* grouped.cu: y = x w[e]^T + bias[e] for the rows of each group, its gradients, and sums of the
 * rows of each group. */
#include "device/cuda/products/grouped.cuh"
#include "device/cuda/support/simt.cuh"

/* ---- products -------------------------------------------------------------------------------- */

static struct grouped grouped_of(const struct op_call *c)
{
    struct grouped g = {};
    g.a = any_of(&c->in[0]);
    g.b = any_of(&c->in[1]);
    g.c = any_of(&c->out[0]);
    g.offsets = (const int32_t *)c->in[2].data;
    g.n_rows = c->in[0].shape.dim[0];
    g.shape.n_groups = (int)(c->in[2].shape.dim[0] - 1);
    return g;
}

static struct grouped forward_product(const struct op_call *c)
{
    struct grouped g = grouped_of(c);
    g.shape.by_rows = true;
    g.shape.n = c->in[1].shape.dim[1];
    g.shape.k = c->in[1].shape.dim[2];
    if (call_has(c, 3))
        g.bias = any_of(&c->in[3]);
    return g;
}

static struct grouped grad_input_product(const struct op_call *c)
{
    struct grouped g = grouped_of(c);
    g.shape.by_rows = true;
    g.b_by_terms = true;
    g.shape.n = c->in[1].shape.dim[2];
    g.shape.k = c->in[1].shape.dim[1];
    return g;
}

static struct grouped grad_weight_product(const struct op_call *c)
{
    struct grouped g = grouped_of(c);
    g.a_by_terms = g.b_by_terms = true;
    g.shape.m = c->out[0].shape.dim[1];
    g.shape.n = c->out[0].shape.dim[2];
    if (call_has(c, 3))
        g.before = any_of(&c->in[3]);
    return g;
}

/* ---- without tensor cores -------------------------------------------------------------------- */

static __global__ void __launch_bounds__(SIMT_THREADS) plain_kernel(const struct grouped g)
{
    __shared__ struct simt_tiles tiles;
    __shared__ int32_t starts[GROUPED_MOST + 1];
    int32_t t = (int32_t)blockIdx.x;
    int e;
    if (g.shape.by_rows) {
        count_tiles(starts, g, SIMT_TILE, SIMT_TILE);
        if (t >= starts[g.shape.n_groups])
            return;
        e = group_of_tile(starts, g.shape.n_groups, t);
        t -= starts[e];
    } else { /* all groups have as many tiles */
        const int32_t each = group_tiles(g.shape, g.offsets, 0, SIMT_TILE, SIMT_TILE);
        e = t / each;
        t %= each;
    }
    const struct group own = group_of(g.shape, g.offsets, e);
    const struct tile_place at_tile = tile_place_of(g.shape.n, t, SIMT_TILE, SIMT_TILE);
    const int64_t row = at_tile.row, column = at_tile.column;
    const struct any_matrix a = {g.a, own.a, g.a_by_terms ? 1 : own.k, g.a_by_terms ? own.m : 1};
    const struct any_matrix b = {g.b, own.b, g.b_by_terms ? 1 : own.k,
                                 g.b_by_terms ? g.shape.n : 1};
    float sum[SIMT_EACH][SIMT_EACH] = {};
    simt_product(sum, tiles, a, row, own.m, b, column, g.shape.n, 0, own.k);
    for (int i = 0; i < SIMT_EACH; i++) {
        for (int j = 0; j < SIMT_EACH; j++) {
            const int64_t r = row + threadIdx.x / SIMT_SIDE + SIMT_SIDE * i;
            const int64_t c = column + threadIdx.x % SIMT_SIDE + SIMT_SIDE * j;
            const int64_t at = own.c + r * g.shape.n + c;
            if (r >= own.m || c >= g.shape.n)
                continue;
            float y = sum[i][j] + (g.bias.data ? any_get_f32(g.bias, e * g.shape.n + c) : 0.0f);
            any_set_f32(g.c, at, y + (g.before.data ? any_get_f32(g.before, at) : 0.0f));
        }
    }
}

static enum status run_plain(const struct kernel_ctx *x, const struct grouped &g, int64_t n_rows)
{
    int64_t rows = g.shape.by_rows ? ceil_div(n_rows, SIMT_TILE) + g.shape.n_groups
                                   : g.shape.n_groups * ceil_div(g.shape.m, SIMT_TILE);
    int64_t n_tiles = rows * ceil_div(g.shape.n, SIMT_TILE);
    if (n_tiles > 0)
        plain_kernel<<<(unsigned)n_tiles, SIMT_THREADS, 0, cuda_stream(x)>>>(g);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static enum status forward_wgmma(const struct kernel_ctx *x, const struct op_call *c)
{
    struct grouped g = forward_product(c);
    return cuda_grouped_wgmma(x, &g);
}

static enum status forward_mma(const struct kernel_ctx *x, const struct op_call *c)
{
    struct grouped g = forward_product(c);
    return cuda_grouped_mma(x, &g);
}

static enum status forward_plain(const struct kernel_ctx *x, const struct op_call *c)
{
    return run_plain(x, forward_product(c), c->in[0].shape.dim[0]);
}

static enum status grad_input_wgmma(const struct kernel_ctx *x, const struct op_call *c)
{
    struct grouped g = grad_input_product(c);
    return cuda_grouped_wgmma(x, &g);
}

static enum status grad_input_mma(const struct kernel_ctx *x, const struct op_call *c)
{
    struct grouped g = grad_input_product(c);
    return cuda_grouped_mma(x, &g);
}

static enum status grad_input_plain(const struct kernel_ctx *x, const struct op_call *c)
{
    return run_plain(x, grad_input_product(c), c->in[0].shape.dim[0]);
}

static enum status grad_weight_wgmma(const struct kernel_ctx *x, const struct op_call *c)
{
    struct grouped g = grad_weight_product(c);
    return cuda_grouped_wgmma(x, &g);
}

static enum status grad_weight_mma(const struct kernel_ctx *x, const struct op_call *c)
{
    struct grouped g = grad_weight_product(c);
    return cuda_grouped_mma(x, &g);
}

static enum status grad_weight_plain(const struct kernel_ctx *x, const struct op_call *c)
{
    return run_plain(x, grad_weight_product(c), c->in[0].shape.dim[0]);
}

/* ---- sums ------------------------------------------------------------------------------------ */

enum { SUM_LANES = 32, SUM_LINES = 16 };

struct group_sums {
    struct any x, y, before; /* before.data NULL: nothing is added */
    const int32_t *offsets;
    int64_t n_columns;
};

/* A block: 32 columns of one group, whose rows 16 lines of threads share; then lines in order. */
static __global__ void __launch_bounds__(SUM_LANES *SUM_LINES)
    sum_rows_kernel(const struct group_sums s)
{
    __shared__ float part[SUM_LINES][SUM_LANES];
    const int64_t column = (int64_t)blockIdx.x * SUM_LANES + threadIdx.x;
    const int64_t at = blockIdx.y * s.n_columns + column;
    const bool inside = column < s.n_columns;
    float sum = 0.0f;
    for (int64_t row = s.offsets[blockIdx.y] + threadIdx.y;
         inside && row < s.offsets[blockIdx.y + 1]; row += SUM_LINES)
        sum += any_get_f32(s.x, row * s.n_columns + column);
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (!inside || threadIdx.y > 0)
        return;
    for (int line = 1; line < SUM_LINES; line++)
        sum += part[line][threadIdx.x];
    any_set_f32(s.y, at, sum + (s.before.data ? any_get_f32(s.before, at) : 0.0f));
}

static enum status sum_rows_columns(const struct kernel_ctx *x, const struct op_call *c)
{
    struct group_sums s = {};
    s.x = any_of(&c->in[0]);
    s.y = any_of(&c->out[0]);
    if (call_has(c, 2))
        s.before = any_of(&c->in[2]);
    s.offsets = (const int32_t *)c->in[1].data;
    s.n_columns = c->in[0].shape.dim[1];
    dim3 grid(grid_for(s.n_columns, SUM_LANES), (unsigned)c->out[0].shape.dim[0]);
    sum_rows_kernel<<<grid, dim3(SUM_LANES, SUM_LINES), 0, cuda_stream(x)>>>(s);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- lists ----------------------------------------------------------------------------------- */

CUDA_RUN(grouped_linear, warpgroups, forward_wgmma)
CUDA_RUN(grouped_linear, tensor_cores, forward_mma)
CUDA_RUN(grouped_linear, plain, forward_plain)

CUDA_RUN(grouped_linear_grad_input, warpgroups, grad_input_wgmma)
CUDA_RUN(grouped_linear_grad_input, tensor_cores, grad_input_mma)
CUDA_RUN(grouped_linear_grad_input, plain, grad_input_plain)

CUDA_RUN(grouped_linear_grad_weight, warpgroups, grad_weight_wgmma)
CUDA_RUN(grouped_linear_grad_weight, tensor_cores, grad_weight_mma)
CUDA_RUN(grouped_linear_grad_weight, plain, grad_weight_plain)

CUDA_RUN(group_sum_rows, columns, sum_rows_columns)
