#include "engine/adapter_rows.h"

#include <math.h>

#include "io/weights_convert.h"

enum { RUN = 1024 };

/* lengths[i] of rows [first, first + n) of w, a host tensor. */
static void measure(const struct tensor *w, int64_t first, int64_t n, double *lengths)
{
    int64_t n_columns = w->shape.dim[1], size = dtype_size(w->dtype);
    for (int64_t row = 0; row < n; row++) {
        const char *at = (const char *)w->data + (first + row) * n_columns * size;
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

static enum status measure_one(struct engine *e, const struct tensor *to,
                               const struct model_adapter *a)
{
    double *lengths;
    struct tensor w;
    TRY(mem_try_array(&lengths, (size_t)a->rows, sizeof(*lengths)));
    enum status status = stage_fetch(e->stage, &to[a->base], &w);
    if (status == OK) {
        measure(&w, a->first, a->rows, lengths);
        struct tensor m = stage_tensor(e->stage, &to[a->magnitude]);
        weights_from_double(m.dtype, lengths, a->rows, m.data);
        status = stage_store(e->stage, &to[a->magnitude]);
    }
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
