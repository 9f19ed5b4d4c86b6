/* Programs as text: print, parse and print again give the same text, and the parsed program is
 * still a proof and runs to the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "support/training.h"

static void open_program(struct training *t, const char *golden, int64_t n_micro)
{
    training_init(t, &(struct training_options){
                         .golden = golden, .batch = 1, .seq_len = 8, .n_micro = n_micro});
    plan_recompute_block(&t->stage->plan, t->stage->graph, 0);
    plan_move_block(&t->stage->plan, t->stage->graph, 1, TIER_HOST);
    plan_set_home(&t->stage->plan, t->stage->graph, ROLE_STATE, TIER_HOST);
    plan_set_home(&t->stage->plan, t->stage->graph, ROLE_GRADIENT, TIER_HOST);
    t->stage->plan.ahead_bytes = t->stage->plan.behind_bytes = 4096;
    t->stage->plan.slice_bytes = 1024;
    training_emit(t);
}

static uint64_t run(struct training *t)
{
    training_start(t);
    training_step(t, 0);
    training_step(t, 1);
    uint64_t digest = training_digest(t);
    training_stop(t);
    return digest;
}

static void a_printed_program_parses_to_itself(void **state)
{
    (void)state;
    for (const char *const *name = golden_names; *name; name++) {
        for (int64_t n_micro = 1; n_micro <= 2; n_micro++) {
            struct training t;
            struct program *parsed;
            struct str once = {0}, twice = {0};
            open_program(&t, *name, n_micro);
            expect_ok(program_print(t.stage->program, &once));
            expect_ok(program_parse(&parsed, once.text, t.stage->graph, &t.device));
            expect_ok(program_print(parsed, &twice));
            assert_string_equal(once.text, twice.text);
            uint64_t want = run(&t);
            program_free(t.stage->program);
            t.stage->program = parsed;
            assert_true(run(&t) == want);
            str_release(&once);
            str_release(&twice);
            training_release(&t);
        }
    }
}

static void broken_text_is_refused_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"program", "programme", "line 1, column 1"},
        {"threads 2", "threads 0", "not between"},
        {"buffer 1 ", "buffer 2 ", "stands where"},
        {"weights", "wheats", "what the memory is for"},
        {"device+", "devise+", "expected"},
        {"kernel \"", "kernel \"x", "has no kernel"},
        {"run node 0 ", "run node 999999 ", "has no node"},
        {"run node 0 \"", "run node 0 \"x", "not"},
        {" copy (", " copt (", "expected run"},
        {"}\n}\n", "}\n", "expected"},
    };
    struct training t;
    struct str text = {0};
    open_program(&t, "gpt2", 1);
    expect_ok(program_print(t.stage->program, &text));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct program *p;
        struct str broken = {0};
        const char *at = strstr(text.text, cases[i].from);
        assert_non_null(at);
        str_add_n(&broken, text.text, (size_t)(at - text.text));
        str_add(&broken, cases[i].to);
        str_add(&broken, at + strlen(cases[i].from));
        assert_int_not_equal(program_parse(&p, broken.text, t.stage->graph, &t.device), OK);
        assert_null(p);
        expect_message(cases[i].message);
        str_release(&broken);
    }
    str_release(&text);
    training_release(&t);
}

/* Characters changed, dropped and doubled at random: never a crash, and what the check accepts
 * still computes the same. */
static void garbled_text_never_breaks_anything(void **state)
{
    (void)state;
    struct training t;
    struct str text = {0};
    struct rng rng = {.key = 5};
    int n_parsed = 0, n_accepted = 0;
    open_program(&t, "gpt2", 1);
    expect_ok(program_print(t.stage->program, &text));
    for (int i = 0; i < 400; i++) {
        struct program *p;
        size_t at = rng_below(&rng, text.n);
        char old = text.text[at];
        text.text[at] = "0123456789 \"{}(),:+"[rng_below(&rng, 19)];
        if (program_parse(&p, text.text, t.stage->graph, &t.device) == OK) {
            n_parsed++;
            n_accepted += program_check(p, &t.engine.work.storage) == OK;
            program_free(p);
        }
        text.text[at] = old;
    }
    print_message("400 garbled texts: %d parsed, %d accepted\n", n_parsed, n_accepted);
    assert_true(n_parsed > n_accepted);
    str_release(&text);
    training_release(&t);
}

/* Fails each allocation in turn: an error comes back and nothing leaks. */
static void running_out_of_memory_is_an_error(void **state)
{
    (void)state;
    struct training t;
    struct str text = {0};
    open_program(&t, "llama", 2);
    expect_ok(program_print(t.stage->program, &text));
    int64_t live = mem_live();
    for (int64_t n = 1; n < 2000; n += 1 + n / 20) {
        struct program *p = NULL;
        struct storage storage;
        storage_init(&storage);
        mem_fail_after(n, 1);
        enum status emitted =
            program_emit(&p, "t", t.stage->graph, &t.stage->plan, &t.device, &storage);
        if (emitted == OK)
            emitted = program_place(p, &storage, NULL);
        if (emitted == OK)
            emitted = program_check(p, &storage);
        mem_fail_after(0, 0);
        program_free(p);
        storage_release(&storage);

        struct program *parsed = NULL;
        mem_fail_after(n, 1);
        enum status read = program_parse(&parsed, text.text, t.stage->graph, &t.device);
        mem_fail_after(0, 0);
        program_free(parsed);
        assert_true(emitted == OK || emitted == ERR_MEMORY);
        assert_true(read == OK || read == ERR_MEMORY);
        assert_int_equal(mem_live(), live);
    }
    str_release(&text);
    training_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_printed_program_parses_to_itself),
        cmocka_unit_test(broken_text_is_refused_with_its_place),
        cmocka_unit_test(garbled_text_never_breaks_anything),
        cmocka_unit_test(running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
