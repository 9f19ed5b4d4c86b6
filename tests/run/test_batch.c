/* Instructions that run together: which ones, and that nobody can tell from the bits. The device is
 * the CPU with kernels that also take several calls at once, last call first; AdamW's two ops in
 * the same way, SGD in another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "run/batch.h"
#include "run/timing.h"
#include "support/golden.h"
#include "support/training.h"

static struct device cpu, batching;
static const struct kernel *batch_kernels[OP_COUNT]; /* the first of these ops' lists can */
static int n_batches, n_calls, n_of_masters;
static bool is_apart; /* the two are taken in different ways */

static enum status run_batch(const struct kernel_ctx *x, const struct op_call *const *calls, int n)
{
    n_batches++;
    n_calls += n;
    for (int i = n; i-- > 0;)
        TRY(batch_kernels[calls[i]->op]->run(x, calls[i]));
    return OK;
}

static enum status run_sgd(const struct kernel_ctx *x, const struct op_call *const *calls, int n)
{
    return run_batch(x, calls, n);
}

/* Of updates with masters, and of no other. */
static enum status run_masters(const struct kernel_ctx *x, const struct op_call *const *calls,
                               int n)
{
    n_of_masters++;
    for (int i = 0; i < n; i++)
        assert_int_equal(calls[i]->op, OP_adamw_master);
    return run_batch(x, calls, n);
}

static kernel_batch *batch_of(const struct kernel *k)
{
    for (int op = 0; op < OP_COUNT; op++) {
        if (k && k == batch_kernels[op])
            return op == OP_sgd                        ? run_sgd
                   : op == OP_adamw_master && is_apart ? run_masters
                                                       : run_batch;
    }
    return NULL;
}

static void open_devices(void)
{
    static struct device_ops ops;
    if (cpu.ops)
        return;
    expect_ok(device_open_cpu(&cpu, 2));
    ops = *cpu.ops;
    ops.batch = batch_of;
    batching = cpu;
    batching.ops = &ops;
    batch_kernels[OP_adamw] = ops.kernels(OP_adamw);
    batch_kernels[OP_adamw_master] = ops.kernels(OP_adamw_master);
    batch_kernels[OP_sgd] = ops.kernels(OP_sgd);
}

static uint64_t digest_after(const struct training_options *o, const struct device *device,
                             int n_steps)
{
    struct training t;
    struct training_options options = *o;
    options.device = device;
    training_init(&t, &options);
    training_emit(&t);
    training_start(&t);
    for (int step = 0; step < n_steps; step++)
        training_step(&t, step);
    uint64_t digest = training_digest(&t);
    training_expect_prediction(&t);
    training_release(&t);
    return digest;
}

static void together_gives_the_bits_of_one_by_one(void **state)
{
    (void)state;
    open_devices();
    for (int variant = 0; variant < 4; variant++) {
        struct training_options o = {.golden = "llama", .batch = 2, .seq_len = 16};
        o.bf16 = variant & 1;
        o.n_micro = variant & 2 ? 2 : 1;
        o.max_grad_norm = 1.0;
        n_batches = n_calls = 0;
        uint64_t plain = digest_after(&o, &cpu, 3);
        assert_int_equal(n_batches, 0);
        assert_true(digest_after(&o, &batching, 3) == plain);
        print_message("%d calls in %d batches\n", n_calls, n_batches);
        assert_true(n_calls >= 3 * 10);
        assert_true(n_batches < n_calls / 4);
    }
}

/* Without clipping each block's updates run when its gradients are there: at once, although some
 * parameters have masters and others are f32. */
static void updates_of_a_block_run_together_whichever_op_they_are(void **state)
{
    struct training t;
    (void)state;
    open_devices();
    training_init(
        &t, &(struct training_options){
                .golden = "llama", .batch = 2, .seq_len = 16, .bf16 = true, .device = &batching});
    training_emit(&t);
    training_start(&t);
    n_batches = n_calls = 0;
    training_step(&t, 0);
    print_message("%d calls in %d batches, %d blocks\n", n_calls, n_batches, t.stage->io.n_blocks);
    assert_true(n_calls > 2 * t.stage->io.n_blocks);
    assert_true(n_batches <= t.stage->io.n_blocks);
    training_release(&t);
}

/* A device that takes the two ops apart gets no run with both, and the bits are the same. */
static void updates_of_two_ops_in_a_block_run_apart_where_they_must(void **state)
{
    (void)state;
    open_devices();
    for (int clips = 0; clips < 2; clips++) {
        struct training_options o = {
            .golden = "llama", .batch = 2, .seq_len = 16, .bf16 = true, .max_grad_norm = clips};
        uint64_t plain = digest_after(&o, &cpu, 3);
        n_batches = n_calls = n_of_masters = 0;
        is_apart = true;
        assert_true(digest_after(&o, &batching, 3) == plain);
        is_apart = false;
        print_message("%d calls in %d batches, %d with masters\n", n_calls, n_batches,
                      n_of_masters);
        assert_true(n_of_masters > 0);
    }
}

