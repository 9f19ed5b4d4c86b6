#include "program/emit.h"

enum memory_class emit_class(const struct emitter *e, value_id root, bool recomputed)
{
    static const enum memory_class by_role[ROLE_COUNT] = {
        [ROLE_ACTIVATION] = MEMORY_ACTIVATIONS, [ROLE_GRADIENT] = MEMORY_GRADIENTS,
        [ROLE_INPUT] = MEMORY_STAGING,          [ROLE_PARAMETER] = MEMORY_WEIGHTS,
        [ROLE_FROZEN] = MEMORY_FROZEN,          [ROLE_MASTER] = MEMORY_MASTERS,
        [ROLE_STATE] = MEMORY_OPTIMIZER,        [ROLE_CONSTANT] = MEMORY_WEIGHTS,
        [ROLE_METRIC] = MEMORY_WORKSPACE,
    };
    if (e->gradient[root])
        return MEMORY_GRADIENTS;
    return recomputed ? MEMORY_RECOMPUTE : by_role[graph_value(e->g, root)->role];
}

enum status emit_buffer(struct emitter *e, const char *name, enum memory_class kind, enum tier tier,
                        int64_t n_bytes, value_id value, int32_t *out)
{
    struct buffer b = {.name = name,
                       .kind = kind,
                       .tier = tier,
                       .n_bytes = n_bytes,
                       .first = INT32_MAX,
                       .last = -1,
                       .storage = -1,
                       .merged_into = -1,
                       .value = value};
    TRY(vec_push(&e->p->buffers, b));
    *out = (int32_t)e->p->buffers.n - 1;
    return OK;
}

enum status emit_operand(struct emitter *e, int32_t buffer, enum access access, value_id value)
{
    struct byte_range all = {0};
    if (buffer >= 0)
        all.n_bytes = value == VALUE_NONE ? e->p->buffers.items[buffer].n_bytes : e->n_bytes[value];
    return emit_operand_range(e, buffer, access, value, all);
}

/* Operands are pushed before their instruction, so the next index is theirs. */
enum status emit_operand_range(struct emitter *e, int32_t buffer, enum access access,
                               value_id value, struct byte_range range)
{
    struct operand o = {.buffer = buffer, .access = access, .value = value};
    if (buffer >= 0) {
        struct buffer *b = &e->p->buffers.items[buffer];
        int32_t now = (int32_t)e->p->instrs.n;
        b->first = MIN(b->first, now);
        b->last = MAX(b->last, now);
        o.tier = b->tier;
        o.value_at = range.at;
        o.n_bytes = range.n_bytes;
    }
    return vec_push(&e->p->operands, o);
}

enum status emit_instr(struct emitter *e, struct instr i, int32_t n_operands)
{
    i.n_operands = n_operands;
    i.first_operand = (int32_t)e->p->operands.n - n_operands;
    return vec_push(&e->p->instrs, i);
}

enum status emit_event(struct emitter *e, enum instr_kind kind, enum queue q, int event)
{
    return emit_instr(
        e, (struct instr){.kind = kind, .queue = q, .node = NODE_NONE, .event = event}, 0);
}
