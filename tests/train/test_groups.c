/* Micro-batches that run in groups, block by block: the bits of those that run one at a time, for
 * every size and wherever things are at home, and weights that are away are fetched once a group.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "plan/group.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "support/training.h"

enum { N_MICRO = 4, N_STEPS = 2 };

static struct scratch scratch;
static struct device device;

static int open_device(void **state)
{
    (void)state;
    scratch_init(&scratch);
    expect_ok(device_open_cpu(&device, 2));
    expect_ok(device_use_disk(&device, scratch.folder));
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    device_close(&device);
    scratch_release(&scratch);
    return 0;
}

/* The head is the embedding; every kind of dropout. */
static const struct training_options gpt2 = {
    .config = "{\"model_type\":\"gpt2\",\"vocab_size\":61,\"n_positions\":16,\"n_embd\":16,"
              "\"n_layer\":3,\"n_head\":2,\"resid_pdrop\":0.1,\"embd_pdrop\":0.1,"
              "\"attn_pdrop\":0.1}",
    .batch = 2,
    .seq_len = 8,
    .n_micro = N_MICRO};
/* The norm of all gradients is waited for; weights are rounded by chance. */
static const struct training_options llama = {.golden = "llama",
                                              .batch = 1,
                                              .seq_len = 8,
                                              .n_micro = N_MICRO,
                                              .bf16 = true,
                                              .seed = 3,
                                              .max_grad_norm = 1.0};

/* One block is recomputed, what another saves is moved, and the rest is at home in `away`. */
static void open_group(struct training *t, const struct training_options *model, int group,
                       enum tier away)
{
    static const enum role roles[] = {ROLE_PARAMETER, ROLE_MASTER, ROLE_STATE, ROLE_GRADIENT};
    struct training_options o = *model;
    o.device = &device;
    o.group = group;
    training_init(t, &o);
    struct plan *plan = &t->stage->plan;
    if (away != TIER_DEVICE) {
        plan_recompute_block(plan, t->stage->graph, 0);
        plan_move_block(plan, t->stage->graph, 1, away);
        plan->ahead_bytes = plan->behind_bytes = 4 << 10;
        plan->slice_bytes = 2 << 10;
    }
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        plan_set_home(plan, t->stage->graph, roles[i], away);
    training_emit(t);
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
        digest = (digest * 31 + bits[0]) * 31 + bits[1];
    }
    return digest ^ training_digest(t);
}

static uint64_t train(const struct training_options *model, int group, enum tier away)
{
    struct training t;
    open_group(&t, model, group, away);
    assert_int_equal(t.stage->group, group);
    uint64_t digest = run(&t);
    training_expect_prediction(&t);
    training_release(&t);
    return digest;
}

/* Of 4 micro-batches a group of 3 leaves one over. */
static void expect_same_bits(const struct training_options *model)
{
    const uint64_t want = train(model, 1, TIER_DEVICE);
    for (int group = 2; group <= N_MICRO; group++) {
        assert_true(train(model, group, TIER_DEVICE) == want);
        assert_true(train(model, group, TIER_HOST) == want);
        assert_true(train(model, group, TIER_DISK) == want);
    }
}

static void groups_give_the_bits_of_one_at_a_time(void **state)
{
    (void)state;
    expect_same_bits(&gpt2);
    expect_same_bits(&llama);
}

/* Experts: what each of them gets is another micro-batch's other rows. */
static void experts_go_in_groups_too(void **state)
{
    static const struct training_options experts = {
        .golden = "qwen3_moe", .batch = 1, .seq_len = 8, .n_micro = N_MICRO, .max_grad_norm = 1.0};
    (void)state;
    const uint64_t want = train(&experts, 1, TIER_DEVICE);
    assert_true(train(&experts, 3, TIER_HOST) == want);
    assert_true(train(&experts, N_MICRO, TIER_DISK) == want);
}

/* As in a step in which too few have labels to fill the groups. */
static void micro_batches_of_a_group_run_alone_with_the_same_bits(void **state)
{
    (void)state;
    struct training_options alone = gpt2;
    const uint64_t want = train(&gpt2, 1, TIER_DEVICE);
    alone.alone = true;
    for (int group = 2; group <= N_MICRO; group += 2) {
        struct training t;
        open_group(&t, &alone, group, TIER_HOST);
        assert_true(run(&t) == want);
        training_release(&t);
    }
}

