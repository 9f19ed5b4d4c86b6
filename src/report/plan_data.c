#include "report/plan_data.h"

#include <math.h>

#include "program/timeline.h"
#include "report/names.h"
#include "report/purpose.h"
#include "train/trace.h"

/* ---- tables: rows come one by one, columns are printed --------------------------------------- */

struct table {
    const char *const *columns; /* names */
    size_t n_columns, n_rows;
    int64_t *cells; /* a column after the other */
};

static enum status table_init(struct table *t, const char *const *columns, size_t n_columns,
                              size_t n_rows)
{
    *t = (struct table){.columns = columns, .n_columns = n_columns, .n_rows = n_rows};
    return mem_try_array(&t->cells, MAX(n_columns * n_rows, (size_t)1), sizeof(*t->cells));
}

static void table_set(struct table *t, size_t i_row, const int64_t *row)
{
    for (size_t c = 0; c < t->n_columns; c++)
        t->cells[c * t->n_rows + i_row] = row[c];
}

static void table_print(const struct table *t, const char *name, struct str *out)
{
    str_addf(out, ",\n\"%s\":{", name);
    for (size_t c = 0; c < t->n_columns; c++) {
        str_addf(out, "%s\n\"%s\":[", c ? "," : "", t->columns[c]);
        for (size_t i = 0; i < t->n_rows; i++)
            str_addf(out, "%s%lld", i ? "," : "", (long long)t->cells[c * t->n_rows + i]);
        str_add(out, "]");
    }
    str_add(out, "}");
}

/* ---- words ----------------------------------------------------------------------------------- */

static void add_texts(struct str *out, const char *name, const char *const *texts, size_t n)
{
    str_addf(out, ",\n\"%s\":[", name);
    for (size_t i = 0; i < n; i++) {
        str_add(out, i ? "," : "");
        trace_add_string(out, texts[i]);
    }
    str_add(out, "]");
}

static void add_words(struct str *out)
{
    const char *classes[MEMORY_CLASS_COUNT], *purposes[PURPOSE_COUNT];
    const char *tiers[TIER_COUNT], *queues[QUEUE_COUNT];
    for (int i = 0; i < MEMORY_CLASS_COUNT; i++)
        classes[i] = memory_class_name((enum memory_class)i);
    for (int i = 0; i < PURPOSE_COUNT; i++)
        purposes[i] = purpose_text((enum purpose)i);
    for (int i = 0; i < TIER_COUNT; i++)
        tiers[i] = tier_name((enum tier)i);
    for (int i = 0; i < QUEUE_COUNT; i++)
        queues[i] = queue_name((enum queue)i);
    add_texts(out, "classes", classes, MEMORY_CLASS_COUNT);
    add_texts(out, "purposes", purposes, PURPOSE_COUNT);
    add_texts(out, "tiers", tiers, TIER_COUNT);
    add_texts(out, "queues", queues, QUEUE_COUNT);
    str_add(out, ",\n\"stack\":[");
    for (int i = 0; i < MEMORY_CLASS_COUNT; i++)
        str_addf(out, "%s%d", i ? "," : "", (int)timeline_stack[i]);
    str_add(out, "]");
}

/* ---- instructions ---------------------------------------------------------------------------- */

static int64_t in_ns(double seconds)
{
    return isfinite(seconds) && fabs(seconds) < 9e9 ? llround(1e9 * seconds) : 0;
}

struct writer {
    const struct plan_data *d;
    const struct program *p;
    struct names names;
    double *starts, *section_s; /* of predict_starts */
    struct str *out;
};

static void add_sections(struct writer *w)
{
    double start = 0;
    str_add(w->out, ",\n\"sections\":[");
    for (size_t i = 0; i < w->p->sections.n; i++) {
        const struct section *s = &w->p->sections.items[i];
        const char *occasion = section_occasion(w->p, s, w->d->stage->n_micro);
        str_addf(w->out, "%s{\"name\":", i ? "," : "");
        trace_add_string(w->out, s->name);
        str_add(w->out, ",\"occasion\":");
        trace_add_string(w->out, occasion ? occasion : "");
        str_addf(w->out, ",\"first\":%d,\"n\":%d,\"repeats\":%lld,\"start\":%lld,\"ns\":%lld}",
                 (int)s->first, (int)s->n, (long long)section_runs(w->p, s, w->d->stage->n_micro),
                 (long long)in_ns(start), (long long)in_ns(w->section_s[i]));
        start += w->section_s[i];
    }
    str_add(w->out, "]");
}

