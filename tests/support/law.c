#include "support/law.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/rng.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/support/ref.h"

enum { MAX_REWRITES = 16, LARGE_ELEMS = 40000, MOST_FLOPS = 30000000 };

enum status law_case_build(struct law_case *c)
{
    TRY(graph_new(&c->g, c->def->name));
    for (int i = 0; i < c->sample.n_in; i++) {
        const struct sample_input *in = &c->sample.in[i];
        c->in[i] = VALUE_NONE;
        if (in->dtype != DTYPE_NONE)
            TRY(graph_add_value(c->g, "", ROLE_INPUT, in->dtype, in->shape, NULL, &c->in[i]));
    }
    node_id k;
    return graph_add_node(c->g, c->op, c->in, c->sample.n_in, c->sample.attrs, PASS_FORWARD,
                          BLOCK_NONE, &k);
}

/* The sum of four uniform draws, with variance one: close enough to normal, and drawn in a tenth of
 * the time, which is what large samples spend most of theirs on. Kept off zero, where some ops have
 * a kink. */
static double nearly_normal(const uint32_t bits[4])
{
    double sum = ((double)bits[0] + bits[1] + bits[2] + bits[3]) * (1.0 / 4294967296.0);
    double x = (sum - 2.0) * 1.7320508075688772;
    return x < 0.0 ? x - 0.01 : x + 0.01;
}

static double draw(const struct sample_input *rule, const uint32_t bits[4])
{
    switch (rule->fill) {
    case FILL_POSITIVE:
        return 0.5 + (double)rng_uniform(bits[0]);
    case FILL_EQUAL:
        return rule->value;
    case FILL_RANGE:
        return (double)(rule->low + (int64_t)(bits[0] % (uint64_t)(rule->high - rule->low)));
    case FILL_NORMAL:
        break;
    }
    return nearly_normal(bits);
}

/* The draws of the inputs that were filled last: laws fill the same ones dozens of times in a row,
 * and would spend most of their time on drawing. */
struct draws {
    struct sample_input rule;
    uint64_t salt;
    int64_t n;
    double *values;
};

static bool is_of(const struct draws *d, const struct sample_input *rule, uint64_t salt)
{
    return d->n > 0 && d->salt == salt && d->rule.fill == rule->fill &&
           memcmp(&d->rule.value, &rule->value, sizeof(rule->value)) == 0 &&
           d->rule.low == rule->low && d->rule.high == rule->high;
}

static const double *draws_of(const struct sample_input *rule, uint64_t salt, int64_t n)
{
    static struct draws kept[SAMPLE_MAX_INPUTS];
    struct draws *d = &kept[salt % ARRAY_LEN(kept)]; /* inputs of an op have salts in a row */
    if (is_of(d, rule, salt) && d->n >= n)
        return d->values;
    free(d->values);
    *d = (struct draws){*rule, salt, n, malloc((size_t)n * sizeof(*d->values))};
    assert_non_null(d->values);
    for (int64_t i = 0; i < n; i++)
        d->values[i] = draw(rule, philox(20240607, salt, (uint64_t)i).v);
    return d->values;
}

void law_fill(const struct sample_input *rule, uint64_t salt, const struct tensor *t)
{
    int64_t n = shape_elems(&t->shape);
    const double *values = n > 0 ? draws_of(rule, salt, n) : NULL;
    for (int64_t i = 0; i < n; i++)
        ref_set(t, i, values[i]);
}

/* By the op's name: a new op in the table changes nobody's numbers. */
uint64_t law_salt(const struct law_case *c, int input)
{
    return hash_text(c->def->name) + (uint64_t)input;
}

/* Offsets that rise unevenly: the first group has few rows or none. */
static int64_t uneven_offset(int64_t limit, int64_t i, int64_t n)
{
    double share = n > 1 ? (double)i / (double)(n - 1) : 0.0;
    return (int64_t)((double)limit * share * share);
}

/* Places in samples that lie side by side in rows: of one token, of a few, of many. */
static void fill_positions(const struct tensor *t)
{
    int64_t n = shape_elems(&t->shape), length = shape_last(&t->shape), position = 0;
    for (int64_t k = 0; k < n; k++) {
        uint32_t bits = philox(20240607, 0, (uint64_t)k).v[0];
        bool begins = k % length == 0 || bits % (k % length < length / 3 ? 3 : 40) == 0;
        position = begins ? 0 : position + 1;
        ref_set(t, k, (double)position);
    }
}

void law_case_fill_input(const struct law_case *c, int i, const struct tensor *t)
{
    if (c->def->position_inputs >> i & 1u) {
        fill_positions(t);
        return;
    }
    bool offsets = c->def->offset_inputs >> i & 1u;
    bool permutation = c->def->permutation_inputs >> i & 1u;
    int64_t n = shape_elems(&t->shape), limit = c->sample.in[0].shape.dim[0];
    if (!offsets && !permutation)
        law_fill(&c->sample.in[i], law_salt(c, i), t);
    for (int64_t k = 0; k < n && (offsets || permutation); k++)
        ref_set(t, k, (double)(offsets ? uneven_offset(limit, k, n) : n - 1 - k));
}

