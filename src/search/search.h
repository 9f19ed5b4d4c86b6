/* search.h: decisions with which a workload fits its budgets, and of these the fastest.
 *
 * What is configured is tried first. If it does not fit, thousands of candidates (space.h) are
 * ranked by estimates; the best of them are emitted, held against the budgets to the byte and
 * predicted instruction by instruction, with a correction of what the estimate got wrong; the
 * fastest is improved step by step, and placed.
 */
#ifndef SNUG_SEARCH_SEARCH_H
#define SNUG_SEARCH_SEARCH_H

#include "search/forecast.h"
#include "search/space.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A way of running the step that was emitted and predicted. */
struct finding {
    double seconds;              /* of a step */
    int64_t n_bytes[TIER_COUNT]; /* of the arenas; of the device's no layout takes less */
    const char *text;            /* what it does, as decisions_add_text says it; the workload's */
    struct decisions decisions;  /* as the search made them; the workload's, too */
};

enum { MAX_FINDINGS = 5 };

/* How a search went, for reports. */
struct search_report {
    struct finding findings[MAX_FINDINGS]; /* fastest first */
    int n_findings;                        /* 0: there was nothing to search for */
    int chosen;              /* of these: the first, unless another rank was asked for */
    int n_ranked, n_emitted; /* candidates */
};

/* What a plan does and another does not: "states of 3 of 12 blocks on the host"; where it does
 * nothing more, what it leaves out: "not: gradients of 2 of 12 blocks on the host". */
void finding_add_difference(const struct finding *f, const struct finding *from, struct str *out);

/* *d: what is configured; then what was chosen, or where nothing fits what search_smallest gives.
 * The workload's plans and programs are those of *d, and what *d points to lives as long as it.
 * Kernels not measured so far are predicted by rates (times NULL: all). report NULL: not wanted. */
enum status search_plan(struct workload *w, const struct limits *limits,
                        const struct search_bounds *bounds, const struct kernel_times *times,
                        struct decisions *d, struct search_report *report) MUST_CHECK;

/* *d: what is configured; then, within the bounds, the way of running it that takes the least of
 * the device's memory and no more of the host's than there is. Nothing is fetched ahead. */
enum status search_least(struct workload *w, const struct limits *limits,
                         const struct search_bounds *bounds, struct decisions *d) MUST_CHECK;

/* The same, and less where single blocks can do with less: as long as a search takes. It depends on
 * neither the budget of the device nor on how fast things are, so that what is said to be needed
 * fits when it is given. */
enum status search_smallest(struct workload *w, const struct limits *limits,
                            const struct search_bounds *bounds, struct decisions *d) MUST_CHECK;
/* Does that take a moment? By the workload's programs. */
bool search_is_quick(const struct workload *w);

#ifdef __cplusplus
}
#endif
#endif