enum { I_NAME, I_PART, I_QUEUE, I_BLOCK, I_KERNEL, I_START, I_NS, I_MEASURED, I_MEASURED_NS, I_N };
static const char *const instr_columns[I_N] = {
    "name", "part", "queue", "block", "kernel", "start", "ns", "measured_start", "measured_ns"};

static enum status number_of(struct writer *w, const char *text, int64_t *cell)
{
    int32_t number;
    TRY(names_number(&w->names, text, &number));
    *cell = number;
    return OK;
}

/* Events do nothing that could be seen: one name is enough for all of a kind. */
static enum status number_of_instr(struct writer *w, const struct instr *i, int64_t *cell)
{
    if (i->kind == INSTR_RECORD || i->kind == INSTR_WAIT)
        return number_of(w, i->kind == INSTR_WAIT ? "wait for another queue" : "record", cell);
    struct str text = {0};
    instr_add_text(w->p, i, &text);
    enum status status = str_status(&text);
    if (status == OK)
        status = number_of(w, str_text(&text), cell);
    str_release(&text);
    return status;
}

static enum status set_instr(struct writer *w, struct table *t, int32_t at)
{
    const struct instr *i = &w->p->instrs.items[at];
    const struct plan_data *d = w->d;
    bool computes = i->kind == INSTR_COMPUTE;
    int64_t row[I_N] = {
        [I_QUEUE] = (int64_t)i->queue,
        [I_BLOCK] = computes ? graph_node(w->p->graph, i->node)->block : BLOCK_NONE,
        [I_KERNEL] = -1,
        [I_START] = in_ns(w->starts[at]),
        [I_NS] = d->stage->prediction.seconds ? in_ns(d->stage->prediction.seconds[at]) : 0,
        [I_MEASURED] = d->measured ? in_ns(d->measured->start[at]) : 0,
        [I_MEASURED_NS] = d->measured ? in_ns(d->measured->seconds[at]) : 0,
    };
    TRY(number_of_instr(w, i, &row[I_NAME]));
    TRY(number_of(w, instr_part(w->p, i), &row[I_PART]));
    if (computes && i->kernel)
        TRY(number_of(w, i->kernel->name, &row[I_KERNEL]));
    table_set(t, (size_t)at, row);
    return OK;
}

static enum status add_instrs(struct writer *w)
{
    struct table t;
    enum status status = OK;
    TRY(table_init(&t, instr_columns, w->d->measured ? I_N : I_MEASURED, w->p->instrs.n));
    for (int32_t k = 0; (size_t)k < w->p->instrs.n && status == OK; k++)
        status = set_instr(w, &t, k);
    if (status == OK)
        table_print(&t, "instrs", w->out);
    mem_free(t.cells);
    return status;
}

/* ---- buffers --------------------------------------------------------------------------------- */

enum { B_NAME, B_TIER, B_CLASS, B_PURPOSE, B_FIRST, B_LAST, B_OFFSET, B_BYTES, B_INTO, B_N };
static const char *const buffer_columns[B_N] = {"name", "tier",   "class", "purpose", "first",
                                                "last", "offset", "bytes", "into"};

static enum status set_buffer(struct writer *w, struct table *t, size_t i)
{
    const struct buffer *b = &w->p->buffers.items[i];
    int64_t row[B_N] = {
        [B_TIER] = (int64_t)b->tier,
        [B_CLASS] = (int64_t)b->kind,
        [B_PURPOSE] = (int64_t)purpose_of(w->p, &w->d->stage->plan, b),
        [B_FIRST] = b->first,
        [B_LAST] = b->last,
        [B_OFFSET] = b->offset,
        [B_BYTES] = b->n_bytes,
        [B_INTO] = b->merged_into,
    };
    TRY(number_of(w, b->name, &row[B_NAME]));
    table_set(t, i, row);
    return OK;
}

