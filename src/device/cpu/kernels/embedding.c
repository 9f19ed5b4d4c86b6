/* embedding.c: rows of a table by id, and the gradient that adds rows back.
 *
 * Ids outside the table are refused before anything is read or written.
 */
#include <string.h>

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

static enum status check_ids(const struct tensor *ids, int64_t n_rows)
{
    const int32_t *id = ids->data;
    int64_t n = shape_elems(&ids->shape);
    for (int64_t i = 0; i < n; i++) {
        if (id[i] < 0 || id[i] >= n_rows)
            return FAIL(ERR_DATA,
                        "embedding: id %d at position %lld is outside the table's %lld "
                        "rows",
                        (int)id[i], (long long)i, (long long)n_rows);
    }
    return OK;
}

static enum status reference_forward(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const struct tensor *table = &c->in[0], *ids = &c->in[1], *y = &c->out[0];
    const int32_t *id = ids->data;
    int64_t n_columns = table->shape.dim[1];
    TRY(check_ids(ids, table->shape.dim[0]));
    for (int64_t i = 0; i < shape_elems(&y->shape); i++)
        ref_set(y, i, ref_get(table, id[i / n_columns] * n_columns + i % n_columns));
    return OK;
}

static enum status reference_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const struct tensor *dy = &c->in[0], *ids = &c->in[1], *dw = &c->out[0];
    const int32_t *id = ids->data;
    int64_t n_rows = dw->shape.dim[0], n_columns = dw->shape.dim[1];
    TRY(check_ids(ids, n_rows));
    for (int64_t i = 0; i < n_rows * n_columns; i++) {
        double sum = call_has(c, 2) ? ref_get(&c->in[2], i) : 0.0;
        for (int64_t j = 0; j < shape_elems(&ids->shape); j++) {
            if (id[j] == i / n_columns)
                sum += ref_get(dy, j * n_columns + i % n_columns);
        }
        ref_set(dw, i, sum);
    }
    return OK;
}

static void look_up(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    const struct tensor *table = &c->in[0];
    const int32_t *id = c->in[1].data;
    int64_t row_bytes = table->shape.dim[1] * dtype_size(table->dtype);
    (void)thread;
    for (int64_t i = first; i < last; i++)
        memcpy((char *)c->out[0].data + i * row_bytes,
               (const char *)table->data + id[i] * row_bytes, (size_t)row_bytes);
}

static enum status rows_forward(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct tensor *table = &c->in[0], *ids = &c->in[1];
    TRY(check_ids(ids, table->shape.dim[0]));
    cpu_loop(x, shape_elems(&ids->shape), table->shape.dim[1], look_up, c);
    return OK;
}

/* Per row of the table, the positions whose id it is, as a list in rising order: head[row] is the
 * first position or -1, next[position] the one after it. */
static void list_positions(const struct tensor *ids, int64_t n_rows, int32_t *head, int32_t *next)
{
    const int32_t *id = ids->data;
    for (int64_t i = 0; i < n_rows; i++)
        head[i] = -1;
    for (int64_t i = shape_elems(&ids->shape) - 1; i >= 0; i--) {
        next[i] = head[id[i]];
        head[id[i]] = (int32_t)i;
    }
}

/* One row of the gradient: sums of at most CPU_BLOCK columns at a time in f32. */
static void sum_row(const struct op_call *c, int64_t row, const int32_t *head, const int32_t *next)
{
    const struct tensor *dy = &c->in[0], *dw = &c->out[0];
    int64_t n_columns = dw->shape.dim[1];
    for (int64_t column = 0; column < n_columns; column += CPU_BLOCK) {
        int64_t n = block_size(n_columns, column), at = row * n_columns + column;
        float sum[CPU_BLOCK], buffer[CPU_BLOCK];
        if (call_has(c, 2))
            cpu_load_f32(sum, c->in[2].data, c->in[2].dtype, at, n);
        else
            memset(sum, 0, (size_t)n * sizeof(float));
        for (int32_t i = head[row]; i >= 0; i = next[i]) {
            const float *add = block_read(dy, i * n_columns + column, n, buffer);
#pragma omp simd
            for (int64_t j = 0; j < n; j++)
                sum[j] += add[j];
        }
        cpu_store_f32(dw->data, dw->dtype, at, sum, n);
    }
}

static int64_t rows_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return (c->out[0].shape.dim[0] + shape_elems(&c->in[1].shape)) * (int64_t)sizeof(int32_t);
}

/* Where each row of the table occurs. */
struct occurrences {
    const struct op_call *c;
    const int32_t *head, *next;
};

static void sum_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct occurrences *o = job;
    const struct op_call *c = o->c;
    const struct tensor *dw = &c->out[0];
    int64_t row_bytes = dw->shape.dim[1] * dtype_size(dw->dtype);
    bool adds = call_has(c, 2);
    bool moves = adds && c->in[2].data != dw->data;
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        char *to = (char *)dw->data + row * row_bytes;
        if (o->head[row] >= 0)
            sum_row(c, row, o->head, o->next);
        else if (!adds)
            memset(to, 0, (size_t)row_bytes);
        else if (moves)
            memcpy(to, (const char *)c->in[2].data + row * row_bytes, (size_t)row_bytes);
    }
}

/* Each row of the table is an item, so that its sum is made in the order of positions. */
static enum status rows_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct tensor *dw = &c->out[0];
    int64_t n_rows = dw->shape.dim[0];
    int32_t *head = x->workspace, *next = head + n_rows;
    TRY(check_ids(&c->in[1], n_rows));
    list_positions(&c->in[1], n_rows, head, next);
    struct occurrences o = {c, head, next};
    cpu_loop(x, n_rows, dw->shape.dim[1], sum_rows, &o);
    return OK;
}

const struct kernel cpu_kernels_embedding[] = {
    {"rows", NULL, NULL, rows_forward},
    {"reference", NULL, NULL, reference_forward},
    KERNEL_END,
};

static const char *declines_grad(const struct op_call *c, const struct kernel_env *env)
{
    if (shape_elems(&c->in[1].shape) > INT32_MAX)
        return "takes at most 2^31 - 1 ids";
    return cpu_declines_f64(c, env);
}

const struct kernel cpu_kernels_embedding_grad[] = {
    {"rows", declines_grad, rows_grad_workspace, rows_grad},
    {"reference", NULL, NULL, reference_grad},
    KERNEL_END,
};
