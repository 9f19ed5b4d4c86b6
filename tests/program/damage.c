#include "program/damage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/golden.h"

/* Under sanitizers one damage of several is judged by the check, and few of those that it accepts
 * are run: they go through the same code and the same memory again. Seven has no divisor in common
 * with the numbers of changes to an instruction, an operand or a buffer: each change is among those
 * that are judged, somewhere else every time. */
enum { N_STEPS = 2, JUDGE_EVERY = SNUG_ASAN ? 7 : 1, RUN_EVERY = SNUG_ASAN ? 16 : 1 };

static void defer_updates(struct plan *p, const struct graph *g)
{
    for (value_id v = 0; (size_t)v < g->values.n; v++) {
        node_id producer = graph_value(g, v)->producer;
        if (producer != NODE_NONE && graph_node(g, producer)->block == 1 &&
            graph_node(g, producer)->pass == PASS_BACKWARD && plan_allows(p, g, v, MOVE))
            plan_move(p, v, TIER_HOST);
    }
    p->defer_updates = plan_may_defer(p, g);
    assert_true(p->defer_updates);
}

void damage_open(struct training *t, const struct setup *s)
{
    training_init(t, &s->options);
    struct plan *plan = &t->stage->plan;
    enum tier away = s->away ? s->away : TIER_HOST;
    plan_recompute_block(plan, t->stage->graph, 0);
    plan_move_block(plan, t->stage->graph, 1, away);
    plan_set_home(plan, t->stage->graph, ROLE_STATE, away);
    plan_set_home(plan, t->stage->graph, ROLE_PARAMETER, away);
    plan_set_home(plan, t->stage->graph, ROLE_GRADIENT, away);
    plan->ahead_bytes = plan->behind_bytes = s->ring_bytes;
    plan->slice_bytes = s->slice_bytes;
    for (value_id v = 0; s->forms && (size_t)v < t->stage->graph->values.n; v++) {
        if (plan_allows(plan, t->stage->graph, v, FORM))
            plan->treat[v] = FORM;
    }
    if (s->defer_updates)
        defer_updates(plan, t->stage->graph);
    training_emit(t);
    expect_ok(program_check(t->stage->program, &t->engine.work.storage));
}

static uint64_t run(struct training *t)
{
    uint64_t digest = 0;
    training_start(t);
    for (int i = 0; i < N_STEPS; i++) {
        float out[2];
        uint32_t bits[2];
        training_step(t, i);
        out[0] = training_output(t, "loss");
        out[1] = training_output(t, "grad_norm");
        memcpy(bits, out, sizeof(bits));
        digest = digest * 31 + bits[0];
        digest = digest * 31 + bits[1];
    }
    digest ^= training_digest(t);
    training_stop(t);
    return digest;
}

void damage_judge(struct tally *c, const char *what, int at, int detail)
{
    if (c->n_damages++ % JUDGE_EVERY != 0)
        return;
    if (program_check(c->t->stage->program, &c->t->engine.work.storage) != OK) {
        c->n_rejected++;
        return;
    }
    if (c->n_harmless++ % RUN_EVERY == 0 && run(c->t) != c->want)
        fail_msg("%s (%d, %d) was accepted and changes the result", what, at, detail);
}

void damage_expect_rejected(struct tally *c, const char *what, int at)
{
    if (c->n_damages++ % JUDGE_EVERY != 0)
        return;
    if (program_check(c->t->stage->program, &c->t->engine.work.storage) == OK)
        fail_msg("%s (%d) was accepted", what, at);
    c->n_rejected++;
}

void damage_program(const struct setup *s, void (*damage)(struct tally *c), const char *what)
{
    struct training t;
    damage_open(&t, s);
    struct tally c = {.t = &t};
    c.want = run(&t);
    damage(&c);
    print_message("%s: %d rejected, %d harmless\n", what, c.n_rejected, c.n_harmless);
    assert_true(c.n_rejected > 0);
    training_release(&t);
}

/* ---- damages --------------------------------------------------------------------------------- */

struct instr damage_nothing(struct program *p)
{
    return (struct instr){.kind = INSTR_RECORD, .node = NODE_NONE, .event = p->n_events - 1};
}

void drop_each_instruction(struct tally *c)
{
    struct program *p = c->t->stage->program;
    p->n_events++;
    for (size_t k = 0; k < p->instrs.n; k++) {
        struct instr old = p->instrs.items[k];
        if (old.kind == INSTR_COMPUTE || old.kind == INSTR_COPY) {
            int harmless = c->n_harmless;
            p->instrs.items[k] = damage_nothing(p);
            damage_judge(c, "dropping an instruction", (int)k, (int)old.kind);
            if (c->n_harmless != harmless)
                fail_msg("instruction %zu is of no use", k);
        }
        p->instrs.items[k] = old;
    }
}

void swap_neighbours(struct tally *c)
{
    struct program *p = c->t->stage->program;
    for (size_t k = 0; k + 1 < p->instrs.n; k++) {
        struct instr a = p->instrs.items[k], b = p->instrs.items[k + 1];
        p->instrs.items[k] = b;
        p->instrs.items[k + 1] = a;
        damage_judge(c, "swapping two instructions", (int)k, 0);
        p->instrs.items[k] = a;
        p->instrs.items[k + 1] = b;
    }
}

void change_operands(struct tally *c)
{
    struct program *p = c->t->stage->program;
    for (size_t k = 0; k < p->operands.n; k++) {
        struct operand *o = &p->operands.items[k], old = *o;
        for (int change = 0; change < 11; change++) {
            o->offset += change == 0 ? ARENA_ALIGN : change == 1 ? -ARENA_ALIGN : 0;
            o->n_bytes += change == 2 ? 4 : change == 3 ? -4 : 0;
            o->value = change == 4 ? old.value + 1 : change == 5 ? VALUE_NONE : o->value;
            o->buffer = change == 6 ? (old.buffer + 1) % (int32_t)p->buffers.n : o->buffer;
            o->tier = change == 7 ? (enum tier)((old.tier + 1) % TIER_COUNT) : o->tier;
            o->access = change == 8 ? (enum access)((old.access + 1) % 3) : o->access;
            o->value_at += change == 9 ? 4 : change == 10 ? -4 : 0;
            damage_judge(c, "changing an operand", (int)k, change);
            *o = old;
        }
    }
}