/* Storage that no buffer of this program is. */
static enum status set_reserve(struct writer *w, struct table *t, size_t i_row,
                               const struct storage_entry *e)
{
    int64_t row[B_N] = {
        [B_TIER] = (int64_t)e->tier,
        [B_CLASS] = (int64_t)e->kind,
        [B_PURPOSE] = PURPOSE_RESERVED,
        [B_LAST] = (int64_t)MAX(w->p->instrs.n, (size_t)1) - 1,
        [B_OFFSET] = e->offset,
        [B_BYTES] = e->n_bytes,
        [B_INTO] = -1,
    };
    TRY(number_of(w, e->name, &row[B_NAME]));
    table_set(t, i_row, row);
    return OK;
}

static enum status set_buffers(struct writer *w, struct table *t, bool *has_buffer)
{
    size_t n = w->p->buffers.n;
    for (size_t i = 0; i < n; i++) {
        int32_t stored = w->p->buffers.items[i].storage;
        TRY(set_buffer(w, t, i));
        if (stored >= 0)
            has_buffer[stored] = true;
    }
    for (size_t i = 0; i < w->d->storage->entries.n; i++)
        if (!has_buffer[i])
            TRY(set_reserve(w, t, n++, &w->d->storage->entries.items[i]));
    t->n_rows = n;
    return OK;
}

static size_t count_rows(const struct writer *w)
{
    size_t n = w->p->buffers.n + w->d->storage->entries.n;
    for (size_t i = 0; i < w->p->buffers.n; i++)
        n -= w->p->buffers.items[i].storage >= 0;
    return n;
}

static enum status add_buffers(struct writer *w)
{
    struct table t;
    bool *has_buffer;
    enum status status;
    TRY(mem_try_array(&has_buffer, w->d->storage->entries.n + 1, sizeof(*has_buffer)));
    TRY_GOTO(table_init(&t, buffer_columns, B_N, count_rows(w)), out);
    status = set_buffers(w, &t, has_buffer);
    if (status == OK)
        table_print(&t, "buffers", w->out);
    mem_free(t.cells);
out:
    mem_free(has_buffer);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* A budget bounds more than the arena: what the arena may take of it is what the rest leaves. */
static void add_arenas(struct writer *w)
{
    const struct forecast *f = w->d->forecast;
    const int64_t arenas[TIER_COUNT] = {f->arena_bytes, f->host_bytes, f->disk_bytes};
    str_add(w->out, ",\n\"arenas\":[");
    for (int t = 0; t < TIER_COUNT; t++) {
        int64_t budget = f->budget.n_bytes[t];
        if (budget != INT64_MAX)
            budget = MAX(budget - (f->budget.needs[t] - arenas[t]), (int64_t)0);
        str_addf(w->out, "%s{\"bytes\":%lld,\"lower_bound\":%lld,\"storage\":%lld,\"budget\":",
                 t ? "," : "", (long long)arenas[t], (long long)w->p->lower_bound[t],
                 (long long)w->p->n_storage[t]);
        if (budget == INT64_MAX)
            str_add(w->out, "null,\"whole\":null");
        else
            str_addf(w->out, "%lld,\"whole\":%lld", (long long)budget,
                     (long long)f->budget.n_bytes[t]);
        str_addf(w->out, ",\"given\":%s}", f->budget.given[t] ? "true" : "false");
    }
    str_add(w->out, "]");
}

static enum status add_all(struct writer *w)
{
    TRY(mem_try_array(&w->starts, w->p->instrs.n + 1, sizeof(*w->starts)));
    TRY(mem_try_array(&w->section_s, w->p->sections.n + 1, sizeof(*w->section_s)));
    TRY(predict_starts(&w->d->stage->prediction, w->p, w->d->device, w->starts, w->section_s));
    str_add(w->out, "{\"program\":");
    trace_add_string(w->out, w->p->name);
    add_words(w->out);
    add_arenas(w);
    add_sections(w);
    TRY(add_instrs(w));
    TRY(add_buffers(w));
    add_texts(w->out, "names", w->names.texts.items, w->names.texts.n);
    str_add(w->out, "}");
    return str_status(w->out);
}

enum status plan_data_add(const struct plan_data *d, struct str *out)
{
    struct writer w = {.d = d, .p = d->stage->program, .out = out};
    enum status status = add_all(&w);
    names_release(&w.names);
    mem_free(w.starts);
    mem_free(w.section_s);
    return status;
}
