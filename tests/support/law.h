/* law.h: what the law tests share: walking op_table x samples x dtypes, building one-node graphs,
 * filling inputs, and reporting.
 *
 * A law is a function over one case. Failures are printed with op, sample and dtypes, collected
 * over all ops, and fail the test at the end (law_report_finish).
 */
#ifndef SNUG_TESTS_LAW_H
#define SNUG_TESTS_LAW_H

#include "device/kernel.h"
#include "graph/graph.h"
#include "graph/sample.h"
#include "support/eval.h"

#ifdef __cplusplus
extern "C" {
#endif

struct law_report {
    const char *only; /* names of ops with commas between: while working on them; NULL: all */
    int n_cases, n_failures;
};

/* One op on one sample, in the sample's dtypes or with some of its inputs in another. */
struct law_case {
    struct law_report *report;
    enum op_id op;
    const struct op_def *def;
    const char *text;
    double tolerance;
    struct sample sample; /* after the change of dtypes */
    bool enlarged;
    struct graph *g; /* node 0 is the op */
    value_id in[SAMPLE_MAX_INPUTS];
    const struct kernel *kernel; /* inside law_for_each_kernel */
};

/* Builds c->g from op and sample; free with graph_free(c->g). */
enum status law_case_build(struct law_case *c) MUST_CHECK;

/* Fills the inputs with the sample's values: the same for every dtype up to rounding. */
void law_case_fill(const struct law_case *c, const struct eval *e);
/* `salt` separates streams. Normal draws keep away from zero, where piecewise functions have
 * kinks. */
void law_fill(const struct sample_input *rule, uint64_t salt, const struct tensor *t);
/* Input i of the case: by its sample, or offsets or a permutation where the op says so. */
void law_case_fill_input(const struct law_case *c, int i, const struct tensor *t);
/* What an input of a case is filled by. */
uint64_t law_salt(const struct law_case *c, int input);

/* The samples that arise from changing float inputs to dtype `to` (for f64 all floats and the dtype
 * attributes, otherwise f32 ones, as many as inference lets: statistics and accumulators may have
 * to stay). Those with most changes come first; returns how many. */
int law_rewrites(enum op_id op, const struct sample *s, enum dtype to, struct sample *out, int max);

/* The sample with input `anchor`, and as few others as inference needs to agree, made longer along
 * the first axis until kernels find it worth several threads. False when there is none; *mask says
 * which inputs grew. */
bool law_enlarge(enum op_id op, const struct sample *s, int anchor, struct sample *out,
                 uint32_t *mask);

enum law_forms {
    LAW_PLAIN,  /* samples as they are */
    LAW_NARROW, /* and in each bf16 and f16 form */
    LAW_ALL,    /* and enlarged */
};
/* Every op on every sample. */
void law_for_each_case(struct law_report *r, enum law_forms forms, void (*law)(struct law_case *c));
/* Does the report ask for this op? */
bool law_asked(const struct law_report *r, enum op_id op);
/* Every CPU kernel that accepts the case; none for pure views, no reference for enlarged ones. */
void law_for_each_kernel(struct law_case *c, void (*law)(struct law_case *c));

void law_failed(const struct law_case *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
void law_report_finish(const struct law_report *r);

/* Fills, runs, and returns the evaluated graph; NULL after reporting a failure. */
struct eval *law_run(const struct law_case *c, const struct eval_options *o);

#ifdef __cplusplus
}
#endif
#endif
