/* Every way of running a step gives the same bits, in exactly the predicted memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/golden.h"
#include "support/scratch.h"
#include "support/training.h"

enum { N_STEPS = SNUG_ASAN ? 4 : 20 }; /* bits are compared without sanitizers too */

/* ---- ways of running a step ------------------------------------------------------------------ */

static void keep_everything(struct plan *p, const struct graph *g)
{
    (void)p;
    (void)g;
}

static void recompute_all_blocks(struct plan *p, const struct graph *g)
{
    for (int b = 0; b < p->n_blocks; b++)
        plan_recompute_block(p, g, b);
}

static void recompute_the_last_block(struct plan *p, const struct graph *g)
{
    plan_recompute_block(p, g, p->n_blocks - 1);
}

static void recompute_what_is_cheap(struct plan *p, const struct graph *g)
{
    plan_recompute_cheap(p, g);
}

static void move_all_blocks(struct plan *p, const struct graph *g)
{
    for (int b = 0; b < p->n_blocks; b++)
        plan_move_block(p, g, b, TIER_HOST);
}

static void states_on_the_host(struct plan *p, const struct graph *g)
{
    plan_set_home(p, g, ROLE_STATE, TIER_HOST);
    plan_set_home(p, g, ROLE_MASTER, TIER_HOST);
}

static void parameters_on_the_host(struct plan *p, const struct graph *g)
{
    plan_set_home(p, g, ROLE_PARAMETER, TIER_HOST);
}

static void gradient_sums_on_the_host(struct plan *p, const struct graph *g)
{
    plan_set_home(p, g, ROLE_GRADIENT, TIER_HOST);
}

/* Recompute in one block, activations of the others and all storage on the host. */
static void everything_at_once(struct plan *p, const struct graph *g)
{
    plan_recompute_block(p, g, 0);
    for (int b = 1; b < p->n_blocks; b++)
        plan_move_block(p, g, b, TIER_HOST);
    plan_recompute_cheap(p, g);
    states_on_the_host(p, g);
    parameters_on_the_host(p, g);
    gradient_sums_on_the_host(p, g);
    plan_set_home(p, g, ROLE_CONSTANT, TIER_HOST);
}

/* Gradients leave until the norm of all is known. */
static void gradients_moved(struct plan *p, const struct graph *g)
{
    for (value_id v = 0; (size_t)v < g->values.n; v++) {
        node_id producer = graph_value(g, v)->producer;
        bool backward = producer != NODE_NONE && graph_node(g, producer)->pass == PASS_BACKWARD;
        if (backward && plan_allows(p, g, v, MOVE))
            plan_move(p, v, TIER_HOST);
    }
}

/* The same with a ring that holds a few tensors, and with one that holds everything. */
static void everything_ahead_of_time(struct plan *p, const struct graph *g)
{
    everything_at_once(p, g);
    gradients_moved(p, g);
    p->ahead_bytes = p->behind_bytes = 48 << 10;
}

static void everything_far_ahead_of_time(struct plan *p, const struct graph *g)
{
    everything_at_once(p, g);
    p->ahead_bytes = p->behind_bytes = INT64_MAX / 4;
}

/* Updates wait for the next step; gradients stay, and leave. */
static void updates_deferred(struct plan *p, const struct graph *g)
{
    p->defer_updates = plan_may_defer(p, g);
    assert_int_equal(p->defer_updates, p->n_micro == 1);
}

static void everything_and_updates_deferred(struct plan *p, const struct graph *g)
{
    everything_ahead_of_time(p, g);
    updates_deferred(p, g);
}

static const struct way {
    const char *name;
    void (*decide)(struct plan *p, const struct graph *g);
} ways[] = {
    {"everything kept", keep_everything}, /* what the others are held against */
    {"all blocks recomputed", recompute_all_blocks},
    {"the last block recomputed", recompute_the_last_block},
    {"cheap ops recomputed", recompute_what_is_cheap},
    {"activations moved", move_all_blocks},
    {"states on the host", states_on_the_host},
    {"parameters on the host", parameters_on_the_host},
    {"gradient sums on the host", gradient_sums_on_the_host},
    {"gradients moved", gradients_moved},
    {"everything at once", everything_at_once},
    {"everything ahead of time", everything_ahead_of_time},
    {"everything far ahead of time", everything_far_ahead_of_time},
    {"updates deferred", updates_deferred},
    {"everything, updates deferred", everything_and_updates_deferred},
};

