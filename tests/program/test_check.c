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

#include "support/golden.h"
#include "support/training.h"

enum { N_STEPS = 2 };

static const struct training_options one_step = {.golden = "gpt2", .batch = 1, .seq_len = 4};
static const struct training_options micro_steps = {
    .golden = "llama", .batch = 1, .seq_len = 4, .n_micro = 2, .max_grad_norm = 1.0};

/* Without a norm to wait for, the last micro-step uses up each sum where it adds to it. */
static const struct training_options unclipped_micro_steps = {
    .golden = "gpt2", .batch = 1, .seq_len = 4, .n_micro = 2};

/* Everything at once: recompute, moved activations, storage and sums on the host. */
static void open_program(struct training *t, const struct training_options *o)
{
    training_init(t, o);
    plan_recompute_block(&t->stage->plan, t->stage->graph, 0);
    plan_move_block(&t->stage->plan, t->stage->graph, 1, TIER_HOST);
    plan_set_home(&t->stage->plan, t->stage->graph, ROLE_STATE, TIER_HOST);
    plan_set_home(&t->stage->plan, t->stage->graph, ROLE_PARAMETER, TIER_HOST);
    plan_set_home(&t->stage->plan, t->stage->graph, ROLE_GRADIENT, TIER_HOST);
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

struct tally {
    struct training *t;
    uint64_t want;
    int n_rejected, n_harmless;
};

/* The program as it is now is rejected, or gives the bits it gave before. */
static void judge(struct tally *c, const char *what, int at, int detail)
{
    if (program_check(c->t->stage->program, &c->t->engine.work.storage) != OK) {
        c->n_rejected++;
        return;
    }
    c->n_harmless++;
    if (run(c->t) != c->want)
        fail_msg("%s (%d, %d) was accepted and changes the result", what, at, detail);
}

static void with_program(const struct training_options *o, void (*damage)(struct tally *c),
                         const char *what)
{
    struct training t;
    open_program(&t, o);
    struct tally c = {.t = &t};
    c.want = run(&t);
    damage(&c);
    print_message("%s: %d rejected, %d harmless\n", what, c.n_rejected, c.n_harmless);
    assert_true(c.n_rejected > 0);
    training_release(&t);
}

/* ---- instructions ---------------------------------------------------------------------------- */

/* What stands in the place of a removed instruction: an event of its own that nobody waits for. */
static struct instr nothing(struct program *p)
{
    return (struct instr){.kind = INSTR_RECORD, .node = NODE_NONE, .event = p->n_events - 1};
}

static void drop_each_instruction(struct tally *c)
{
    struct program *p = c->t->stage->program;
    p->n_events++;
    for (size_t k = 0; k < p->instrs.n; k++) {
        struct instr old = p->instrs.items[k];
        if (old.kind == INSTR_COMPUTE || old.kind == INSTR_COPY) {
            int harmless = c->n_harmless;
            p->instrs.items[k] = nothing(p);
            judge(c, "dropping an instruction", (int)k, (int)old.kind);
            if (c->n_harmless != harmless)
                fail_msg("instruction %zu is of no use", k);
        }
        p->instrs.items[k] = old;
    }
}

static void swap_neighbours(struct tally *c)
{
    struct program *p = c->t->stage->program;
    for (size_t k = 0; k + 1 < p->instrs.n; k++) {
        struct instr a = p->instrs.items[k], b = p->instrs.items[k + 1];
        p->instrs.items[k] = b;
        p->instrs.items[k + 1] = a;
        judge(c, "swapping two instructions", (int)k, 0);
        p->instrs.items[k] = a;
        p->instrs.items[k + 1] = b;
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
            judge(c, "changing an instruction", (int)k, change);
            items[k] = old;
        }
    }
}

/* ---- operands, buffers, predictions ---------------------------------------------------------- */

