/* router.cu: the logits of a router, and its gradient. The sum over tokens of the weight gradient
 * is long and its result small: it is cut into parts, which are added in their order. */
#include "device/cuda/support/simt.cuh"

struct product {
    struct any_matrix a, b; /* rows of both, summed over their columns */
    struct any c, bias;     /* bias.data NULL: none */
    int64_t m, n, k, part;  /* c[m, n]; terms of a part */
};

/* Tiles along n first, then m; parts in y, each with a c of its own. */
static __global__ void __launch_bounds__(SIMT_THREADS) product_kernel(const struct product p)
{
    __shared__ struct simt_tiles tiles;
    const int64_t tiles_n = (p.n + SIMT_TILE - 1) / SIMT_TILE;
    const int64_t row = blockIdx.x / tiles_n * SIMT_TILE, column = blockIdx.x % tiles_n * SIMT_TILE;
    const int64_t first = blockIdx.y * p.part;
    const int64_t last = first + p.part < p.k ? first + p.part : p.k;
    const int tx = threadIdx.x % SIMT_SIDE, ty = threadIdx.x / SIMT_SIDE;
    float sum[SIMT_EACH][SIMT_EACH] = {};
    simt_product(sum, tiles, p.a, row, p.m, p.b, column, p.n, first, last);
#pragma unroll
    for (int i = 0; i < SIMT_EACH; i++) {
#pragma unroll
        for (int j = 0; j < SIMT_EACH; j++) {
            const int64_t r = row + ty + SIMT_SIDE * i, c = column + tx + SIMT_SIDE * j;
            if (r < p.m && c < p.n)
                any_set_f32(p.c, (blockIdx.y * p.m + r) * p.n + c,
                            sum[i][j] + (p.bias.data ? any_get_f32(p.bias, c) : 0.0f));
        }
    }
}

static __global__ void add_parts(struct any to, const float *parts, int64_t n_parts, int64_t n)
{
    for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
        float sum = 0.0f;
        for (int64_t part = 0; part < n_parts; part++)
            sum += parts[part * n + i];
        any_set_f32(to, i, sum);
    }
}

/* to[e] = sum over tokens of dz[token, e]: a block for each expert. */
static __global__ void __launch_bounds__(SIMT_THREADS)
    sum_tokens(struct any to, const float *dz, int64_t n_tokens, int64_t n_experts)
{
    __shared__ float scratch[WARP];
    float sum = 0.0f;
    for (int64_t n = threadIdx.x; n < n_tokens; n += SIMT_THREADS)
        sum += dz[n * n_experts + blockIdx.x];
    sum = block_sum<SIMT_THREADS>(sum, scratch);
    if (threadIdx.x == 0)
        any_set_f32(to, blockIdx.x, sum);
}

static struct any_matrix rows_of(const struct tensor *t)
{
    return {any_of(t), 0, t->shape.dim[1], 1};
}

static struct any_matrix columns_of(const struct tensor *t)
{
    return {any_of(t), 0, 1, t->shape.dim[1]};
}

static enum status launch(const struct kernel_ctx *x, const struct product &p, int64_t n_parts)
{
    int64_t n_tiles = ceil_div(p.m, SIMT_TILE) * ceil_div(p.n, SIMT_TILE);
    if (n_tiles > 0)
        product_kernel<<<dim3((unsigned)n_tiles, (unsigned)n_parts), SIMT_THREADS, 0,
                         cuda_stream(x)>>>(p);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static enum status router_tiles(const struct kernel_ctx *x, const struct op_call *c)
{
    struct product p = {};
    p.a = rows_of(&c->in[0]);
    p.b = rows_of(&c->in[1]);
    p.c = any_of(&c->out[0]);
    if (call_has(c, 2))
        p.bias = any_of(&c->in[2]);
    p.m = c->in[0].shape.dim[0];
    p.n = c->in[1].shape.dim[0];
    p.k = p.part = c->in[1].shape.dim[1];
    return launch(x, p, 1);
}

static enum status weight_gradient(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n_parts = router_grad_parts(c, &x->env), n = shape_elems(&c->out[1].shape);
    struct product p = {};
    p.a = columns_of(&c->in[1]);
    p.b = columns_of(&c->in[0]);
    p.c = {x->workspace, DTYPE_F32};
    p.m = c->out[1].shape.dim[0];
    p.n = c->out[1].shape.dim[1];
    p.k = c->in[0].shape.dim[0];
    p.part = ceil_div(p.k, n_parts);
    TRY(launch(x, p, n_parts));
    add_parts<<<grid_for(n, SIMT_THREADS), SIMT_THREADS, 0, cuda_stream(x)>>>(
        any_of(&c->out[1]), (const float *)x->workspace, n_parts, n);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static enum status router_grad_tiles(const struct kernel_ctx *x, const struct op_call *c)
{
    struct product p = {};
    p.a = rows_of(&c->in[1]);
    p.b = columns_of(&c->in[2]);
    p.c = any_of(&c->out[0]);
    p.m = c->in[0].shape.dim[0];
    p.n = c->in[0].shape.dim[1];
    p.k = p.part = c->in[2].shape.dim[0];
    TRY(launch(x, p, 1));
    TRY(weight_gradient(x, c));
    sum_tokens<<<(unsigned)p.k, SIMT_THREADS, 0, cuda_stream(x)>>>(
        any_of(&c->out[2]), (const float *)c->in[1].data, p.m, p.k);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(router, tiles, router_tiles)

CUDA_RUN(router_grad, tiles, router_grad_tiles)
