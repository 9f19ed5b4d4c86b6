#include "program/lanes.h"

#include <string.h>

static int part_of(const struct program *p, const struct instr *i)
{
    if (i->kind == INSTR_COPY)
        return LANE_COPY;
    return i->recompute ? (int)LANE_RECOMPUTE : (int)graph_node(p->graph, i->node)->pass;
}

static bool works(const struct instr *i)
{
    return i->kind == INSTR_COMPUTE || i->kind == INSTR_COPY;
}

/* Seconds by part in each column of one queue. */
typedef double column_parts[LANE_PART_COUNT];

/* Spreads what lies between two moments over the columns it touches. */
static void spread(column_parts *columns, int n_columns, double width, int part, double from,
                   double to)
{
    int first = (int)(from / width);
    for (int c = MIN(first, n_columns - 1); c < n_columns && (c * width < to || c == first); c++) {
        double begin = MAX(from, c * width), end = MIN(to, (c + 1) * width);
        columns[c][part] += MAX(end - begin, 0.0);
    }
}

/* What a column shows: the part that takes most of it, and how busy it is in all. */
static struct lane_span column_span(const double *parts, enum queue q, int column, double width)
{
    struct lane_span s = {.queue = q, .first = column, .n_columns = 1};
    double sum = 0;
    for (int i = 0; i < LANE_PART_COUNT; i++) {
        sum += parts[i];
        s.part = parts[i] > parts[s.part] ? i : s.part;
    }
    s.busy = MIN(sum / width, 1.0);
    return s;
}

/* Neighbours that look the same become one. */
static enum status add_span(struct lanes *l, const struct lane_span *s)
{
    struct lane_span *last = l->spans.n ? &l->spans.items[l->spans.n - 1] : NULL;
    bool same = last && last->queue == s->queue && last->part == s->part &&
                last->first + last->n_columns == s->first && last->busy - s->busy < 0.1 &&
                s->busy - last->busy < 0.1;
    if (!same)
        return vec_push(&l->spans, *s);
    last->busy = (last->busy * last->n_columns + s->busy) / (last->n_columns + 1);
    last->n_columns++;
    return OK;
}

static enum status add_queue(struct lanes *l, enum queue q, column_parts *columns)
{
    double width = l->seconds / l->n_columns;
    for (int c = 0; c < l->n_columns; c++) {
        struct lane_span s = column_span(columns[c], q, c, width);
        if (s.busy > 0)
            TRY(add_span(l, &s));
        l->is_used[q] |= s.busy > 0;
    }
    return OK;
}

static enum status gather(struct lanes *l, const struct prediction *prediction,
                          const struct program *p, const double *starts)
{
    column_parts *columns;
    enum status status = OK;
    size_t n_bytes = (size_t)l->n_columns * sizeof(*columns);
    TRY(mem_try_array(&columns, (size_t)l->n_columns, sizeof(*columns)));
    for (int q = 0; q < QUEUE_COUNT && status == OK; q++) {
        memset(columns, 0, n_bytes);
        for (size_t k = 0; k < p->instrs.n; k++) {
            const struct instr *i = &p->instrs.items[k];
            if (works(i) && (int)i->queue == q && prediction->seconds[k] > 0)
                spread(columns, l->n_columns, l->seconds / l->n_columns, part_of(p, i), starts[k],
                       starts[k] + prediction->seconds[k]);
        }
        status = add_queue(l, (enum queue)q, columns);
    }
    mem_free(columns);
    return status;
}

/* What a usual step does not run is drawn, and does not count. */
static void share_time(struct lanes *l, const struct prediction *prediction,
                       const struct program *p, int64_t n_micro, const double *section_s)
{
    double step = 0;
    for (size_t i = 0; i < p->sections.n; i++) {
        const struct section *s = &p->sections.items[i];
        const double n_runs = (double)section_runs(p, s, n_micro);
        step += n_runs * section_s[i];
        for (int32_t k = s->first; k < s->first + s->n; k++) {
            const struct instr *x = &p->instrs.items[k];
            if (works(x))
                l->busy[x->queue] += n_runs * prediction->seconds[k];
        }
    }
    for (int q = 0; q < QUEUE_COUNT && step > 0; q++)
        l->busy[q] = MIN(l->busy[q] / step, 1.0);
}

enum status lanes_init(struct lanes *l, const struct prediction *prediction,
                       const struct program *p, const struct device *device, int64_t n_micro,
                       int n_columns)
{
    double *starts = NULL, *section_s = NULL;
    enum status status;
    *l = (struct lanes){.n_columns = n_columns};
    TRY_GOTO(mem_try_array(&starts, p->instrs.n + 1, sizeof(*starts)), out);
    TRY_GOTO(mem_try_array(&section_s, p->sections.n + 1, sizeof(*section_s)), out);
    TRY_GOTO(predict_starts(prediction, p, device, starts, section_s), out);
    for (size_t i = 0; i < p->sections.n; i++)
        l->seconds += section_s[i];
    if (l->seconds > 0)
        TRY_GOTO(gather(l, prediction, p, starts), out);
    share_time(l, prediction, p, n_micro, section_s);
out:
    mem_free(starts);
    mem_free(section_s);
    if (status != OK)
        lanes_release(l);
    return status;
}

void lanes_release(struct lanes *l)
{
    vec_release(&l->spans);
    *l = (struct lanes){0};
}
