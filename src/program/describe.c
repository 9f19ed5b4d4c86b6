/* describe.c: instructions in words, for reports. */
#include "program/program.h"

/* What an instruction is about: a parameter it reads, or else the value it makes. */
static const char *subject_of(const struct graph *g, const struct node *n)
{
    for (int k = 0; k < n->n_in; k++) {
        if (n->in[k] == VALUE_NONE)
            continue;
        const struct value *v = graph_value(g, n->in[k]);
        if (role_is_parameter(v->role) && v->name[0])
            return v->name;
    }
    for (int k = 0; k < n->n_out; k++) {
        if (graph_value(g, n->out[k])->name[0])
            return graph_value(g, n->out[k])->name;
    }
    return "";
}

void instr_add_text(const struct program *p, const struct instr *i, struct str *out)
{
    if (i->kind == INSTR_WAIT || i->kind == INSTR_RECORD) {
        str_addf(out, "%s event %d", i->kind == INSTR_WAIT ? "wait for" : "record", i->event);
        return;
    }
    if (i->kind == INSTR_COPY) {
        const struct operand *o = &p->operands.items[i->first_operand];
        str_addf(out, "copy %s", p->buffers.items[o[0].buffer].name);
        return;
    }
    const struct node *n = graph_node(p->graph, i->node);
    const char *subject = subject_of(p->graph, n);
    str_addf(out, "%s%s%s%s", op_get(n->op)->name, i->recompute ? " again" : "",
             *subject ? " " : "", subject);
}

const char *instr_part(const struct program *p, const struct instr *i)
{
    if (i->kind != INSTR_COMPUTE)
        return queue_name(i->queue);
    return i->recompute ? "recompute" : pass_name(graph_node(p->graph, i->node)->pass);
}
