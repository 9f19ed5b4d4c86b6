/* Programs that fetch ahead and update in slices, damaged: a fetch too early, a slice short, twice,
 * missing or in another's place, a wait missing. All that the other programs are put through (see
 * damage.h), and what only these can suffer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "program/damage.h"
#include "support/golden.h"

static const struct setup ahead = {.options = {.golden = "gpt2", .batch = 1, .seq_len = 4},
                                   .ring_bytes = 4096};
static const struct setup sliced = {.options = {.golden = "gpt2", .batch = 1, .seq_len = 4},
                                    .ring_bytes = 4096,
                                    .slice_bytes = 2048};
static const struct setup clipped = {
    .options = {.golden = "llama", .batch = 1, .seq_len = 4, .max_grad_norm = 1.0},
    .ring_bytes = 4096,
    .slice_bytes = 2048};
static const struct setup in_turn = {
    .options = {.golden = "llama", .batch = 1, .seq_len = 4, .max_grad_norm = 1.0},
    .slice_bytes = 2048};
static const struct setup micro_steps = {
    .options = {.golden = "llama", .batch = 1, .seq_len = 4, .n_micro = 2, .max_grad_norm = 1.0},
    .ring_bytes = 4096,
    .slice_bytes = 4096};

/* ---- slices ---------------------------------------------------------------------------------- */

/* The next slice of the same node behind instruction k; 0: there is none. */
static size_t next_slice(const struct program *p, size_t k)
{
    const struct instr *i = &p->instrs.items[k];
    for (size_t n = k + 1; i->kind == INSTR_COMPUTE && i->slice.n > 0 && n < p->instrs.n; n++) {
        const struct instr *other = &p->instrs.items[n];
        if (other->kind == INSTR_COMPUTE && other->node == i->node && other->slice.n > 0)
            return n;
    }
    return 0;
}

/* The instruction's operands become those of slice s, as far as sizes go. */
static void set_slice(struct program *p, struct instr *i, struct slice s)
{
    const struct node *n = graph_node(p->graph, i->node);
    i->slice = s;
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        struct operand *o = &p->operands.items[i->first_operand + k];
        if (o->access == ACCESS_NONE)
            continue;
        struct byte_range range = slice_bytes(p->graph, n, s, k);
        o->value_at = range.at;
        o->n_bytes = range.n_bytes;
        o->offset = operand_offset(&p->buffers.items[o->buffer], o);
    }
}

/* Each slice is one granule shorter at its end, one shorter at its beginning, or the one behind it
 * as well. */
static void resize_slices(struct tally *c)
{
    struct program *p = c->t->stage->program;
    for (size_t k = 0; k < p->instrs.n; k++) {
        struct instr *i = &p->instrs.items[k];
        if (i->kind != INSTR_COMPUTE || i->slice.n == 0)
            continue;
        struct slice old = i->slice;
        int64_t granule = node_granule(p->graph, graph_node(p->graph, i->node));
        const struct slice other[] = {{old.first, old.n - granule},
                                      {old.first + granule, old.n - granule},
                                      {old.first, old.n + granule}};
        for (size_t m = 0; m < ARRAY_LEN(other); m++) {
            set_slice(p, i, other[m]);
            damage_expect_rejected(c, "a slice of another size", (int)k);
        }
        set_slice(p, i, old);
    }
}

static void confuse_slices(struct tally *c)
{
    struct program *p = c->t->stage->program;
    struct instr *items = p->instrs.items;
    int n_pairs = 0;
    for (size_t k = 0; k < p->instrs.n; k++) {
        size_t next = next_slice(p, k);
        if (next == 0)
            continue;
        struct instr a = items[k], b = items[next];
        n_pairs++;
        items[next] = a;
        damage_expect_rejected(c, "a slice twice", (int)k);
        items[k] = b;
        damage_expect_rejected(c, "two slices in each other's place", (int)k);
        items[k] = a;
        items[next] = b;
        set_slice(p, &items[next], a.slice);
        damage_expect_rejected(c, "a slice of the bytes of another", (int)k);
        set_slice(p, &items[next], b.slice);
    }
    assert_true(n_pairs > 20);
}

/* The first fetch for the slice at `next`, which follows another at k. */
static size_t first_fetch(const struct program *p, size_t k, size_t next)
{
    const struct instr *items = p->instrs.items;
    while (k < next && !(items[k].kind == INSTR_RECORD && items[k].queue == QUEUE_COMPUTE &&
                         items[k + 1].kind == INSTR_WAIT && items[k + 1].queue == QUEUE_IN))
        k++;
    return k;
}

