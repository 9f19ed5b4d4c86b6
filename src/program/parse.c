/* parse.c: the text form of print.c back into a program.
 *
 * Only the form is judged here: names of tiers, queues, classes, ops and kernels, numbers that fit.
 * Whether the program means anything is for program_check to say.
 */
#include <string.h>

#include "graph/text.h"
#include "program/emit.h"

struct reader {
    struct text t;
    struct program *p;
    const struct device *device;
    struct str word; /* scratch */
};

static enum status read_int(struct reader *r, int64_t low, int64_t high, int64_t *value)
{
    struct text_place place = text_here(&r->t);
    TRY(text_int(&r->t, value));
    if (*value < low || *value > high)
        return TEXT_FAIL_AT(place, "%lld is not between %lld and %lld", (long long)*value,
                            (long long)low, (long long)high);
    return OK;
}

static enum status read_int32(struct reader *r, int32_t *value)
{
    int64_t wide;
    TRY(read_int(r, 0, INT32_MAX, &wide));
    *value = (int32_t)wide;
    return OK;
}

/* A quoted name, kept in the program's pool. */
static enum status read_name(struct reader *r, const char **name)
{
    str_clear(&r->word);
    TRY(text_quoted(&r->t, &r->word));
    *name = pool_strdup(&r->p->pool, str_text(&r->word));
    return pool_status(&r->p->pool);
}

static enum status need_word(struct reader *r, const char *word)
{
    return text_take_word(&r->t, word) ? OK : TEXT_FAIL(&r->t, "expected '%s' here", word);
}

static enum status read_tier(struct reader *r, enum tier *tier)
{
    for (int t = 0; t < TIER_COUNT; t++) {
        if (text_take_word(&r->t, tier_name((enum tier)t))) {
            *tier = (enum tier)t;
            return OK;
        }
    }
    return TEXT_FAIL(&r->t, "expected a tier (device, host, disk) here");
}

/* "device+4096:512" */
static enum status read_place(struct reader *r, enum tier *tier, int64_t *offset, int64_t *n_bytes)
{
    TRY(read_tier(r, tier));
    TRY(text_need(&r->t, "+"));
    TRY(read_int(r, 0, INT64_MAX / 2, offset));
    TRY(text_need(&r->t, ":"));
    return read_int(r, 0, INT64_MAX / 2, n_bytes);
}

/* "from 1024", or nothing */
static enum status read_value_at(struct reader *r, int64_t *value_at)
{
    return text_take_word(&r->t, "from") ? read_int(r, 0, INT64_MAX / 2, value_at) : OK;
}

/* ---- head ------------------------------------------------------------------------------------ */

static enum status read_tiers(struct reader *r)
{
    for (int t = 0; t < TIER_COUNT; t++) {
        const char *method;
        TRY(need_word(r, tier_name((enum tier)t)));
        TRY(read_int(r, 0, INT64_MAX / 2, &r->p->n_bytes[t]));
        TRY(need_word(r, "lower"));
        TRY(read_int(r, 0, INT64_MAX / 2, &r->p->lower_bound[t]));
        TRY(need_word(r, "storage"));
        TRY(read_int(r, 0, INT64_MAX / 2, &r->p->n_storage[t]));
        TRY(need_word(r, "method"));
        TRY(read_name(r, &method));
        r->p->layout_method[t] = method;
    }
    return OK;
}

static enum status read_class(struct reader *r, enum memory_class *kind)
{
    for (int c = 0; c < MEMORY_CLASS_COUNT; c++) {
        if (text_take_word(&r->t, memory_class_name((enum memory_class)c))) {
            *kind = (enum memory_class)c;
            return OK;
        }
    }
    return TEXT_FAIL(&r->t, "expected what the memory is for (weights, gradients, ...) here");
}

