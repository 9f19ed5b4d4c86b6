#include "train/trace.h"

#include <math.h>
#include <string.h>

#include "program/timeline.h"
#include "train/generate.h"

enum { MEASURED = 1, PREDICTED = 2 }; /* process ids of the trace */

struct tracer {
    const struct profile *profile;
    const struct program *program;
    struct timeline memory[TIER_COUNT];
    double *starts; /* per instruction: predicted, since its section began */
    struct str *out;
    bool any; /* an event was written */
};

/* ---- JSON ----------------------------------------------------------------------------------- */

static void add_escaped(struct str *out, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            str_addf(out, "\\%c", *c);
        else if (*c < 0x20 || *c == 0x7f)
            str_addf(out, "\\u%04x", *c);
        else
            str_add_n(out, (const char *)c, 1);
    }
}

void trace_add_string(struct str *out, const char *text)
{
    struct utf8_stream stream = {0};
    struct str whole = {0};
    utf8_stream_add(&stream, text, strlen(text), &whole);
    utf8_stream_finish(&stream, &whole);
    str_add(out, "\"");
    add_escaped(out, str_text(&whole));
    str_add(out, "\"");
    out->failed |= whole.failed;
    str_release(&whole);
}

/* printf would write the decimal point of the locale. */
static void add_fixed(struct str *out, int64_t x, int decimals)
{
    int64_t unit = 1;
    for (int i = 0; i < decimals; i++)
        unit *= 10;
    uint64_t size = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
    str_addf(out, "%s%llu", x < 0 ? "-" : "", (unsigned long long)(size / (uint64_t)unit));
    if (decimals > 0)
        str_addf(out, ".%0*llu", decimals, (unsigned long long)(size % (uint64_t)unit));
}

void trace_add_number(struct str *out, double x, int decimals)
{
    double scaled = x * pow(10.0, decimals);
    if (!isfinite(scaled) || fabs(scaled) > 9e18)
        str_add(out, "null");
    else
        add_fixed(out, llround(scaled), decimals);
}

static void add_member(struct tracer *t, const char *name, double x, int decimals)
{
    str_addf(t->out, ",\"%s\":", name);
    trace_add_number(t->out, x, decimals);
}

static void add_text(struct tracer *t, const char *name, const char *text)
{
    str_addf(t->out, ",\"%s\":", name);
    trace_add_string(t->out, text);
}

/* An event up to its arguments. Whole nanoseconds, so that ends that meet still meet as printed. */
static void begin_event(struct tracer *t, const char *kind, int process, int thread, double at_s)
{
    str_addf(t->out, "%s\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":", t->any ? "," : "", kind,
             process, thread);
    add_fixed(t->out, llround(at_s * 1e9), 3);
    t->any = true;
}

static void add_duration(struct tracer *t, double begin_s, double end_s)
{
    str_add(t->out, ",\"dur\":");
    add_fixed(t->out, llround(end_s * 1e9) - llround(begin_s * 1e9), 3);
}

/* ---- instructions --------------------------------------------------------------------------- */

static void add_shape(struct str *out, const struct graph *g, value_id v, const char *before)
{
    char text[SHAPE_TEXT];
    if (v == VALUE_NONE)
        return;
    const struct value *x = graph_value(g, v);
    str_addf(out, "%s%s%s", before, dtype_name(x->dtype), shape_text(text, &x->shape));
}

static void add_compute(struct tracer *t, const struct instr *i)
{
    const struct graph *g = t->program->graph;
    const struct node *n = graph_node(g, i->node);
    struct str in = {0}, made = {0};
    for (int k = 0; k < n->n_in; k++)
        add_shape(&in, g, n->in[k], k ? ", " : "");
    for (int k = 0; k < n->n_out; k++)
        add_shape(&made, g, n->out[k], k ? ", " : "");
    add_text(t, "kernel", i->kernel->name);
    add_text(t, "pass", instr_part(t->program, i));
    if (n->block != BLOCK_NONE)
        add_member(t, "block", n->block, 0);
    add_text(t, "in", str_text(&in));
    add_text(t, "out", str_text(&made));
    t->out->failed |= in.failed | made.failed;
    str_release(&in);
    str_release(&made);
}

