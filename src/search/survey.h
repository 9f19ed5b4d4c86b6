/* survey.h: a training step as a search sees it.
 *
 *     place   a block, or what comes before or after the blocks (decisions.h)
 *     unit    a forward node of a place, with what its outputs weigh and what making them costs
 *     phase   a stretch of the step inside one place and one direction: what is at home elsewhere
 *             is fetched once for each
 *
 * Everything is read off the graph and one program that keeps everything on the device.
 */
#ifndef SNUG_SEARCH_SURVEY_H
#define SNUG_SEARCH_SURVEY_H

#include "search/workload.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MAX_UNITS = 20 }; /* of a place: what is smaller than so many others is kept */

struct unit {
    const char *name;  /* of its first output, without the block's */
    int index;         /* among the forward nodes of its place */
    int64_t n_bytes;   /* of its outputs */
    int64_t n_movable; /* of those that may go to the host */
    int64_t largest;   /* of these: bytes of one */
    double seconds;
    uint32_t reads;       /* units of its place that it reads */
    bool wanted;          /* the backward pass reads it */
    bool may_drop;        /* it may be made again */
    bool drop_by_default; /* the config's decisions make it again */
    int gone, back;       /* phases: the last of the forward pass that reads it, the first of the
                             backward pass; -1: none does */
};

struct place_facts {
    struct unit *units; /* in the order of nodes */
    int n_units, n_nodes;
    uint64_t shape;                    /* equal for places that are alike */
    int forward, backward;             /* its first phases; -1: it has none */
    int64_t n_bytes[HOME_CLASS_COUNT]; /* of what lives outside the passes and may be away */
};

struct phase {
    int place;
    int section;
    /* The phase of an earlier section that runs again beside it: updates between the backward nodes
     * of the last micro-step. Where there is none, itself. */
    int beside;
    double seconds; /* with everything kept */
};

/* What crosses the link in a phase when a class of a place is away. */
struct touch {
    int phase, place;
    enum home_class home;
    int64_t n_in, n_out; /* bytes */
    int64_t largest_in;  /* bytes of a tensor, or of a slice of it */
    int64_t at_once;     /* the most that one node reads of n_in, in slices or not */
    int copies_in, copies_out;
    int after; /* phase in which it went out, of the same step; -1: it was there */
};

struct survey {
    struct pool pool;
    const struct graph *graph;
    int group; /* micro-batches that run together */
    struct place_facts *places;
    int n_places;
    int *order; /* places as the forward pass comes to them */
    struct phase *phases;
    int n_phases;
    double *section_times; /* how often each section runs in a step */
    int n_sections;
    struct touch *touches; /* by phase */
    int n_touches;
    int *phase_of;                     /* per node */
    int64_t storage_bytes[TIER_COUNT]; /* with everything on the device */
    int64_t host_bytes;
};

/* base: what the config says, with small_bytes as the search has it. The workload's programs are
 * replaced. */
enum status survey_init(struct survey *s, struct workload *w, const struct kernel_times *times,
                        const struct decisions *base) MUST_CHECK;
void survey_release(struct survey *s);

/* The most bytes alive on the device in each phase beside storage, in a program of the graph. */
enum status survey_peaks(const struct survey *s, const struct program *p,
                         int64_t *peaks) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
