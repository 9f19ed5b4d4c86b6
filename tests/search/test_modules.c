/* Parts of blocks that are made again: which values that is, that others are kept, and that nothing
 * else changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "search/search.h"
#include "support/golden.h"
#include "support/training.h"

enum { N_STEPS = 2 };

#define BIT(m) (1u << MODULE_##m)

static void expect_outputs(const struct training *t, const struct node *n, bool again)
{
    for (int i = 0; i < n->n_out; i++) {
        const struct value *v = graph_value(t->stage->graph, n->out[i]);
        if ((t->stage->plan.treat[n->out[i]] == RECOMPUTE) != again)
            fail_msg("%s is %s", v->name ? v->name : op_get(n->op)->name,
                     again ? "kept" : "made again");
    }
}

/* Of every block what these nodes make (their names follow "layers.N."), and of the rest nothing.
 */
static void expect_made_again(const struct training *t, const char *const *names)
{
    const struct graph *g = t->stage->graph;
    int n_found = 0, n_names = 0;
    while (names[n_names])
        n_names++;
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        const char *name = graph_value(g, n->out[0])->name;
        bool again = false;
        if (n->pass != PASS_FORWARD)
            continue;
        for (int i = 0; n->block != BLOCK_NONE && name && i < n_names; i++)
            again = again || strcmp(strrchr(name, '.') + 1, names[i]) == 0;
        expect_outputs(t, n, again);
        n_found += again;
    }
    assert_int_equal(n_found, n_names * t->stage->plan.n_blocks);
}

/* Nodes that run a second time are nodes whose values were dropped. */
static void expect_program(const struct training *t)
{
    const struct program *p = t->stage->program;
    for (size_t i = 0; i < p->instrs.n; i++) {
        const struct instr *x = &p->instrs.items[i];
        if (x->kind == INSTR_COMPUTE && x->recompute)
            expect_outputs(t, graph_node(p->graph, x->node), true);
    }
}

static void decide(struct training *t, unsigned modules)
{
    const struct decisions d = {.recompute = {.modules = modules}};
    expect_ok(workload_decide(&t->engine.work, &d));
    training_emit(t);
}

static uint64_t run(struct training *t)
{
    training_start(t);
    for (int i = 0; i < N_STEPS; i++)
        training_step(t, i);
    training_expect_prediction(t);
    uint64_t digest = training_digest(t);
    training_stop(t);
    return digest;
}

struct part {
    unsigned modules;
    const char *names[8];
};

static void expect_parts(const char *golden, const struct part *parts, int n)
{
    struct training t;
    training_init(&t, &(struct training_options){.golden = golden, .batch = 4, .seq_len = 16});
    decide(&t, 0);
    const uint64_t kept = run(&t);
    const int64_t all = t.engine.work.n_bytes[TIER_DEVICE];
    for (int i = 0; i < n; i++) {
        decide(&t, parts[i].modules);
        expect_made_again(&t, parts[i].names);
        expect_program(&t);
        assert_true(t.engine.work.n_bytes[TIER_DEVICE] < all);
        assert_int_equal(t.stage->plan.n_blocks_recomputed,
                         parts[i].modules == BIT(NORM) ? 0 : t.stage->plan.n_blocks);
        assert_true(run(&t) == kept);
    }
    training_release(&t);
}

static void llama_makes_the_named_parts_again(void **state)
{
    (void)state;
    static const struct part parts[] = {
        {BIT(ATTENTION), {"qkv", "rotary", "attention"}},
        {BIT(MLP), {"gate_up", "gate"}},
        {BIT(NORM), {"attn_norm", "mlp_norm"}},
        {BIT(NORM) | BIT(MLP), {"attn_norm", "mlp_norm", "gate_up", "gate"}},
    };
    expect_parts("llama", parts, ARRAY_LEN(parts));
}

static void gpt2_makes_the_named_parts_again(void **state)
{
    (void)state;
    static const struct part parts[] = {
        {BIT(ATTENTION), {"qkv", "attention"}},
        {BIT(MLP), {"up", "gelu"}},
        {BIT(NORM), {"attn_norm", "mlp_norm"}},
    };
    expect_parts("gpt2", parts, ARRAY_LEN(parts));
}

static void a_graph_has_the_parts_that_it_has(void **state)
{
    (void)state;
    struct training t;
    unsigned modules;
    struct graph *empty;
    training_init(&t, &(struct training_options){.golden = "llama", .batch = 1, .seq_len = 8});
    expect_ok(plan_find_modules(t.stage->graph, &modules));
    assert_int_equal(modules, BIT(ATTENTION) | BIT(MLP) | BIT(NORM));
    training_release(&t);
    expect_ok(graph_new(&empty, "empty"));
    expect_ok(plan_find_modules(empty, &modules));
    assert_int_equal(modules, 0);
    graph_free(empty);
}

/* A search moves homes and values, and makes again what is named alone. */
static void a_search_leaves_the_parts_as_they_are_named(void **state)
{
    (void)state;
    struct training t;
    struct search_bounds bounds = {0};
    bounds.fixed[EXTENT_RECOMPUTED] = true;
    training_init(&t, &(struct training_options){.golden = "llama", .batch = 4, .seq_len = 16});
    decide(&t, BIT(ATTENTION));
    const struct limits limits = {
        .n_bytes = {t.engine.work.n_bytes[TIER_DEVICE] * 2 / 3, LIMIT_OPEN, LIMIT_OPEN}};
    struct decisions d = {.recompute = {.modules = BIT(ATTENTION)}};
    expect_ok(search_plan(&t.engine.work, &limits, &bounds, NULL, &d, NULL));
    assert_true(t.engine.work.n_bytes[TIER_DEVICE] <= limits.n_bytes[TIER_DEVICE]);
    assert_true(decisions_copy(&d));
    expect_made_again(&t, (const char *const[]){"qkv", "rotary", "attention", NULL});
    training_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_makes_the_named_parts_again),
        cmocka_unit_test(gpt2_makes_the_named_parts_again),
        cmocka_unit_test(a_graph_has_the_parts_that_it_has),
        cmocka_unit_test(a_search_leaves_the_parts_as_they_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
