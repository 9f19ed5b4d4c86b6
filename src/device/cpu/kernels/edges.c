/* edges.c: graphs: rows of nodes for edges, sums, softmax and products over them; f32 arithmetic
 * over f32, bf16, f16 storage.
 *
 * What is added up at a node is taken edge by edge in rising order, so the number of threads does
 * not show. Nodes that do not exist are refused before anything is read or written.
 */
#include <math.h>
#include <string.h>

#include "device/cpu/support/block.h"
#include "device/cpu/support/math.h"
#include "device/cpu/support/ref.h"
#include "ops/edge_support.h"

static enum status check_nodes(const struct op_call *c, int i, int64_t n_rows)
{
    const int32_t *node = c->in[i].data;
    for (int64_t e = 0; e < shape_elems(&c->in[i].shape); e++) {
        if (node[e] < 0 || node[e] >= n_rows)
            return FAIL(ERR_DATA, "%s: edge %lld has node %d, there are %lld", op_get(c->op)->name,
                        (long long)e, (int)node[e], (long long)n_rows);
    }
    return OK;
}

/* ---- the edges of a node --------------------------------------------------------------------- */

/* head[node]: its first edge or -1; next[edge]: the one after it. */
struct edges {
    const struct op_call *c;
    int32_t *head, *next;
};

static int64_t edges_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return (call_int(c, EDGE_ROWS) + shape_elems(&edge_targets(c)->shape)) *
           (int64_t)sizeof(int32_t);
}

static enum status edges_open(const struct kernel_ctx *x, const struct op_call *c, struct edges *g)
{
    const int32_t *to = edge_targets(c)->data;
    int64_t n_rows = call_int(c, EDGE_ROWS);
    TRY(check_nodes(c, c->n_in - 1, n_rows));
    *g = (struct edges){c, x->workspace, (int32_t *)x->workspace + n_rows};
    for (int64_t i = 0; i < n_rows; i++)
        g->head[i] = -1;
    for (int64_t e = shape_elems(&edge_targets(c)->shape) - 1; e >= 0; e--) {
        g->next[e] = g->head[to[e]];
        g->head[to[e]] = (int32_t)e;
    }
    return OK;
}

/* ---- gather, scatter_add --------------------------------------------------------------------- */

static void gather_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    const int32_t *index = c->in[1].data;
    int64_t n_edges = c->out[0].shape.dim[1], n_rows = c->in[0].shape.dim[1];
    int64_t row_bytes = c->in[0].shape.dim[2] * dtype_size(c->in[0].dtype);
    (void)thread;
    for (int64_t i = first; i < last; i++)
        memcpy((char *)c->out[0].data + i * row_bytes,
               (const char *)c->in[0].data +
                   (i / n_edges * n_rows + index[i % n_edges]) * row_bytes,
               (size_t)row_bytes);
}

static enum status gather_run(const struct kernel_ctx *x, const struct op_call *c)
{
    TRY(check_nodes(c, 1, c->in[0].shape.dim[1]));
    cpu_loop(x, c->out[0].shape.dim[0] * c->out[0].shape.dim[1], c->out[0].shape.dim[2],
             gather_rows, c);
    return OK;
}

static enum status gather_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    const int32_t *index = c->in[1].data;
    int64_t n_edges = c->out[0].shape.dim[1], n_rows = c->in[0].shape.dim[1];
    int64_t channels = c->in[0].shape.dim[2];
    (void)x;
    TRY(check_nodes(c, 1, n_rows));
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        int64_t row = i / channels / n_edges * n_rows + index[i / channels % n_edges];
        ref_set(&c->out[0], i, ref_get(&c->in[0], row * channels + i % channels));
    }
    return OK;
}

/* Item: a node of a sample. */
static void scatter_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct edges *g = job;
    const struct tensor *x = &g->c->in[0], *y = &g->c->out[0];
    int64_t n_rows = y->shape.dim[1], n_edges = x->shape.dim[1], channels = x->shape.dim[2];
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        for (int64_t at = 0; at < channels; at += CPU_BLOCK) {
            int64_t n = block_size(channels, at);
            float sum[CPU_BLOCK], buffer[CPU_BLOCK];
            memset(sum, 0, (size_t)n * sizeof(float));
            for (int32_t e = g->head[i % n_rows]; e >= 0; e = g->next[e]) {
                const float *add =
                    block_read(x, (i / n_rows * n_edges + e) * channels + at, n, buffer);
#pragma omp simd
                for (int64_t k = 0; k < n; k++)
                    sum[k] += add[k];
            }
            cpu_store_f32(y->data, y->dtype, i * channels + at, sum, n);
        }
    }
}

