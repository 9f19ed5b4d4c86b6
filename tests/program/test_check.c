/* The check rejects every program that would go wrong: each instruction, operand, buffer and event
 * of whole training programs is damaged in turn, and what is still accepted must give the same
 * bits.
 *
 * The CPU runs queues in program order, so for events the bits prove nothing: there a brute-force
 * model of the order between queues decides.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "program/damage.h"
#include "support/golden.h"

static const struct setup one_step = {.options = {.golden = "gpt2", .batch = 1, .seq_len = 4}};
static const struct setup micro_steps = {
    .options = {.golden = "llama", .batch = 1, .seq_len = 4, .n_micro = 2, .max_grad_norm = 1.0}};

/* Without a norm to wait for, the last micro-step uses up each sum where it adds to it. */
static const struct setup unclipped_micro_steps = {
    .options = {.golden = "gpt2", .batch = 1, .seq_len = 4, .n_micro = 2}};

/* Two at a time, block by block: sums are added to twice before they leave. */
static const struct setup groups = {.options = {.golden = "gpt2",
                                                .batch = 1,
                                                .seq_len = 4,
                                                .n_micro = 4,
                                                .group = 2,
                                                .max_grad_norm = 1.0}};
static const struct setup one_group = {
    .options = {.golden = "llama", .batch = 1, .seq_len = 4, .n_micro = 2, .group = 2}};

/* Updates are deferred: gradients are carried from a step into the next, some on the host. */
static const struct setup deferred_updates = {
    .options = {.golden = "llama", .batch = 1, .seq_len = 4, .max_grad_norm = 1.0},
    .defer_updates = true};
static const struct setup deferred_slices = {
    .options = {.golden = "llama", .batch = 1, .seq_len = 4, .max_grad_norm = 1.0},
    .ring_bytes = 4 << 10,
    .slice_bytes = 2 << 10,
    .defer_updates = true};

static void move_instr(struct program *p, int32_t from, int32_t to)
{
    struct instr *items = p->instrs.items, moved = items[from];
    for (int32_t k = from; k != to; k += from < to ? 1 : -1)
        items[k] = items[from < to ? k + 1 : k - 1];
    items[to] = moved;
}

/* An update of the step before comes too late, or reads what this step has made. */
static void delay_each_call(struct tally *c)
{
    struct program *p = c->t->stage->program;
    for (size_t x = 0; x < p->sections.n; x++) {
        const struct section *s = &p->sections.items[x];
        int32_t end = s->first + s->n - 1;
        for (int32_t k = s->first; k < end; k++) {
            if (p->instrs.items[k].kind != INSTR_COMPUTE)
                continue;
            move_instr(p, k, end);
            damage_judge(c, "delaying a call", k, 0);
            move_instr(p, end, k);
        }
    }
}

static void change_instructions(struct tally *c)
{
    struct program *p = c->t->stage->program;
    struct instr *items = p->instrs.items;
    for (size_t k = 0; k < p->instrs.n; k++) {
        struct instr old = items[k];
        for (int change = 0; change < 8; change++) {
            switch (change) {
            case 0:
                items[k].node = (old.node + 1) % (node_id)p->graph->nodes.n;
                break;
            case 1:
                items[k].kind = (enum instr_kind)((old.kind + 1) % 4);
                break;
            case 2:
                items[k].n_operands++;
                break;
            case 3:
                items[k].first_operand++;
                break;
            case 4:
                items[k].has_workspace = !old.has_workspace;
                break;
            case 5:
                items[k].kernel = old.kernel ? NULL : old.kernel;
                break;
            case 6:
                items[k] = items[(k * 7 + 3) % p->instrs.n];
                break;
            default:
                items[k].recompute = !old.recompute; /* a note for reports */
            }
            damage_judge(c, "changing an instruction", (int)k, change);
            items[k] = old;
        }
    }
}

/* Everything that says where buffer b is. */
static void move_buffer(struct program *p, int32_t b, int64_t offset)
{
    for (size_t i = 0; i < p->buffers.n; i++) {
        int32_t root = (int32_t)i;
        while (p->buffers.items[root].merged_into >= 0)
            root = p->buffers.items[root].merged_into;
        if (root == b)
            p->buffers.items[i].offset = offset;
    }
    for (size_t i = 0; i < p->operands.n; i++) {
        if (p->operands.items[i].buffer >= 0)
            p->operands.items[i].offset = operand_offset(
                &p->buffers.items[p->operands.items[i].buffer], &p->operands.items[i]);
    }
    for (size_t i = 0; i < p->inputs.n; i++)
        p->inputs.items[i].offset = p->buffers.items[p->inputs.items[i].buffer].offset;
    for (size_t i = 0; i < p->outputs.n; i++)
        p->outputs.items[i].offset = p->buffers.items[p->outputs.items[i].buffer].offset;
}

