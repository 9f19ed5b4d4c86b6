/* Order between queues, by brute force: the CPU runs queues in program order, so for events the
 * bits prove nothing. */
#include "program/damage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/golden.h"

/* Brute force: who comes before whom. before[k * n + i] is set when instruction i of the section is
 * ordered before instruction k: a row has all that comes before one, and rows are added. */
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
            before[k * n + from[f]] = true;
            for (size_t i = 0; i < from[f]; i++)
                before[k * n + i] |= before[from[f] * n + i];
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
        if (!before[pairs[i].b * (size_t)s->n + pairs[i].a])
            return false;
    }
    return true;
}

void damage_events(const struct setup *setup)
{
    enum { MAX_PAIRS = 1 << 20 };
    struct training t;
    damage_open(&t, setup);
    struct program *p = t.stage->program;
    const struct section *s = &p->sections.items[0];
    bool *before;
    struct pair *pairs;
    expect_ok(mem_try_array(&before, (size_t)s->n * (size_t)s->n, sizeof(*before)));
    expect_ok(mem_try_array(&pairs, MAX_PAIRS, sizeof(*pairs)));
    size_t n_pairs = find_conflicts(p, s, pairs, MAX_PAIRS);
    assert_true(well_ordered(p, s, pairs, n_pairs, before));

    int n_needed = 0, n_redundant = 0;
    int one_in = MAX(setup->one_in, SNUG_ASAN ? 3 : 1); /* sanitizers see the same code again */
    p->n_events++;
    for (int32_t k = 0; k < s->n; k++) {
        struct instr old = p->instrs.items[k];
        if ((old.kind != INSTR_WAIT && old.kind != INSTR_RECORD) || k % one_in != 0)
            continue;
        p->instrs.items[k] = damage_nothing(p);
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
