/* Which kernel of a list a call gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/kernel.h"

/* A kernel that needs a library, and whose library takes calls up to a size. */
struct library {
    int64_t most_elems;
    int n_asked;
};

static const char *library_declines(const struct op_call *c, const struct kernel_env *env)
{
    struct library *l = env->libraries;
    if (!l)
        return "there is no library";
    l->n_asked++;
    return shape_elems(&c->out[0].shape) > l->most_elems ? "too large for the library" : NULL;
}

static const char *never(const struct op_call *c, const struct kernel_env *env)
{
    (void)c;
    (void)env;
    return "takes nothing";
}

static const struct kernel list[] = {
    {.name = "never", .declines = never},
    {.name = "library", .declines = library_declines},
    {.name = "plain"},
    KERNEL_END,
};
static const struct kernel without_plain[] = {
    {.name = "never", .declines = never},
    {.name = "library", .declines = library_declines},
    KERNEL_END,
};

static const char *picked(int64_t n_elems, struct library *l)
{
    struct tensor t = {.dtype = DTYPE_F32, .shape = {.rank = 1, .dim = {n_elems}}};
    struct op_call call = {.op = OP_exp, .n_in = 1, .n_out = 1, .in = &t, .out = &t};
    const struct kernel_env env = {.n_threads = 1, .libraries = l};
    const char *why = NULL;
    const struct kernel *k = kernel_pick(list, &call, &env, &why);
    assert_non_null(k);
    assert_null(why);
    return k->name;
}

static void a_kernel_is_asked_with_the_environment_it_will_run_in(void **state)
{
    (void)state;
    struct library l = {.most_elems = 10};
    assert_string_equal(picked(10, &l), "library");
    assert_string_equal(picked(11, &l), "plain");
    assert_int_equal(l.n_asked, 2);
    assert_string_equal(picked(10, NULL), "plain");
}

static void when_none_takes_it_the_last_reason_is_told(void **state)
{
    (void)state;
    struct tensor t = {.dtype = DTYPE_F32, .shape = {.rank = 1, .dim = {11}}};
    struct op_call call = {.op = OP_exp, .n_in = 1, .n_out = 1, .in = &t, .out = &t};
    struct library l = {.most_elems = 10};
    const struct kernel_env env = {.n_threads = 1, .libraries = &l};
    const char *why = NULL;
    assert_null(kernel_pick(without_plain, &call, &env, &why));
    assert_string_equal(why, "too large for the library");
    assert_null(kernel_pick(NULL, &call, &env, &why));
    assert_string_equal(why, "no kernel for this op on this device");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_is_asked_with_the_environment_it_will_run_in),
        cmocka_unit_test(when_none_takes_it_the_last_reason_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