static void add_rates(struct tracer *t, int32_t at, double seconds)
{
    struct program_cost cost;
    program_cost(t->program, at, 1, t->profile->s->engine.device, &cost);
    double bytes = cost.bytes + cost.copy_bytes;
    add_member(t, "flops", cost.flops, 0);
    add_member(t, "bytes", bytes, 0);
    add_member(t, "limit_us", 1e6 * cost.time_s, 3);
    if (seconds > 0) {
        add_member(t, "TFLOP/s", cost.flops / seconds / 1e12, 3);
        add_member(t, "GB/s", bytes / seconds / 1e9, 3);
    }
}

static double predicted_s(const struct tracer *t, int32_t at)
{
    return t->profile->s->train->prediction.seconds[at];
}

/* begin and end since the profile began; measured is how long it took in fact. */
static void add_instr(struct tracer *t, int process, int32_t at, double begin, double end,
                      double measured)
{
    const struct instr *i = &t->program->instrs.items[at];
    struct str name = {0};
    instr_add_text(t->program, i, &name);
    begin_event(t, "X", process, (int)i->queue + 1, begin);
    add_duration(t, begin, end);
    add_text(t, "name", str_text(&name));
    str_addf(t->out, ",\"args\":{\"instruction\":%d", (int)at);
    add_member(t, "predicted_us", 1e6 * predicted_s(t, at), 3);
    add_member(t, "measured_us", 1e6 * measured, 3);
    if (i->kind == INSTR_COMPUTE)
        add_compute(t, i);
    if (i->kind != INSTR_WAIT)
        add_rates(t, at, process == MEASURED ? measured : predicted_s(t, at));
    str_add(t->out, "}}");
    t->out->failed |= name.failed;
    str_release(&name);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void add_memory(struct tracer *t, enum tier tier, int32_t at, double at_s)
{
    const struct timeline *m = &t->memory[tier];
    const struct timeline_column *column = &m->columns[MIN(at, (int32_t)m->n_columns - 1)];
    bool first = true;
    begin_event(t, "C", MEASURED, 0, at_s);
    str_addf(t->out, ",\"name\":\"%s memory\",\"args\":{", tier_name(tier));
    for (int k = 0; k < MEMORY_CLASS_COUNT; k++) {
        enum memory_class kind = timeline_stack[k];
        if (!timeline_has(m, kind))
            continue;
        str_addf(t->out, "%s\"%s\":%lld", first ? "" : ",", memory_class_name(kind),
                 (long long)column->by_class[kind]);
        first = false;
    }
    str_add(t->out, "}}");
}

/* Bytes change where instructions begin; the computing queue tells the time. */
static void add_memory_of_run(struct tracer *t, const struct timed_run *r, double start)
{
    for (int tier = 0; tier < TIER_COUNT; tier++) {
        const struct timeline *m = &t->memory[tier];
        int64_t shown = -1;
        for (int32_t k = 0; k < r->section->n && m->peak.total > 0; k++) {
            int32_t at = r->section->first + k;
            const struct instr *i = &t->program->instrs.items[at];
            int64_t total = m->columns[MIN(at, (int32_t)m->n_columns - 1)].total;
            if (i->kind != INSTR_COMPUTE || total == shown)
                continue;
            add_memory(t, (enum tier)tier, at, start + r->begin[k]);
            shown = total;
        }
    }
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void add_instant(struct tracer *t, int process, double at_s, const char *fmt, int64_t step)
{
    begin_event(t, "i", process, (int)QUEUE_COMPUTE + 1, at_s);
    str_addf(t->out, ",\"s\":\"p\",\"name\":\"%s %lld\"}", fmt, (long long)step);
}

static bool shows(const struct program *p, int32_t at, double seconds)
{
    const struct instr *i = &p->instrs.items[at];
    return i->kind == INSTR_COMPUTE || i->kind == INSTR_COPY ||
           (i->kind == INSTR_WAIT && seconds > 0);
}

static void add_measured(struct tracer *t, const struct timed_run *r)
{
    for (int32_t k = 0; k < r->section->n; k++) {
        double seconds = r->end[k] - r->begin[k];
        if (shows(t->program, r->section->first + k, seconds))
            add_instr(t, MEASURED, r->section->first + k, r->start_s + r->begin[k],
                      r->start_s + r->end[k], seconds);
    }
    add_memory_of_run(t, r, r->start_s);
}

static enum status add_predicted(struct tracer *t, const struct timed_run *r, double *now)
{
    const struct session *s = t->profile->s;
    double seconds;
    TRY(predict_section(&s->train->prediction, t->program, s->engine.device, r->section, t->starts,
                        &seconds));
    for (int32_t k = 0; k < r->section->n; k++) {
        int32_t at = r->section->first + k;
        double begin = *now + t->starts[at];
        if (shows(t->program, at, predicted_s(t, at)))
            add_instr(t, PREDICTED, at, begin, begin + predicted_s(t, at), r->end[k] - r->begin[k]);
    }
    *now += seconds;
    return OK;
}

static enum status add_steps(struct tracer *t)
{
    const struct profile *p = t->profile;
    double predicted = 0;
    for (size_t i = 0; i < p->steps.n; i++) {
        const struct profiled_step *step = &p->steps.items[i];
        predicted = MAX(predicted, step->start_s);
        add_instant(t, MEASURED, step->start_s, "step", step->step);
        add_instant(t, PREDICTED, predicted, "step", step->step);
        for (size_t k = 0; k < step->n_runs; k++) {
            const struct timed_run *r = &p->timing.runs.items[step->first_run + k];
            add_measured(t, r);
            TRY(add_predicted(t, r, &predicted));
        }
        add_instant(t, MEASURED, step->start_s + step->seconds, "end of step", step->step);
    }
    return OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void add_name(struct tracer *t, const char *what, int process, int thread, const char *name)
{
    begin_event(t, "M", process, thread, 0);
    str_addf(t->out, ",\"name\":\"%s_name\",\"args\":{\"name\":\"%s\"}}", what, name);
    begin_event(t, "M", process, thread, 0);
    str_addf(t->out, ",\"name\":\"%s_sort_index\",\"args\":{\"sort_index\":%d}}", what,
             thread ? thread : process);
}

static void add_names(struct tracer *t)
{
    for (int process = MEASURED; process <= PREDICTED; process++) {
        add_name(t, "process", process, 0, process == MEASURED ? "measured" : "predicted");
        for (int q = 0; q < QUEUE_COUNT; q++)
            add_name(t, "thread", process, q + 1, queue_name((enum queue)q));
    }
}

static void add_remarks(struct tracer *t)
{
    const struct profile *p = t->profile;
    const struct session *s = p->s;
    const struct forecast *f = &s->engine.forecast;
    str_add(t->out, "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"snug\"");
    add_text(t, "device", s->engine.device->description);
    add_text(t, "model", s->engine.model->model_type);
    add_member(t, "steps", (double)p->steps.n, 0);
    add_member(t, "step_ms", 1e3 * profile_step_s(p), 3);
    add_member(t, "step_ms_unwatched", p->unwatched_s > 0 ? 1e3 * p->unwatched_s : (double)NAN, 3);
    add_member(t, "step_ms_predicted", 1e3 * f->step_s, 3);
    add_text(t, "predicted_from", forecast_source(f));
    add_text(t, "note",
             s->engine.device->ops->mark
                 ? "Each instruction is followed by a mark on its queue, which costs it about a "
                   "microsecond: step_ms is of the steps shown here, step_ms_unwatched of one "
                   "without marks."
                 : "The clock is asked before and after each instruction; step_ms_unwatched is of "
                   "a step without that.");
    str_add(t->out, "}}\n");
}

static enum status print_all(struct tracer *t)
{
    const struct session *s = t->profile->s;
    size_t n = MAX(t->program->instrs.n, (size_t)1);
    TRY(mem_try_array(&t->starts, n, sizeof(*t->starts)));
    for (int tier = 0; tier < TIER_COUNT; tier++)
        TRY(timeline_init(&t->memory[tier],
                          &(struct timeline_view){.program = t->program,
                                                  .storage = &s->engine.work.storage,
                                                  .tier = (enum tier)tier,
                                                  .n_columns = (int)n}));
    str_add(t->out, "{\"traceEvents\":[");
    add_names(t);
    TRY(add_steps(t));
    add_remarks(t);
    return str_status(t->out);
}

enum status trace_print(const struct profile *p, struct str *out)
{
    struct tracer t = {.profile = p, .program = p->timing.p, .out = out};
    enum status status = print_all(&t);
    for (int tier = 0; tier < TIER_COUNT; tier++)
        timeline_release(&t.memory[tier]);
    mem_free(t.starts);
    return status;
}
