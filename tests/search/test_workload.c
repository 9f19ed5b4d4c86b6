/* Decisions over graphs that are built once: each set becomes plans and programs of its own, and
 * leaves no trace in the next. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/golden.h"
#include "support/training.h"
#include "task/language.h"

static const struct training_options small = {.golden = "llama", .batch = 4, .seq_len = 24};

static const struct block_range first_block = {0, 0}, both_blocks = {0, 1};

static const struct {
    const char *name;
    struct decisions decisions;
} rungs[] = {
    {"kept", {.small_bytes = 0}},
    {"cheap", {.recompute_cheap = true}},
    {"one block", {.recompute = {.ranges = &first_block, .n_ranges = 1}}},
    {"two blocks", {.recompute = {.ranges = &both_blocks, .n_ranges = 1}}},
    {"all blocks", {.recompute = {.all = true}}},
};

static int64_t plan_with(struct training *t, const struct decisions *d)
{
    expect_ok(workload_decide(&t->engine.work, d));
    expect_ok(workload_emit(&t->engine.work));
    return t->engine.work.n_bytes[TIER_DEVICE];
}

static void print(const struct training *t, struct str *out)
{
    str_clear(out);
    expect_ok(program_print(t->stage->program, out));
}

/* What a run hands out in the end is held beside the arenas from the beginning, and counts. */
static void results_count_beside_the_arenas(void **state)
{
    (void)state;
    const int64_t n_bytes = (int64_t)1 << 30, noise = 64 << 20;
    const struct limits limits = {.n_bytes = {LIMIT_OPEN, LIMIT_OPEN, LIMIT_OPEN}};
    struct forecast none = {0}, some = {0};
    struct training t;
    training_init(&t, &small);
    (void)plan_with(&t, &(struct decisions){0});
    t.engine.work.result_bytes = 0;
    forecast_memory(&none, &t.engine.work, &limits);
    t.engine.work.result_bytes = n_bytes;
    forecast_memory(&some, &t.engine.work, &limits);
    assert_in_range(some.beside_bytes - none.beside_bytes, n_bytes - noise, n_bytes + noise);
    assert_true(some.budget.needs[TIER_HOST] >= n_bytes);
    assert_int_equal(some.arena_bytes, none.arena_bytes);
    training_release(&t);
}

/* Decisions say how large the slices are in which what is away is updated. */
static void what_is_away_is_updated_in_slices_as_decided(void **state)
{
    (void)state;
    struct training t;
    struct decisions d = {.n = {[EXTENT_STATES] = EXTENT_WHOLE}};
    training_init(&t, &small);
    for (int i = 0; i < 2; i++) {
        int n_slices = 0;
        d.slice_bytes = i ? 1024 : 0;
        (void)plan_with(&t, &d);
        for (size_t k = 0; k < t.stage->program->instrs.n; k++)
            n_slices += t.stage->program->instrs.items[k].slice.n > 0;
        assert_int_equal(n_slices > 0, i);
    }
    training_release(&t);
}

/* Gradients of the last block wait for the norm longest, sums of all blocks are there all the time
 * and are fetched when the fewest activations are alive. */
static void gradients_that_wait_leave_from_the_last_block_on(void **state)
{
    (void)state;
    struct training t;
    const struct decisions d = {.n = {[EXTENT_GRADIENTS] = 1}};
    int n_moved = 0;
    training_init(&t, &(struct training_options){
                          .golden = "llama", .batch = 1, .seq_len = 8, .max_grad_norm = 1.0});
    (void)plan_with(&t, &d);
    for (value_id v = 0; (size_t)v < t.stage->graph->values.n; v++) {
        if (t.stage->plan.treat[v] != MOVE)
            continue;
        node_id producer = graph_value(t.stage->graph, v)->producer;
        int block = graph_node(t.stage->graph, producer)->block;
        assert_int_equal(block, t.stage->plan.n_blocks - 1);
        n_moved++;
    }
    assert_true(t.stage->plan.n_blocks > 1 && n_moved > 0);
    training_release(&t);
}

