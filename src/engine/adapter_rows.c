#include "engine/adapter_rows.h"

#include <math.h>

#include "engine/coded_params.h"
#include "io/weights_convert.h"

enum { RUN = 1024 };

/* lengths[i] of the rows of w, a host tensor. */
static void measure(const struct tensor *w, int64_t n_columns, int64_t n, double *lengths)
{
    int64_t size = dtype_size(w->dtype);
    for (int64_t row = 0; row < n; row++) {
        const char *at = (const char *)w->data + row * n_columns * size;
        double sum = 0, x[RUN];
        for (int64_t k = 0; k < n_columns; k += RUN) {
            int64_t n_now = MIN((int64_t)RUN, n_columns - k);
            weights_to_double(w->dtype, at + k * size, n_now, x);
            for (int64_t i = 0; i < n_now; i++)
                sum += x[i] * x[i];
        }
        lengths[row] = sqrt(sum);
    }
}

/* Of a weight that is kept as codes. */
static enum status measure_coded(struct engine *e, const struct model_adapter *a, double *lengths)
{
    const struct model_param *p = &e->params[a->base];
    int64_t n_columns = p->shape.dim[1];
    float *x;
    TRY(mem_try_array(&x, (size_t)shape_elems(&p->shape) + 1, sizeof(*x)));
    enum status status = coded_param_read(e, a->base, x);
    struct tensor w = {.dtype = DTYPE_F32, .data = x + a->first * n_columns};
    if (status == OK)
        measure(&w, n_columns, a->rows, lengths);
    mem_free(x);
    return status;
}

/* Of one that the stage gives, some rows at a time. */
static enum status measure_staged(struct engine *e, const struct tensor *base,
                                  const struct model_adapter *a, double *lengths)
{
    int64_t n_columns = base->shape.dim[1];
    int64_t most = stage_elems(e->stage, base, n_columns) / n_columns;
    for (int64_t row = 0; row < a->rows; row += most) {
        int64_t n = MIN(most, a->rows - row);
        struct tensor part = tensor_part(base, (a->first + row) * n_columns, n * n_columns), w;
        TRY(stage_fetch(e->stage, &part, &w));
        measure(&w, n_columns, n, lengths + row);
    }
    return OK;
}

static enum status measure_one(struct engine *e, const struct tensor *to,
                               const struct model_adapter *a)
{
    double *lengths;
    enum status status;
    TRY(mem_try_array(&lengths, (size_t)a->rows, sizeof(*lengths)));
    TRY_GOTO(param_is_coded(&e->params[a->base]) ? measure_coded(e, a, lengths)
                                                 : measure_staged(e, &to[a->base], a, lengths),
             out);
    struct tensor m = stage_tensor(e->stage, &to[a->magnitude]);
    weights_from_double(m.dtype, lengths, a->rows, m.data);
    TRY_GOTO(stage_store(e->stage, &to[a->magnitude]), out);
out:
    mem_free(lengths);
    return status;
}

enum status measure_rows(struct engine *e, const struct tensor *to)
{
    const struct model_graph *io = &e->work.stages[0].io;
    for (int i = 0; i < io->n_adapters; i++) {
        if (io->adapters[i].magnitude >= 0)
            TRY(measure_one(e, to, &io->adapters[i]));
    }
    return OK;
}