struct result {
    float losses[N_STEPS], norms[N_STEPS];
    uint64_t digest;
    int64_t n_bytes[TIER_COUNT];
};

static void run(const struct training_options *o, const struct way *way, struct result *r)
{
    struct training t;
    training_init(&t, o);
    way->decide(&t.stage->plan, t.stage->graph);
    training_emit(&t);
    training_start(&t);
    for (int i = 0; i < N_STEPS; i++) {
        training_step(&t, i);
        r->losses[i] = training_output(&t, "loss");
        r->norms[i] = training_output(&t, "grad_norm");
    }
    r->digest = training_digest(&t);
    training_expect_prediction(&t);
    memcpy(r->n_bytes, t.stage->program->n_bytes, sizeof(r->n_bytes));
    training_release(&t);
}

static void expect_same_bits(const struct way *way, const struct result *want,
                             const struct result *got)
{
    for (int i = 0; i < N_STEPS; i++) {
        if (memcmp(&want->losses[i], &got->losses[i], sizeof(float)) != 0 ||
            memcmp(&want->norms[i], &got->norms[i], sizeof(float)) != 0)
            fail_msg("%s, step %d: loss %.9g, norm %.9g instead of %.9g, %.9g", way->name, i,
                     (double)got->losses[i], (double)got->norms[i], (double)want->losses[i],
                     (double)want->norms[i]);
    }
    if (want->digest != got->digest)
        fail_msg("%s: weights or states differ", way->name);
}

static void every_way_gives_the_same_bits(const struct training_options *o)
{
    struct result kept, other;
    run(o, &ways[0], &kept);
    assert_true(kept.losses[N_STEPS - 1] == kept.losses[N_STEPS - 1]); /* not NaN */
    assert_true(kept.losses[0] != kept.losses[N_STEPS - 1]);
    for (size_t i = 1; i < ARRAY_LEN(ways); i++) {
        run(o, &ways[i], &other);
        expect_same_bits(&ways[i], &kept, &other);
    }
}

static void gpt2_gives_the_same_bits_in_every_way(void **state)
{
    (void)state;
    every_way_gives_the_same_bits(
        &(struct training_options){.golden = "gpt2", .batch = 3, .seq_len = 24});
}

static void llama_gives_the_same_bits_in_every_way(void **state)
{
    (void)state;
    every_way_gives_the_same_bits(&(struct training_options){
        .golden = "llama", .batch = 3, .seq_len = 24, .max_grad_norm = 1.0});
}

static void micro_steps_give_the_same_bits_in_every_way(void **state)
{
    (void)state;
    every_way_gives_the_same_bits(&(struct training_options){
        .golden = "gpt2", .batch = 1, .seq_len = 24, .n_micro = 3, .max_grad_norm = 1.0});
    every_way_gives_the_same_bits(
        &(struct training_options){.golden = "llama", .batch = 1, .seq_len = 24, .n_micro = 3});
}

static void bf16_gives_the_same_bits_in_every_way(void **state)
{
    (void)state;
    every_way_gives_the_same_bits(&(struct training_options){
        .golden = "gpt2", .batch = 1, .seq_len = 24, .n_micro = 3, .bf16 = true});
    every_way_gives_the_same_bits(&(struct training_options){
        .golden = "qwen3", .batch = 3, .seq_len = 24, .bf16 = true, .max_grad_norm = 1.0});
}

#define TINY_GPT2                                                                                \
    "{\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_head\": 4, \"n_layer\": 2, \"vocab_size\": " \
    "97, \"n_positions\": 64, "