static enum status read_buffer(struct reader *r)
{
    struct buffer b = {.storage = -1, .merged_into = -1, .value = VALUE_NONE};
    struct text_place place = text_here(&r->t);
    int32_t index;
    TRY(read_int32(r, &index));
    if ((size_t)index != r->p->buffers.n)
        return TEXT_FAIL_AT(place, "buffer %d stands where buffer %zu should", index,
                            r->p->buffers.n);
    TRY(read_name(r, &b.name));
    TRY(read_class(r, &b.kind));
    TRY(read_place(r, &b.tier, &b.offset, &b.n_bytes));
    TRY(need_word(r, "life"));
    TRY(read_int32(r, &b.first));
    TRY(need_word(r, "to"));
    TRY(read_int32(r, &b.last));
    if (text_take_word(&r->t, "storage"))
        TRY(read_int32(r, &b.storage));
    if (text_take_word(&r->t, "into"))
        TRY(read_int32(r, &b.merged_into));
    if (text_take_word(&r->t, "value"))
        TRY(read_int32(r, &b.value));
    TRY(read_value_at(r, &b.value_at));
    b.carried = text_take_word(&r->t, "carried");
    return vec_push(&r->p->buffers, b);
}

static enum status read_port(struct reader *r, bool input)
{
    struct port x = {0};
    TRY(read_name(r, &x.name));
    TRY(need_word(r, "value"));
    TRY(read_int32(r, &x.value));
    TRY(need_word(r, "buffer"));
    struct text_place place = text_here(&r->t);
    TRY(read_int32(r, &x.buffer));
    if ((size_t)x.buffer >= r->p->buffers.n)
        return TEXT_FAIL_AT(place, "there is no buffer %d", x.buffer);
    x.n_bytes = r->p->buffers.items[x.buffer].n_bytes;
    x.offset = r->p->buffers.items[x.buffer].offset;
    return input ? vec_push(&r->p->inputs, x) : vec_push(&r->p->outputs, x);
}

/* ---- instructions ---------------------------------------------------------------------------- */

static enum status read_operand(struct reader *r)
{
    struct operand o = {.buffer = -1, .value = VALUE_NONE};
    if (text_take_word(&r->t, "_"))
        return vec_push(&r->p->operands, o);
    if (text_take_word(&r->t, "read"))
        o.access = ACCESS_READ;
    else if (text_take_word(&r->t, "write"))
        o.access = ACCESS_WRITE;
    else
        return TEXT_FAIL(&r->t, "expected 'read', 'write' or '_' here");
    TRY(read_int32(r, &o.buffer));
    if (text_take_word(&r->t, "value"))
        TRY(read_int32(r, &o.value));
    TRY(read_value_at(r, &o.value_at));
    TRY(read_place(r, &o.tier, &o.offset, &o.n_bytes));
    return vec_push(&r->p->operands, o);
}

static enum status read_operands(struct reader *r, struct instr *i)
{
    i->first_operand = (int32_t)r->p->operands.n;
    TRY(text_need(&r->t, "("));
    if (text_take(&r->t, ")"))
        return OK;
    do {
        TRY(read_operand(r));
        i->n_operands++;
    } while (text_take(&r->t, ","));
    return text_need(&r->t, ")");
}

static enum status find_kernel(struct reader *r, enum op_id op, struct instr *i)
{
    struct text_place place = text_here(&r->t);
    const char *name;
    TRY(read_name(r, &name));
    const struct kernel *k = r->device->ops->kernels(op);
    for (; k && k->name; k++) {
        if (strcmp(k->name, name) == 0) {
            i->kernel = k;
            return OK;
        }
    }
    return TEXT_FAIL_AT(place, "%s has no kernel '%s' on %s", op_get(op)->name, name,
                        r->device->ops->name);
}

