/* What a run tells other processes: a copy is whole, and the planned bytes of the instruction that
 * runs are those of the plan, to the byte. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "support/training.h"
#include "watch/live.h"
#include "watch/plan_table.h"

static struct scratch scratch;

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

/* ---- the position ---------------------------------------------------------------------------- */

/* Every kernel of the program is replaced by one that looks where the run says it is. */
static struct {
    const struct program *program;
    const struct storage *storage;
    const struct plan_table *table;
    const struct kernel **kernels; /* by instruction: what it was */
    int32_t before;                /* the instruction seen last */
    int n_seen;
} spy;

static enum status look(const struct kernel_ctx *x, const struct op_call *call)
{
    uint64_t position;
    expect_ok(live_read_position(scratch.folder, &position));
    int32_t at = (int32_t)(uint32_t)position;
    assert_int_equal(position >> 32, 0);
    assert_in_range(at, 0, spy.program->instrs.n - 1);
    const struct instr *i = &spy.program->instrs.items[at];
    assert_int_equal(i->kind, INSTR_COMPUTE);
    assert_int_equal(graph_node(spy.program->graph, i->node)->op, call->op);
    assert_true(at > spy.before); /* they run in order, and each is another one */
    spy.before = at;
    spy.n_seen++;
    const struct plan_memory *m = plan_table_at(spy.table, position);
    for (int t = 0; t < TIER_COUNT; t++) {
        int64_t by_class[MEMORY_CLASS_COUNT], total = 0;
        program_memory_at(spy.program, spy.storage, (enum tier)t, at, by_class);
        for (int c = 0; c < MEMORY_CLASS_COUNT; c++) {
            assert_int_equal(m->by_class[t][c], by_class[c]);
            total += by_class[c];
        }
        assert_int_equal(m->total[t], total);
    }
    return spy.kernels[at]->run(x, call);
}

static void the_memory_that_is_shown_is_that_of_the_instruction_that_runs(void **state)
{
    (void)state;
    struct training t;
    struct live *live;
    struct plan_table table;
    static struct kernel spies[4096];
    static const struct kernel *kernels[4096];
    training_init(&t, &(struct training_options){.golden = "llama", .batch = 2, .seq_len = 16});
    training_go_away(&t);
    training_emit(&t);
    training_start(&t);
    expect_ok(plan_table_write(scratch.folder, &t.engine.work));
    expect_ok(plan_table_read(&table, scratch.folder));
    expect_ok(live_create(&live, scratch.folder, &(struct live_run){.pid = getpid()}));
    executor_publish(t.engine.executor, &live->position);
    struct program *p = t.stage->program;
    assert_true(p->instrs.n < ARRAY_LEN(spies));
    spy.program = p;
    spy.storage = &t.engine.work.storage;
    spy.table = &table;
    spy.kernels = kernels;
    int n_calls = 0;
    for (size_t i = 0; i < p->instrs.n; i++) {
        struct instr *x = &p->instrs.items[i];
        if (x->kind != INSTR_COMPUTE)
            continue;
        kernels[i] = x->kernel;
        spies[i] = *x->kernel;
        spies[i].run = look;
        x->kernel = &spies[i];
        n_calls++;
    }
    spy.before = -1;
    training_step(&t, 1);
    assert_int_equal(spy.n_seen, n_calls);
    /* Outside of sections it is what outlives a step. */
    uint64_t position;
    expect_ok(live_read_position(scratch.folder, &position));
    assert_int_equal((uint32_t)position, UINT32_MAX);
    assert_ptr_equal(plan_table_at(&table, position), &table.storage);
    assert_true(table.storage.total[TIER_HOST] > 0);
    executor_publish(t.engine.executor, NULL);
    for (size_t i = 0; i < p->instrs.n; i++) {
        if (p->instrs.items[i].kind == INSTR_COMPUTE)
            p->instrs.items[i].kernel = kernels[i];
    }
    live_close(live);
    plan_table_release(&table);
    training_release(&t);
}

/* ---- whole copies ---------------------------------------------------------------------------- */

static atomic_bool stop_writing;

enum { RECORDS_AT_ONCE = 2048 };

static void *write_on(void *user)
{
    struct live *l = user;
    for (int64_t i = 1; i == 1 || !atomic_load(&stop_writing); i++) { /* it may have begun late */
        live_begin(l);
        l->now.step = i;
        l->now.n_steps = 2 * i;
        live_add_event(l, i, "event %lld", (long long)i);
        l->now.n_units = 3 * i;
        live_end(l);
        if (i % RECORDS_AT_ONCE == 0) /* steps take time: without a pause most readings fail */
            (void)usleep(50);
    }
    return NULL;
}

