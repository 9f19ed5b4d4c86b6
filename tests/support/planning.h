/* planning.h: what a search makes of a budget of device memory, where all else is plenty and free
 * to choose. */
#ifndef SNUG_TESTS_PLANNING_H
#define SNUG_TESTS_PLANNING_H

#include "search/search.h"
#include "support/training.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A network to plan for on a device that is on paper only, with 1,024 tokens a sequence. */
struct on_paper {
    struct training t;
    struct device device;
    struct workload *w;
};

extern const char paper_llama[], paper_gpt2[]; /* of 8 layers, and of 12 smaller ones */

void on_paper_open(struct on_paper *x, const char *config, int batch, int n_micro);
void on_paper_close(struct on_paper *x);

/* Bytes of the device that the programs of the workload need. */
int64_t planned_needs(const struct workload *w);

/* Seconds of a step in that much memory; HUGE_VAL: nothing fits. */
double planned_seconds(struct workload *w, int64_t n_bytes);

/* The same where the search may not touch all: these extents stay 0. */
double planned_within(struct workload *w, int64_t n_bytes, const struct search_bounds *bounds);

/* What search_least comes to. */
int64_t planned_least(struct workload *w);

/* ---- for a card ------------------------------------------------------------------------------ */

struct planned_step {
    double seconds;       /* HUGE_VAL: nothing fits */
    int64_t needs, arena; /* bytes of the device, */
    int64_t host_needs;   /* and of the host */
};

/* A config with settings over it, as `snug plan --gpu` plans it. */
struct planned_step plan_for_card(const char *gpu, const char *file, const char *const settings[],
                                  size_t n_settings);

#ifdef __cplusplus
}
#endif
#endif
