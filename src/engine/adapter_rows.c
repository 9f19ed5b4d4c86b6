#include "engine/adapter_rows.h"

#include <math.h>

#include "engine/coded_params.h"
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

/* The weight in host memory; *decoded: its numbers, where it is kept as codes. */
static enum status fetch_base(struct engine *e, const struct tensor *to, int base, float **decoded,
                              struct tensor *w)
{
    const struct model_param *p = &e->params[base];
    if (!param_is_coded(p))
        return stage_fetch(e->stage, &to[base], w);
    TRY(mem_try_array(decoded, (size_t)shape_elems(&p->shape) + 1, sizeof(**decoded)));
    *w = (struct tensor){DTYPE_F32, p->shape, *decoded};
    return coded_param_read(e, base, *decoded);
}

static enum status measure_one(struct engine *e, const struct tensor *to,
                               const struct model_adapter *a)
{
    double *lengths;
    float *decoded = NULL;
    struct tensor w;
    enum status status;
    TRY(mem_try_array(&lengths, (size_t)a->rows, sizeof(*lengths)));
    TRY_GOTO(fetch_base(e, to, a->base, &decoded, &w), out);
    measure(&w, a->first, a->rows, lengths);
    struct tensor m = stage_tensor(e->stage, &to[a->magnitude]);
    weights_from_double(m.dtype, lengths, a->rows, m.data);
    TRY_GOTO(stage_store(e->stage, &to[a->magnitude]), out);
out:
    mem_free(decoded);
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
