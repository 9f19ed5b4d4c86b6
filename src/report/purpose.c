#include "report/purpose.h"

const char *purpose_text(enum purpose x)
{
    static const char *const texts[PURPOSE_COUNT] = {
        [PURPOSE_HOME] = "at home on the device from step to step",
        [PURPOSE_AWAY] = "at home here to leave room on the device; fetched for each use",
        [PURPOSE_RESERVED] = "reserved for the whole run, beside the step",
        [PURPOSE_CARRIED] = "carried over the micro-steps of a step",
        [PURPOSE_PORT] = "where the host puts inputs and finds outputs",
        [PURPOSE_INPUT] = "an input, copied from the host",
        [PURPOSE_FETCHED] = "fetched from its home in another memory for the next instructions",
        [PURPOSE_RETURNED] = "back from the host, where it was while nothing read it",
        [PURPOSE_MOVED] = "moved off the device while nothing reads it",
        [PURPOSE_LEAVING] = "leaves for the host after its last use for now",
        [PURPOSE_AGAIN] = "made a second time: it was dropped after the forward pass",
        [PURPOSE_DROPPED] = "dropped after its last use in the forward pass; made again later",
        [PURPOSE_SAVED] = "kept from the forward pass until the backward pass has read it",
        [PURPOSE_GRADIENT] = "a gradient, until its update has read it",
        [PURPOSE_PASSING] = "handed from one instruction to the next ones",
        [PURPOSE_LOGITS] = "room for a part of the logits: all of them never exist at once",
        [PURPOSE_WORKSPACE] = "scratch memory of one kernel",
    };
    return texts[x];
}

/* A value without a producer: what exists before the step, or comes from outside. */
static enum purpose of_root(const struct buffer *b, const struct value *v)
{
    if (v->role == ROLE_INPUT)
        return b->tier == TIER_DEVICE ? PURPOSE_INPUT : PURPOSE_PORT;
    return b->tier == TIER_DEVICE ? PURPOSE_FETCHED : PURPOSE_AWAY;
}

static enum purpose of_forward(const struct plan *plan, value_id v)
{
    static const enum purpose treated[] = {[KEEP] = PURPOSE_PASSING,
                                           [RECOMPUTE] = PURPOSE_DROPPED,
                                           [MOVE] = PURPOSE_LEAVING,
                                           [FORM] = PURPOSE_PASSING};
    if (plan->treat[v] == KEEP && plan->facts[v].first_backward != NODE_NONE)
        return PURPOSE_SAVED;
    return treated[plan->treat[v]];
}

static enum purpose of_computed(const struct program *p, const struct plan *plan,
                                const struct buffer *b)
{
    const struct value *v = graph_value(p->graph, b->value);
    bool fetched = p->instrs.items[b->first].kind == INSTR_COPY;
    if (b->tier != TIER_DEVICE)
        return b->kind == MEMORY_STAGING ? PURPOSE_PORT : PURPOSE_MOVED;
    if (fetched)
        return PURPOSE_RETURNED;
    if (b->kind == MEMORY_RECOMPUTE)
        return PURPOSE_AGAIN;
    if (graph_node(p->graph, v->producer)->pass == PASS_FORWARD)
        return of_forward(plan, value_view_root(p->graph, b->value));
    return b->kind == MEMORY_GRADIENTS ? PURPOSE_GRADIENT : PURPOSE_PASSING;
}

enum purpose purpose_of(const struct program *p, const struct plan *plan, const struct buffer *b)
{
    if (b->storage >= 0)
        return b->tier == TIER_DEVICE ? PURPOSE_HOME : PURPOSE_AWAY;
    if (b->carried)
        return PURPOSE_CARRIED;
    if (b->value == VALUE_NONE)
        return b->kind == MEMORY_LOGITS ? PURPOSE_LOGITS : PURPOSE_WORKSPACE;
    const struct value *v = graph_value(p->graph, b->value);
    return v->producer == NODE_NONE ? of_root(b, v) : of_computed(p, plan, b);
}
