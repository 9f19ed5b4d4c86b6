/* workload.h: the graphs that share one set of arenas, and a way of running them.
 *
 *     graphs ─▶ workload_decide ─▶ workload_place ─▶ forecast.h ─▶ workload_check
 *               plans               programs with addresses       what was chosen
 *
 * The graphs are built once; deciding and emitting again replaces the plans and programs of before,
 * so that a search is a loop over sets of decisions.
 */
#ifndef SNUG_SEARCH_WORKLOAD_H
#define SNUG_SEARCH_WORKLOAD_H

#include "model/model.h"
#include "program/predict.h"
#include "search/decisions.h"
#include "search/surroundings.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SEARCH_THREADS = 2 }; /* that share what a search can share out */

enum stage_purpose {
    STAGE_TRAIN,     /* an optimizer step */
    STAGE_EVAL,      /* the loss of a batch */
    STAGE_PREFILL,   /* several tokens into a key/value cache */
    STAGE_DECODE,    /* one more token */
    STAGE_REFERENCE, /* what the network says of a batch before it is trained */
    STAGE_PROBE,     /* the loss of a training batch, nothing trained */
    STAGE_PREDICT,   /* gradients of a batch predicted, and added to states of the optimizer */
    STAGE_MEASURE,   /* how predicted gradients and right ones go together */
};

/* A graph, the decisions about it and what came of them. */
struct stage {
    enum stage_purpose purpose;
    struct graph *graph;          /* owned; of groups of micro-batches, where they run so */
    struct graph *single;         /* owned; what that was made from; NULL: it is `graph` */
    struct model_graph io;        /* what its values are to the model */
    int64_t n_micro;              /* micro-steps of an optimizer step */
    int group;                    /* of workload_decide: micro-batches that run together */
    struct plan plan;             /* of workload_decide */
    struct program *program;      /* of workload_place */
    struct prediction prediction; /* of forecast_time, where the stage trains */
    int handle;                   /* the executor's, once it is loaded; -1 before */
};

/* Host memory that somebody beside the programs needs from beginning to end. */
struct reserve {
    const char *name;
    int64_t n_bytes;  /* 0: it needs none */
    int64_t n_copies; /* and of each trained parameter so many f32 copies */
    bool is_kept;     /* what is in it stays when programs change */
};

struct workload {
    struct device *device; /* borrowed */
    struct stage *stages;  /* owned, with their graphs */
    int n_stages;
    const struct reserve *reserves; /* borrowed */
    int n_reserves;
    /* Held beside the arenas: */
    int64_t result_bytes; /* for what a run gives */
    int64_t data_bytes;   /* while data is read, before the arenas are */
    int64_t load_bytes;   /* while weights are read into them */
    int64_t save_bytes;   /* while a checkpoint is written */
    int64_t ahead_bytes;  /* while other budgets are planned for beside the run */
    int64_t (*program_bytes)(const struct program *p); /* to run a program; NULL: nothing */
    struct team
        *team; /* borrowed: SEARCH_THREADS threads of a search at work; NULL: there is none */
    const struct surroundings *around; /* borrowed; NULL: every forecast looks for itself */
    struct pool pool;                  /* decisions that were found for it */

    /* of workload_place */
    struct storage storage;
    int64_t n_bytes[TIER_COUNT]; /* arenas: the largest over the programs */
};

/* Room for n_stages stages, all zero, to be filled with graphs. */
enum status workload_init(struct workload *w, struct device *device, int n_stages) MUST_CHECK;
void workload_release(struct workload *w); /* also of one that is all zero */

/* Another workload of the same graphs, which it borrows, with plans and programs of its own. */
enum status workload_twin(struct workload *out, const struct workload *w) MUST_CHECK;
void workload_twin_release(struct workload *w); /* also of one that is all zero */
/* Plans without programs. */
void workload_drop_programs(struct workload *w);

/* Micro-batches that a stage runs together by these decisions: no more than there are. */
int workload_group(const struct stage *s, const struct decisions *d);
/* A plan for every stage; decisions about the backward pass concern stages that train. */
enum status workload_decide(struct workload *w, const struct decisions *d) MUST_CHECK;
/* Programs for the plans as they are now, placed in arenas that all of them share. */
enum status workload_place(struct workload *w) MUST_CHECK;
/* The same without addresses: sizes that no layout gets below, for a search to go by. */
enum status workload_bound(struct workload *w) MUST_CHECK;
/* Addresses for the programs of workload_bound; room: bytes that arenas may take. */
enum status workload_place_within(struct workload *w, const int64_t room[TIER_COUNT]) MUST_CHECK;
/* Proves the placed programs: those that a search has chosen, as it takes longer than to place. */
enum status workload_check(const struct workload *w) MUST_CHECK;
/* Placed and checked. */
enum status workload_emit(struct workload *w) MUST_CHECK;

/* The plans and programs of a moment, while others are tried (aside.c). */
struct set_aside {
    struct stage *stages; /* their graphs where they are grouped, plans, programs; NULL: nothing */
    int n_stages;
    struct storage storage;
    int64_t n_bytes[TIER_COUNT];
};
/* They leave the workload, which is to be decided about again, or they are dropped. */
enum status workload_set_aside(struct workload *w, struct set_aside *out) MUST_CHECK;
/* They are the workload's again, instead of what it has. */
void workload_bring_back(struct workload *w, struct set_aside *x);
void set_aside_release(struct set_aside *x); /* also of one that is all zero */
/* Of a stage: its plan and programs are dropped, and the graph is of one micro-batch. */
void stage_clear(struct stage *s);

/* The stage for a purpose, or NULL. */
struct stage *workload_stage(const struct workload *w, enum stage_purpose purpose);
/* How many train: lengths of samples have a program each. The first is of the longest. */
int workload_n_training(const struct workload *w);
/* Instructions of all programs. */
int64_t workload_n_instrs(const struct workload *w);
/* Comparisons that placing them took. */
int64_t workload_layout_work(const struct workload *w);
/* The stage whose program needs the most of a tier. */
const struct stage *workload_fullest(const struct workload *w, enum tier t);

/* The reserve through which parameters and states come and go where the host cannot address the
 * device. */
#define STAGING_NAME "staging"

#ifdef __cplusplus
}
#endif
#endif
