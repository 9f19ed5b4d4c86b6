/* A program has the kernels that its device's environment lets it have, and its check asks the same
 * environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "graph/builder.h"
#include "program/program.h"
#include "support/golden.h"
#include "support/scratch.h"

/* A CPU on which exp has a kernel that only a library can give, with workspace of its own. */
enum { LIBRARY_BYTES = 4096 };
static struct device_ops ops;
static const struct device_ops *cpu;

static const char *library_declines(const struct op_call *c, const struct kernel_env *env)
{
    (void)c;
    return env->libraries ? NULL : "there is no library";
}

static int64_t library_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)c;
    (void)env;
    return LIBRARY_BYTES;
}

static const struct kernel *kernels(enum op_id op)
{
    static struct kernel list[16] = {
        {.name = "library", .declines = library_declines, .workspace = library_workspace}};
    const struct kernel *own = cpu->kernels(op);
    if (op != OP_exp)
        return own;
    for (int i = 0; own[i].name; i++)
        list[i + 1] = own[i];
    return list;
}

struct fixture {
    struct device device;
    struct graph *g;
    struct plan plan;
    struct storage storage;
    struct program *program;
};

static void open(struct fixture *f, void *libraries)
{
    struct builder b;
    *f = (struct fixture){0};
    expect_ok(device_open_cpu(&f->device, 1));
    cpu = f->device.ops;
    ops = *cpu;
    ops.kernels = kernels;
    f->device.ops = &ops;
    f->device.env.libraries = libraries;
    expect_ok(graph_new(&f->g, "exp"));
    builder_init(&b, f->g);
    value_id x = build_value(&b, "x", ROLE_INPUT, DTYPE_F32, shape_of(1, (int64_t)100));
    value_id y = build(&b, OP_exp, IN(x), NO_ATTRS);
    expect_ok(builder_status(&b));
    expect_ok(graph_add_output(f->g, "y", y));
    expect_ok(plan_init(&f->plan, f->g, 1));
    storage_init(&f->storage);
    expect_ok(program_emit(&f->program, "exp", f->g, &f->plan, &f->device, &f->storage));
    expect_ok(program_place(f->program, &f->storage, NULL));
}

static void release(struct fixture *f)
{
    program_free(f->program);
    storage_release(&f->storage);
    plan_release(&f->plan);
    graph_free(f->g);
    f->device.ops = cpu;
    device_close(&f->device);
}

static const struct instr *the_call(const struct program *p)
{
    for (size_t i = 0; i < p->instrs.n; i++) {
        if (p->instrs.items[i].kind == INSTR_COMPUTE)
            return &p->instrs.items[i];
    }
    fail_msg("the program computes nothing");
    return NULL;
}

static void the_environment_decides_which_kernel_is_planned(void **state)
{
    (void)state;
    static int library;
    for (int there = 0; there <= 1; there++) {
        struct fixture f;
        open(&f, there ? &library : NULL);
        const struct instr *i = the_call(f.program);
        assert_string_equal(i->kernel->name, there ? "library" : cpu->kernels(OP_exp)->name);
        assert_int_equal(i->has_workspace, there);
        expect_ok(program_check(f.program, &f.storage));
        release(&f);
    }
}

static void the_check_refuses_a_kernel_that_the_environment_lacks(void **state)
{
    (void)state;
    static int library;
    struct fixture f;
    open(&f, &library);
    expect_ok(program_check(f.program, &f.storage));
    f.program->env.libraries = NULL;
    assert_int_equal(program_check(f.program, &f.storage), ERR_PROGRAM);
    expect_message("the kernel declines the call");
    release(&f);
}

static void a_program_read_back_asks_the_device_it_was_read_for(void **state)
{
    (void)state;
    static int library;
    struct fixture f;
    struct str text = {0};
    struct program *parsed;
    open(&f, &library);
    expect_ok(program_print(f.program, &text));
    expect_ok(program_parse(&parsed, text.text, f.g, &f.device));
    expect_ok(program_check(parsed, &f.storage));
    program_free(parsed);
    str_release(&text);
    release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_decides_which_kernel_is_planned),
        cmocka_unit_test(the_check_refuses_a_kernel_that_the_environment_lacks),
        cmocka_unit_test(a_program_read_back_asks_the_device_it_was_read_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
