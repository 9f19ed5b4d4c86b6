/* merge.c: in-place reuse.
 *
 * Where an op allows its output to take an input's memory, the input dies at that instruction and
 * the sizes agree, the two buffers become one. Decided after emission, when lifetimes are known.
 */
#include "program/emit.h"

/* How many of the instruction's operands live in buffer b: its inputs, and outputs that took an
 * input's memory before. */
static int operands_in(const struct program *p, const struct instr *i, int n_operands, int32_t b)
{
    int n = 0;
    for (int k = 0; k < n_operands; k++) {
        int32_t other = p->operands.items[i->first_operand + k].buffer;
        n += other >= 0 && buffer_root(p, other) == b;
    }
    return n;
}

static void try_merge(struct program *p, int32_t at, const struct alias_rule *rule)
{
    const struct instr *i = &p->instrs.items[at];
    const struct node *n = graph_node(p->graph, i->node);
    if (rule->in >= n->n_in || n->in[rule->in] == VALUE_NONE)
        return;
    int32_t out = p->operands.items[i->first_operand + n->n_in + rule->out].buffer;
    int32_t in = buffer_root(p, p->operands.items[i->first_operand + rule->in].buffer);
    struct buffer *from = &p->buffers.items[in], *to = &p->buffers.items[out];
    bool free_to_merge = from->storage < 0 && !from->carried && to->storage < 0 && !to->carried &&
                         to->merged_into < 0 && in != out;
    if (!free_to_merge || from->last != at || to->first != at || from->n_bytes != to->n_bytes ||
        operands_in(p, i, n->n_in + n->n_out, in) != 1)
        return;
    to->merged_into = in;
    from->last = to->last;
}

enum status merge_in_place(struct program *p)
{
    for (int32_t at = 0; (size_t)at < p->instrs.n; at++) {
        const struct instr *i = &p->instrs.items[at];
        if (i->kind != INSTR_COMPUTE)
            continue;
        const struct alias_rule *a = op_get(graph_node(p->graph, i->node)->op)->aliases;
        for (; a && a->kind != ALIAS_NONE; a++) {
            if (a->kind == ALIAS_MAY)
                try_merge(p, at, a);
        }
    }
    return OK;
}