/* Instructions [from, to] once more before themselves, with events of their own. What they fetch
 * lives from their first fetch on. */
static void repeat(struct program *p, int32_t from, int32_t to)
{
    int32_t n = to + 1 - from, n_events = p->n_events;
    for (int32_t i = 0; i < n; i++)
        expect_ok(vec_push(&p->instrs, damage_nothing(p)));
    struct instr *items = p->instrs.items;
    memmove(&items[from + n], &items[from], (p->instrs.n - (size_t)(from + n)) * sizeof(*items));
    memcpy(&items[from], &items[from + n], (size_t)n * sizeof(*items));
    for (int32_t i = from; i < from + n; i++) {
        if (items[i].kind == INSTR_RECORD || items[i].kind == INSTR_WAIT)
            items[i].event += n_events;
    }
    p->n_events *= 2;
    for (size_t i = 0; i < p->buffers.n; i++) {
        p->buffers.items[i].first += p->buffers.items[i].first > to ? n : 0;
        p->buffers.items[i].last += p->buffers.items[i].last >= from ? n : 0;
    }
    for (size_t i = 0; i < p->sections.n; i++) {
        struct section *s = &p->sections.items[i];
        s->n += from >= s->first && from < s->first + s->n ? n : 0;
        s->first += s->first > from ? n : 0;
    }
}

/* A slice that is fetched and made once more, and stored once: every read finds what it should, and
 * the bits are the same. It is one too many all the same. */
static void add_slice(struct tally *c)
{
    struct program *p = c->t->stage->program;
    for (size_t k = 0; k < p->instrs.n; k++) {
        size_t next = next_slice(p, k), from = next ? first_fetch(p, k, next) : 0;
        if (next == 0 || from == next)
            continue;
        repeat(p, (int32_t)from, (int32_t)next);
        damage_expect_rejected(c, "a slice too many", (int)next);
        assert_non_null(strstr(status_message(), "the slice does not go on where"));
        return;
    }
    fail_msg("no slices are fetched");
}

/* Copies of a part that is shorter, or is of other bytes. */
static void change_copies(struct tally *c)
{
    struct program *p = c->t->stage->program;
    for (size_t k = 0; k < p->instrs.n; k++) {
        const struct instr *i = &p->instrs.items[k];
        if (i->kind != INSTR_COPY)
            continue;
        struct operand *o = &p->operands.items[i->first_operand], old[2] = {o[0], o[1]};
        for (int change = 0; change < 4; change++) {
            for (int m = 0; m < 2; m++) {
                o[m].n_bytes -= change < 2 ? 4 : 0;
                o[m].value_at += change == 1 ? 4 : change == 2 ? 16 : 0;
                o[m].offset += change == 1 ? 4 : change == 2 ? 16 : 0;
                o[m].value_at -= change == 3 && m == 0 ? 16 : 0;
            }
            damage_expect_rejected(c, "a copy of other bytes", (int)k);
            o[0] = old[0];
            o[1] = old[1];
        }
    }
}

/* ---- fetches --------------------------------------------------------------------------------- */

/* Instructions and lifetimes, to be put back. */
struct saved {
    struct instr *instrs;
    struct buffer *buffers;
};

static struct saved save(const struct program *p)
{
    struct saved s;
    expect_ok(mem_try_array(&s.instrs, p->instrs.n, sizeof(*s.instrs)));
    expect_ok(mem_try_array(&s.buffers, p->buffers.n, sizeof(*s.buffers)));
    memcpy(s.instrs, p->instrs.items, p->instrs.n * sizeof(*s.instrs));
    memcpy(s.buffers, p->buffers.items, p->buffers.n * sizeof(*s.buffers));
    return s;
}

static void put_back(struct program *p, const struct saved *s)
{
    memcpy(p->instrs.items, s->instrs, p->instrs.n * sizeof(*s->instrs));
    memcpy(p->buffers.items, s->buffers, p->buffers.n * sizeof(*s->buffers));
}

static int32_t place_after(int32_t at, int32_t from, int32_t n, int32_t to)
{
    if (at >= from && at < from + n)
        return at - from + to;
    return at >= to && at < from ? at + n : at;
}

/* Instructions [from, from + n) go before instruction `to`; buffers live as they did, and where the
 * copy among them writes to from the copy on. */
