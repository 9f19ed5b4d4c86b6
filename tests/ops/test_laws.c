/* The laws of ops and kernels, over op_table x samples: a new op gets them for nothing.
 *
 * Give an op's name as argument to run the laws on it alone. Gradients are in
 * test_gradient_laws.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/support/ref.h"
#include "support/law.h"

/* ---- the table ---------------------------------------------------------------------------- */

static void check_aliases(const struct law_case *c)
{
    const struct op_def *d = c->def;
    bool in_place = false;
    for (const struct alias_rule *a = d->aliases; a && a->kind != ALIAS_NONE; a++) {
        if (a->out < 0 || a->out >= d->n_out || a->in < 0 || (d->max_in >= 0 && a->in >= d->max_in))
            law_failed(c, "an alias rule names output %d and input %d", a->out, a->in);
        in_place |=
            a->kind == ALIAS_UPDATE && a->out == d->accumulate_out && a->in == d->accumulate_in;
    }
    if ((d->accumulate_in >= 0 || d->accumulate_out >= 0) && !in_place)
        law_failed(c, "accumulates, but no update rule says so");
}

static void check_row(const struct law_case *c)
{
    const struct op_def *d = c->def;
    if (!d->synopsis || !d->synopsis[0])
        law_failed(c, "has no synopsis");
    if (d->n_samples <= 0)
        law_failed(c, "has no samples");
    if (d->n_rejects <= 0)
        law_failed(c, "has no rejects");
    if ((d->grad != NULL) == d->no_grad)
        law_failed(c, "must have either grad or no_grad");
    if (!d->infer)
        law_failed(c, "has no infer");
    const struct kernel *k = cpu_kernels(c->op);
    if (!k || !k->name) {
        law_failed(c, "has no kernels");
        return;
    }
    for (; k[1].name; k++) {
        if (strcmp(k->name, "reference") == 0)
            law_failed(c, "has a kernel after the reference");
    }
    if (strcmp(k->name, "reference") != 0 || k->declines)
        law_failed(c, "its last kernel '%s' is not a reference that accepts everything", k->name);
}

static void every_row_is_complete(void **state)
{
    struct law_report r = {.only = *state};
    for (enum op_id op = 0; op < OP_COUNT; op++) {
        struct law_case c = {.report = &r, .op = op, .def = op_get(op), .text = "row"};
        if (!law_asked(&r, op))
            continue;
        r.n_cases++;
        check_row(&c);
        check_aliases(&c);
    }
    law_report_finish(&r);
}

/* ---- inference ------------------------------------------------------------------------------ */

static void accept_case(struct law_case *c)
{
    if (graph_check(c->g) != OK)
        law_failed(c, "%s", status_message());
}

static void inference_accepts_samples(void **state)
{
    struct law_report r = {.only = *state};
    law_for_each_case(&r, LAW_PLAIN, accept_case);
    law_report_finish(&r);
}

static void refuse(struct law_case *c)
{
    enum status s = sample_parse(&c->sample, c->def, c->text);
    if (s == OK) {
        s = law_case_build(c);
        graph_free(c->g);
        c->g = NULL;
    }
    if (s == OK)
        law_failed(c, "should be refused");
    else if (s != ERR_SHAPE)
        law_failed(c, "is refused with %s: %s", status_name(s), status_message());
    else if (!strstr(status_message(), c->def->name))
        law_failed(c, "the refusal does not name the op: %s", status_message());
}

static void inference_refuses_rejects(void **state)
{
    struct law_report r = {.only = *state};
    for (enum op_id op = 0; op < OP_COUNT; op++) {
        const struct op_def *d = op_get(op);
        for (int i = 0; law_asked(&r, op) && i < d->n_rejects; i++) {
            struct law_case c = {.report = &r, .op = op, .def = d, .text = d->rejects[i]};
            r.n_cases++;
            refuse(&c);
        }
    }
    law_report_finish(&r);
}