static void dropout_gives_the_same_bits_in_every_way(void **state)
{
    (void)state;
    every_way_gives_the_same_bits(&(struct training_options){
        .config = TINY_GPT2 "\"attn_pdrop\": 0.1, \"resid_pdrop\": 0.1, \"embd_pdrop\": 0.1}",
        .batch = 2,
        .seq_len = 24,
        .n_micro = 2});
    every_way_gives_the_same_bits(&(struct training_options){
        .config = TINY_GPT2 "\"attn_pdrop\": 0.5}", .batch = 3, .seq_len = 24, .bf16 = true});
}

/* ---- what each way is for -------------------------------------------------------------------- */

static int64_t device_bytes(const struct training_options *o, const struct way *way)
{
    struct training t;
    training_init(&t, o);
    way->decide(&t.stage->plan, t.stage->graph);
    training_emit(&t);
    int64_t n_bytes = t.stage->program->n_bytes[TIER_DEVICE];
    training_release(&t);
    return n_bytes;
}

/* With a ring without end everything is on the device at once; gradients are there longer. */
static bool takes_room(const struct way *way)
{
    return way->decide == everything_far_ahead_of_time || way->decide == updates_deferred;
}

static bool has_memory_of_its_own(const struct program *p, size_t i)
{
    const struct buffer *b = &p->buffers.items[i];
    bool is_joined = b->merged_into >= 0;
    for (size_t k = 0; k < p->buffers.n; k++)
        is_joined |= p->buffers.items[k].merged_into == (int32_t)i;
    return !is_joined && b->storage < 0 && b->tier == TIER_DEVICE && b->n_bytes > 0;
}

/* Buffer i begins somewhere else; is that refused? Not asked where it would leave the arena. */
static int expect_refused(struct program *p, const struct storage *s, size_t i, int64_t offset)
{
    struct buffer *b = &p->buffers.items[i];
    const int64_t was = b->offset;
    if (offset < s->n_bytes[TIER_DEVICE] || offset + b->n_bytes > p->n_bytes[TIER_DEVICE])
        return 0;
    b->offset = offset;
    assert_int_equal(program_check(p, s), ERR_PROGRAM);
    expect_message("overlap in");
    b->offset = was;
    return 1;
}

static void buffers_that_live_together_do_not_overlap(void **state)
{
    (void)state;
    const struct training_options o = {.golden = "llama", .batch = 2, .seq_len = 8};
    struct training t;
    int n_refused = 0;
    training_init(&t, &o);
    everything_ahead_of_time(&t.stage->plan, t.stage->graph);
    training_emit(&t);
    struct program *p = t.stage->program;
    const struct storage *storage = &t.engine.work.storage;
    for (size_t i = 0; i < p->buffers.n; i++) {
        const struct buffer *b = &p->buffers.items[i];
        for (size_t k = 0; k < p->buffers.n && has_memory_of_its_own(p, i); k++) {
            const struct buffer *a = &p->buffers.items[k];
            if (k == i || !has_memory_of_its_own(p, k) || a->first > b->last || b->first > a->last)
                continue;
            n_refused += expect_refused(p, storage, i, a->offset);
            n_refused += expect_refused(p, storage, i, (a->offset + a->n_bytes - 1) & -ARENA_ALIGN);
            n_refused +=
                expect_refused(p, storage, i, align_up(a->offset - b->n_bytes + 1, ARENA_ALIGN));
        }
    }
    assert_true(n_refused > 1000);
    expect_ok(program_check(p, storage));
    training_release(&t);
}

