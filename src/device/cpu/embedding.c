/* embedding.c: rows of a table by id, and the gradient that adds rows back.
 *
 * Ids outside the table are refused before anything is read or written.
 */
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/cpu_ref.h"

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

const struct kernel cpu_kernels_embedding[] = {
    {"reference", NULL, NULL, reference_forward},
    KERNEL_END,
};

const struct kernel cpu_kernels_embedding_grad[] = {
    {"reference", NULL, NULL, reference_grad},
    KERNEL_END,
};