/* Every input that a row marks as f32 beside 16-bit activations is taken so, in every sample that
 * has it; the laws below then run these forms as well. */
static void accept_f32_inputs(struct law_case *c)
{
    enum { MOST = 64 };
    static struct sample forms[MOST];
    int n = c->sample.in[0].dtype == DTYPE_F32
                ? law_rewrites(c->op, &c->sample, DTYPE_BF16, forms, MOST)
                : 0;
    for (int i = 0; n > 0 && i < c->sample.n_in; i++) {
        bool accepted = c->sample.in[i].dtype == DTYPE_NONE || !(c->def->f32_inputs >> i & 1u);
        for (int k = 0; k < n; k++)
            accepted |= forms[k].in[0].dtype == DTYPE_BF16 && forms[k].in[i].dtype == DTYPE_F32;
        if (!accepted)
            law_failed(c, "input %d is marked as f32, but refused beside bf16", i);
    }
}

static void inputs_marked_as_f32_are_accepted_beside_16_bits(void **state)
{
    struct law_report r = {.only = *state};
    law_for_each_case(&r, LAW_PLAIN, accept_f32_inputs);
    law_report_finish(&r);
}

static const int64_t odd_numbers[] = {
    0, 1, 7, -1, (int64_t)1 << 31, (int64_t)1 << 62, INT64_MAX, INT64_MIN,
};

/* Accepted or refused, as it likes, but the sanitizers have nothing to say. */
static void try_odd(const struct law_case *c, const struct sample *s)
{
    struct law_case other = *c;
    other.g = NULL;
    other.sample = *s;
    if (law_case_build(&other) != OK && status_message()[0] == '\0')
        law_failed(&other, "is refused without a message");
    graph_free(other.g);
}

static void disturb_inputs(const struct law_case *c, int64_t odd)
{
    for (int i = 0; i < c->sample.n_in; i++) {
        struct sample s = c->sample;
        s.in[i].shape = shape_of(0);
        try_odd(c, &s);
        s.in[i].shape = (struct shape){MAX_RANK, {3, 1, 2, 1, 2, 5}};
        try_odd(c, &s);
        s = c->sample;
        s.in[i].dtype = s.in[i].dtype == DTYPE_U8 ? DTYPE_I64 : DTYPE_U8;
        try_odd(c, &s);
        for (int k = 0; k < c->sample.in[i].shape.rank; k++) {
            s = c->sample;
            s.in[i].shape.dim[k] = odd;
            try_odd(c, &s);
            for (int m = 0; m < s.n_in; m++) /* and the same everywhere, so that they agree */
                s.in[m].shape.dim[k] = odd;
            try_odd(c, &s);
        }
    }
}

static void disturb_attrs(const struct law_case *c, int64_t odd)
{
    for (int i = 0; i < c->def->n_attrs; i++) {
        struct sample s = c->sample;
        enum attr_type type = c->def->attrs[i].type;
        s.attrs[i].f = (double)odd;
        if (type == ATTR_INT)
            s.attrs[i].i = odd;
        try_odd(c, &s);
        s.attrs[i].f = (double)NAN;
        try_odd(c, &s);
        for (int k = 0; type == ATTR_INTS && k <= MAX_ATTR_INTS; k++) {
            s = c->sample;
            s.attrs[i].n_ints = k;
            s.attrs[i].ints[k % MAX_ATTR_INTS] = odd;
            try_odd(c, &s);
            s.attrs[i].n_ints = c->sample.attrs[i].n_ints;
            try_odd(c, &s);
        }
    }
}

static void disturb(struct law_case *c)
{
    for (size_t i = 0; i < ARRAY_LEN(odd_numbers); i++) {
        disturb_inputs(c, odd_numbers[i]);
        disturb_attrs(c, odd_numbers[i]);
    }
    for (int n = 0; n < c->sample.n_in; n++) {
        struct sample s = c->sample;
        s.n_in = n;
        try_odd(c, &s);
        s = c->sample;
        s.in[n].dtype = DTYPE_NONE;
        try_odd(c, &s);
    }
}

