/* Batches find their way into a program by name, or the run does not begin. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "data/batch.h"
#include "device/device.h"
#include "graph/builder.h"
#include "support/golden.h"
#include "train/feed.h"

/* y = a + b, both inputs f32 [2, 3]. */
struct fixture {
    struct device device;
    struct graph *graph;
    struct plan plan;
    struct storage storage;
    struct program *program;
    struct executor *executor;
    int handle;
};

static void fixture_open(struct fixture *f)
{
    struct builder b;
    struct shape shape = shape_of(2, INT64_C(2), INT64_C(3));
    *f = (struct fixture){.handle = -1};
    expect_ok(device_open_cpu(&f->device, 1));
    expect_ok(graph_new(&f->graph, "sum"));
    builder_init(&b, f->graph);
    value_id in[] = {build_value(&b, "a", ROLE_INPUT, DTYPE_F32, shape),
                     build_value(&b, "b", ROLE_INPUT, DTYPE_F32, shape)};
    value_id y = build(&b, OP_add, in, 2, NO_ATTRS);
    expect_ok(builder_status(&b));
    expect_ok(graph_add_output(f->graph, "y", y));
    expect_ok(plan_init(&f->plan, f->graph, 1));
    storage_init(&f->storage);
    expect_ok(program_emit(&f->program, "sum", f->graph, &f->plan, &f->device, &f->storage));
    expect_ok(program_place(f->program, &f->storage, NULL));
    expect_ok(executor_new(&f->executor, &f->device, f->program->n_bytes));
    expect_ok(executor_load(f->executor, f->program, &f->storage, &f->handle));
}

static void fixture_close(struct fixture *f)
{
    executor_free(f->executor);
    program_free(f->program);
    plan_release(&f->plan);
    storage_release(&f->storage);
    graph_free(f->graph);
    device_close(&f->device);
}

static enum status init(struct fixture *f, const struct batch *b, const char *other,
                        struct feed *feed)
{
    const char *const others[] = {other, NULL};
    return feed_init(feed, f->executor, f->handle, f->program, b, others);
}

static void expect_refusal(struct fixture *f, const struct batch *b, const char *words)
{
    struct feed feed;
    assert_int_equal(init(f, b, NULL, &feed), ERR_INTERNAL);
    assert_non_null(strstr(status_message(), words));
}

static void items_go_to_the_inputs_of_their_names(void **state)
{
    (void)state;
    struct fixture f;
    struct feed feed;
    float one[] = {1, 2, 3, 4, 5, 6}, other[] = {10, 20, 30, 40, 50, 60};
    struct shape shape = shape_of(2, INT64_C(2), INT64_C(3));
    struct batch b = {0};
    fixture_open(&f);
    batch_add(&b, "b", DTYPE_F32, shape); /* in another order than the program has them */
    batch_add(&b, "a", DTYPE_F32, shape);
    expect_ok(init(&f, &b, NULL, &feed));
    b.items[0].tensor.data = other;
    b.items[1].tensor.data = one;
    feed_copy(&feed, &b, 0);
    assert_memory_equal(executor_input(f.executor, f.handle, "a"), one, sizeof(one));
    assert_memory_equal(executor_input(f.executor, f.handle, "b"), other, sizeof(other));
    fixture_close(&f);
}

static void what_does_not_fit_is_said_by_name_before_the_first_step(void **state)
{
    (void)state;
    struct fixture f;
    struct shape shape = shape_of(2, INT64_C(2), INT64_C(3));
    struct batch b = {0};
    struct feed feed;
    fixture_open(&f);
    batch_add(&b, "a", DTYPE_F32, shape);
    expect_refusal(&f, &b, "nothing fills input 'b' of program 'sum'");
    expect_ok(init(&f, &b, "b", &feed)); /* the caller does */
    struct batch more = b;
    batch_add(&more, "b", DTYPE_F32, shape);
    batch_add(&more, "mask", DTYPE_U8, shape);
    expect_refusal(&f, &more, "no input for 'mask'");
    struct batch other = b;
    batch_add(&other, "b", DTYPE_I32, shape);
    expect_refusal(&f, &other, "input 'b' of program 'sum' is f32[2, 3], its batches have i32");
    other.items[1].tensor = (struct tensor){DTYPE_F32, shape_of(2, INT64_C(3), INT64_C(2)), NULL};
    expect_refusal(&f, &other, "its batches have f32[3, 2]");
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_go_to_the_inputs_of_their_names),
        cmocka_unit_test(what_does_not_fit_is_said_by_name_before_the_first_step),
    };
    return cmocka_run_group_tests_name("feed", tests, NULL, NULL);
}
