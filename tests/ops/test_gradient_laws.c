/* The laws of gradients, over op_table x samples in f64 with the reference kernels:
 *
 *  1. The gradient of <output, r> for random r is what central differences say; of ops that are
 *     straight-through it is r.
 *  2. It does not depend on which other gradients are wanted.
 *  3. An output through which an op cannot differentiate refuses a gradient; none is dropped.
 *
 * Give an op's name as argument to run the laws on it alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/autodiff.h"
#include "base/rng.h"
#include "support/law.h"

enum { ALL_ELEMENTS = 96, SOME_ELEMENTS = 24, N_DIRECTIONS = 3 };
static const double step = 1e-5, relative_tolerance = 2e-7;

static double *elements(const struct eval *e, value_id v)
{
    return eval_tensor(e, v).data;
}

static int64_t n_elems(const struct law_case *c, value_id v)
{
    return shape_elems(&graph_value(c->g, v)->shape);
}

static bool is_wanted(const struct law_case *c, int i)
{
    return c->in[i] != VALUE_NONE && !(c->def->no_grad_inputs >> i & 1u) &&
           dtype_is_float(c->sample.in[i].dtype);
}

static void fill_seed(const struct tensor *t)
{
    law_fill(&(struct sample_input){.fill = FILL_NORMAL}, 1u << 20, t);
}

/* A gradient as the backward graph gives it: per input, n elements, or NULL where none arrives. */
struct gradients {
    struct eval *e;
    struct graph *g;
    const double *of[SAMPLE_MAX_INPUTS];
};

static void gradients_release(struct gradients *d)
{
    eval_free(d->e);
    graph_free(d->g);
}

/* Builds, differentiates and runs; `only` >= 0 wants the gradient of that input alone. */
static enum status gradients_run(struct gradients *d, const struct law_case *c, int output,
                                 int only)
{
    struct law_case own = *c;
    value_id wanted[SAMPLE_MAX_INPUTS], grads[SAMPLE_MAX_INPUTS], seed;
    int from[SAMPLE_MAX_INPUTS];
    size_t n_wanted = 0;
    *d = (struct gradients){0};
    own.g = NULL;
    enum status status = law_case_build(&own);
    d->g = own.g;
    TRY(status);
    for (int i = 0; i < c->sample.n_in; i++) {
        if (!is_wanted(c, i) || (only >= 0 && only != i))
            continue;
        from[n_wanted] = i;
        wanted[n_wanted++] = own.in[i];
    }
    value_id y = graph_node(d->g, 0)->out[output];
    const struct value *v = graph_value(d->g, y);
    TRY(graph_add_value(d->g, "seed", ROLE_INPUT, v->dtype, v->shape, NULL, &seed));
    TRY(autodiff(d->g, y, seed, wanted, n_wanted, grads));
    TRY(graph_check(d->g));
    TRY(eval_new(&d->e, d->g, &(struct eval_options){.kernel = "reference", .poison = 0xFF}));
    law_case_fill(&own, d->e);
    struct tensor t = eval_tensor(d->e, seed);
    fill_seed(&t);
    TRY(eval_run(d->e));
    for (size_t k = 0; k < n_wanted; k++)
        d->of[from[k]] = grads[k] == VALUE_NONE ? NULL : elements(d->e, grads[k]);
    return OK;
}

/* ---- central differences --------------------------------------------------------------------- */

/* The input that output i overwrites, or -1. */
static int updated_input(const struct law_case *c, int i)
{
    const struct alias_rule *a = node_alias(graph_node(c->g, 0), i);
    return a && a->kind == ALIAS_UPDATE ? a->in : -1;
}

/* <output, r> at the inputs as they are; leaves them so. */
static enum status loss(const struct law_case *c, struct eval *e, int output, const double *r,
                        double *value)
{
    value_id y = graph_node(c->g, 0)->out[output];
    int updated = updated_input(c, output);
    size_t n = (size_t)n_elems(c, y);
    double *kept;
    TRY(mem_try_array(&kept, MAX(n, (size_t)1), sizeof(*kept)));
    if (updated >= 0)
        memcpy(kept, elements(e, c->in[updated]), n * sizeof(*kept));
    enum status status = eval_run(e);
    const double *x = elements(e, y);
    long double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (long double)x[i] * (long double)r[i];
    if (updated >= 0)
        memcpy(elements(e, c->in[updated]), kept, n * sizeof(*kept));
    mem_free(kept);
    *value = (double)sum;
    return status;
}

/* d/dt loss(x + t u) at t = 0 for a direction u of n elements. */
static enum status slope(const struct law_case *c, struct eval *e, int output, const double *r,
                         double *x, const double *u, int64_t n, double *value)
{
    double *start;
    double high = 0, low = 0;
    TRY(mem_try_array(&start, (size_t)n, sizeof(*start)));
    memcpy(start, x, (size_t)n * sizeof(*x));
    for (int64_t i = 0; i < n; i++)
        x[i] = start[i] + step * u[i];
    enum status status = loss(c, e, output, r, &high);
    for (int64_t i = 0; i < n; i++)
        x[i] = start[i] - step * u[i];
    if (status == OK)
        status = loss(c, e, output, r, &low);
    memcpy(x, start, (size_t)n * sizeof(*x));
    mem_free(start);
    *value = (high - low) / (2 * step);
    return status;
}

/* Direction k: single elements first (all of them, or some at random), then random ones. */
static void choose_direction(double *u, int64_t n, int k, struct rng *r)
{
    int64_t n_single = n <= ALL_ELEMENTS ? n : SOME_ELEMENTS;
    for (int64_t i = 0; i < n; i++)
        u[i] = k < n_single ? 0.0 : 2.0 * rng_double(r) - 1.0;
    if (k < n_single)
        u[n <= ALL_ELEMENTS ? k : (int64_t)rng_below(r, (uint64_t)n)] = 1.0;
}