static void bring_forward(struct program *p, const struct saved *s, int32_t from, int32_t n,
                          int32_t to)
{
    for (int32_t k = 0; (size_t)k < p->instrs.n; k++)
        p->instrs.items[place_after(k, from, n, to)] = s->instrs[k];
    for (size_t i = 0; i < p->buffers.n; i++) {
        struct buffer *b = &p->buffers.items[i];
        bool whole = b->first == 0 && (size_t)b->last + 1 == p->instrs.n;
        b->first = whole ? b->first : place_after(b->first, from, n, to);
        b->last = whole ? b->last : place_after(b->last, from, n, to);
    }
    for (int32_t k = to; k < to + n; k++) {
        const struct instr *i = &p->instrs.items[k];
        if (i->kind == INSTR_COPY) {
            int32_t dst = p->operands.items[i->first_operand + 1].buffer;
            p->buffers.items[dst].first = MIN(p->buffers.items[dst].first, to);
        }
    }
}

static int32_t record_of(const struct program *p, int event)
{
    for (int32_t k = 0; (size_t)k < p->instrs.n; k++) {
        if (p->instrs.items[k].kind == INSTR_RECORD && p->instrs.items[k].event == event)
            return k;
    }
    fail_msg("event %d is never recorded", event);
    return -1;
}

/* The copy at k with its waits, the record of compute that stands before them, and the record that
 * follows: *first and how many. */
static int32_t fetch_around(const struct program *p, int32_t k, int32_t *first)
{
    *first = k;
    while (p->instrs.items[*first].kind != INSTR_RECORD)
        --*first;
    return k + 2 - *first;
}

/* A fetch that waits for a copy out comes before it, with and without the wait; every other one
 * comes at the beginning of the section. */
static void fetch_too_early(struct tally *c)
{
    struct program *p = c->t->stage->program;
    struct saved s = save(p);
    int n_too_early = 0;
    p->n_events++;
    for (int32_t k = 0; (size_t)k < p->instrs.n; k++) {
        int32_t first, n;
        if (s.instrs[k].kind != INSTR_COPY || s.instrs[k].queue != QUEUE_IN)
            continue;
        n = fetch_around(p, k, &first);
        const struct instr *wait = &s.instrs[k - 1];
        bool after = k - first == 3; /* record, wait for it, wait for a copy out, copy */
        int32_t to = after ? record_of(p, wait->event) - 1 : p->sections.items[0].first;
        if (k >= p->sections.items[0].n)
            break; /* one section will do */
        bring_forward(p, &s, first, n, to);
        if (after) {
            damage_expect_rejected(c, "a fetch before its source is written", k);
            p->instrs.items[to + 2] = damage_nothing(p);
            damage_expect_rejected(c, "a fetch that does not wait for its source", k);
            n_too_early++;
        } else {
            damage_judge(c, "a fetch at the beginning", k, to);
        }
        put_back(p, &s);
    }
    mem_free(s.instrs);
    mem_free(s.buffers);
    assert_true(n_too_early > 5);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void damaged_slices_are_rejected(void **state)
{
    (void)state;
    damage_program(&sliced, resize_slices, "slices of other sizes");
    damage_program(&sliced, confuse_slices, "slices in the wrong place");
    damage_program(&sliced, change_copies, "copies of other bytes");
    damage_program(&clipped, resize_slices, "slices of other sizes, clipping");
    damage_program(&clipped, confuse_slices, "slices in the wrong place, clipping");
    damage_program(&micro_steps, confuse_slices, "slices in the wrong place, micro-steps");
    damage_program(&in_turn, add_slice, "a slice too many");
}

static void fetches_that_come_too_early_are_rejected(void **state)
{
    (void)state;
    damage_program(&ahead, fetch_too_early, "early fetches");
    damage_program(&clipped, fetch_too_early, "early fetches, clipping, slices");
}

static void damaged_programs_of_slices_are_rejected_or_harmless(void **state)
{
    (void)state;
    damage_program(&ahead, drop_each_instruction, "dropped instructions, ahead");
    damage_program(&sliced, drop_each_instruction, "dropped instructions, slices");
    damage_program(&clipped, drop_each_instruction, "dropped instructions, clipping, slices");
    damage_program(&micro_steps, drop_each_instruction, "dropped instructions, micro-steps");
    damage_program(&sliced, swap_neighbours, "swapped instructions");
    damage_program(&sliced, change_operands, "changed operands");
}

static void every_missing_event_of_slices_that_matters_is_noticed(void **state)
{
    (void)state;
    damage_events(&ahead);
    damage_events(&clipped);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_slices_are_rejected),
        cmocka_unit_test(fetches_that_come_too_early_are_rejected),
        cmocka_unit_test(damaged_programs_of_slices_are_rejected_or_harmless),
        cmocka_unit_test(every_missing_event_of_slices_that_matters_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
