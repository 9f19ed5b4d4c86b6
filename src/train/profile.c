#include "train/profile.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "train/trace.h"

enum { SETTLED_STEP = 3 }; /* the first that runs as all later ones do */

enum status profile_init(struct profile *p, struct session *s, const struct profile_options *o,
                         int64_t n_steps_of_run)
{
    *p = (struct profile){.s = s, .options = *o};
    if (o->n_steps < 1)
        return FAIL(ERR_USAGE, "a profile is of at least 1 step, not of %lld",
                    (long long)o->n_steps);
    int64_t needed = PROFILE_FIRST_STEP - 1 + MIN(o->n_steps, INT64_MAX - PROFILE_FIRST_STEP);
    if (n_steps_of_run < needed)
        return FAIL(
            ERR_USAGE,
            "a profile of %lld steps is taken from steps %d to %lld, but this run has %lld: "
            "raise max_steps to at least %lld or profile fewer steps (--profile-steps)",
            (long long)o->n_steps, PROFILE_FIRST_STEP, (long long)needed, (long long)n_steps_of_run,
            (long long)needed);
    static const char empty[] = "{\"traceEvents\":[]}\n";
    if (o->path) /* a place that cannot be written is better known now */
        TRY(file_write_atomic(o->path, empty, sizeof(empty) - 1));
    return timing_init(&p->timing, s->train->program, s->engine.device);
}

void profile_release(struct profile *p)
{
    vec_release(&p->steps);
    if (p->timing.p)
        timing_release(&p->timing);
    *p = (struct profile){0};
}

static bool is_timed(const struct profile *p, int64_t i_step)
{
    return i_step >= PROFILE_FIRST_STEP && i_step < PROFILE_FIRST_STEP + p->options.n_steps;
}

void profile_step_begin(struct profile *p, int64_t i_step)
{
    executor_time_into(p->s->engine.executor, p->s->train->handle,
                       is_timed(p, i_step) ? &p->timing : NULL);
}

static enum status write_trace(struct profile *p)
{
    struct str text = {0};
    enum status status = trace_print(p, &text);
    p->written = true;
    if (status == OK)
        status = file_write_atomic(p->options.path, str_text(&text), text.n);
    str_release(&text);
    return status;
}

enum status profile_step_end(struct profile *p, int64_t i_step, double seconds)
{
    if (i_step >= SETTLED_STEP && !is_timed(p, i_step))
        p->unwatched_s = p->unwatched_s > 0 ? MIN(p->unwatched_s, seconds) : seconds;
    if (!is_timed(p, i_step))
        return OK;
    size_t first = 0;
    if (p->steps.n > 0)
        first = p->steps.items[p->steps.n - 1].first_run + p->steps.items[p->steps.n - 1].n_runs;
    struct profiled_step step = {i_step, first, p->timing.runs.n - first,
                                 timing_now(&p->timing) - seconds, seconds};
    TRY(vec_push(&p->steps, step));
    executor_time_into(p->s->engine.executor, p->s->train->handle, NULL);
    bool last = (int64_t)p->steps.n == p->options.n_steps;
    return last && p->options.path ? write_trace(p) : OK;
}

double profile_step_s(const struct profile *p)
{
    double sum = 0;
    for (size_t i = 0; i < p->steps.n; i++)
        sum += p->steps.items[i].seconds;
    return p->steps.n ? sum / (double)p->steps.n : 0;
}

/* ---- times ---------------------------------------------------------------------------------- */

/* Adds what the runs of a section took; 0: it was not run. */
static double add_runs(const struct profile *p, const struct section *s, double start,
                       struct instr_times *out)
{
    double n_runs = 0, seconds = 0;
    for (size_t i = 0; i < p->timing.runs.n; i++)
        n_runs += p->timing.runs.items[i].section == s;
    for (size_t i = 0; i < p->timing.runs.n; i++) {
        const struct timed_run *r = &p->timing.runs.items[i];
        if (r->section != s)
            continue;
        for (int32_t k = 0; k < s->n; k++) {
            out->start[s->first + k] += r->begin[k] / n_runs;
            out->seconds[s->first + k] += (r->end[k] - r->begin[k]) / n_runs;
        }
        seconds += r->seconds / n_runs;
    }
    for (int32_t k = s->first; k < s->first + s->n; k++)
        out->start[k] += start;
    return seconds;
}

enum status profile_times(const struct profile *p, struct instr_times *out)
{
    const struct program *program = p->timing.p;
    size_t n = program->instrs.n + 1;
    double now = 0;
    enum status status;
    *out = (struct instr_times){0};
    TRY_GOTO(mem_try_array(&out->start, n, sizeof(double)), out);
    TRY_GOTO(mem_try_array(&out->seconds, n, sizeof(double)), out);
    for (size_t i = 0; i < program->sections.n; i++)
        now += add_runs(p, &program->sections.items[i], now, out);
out:
    if (status != OK)
        instr_times_release(out);
    return status;
}