static enum status scatter_run(const struct kernel_ctx *x, const struct op_call *c)
{
    struct edges g;
    TRY(edges_open(x, c, &g));
    cpu_loop(x, c->out[0].shape.dim[0] * c->out[0].shape.dim[1], c->out[0].shape.dim[2],
             scatter_rows, &g);
    return OK;
}

static enum status scatter_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    const int32_t *index = c->in[1].data;
    int64_t n_edges = c->in[0].shape.dim[1], n_rows = c->out[0].shape.dim[1];
    int64_t channels = c->in[0].shape.dim[2];
    (void)x;
    TRY(check_nodes(c, 1, n_rows));
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        double sum = 0.0;
        for (int64_t e = 0; e < n_edges; e++) {
            if (index[e] == i / channels % n_rows)
                sum += ref_get(&c->in[0],
                               (i / channels / n_rows * n_edges + e) * channels + i % channels);
        }
        ref_set(&c->out[0], i, sum);
    }
    return OK;
}

/* ---- softmax over a node's edges ------------------------------------------------------------- */

/* Element (sample, edge, head) of [B, E, H]. */
static int64_t edge_at(const struct op_call *c, int64_t sample, int64_t e, int64_t head)
{
    const struct shape *s = &c->in[0].shape;
    return (sample * s->dim[1] + e) * s->dim[2] + head;
}

static void softmax_node(const struct edges *g, int64_t sample, int64_t node, int64_t head)
{
    const struct op_call *c = g->c;
    float most = -INFINITY, sum = 0.0f, x;
    for (int32_t e = g->head[node]; e >= 0; e = g->next[e]) {
        cpu_load_f32(&x, c->in[0].data, c->in[0].dtype, edge_at(c, sample, e, head), 1);
        most = fmaxf(most, x);
    }
    for (int32_t e = g->head[node]; e >= 0; e = g->next[e]) {
        cpu_load_f32(&x, c->in[0].data, c->in[0].dtype, edge_at(c, sample, e, head), 1);
        sum += cpu_expf(x - most);
    }
    for (int32_t e = g->head[node]; e >= 0; e = g->next[e]) {
        int64_t at = edge_at(c, sample, e, head);
        cpu_load_f32(&x, c->in[0].data, c->in[0].dtype, at, 1);
        x = cpu_expf(x - most) / sum;
        cpu_store_f32(c->out[0].data, c->out[0].dtype, at, &x, 1);
    }
}

static void softmax_grad_node(const struct edges *g, int64_t sample, int64_t node, int64_t head)
{
    const struct op_call *c = g->c;
    float sum = 0.0f, dy, y;
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t e = g->head[node]; e >= 0; e = g->next[e]) {
            int64_t at = edge_at(c, sample, e, head);
            cpu_load_f32(&dy, c->in[0].data, c->in[0].dtype, at, 1);
            cpu_load_f32(&y, c->in[1].data, c->in[1].dtype, at, 1);
            if (pass == 0) {
                sum += dy * y;
                continue;
            }
            y *= dy - sum;
            cpu_store_f32(c->out[0].data, c->out[0].dtype, at, &y, 1);
        }
    }
}

/* Item: a node of a sample. */
static void softmax_nodes(const void *job, int64_t first, int64_t last, int thread)
{
    const struct edges *g = job;
    int64_t n_rows = call_int(g->c, EDGE_ROWS), heads = g->c->in[0].shape.dim[2];
    bool is_grad = g->c->op == OP_edge_softmax_grad;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        for (int64_t h = 0; h < heads; h++)
            (is_grad ? softmax_grad_node : softmax_node)(g, i / n_rows, i % n_rows, h);
    }
}

static enum status softmax_run(const struct kernel_ctx *x, const struct op_call *c)
{
    struct edges g;
    const struct shape *s = &c->in[0].shape;
    int64_t n = s->dim[0] * call_int(c, EDGE_ROWS);
    TRY(edges_open(x, c, &g));
    cpu_loop(x, n, 16 * shape_elems(s) / MAX(n, (int64_t)1), softmax_nodes, &g);
    return OK;
}

static enum status softmax_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct shape *s = &c->in[0].shape;
    const int32_t *to = c->in[1].data;
    (void)x;
    TRY(check_nodes(c, 1, call_int(c, EDGE_ROWS)));
    for (int64_t i = 0; i < shape_elems(s); i++) {
        int64_t sample = i / s->dim[2] / s->dim[1], e = i / s->dim[2] % s->dim[1];
        double sum = 0.0, own = ref_get(&c->in[0], i);
        for (int64_t f = 0; f < s->dim[1]; f++) {
            if (to[f] == to[e])
                sum += exp(ref_get(&c->in[0], edge_at(c, sample, f, i % s->dim[2])) - own);
        }
        ref_set(&c->out[0], i, 1.0 / sum);
    }
    return OK;
}