static void compare_input(const struct law_case *c, struct eval *e, int output, const double *r,
                          int input, const double *grad)
{
    int64_t n = n_elems(c, c->in[input]);
    int n_checks = (int)(n <= ALL_ELEMENTS ? n : SOME_ELEMENTS) + N_DIRECTIONS;
    struct rng random = {.key = 5, .stream = (uint64_t)input};
    double *u, norm = 0;
    if (mem_try_array(&u, (size_t)MAX(n, (int64_t)1), sizeof(*u)) != OK) {
        law_failed(c, "%s", status_message());
        return;
    }
    for (int64_t i = 0; i < n && grad; i++)
        norm += grad[i] * grad[i];
    for (int k = 0; k < n_checks; k++) {
        double numeric = 0, exact = 0, length = 0;
        choose_direction(u, n, k, &random);
        for (int64_t i = 0; i < n; i++) {
            exact += grad ? grad[i] * u[i] : 0.0;
            length += u[i] * u[i];
        }
        enum status s = slope(c, e, output, r, elements(e, c->in[input]), u, n, &numeric);
        /* Rounding of the loss itself, over the step, is the floor of what can be seen. */
        double allowed = relative_tolerance * (sqrt(norm) + 1e-3) * sqrt(length);
        if (s != OK || !(fabs(exact - numeric) <= allowed)) {
            law_failed(c, "d output %d / d input %d, check %d: is %.12g, differences say %.12g %s",
                       output, input, k, exact, numeric, s == OK ? "" : status_message());
            break;
        }
    }
    mem_free(u);
}

static void compare_straight(const struct law_case *c, const double *r, const double *grad)
{
    if (!grad || memcmp(grad, r, (size_t)n_elems(c, c->in[0]) * sizeof(*r)) != 0)
        law_failed(c, "the gradient of input 0 is not that of output 0");
}

static void compare_output(const struct law_case *c, int output, const struct gradients *d)
{
    struct eval *e;
    double *r = NULL;
    value_id y = graph_node(c->g, 0)->out[output];
    struct tensor seed = value_tensor(c->g, y);
    if (mem_try_array(&r, (size_t)MAX(n_elems(c, y), (int64_t)1), sizeof(*r)) != OK ||
        eval_new(&e, c->g, &(struct eval_options){.kernel = "reference", .n_threads = 1}) != OK) {
        law_failed(c, "%s", status_message());
        mem_free(r);
        return;
    }
    seed.data = r;
    fill_seed(&seed);
    law_case_fill(c, e);
    for (int i = 0; i < c->sample.n_in; i++) {
        if (is_wanted(c, i) && c->def->straight_through)
            compare_straight(c, r, d->of[i]);
        else if (is_wanted(c, i))
            compare_input(c, e, output, r, i, d->of[i]);
    }
    eval_free(e);
    mem_free(r);
}

/* ---- the laws -------------------------------------------------------------------------------- */

static void compare_wanting_one(const struct law_case *c, int output, const struct gradients *all)
{
    for (int i = 0; i < c->sample.n_in; i++) {
        struct gradients one;
        if (!is_wanted(c, i))
            continue;
        size_t n_bytes = (size_t)n_elems(c, c->in[i]) * sizeof(double);
        if (gradients_run(&one, c, output, i) != OK)
            law_failed(c, "alone, the gradient of input %d fails: %s", i, status_message());
        else if ((one.of[i] == NULL) != (all->of[i] == NULL) ||
                 (one.of[i] && memcmp(one.of[i], all->of[i], n_bytes) != 0))
            law_failed(c, "alone, the gradient of input %d is another", i);
        gradients_release(&one);
    }
}

static bool has_floats(const struct law_case *c)
{
    bool any = false;
    for (int i = 0; i < c->sample.n_in; i++)
        any |= is_wanted(c, i);
    return any;
}

/* The sample in f64, output by output. */
static void gradient_case(struct law_case *c)
{
    struct law_case wide = *c;
    wide.g = NULL;
    if (c->def->no_grad || !has_floats(c))
        return;
    if (law_rewrites(c->op, &c->sample, DTYPE_F64, &wide.sample, 1) != 1 ||
        law_case_build(&wide) != OK) {
        law_failed(c, "cannot be had in f64");
        graph_free(wide.g);
        return;
    }
    for (int o = 0; o < c->def->n_out; o++) {
        struct gradients d;
        enum dtype type = graph_value(wide.g, graph_node(wide.g, 0)->out[o])->dtype;
        if (!dtype_is_float(type))
            continue;
        if (type != DTYPE_F64) {
            law_failed(&wide, "output %d of f64 inputs is %s", o, dtype_name(type));
            continue;
        }
        enum status status = gradients_run(&d, &wide, o, -1);
        if (status == OK) {
            compare_output(&wide, o, &d);
            compare_wanting_one(&wide, o, &d);
        } else if (o == 0 || !strstr(status_message(), c->def->name)) {
            law_failed(&wide, "gradient of output %d: %s", o, status_message());
        }
        gradients_release(&d);
    }
    graph_free(wide.g);
}

static void gradients_are_what_central_differences_say(void **state)
{
    struct law_report r = {.only = *state};
    law_for_each_case(&r, LAW_PLAIN, gradient_case);
    law_report_finish(&r);
}

int main(int argc, char **argv)
{
    void *only = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(gradients_are_what_central_differences_say, only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