/* Copies of storage or sums of a role, in a section. */
static int count_copies(const struct training *t, const char *name, enum queue q, enum role role)
{
    const struct program *p = t->stage->program;
    const struct section *s = program_section(p, name);
    int n = 0;
    assert_non_null(s);
    for (int32_t k = s->first; k < s->first + s->n; k++) {
        const struct instr *i = &p->instrs.items[k];
        if (i->kind != INSTR_COPY || i->queue != q)
            continue;
        value_id root = value_root(p->graph, p->operands.items[i->first_operand].value);
        const struct value *v = graph_value(p->graph, root);
        n += v->producer == NODE_NONE && v->role == role;
    }
    return n;
}

static void open_away(struct training *t, int group)
{
    struct training_options o = llama;
    o.device = &device;
    o.group = group;
    training_init(t, &o);
    training_go_away(t);
    training_emit(t);
}

static void what_is_away_crosses_once_for_a_group(void **state)
{
    (void)state;
    struct training one, two, all;
    open_away(&one, 1);
    open_away(&two, 2);
    open_away(&all, N_MICRO);
    int n_weights = count_copies(&one, "micro", QUEUE_IN, ROLE_PARAMETER);
    int n_sums = count_copies(&one, "micro", QUEUE_OUT, ROLE_GRADIENT);
    assert_true(n_weights > 0 && n_sums > 0);
    assert_int_equal(count_copies(&two, "group", QUEUE_IN, ROLE_PARAMETER), n_weights);
    assert_int_equal(count_copies(&two, "group", QUEUE_OUT, ROLE_GRADIENT), n_sums);
    assert_int_equal(count_copies(&two, "micro", QUEUE_IN, ROLE_PARAMETER), n_weights);
    assert_int_equal(count_copies(&all, "step", QUEUE_IN, ROLE_PARAMETER),
                     count_copies(&one, "last", QUEUE_IN, ROLE_PARAMETER));
    /* What is only cleared is not fetched for that. */
    assert_int_equal(count_copies(&one, "begin", QUEUE_IN, ROLE_GRADIENT), 0);
    training_release(&one);
    training_release(&two);
    training_release(&all);
}

static void a_step_runs_its_sections_in_groups(void **state)
{
    static const struct {
        int group;
        const char *section;
        int runs;
    } cases[] = {
        {2, "begin", 1}, {2, "group", 1}, {2, "last", 1},   {2, "micro", 0},  {2, "update", 0},
        {3, "begin", 1}, {3, "micro", 1}, {3, "last", 1},   {3, "update", 0}, {4, "step", 1},
        {4, "begin", 0}, {4, "micro", 0}, {4, "update", 0},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct training t;
        open_group(&t, &gpt2, cases[i].group, TIER_DEVICE);
        const struct section *s = program_section(t.stage->program, cases[i].section);
        assert_non_null(s);
        assert_int_equal(section_runs(t.stage->program, s, N_MICRO), cases[i].runs);
        training_release(&t);
    }
}

/* Nodes of a group go from block to block, and its graph can be read back. */
static void the_graph_of_a_group_is_block_by_block(void **state)
{
    (void)state;
    struct training t;
    struct str text = {0}, again = {0};
    struct graph *g;
    open_group(&t, &gpt2, 3, TIER_DEVICE);
    assert_int_equal(group_size(t.stage->graph), 3);
    int last_block = -1, last_micro = 0;
    for (node_id k = 0; (size_t)k < t.stage->graph->nodes.n; k++) {
        const struct node *n = graph_node(t.stage->graph, k);
        if (n->pass != PASS_FORWARD || n->block == BLOCK_NONE)
            continue;
        assert_true(n->block >= last_block);
        assert_true(n->block > last_block || n->micro >= last_micro);
        last_block = n->block;
        last_micro = n->micro;
    }
    expect_ok(graph_print(t.stage->graph, &text));
    expect_ok(graph_parse(&g, str_text(&text)));
    assert_int_equal(group_size(g), 3);
    expect_ok(graph_print(g, &again));
    assert_string_equal(str_text(&text), str_text(&again));
    graph_free(g);
    str_release(&text);
    str_release(&again);
    training_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_give_the_bits_of_one_at_a_time),
        cmocka_unit_test(experts_go_in_groups_too),
        cmocka_unit_test(micro_batches_of_a_group_run_alone_with_the_same_bits),
        cmocka_unit_test(what_is_away_crosses_once_for_a_group),
        cmocka_unit_test(a_step_runs_its_sections_in_groups),
        cmocka_unit_test(the_graph_of_a_group_is_block_by_block),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