static void a_copy_is_never_half_of_one_step_and_half_of_the_next(void **state)
{
    (void)state;
    struct live *l, copy;
    pthread_t writer;
    int64_t last = 0;
    expect_ok(live_create(&l, scratch.folder, &(struct live_run){.id = "x"}));
    atomic_store(&stop_writing, false);
    assert_int_equal(pthread_create(&writer, NULL, write_on, l), 0);
    for (int i = 0; i < 10000; i++) {
        if (live_read(scratch.folder, &copy) != OK)
            continue; /* it hardly pauses: a reader may give up, but never lies */
        assert_int_equal(copy.now.n_steps, 2 * copy.now.step);
        assert_int_equal(copy.now.n_units, 3 * copy.now.step);
        assert_int_equal(copy.n_events, copy.now.step);
        assert_true(copy.now.step >= last);
        last = copy.now.step;
    }
    atomic_store(&stop_writing, true);
    assert_int_equal(pthread_join(writer, NULL), 0);
    expect_ok(live_read(scratch.folder, &copy));
    assert_true(copy.now.step > 0);
    live_close(l);
}

/* The last ones are kept, each as far as there is room, and a character is whole or not there. */
static void samples_are_kept_in_whole_characters(void **state)
{
    struct live *l, copy;
    char text[2 * LIVE_SAMPLE] = "";
    (void)state;
    for (size_t i = 0; i + 2 < sizeof(text); i += 2)
        memcpy(text + i, "\xc3\xa9", 3);
    expect_ok(live_create(&l, scratch.folder, &(struct live_run){.id = "x"}));
    live_begin(l);
    for (int i = 0; i < LIVE_SAMPLES + 3; i++)
        live_add_sample(l, i, "é", text);
    live_end(l);
    memcpy(l->samples[5].prompt, "\xc3(", 3); /* as nobody here writes it */
    expect_ok(live_read(scratch.folder, &copy));
    live_close(l);
    assert_int_equal(copy.n_samples, LIVE_SAMPLES + 3);
    assert_int_equal(copy.samples[2].step, LIVE_SAMPLES + 2);
    assert_int_equal(copy.samples[3].step, 3);
    assert_string_equal(copy.samples[0].prompt, "é");
    assert_string_equal(copy.samples[5].prompt, "");
    assert_int_equal(strlen(copy.samples[0].text), LIVE_SAMPLE - 2);
    assert_memory_equal(copy.samples[0].text, text, LIVE_SAMPLE - 2);
}

static void what_is_no_state_of_a_run_is_refused(void **state)
{
    (void)state;
    struct live l;
    struct plan_table t;
    assert_int_equal(live_read(scratch.folder, &l), ERR_IO);
    expect_message("no run has trained here yet");
    scratch_write_text(&scratch, LIVE_NAME, "nothing of the kind, though long enough to be read");
    assert_int_equal(live_read(scratch.folder, &l), ERR_DATA);
    struct live other = {.magic = LIVE_MAGIC, .version = LIVE_VERSION + 1, .n_bytes = sizeof(l)};
    scratch_write(&scratch, LIVE_NAME, &other, sizeof(other));
    assert_int_equal(live_read(scratch.folder, &l), ERR_UNSUPPORTED);
    expect_message("another version");
    other = (struct live){.magic = LIVE_MAGIC,
                          .version = LIVE_VERSION,
                          .n_bytes = sizeof(l),
                          .sequence = 7}; /* killed while it wrote */
    scratch_write(&scratch, LIVE_NAME, &other, sizeof(other));
    assert_int_equal(live_read(scratch.folder, &l), ERR_DATA);
    scratch_write_text(&scratch, PLAN_TABLE_NAME, "short");
    assert_int_equal(plan_table_read(&t, scratch.folder), ERR_DATA);
}

static void a_process_is_told_from_a_later_one_of_its_number(void **state)
{
    (void)state;
    struct live_run run = {.pid = getpid(), .process_start = live_process_start(getpid())};
    assert_true(run.process_start > 0);
    assert_true(live_is_running(&run));
    run.process_start++;
    assert_false(live_is_running(&run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            the_memory_that_is_shown_is_that_of_the_instruction_that_runs, make_scratch,
            drop_scratch),
        cmocka_unit_test_setup_teardown(a_copy_is_never_half_of_one_step_and_half_of_the_next,
                                        make_scratch, drop_scratch),
        cmocka_unit_test_setup_teardown(samples_are_kept_in_whole_characters, make_scratch,
                                        drop_scratch),
        cmocka_unit_test_setup_teardown(what_is_no_state_of_a_run_is_refused, make_scratch,
                                        drop_scratch),
        cmocka_unit_test(a_process_is_told_from_a_later_one_of_its_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