static void inference_survives_odd_calls(void **state)
{
    struct law_report r = {.only = *state};
    law_for_each_case(&r, LAW_PLAIN, disturb);
    law_report_finish(&r);
}

/* ---- fast kernels against the reference -------------------------------------------------- */

static double rms_of(const struct tensor *t, int64_t first, int64_t n)
{
    int64_t n_finite = 0;
    double sum = 0;
    for (int64_t i = first; i < first + n; i++) {
        double x = ref_get(t, i);
        if (isfinite(x)) {
            sum += x * x;
            n_finite++;
        }
    }
    return n_finite ? sqrt(sum / (double)n_finite) : 0.0;
}

static double rms(const struct tensor *t)
{
    return rms_of(t, 0, shape_elems(&t->shape));
}

/* What two units in the last place of x are at most. */
static double two_ulp(enum dtype d, double x)
{
    if (d == DTYPE_BF16)
        return ldexp(fabs(x), -6);
    return d == DTYPE_F16 ? ldexp(fabs(x), -9) + ldexp(1.0, -23) : 0.0;
}

static bool is_code(const struct law_case *c, int o, const struct tensor *t)
{
    return t->dtype == DTYPE_U8 && (c->def->coded_outputs >> o & 1u);
}

/* Are probabilities, and gradients of scores and logits, rounded to bf16 before they are multiplied
 * with bf16 matrices? */
static bool rounds_weights(const struct law_case *c)
{
    bool has = c->def->workspace_is_logits || c->op == OP_attention || c->op == OP_attention_grad ||
               c->op == OP_attention_cached || c->op == OP_cross_attention ||
               c->op == OP_cross_attention_grad;
    return has && c->sample.in[0].dtype == DTYPE_BF16;
}

static double tolerance_of(const struct law_case *c)
{
    return rounds_weights(c) ? fmax(c->tolerance, 1.0 / 128) : c->tolerance;
}

/* A weight that is rounded is a factor of a whole row, so where one row is much larger than the
 * others its errors are, too, also of its small elements. */
static void compare_output(const struct law_case *c, int o, const struct tensor *want,
                           const struct tensor *got)
{
    const int64_t n = shape_elems(&want->shape);
    const int64_t n_row = want->shape.rank ? want->shape.dim[want->shape.rank - 1] : 1;
    const double tolerance = tolerance_of(c), of_all = rms(want);
    double scale = of_all;
    for (int64_t i = 0; i < n; i++) {
        if (rounds_weights(c) && i % n_row == 0)
            scale = fmax(of_all, rms_of(want, i, n_row));
        double x = ref_get(want, i), y = ref_get(got, i);
        double allowed = dtype_is_float(want->dtype) ? tolerance * (fabs(x) + scale) + 1e-30 : 0.0;
        allowed += two_ulp(want->dtype, x) + (is_code(c, o, want) ? 1.0 : 0.0);
        bool same = isfinite(x) ? fabs(x - y) <= allowed : (isnan(x) ? isnan(y) : x == y);
        if (!same) {
            law_failed(c, "output %d (%s), element %lld is %.9g, the reference gives %.9g", o,
                       dtype_name(want->dtype), (long long)i, y, x);
            return;
        }
    }
}

static struct eval *of_reference; /* made once for all kernels of a case: it is what takes long */

static void compare_to_reference(struct law_case *c)
{
    if (strcmp(c->kernel->name, "reference") == 0)
        return;
    if (!of_reference)
        of_reference = law_run(c, &(struct eval_options){.kernel = "reference", .poison = 0xFF});
    struct eval *got =
        law_run(c, &(struct eval_options){.kernel = c->kernel->name, .poison = 0xFF});
    const struct node *n = graph_node(c->g, 0);
    for (int o = 0; o < n->n_out && of_reference && got; o++) {
        struct tensor w = eval_tensor(of_reference, n->out[o]), g = eval_tensor(got, n->out[o]);
        compare_output(c, o, &w, &g);
    }
    eval_free(got);
}

