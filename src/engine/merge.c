#include "engine/merge.h"

#include <math.h>

/* Where the matrices of one adapter lie while it is merged. */
struct matrices {
    float *down, *up, *magnitude; /* [rank, in], [rows, rank], [rows]; experts one by one */
};

static int64_t elems_of(const struct parameter_stream *s, int i_param)
{
    return i_param < 0 ? 0 : shape_elems(&s->io.params[i_param].shape);
}

static int64_t elems_of_adapter(const struct parameter_stream *s, const struct model_adapter *a)
{
    return elems_of(s, a->down) + elems_of(s, a->up) + elems_of(s, a->magnitude);
}

int64_t merge_elems(const struct parameter_stream *s)
{
    int64_t most = 0;
    for (int i = 0; i < s->io.n_adapters; i++)
        most = MAX(most, elems_of_adapter(s, &s->io.adapters[i]));
    return most;
}

static enum status read_matrices(const struct parameter_stream *s, const struct model_adapter *a,
                                 struct matrices *m)
{
    m->down = s->merging;
    m->up = m->down + elems_of(s, a->down);
    m->magnitude = m->up + elems_of(s, a->up);
    TRY(parameter_stream_read(s, a->down, m->down));
    TRY(parameter_stream_read(s, a->up, m->up));
    return a->magnitude < 0 ? OK : parameter_stream_read(s, a->magnitude, m->magnitude);
}

struct merging {
    const struct model_adapter *a;
    const struct matrices *m;
    int64_t rank, n_columns;
    float *weight; /* row 0 of the adapter's */
};

/* Sums in double, rounded once; DoRA's rows get their lengths. */
static void merge_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct merging *j = job;
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        float *w = j->weight + row * j->n_columns;
        double squares = 0;
        for (int64_t k = 0; k < j->n_columns; k++) {
            double more = 0;
            for (int64_t r = 0; r < j->rank; r++)
                more +=
                    (double)j->m->up[row * j->rank + r] * (double)j->m->down[r * j->n_columns + k];
            w[k] = (float)((double)w[k] + j->a->scale * more);
            squares += (double)w[k] * (double)w[k];
        }
        double factor = j->a->magnitude < 0 ? 1 : (double)j->m->magnitude[row] / sqrt(squares);
        for (int64_t k = 0; factor != 1 && k < j->n_columns; k++)
            w[k] = (float)(factor * (double)w[k]);
    }
}

/* Matrix by matrix: an expert's each, or the one there is. */
static void merge_adapter(const struct parameter_stream *s, const struct model_adapter *a,
                          struct matrices m, float *weight)
{
    const struct shape *down = &s->io.params[a->down].shape, *w = &s->io.params[a->base].shape;
    int64_t rank = down->dim[down->rank - 2], n_columns = down->dim[down->rank - 1];
    for (int64_t e = 0; e < MAX(a->n_experts, (int64_t)1); e++) {
        struct merging job = {.a = a, .m = &m, .rank = rank, .n_columns = n_columns};
        job.weight = weight + (e * w->dim[w->rank - 2] + a->first) * n_columns;
        team_run(s->team, a->rows, 16, merge_rows, &job);
        m.down += rank * n_columns;
        m.up += a->rows * rank;
    }
}

enum status merge_into(const struct parameter_stream *s, int i, float *weight)
{
    for (int k = 0; k < s->io.n_adapters; k++) {
        const struct model_adapter *a = &s->io.adapters[k];
        struct matrices m;
        if (a->base != i)
            continue;
        TRY(read_matrices(s, a, &m));
        merge_adapter(s, a, m, weight);
    }
    return OK;
}