static enum status softmax_grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct shape *s = &c->in[0].shape;
    const int32_t *to = c->in[2].data;
    (void)x;
    TRY(check_nodes(c, 2, call_int(c, EDGE_ROWS)));
    for (int64_t i = 0; i < shape_elems(s); i++) {
        int64_t sample = i / s->dim[2] / s->dim[1], e = i / s->dim[2] % s->dim[1];
        double sum = 0.0;
        for (int64_t f = 0; f < s->dim[1]; f++) {
            int64_t at = edge_at(c, sample, f, i % s->dim[2]);
            if (to[f] == to[e])
                sum += ref_get(&c->in[0], at) * ref_get(&c->in[1], at);
        }
        ref_set(&c->out[0], i, ref_get(&c->in[1], i) * (ref_get(&c->in[0], i) - sum));
    }
    return OK;
}

/* ---- weighted sums --------------------------------------------------------------------------- */

/* Channels [at, at + n) of one head of a node: n at most CPU_BLOCK. */
static void sum_part(const struct edges *g, int64_t row, int64_t head, int64_t at, int64_t n)
{
    const struct op_call *c = g->c;
    const struct tensor *x = &c->in[1], *y = &c->out[0];
    const int32_t *from = c->in[2].data;
    int64_t n_rows = y->shape.dim[1], sample = row / n_rows, channels = x->shape.dim[2];
    float sum[CPU_BLOCK], buffer[CPU_BLOCK], w;
    memset(sum, 0, (size_t)n * sizeof(float));
    for (int32_t e = g->head[row % n_rows]; e >= 0; e = g->next[e]) {
        const float *add =
            block_read(x, (sample * x->shape.dim[1] + from[e]) * channels + at, n, buffer);
        cpu_load_f32(&w, c->in[0].data, c->in[0].dtype, edge_at(c, sample, e, head), 1);
#pragma omp simd
        for (int64_t k = 0; k < n; k++)
            sum[k] += w * add[k];
    }
    cpu_store_f32(y->data, y->dtype, row * channels + at, sum, n);
}

/* Item: a node of a sample. */
static void sum_nodes(const void *job, int64_t first, int64_t last, int thread)
{
    const struct edges *g = job;
    int64_t heads = g->c->in[0].shape.dim[2], width = g->c->in[1].shape.dim[2] / heads;
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        for (int64_t h = 0; h < heads; h++) {
            for (int64_t k = 0; k < width; k += CPU_BLOCK)
                sum_part(g, row, h, h * width + k, block_size(width, k));
        }
    }
}

static enum status edge_sum_run(const struct kernel_ctx *x, const struct op_call *c)
{
    struct edges g;
    TRY(check_nodes(c, 2, c->in[1].shape.dim[1]));
    TRY(edges_open(x, c, &g));
    cpu_loop(x, c->out[0].shape.dim[0] * c->out[0].shape.dim[1], 4 * c->out[0].shape.dim[2],
             sum_nodes, &g);
    return OK;
}

static enum status edge_sum_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    const int32_t *from = c->in[2].data, *to = c->in[3].data;
    int64_t n_from = c->in[1].shape.dim[1], n_rows = c->out[0].shape.dim[1];
    int64_t channels = c->in[1].shape.dim[2], width = channels / c->in[0].shape.dim[2];
    (void)x;
    TRY(check_nodes(c, 2, n_from));
    TRY(check_nodes(c, 3, n_rows));
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        int64_t sample = i / channels / n_rows, channel = i % channels;
        double sum = 0.0;
        for (int64_t e = 0; e < c->in[0].shape.dim[1]; e++) {
            if (to[e] == i / channels % n_rows)
                sum += ref_get(&c->in[0], edge_at(c, sample, e, channel / width)) *
                       ref_get(&c->in[1], (sample * n_from + from[e]) * channels + channel);
        }
        ref_set(&c->out[0], i, sum);
    }
    return OK;
}

/* ---- products of the two ends ---------------------------------------------------------------- */

/* Where the ends of edge i of all samples begin, in inputs 0 and 1. */
static void edge_ends(const struct op_call *c, int64_t i, int64_t ends[2])
{
    int64_t n_edges = c->out[0].shape.dim[1];
    for (int k = 0; k < 2; k++) {
        const struct shape *s = &c->in[k].shape;
        const int32_t *node = c->in[2 + k].data;
        ends[k] = (i / n_edges * s->dim[1] + node[i % n_edges]) * s->dim[2];
    }
}