static void change_operands(struct tally *c)
{
    struct program *p = c->t->stage->program;
    for (size_t k = 0; k < p->operands.n; k++) {
        struct operand *o = &p->operands.items[k], old = *o;
        for (int change = 0; change < 9; change++) {
            o->offset += change == 0 ? ARENA_ALIGN : change == 1 ? -ARENA_ALIGN : 0;
            o->n_bytes += change == 2 ? 4 : change == 3 ? -4 : 0;
            o->value = change == 4 ? old.value + 1 : change == 5 ? VALUE_NONE : o->value;
            o->buffer = change == 6 ? (old.buffer + 1) % (int32_t)p->buffers.n : o->buffer;
            o->tier = change == 7 ? (enum tier)((old.tier + 1) % TIER_COUNT) : o->tier;
            o->access = change == 8 ? (enum access)((old.access + 1) % 3) : o->access;
            judge(c, "changing an operand", (int)k, change);
            *o = old;
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
            p->operands.items[i].offset = p->buffers.items[p->operands.items[i].buffer].offset;
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
            judge(c, "moving a buffer", b, (int)i);
        }
        move_buffer(p, b, old);
    }
}

static void change_buffers(struct tally *c)
{
    struct program *p = c->t->stage->program;
    for (size_t k = 0; k < p->buffers.n; k++) {
        struct buffer *b = &p->buffers.items[k], old = *b;
        for (int change = 0; change < 9; change++) {
            b->first += change == 0 ? 1 : change == 1 ? -1 : 0;
            b->last += change == 2 ? 1 : change == 3 ? -1 : 0;
            b->storage = change == 4 ? old.storage + 1 : b->storage;
            b->carried = change == 5 ? !old.carried : b->carried;
            b->merged_into = change == 6 ? (int32_t)k / 2 : b->merged_into;
            b->value = change == 7 ? old.value + 1 : b->value;
            b->n_bytes += change == 8 ? -4 : 0;
            judge(c, "changing a buffer", (int)k, change);
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
    judge(c, "a shorter section", 0, 0);
    p->sections.items[p->sections.n - 1] = last;
    p->outputs.n--;
    judge(c, "a missing output", 0, 0);
    p->outputs.n++;
    p->inputs.n--;
    judge(c, "a missing input", 0, 0);
    p->inputs.n++;
    p->sections.n--;
    judge(c, "a missing section", 0, 0);
    p->sections.n++;
}

static void damaged_programs_are_rejected_or_harmless(void **state)
{
    (void)state;
    with_program(&one_step, drop_each_instruction, "dropped instructions");
    with_program(&micro_steps, drop_each_instruction, "dropped instructions, micro-steps");
    with_program(&unclipped_micro_steps, drop_each_instruction, "dropped instructions, no norm");
    with_program(&one_step, change_predictions, "changed predictions");
    with_program(&micro_steps, change_predictions, "changed predictions, micro-steps");
    with_program(&one_step, shift_buffers, "moved buffers");
    with_program(&one_step, change_instructions, "changed instructions");
    with_program(&one_step, change_operands, "changed operands");
    with_program(&micro_steps, change_buffers, "changed buffers");
    with_program(&one_step, swap_neighbours, "swapped instructions");
}

/* ---- order between queues -------------------------------------------------------------------- */

/* Brute force: who comes before whom. before[i * n + k] is set when instruction i of the section is
 * ordered before instruction k. */
static void find_order(const struct program *p, const struct section *s, bool *before)
{
    size_t n = (size_t)s->n;
    const struct instr *items = &p->instrs.items[s->first];
    memset(before, 0, n * n * sizeof(*before));
    for (size_t k = 0; k < n; k++) {
        size_t from[2], n_from = 0;
        for (size_t i = k; i-- > 0;) { /* the previous instruction of its queue */
            if (items[i].queue == items[k].queue) {
                from[n_from++] = i;
                break;
            }
        }
        for (size_t i = k; items[k].kind == INSTR_WAIT && i-- > 0;) { /* the record it waits for */
            if (items[i].kind == INSTR_RECORD && items[i].event == items[k].event) {
                from[n_from++] = i;
                break;
            }
        }
        for (size_t f = 0; f < n_from; f++) {
            before[from[f] * n + k] = true;
            for (size_t i = 0; i < k; i++)
                before[i * n + k] |= before[i * n + from[f]];
        }
    }
}

static bool conflict(const struct program *p, const struct instr *a, const struct instr *b)
{
    for (int32_t i = 0; i < a->n_operands; i++) {
        const struct operand *x = &p->operands.items[a->first_operand + i];
        for (int32_t k = 0; k < b->n_operands; k++) {
            const struct operand *y = &p->operands.items[b->first_operand + k];
            bool touch = x->access != ACCESS_NONE && y->access != ACCESS_NONE &&
                         (x->access == ACCESS_WRITE || y->access == ACCESS_WRITE);
            if (touch && x->tier == y->tier && x->offset < y->offset + y->n_bytes &&
                y->offset < x->offset + x->n_bytes)
                return true;
        }
    }
    return false;
}

/* Conflicting pairs on different queues, found once: removing events does not change them. */
struct pair {
    size_t a, b;
};

static size_t find_conflicts(const struct program *p, const struct section *s, struct pair *out,
                             size_t max)
{
    const struct instr *items = &p->instrs.items[s->first];
    size_t n = 0;
    for (size_t a = 0; a < (size_t)s->n; a++) {
        for (size_t b = a + 1; b < (size_t)s->n; b++) {
            if (items[a].queue != items[b].queue && conflict(p, &items[a], &items[b])) {
                assert_true(n < max);
                out[n++] = (struct pair){a, b};
            }
        }
    }
    return n;
}

static bool well_ordered(const struct program *p, const struct section *s, const struct pair *pairs,
                         size_t n_pairs, bool *before)
{
    find_order(p, s, before);
    for (size_t i = 0; i < n_pairs; i++) {
        if (!before[pairs[i].a * (size_t)s->n + pairs[i].b])
            return false;
    }
    return true;
}

static void every_missing_event_that_matters_is_noticed(void **state)
{
    (void)state;
    enum { MAX_PAIRS = 1 << 20 };
    struct training t;
    open_program(&t, &one_step);
    struct program *p = t.stage->program;
    const struct section *s = &p->sections.items[0];
    bool *before;
    struct pair *pairs;
    expect_ok(mem_try_array(&before, (size_t)s->n * (size_t)s->n, sizeof(*before)));
    expect_ok(mem_try_array(&pairs, MAX_PAIRS, sizeof(*pairs)));
    size_t n_pairs = find_conflicts(p, s, pairs, MAX_PAIRS);
    assert_true(well_ordered(p, s, pairs, n_pairs, before));

    int n_needed = 0, n_redundant = 0;
    p->n_events++;
    for (int32_t k = 0; k < s->n; k++) {
        struct instr old = p->instrs.items[k];
        if (old.kind != INSTR_WAIT && old.kind != INSTR_RECORD)
            continue;
        p->instrs.items[k] = nothing(p);
        /* A wait that nothing recorded is an error in itself. */
        bool accepted = program_check(p, &t.engine.work.storage) == OK;
        bool ordered = old.kind == INSTR_WAIT && well_ordered(p, s, pairs, n_pairs, before);
        if (accepted != ordered)
            fail_msg("event %d at instruction %d: %s, but the order %s", old.event, k,
                     accepted ? "accepted" : "rejected", ordered ? "holds" : "is broken");
        n_needed += !accepted;
        n_redundant += accepted;
        p->instrs.items[k] = old;
    }
    print_message("%d instructions, %zu conflicts between queues; %d records and waits needed, %d "
                  "redundant\n",
                  s->n, n_pairs, n_needed, n_redundant);
    assert_true(n_needed > n_redundant);
    mem_free(before);
    mem_free(pairs);
    training_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_programs_are_rejected_or_harmless),
        cmocka_unit_test(every_missing_event_that_matters_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