void instr_times_release(struct instr_times *t)
{
    mem_free(t->start);
    mem_free(t->seconds);
    *t = (struct instr_times){0};
}

/* ---- the table ------------------------------------------------------------------------------ */

/* Rows are ops, then copies by queue, then waiting by queue. */
enum { ROW_COPY = OP_COUNT, ROW_WAIT = ROW_COPY + QUEUE_COUNT, ROW_COUNT = ROW_WAIT + QUEUE_COUNT };

struct row {
    int index;
    bool beside; /* on a queue that runs beside the computing one: no part of the sum */
    int64_t n_calls;
    double seconds, limit, predicted;
};

static int row_of(const struct program *p, const struct instr *i)
{
    if (i->kind == INSTR_COMPUTE)
        return (int)graph_node(p->graph, i->node)->op;
    return (i->kind == INSTR_COPY ? ROW_COPY : ROW_WAIT) + (int)i->queue;
}

static void name_row(int index, char *out, size_t n)
{
    if (index < ROW_COPY)
        (void)snprintf(out, n, "%s", op_get((enum op_id)index)->name);
    else
        (void)snprintf(out, n, "%s on %s", index < ROW_WAIT ? "copies" : "waiting",
                       queue_name((enum queue)((index - ROW_COPY) % QUEUE_COUNT)));
}

static void add_run(const struct profile *p, const struct timed_run *r, struct row *rows)
{
    const struct program *program = p->timing.p;
    const double *predicted = p->s->train->prediction.seconds;
    for (int32_t k = 0; k < r->section->n; k++) {
        int32_t at = r->section->first + k;
        const struct instr *i = &program->instrs.items[at];
        struct row *row = &rows[row_of(program, i)];
        struct program_cost cost;
        bool queues = p->s->engine.device->ops->queue != NULL;
        bool beside = queues && i->queue != QUEUE_COMPUTE;
        if (i->kind == INSTR_RECORD || (i->kind == INSTR_WAIT && (beside || !queues)))
            continue;
        row->beside = beside;
        program_cost(program, at, 1, p->s->engine.device, &cost);
        row->n_calls++;
        row->seconds += r->end[k] - r->begin[k];
        row->limit += cost.time_s;
        row->predicted += predicted[at];
    }
}

static int by_seconds(const void *a, const void *b)
{
    double x = ((const struct row *)a)->seconds, y = ((const struct row *)b)->seconds;
    return (x < y) - (x > y);
}

static void print_row(struct str *out, const char *name, const struct row *r, double sum,
                      double n_steps)
{
    char limit[16] = "", share[16] = "beside";
    if (!r->beside)
        (void)snprintf(share, sizeof(share), "%.1f%%", 100.0 * r->seconds / sum);
    if (r->limit > 0 && r->seconds > 0)
        (void)snprintf(limit, sizeof(limit), "%.0f%%", 100.0 * r->limit / r->seconds);
    str_addf(out, "%-26s %7.0f %10.3f %7s %9s %13.3f\n", name, (double)r->n_calls / n_steps,
             1e3 * r->seconds / n_steps, share, limit, 1e3 * r->predicted / n_steps);
}

static void print_rows(struct str *out, struct row *rows, double n_steps)
{
    struct row all = {0};
    for (int k = 0; k < ROW_COUNT; k++) {
        rows[k].index = k;
        if (rows[k].beside)
            continue;
        all.n_calls += rows[k].n_calls;
        all.seconds += rows[k].seconds;
        all.limit += rows[k].limit;
        all.predicted += rows[k].predicted;
    }
    qsort(rows, ROW_COUNT, sizeof(*rows), by_seconds);
    str_addf(out, "%-26s %7s %10s %7s %9s %13s\n", "op", "calls", "ms", "share", "of limit",
             "predicted ms");
    double sum = all.seconds > 0 ? all.seconds : 1;
    for (int k = 0; k < ROW_COUNT && rows[k].seconds > 0; k++) {
        char name[64];
        name_row(rows[k].index, name, sizeof(name));
        print_row(out, name, &rows[k], sum, n_steps);
    }
    print_row(out, "sum", &all, sum, n_steps);
}

void profile_table(const struct profile *p, struct str *out)
{
    struct row rows[ROW_COUNT] = {{0}};
    const struct forecast *f = &p->s->engine.forecast;
    if (p->steps.n == 0)
        return;
    for (size_t i = 0; i < p->timing.runs.n; i++)
        add_run(p, &p->timing.runs.items[i], rows);
    print_rows(out, rows, (double)p->steps.n);
    str_addf(out, "%-26s %7s %10.3f %7s %9s %13.3f\n", "whole step", "", 1e3 * profile_step_s(p),
             "", "", 1e3 * f->step_s);
    if (p->unwatched_s > 0)
        str_addf(out, "%-26s %7s %10.3f\n", "whole step, unwatched", "", 1e3 * p->unwatched_s);
}
