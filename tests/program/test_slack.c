/* What comes from disk, or goes there, takes memory of the host that others leave free, and no
 * more: reads stand further ahead than plan.halfway_bytes alone allow, waits for writes further
 * behind, and the host holds at no moment more than at its fullest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/golden.h"
#include "support/planned_apart.h"
#include "support/training.h"

enum { HALFWAY = 4096 };

static struct planned_apart devices;

static int open_devices(void **state)
{
    (void)state;
    planned_apart_open(&devices);
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    planned_apart_close(&devices);
    return 0;
}

/* States on disk; of what the forward pass saves, the first block's there and the second's on the
 * host, so that the host is full when the pass ends and empty when the next one does. */
static void open_program(struct training *t)
{
    const struct training_options o = {
        .golden = "gpt2", .batch = 4, .seq_len = 16, .device = &devices.apart};
    training_init(t, &o);
    struct plan *plan = &t->stage->plan;
    plan_move_block(plan, t->stage->graph, 0, TIER_DISK);
    plan_move_block(plan, t->stage->graph, 1, TIER_HOST);
    plan_set_home(plan, t->stage->graph, ROLE_STATE, TIER_DISK);
    plan->ahead_bytes = plan->behind_bytes = plan->halfway_bytes = HALFWAY;
    training_emit(t);
    expect_ok(program_check(t->stage->program, &t->engine.work.storage));
}

/* Of the buffers halfway, is it one that the disk fills (or, writes: empties)? */
static bool is_halfway(const struct program *p, int32_t buffer, bool writes)
{
    for (size_t k = 0; k < p->instrs.n; k++) {
        const struct instr *i = &p->instrs.items[k];
        const struct operand *o = &p->operands.items[i->first_operand];
        if (i->kind == INSTR_COPY && i->queue == QUEUE_DISK && o[writes ? 0 : 1].buffer == buffer)
            return true;
    }
    return false;
}

/* The most bytes of such buffers, or of all of the host, that are alive at a time. */
enum kind { READS, WRITES, ALL };
static int64_t most_alive(const struct program *p, enum kind kind)
{
    int64_t most = 0;
    for (int32_t k = 0; (size_t)k < p->instrs.n; k++) {
        int64_t now = 0;
        for (size_t b = 0; b < p->buffers.n; b++) {
            const struct buffer *x = &p->buffers.items[b];
            bool lives = x->tier == TIER_HOST && x->first <= k && k <= x->last;
            if (lives && (kind == ALL || is_halfway(p, (int32_t)b, kind == WRITES)))
                now += x->n_bytes;
        }
        most = MAX(most, now);
    }
    return most;
}

static int64_t largest_alive(const struct program *p)
{
    int64_t most = 0;
    for (size_t b = 0; b < p->buffers.n; b++) {
        if (is_halfway(p, (int32_t)b, true) || is_halfway(p, (int32_t)b, false))
            most = MAX(most, p->buffers.items[b].n_bytes);
    }
    return most;
}

static void what_the_host_has_left_is_used(void **state)
{
    struct training t;
    (void)state;
    open_program(&t);
    const struct program *p = t.stage->program;
    int64_t alone =
        MAX((int64_t)HALFWAY, largest_alive(p)); /* one is under way whatever it takes */
    int64_t reads = most_alive(p, READS), writes = most_alive(p, WRITES);
    print_message("on their way: %lld bytes read, %lld written; %lld at most without slack\n",
                  (long long)reads, (long long)writes, (long long)alone);
    assert_true(reads > 2 * alone);
    assert_true(writes > 2 * alone);
    training_release(&t);
}

/* What one wait gives back and what one read takes are what the fullest moment is made of. */
static void the_host_is_no_fuller_for_it(void **state)
{
    struct training t;
    (void)state;
    open_program(&t);
    const struct program *p = t.stage->program;
    int64_t saved = 0, most = most_alive(p, ALL);
    for (size_t b = 0; b < p->buffers.n; b++) {
        const struct buffer *x = &p->buffers.items[b];
        bool is_halfway_there = is_halfway(p, (int32_t)b, true) || is_halfway(p, (int32_t)b, false);
        if (x->tier == TIER_HOST && !is_halfway_there)
            saved += x->n_bytes;
    }
    assert_true(most <= saved + 2 * HALFWAY + 2 * largest_alive(p));
    training_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_host_has_left_is_used),
        cmocka_unit_test(the_host_is_no_fuller_for_it),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