/* Item: an edge of a sample. */
static void dot_edges(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    int64_t heads = c->out[0].shape.dim[2], width = c->in[0].shape.dim[2] / heads, ends[2];
    float a_buffer[CPU_BLOCK], b_buffer[CPU_BLOCK];
    (void)thread;
    for (int64_t i = first * heads; i < last * heads; i++) {
        double all = 0.0;
        edge_ends(c, i / heads, ends);
        for (int64_t k = 0; k < width; k += CPU_BLOCK) {
            int64_t n = block_size(width, k), at = i % heads * width + k;
            const float *a = block_read(&c->in[0], ends[0] + at, n, a_buffer);
            const float *b = block_read(&c->in[1], ends[1] + at, n, b_buffer);
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < n; j++)
                sum += a[j] * b[j];
            all += (double)sum;
        }
        ref_set(&c->out[0], i, all);
    }
}

static enum status edge_dot_run(const struct kernel_ctx *x, const struct op_call *c)
{
    TRY(check_nodes(c, 2, c->in[0].shape.dim[1]));
    TRY(check_nodes(c, 3, c->in[1].shape.dim[1]));
    cpu_loop(x, c->out[0].shape.dim[0] * c->out[0].shape.dim[1], c->in[0].shape.dim[2], dot_edges,
             c);
    return OK;
}

static enum status edge_dot_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t heads = c->out[0].shape.dim[2], width = c->in[0].shape.dim[2] / heads, ends[2];
    (void)x;
    TRY(check_nodes(c, 2, c->in[0].shape.dim[1]));
    TRY(check_nodes(c, 3, c->in[1].shape.dim[1]));
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        double sum = 0.0;
        edge_ends(c, i / heads, ends);
        for (int64_t k = i % heads * width; k < (i % heads + 1) * width; k++)
            sum += ref_get(&c->in[0], ends[0] + k) * ref_get(&c->in[1], ends[1] + k);
        ref_set(&c->out[0], i, sum);
    }
    return OK;
}

/* ---- grids ----------------------------------------------------------------------------------- */

static enum status grid_run(const struct kernel_ctx *x, const struct op_call *c)
{
    int32_t *from = c->out[0].data, *to = c->out[1].data;
    int64_t height = call_int(c, GRID_HEIGHT), width = call_int(c, GRID_WIDTH), n = 0;
    const int64_t steps[][2] = {{0, 1}, {0, -1}, {1, 0}, {-1, 0}, {0, 0}};
    (void)x;
    for (int way = 0; way < (call_bool(c, GRID_LOOPS) ? 5 : 4); way++) {
        for (int64_t node = 0; node < height * width; node++) {
            int64_t row = node / width + steps[way][0], column = node % width + steps[way][1];
            if (row < 0 || row >= height || column < 0 || column >= width)
                continue;
            from[n] = (int32_t)node;
            to[n++] = (int32_t)(row * width + column);
        }
    }
    return OK;
}

/* ---- lists ----------------------------------------------------------------------------------- */

const struct kernel cpu_kernels_gather[] = {
    {"rows", NULL, NULL, gather_run},
    {"reference", NULL, NULL, gather_reference},
    KERNEL_END,
};
const struct kernel cpu_kernels_scatter_add[] = {
    {"nodes", cpu_declines_f64, edges_workspace, scatter_run},
    {"reference", NULL, NULL, scatter_reference},
    KERNEL_END,
};
const struct kernel cpu_kernels_edge_softmax[] = {
    {"nodes", cpu_declines_f64, edges_workspace, softmax_run},
    {"reference", NULL, NULL, softmax_reference},
    KERNEL_END,
};
const struct kernel cpu_kernels_edge_softmax_grad[] = {
    {"nodes", cpu_declines_f64, edges_workspace, softmax_run},
    {"reference", NULL, NULL, softmax_grad_reference},
    KERNEL_END,
};
const struct kernel cpu_kernels_edge_sum[] = {
    {"nodes", cpu_declines_f64, edges_workspace, edge_sum_run},
    {"reference", NULL, NULL, edge_sum_reference},
    KERNEL_END,
};
const struct kernel cpu_kernels_edge_dot[] = {
    {"edges", cpu_declines_f64, NULL, edge_dot_run},
    {"reference", NULL, NULL, edge_dot_reference},
    KERNEL_END,
};
const struct kernel cpu_kernels_grid_edges[] = {
    {"reference", NULL, NULL, grid_run},
    KERNEL_END,
};