/* Timed runs are batched too: the time goes to all instructions of a run. */
static void every_instruction_gets_its_share_of_the_time(void **state)
{
    struct training t;
    struct timing timing;
    (void)state;
    open_devices();
    training_init(&t, &(struct training_options){.golden = "llama",
                                                 .batch = 2,
                                                 .seq_len = 16,
                                                 .max_grad_norm = 1.0,
                                                 .device = &batching});
    training_emit(&t);
    training_start(&t);
    expect_ok(timing_init(&timing, t.stage->program, &t.device));
    executor_time_into(t.engine.executor, t.stage->handle, &timing);
    n_batches = 0;
    training_step(&t, 0);
    assert_true(n_batches > 0);
    assert_int_equal(timing.runs.n, 1);
    for (size_t i = 0; i < t.stage->program->instrs.n; i++) {
        const struct instr *x = &t.stage->program->instrs.items[i];
        const struct timed_run *run = &timing.runs.items[0];
        if (x->kind == INSTR_COMPUTE && graph_node(t.stage->graph, x->node)->op == OP_adamw)
            assert_true(run->end[i] > run->begin[i]);
    }
    timing_release(&timing);
    training_release(&t);
}

/* ---- which ones ------------------------------------------------------------------------------ */

/* A program of `n` calls of adamw, on memory that `data` names: output 0 = input 0, input 1. */
struct calls {
    struct program p;
    struct instr instrs[4];
    struct section section;
    struct tensor in[4][2], out[4][1];
    struct op_call call[4];
    const struct op_call *list[4];
    int32_t n_together[4];
};

static char memory[64];

static void put(struct calls *c, int i, int target, int grad)
{
    struct shape s = shape_of(1, (int64_t)2);
    c->instrs[i] = (struct instr){.kind = INSTR_COMPUTE, .kernel = batch_kernels[OP_adamw]};
    c->in[i][0] = (struct tensor){DTYPE_F32, s, memory + target};
    c->in[i][1] = (struct tensor){DTYPE_F32, s, memory + grad};
    c->out[i][0] = c->in[i][0];
    c->call[i] = (struct op_call){
        .op = OP_adamw, .n_in = 2, .n_out = 1, .in = c->in[i], .out = c->out[i], .attrs = NULL};
    c->list[i] = &c->call[i];
}

static void find(struct calls *c, int n)
{
    c->section = (struct section){"step", 0, n};
    c->p.instrs.items = c->instrs;
    c->p.instrs.n = (size_t)n;
    c->p.sections.items = &c->section;
    c->p.sections.n = 1;
    batch_find(&c->p, &batching, c->list, c->n_together);
}

static void a_run_ends_where_memory_is_shared(void **state)
{
    static struct calls c;
    (void)state;
    open_devices();
    put(&c, 0, 0, 40);
    put(&c, 1, 8, 40); /* reads what 0 reads: fine */
    put(&c, 2, 16, 4); /* reads half of what 0 writes */
    put(&c, 3, 24, 32);
    find(&c, 4);
    assert_int_equal(c.n_together[0], 2);
    assert_int_equal(c.n_together[1], 0);
    assert_int_equal(c.n_together[2], 2);
    assert_int_equal(c.n_together[3], 0);
    put(&c, 1, 44, 32); /* writes half of what 0 reads */
    find(&c, 2);
    assert_int_equal(c.n_together[0], 1);
    assert_int_equal(c.n_together[1], 1);
    put(&c, 1, 4, 32); /* both write */
    find(&c, 2);
    assert_int_equal(c.n_together[0], 1);
}

static void a_run_ends_at_other_queues_kernels_and_kinds(void **state)
{
    static struct calls c;
    (void)state;
    open_devices();
    for (int i = 0; i < 4; i++)
        put(&c, i, 8 * i, 40);
    find(&c, 4);
    assert_int_equal(c.n_together[0], 4);
    c.instrs[2].queue = QUEUE_IN;
    find(&c, 4);
    assert_int_equal(c.n_together[0], 2);
    assert_int_equal(c.n_together[2], 1);
    c.instrs[2].queue = QUEUE_COMPUTE;
    c.instrs[2].kernel = batch_kernels[OP_adamw_master];
    find(&c, 4);
    assert_int_equal(c.n_together[0], 4); /* another op, but the device takes both at once */
    c.instrs[2].kernel = batch_kernels[OP_sgd];
    find(&c, 4);
    assert_int_equal(c.n_together[0], 2);
    c.instrs[2].kind = INSTR_RECORD;
    c.list[2] = NULL;
    find(&c, 4);
    assert_int_equal(c.n_together[0], 2);
    assert_int_equal(c.n_together[2], 1);
    assert_int_equal(c.n_together[3], 1);
    put(&c, 2, 16, 40);
    c.instrs[1].has_workspace = true;
    find(&c, 4);
    assert_int_equal(c.n_together[0], 1);
    assert_int_equal(c.n_together[1], 1);
    assert_int_equal(c.n_together[2], 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(together_gives_the_bits_of_one_by_one),
        cmocka_unit_test(updates_of_a_block_run_together_whichever_op_they_are),
        cmocka_unit_test(updates_of_two_ops_in_a_block_run_apart_where_they_must),
        cmocka_unit_test(every_instruction_gets_its_share_of_the_time),
        cmocka_unit_test(a_run_ends_where_memory_is_shared),
        cmocka_unit_test(a_run_ends_at_other_queues_kernels_and_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
