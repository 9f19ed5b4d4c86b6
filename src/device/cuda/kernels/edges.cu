/* edges.cu: graphs: rows of nodes for edges, sums, softmax and products over them.
 *
 * Ops that add up over a node's edges first list them in the workspace: how many each node has,
 * where its list begins, the edges themselves. Edges come into a list in any order and are then put
 * in rising order, so that what is added up is the same in every run. Nodes that do not exist are
 * nobody's: their edges are left out, and what is gathered for them is NaN.
 */
#include "device/cuda/support/any.cuh"
#include "ops/edge_support.h"

static constexpr int THREADS = 256;

/* ---- lists ----------------------------------------------------------------------------------- */

struct lists {
    const int32_t *to;
    int64_t n_edges, n_rows;
    int32_t *first; /* [n_rows + 1] */
    int32_t *count; /* [n_rows]: while lists are filled */
    int32_t *edge;  /* [n_edges] */
};

static __global__ void __launch_bounds__(THREADS) count_edges(const struct lists l)
{
    for (int64_t e = grid_thread(); e < l.n_edges; e += grid_threads()) {
        if (l.to[e] >= 0 && l.to[e] < l.n_rows)
            atomicAdd(&l.count[l.to[e]], 1);
    }
}

/* One block: where each list begins; counts are taken back to 0. */
static __global__ void __launch_bounds__(THREADS) begin_lists(const struct lists l)
{
    __shared__ int32_t sums[THREADS];
    const int64_t each = (l.n_rows + THREADS - 1) / THREADS;
    const int64_t from = threadIdx.x * each, until = min(from + each, l.n_rows);
    int32_t sum = 0;
    for (int64_t i = from; i < until; i++)
        sum += l.count[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    sum = 0;
    for (int k = 0; k < (int)threadIdx.x; k++)
        sum += sums[k];
    for (int64_t i = from; i < until; i++) {
        l.first[i] = sum;
        sum += l.count[i];
        l.count[i] = 0;
    }
    if (threadIdx.x == THREADS - 1)
        l.first[l.n_rows] = sum;
}

static __global__ void __launch_bounds__(THREADS) fill_lists(const struct lists l)
{
    for (int64_t e = grid_thread(); e < l.n_edges; e += grid_threads()) {
        const int32_t row = l.to[e];
        if (row >= 0 && row < l.n_rows)
            l.edge[l.first[row] + atomicAdd(&l.count[row], 1)] = (int32_t)e;
    }
}

static __global__ void __launch_bounds__(THREADS) sort_lists(const struct lists l)
{
    for (int64_t row = grid_thread(); row < l.n_rows; row += grid_threads()) {
        for (int32_t i = l.first[row] + 1; i < l.first[row + 1]; i++) {
            const int32_t e = l.edge[i];
            int32_t at = i;
            for (; at > l.first[row] && l.edge[at - 1] > e; at--)
                l.edge[at] = l.edge[at - 1];
            l.edge[at] = e;
        }
    }
}

static enum status list_edges(const struct kernel_ctx *x, const struct op_call *c, struct lists *l)
{
    l->to = (const int32_t *)edge_targets(c)->data;
    l->n_edges = shape_elems(&edge_targets(c)->shape);
    l->n_rows = call_int(c, EDGE_ROWS);
    l->first = (int32_t *)x->workspace;
    l->count = l->first + l->n_rows + 1;
    l->edge = l->count + l->n_rows;
    CUDA_TRY(cudaMemsetAsync(l->count, 0, (size_t)l->n_rows * sizeof(int32_t), cuda_stream(x)));
    unsigned n = grid_for(l->n_edges, THREADS);
    count_edges<<<n, THREADS, 0, cuda_stream(x)>>>(*l);
    begin_lists<<<1, THREADS, 0, cuda_stream(x)>>>(*l);
    fill_lists<<<n, THREADS, 0, cuda_stream(x)>>>(*l);
    sort_lists<<<grid_for(l->n_rows, THREADS), THREADS, 0, cuda_stream(x)>>>(*l);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- gather, scatter_add --------------------------------------------------------------------- */

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    gather_kernel(T *y, const T *x, const int32_t *index, int64_t n, int64_t n_edges,
                  int64_t n_rows, int64_t channels)
{
    for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
        const int64_t row = i / channels, sample = row / n_edges;
        const int64_t node = index[row - sample * n_edges];
        const bool is_there = node >= 0 && node < n_rows;
        y[i] = is_there ? x[(sample * n_rows + node) * channels + i % channels]
                        : from_f32<T>(__int_as_float(0x7fffffff));
    }
}

static enum status gather_elements(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct shape *s = &c->in[0].shape;
    int64_t n = shape_elems(&c->out[0].shape);
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        gather_kernel<T><<<grid_for(n, THREADS), THREADS, 0, cuda_stream(x)>>>(
            (T *)c->out[0].data, (const T *)c->in[0].data, (const int32_t *)c->in[1].data, n,
            c->out[0].shape.dim[1], s->dim[1], s->dim[2]);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* A thread for each channel of each node: sum over its edges of weight times a row of x. For
 * scatter_add the rows are the edges' own, and there are no weights. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    sum_kernel(T *y, const T *x, const T *w, const int32_t *from, const struct lists l, int64_t n,
               int64_t n_from, int64_t channels, int64_t heads)
{
    for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
        const int64_t row = i / channels, sample = row / l.n_rows, node = row - sample * l.n_rows;
        const int64_t channel = i - row * channels, head = channel / (channels / heads);
        float sum = 0.0f;
        for (int32_t k = l.first[node]; k < l.first[node + 1]; k++) {
            const int64_t e = l.edge[k], source = from ? from[e] : e;
            if (source < 0 || source >= n_from)
                continue;
            const float v = to_f32(x[(sample * n_from + source) * channels + channel]);
            sum += w ? to_f32(w[(sample * l.n_edges + e) * heads + head]) * v : v;
        }
        y[i] = from_f32<T>(sum);
    }
}

