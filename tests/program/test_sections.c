/* The parts of a step: what each runs, and what crosses tiers between them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "program/timeline.h"
#include "support/golden.h"
#include "support/training.h"

static const struct training_options plain = {
    .golden = "llama", .batch = 1, .seq_len = 8, .n_micro = 3};
static const struct training_options clipped = {
    .golden = "llama", .batch = 1, .seq_len = 8, .n_micro = 3, .max_grad_norm = 1.0};

static void open_program(struct training *t, const struct training_options *o)
{
    training_init(t, o);
    plan_set_home(&t->stage->plan, t->stage->graph, ROLE_GRADIENT, TIER_HOST);
    plan_set_home(&t->stage->plan, t->stage->graph, ROLE_STATE, TIER_HOST);
    training_emit(t);
}

static const struct section *section_of(const struct training *t, const char *name)
{
    const struct section *s = program_section(t->stage->program, name);
    if (!s)
        fail_msg("there is no section '%s'", name);
    return s;
}

/* Copies on a queue of values whose root has the role. */
static int count_copies(const struct training *t, const char *section, enum queue q, enum role role)
{
    const struct program *p = t->stage->program;
    const struct section *s = section_of(t, section);
    int n = 0;
    for (int32_t k = s->first; k < s->first + s->n; k++) {
        const struct instr *i = &p->instrs.items[k];
        if (i->kind != INSTR_COPY || i->queue != q)
            continue;
        value_id root = value_root(p->graph, p->operands.items[i->first_operand].value);
        n += graph_value(p->graph, root)->role == role;
    }
    return n;
}

/* Calls of a pass, those after the first call of another one if that is given. */
static int count_calls(const struct training *t, const char *section, enum pass pass,
                       enum pass after)
{
    const struct program *p = t->stage->program;
    const struct section *s = section_of(t, section);
    bool begun = pass == after;
    int n = 0;
    for (int32_t k = s->first; k < s->first + s->n; k++) {
        const struct instr *i = &p->instrs.items[k];
        if (i->kind != INSTR_COMPUTE || i->recompute)
            continue;
        enum pass here = graph_node(p->graph, i->node)->pass;
        begun |= here == after;
        n += begun && here == pass;
    }
    return n;
}

static void the_last_micro_step_updates_beside_its_backward_pass(void **state)
{
    (void)state;
    struct training t;
    open_program(&t, &plain);
    assert_int_equal(t.stage->program->sections.n, 3);
    assert_int_equal(count_calls(&t, "micro", PASS_UPDATE, PASS_UPDATE), 0);
    assert_true(count_calls(&t, "last", PASS_BACKWARD, PASS_UPDATE) > 0);
    assert_int_equal(count_calls(&t, "last", PASS_BACKWARD, PASS_BACKWARD),
                     count_calls(&t, "micro", PASS_BACKWARD, PASS_BACKWARD));
    training_release(&t);
}

/* A sum on the host that its update uses up need not go back there: the next step clears it. */
static void a_sum_is_used_up_where_its_last_term_is_added(void **state)
{
    (void)state;
    struct training t;
    open_program(&t, &plain);
    int n_sums = count_copies(&t, "micro", QUEUE_OUT, ROLE_GRADIENT);
    assert_true(n_sums > 0);
    assert_int_equal(count_copies(&t, "last", QUEUE_OUT, ROLE_GRADIENT), 0);
    assert_int_equal(count_copies(&t, "last", QUEUE_IN, ROLE_GRADIENT),
                     count_copies(&t, "micro", QUEUE_IN, ROLE_GRADIENT));
    training_release(&t);
    open_program(&t, &clipped); /* they wait for the norm of all */
    int n_waiting = count_copies(&t, "last", QUEUE_OUT, ROLE_GRADIENT);
    assert_in_range(n_waiting, n_sums - 1, n_sums); /* the norm may stand where the last is made */
    training_release(&t);
}

static void a_step_runs_each_section_as_often_as_it_says(void **state)
{
    (void)state;
    struct training t;
    open_program(&t, &plain);
    assert_int_equal(section_runs(t.stage->program, section_of(&t, "begin"), 3), 1);
    assert_int_equal(section_runs(t.stage->program, section_of(&t, "micro"), 3), 2);
    assert_int_equal(section_runs(t.stage->program, section_of(&t, "last"), 3), 1);
    training_release(&t);
}

static void open_deferred(struct training *t)
{
    training_init(t, &(struct training_options){
                         .golden = "llama", .batch = 1, .seq_len = 8, .max_grad_norm = 1.0});
    plan_set_home(&t->stage->plan, t->stage->graph, ROLE_PARAMETER, TIER_HOST);
    t->stage->plan.defer_updates = plan_may_defer(&t->stage->plan, t->stage->graph);
    training_emit(t);
}

/* A weight at home on the host crosses the link once for its update and the forward pass, and once
 * for the backward pass. */
static void a_deferred_update_shares_the_fetch_of_the_forward_pass(void **state)
{
    (void)state;
    struct training t;
    open_deferred(&t);
    assert_int_equal(count_copies(&t, "step", QUEUE_IN, ROLE_PARAMETER),
                     count_copies(&t, "first", QUEUE_IN, ROLE_PARAMETER));
    int n_updates = count_calls(&t, "finish", PASS_UPDATE, PASS_UPDATE);
    assert_true(n_updates > 0);
    assert_int_equal(count_calls(&t, "first", PASS_UPDATE, PASS_UPDATE), 0);
    assert_int_equal(count_calls(&t, "step", PASS_UPDATE, PASS_UPDATE), n_updates);
    assert_true(count_calls(&t, "step", PASS_FORWARD, PASS_UPDATE) > 0);
    training_release(&t);
}

static void expect_marks(const struct training *t, const char *const *names, int n)
{
    struct timeline line;
    expect_ok(
        timeline_init(&line, &(struct timeline_view){t->stage->program, &t->engine.work.storage,
                                                     TIER_DEVICE, 80, NULL, t->stage->n_micro}));
    assert_int_equal(line.n_marks, n);
    for (int i = 0; i < n; i++)
        assert_string_equal(line.marks[i].name, names[i]);
    timeline_release(&line);
}

static void parts_of_a_step_with_deferred_updates_are_marked(void **state)
{
    (void)state;
    static const char *const names[] = {"first step", "forward", "backward", "last updates"};
    struct training t;
    open_deferred(&t);
    expect_marks(&t, names, ARRAY_LEN(names));
    training_release(&t);
}

/* What only a step with too few micro-batches runs is one part, and no update of a usual step. */
static void what_a_group_does_not_run_is_marked(void **state)
{
    (void)state;
    static const char *const names[] = {"forward", "backward", "fewer micro-batches"};
    struct training t;
    const struct decisions d = {.group = 3};
    training_init(&t, &plain);
    expect_ok(workload_decide(&t.engine.work, &d));
    expect_ok(workload_emit(&t.engine.work));
    expect_marks(&t, names, ARRAY_LEN(names));
    training_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_micro_step_updates_beside_its_backward_pass),
        cmocka_unit_test(a_sum_is_used_up_where_its_last_term_is_added),
        cmocka_unit_test(a_step_runs_each_section_as_often_as_it_says),
        cmocka_unit_test(a_deferred_update_shares_the_fetch_of_the_forward_pass),
        cmocka_unit_test(parts_of_a_step_with_deferred_updates_are_marked),
        cmocka_unit_test(what_a_group_does_not_run_is_marked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
