/* sections.c: the parts of a step, and what memory holds between them.
 *
 * A root without a producer (a parameter, a state, an accumulator) is overwritten by updates one
 * after the other: v0, the root itself, then v1, v2, ... Between sections its memory holds the
 * newest of these that the passes so far have made. That follows from the graph alone, so the
 * simulator can hold any program against it.
 *
 * Of several micro-steps the last one is a section of its own: there each sum over them is complete
 * where its last term is added, and its update runs right behind, beside the backward pass.
 */
#include <string.h>

#include "program/emit.h"

#define PASS_BIT(p) (1u << (p))

#define MICRO_STEP (PASS_BIT(PASS_FORWARD) | PASS_BIT(PASS_BACKWARD))

static const struct section_rule whole_step[] = {{"step", 0, ~0u}, {NULL, 0, 0}};
static const struct section_rule forward_only[] = {{"forward", 0, ~0u}, {NULL, 0, 0}};
static const struct section_rule micro_steps[] = {
    {"begin", 0, PASS_BIT(PASS_BEGIN)},
    {"micro", PASS_BIT(PASS_BEGIN), MICRO_STEP},
    {"last", PASS_BIT(PASS_BEGIN), MICRO_STEP | PASS_BIT(PASS_UPDATE)},
    {NULL, 0, 0},
};

const struct section_rule *section_rules(const struct graph *g, int64_t n_micro)
{
    bool trains = false;
    for (node_id k = 0; (size_t)k < g->nodes.n; k++)
        trains |= graph_node(g, k)->pass != PASS_FORWARD;
    if (!trains)
        return forward_only;
    return n_micro > 1 ? micro_steps : whole_step;
}

static bool matches(const struct program *p, const struct section_rule *rules)
{
    int32_t next = 0;
    size_t n = 0;
    for (; rules[n].name; n++) {
        if (n >= p->sections.n)
            return false;
        const struct section *x = &p->sections.items[n];
        if (strcmp(x->name, rules[n].name) != 0 || x->first != next || x->n < 0 ||
            x->n > INT32_MAX - next)
            return false;
        next += x->n;
    }
    return n == p->sections.n && (size_t)next == p->instrs.n;
}

const struct section_rule *section_rules_of(const struct program *p)
{
    const struct section_rule *const known[] = {whole_step, forward_only, micro_steps};
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (matches(p, known[i]))
            return known[i];
    }
    return NULL;
}

void section_held(const struct graph *g, uint32_t passes, value_id *held)
{
    for (value_id v = 0; (size_t)v < g->values.n; v++)
        held[v] = v;
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        for (int i = 0; (passes >> n->pass & 1u) && i < n->n_out; i++) {
            const struct alias_rule *a = node_alias(n, i);
            value_id root = value_root(g, n->out[i]);
            if (a && a->kind == ALIAS_UPDATE && graph_value(g, root)->producer == NODE_NONE)
                held[root] = n->out[i];
        }
    }
}

int64_t section_runs(const struct section *s, int64_t n_micro)
{
    return strcmp(s->name, "micro") == 0 ? n_micro - 1 : 1;
}