static void fast_case(struct law_case *c)
{
    law_for_each_kernel(c, compare_to_reference);
    eval_free(of_reference);
    of_reference = NULL;
}

/* Under sanitizers large samples are left to the laws below, which run them without the slow
 * reference. */
static void fast_kernels_agree_with_the_reference(void **state)
{
    struct law_report r = {.only = *state};
    law_for_each_case(&r, SNUG_ASAN ? LAW_NARROW : LAW_ALL, fast_case);
    law_report_finish(&r);
}

/* ---- same bits ------------------------------------------------------------------------------ */

/* Reports when the outputs of two runs differ in any bit. */
static void expect_same_bits(const struct law_case *c, const struct eval *a, const struct eval *b,
                             const char *what)
{
    const struct node *n = graph_node(c->g, 0);
    for (int o = 0; o < n->n_out && a && b; o++) {
        struct tensor x = eval_tensor(a, n->out[o]), y = eval_tensor(b, n->out[o]);
        if (memcmp(x.data, y.data, (size_t)tensor_bytes(&x)) != 0)
            law_failed(c, "output %d differs %s", o, what);
    }
}

/* The reference has no threads. Under sanitizers a run of one thread and a run of several are what
 * there is to see; whether the bits are the same is seen without them. */
static void repeat(struct law_case *c)
{
    int most = strcmp(c->kernel->name, "reference") == 0 ? 1 : 3;
    for (int n_threads = 1; n_threads <= most; n_threads += SNUG_ASAN ? 2 : 1) {
        struct eval_options o = {.kernel = c->kernel->name, .n_threads = n_threads, .poison = 0xFF};
        struct eval *a = law_run(c, &o), *b = SNUG_ASAN ? NULL : law_run(c, &o);
        expect_same_bits(c, a, b, n_threads == 1 ? "in a second run" : "in a second threaded run");
        eval_free(a);
        eval_free(b);
    }
}

static void repeat_case(struct law_case *c)
{
    law_for_each_kernel(c, repeat);
}

static void running_again_gives_the_same_bits(void **state)
{
    struct law_report r = {.only = *state};
    law_for_each_case(&r, LAW_ALL, repeat_case);
    law_report_finish(&r);
}

/* Redzones are checked inside every run; here also what memory held before must not matter. */
static void change_poison(struct law_case *c)
{
    struct eval_options o = {.kernel = c->kernel->name, .poison = 0xFF};
    struct eval *a = law_run(c, &o);
    o.poison = 0x3C;
    struct eval *b = law_run(c, &o);
    expect_same_bits(c, a, b, "with what its memory or workspace held before");
    eval_free(a);
    eval_free(b);
}

static void poison_case(struct law_case *c)
{
    law_for_each_kernel(c, change_poison);
}

static void outputs_are_written_fully_and_workspace_starts_undefined(void **state)
{
    struct law_report r = {.only = *state};
    law_for_each_case(&r, LAW_NARROW, poison_case);
    law_report_finish(&r);
}

