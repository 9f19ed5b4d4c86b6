/* plan_record.h: a plan as lines of text: what was decided, where everything lives, what it takes
 * and what the search for it cost. Lines of two versions side by side say what changed. */
#ifndef SNUG_TESTS_PLAN_RECORD_H
#define SNUG_TESTS_PLAN_RECORD_H

#include "train/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of a plan to train also what other budgets and settings would make of it; a plan to evaluate. */
enum plan_kind { PLAN_TRAINING, PLAN_WHAT_IF, PLAN_EVALUATION };

/* A case: a config, settings over it ("key=value key=@": the folder), and the card to plan for. */
struct plan_case {
    const char *name;
    const char *gpu;
    const char *config; /* a file */
    const char *settings;
    enum plan_kind kind;
};

/* Plans as `snug plan` does, with a folder for the disk tier, and appends the lines, each ended by
 * a newline. Times are written with a ~ before them. A plan that does not fit is recorded with the
 * refusal and its advice. */
enum status plan_record(const struct plan_case *c, const char *folder, struct str *out) MUST_CHECK;

/* Are two lines, up to their ends, the same? Words that begin with ~ may differ by one in a
 * million. */
bool plan_lines_agree(const char *a, const char *b);

#ifdef __cplusplus
}
#endif
#endif