static void shift_buffers(struct tally *c)
{
    struct program *p = c->t->stage->program;
    for (int32_t b = 0; (size_t)b < p->buffers.n; b++) {
        if (p->buffers.items[b].merged_into >= 0)
            continue;
        int64_t old = p->buffers.items[b].offset;
        int64_t other = p->buffers.items[(b * 13 + 7) % (int32_t)p->buffers.n].offset;
        const int64_t to[] = {old + ARENA_ALIGN, old - ARENA_ALIGN, old + 64, 0, other};
        for (size_t i = 0; i < ARRAY_LEN(to); i++) {
            move_buffer(p, b, to[i]);
            damage_judge(c, "moving a buffer", b, (int)i);
        }
        move_buffer(p, b, old);
    }
}

static void change_buffers(struct tally *c)
{
    struct program *p = c->t->stage->program;
    for (size_t k = 0; k < p->buffers.n; k++) {
        struct buffer *b = &p->buffers.items[k], old = *b;
        for (int change = 0; change < 11; change++) {
            b->first += change == 0 ? 1 : change == 1 ? -1 : 0;
            b->last += change == 2 ? 1 : change == 3 ? -1 : 0;
            b->storage = change == 4 ? old.storage + 1 : b->storage;
            b->carried = change == 5 ? !old.carried : b->carried;
            b->merged_into = change == 6 ? (int32_t)k / 2 : b->merged_into;
            b->value = change == 7 ? old.value + 1 : b->value;
            b->n_bytes += change == 8 ? -4 : 0;
            b->value_at += change == 9 ? 4 : change == 10 ? -4 : 0;
            damage_judge(c, "changing a buffer", (int)k, change);
            *b = old;
        }
    }
}

static void change_predictions(struct tally *c)
{
    struct program *p = c->t->stage->program;
    for (int t = 0; t < TIER_COUNT; t++) {
        int64_t old = p->n_bytes[t];
        for (int64_t d = -ARENA_ALIGN; d <= ARENA_ALIGN; d += 2 * ARENA_ALIGN) {
            p->n_bytes[t] = old + d;
            assert_int_equal(program_check(p, &c->t->engine.work.storage), ERR_PROGRAM);
            c->n_rejected++;
        }
        p->n_bytes[t] = old;
    }
    struct section last = p->sections.items[p->sections.n - 1];
    p->sections.items[p->sections.n - 1].n--;
    damage_judge(c, "a shorter section", 0, 0);
    p->sections.items[p->sections.n - 1] = last;
    p->outputs.n--;
    damage_judge(c, "a missing output", 0, 0);
    p->outputs.n++;
    p->inputs.n--;
    damage_judge(c, "a missing input", 0, 0);
    p->inputs.n++;
    p->sections.n--;
    damage_judge(c, "a missing section", 0, 0);
    p->sections.n++;
}

static void damaged_programs_are_rejected_or_harmless(void **state)
{
    (void)state;
    damage_program(&one_step, drop_each_instruction, "dropped instructions");
    damage_program(&micro_steps, drop_each_instruction, "dropped instructions, micro-steps");
    damage_program(&unclipped_micro_steps, drop_each_instruction, "dropped instructions, no norm");
    damage_program(&one_group, drop_each_instruction, "dropped instructions, one group");
    damage_program(&deferred_updates, drop_each_instruction, "dropped instructions, deferred");
    damage_program(&deferred_slices, drop_each_instruction,
                   "dropped instructions, deferred slices");
    damage_program(&one_step, change_predictions, "changed predictions");
    damage_program(&micro_steps, change_predictions, "changed predictions, micro-steps");
    damage_program(&groups, change_predictions, "changed predictions, groups");
    damage_program(&deferred_updates, change_predictions, "changed predictions, deferred");
    damage_program(&one_step, shift_buffers, "moved buffers");
    damage_program(&one_step, change_instructions, "changed instructions");
    damage_program(&one_step, change_operands, "changed operands");
    damage_program(&micro_steps, change_buffers, "changed buffers");
    damage_program(&deferred_updates, change_buffers, "changed buffers, deferred");
    damage_program(&one_step, swap_neighbours, "swapped instructions");
    damage_program(&deferred_updates, swap_neighbours, "swapped instructions, deferred");
    damage_program(&deferred_updates, delay_each_call, "delayed calls, deferred");
}

static void every_missing_event_that_matters_is_noticed(void **state)
{
    (void)state;
    damage_events(&one_step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_programs_are_rejected_or_harmless),
        cmocka_unit_test(every_missing_event_that_matters_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
