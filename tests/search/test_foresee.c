/* What makes a search shorter changes nothing of what it finds: threads, programs that are known,
 * spaces that are taken over. */
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/machine.h"
#include "base/sanitizer.h"
#include "search/known.h"
#include "search/search.h"
#include "support/golden.h"
#include "support/paper_device.h"
#include "support/training.h"

static const struct search_bounds free_choice = {0};

/* Long enough for threads; with accumulation micro-batches are looked at in groups too. */
static void open_network(struct training *t, struct device *device, int64_t n_micro)
{
    struct precision p = precision_bf16();
    expect_ok(device_open_cpu(device, 2));
    paper_device_make(device);
    training_init(t,
                  &(struct training_options){
                      .config = "{\"model_type\": \"gpt2\", \"vocab_size\": 4096, \"n_positions\":"
                                " 512, \"n_embd\": 1024, \"n_layer\": 12, \"n_head\": 16,"
                                " \"activation_function\": \"gelu_new\"}",
                      .batch = 4,
                      .seq_len = 512,
                      .n_micro = n_micro,
                      .precision = &p,
                      .seed = 3,
                      .device = device});
}

/* A plan in that part of what the network takes, in 1024ths. */
static struct search_report plan(int64_t n_micro, int64_t part, struct decisions *d)
{
    struct training t;
    struct device device;
    struct search_report report = {.n_findings = 0};
    open_network(&t, &device, n_micro);
    *d = (struct decisions){.recompute_cheap = true};
    expect_ok(workload_decide(&t.engine.work, d));
    expect_ok(workload_place(&t.engine.work));
    const struct limits limits = {
        .n_bytes = {t.engine.work.n_bytes[TIER_DEVICE] / 1024 * part, LIMIT_OPEN, LIMIT_OPEN}};
    expect_ok(search_plan(&t.engine.work, &limits, &free_choice, NULL, d, &report));
    assert_true(report.n_findings > 1);
    for (int i = 0; i < report.n_findings; i++)
        report.findings[i].text = NULL; /* it goes with the network */
    training_release(&t);
    device_close(&device);
    return report;
}

static void expect_same(const struct search_report *a, const struct search_report *b)
{
    assert_int_equal(a->n_ranked, b->n_ranked);
    assert_int_equal(a->n_emitted, b->n_emitted);
    assert_int_equal(a->chosen, b->chosen);
    assert_int_equal(a->n_findings, b->n_findings);
    for (int i = 0; i < a->n_findings; i++) {
        const struct finding *x = &a->findings[i], *y = &b->findings[i];
        assert_true(x->seconds == y->seconds);
        assert_memory_equal(x->n_bytes, y->n_bytes, sizeof(x->n_bytes));
        assert_memory_equal(x->decisions.n, y->decisions.n, sizeof(x->decisions.n));
        assert_true(x->decisions.ring_bytes == y->decisions.ring_bytes);
    }
}

static void threads_find_what_one_finds(void **state)
{
    (void)state;
    static const struct {
        int64_t n_micro, part;
    } cases[] = {{4, 500}, {1, 700}};
    cpu_set_t all, one;
    if (usable_processors() < 2)
        skip();
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    for (size_t i = 0; CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    }
    for (size_t i = 0; i < (SNUG_ASAN ? 1 : ARRAY_LEN(cases)); i++) {
        struct decisions d, alone;
        const struct search_report threads = plan(cases[i].n_micro, cases[i].part, &d);
        assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
        assert_int_equal(usable_processors(), 1);
        const struct search_report single = plan(cases[i].n_micro, cases[i].part, &alone);
        assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
        expect_same(&threads, &single);
        assert_int_equal(d.group, alone.group);
        print_message("%d estimates, %d programs, %.3f ms a step\n", threads.n_ranked,
                      threads.n_emitted, 1e3 * threads.findings[0].seconds);
    }
}

static void a_space_estimates_the_same_where_it_is_taken_to(void **state)
{
    (void)state;
    struct training t;
    struct device device;
    struct space here, there;
    struct decisions d = {.recompute_cheap = true, .small_bytes = 1 << 20};
    open_network(&t, &device, 1);
    expect_ok(workload_decide(&t.engine.work, &d));
    expect_ok(workload_bound(&t.engine.work));
    const int64_t room[TIER_COUNT] = {t.engine.work.n_bytes[TIER_DEVICE], INT64_MAX / 4,
                                      INT64_MAX / 4};
    struct candidate c = {.homes[HOME_STATES] = {.n_blocks = 8}, .ring_bytes = room[0] / 16};
    expect_ok(space_init(&here, &t.engine.work, NULL, &d, &free_choice, room));
    assert_true(space_expand(&here, &c));
    const double before = space_estimate(&here, &c);
    assert_true(before > 0 && isfinite(before));
    there = here;
    here = (struct space){0};
    expect_ok(space_restart(&there, &d, &free_choice, room));
    assert_true(space_expand(&there, &c));
    assert_true(space_estimate(&there, &c) == before);
    space_release(&there);
    training_release(&t);
    device_close(&device);
}

static void programs_are_known_by_their_plan_and_group(void **state)
{
    (void)state;
    enum { N = 5000 };
    struct known k;
    known_init(&k);
    for (int i = 0; i < N; i++) {
        const struct known_program p = {
            .plan = (uint64_t)(i / 2) << 20, .group = 1 + i % 2, .n_instrs = i};
        expect_ok(known_put(&k, &p));
    }
    for (int i = 0; i < N; i++) {
        struct known_program p = {.plan = (uint64_t)(i / 2) << 20, .group = 1 + i % 2};
        assert_true(known_find(&k, &p));
        assert_int_equal(p.n_instrs, i);
        p.seconds = 1.5;
        expect_ok(known_put(&k, &p)); /* in its place */
    }
    struct known_program p = {.plan = 1 << 20, .group = 2};
    assert_true(known_find(&k, &p) && p.seconds == 1.5 && k.programs.n == N);
    p = (struct known_program){.plan = 1 << 20, .group = 3};
    assert_false(known_find(&k, &p));
    known_release(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_find_what_one_finds),
        cmocka_unit_test(a_space_estimates_the_same_where_it_is_taken_to),
        cmocka_unit_test(programs_are_known_by_their_plan_and_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
