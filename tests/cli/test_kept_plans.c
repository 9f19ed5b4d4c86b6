/* `snug plan` for the same once more takes no search, and says so; --replan makes one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/process.h"

static struct scratch scratch;

/* A cache folder of its own: what earlier tests have planned is not there. The host's memory is
 * given: what is free of it differs from moment to moment, and with more of it there is a search.
 */
static void plan(struct process *p, const char *more)
{
    const struct process_options o = {.variable = "XDG_CACHE_HOME", .setting = scratch.folder};
    const char *const args[] = {"plan",
                                "configs/demo.yaml",
                                "--gpu",
                                "t4",
                                "bf16=true",
                                "--json",
                                "device_memory=380MiB",
                                "host_memory=64GiB",
                                "per_device_train_batch_size=64",
                                more,
                                NULL};
    process_run(p, &scratch, &o, args);
    expect_exit(p, 0);
}

static void expect_kept(const struct process *p, bool kept)
{
    json_t *j = expect_json(p);
    assert_int_equal(json_bool_at(j, "planning.kept"), kept);
    assert_true(json_array_size(json_at(j, "runners_up")) > 0);
    assert_int_equal(strstr(p->err, "when it was first asked for (--replan: once more)") != NULL,
                     kept);
    json_decref(j);
}

static void the_same_plan_takes_no_search(void **state)
{
    static const struct {
        const char *more;
        bool kept;
    } runs[] = {{NULL, false},          {NULL, true},         {"--replan", false},
                {NULL, true},           {"seed=7", true}, /* of weights: no plan's */
                {"plan_rank=2", false}, {"plan_rank=2", true}};
    (void)state;
    for (size_t i = 0; i < sizeof(runs) / sizeof(*runs); i++) {
        struct process p;
        plan(&p, runs[i].more);
        expect_kept(&p, runs[i].kept);
        process_release(&p);
    }
}

static int open_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_plan_takes_no_search),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