static void overlay(struct law_case *c)
{
    const struct alias_rule *a = c->def->aliases;
    struct eval_options o = {.kernel = c->kernel->name, .poison = 0xFF};
    struct eval *apart = NULL;
    uint32_t one_each = 0, taken_in = 0, taken_out = 0;
    for (int i = 0; a && a[i].kind != ALIAS_NONE; i++) {
        if (a[i].kind != ALIAS_MAY || a[i].in >= SAMPLE_MAX_INPUTS)
            continue;
        if (!apart)
            apart = law_run(c, &o);
        o.overlays = 1u << i;
        struct eval *over = law_run(c, &o);
        expect_same_bits(c, apart, over, "when it takes an input's memory");
        eval_free(over);
        if (!(taken_in >> a[i].in & 1u) && !(taken_out >> a[i].out & 1u)) {
            one_each |= 1u << i;
            taken_in |= 1u << a[i].in;
            taken_out |= 1u << a[i].out;
        }
    }
    if (one_each & (one_each - 1)) {
        o.overlays = one_each;
        struct eval *all = law_run(c, &o);
        expect_same_bits(c, apart, all, "when several outputs take inputs' memory");
        eval_free(all);
    }
    eval_free(apart);
}

static void overlay_case(struct law_case *c)
{
    law_for_each_kernel(c, overlay);
}

static void allowed_aliasing_gives_the_same_bits(void **state)
{
    struct law_report r = {.only = *state};
    law_for_each_case(&r, LAW_ALL, overlay_case);
    law_report_finish(&r);
}

static void leave_inputs(struct law_case *c)
{
    struct eval *run = law_run(c, &(struct eval_options){.kernel = c->kernel->name});
    struct eval *fresh = NULL;
    if (eval_new(&fresh, c->g, &(struct eval_options){0}) != OK)
        law_failed(c, "%s", status_message());
    const struct node *n = graph_node(c->g, 0);
    if (run && fresh)
        law_case_fill(c, fresh);
    for (int i = 0; i < n->n_in && run && fresh; i++) {
        bool updated = n->in[i] == VALUE_NONE;
        for (int o = 0; o < n->n_out; o++)
            updated |= node_alias(n, o) && node_alias(n, o)->in == i;
        if (updated)
            continue;
        struct tensor x = eval_tensor(run, n->in[i]), y = eval_tensor(fresh, n->in[i]);
        if (memcmp(x.data, y.data, (size_t)tensor_bytes(&x)) != 0)
            law_failed(c, "input %d was changed", i);
    }
    eval_free(run);
    eval_free(fresh);
}

static void leave_inputs_case(struct law_case *c)
{
    law_for_each_kernel(c, leave_inputs);
}

static void inputs_change_only_by_update_rules(void **state)
{
    struct law_report r = {.only = *state};
    law_for_each_case(&r, LAW_NARROW, leave_inputs_case);
    law_report_finish(&r);
}

/* ---- accumulation ---------------------------------------------------------------------------- */

/* got = acc + plain up to rounding; plain itself was rounded to the accumulator's dtype, so what
 * counts is the size of the terms, not of their sum. */
static void compare_terms(const struct law_case *c, const struct tensor *acc,
                          const struct tensor *plain, const struct tensor *got)
{
    double scale = rms(acc) + rms(plain);
    for (int64_t i = 0; i < shape_elems(&acc->shape); i++) {
        double a = ref_get(acc, i), p = ref_get(plain, i), size = fabs(a) + fabs(p);
        double allowed = c->tolerance * (size + scale) + two_ulp(acc->dtype, size);
        if (!(fabs(ref_get(got, i) - (a + p)) <= allowed)) {
            law_failed(c, "element %lld is %.9g but %.9g + %.9g was to be had", (long long)i,
                       ref_get(got, i), a, p);
            return;
        }
    }
}

static void compare_sum(const struct law_case *with, const struct law_case *without)
{
    struct eval_options o = {.kernel = with->kernel->name, .poison = 0xFF};
    struct eval *sum = law_run(with, &o), *plain = law_run(without, &o), *fresh = NULL;
    if (eval_new(&fresh, with->g, &o) != OK)
        law_failed(with, "%s", status_message());
    if (sum && plain && fresh) {
        int out = with->def->accumulate_out;
        law_case_fill(with, fresh);
        struct tensor acc = eval_tensor(fresh, with->in[with->def->accumulate_in]);
        struct tensor p = eval_tensor(plain, graph_node(without->g, 0)->out[out]);
        struct tensor got = eval_tensor(sum, graph_node(with->g, 0)->out[out]);
        compare_terms(with, &acc, &p, &got);
    }
    eval_free(sum);
    eval_free(plain);
    eval_free(fresh);
}

