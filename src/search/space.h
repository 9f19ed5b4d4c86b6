/* space.h: the ways of running a step that a search looks at, each named by a few numbers.
 *
 *     homes    of weights, states and gradients: how many blocks' are away, and the two ends'
 *     ring     bytes that are fetched ahead
 *     price    what a byte on the link counts for when saved sets are chosen
 *     extra    bytes that the saved sets get beyond what probes say there is
 *
 * The saved sets of all places follow from these by a table (chain.h); an estimate of the step's
 * time by three clocks (clocks.h). Both cost microseconds.
 */
#ifndef SNUG_SEARCH_SPACE_H
#define SNUG_SEARCH_SPACE_H

#include "search/chain.h"
#include "search/clocks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a search may not touch: these extents stay what they are. */
struct search_bounds {
    bool fixed[EXTENT_COUNT];
    bool fixed_group; /* how many micro-batches run together is as configured */
    /* Of the plans to train that fit, which is taken: 0 and 1: the fastest, 2: the next, or the
     * last there is. */
    int rank;
};

struct homes {
    int n_blocks;    /* whose part is away */
    bool from_first; /* the first blocks; else spread evenly */
    bool ends;       /* what belongs to no block is away too */
};

struct candidate {
    struct homes homes[HOME_CLASS_COUNT];
    int64_t ring_bytes, extra;
    int price;       /* index */
    double estimate; /* seconds of a step by the clocks */
};

/* By what they say: structs have bytes between their members that say nothing. */
bool homes_are_same(const struct candidate *a, const struct candidate *b);
bool candidates_are_same(const struct candidate *a, const struct candidate *b);

enum { MAX_PRICES = 8 };

struct space {
    struct workload *work;
    struct stage *stage;   /* that trains */
    struct decisions base; /* as configured */
    struct search_bounds bounds;
    struct survey survey;
    struct options *options; /* per place */
    struct clocks clocks;
    int64_t n_instrs;         /* of a program that keeps everything */
    struct plan plan;         /* of probes */
    int64_t room[TIER_COUNT]; /* what the arenas may take */
    int n_blocks, n_prices;
    struct link_option *links[2];       /* of probes: gradients at home, or away; NULL: neither */
    struct chain chains[2][MAX_PRICES]; /* from these */
    struct pool tables;                 /* of the chains */
    int64_t staged[HOME_CLASS_COUNT];   /* bytes that fetches of a class add to the fullest phase */
    /* of the candidate at hand */
    int *link_option, *option, *option_before;
    bool (*away)[HOME_CLASS_COUNT];
};

/* The workload has a stage that trains; base->small_bytes is what is too small to be moved. */
enum status space_init(struct space *s, struct workload *w, const struct kernel_times *times,
                       const struct decisions *base, const struct search_bounds *bounds,
                       const int64_t room[TIER_COUNT]) MUST_CHECK;
/* The same places with other parts of them on disk, which is all that base differs in, or other
 * homes left to choose, which is all that the bounds do: nothing is surveyed or probed again.
 * Micro-batches go one at a time: graphs of groups come and go. */
enum status space_restart(struct space *s, const struct decisions *base,
                          const struct search_bounds *bounds,
                          const int64_t room[TIER_COUNT]) MUST_CHECK;
void space_release(struct space *s); /* also of one that is all zero */

/* Are the homes of a class left to choose? */
bool space_is_open(const struct space *s, enum home_class c);
/* Bytes of a class, in all places. */
int64_t space_class_bytes(const struct space *s, enum home_class c);

/* Fills in s->option and s->away; false: it cannot fit, or the bounds forbid it. */
bool space_expand(struct space *s, const struct candidate *c);
/* Bytes that saved sets have to get beyond what there seems to be for anything to seem to fit;
 * false: nothing does, whatever they get. */
bool space_least_extra(struct space *s, int64_t *extra);
/* Seconds of what was expanded last. */
double space_estimate(const struct space *s, const struct candidate *c);

/* What was expanded last as decisions; places (n_places of them) receive what they point to, with
 * the saved sets of the space. */
struct decisions space_decisions(const struct space *s, const struct candidate *c,
                                 struct place_choice *places);

/* Calls visit for every candidate of the grid with its estimate, best effort first unknown. */
enum status space_visit(struct space *s, int64_t extra,
                        enum status (*visit)(void *user, const struct candidate *c),
                        void *user) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
