/* Networks over space against PyTorch: every case of tests/golden/spatial.safetensors (written by
 * tools/make_spatial_goldens.py) with the fast kernels and with the references, forward and
 * backward.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/autodiff.h"
#include "base/alloc.h"
#include "base/str.h"
#include "device/cpu/support/ref.h"
#include "support/golden.h"
#include "support/law.h"

static const double tolerance = 2e-6;

struct spatial_case {
    struct st_reader *reader;
    const char *name;
    struct law_case law;
    value_id seed, grads[SAMPLE_MAX_INPUTS];
    bool has_grad;
    int n_compared;
};

/* Tensor `<case>.<what><i>` of the file; NULL when there is none. */
static const struct st_tensor *stored(const struct spatial_case *t, const char *what, int i)
{
    char name[128];
    snprintf(name, sizeof(name), "%s.%s%d", t->name, what, i);
    return st_reader_find(t->reader, name);
}

/* The sample that the case stands for: its inputs' shapes, and the attributes of the metadata. */
static void read_sample(struct spatial_case *t)
{
    const char *op = st_reader_metadata(t->reader, t->name), *attrs = strchr(op, ' ');
    struct str text = {0}, name = {0};
    str_addf(&name, "%.*s", (int)(attrs ? attrs - op : (long)strlen(op)), op);
    assert_true(op_find(str_text(&name), &t->law.op));
    t->law.def = op_get(t->law.op);
    for (int i = 0; stored(t, "in", i); i++) {
        const struct st_tensor *in = stored(t, "in", i);
        str_addf(&text, "%sf32[", i ? ", " : "");
        for (int k = 0; k < in->rank; k++)
            str_addf(&text, "%s%lld", k ? "," : "", (long long)in->dims[k]);
        str_addf(&text, "]");
    }
    str_addf(&text, "%s", attrs ? attrs : "");
    expect_ok(sample_parse(&t->law.sample, t->law.def, str_text(&text)));
    str_release(&text);
    str_release(&name);
}

/* The node and, where the file has them, its gradients. */
static void build_case(struct spatial_case *t)
{
    value_id wanted[SAMPLE_MAX_INPUTS], grads[SAMPLE_MAX_INPUTS];
    int from[SAMPLE_MAX_INPUTS];
    size_t n_wanted = 0;
    expect_ok(law_case_build(&t->law));
    t->has_grad = stored(t, "dout", 0) != NULL;
    for (int i = 0; i < t->law.sample.n_in; i++) {
        t->grads[i] = VALUE_NONE;
        if (!stored(t, "din", i))
            continue;
        from[n_wanted] = i;
        wanted[n_wanted++] = t->law.in[i];
    }
    if (!t->has_grad)
        return;
    value_id y = graph_node(t->law.g, 0)->out[0];
    const struct value *v = graph_value(t->law.g, y);
    expect_ok(graph_add_value(t->law.g, "seed", ROLE_INPUT, v->dtype, v->shape, NULL, &t->seed));
    expect_ok(autodiff(t->law.g, y, t->seed, wanted, n_wanted, grads));
    for (size_t k = 0; k < n_wanted; k++)
        t->grads[from[k]] = grads[k];
}

static void fill(const struct eval *e, value_id v, const struct st_tensor *from)
{
    struct tensor to = eval_tensor(e, v);
    assert_non_null(from);
    assert_int_equal(tensor_bytes(&to), from->n_bytes);
    memcpy(to.data, from->data, (size_t)from->n_bytes);
}

static void compare(struct spatial_case *t, const struct eval *e, value_id v,
                    const struct st_tensor *due, const char *what)
{
    struct tensor got = eval_tensor(e, v);
    int64_t n = shape_elems(&got.shape);
    double *a = test_malloc((size_t)n * sizeof(double)),
           *b = test_malloc((size_t)n * sizeof(double));
    assert_int_equal(n, due->n_elems);
    for (int64_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, due->data + 4 * i, sizeof(x));
        a[i] = ref_get(&got, i);
        b[i] = (double)x;
    }
    double error = relative_error(a, b, n);
    if (!(error <= tolerance))
        fail_msg("%s, %s: is off by %g", t->name, what, error);
    t->n_compared++;
    test_free(a);
    test_free(b);
}

static void run_case(struct spatial_case *t, const char *kernel)
{
    struct eval *e;
    expect_ok(eval_new(&e, t->law.g, &(struct eval_options){.kernel = kernel, .poison = 0xFF}));
    for (int i = 0; i < t->law.sample.n_in; i++)
        fill(e, t->law.in[i], stored(t, "in", i));
    if (t->has_grad)
        fill(e, t->seed, stored(t, "dout", 0));
    expect_ok(eval_run(e));
    for (int o = 0; o < t->law.def->n_out && stored(t, "out", o); o++)
        compare(t, e, graph_node(t->law.g, 0)->out[o], stored(t, "out", o), "an output");
    for (int i = 0; i < t->law.sample.n_in; i++) {
        if (t->grads[i] != VALUE_NONE)
            compare(t, e, t->grads[i], stored(t, "din", i), "a gradient");
        else
            assert_null(stored(t, "din", i));
    }
    eval_free(e);
}

static int run_cases(const char *kernel)
{
    struct st_reader *reader;
    int n = 0;
    expect_ok(st_reader_open_file(&reader, SNUG_SOURCE_DIR "/tests/golden/spatial.safetensors"));
    char *names = mem_strdup(st_reader_metadata(reader, "cases")), *rest = NULL;
    for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
        struct spatial_case t = {.reader = reader, .name = name};
        read_sample(&t);
        build_case(&t);
        run_case(&t, kernel);
        assert_true(t.n_compared > 0);
        graph_free(t.law.g);
        n++;
    }
    mem_free(names);
    st_reader_close(reader);
    return n;
}

static void fast_kernels_compute_what_pytorch_does(void **state)
{
    (void)state;
    assert_true(run_cases(NULL) > 40);
}

static void references_compute_what_pytorch_does(void **state)
{
    (void)state;
    assert_true(run_cases("reference") > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_kernels_compute_what_pytorch_does),
        cmocka_unit_test(references_compute_what_pytorch_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