void law_case_fill(const struct law_case *c, const struct eval *e)
{
    for (int i = 0; i < c->sample.n_in; i++) {
        if (c->in[i] == VALUE_NONE)
            continue;
        struct tensor t = eval_tensor(e, c->in[i]);
        law_case_fill_input(c, i, &t);
    }
}

static bool infer_accepts(enum op_id op, const struct sample *s)
{
    struct law_case c = {.op = op, .def = op_get(op), .sample = *s};
    bool accepted = law_case_build(&c) == OK;
    graph_free(c.g);
    return accepted;
}

/* `s` with the inputs of `mask` (and, for f64, dtype attributes) changed. */
static struct sample changed(const struct op_def *d, const struct sample *s, enum dtype to,
                             uint32_t mask)
{
    struct sample out = *s;
    for (int i = 0; i < s->n_in; i++) {
        if (mask >> i & 1u)
            out.in[i].dtype = to;
    }
    for (int i = 0; i < d->n_attrs; i++) {
        if (to == DTYPE_F64 && d->attrs[i].type == ATTR_DTYPE &&
            dtype_is_float((enum dtype)out.attrs[i].i))
            out.attrs[i].i = to;
    }
    return out;
}

static int n_bits(uint32_t x)
{
    int n = 0;
    for (; x; x &= x - 1)
        n++;
    return n;
}

int law_rewrites(enum op_id op, const struct sample *s, enum dtype to, struct sample *out, int max)
{
    uint32_t may = 0;
    int n = 0;
    for (int i = 0; i < s->n_in; i++) {
        enum dtype d = s->in[i].dtype;
        if (d == DTYPE_F32 || (to == DTYPE_F64 && dtype_is_float(d)))
            may |= 1u << i;
    }
    for (int wanted = n_bits(may); wanted >= 1; wanted--) {
        for (uint32_t mask = may; mask && n < max; mask = (mask - 1) & may) {
            struct sample candidate = changed(op_get(op), s, to, mask);
            if (n_bits(mask) == wanted && infer_accepts(op, &candidate))
                out[n++] = candidate;
        }
    }
    return n;
}

/* Inference accepts and no output is out of proportion. */
static bool is_affordable(enum op_id op, const struct sample *s)
{
    struct law_case c = {.op = op, .def = op_get(op), .sample = *s};
    bool ok = law_case_build(&c) == OK;
    for (int i = 0; ok && i < c.def->n_out; i++) {
        value_id out = graph_node(c.g, 0)->out[i];
        ok = shape_elems(&graph_value(c.g, out)->shape) <= 8 * LARGE_ELEMS;
    }
    graph_free(c.g);
    return ok;
}

static double flops_of(enum op_id op, const struct sample *s)
{
    struct law_case c = {.op = op, .def = op_get(op), .sample = *s};
    struct tensor in[SAMPLE_MAX_INPUTS], out[MAX_OUTPUTS];
    struct op_call call;
    double n = 0;
    if (law_case_build(&c) == OK) {
        node_call(c.g, graph_node(c.g, 0), in, out, &call);
        n = call_flops(&call);
    }
    graph_free(c.g);
    return n;
}

static void enlarge(struct sample *out, const struct sample *s, uint32_t mask, int64_t factor)
{
    *out = *s;
    for (int i = 0; i < s->n_in; i++)
        out->in[i].shape.dim[0] *= mask >> i & 1u ? factor : 1;
}

bool law_enlarge(enum op_id op, const struct sample *s, int anchor, struct sample *out,
                 uint32_t *mask)
{
    uint32_t may = 0;
    for (int i = 0; i < s->n_in; i++) {
        if (s->in[i].dtype != DTYPE_NONE && s->in[i].shape.rank > 0)
            may |= 1u << i;
    }
    int64_t n = shape_elems(&s->in[anchor].shape);
    if (!(may >> anchor & 1u) || n == 0 || n > LARGE_ELEMS)
        return false;
    int64_t factor = LARGE_ELEMS / n + 1;
    for (int wanted = 1; wanted <= n_bits(may); wanted++) {
        for (*mask = may; *mask; *mask = (*mask - 1) & may) {
            if (n_bits(*mask) != wanted || !(*mask >> anchor & 1u))
                continue;
            enlarge(out, s, *mask, factor);
            if (!is_affordable(op, out))
                continue;
            /* Some ops compare all rows with all: there fewer have to do. */
            for (int64_t by = factor; by > 8 && flops_of(op, out) > MOST_FLOPS; by /= 4)
                enlarge(out, s, *mask, by / 4);
            return true;
        }
    }
    return false;
}

