/* sections.c: the parts of a step, and what memory holds between them.
 *
 * A root without a producer (a parameter, a state, an accumulator) is overwritten by updates one
 * after the other: v0, the root itself, then v1, v2, ... Between sections its memory holds the
 * newest of these that the passes so far have made. That follows from the graph alone, so the
 * simulator can hold any program against it.
 *
 * Of several micro-steps the last one is a section of its own: there each sum over them is complete
 * where its last term is added, and its update runs right behind, beside the backward pass.
 *
 * Micro-batches may run in groups (plan/group.h): then a section is a group's, the last one too.
 * The first micro-batch of the graph's group also has a section for itself, in which it is any:
 * what it adds to is called by the same name, whatever is in it so far.
 *
 * Where all updates wait for the norm of the gradients they can be deferred: into the next step,
 * each right before what it updates is read. Then the gradients are carried from one step to the
 * next, and the newest version of a root is, where it is made, v0 of the step that begins.
 */
#include <string.h>

#include "plan/group.h"
#include "program/emit.h"

#define PASS_BIT(p) (1u << (p))
#define MICRO_STEP  (PASS_BIT(PASS_FORWARD) | PASS_BIT(PASS_BACKWARD))
#define UPDATE      PASS_BIT(PASS_UPDATE)

static const struct section_rule forward_only[] = {
    {.name = "forward", .passes = ~0u, .ends = true},
    {.name = NULL},
};
static const struct section_rule whole_step[] = {
    {.name = "step", .passes = ~0u, .ends = true},
    {.name = NULL},
};
static const struct section_rule micro_steps[] = {
    {.name = "begin", .passes = PASS_BIT(PASS_BEGIN), .carries = true},
    {.name = "micro", .before = PASS_BIT(PASS_BEGIN), .passes = MICRO_STEP, .carries = true},
    {.name = "last", .before = PASS_BIT(PASS_BEGIN), .passes = ~PASS_BIT(PASS_BEGIN), .ends = true},
    {.name = NULL},
};
/* In groups: what is left over, and all of a step that has too few for a group, goes one at a time.
 * A node is first met in the section where it usually runs. */
#define BEGIN                                                            \
    {                                                                    \
        .name = "begin", .passes = PASS_BIT(PASS_BEGIN), .carries = true \
    }
#define LAST                                                                             \
    {                                                                                    \
        .name = "last", .before = PASS_BIT(PASS_BEGIN), .passes = ~PASS_BIT(PASS_BEGIN), \
        .ends = true                                                                     \
    }
#define ALONE                                                                                 \
    {                                                                                         \
        .name = "micro", .before = PASS_BIT(PASS_BEGIN), .passes = MICRO_STEP, .alone = true, \
        .carries = true                                                                       \
    }
#define UPDATES                                                        \
    {                                                                  \
        .name = "update", .before = PASS_BIT(PASS_BEGIN) | MICRO_STEP, \
        .passes = PASS_BIT(PASS_NORM) | UPDATE, .ends = true           \
    }
static const struct section_rule one_group[] = {
    {.name = "step", .passes = ~0u, .ends = true}, BEGIN, ALONE, UPDATES, {.name = NULL},
};
static const struct section_rule group_and_rest[] = {
    BEGIN, LAST, ALONE, UPDATES, {.name = NULL},
};
static const struct section_rule groups[] = {
    BEGIN,
    {.name = "group", .before = PASS_BIT(PASS_BEGIN), .passes = MICRO_STEP, .carries = true},
    LAST,
    ALONE,
    UPDATES,
    {.name = NULL},
};
static const struct section_rule deferred[] = {
    {.name = "first", .passes = ~UPDATE, .carries = true, .ends = true},
    {.name = "step", .passes = ~UPDATE, .late = UPDATE, .carries = true, .ends = true},
    {.name = "finish", .late = UPDATE},
    {.name = NULL},
};

const struct section_rule *section_rules(const struct graph *g, const struct plan *plan)
{
    bool trains = false;
    for (node_id k = 0; (size_t)k < g->nodes.n; k++)
        trains |= graph_node(g, k)->pass != PASS_FORWARD;
    if (!trains)
        return forward_only;
    int group = group_size(g);
    if (group > 1 && plan->n_micro == group)
        return one_group;
    if (group > 1)
        return plan->n_micro < 2 * group ? group_and_rest : groups;
    if (plan->n_micro > 1)
        return micro_steps;
    return plan->defer_updates ? deferred : whole_step;
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
    const struct section_rule *const known[] = {whole_step, forward_only,   micro_steps, deferred,
                                                one_group,  group_and_rest, groups};
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (matches(p, known[i]))
            return known[i];
    }
    return NULL;
}

/* Of a step that is one group, and of a program that defers updates, the others are exceptions. */
static bool is_exception(const struct program *p, const char *name)
{
    bool whole = program_section(p, "step") != NULL;
    return strcmp(name, "update") == 0 || (whole && strcmp(name, "step") != 0);
}

int64_t section_runs(const struct program *p, const struct section *s, int64_t n_micro)
{
    int64_t size = group_size(p->graph);
    bool alone = strcmp(s->name, "micro") == 0;
    if (is_exception(p, s->name))
        return 0;
    if (size > 1 && alone)
        return n_micro % size;
    return alone || strcmp(s->name, "group") == 0 ? n_micro / size - 1 : 1;
}

const char *section_occasion(const struct program *p, const struct section *s, int64_t n_micro)
{
    if (section_runs(p, s, n_micro) > 0)
        return NULL;
    if (strcmp(s->name, "first") == 0)
        return "first step";
    return strcmp(s->name, "finish") == 0 ? "last updates" : "fewer micro-batches";
}

bool section_has(const struct section_rule *r, const struct node *n)
{
    return (r->passes >> n->pass & 1u) && !(r->alone && n->micro > 0);
}

const struct section *section_at(const struct program *p, int32_t instr)
{
    size_t s = 0;
    while (s + 1 < p->sections.n && p->sections.items[s + 1].first <= instr)
        s++;
    return &p->sections.items[s];
}

void section_held(const struct graph *g, const value_id *root, uint32_t passes, bool alone,
                  value_id *held)
{
    for (value_id v = 0; (size_t)v < g->values.n; v++)
        held[v] = v;
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        bool behind = (passes >> n->pass & 1u) && !(alone && n->micro > 0);
        for (int i = 0; behind && i < n->n_out; i++) {
            const struct alias_rule *a = node_alias(n, i);
            if (a && a->kind == ALIAS_UPDATE)
                held[root[n->out[i]]] = n->out[i];
        }
    }
}

void section_carried(const struct graph *g, const struct section_rule *rules, bool *carried)
{
    uint32_t late = 0;
    for (const struct section_rule *r = rules; r->name; r++)
        late |= r->late;
    for (value_id v = 0; (size_t)v < g->values.n; v++)
        carried[v] = false;
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        for (int i = 0; (late >> n->pass & 1u) && i < n->n_in; i++) {
            value_id root = n->in[i] == VALUE_NONE ? VALUE_NONE : value_root(g, n->in[i]);
            node_id producer = root == VALUE_NONE ? NODE_NONE : graph_value(g, root)->producer;
            if (producer != NODE_NONE && !(late >> graph_node(g, producer)->pass & 1u))
                carried[root] = true;
        }
    }
}
