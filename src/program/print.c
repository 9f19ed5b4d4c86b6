/* print.c: a program as text, complete enough to be read back over the same graph (parse.c):
 *
 *     program "train" {
 *       threads 2
 *       events 12
 *       device 8192 lower 7936 storage 4096 method "size"
 *       buffer 0 "wte" weights device+0:4096 life 0 to 97 storage 0 value 3
 *       buffer 7 "0.gelu" activations device+4096:512 life 3 to 8 into 5 value 21
 *       input "tokens" value 0 buffer 40
 *       output "loss" value 55 buffer 41
 *       section "step" {
 *         compute run node 4 "linear" kernel "gemm" (read 12 value 9 device+4608:512, _, write ...)
 *         compute run node 8 "sgd" slice 64:128 kernel "blocked" (read 13 value 3 from 256 ...)
 *         in copy (read 40 value 0 host+0:64, write 41 value 0 device+4096:64)
 *         out wait 3
 *       }
 *     }
 *
 * Op names and node numbers both stand there: the name is for people, and checked.
 */
#include "graph/text.h"
#include "program/emit.h"

static void add_place(struct str *out, enum tier tier, int64_t offset, int64_t n_bytes)
{
    str_addf(out, "%s+%lld:%lld", tier_name(tier), (long long)offset, (long long)n_bytes);
}

static void add_tiers(const struct program *p, struct str *out)
{
    for (int t = 0; t < TIER_COUNT; t++) {
        str_addf(out, "  %s %lld lower %lld storage %lld method ", tier_name((enum tier)t),
                 (long long)p->n_bytes[t], (long long)p->lower_bound[t],
                 (long long)p->n_storage[t]);
        text_add_quoted(out, p->layout_method[t] ? p->layout_method[t] : "");
        str_add(out, "\n");
    }
}

static void add_buffer(const struct program *p, size_t i, struct str *out)
{
    const struct buffer *b = &p->buffers.items[i];
    str_addf(out, "  buffer %zu ", i);
    text_add_quoted(out, b->name);
    str_addf(out, " %s ", memory_class_name(b->kind));
    add_place(out, b->tier, b->offset, b->n_bytes);
    str_addf(out, " life %d to %d", b->first, b->last);
    if (b->storage >= 0)
        str_addf(out, " storage %d", b->storage);
    if (b->merged_into >= 0)
        str_addf(out, " into %d", b->merged_into);
    if (b->value != VALUE_NONE)
        str_addf(out, " value %d", b->value);
    if (b->value_at > 0)
        str_addf(out, " from %lld", (long long)b->value_at);
    str_add(out, b->carried ? " carried\n" : "\n");
}

static void add_port(const char *direction, const struct port *x, struct str *out)
{
    str_addf(out, "  %s ", direction);
    text_add_quoted(out, x->name);
    str_addf(out, " value %d buffer %d\n", x->value, x->buffer);
}

static void add_operand(const struct operand *o, struct str *out)
{
    if (o->access == ACCESS_NONE) {
        str_add(out, "_");
        return;
    }
    str_addf(out, "%s %d ", o->access == ACCESS_READ ? "read" : "write", o->buffer);
    if (o->value != VALUE_NONE)
        str_addf(out, "value %d ", o->value);
    if (o->value_at > 0)
        str_addf(out, "from %lld ", (long long)o->value_at);
    add_place(out, o->tier, o->offset, o->n_bytes);
}

static void add_operands(const struct program *p, const struct instr *i, struct str *out)
{
    str_add(out, " (");
    for (int32_t k = 0; k < i->n_operands; k++) {
        str_add(out, k ? ", " : "");
        add_operand(&p->operands.items[i->first_operand + k], out);
    }
    str_add(out, ")\n");
}

static void add_instr(const struct program *p, const struct instr *i, struct str *out)
{
    str_addf(out, "    %s ", queue_name(i->queue));
    switch (i->kind) {
    case INSTR_COMPUTE:
        str_addf(out, "%s node %d \"%s\" ", i->recompute ? "again" : "run", i->node,
                 op_get(graph_node(p->graph, i->node)->op)->name);
        if (i->slice.n > 0)
            str_addf(out, "slice %lld:%lld ", (long long)i->slice.first, (long long)i->slice.n);
        str_add(out, "kernel ");
        text_add_quoted(out, i->kernel->name);
        str_add(out, i->has_workspace ? " workspace" : "");
        add_operands(p, i, out);
        break;
    case INSTR_COPY:
        str_add(out, "copy");
        add_operands(p, i, out);
        break;
    case INSTR_RECORD:
        str_addf(out, "record %d\n", i->event);
        break;
    case INSTR_WAIT:
        str_addf(out, "wait %d\n", i->event);
        break;
    }
}

enum status program_print(const struct program *p, struct str *out)
{
    str_add(out, "program ");
    text_add_quoted(out, p->name);
    str_addf(out, " {\n  threads %d\n  events %d\n", p->env.n_threads, p->n_events);
    add_tiers(p, out);
    for (size_t i = 0; i < p->buffers.n; i++)
        add_buffer(p, i, out);
    for (size_t i = 0; i < p->inputs.n; i++)
        add_port("input", &p->inputs.items[i], out);
    for (size_t i = 0; i < p->outputs.n; i++)
        add_port("output", &p->outputs.items[i], out);
    for (size_t x = 0; x < p->sections.n; x++) {
        const struct section *s = &p->sections.items[x];
        str_add(out, "  section ");
        text_add_quoted(out, s->name);
        str_add(out, " {\n");
        for (int32_t k = s->first; k < s->first + s->n; k++)
            add_instr(p, &p->instrs.items[k], out);
        str_add(out, "  }\n");
    }
    str_add(out, "}\n");
    return str_status(out);
}