static enum status read_compute(struct reader *r, struct instr *i)
{
    i->kind = INSTR_COMPUTE;
    TRY(need_word(r, "node"));
    struct text_place place = text_here(&r->t);
    TRY(read_int32(r, &i->node));
    if ((size_t)i->node >= r->p->graph->nodes.n)
        return TEXT_FAIL_AT(place, "the graph has no node %d", i->node);
    enum op_id op = graph_node(r->p->graph, i->node)->op;
    const char *name;
    TRY(read_name(r, &name));
    if (strcmp(name, op_get(op)->name) != 0)
        return TEXT_FAIL_AT(place, "node %d is '%s', not '%s'", i->node, op_get(op)->name, name);
    if (text_take_word(&r->t, "slice")) {
        TRY(read_int(r, 0, INT64_MAX / 2, &i->slice.first));
        TRY(text_need(&r->t, ":"));
        TRY(read_int(r, 1, INT64_MAX / 2, &i->slice.n));
    }
    TRY(need_word(r, "kernel"));
    TRY(find_kernel(r, op, i));
    i->has_workspace = text_take_word(&r->t, "workspace");
    return read_operands(r, i);
}

static enum status read_queue(struct reader *r, enum queue *queue)
{
    for (int q = 0; q < QUEUE_COUNT; q++) {
        if (text_take_word(&r->t, queue_name((enum queue)q))) {
            *queue = (enum queue)q;
            return OK;
        }
    }
    return TEXT_FAIL(&r->t, "expected a queue (compute, in, out, disk, comm) here");
}

static enum status read_instr(struct reader *r)
{
    struct instr i = {.node = NODE_NONE};
    TRY(read_queue(r, &i.queue));
    if (text_take_word(&r->t, "run")) {
        TRY(read_compute(r, &i));
    } else if (text_take_word(&r->t, "again")) {
        i.recompute = true;
        TRY(read_compute(r, &i));
    } else if (text_take_word(&r->t, "copy")) {
        i.kind = INSTR_COPY;
        TRY(read_operands(r, &i));
    } else if (text_take_word(&r->t, "record")) {
        i.kind = INSTR_RECORD;
        TRY(read_int32(r, &i.event));
    } else if (text_take_word(&r->t, "wait")) {
        i.kind = INSTR_WAIT;
        TRY(read_int32(r, &i.event));
    } else {
        return TEXT_FAIL(&r->t, "expected run, again, copy, record or wait here");
    }
    return vec_push(&r->p->instrs, i);
}

static enum status read_section(struct reader *r)
{
    struct section s = {.first = (int32_t)r->p->instrs.n};
    TRY(read_name(r, &s.name));
    TRY(text_need(&r->t, "{"));
    while (!text_take(&r->t, "}"))
        TRY(read_instr(r));
    s.n = (int32_t)r->p->instrs.n - s.first;
    return vec_push(&r->p->sections, s);
}

static enum status read_program(struct reader *r)
{
    TRY(need_word(r, "program"));
    TRY(read_name(r, &r->p->name));
    TRY(text_need(&r->t, "{"));
    TRY(need_word(r, "threads"));
    int64_t n_threads;
    TRY(read_int(r, 1, 4096, &n_threads));
    r->p->env.n_threads = (int)n_threads;
    TRY(need_word(r, "events"));
    TRY(read_int32(r, &r->p->n_events));
    TRY(read_tiers(r));
    while (text_take_word(&r->t, "buffer"))
        TRY(read_buffer(r));
    while (text_take_word(&r->t, "input"))
        TRY(read_port(r, true));
    while (text_take_word(&r->t, "output"))
        TRY(read_port(r, false));
    while (text_take_word(&r->t, "section"))
        TRY(read_section(r));
    TRY(text_need(&r->t, "}"));
    return text_at_end(&r->t) ? OK : TEXT_FAIL(&r->t, "nothing may follow the program");
}

enum status program_parse(struct program **out, const char *text, const struct graph *g,
                          const struct device *device)
{
    *out = NULL;
    struct program *p = mem_calloc(1, sizeof(*p));
    if (!p)
        return FAIL(ERR_MEMORY, "out of memory for a program");
    pool_init(&p->pool);
    p->graph = g;
    p->env = device->env;
    struct reader r = {.p = p, .device = device};
    text_init(&r.t, text);
    enum status status = read_program(&r);
    str_release(&r.word);
    if (status != OK)
        program_free(p);
    else
        *out = p;
    return status;
}
