/* search_internal.h: a search at work, and what its files are to each other.
 *
 *     look.c      the order of it all: what is tried when, and how often
 *     ranking.c   thousands of candidates by their estimates: the best dozen
 *     trials.c    candidates emitted, held against the room to the byte, timed; the best remembered
 *     foresee.c   a thread that goes ahead and tries what is likely to come next
 *     steps.c     single numbers of the best changed, while that helps
 *     changes.c   single places of the best changed, or those that are alike, by their estimates
 *     polish.c    such changes tried, while that helps
 *     choice.c    the fastest that fits with addresses too
 *     below.c     nothing fits: what takes the least, looked for in ever less room
 *     ring.c      no search: the configured plan fits, how far it fetches ahead is left to say
 *     restarts.c  searches again with less to choose from
 *     spills.c    searches again with something on disk, where device and host are full
 *     fastest.c   the best of several searches
 */
#ifndef SNUG_SEARCH_SEARCH_INTERNAL_H
#define SNUG_SEARCH_SEARCH_INTERNAL_H

#include "search/foresee.h"
#include "search/grouping.h"
#include "search/known.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    N_TOP = 32,          /* candidates that ranking leaves */
    N_BEST = 64,         /* trials that are remembered: many are alike, and few are ranks */
    N_LAST = 16,         /* that are placed when smaller ones are no longer looked for */
    MAX_EMISSIONS = 240, /* of one search */
    /* Trials that are improved, each unlike those before it: which of two ways of running a step is
     * the faster one shows only when both are at their best. */
    N_UNLIKE = 4,
    MAX_TRIED = 1024, /* choices, of which some come to the same program */
    N_CLASS_SETS = 1 << HOME_CLASS_COUNT,
    LONG_PROGRAM = 10 * 1000, /* instructions: planning it takes seconds */
};

/* What is smaller is not worth a copy of its own. */
#define SMALL_BYTES ((int64_t)1 << 20)

/* Estimates are believed that far: what is slower by more is not emitted. */
#define DOUBT 0.05

/* What takes longer than the best by this factor is no runner-up. */
#define FAR_BEHIND 1.25

/* A change of the best goes on from what is faster by this part: there are many more of less. */
#define IMPROVEMENT 1e-4

/* A candidate that was emitted and fits, with what it came to. */
struct trial {
    struct candidate c;
    double seconds;
    int64_t slack; /* bytes of the device's room that it leaves */
    int64_t n_bytes[TIER_COUNT];
    bool is_climbed; /* what the clocks like best near it was tried */
    int *option;     /* [n_places] */
    bool (*away)[HOME_CLASS_COUNT];
};

/* What was tried, and came to. */
struct tried {
    uint64_t choice, plan; /* hashes: of what was expanded, and of the plan that it means */
    double seconds;        /* HUGE_VAL: it does not fit */
    int64_t slack;
    int64_t host_bytes;
    int64_t ring_bytes, extra; /* of the candidate */
};

/* By how much addresses take more than the bytes that they hold, of the tiers that there is not
 * enough of for it; 0: there is. */
struct gaps {
    int64_t n_bytes[TIER_COUNT];
};

/* A change of a trial: of n places that are alike with one option, or with one class whose home is
 * elsewhere, from the first of them on or from the last; or of the ring (place -1). */
struct edit {
    int place; /* one of those that are alike */
    int n;
    bool from_last;
    int option; /* -1: the class */
    enum home_class home;
    int64_t ring_bytes;
};

/* One, and others that make room for it. */
enum { MAX_EDITS = 3 };

struct change {
    struct edit edits[MAX_EDITS];
    int n_edits;
    int64_t n_bytes; /* about what it adds on the device */
    double estimate; /* seconds */
};

/* Which changes are worth a try: those that seem to fit and to be no slower; or where time is left
 * single places, whatever is known of their bytes. */
enum care { TRY_LIKELY, TRY_ALL };

struct changes {
    VEC(struct change) list;
    VEC(struct change) small; /* those that make room, liked or not */
    double now;               /* seconds: the estimate of what is changed */
};

struct search {
    struct workload *w;
    const struct limits *limits;
    const struct kernel_times *times;
    double below;                /* seconds: what is not faster is of no use to who asks, */
    bool is_patient;             /* which does not show by the first that fit, */
    bool is_hasty;               /* where no plan is near to fitting, another search follows */
    bool gave_up;                /* and nothing will be */
    struct grouping *groups;     /* that may be faster; NULL: this is a search for them */
    struct known *known;         /* programs of searches before, and of this one; NULL: none are */
    struct foresight *foresight; /* NULL: there is no thread to go ahead */
    const struct foresight *ahead_of; /* this is that thread's: it is of no use when that is over */
    struct space *spaces; /* [2]: of searches before, without small tensors and with them */
    struct space space;
    struct place_choice *places; /* of the candidate at hand */
    struct candidate top[N_TOP]; /* by estimate, best first */
    int n_top;
    struct candidate first[N_CLASS_SETS]; /* the best by the classes that are all at home */
    struct trial best[N_BEST];            /* by seconds */
    int n_best;
    int n_placed; /* of these, the first: they fit with addresses too */
    int n_ranked, n_emitted;
    int64_t layout_work;             /* comparisons, of all plans that were placed */
    int64_t n_at_hand;               /* instructions of the program that was tried or placed last */
    int64_t n_instrs;                /* that were emitted, by all rounds, */
    int64_t n_before;                /* and before this one */
    int most_emitted, most_polished; /* what n_emitted may come to, by steps and after them */
    int64_t recorded_bytes; /* of the device, by the programs that the room was found with */
    struct tried tried[MAX_TRIED];
    int n_tried;
};