static void decisions_are_tried_over_one_graph(void **state)
{
    struct training t;
    struct str before = {0}, after = {0};
    (void)state;
    for (size_t first = 0; first < ARRAY_LEN(rungs); first++) {
        training_init(&t, &small);
        struct graph *graph = t.stage->graph;
        size_t n_nodes = graph->nodes.n, n_values = graph->values.n;
        int64_t n_bytes = plan_with(&t, &rungs[first].decisions);
        print(&t, &before);
        for (size_t i = 0; i < ARRAY_LEN(rungs); i++)
            (void)plan_with(&t, &rungs[i].decisions);
        assert_int_equal(plan_with(&t, &rungs[first].decisions), n_bytes);
        print(&t, &after);
        assert_string_equal(before.text, after.text);
        assert_ptr_equal(t.stage->graph, graph);
        assert_int_equal(graph->nodes.n, n_nodes);
        assert_int_equal(graph->values.n, n_values);
        training_release(&t);
    }
    str_release(&before);
    str_release(&after);
}

static int n_run_again(const struct program *p)
{
    int n = 0;
    for (size_t i = 0; i < p->instrs.n; i++)
        n += p->instrs.items[i].recompute;
    return n;
}

/* The golden llama has two blocks of the same ops. */
static void every_block_that_is_named_is_recomputed(void **state)
{
    static const int n_blocks[] = {0, 0, 1, 2, 2};
    struct training t;
    int n_again[ARRAY_LEN(rungs)];
    int64_t n_bytes[ARRAY_LEN(rungs)];
    (void)state;
    training_init(&t, &small);
    assert_int_equal(t.stage->io.n_blocks, 2);
    for (size_t i = 0; i < ARRAY_LEN(rungs); i++) {
        n_bytes[i] = plan_with(&t, &rungs[i].decisions);
        n_again[i] = n_run_again(t.stage->program);
        print_message("%-12s %lld bytes, %d nodes run again\n", rungs[i].name,
                      (long long)n_bytes[i], n_again[i]);
        assert_int_equal(t.stage->plan.n_blocks, 2);
        assert_int_equal(t.stage->plan.n_blocks_recomputed, n_blocks[i]);
    }
    assert_int_equal(n_again[0], 0);
    assert_true(n_again[1] > 0 && n_bytes[1] < n_bytes[0]);
    assert_true(n_again[2] > 0 && n_bytes[2] < n_bytes[0]);
    assert_int_equal(n_again[3], 2 * n_again[2]);
    assert_int_equal(n_again[4], n_again[3]);
    training_release(&t);
}

/* ---- stages that share arenas ---------------------------------------------------------------- */

static void open_both(struct training *t, struct stage_request stages[2])
{
    struct settings settings;
    training_init(t, &small);
    settings = t->engine.settings;
    engine_close(&t->engine);
    stages[0] = t->request;
    stages[1] = (struct stage_request){
        .purpose = STAGE_EVAL, .batch = 64, .seq_len = small.seq_len, .n_micro = 1};
    engine_init(&t->engine, &settings, language_task(t->model), &t->device);
    expect_ok(engine_build(&t->engine, &(struct engine_request){.stages = stages, .n_stages = 2}));
    t->stage = engine_stage(&t->engine, STAGE_TRAIN);
}

static void arenas_are_those_of_the_largest_stage(void **state)
{
    struct training t;
    struct stage_request stages[2];
    (void)state;
    open_both(&t, stages);
    (void)plan_with(&t, &rungs[0].decisions);
    const struct workload *w = &t.engine.work;
    const struct stage *eval = engine_stage(&t.engine, STAGE_EVAL);
    int64_t train_bytes = t.stage->program->n_bytes[TIER_DEVICE];
    int64_t eval_bytes = eval->program->n_bytes[TIER_DEVICE];
    assert_int_equal(w->n_bytes[TIER_DEVICE], MAX(train_bytes, eval_bytes));
    assert_ptr_equal(workload_fullest(w, TIER_DEVICE), eval_bytes > train_bytes ? eval : t.stage);
    assert_int_equal(workload_fullest(w, TIER_HOST)->program->n_bytes[TIER_HOST],
                     w->n_bytes[TIER_HOST]);
    for (int i = 0; i < w->n_stages; i++)
        assert_int_equal(w->stages[i].program->n_storage[TIER_DEVICE],
                         w->storage.n_bytes[TIER_DEVICE]);
    training_release(&t);
}