static bool accepts(const struct kernel *k, const struct law_case *c)
{
    struct tensor in[SAMPLE_MAX_INPUTS], out[MAX_OUTPUTS];
    struct op_call call;
    node_call(c->g, graph_node(c->g, 0), in, out, &call);
    return !k->declines || !k->declines(&call, &(struct kernel_env){.n_threads = 1});
}

/* The sample without its accumulator against the same with one of the output's type. */
static void accumulate_case(struct law_case *c)
{
    int at = c->def->accumulate_in;
    if (at < 0)
        return;
    struct law_case without = *c, with = *c;
    without.g = with.g = NULL;
    if (at < c->sample.n_in)
        without.sample.in[at].dtype = DTYPE_NONE;
    if (law_case_build(&without) != OK) {
        law_failed(&without, "refused without an accumulator: %s", status_message());
        goto out;
    }
    with.sample = without.sample;
    value_id target = graph_node(without.g, 0)->out[c->def->accumulate_out];
    struct tensor out = value_tensor(without.g, target);
    with.sample.in[at] = (struct sample_input){.dtype = out.dtype, .shape = out.shape};
    with.sample.n_in = MAX(with.sample.n_in, at + 1);
    if (law_case_build(&with) != OK) {
        law_failed(&with, "refused with an accumulator: %s", status_message());
        goto out;
    }
    for (const struct kernel *k = cpu_kernels(c->op); k && k->name; k++) {
        with.kernel = k;
        if (accepts(k, &with) && accepts(k, &without))
            compare_sum(&with, &without);
    }
out:
    graph_free(with.g);
    graph_free(without.g);
}

static void accumulating_is_adding(void **state)
{
    struct law_report r = {.only = *state};
    law_for_each_case(&r, LAW_NARROW, accumulate_case);
    law_report_finish(&r);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void text_case(struct law_case *c)
{
    struct str once = {0}, twice = {0};
    struct graph *again = NULL;
    if (graph_print(c->g, &once) != OK || graph_parse(&again, once.text) != OK ||
        graph_print(again, &twice) != OK)
        law_failed(c, "%s", status_message());
    else if (strcmp(once.text, twice.text) != 0)
        law_failed(c, "prints as\n%sand after parsing as\n%s", once.text, twice.text);
    graph_free(again);
    str_release(&once);
    str_release(&twice);
}

static void printing_and_parsing_is_a_fixed_point(void **state)
{
    struct law_report r = {.only = *state};
    law_for_each_case(&r, LAW_NARROW, text_case);
    law_report_finish(&r);
}

int main(int argc, char **argv)
{
    void *only = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(every_row_is_complete, only),
        cmocka_unit_test_prestate(inference_accepts_samples, only),
        cmocka_unit_test_prestate(inference_refuses_rejects, only),
        cmocka_unit_test_prestate(inputs_marked_as_f32_are_accepted_beside_16_bits, only),
        cmocka_unit_test_prestate(inference_survives_odd_calls, only),
        cmocka_unit_test_prestate(fast_kernels_agree_with_the_reference, only),
        cmocka_unit_test_prestate(running_again_gives_the_same_bits, only),
        cmocka_unit_test_prestate(outputs_are_written_fully_and_workspace_starts_undefined, only),
        cmocka_unit_test_prestate(allowed_aliasing_gives_the_same_bits, only),
        cmocka_unit_test_prestate(inputs_change_only_by_update_rules, only),
        cmocka_unit_test_prestate(accumulating_is_adding, only),
        cmocka_unit_test_prestate(printing_and_parsing_is_a_fixed_point, only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