static enum status scatter_nodes(const struct kernel_ctx *x, const struct op_call *c)
{
    struct lists l;
    int64_t n = shape_elems(&c->out[0].shape);
    TRY(list_edges(x, c, &l));
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        sum_kernel<T><<<grid_for(n, THREADS), THREADS, 0, cuda_stream(x)>>>(
            (T *)c->out[0].data, (const T *)c->in[0].data, nullptr, nullptr, l, n, l.n_edges,
            c->in[0].shape.dim[2], 1);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static enum status edge_sum_nodes(const struct kernel_ctx *x, const struct op_call *c)
{
    struct lists l;
    int64_t n = shape_elems(&c->out[0].shape);
    TRY(list_edges(x, c, &l));
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        sum_kernel<T><<<grid_for(n, THREADS), THREADS, 0, cuda_stream(x)>>>(
            (T *)c->out[0].data, (const T *)c->in[1].data, (const T *)c->in[0].data,
            (const int32_t *)c->in[2].data, l, n, c->in[1].shape.dim[1], c->in[1].shape.dim[2],
            c->in[0].shape.dim[2]);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- softmax over a node's edges ------------------------------------------------------------- */

/* A thread for each head of each node. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    softmax_kernel(T *y, const T *x, const struct lists l, int64_t n, int64_t heads)
{
    for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
        const int64_t row = i / heads, sample = row / l.n_rows, node = row - sample * l.n_rows;
        const int64_t base = sample * l.n_edges * heads + i % heads;
        const int32_t first = l.first[node], last = l.first[node + 1];
        float most = -INFINITY, sum = 0.0f;
        for (int32_t k = first; k < last; k++)
            most = fmaxf(most, to_f32(x[base + l.edge[k] * heads]));
        for (int32_t k = first; k < last; k++)
            sum += expf(to_f32(x[base + l.edge[k] * heads]) - most);
        for (int32_t k = first; k < last; k++) {
            const int64_t at = base + l.edge[k] * heads;
            y[at] = from_f32<T>(expf(to_f32(x[at]) - most) / sum);
        }
    }
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    softmax_grad_kernel(T *dx, const T *dy, const T *y, const struct lists l, int64_t n,
                        int64_t heads)
{
    for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
        const int64_t row = i / heads, sample = row / l.n_rows, node = row - sample * l.n_rows;
        const int64_t base = sample * l.n_edges * heads + i % heads;
        const int32_t first = l.first[node], last = l.first[node + 1];
        float sum = 0.0f;
        for (int32_t k = first; k < last; k++) {
            const int64_t at = base + l.edge[k] * heads;
            sum += to_f32(dy[at]) * to_f32(y[at]);
        }
        for (int32_t k = first; k < last; k++) {
            const int64_t at = base + l.edge[k] * heads;
            dx[at] = from_f32<T>(to_f32(y[at]) * (to_f32(dy[at]) - sum));
        }
    }
}

static enum status softmax_nodes(const struct kernel_ctx *x, const struct op_call *c)
{
    struct lists l;
    const struct shape *s = &c->in[0].shape;
    TRY(list_edges(x, c, &l));
    int64_t n = s->dim[0] * l.n_rows * s->dim[2];
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        softmax_kernel<T><<<grid_for(n, THREADS), THREADS, 0, cuda_stream(x)>>>(
            (T *)c->out[0].data, (const T *)c->in[0].data, l, n, s->dim[2]);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static enum status softmax_grad_nodes(const struct kernel_ctx *x, const struct op_call *c)
{
    struct lists l;
    const struct shape *s = &c->in[0].shape;
    TRY(list_edges(x, c, &l));
    int64_t n = s->dim[0] * l.n_rows * s->dim[2];
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        softmax_grad_kernel<T><<<grid_for(n, THREADS), THREADS, 0, cuda_stream(x)>>>(
            (T *)c->out[0].data, (const T *)c->in[0].data, (const T *)c->in[1].data, l, n,
            s->dim[2]);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- products of the two ends ---------------------------------------------------------------- */

/* A warp for each head of each edge. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    dot_kernel(T *y, const T *a, const T *b, const int32_t *i_of, const int32_t *j_of, int64_t n,
               int64_t n_edges, int64_t n_a, int64_t n_b, int64_t channels, int64_t heads)
{
    const int64_t item = grid_thread() / WARP, width = channels / heads;
    if (item >= n)
        return;
    const int64_t row = item / heads, sample = row / n_edges, e = row - sample * n_edges;
    const int64_t i = i_of[e], j = j_of[e], first = item % heads * width;
    const bool is_there = i >= 0 && i < n_a && j >= 0 && j < n_b;
    float sum = 0.0f;
    for (int64_t k = threadIdx.x % WARP; is_there && k < width; k += WARP)
        sum += to_f32(a[(sample * n_a + i) * channels + first + k]) *
               to_f32(b[(sample * n_b + j) * channels + first + k]);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        y[item] = from_f32<T>(sum);
}

static enum status edge_dot_warps(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct shape *a = &c->in[0].shape, *b = &c->in[1].shape;
    int64_t n = shape_elems(&c->out[0].shape);
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        dot_kernel<T><<<grid_for(n, THREADS / WARP), THREADS, 0, cuda_stream(x)>>>(
            (T *)c->out[0].data, (const T *)c->in[0].data, (const T *)c->in[1].data,
            (const int32_t *)c->in[2].data, (const int32_t *)c->in[3].data, n,
            c->out[0].shape.dim[1], a->dim[1], b->dim[1], a->dim[2], c->out[0].shape.dim[2]);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- grids ----------------------------------------------------------------------------------- */

/* To the right, to the left: height x (width - 1) each; down, up: (height - 1) x width; loops. */
static __global__ void __launch_bounds__(THREADS)
    grid_kernel(int32_t *from, int32_t *to, int64_t n, int64_t height, int64_t width)
{
    const int64_t across = height * (width - 1), along = (height - 1) * width;
    for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
        int64_t a, b, k = i;
        if (k < 2 * across) {
            const bool left = k >= across;
            k -= left ? across : 0;
            a = k / (width - 1) * width + k % (width - 1);
            b = a + 1;
            from[i] = (int32_t)(left ? b : a);
            to[i] = (int32_t)(left ? a : b);
        } else if (k - 2 * across < 2 * along) {
            k -= 2 * across;
            const bool up = k >= along;
            k -= up ? along : 0;
            from[i] = (int32_t)(up ? k + width : k);
            to[i] = (int32_t)(up ? k : k + width);
        } else {
            from[i] = to[i] = (int32_t)(k - 2 * across - 2 * along);
        }
    }
}

static enum status grid_elements(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->out[0].shape);
    grid_kernel<<<grid_for(n, THREADS), THREADS, 0, cuda_stream(x)>>>(
        (int32_t *)c->out[0].data, (int32_t *)c->out[1].data, n, call_int(c, GRID_HEIGHT),
        call_int(c, GRID_WIDTH));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(gather, elements, gather_elements)
CUDA_RUN(scatter_add, nodes, scatter_nodes)
CUDA_RUN(edge_softmax, nodes, softmax_nodes)
CUDA_RUN(edge_softmax_grad, nodes, softmax_grad_nodes)
CUDA_RUN(edge_sum, nodes, edge_sum_nodes)
CUDA_RUN(edge_dot, warps, edge_dot_warps)
CUDA_RUN(grid_edges, elements, grid_elements)