static void only_training_recomputes(void **state)
{
    struct training t;
    struct stage_request stages[2];
    (void)state;
    open_both(&t, stages);
    (void)plan_with(&t, &rungs[4].decisions);
    const struct stage *eval = engine_stage(&t.engine, STAGE_EVAL);
    for (size_t v = 0; v < eval->graph->values.n; v++)
        assert_int_equal(eval->plan.treat[v], KEEP);
    training_release(&t);
}

/* ---- staging --------------------------------------------------------------------------------- */

static int64_t staging_bytes(const struct training *t)
{
    const struct storage_entry *e = storage_find(&t->engine.work.storage, STAGING_NAME);
    return e ? e->n_bytes : 0;
}

static int64_t largest_param(const struct training *t)
{
    int64_t most = 0;
    for (int i = 0; i < t->engine.n_params; i++)
        most = MAX(most, storage_find(&t->engine.work.storage, t->engine.params[i].name)->n_bytes);
    return most;
}

/* What lives on the host is read and written where it is. */
static void staging_has_room_for_what_the_host_cannot_reach(void **state)
{
    struct training t;
    struct device_ops ops;
    (void)state;
    training_init(&t, &small);
    (void)plan_with(&t, &rungs[0].decisions);
    assert_int_equal(staging_bytes(&t), 0); /* the host reads the CPU's memory */
    ops = *t.device.ops;
    ops.memory_is_apart = true;
    t.device.ops = &ops;
    (void)plan_with(&t, &rungs[0].decisions);
    assert_int_equal(staging_bytes(&t), largest_param(&t));
    int64_t n_host = t.engine.work.storage.n_bytes[TIER_HOST];
    t.device.staging_bytes = largest_param(&t) / 2;
    (void)plan_with(&t, &rungs[0].decisions);
    assert_int_equal(staging_bytes(&t), largest_param(&t) / 2); /* it goes through in parts */
    assert_true(t.engine.work.storage.n_bytes[TIER_HOST] < n_host);
    t.device.staging_bytes = 0;
    expect_ok(workload_decide(&t.engine.work, &rungs[0].decisions));
    plan_set_home(&t.stage->plan, t.stage->graph, ROLE_PARAMETER, TIER_HOST);
    expect_ok(workload_emit(&t.engine.work));
    assert_int_equal(staging_bytes(&t), largest_param(&t)); /* moments are as large */
    plan_set_home(&t.stage->plan, t.stage->graph, ROLE_STATE, TIER_HOST);
    expect_ok(workload_emit(&t.engine.work));
    assert_true(staging_bytes(&t) < largest_param(&t));
    training_release(&t);
}

/* Keys and values are made, not read: a long cache needs no staging of its size. */
static void a_cache_does_not_size_the_staging(void **state)
{
    struct training t;
    struct device_ops ops;
    struct settings settings;
    (void)state;
    training_init(&t, &small);
    settings = t.engine.settings;
    engine_close(&t.engine);
    ops = *t.device.ops;
    ops.memory_is_apart = true;
    t.device.ops = &ops;
    t.request = (struct stage_request){
        .purpose = STAGE_DECODE, .batch = 64, .seq_len = 1, .n_micro = 1, .cache_len = 64};
    engine_init(&t.engine, &settings, language_task(t.model), &t.device);
    expect_ok(
        engine_build(&t.engine, &(struct engine_request){.stages = &t.request, .n_stages = 1}));
    (void)plan_with(&t, &rungs[0].decisions);
    assert_true(storage_find(&t.engine.work.storage, "cache.0")->n_bytes > largest_param(&t));
    assert_int_equal(staging_bytes(&t), largest_param(&t));
    training_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decisions_are_tried_over_one_graph),
        cmocka_unit_test(results_count_beside_the_arenas),
        cmocka_unit_test(what_is_away_is_updated_in_slices_as_decided),
        cmocka_unit_test(gradients_that_wait_leave_from_the_last_block_on),
        cmocka_unit_test(every_block_that_is_named_is_recomputed),
        cmocka_unit_test(arenas_are_those_of_the_largest_stage),
        cmocka_unit_test(only_training_recomputes),
        cmocka_unit_test(staging_has_room_for_what_the_host_cannot_reach),
        cmocka_unit_test(a_cache_does_not_size_the_staging),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
