/* session.h: what a run holds open: an engine, and the data that goes through it.
 *
 *     session_open    model and device; programs planned and checked; nothing large allocated
 *     session_data    the task's data, loaders
 *     session_start   arenas and weights: from here on nothing is allocated per step
 *     session_close
 *
 * `snug plan` needs only the first; training and evaluation need all three.
 */
#ifndef SNUG_TRAIN_SESSION_H
#define SNUG_TRAIN_SESSION_H

#include "data/loader.h"
#include "engine/ahead.h"
#include "engine/changeover.h"
#include "train/feed.h"
#include "train/sample_texts.h"

#ifdef __cplusplus
extern "C" {
#endif

struct session_options {
    bool train, evaluate;
    const char *hub_folder;      /* Hugging Face cache for names such as ORG/NAME; NULL: none */
    const char *cache_folder;    /* what is measured about a device is kept here; NULL: nowhere */
    const char *gpu;             /* a card to plan for (device/card); NULL: the config's device */
    int n_threads;               /* on the CPU, where the config does not say; 0: all processors */
    bool untimed;                /* the forecast goes by rates: no kernel is timed */
    bool replans;                /* as engine_options say it */
    const struct task_def *task; /* NULL: that of the config's model */
};

/* Lengths of samples that have a training program of their own, with group_by_length. */
enum { SESSION_LENGTHS = 4, SESSION_STAGES = SESSION_LENGTHS + 6, SESSION_RINGS = 6 };
/* Micro-batches that are planned for beside the run. */
enum { SESSION_SHAPES = 8 };

struct session {
    const struct config *config; /* borrowed; or own_config */
    struct config own_config;    /* where the micro-batch was left open: the same with a number */
    int n_batches_planned;       /* micro-batches among which it was chosen; 0: it was given */
    int64_t first_batch;         /* the micro-batch with which the run began; others may follow */
    struct session_options options;
    struct engine engine;
    struct ahead *ahead;          /* plans for other budgets; NULL: none are made */
    struct session_shape *shapes; /* [SESSION_SHAPES] of other micro-batches; NULL: of none */
    /* of the engine; NULL: not wanted */
    struct stage *train, *eval, *reference, *probe, *predict, *measure;
    /* Where samples are grouped by length: programs for several, the longest first. `train` and
     * `feed` are those of the step that runs. */
    int n_lengths;
    int64_t length; /* of `train` */
    int64_t lengths[SESSION_LENGTHS];
    struct feed feeds[SESSION_LENGTHS];

    struct sample_texts *samples; /* NULL: none are written */

    void *data;         /* of the task */
    int64_t data_bytes; /* held while it is read */
    struct loader *loader, *eval_loader;

    /* batches into the programs */
    struct feed feed, eval_feed, reference_feed, probe_feed, predict_feed, measure_feed;

    /* what the engine was asked for */
    struct stage_request stages[SESSION_STAGES];
    struct reserve rings[SESSION_RINGS];
};

enum status session_open(struct session *s, const struct config *cfg,
                         const struct session_options *o) MUST_CHECK;
enum status session_data(struct session *s) MUST_CHECK;
/* With the weights of the config's model, or those of its seed. */
enum status session_start(struct session *s) MUST_CHECK;
/* With those of a folder, or drawn from the seed when that is NULL. */
enum status session_start_with(struct session *s, const char *weights_folder) MUST_CHECK;
void session_close(struct session *s);

/* The sizes of a run with a micro-batch: its config, and what an engine is asked for. */
struct session_shape {
    struct config config;
    struct stage_request stages[SESSION_STAGES];
    struct reserve rings[SESSION_RINGS];
    struct engine_request request; /* of these */
};
enum status session_shape(const struct session *s, int64_t batch,
                          struct session_shape *out) MUST_CHECK;
/* The config as it was when the run began. */
struct config session_first_config(const struct session *s);

/* Other limits for a session that runs, or another micro-batch, and how it went. */
struct session_change {
    struct limits limits;
    int64_t batch;                 /* 0: the same */
    const struct decisions *known; /* for these; NULL: none */
    int rank;                      /* of the plan, as engine_replan takes it; 0: as configured */
    bool anew;                     /* also where the plan of that rank runs */
    bool hurries;                  /* any plan that was made beforehand will do */
    bool if_faster;                /* else it is not worth it */
    /* afterwards: */
    bool is_idle;     /* it was not, or the plan of that rank runs: nothing has changed */
    bool was_planned; /* beforehand */
    bool is_lost;     /* the session cannot go on */
    struct changeover over;
    double planning_s, carrying_s; /* programs for these limits; from the old ones to them */
};

/* c->over.folder is given. Between two steps, while the training loader runs: programs for other
 * limits take the place of those there are, and every step after it gives the bits that it would
 * have given, unless the micro-batch is another: then sums are added up in another order. On
 * failure the session goes on as it was, unless it is lost. */
enum status session_change(struct session *s, struct session_change *c) MUST_CHECK;

/* Starts reading ahead into the engine's memory; ends with loader_stop. */
enum status session_start_loader(struct session *s, bool eval) MUST_CHECK;

/* Takes the shortest training program that a batch fits into, and its feed. */
void session_choose_length(struct session *s, const struct batch *b);

/* The memory that it reads into, while it does not run. */
void *session_ring(const struct session *s, bool eval);

/* How batches are cut, and what they are. */
struct loader_options session_loader_options(const struct session *s, bool eval);

/* Mean loss over the evaluation data (at most max_batches batches; 0: all). */
struct evaluation {
    double loss;
    struct metric_value values[MOST_METRIC_VALUES]; /* losses, where there are several; metrics */
    int n_values;
    const struct task_unit *unit;
    int64_t n_units, n_batches;
    double seconds;
};
enum status session_evaluate(struct session *s, int64_t max_batches,
                             struct evaluation *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