static void each_way_saves_device_memory(void **state)
{
    (void)state;
    /* Gradients wait for a norm only where no sums stand for them. */
    const struct training_options sums = {
        .golden = "llama", .batch = 8, .seq_len = 64, .n_micro = 2};
    const struct training_options clipped = {
        .golden = "llama", .batch = 1, .seq_len = 8, .max_grad_norm = 1.0};
    int64_t kept = 0;
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        struct training t;
        bool waits = ways[i].decide == gradients_moved;
        if (takes_room(&ways[i]))
            continue;
        training_init(&t, waits ? &clipped : &sums);
        ways[i].decide(&t.stage->plan, t.stage->graph);
        training_emit(&t);
        expect_ok(program_check(t.stage->program, &t.engine.work.storage));
        int64_t n_bytes = t.stage->program->n_bytes[TIER_DEVICE];
        print_message("%-28s device %8lld, host %8lld bytes\n", ways[i].name, (long long)n_bytes,
                      (long long)t.stage->program->n_bytes[TIER_HOST]);
        if (i == 0)
            kept = n_bytes;
        else if (n_bytes >= (waits ? device_bytes(&clipped, &ways[0]) : kept))
            fail_msg("%s takes %lld bytes, keeping everything %lld", ways[i].name,
                     (long long)n_bytes, (long long)kept);
        training_release(&t);
    }
}

static void storage_on_disk_is_in_blocks_and_needs_a_disk(void **state)
{
    struct training t;
    (void)state;
    training_init(&t, &(struct training_options){.golden = "gpt2", .batch = 1, .seq_len = 4});
    plan_set_home(&t.stage->plan, t.stage->graph, ROLE_STATE, TIER_DISK);
    training_emit(&t);
    const struct storage *s = &t.engine.work.storage;
    for (size_t i = 0; i < s->entries.n; i++) {
        if (s->entries.items[i].tier == TIER_DISK)
            assert_int_equal(s->entries.items[i].offset % DISK_ARENA_ALIGN, 0);
    }
    assert_true(s->n_bytes[TIER_DISK] > 0 && s->n_bytes[TIER_DISK] % DISK_ARENA_ALIGN == 0);
    assert_int_equal(engine_start(&t.engine, NULL), ERR_INTERNAL); /* the device has none */
    training_release(&t);
}

/* ---- debug aid ------------------------------------------------------------------------------- */

/* Does anything use b's bytes after it died, or for the whole program? */
static bool is_reused(const struct program *p, const struct buffer *b)
{
    for (size_t i = 0; i < p->buffers.n; i++) {
        const struct buffer *x = &p->buffers.items[i];
        if (x != b && x->merged_into < 0 && x->tier == b->tier && x->last > b->last &&
            x->offset < b->offset + b->n_bytes && b->offset < x->offset + x->n_bytes)
            return true;
    }
    return false;
}

static void dead_memory_is_filled_in_debug_builds(void **state)
{
    (void)state;
#ifdef NDEBUG
    skip();
#endif
    struct training t;
    int n_dead = 0;
    training_init(&t, &(struct training_options){.golden = "llama", .batch = 1, .seq_len = 8});
    move_all_blocks(&t.stage->plan, t.stage->graph);
    training_emit(&t);
    training_start(&t);
    training_step(&t, 0);
    int32_t end = (int32_t)t.stage->program->instrs.n - 1;
    for (size_t i = 0; i < t.stage->program->buffers.n; i++) {
        const struct buffer *b = &t.stage->program->buffers.items[i];
        bool whole = b->first == 0 && b->last == end;
        if (whole || b->storage >= 0 || b->merged_into >= 0 || is_reused(t.stage->program, b))
            continue;
        struct storage_entry place = {.tier = b->tier, .offset = b->offset};
        const unsigned char *bytes = executor_storage_pointer(t.engine.executor, &place);
        for (int64_t k = 0; k < b->n_bytes; k++)
            assert_int_equal(bytes[k], 0xA5);
        n_dead++;
    }
    assert_true(n_dead > 10);
    training_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_gives_the_same_bits_in_every_way),
        cmocka_unit_test(llama_gives_the_same_bits_in_every_way),
        cmocka_unit_test(micro_steps_give_the_same_bits_in_every_way),
        cmocka_unit_test(bf16_gives_the_same_bits_in_every_way),
        cmocka_unit_test(dropout_gives_the_same_bits_in_every_way),
        cmocka_unit_test(buffers_that_live_together_do_not_overlap),
        cmocka_unit_test(each_way_saves_device_memory),
        cmocka_unit_test(storage_on_disk_is_in_blocks_and_needs_a_disk),
        cmocka_unit_test(dead_memory_is_filled_in_debug_builds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