static void run_case(struct law_case *c, void (*law)(struct law_case *c))
{
    c->report->n_cases++;
    if (law_case_build(c) == OK)
        law(c);
    else
        law_failed(c, "inference refuses the sample: %s", status_message());
    graph_free(c->g);
    c->g = NULL;
}

static void run_narrow(struct law_case c, enum dtype dtype, void (*law)(struct law_case *c))
{
    struct sample rewritten[MAX_REWRITES];
    int n = law_rewrites(c.op, &c.sample, dtype, rewritten, MAX_REWRITES);
    for (int k = 0; k < n; k++) {
        c.sample = rewritten[k];
        run_case(&c, law);
    }
}

static void run_enlarged(struct law_case c, void (*law)(struct law_case *c))
{
    struct sample plain = c.sample;
    uint32_t done[SAMPLE_MAX_INPUTS] = {0}, mask;
    for (int i = 0; i < plain.n_in; i++) {
        bool again = false;
        if (!law_enlarge(c.op, &plain, i, &c.sample, &mask))
            continue;
        for (int k = 0; k < i; k++)
            again |= done[k] == mask;
        done[i] = mask;
        c.enlarged = true;
        if (!again)
            run_case(&c, law);
    }
}

static void run_sample(struct law_report *r, enum op_id op, const struct op_sample *s,
                       enum law_forms forms, void (*law)(struct law_case *c))
{
    struct law_case c = {.report = r, .op = op, .def = op_get(op), .text = s->text};
    c.tolerance = s->tolerance > 0 ? s->tolerance : 1e-5;
    if (sample_parse(&c.sample, c.def, s->text) != OK) {
        law_failed(&c, "is not a sample: %s", status_message());
        return;
    }
    run_case(&c, law);
    if (forms >= LAW_NARROW) {
        run_narrow(c, DTYPE_BF16, law);
        run_narrow(c, DTYPE_F16, law);
    }
    if (forms == LAW_ALL)
        run_enlarged(c, law);
}

bool law_asked(const struct law_report *r, enum op_id op)
{
    const char *name = op_get(op)->name;
    size_t length = strlen(name);
    const char *next = r->only;
    while (next) {
        if (strncmp(next, name, length) == 0 && (next[length] == ',' || next[length] == '\0'))
            return true;
        next = strchr(next, ',');
        next = next ? next + 1 : NULL;
    }
    return !r->only;
}

void law_for_each_case(struct law_report *r, enum law_forms forms, void (*law)(struct law_case *c))
{
    for (enum op_id op = 0; op < OP_COUNT; op++) {
        for (int i = 0; law_asked(r, op) && i < op_get(op)->n_samples; i++)
            run_sample(r, op, &op_get(op)->samples[i], forms, law);
    }
}

static bool is_pure_view(const struct node *n)
{
    for (int i = 0; i < n->n_out; i++) {
        const struct alias_rule *a = node_alias(n, i);
        if (!a || a->kind != ALIAS_VIEW)
            return false;
    }
    return true;
}

void law_for_each_kernel(struct law_case *c, void (*law)(struct law_case *c))
{
    const struct node *n = graph_node(c->g, 0);
    struct tensor in[SAMPLE_MAX_INPUTS], out[MAX_OUTPUTS];
    const struct kernel_env env = {.n_threads = 1};
    struct op_call call;
    if (is_pure_view(n))
        return;
    node_call(c->g, n, in, out, &call);
    for (const struct kernel *k = cpu_kernels(c->op); k && k->name; k++) {
        if (k->declines && k->declines(&call, &env))
            continue;
        if (c->enlarged && strcmp(k->name, "reference") == 0)
            continue; /* slow, and has no threads to be tested */
        c->kernel = k;
        law(c);
    }
    c->kernel = NULL;
}

void law_failed(const struct law_case *c, const char *fmt, ...)
{
    char message[1024];
    struct str inputs = {0};
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    for (int i = 0; i < c->sample.n_in; i++) {
        char shape[SHAPE_TEXT];
        str_addf(&inputs, "%s%s%s", i ? " " : "", dtype_name(c->sample.in[i].dtype),
                 shape_text(shape, &c->sample.in[i].shape));
    }
    print_error("%s '%s' (%s)%s%s: %s\n", c->def->name, c->text, str_text(&inputs),
                c->kernel ? " kernel " : "", c->kernel ? c->kernel->name : "", message);
    str_release(&inputs);
    c->report->n_failures++;
}

void law_report_finish(const struct law_report *r)
{
    assert_true(r->n_cases > 0);
    if (r->n_failures)
        fail_msg("%d failures in %d cases", r->n_failures, r->n_cases);
}

struct eval *law_run(const struct law_case *c, const struct eval_options *o)
{
    struct eval *e;
    if (eval_new(&e, c->g, o) != OK) {
        law_failed(c, "%s", status_message());
        return NULL;
    }
    law_case_fill(c, e);
    if (eval_run(e) != OK) {
        law_failed(c, "%s", status_message());
        eval_free(e);
        return NULL;
    }
    return e;
}