/* A search from its beginning, small tensors left where they are at first. *d: what is configured,
 * then what was chosen, which the workload has; or nothing was *found, or s->gave_up. */
enum status search_all(struct search *s, const struct forecast *f,
                       const struct search_bounds *bounds, struct decisions *d,
                       struct search_report *report, bool *found) MUST_CHECK;
/* After it: *d was found, from what is configured, and becomes what is faster. Long programs have
 * no time for that. */
enum status search_deeper(struct search *s, const struct forecast *f,
                          const struct search_bounds *bounds, const struct decisions *configured,
                          struct decisions *d, struct search_report *report) MUST_CHECK;
/* Or nothing was: as search_all, with as little on disk as it takes. */
enum status search_disk(struct search *s, const struct forecast *f,
                        const struct search_bounds *bounds, struct decisions *d,
                        struct search_report *report, bool *found) MUST_CHECK;

/* The fastest plan of several searches; its programs wait here while others are looked for. */
struct fastest {
    struct decisions d;
    struct search_report report;
    double seconds; /* HUGE_VAL: there is none */
    struct set_aside programs;
};

/* The workload has another one, that takes so long: it is kept if it is faster. */
enum status fastest_compare(struct fastest *best, struct workload *w, const struct decisions *d,
                            const struct search_report *report, double seconds) MUST_CHECK;
/* The workload gets the fastest back. */
void fastest_take(struct fastest *best, struct workload *w, struct decisions *d,
                  struct search_report *report);
void fastest_release(struct fastest *best);

/* Fills in s->top. extra: bytes that saved sets may take beyond what there seems to be. */
enum status search_rank(struct search *s, int64_t extra) MUST_CHECK;

/* Room for trials, in the pool of the space. */
enum status search_make_room(struct search *s) MUST_CHECK;
enum status search_make_trial(struct search *s, struct trial *t) MUST_CHECK;
/* What is at hand (space_expand) into a trial, and back. */
void search_save(const struct search *s, struct trial *t);
void search_restore(struct search *s, const struct trial *t);
/* Device and host have so much less room: of what was tried, what still fits stays. */
void search_take_room(struct search *s, const struct gaps *less);
/* Was what is at hand not tried yet? It is noted as tried: search_try follows. */
bool search_is_new(struct search *s, const struct candidate *c);
/* Emits what is at hand, unless another choice came to the same plan, and where it fits remembers
 * it. *seconds becomes no more than it takes; *slack is what it leaves of the device's room. */
enum status search_try(struct search *s, const struct candidate *c, double *seconds,
                       int64_t *slack) MUST_CHECK;
/* Expands and emits c as often as its bytes teach something about how many the saved sets may
 * take; *seconds is the least of what fits (HUGE_VAL: nothing does). */
enum status search_try_candidate(struct search *s, struct candidate *c, double *seconds) MUST_CHECK;

/* Changes a candidate, with its seconds, in one number until that makes a faster one. */
enum status search_step(struct search *s, struct candidate *at, double *seconds_at,
                        bool *improved) MUST_CHECK;
/* The fastest trial that is unlike all of these; NULL: there is none. */
struct trial *search_find_unlike(struct search *s, const struct candidate *known, int n);
/* Trials that the clocks like best near the best, and near others that are unlike it. */
enum status search_climb(struct search *s) MUST_CHECK;
/* May more be emitted, and is that worth while? */
bool search_goes_on(const struct search *s);
/* Changes places of the best, and of others that are unlike it, until nothing makes them faster. */
enum status search_polish(struct search *s) MUST_CHECK;
/* Changes of a trial, those that the clocks like best first. */
enum status search_list_changes(struct search *s, const struct trial *from, enum care care,
                                struct changes *out) MUST_CHECK;
/* *c with what gives back so many bytes at the least cost; false: nothing does. */
bool search_add_room(const struct search *s, const struct trial *from, const struct changes *x,
                     int64_t n_bytes, struct change *c);
/* What is at hand becomes the trial with the change; the candidate that goes with it. */
struct candidate search_apply(struct search *s, const struct trial *from, const struct change *c);

/* Looks for plans by their bounds, and again with less room where their addresses take more;
 * *found: *d is the one that is taken, and placed. Or s->gave_up. */
enum status search_look(struct search *s, struct decisions *d, bool *found) MUST_CHECK;

/* Looks for plans that take ever less of the device's room; *found: the smallest by its bounds is
 * in *smallest, which has arrays of its own. */
enum status search_descend(struct search *s, struct trial *smallest, bool *found) MUST_CHECK;

/* The fastest that still fits with addresses, or the one of the rank that is asked for, or the last
 * there is. Where none does, n_tried are enough to give up, and *least are the least gaps. */
enum status search_choose(struct search *s, int n_tried, struct decisions *d, bool *found,
                          struct gaps *least) MUST_CHECK;
/* Those of the fastest. */
enum status search_find_gaps(struct search *s, struct gaps *gaps) MUST_CHECK;
/* Decisions of a trial, that live as long as the workload. */
enum status search_take(struct search *s, const struct trial *t, struct decisions *d) MUST_CHECK;
enum status search_describe(struct search *s, struct search_report *out) MUST_CHECK;
/* Is there room for it in a list, fastest first, and is it another way of running the step than
 * those that are listed, and not far behind? */
bool search_is_runner_up(const struct search_report *r, double seconds, const struct decisions *d);

/* *d fits: nothing more has to leave, and what has left is fetched no further ahead than it takes.
 */
enum status search_choose_ring(struct workload *w, const struct limits *limits,
                               const struct kernel_times *times, struct decisions *d) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
