/* engine.h: a task with programs on a device: for training, evaluation and generation alike.
 *
 *     engine_open     the task's model and the device a config names
 *     engine_plan     graphs, plans, programs that share arenas, and the forecast
 *     engine_start    arenas and weights: from here on nothing is allocated
 *     engine_close
 *
 *     config ─▶ settings ─▶ graphs ─▶ decisions ─▶ programs ─▶ forecast ─▶ run
 *
 * engine_plan is that line: each of its steps can be taken alone, so that a test holds the graph
 * before it is planned, or the plan before it becomes a program.
 */
#ifndef SNUG_ENGINE_ENGINE_H
#define SNUG_ENGINE_ENGINE_H

#include "engine/graphs.h"
#include "run/executor.h"
#include "run/stage.h"
#include "search/refusal.h"

#ifdef __cplusplus
extern "C" {
#endif

struct engine_options {
    const char *hub_folder;      /* Hugging Face cache for names such as ORG/NAME; NULL: none */
    const char *cache_folder;    /* what is measured about a device is kept here; NULL: nowhere */
    const char *gpu;             /* a card to plan for (device/card); NULL: the config's device */
    int n_threads;               /* on the CPU, where the config does not say; 0: all processors */
    bool untimed;                /* the forecast goes by rates: no kernel is timed */
    bool replans;                /* a search is made, also where its plan is kept (kept_plans.h) */
    const struct task_def *task; /* NULL: that of the config's model */
};

/* What is wanted of an engine. The arrays are borrowed until it is closed. */
struct engine_request {
    const struct stage_request *stages;
    int n_stages;
    const struct reserve *reserves; /* host memory for the caller, in the plan: engine_reserve */
    int n_reserves;
    int64_t result_bytes; /* held beside the arenas for what a run gives */
    int64_t data_bytes;   /* held while data is read, before the arenas are */
    int64_t state_bytes;  /* held while a checkpoint is written, for all but its tensors */
    bool saves;           /* checkpoints are written */
    bool loads;           /* weights come from files */
    bool plans_ahead;     /* other budgets are planned for while it runs (ahead.h) */
};

/* Seconds that it took to have a plan, in the order in which they pass. */
struct planning_time {
    double open_s;   /* the model's files, the device and what was measured of it */
    double build_s;  /* graphs */
    double choose_s; /* the search, and the proof of what it found */
    double time_s;   /* kernels that no earlier plan had timed, and the forecast */
    bool was_kept;   /* there was no search: its plan was kept (kept_plans.h) */
};

struct engine {
    const struct config *config; /* borrowed; NULL: settings came without one */
    struct settings settings;
    struct task task;
    const struct model *model;         /* the task's: of the caller, or `own_model`; or NULL */
    struct device *device;             /* of the caller, or `own_device` */
    struct kernel_times *times;        /* NULL: kernels are not timed */
    const char *cache_folder;          /* of engine_options, borrowed */
    bool replans;                      /* likewise */
    const struct surroundings *around; /* borrowed, while it is planned; NULL: as the system says */

    /* from engine_build on */
    struct engine_request request;
    struct workload work;
    struct search_report report; /* of engine_plan: what else would have fitted */
    struct forecast forecast;    /* of engine_forecast */
    struct planning_time took;
    const struct model_param *params; /* of every stage: they are the same */
    int n_params;

    /* from engine_start on */
    struct executor *executor;
    bool averages_are_weights;        /* while averages_swap has them so (averages.h) */
    struct tensor *param_tensors;     /* in the order of params; read and written through `stage` */
    const struct tensor_stage *stage; /* `staging`, or the host's */
    struct tensor_stage staging;

    /* of engine_open */
    char *model_folder;   /* where the config's model lies; NULL: it is made from scratch */
    char *adapter_folder; /* and its adapter, likewise */
    struct model *own_model;
    struct device own_device;
};

/* On failure there is nothing to close. */
enum status engine_open(struct engine *e, const struct config *cfg,
                        const struct engine_options *o) MUST_CHECK;
/* The same without a config. The task's model and the device are the caller's. */
void engine_init(struct engine *e, const struct settings *settings, struct task task,
                 struct device *device);
void engine_close(struct engine *e); /* also of one that is all zero */

/* Builds, decides, emits and forecasts. A plan over budget is not an error here: forecast.fits. */
enum status engine_plan(struct engine *e, const struct engine_request *r) MUST_CHECK;
/* The same with decisions that were made before, or (NULL) with a search that times no kernel: what
 * may be done beside an engine that runs. */
enum status engine_plan_beside(struct engine *e, const struct engine_request *r,
                               const struct decisions *known) MUST_CHECK;
/* The steps of it. workload_decide and workload_emit, of e->work, are the ones between. */
enum status engine_build(struct engine *e, const struct engine_request *r) MUST_CHECK;
enum status engine_forecast(struct engine *e) MUST_CHECK;

/* ERR_FIT, with the binding constraint in bytes and the nearest change that would fit (other
 * settings are planned to find it), when the plan needs more than the budgets of the tiers. */
enum status engine_require_fit(const struct engine *e) MUST_CHECK;
/* ERR_FIT when the device or the host has too little free memory now, whatever the budget says: how
 * much there is, who holds the rest, and the nearest change that would fit. */
enum status engine_require_room(const struct engine *e) MUST_CHECK;
/* ERR_CONFIG when fewer plans fit than the rank that is asked for. */
enum status engine_require_rank(const struct engine *e) MUST_CHECK;
/* Looks for changes of the numbers that bring a tier down to n_bytes; */
void engine_advise(const struct engine *e, enum tier tier, int64_t n_bytes, struct advice *out);
/* and, for who is short of so much, also for other ways out, and how fast each would be. */
void engine_advise_short(const struct engine *e, const struct shortage *s, struct advice *out);

/* Allocates the arenas: ERR_FIT where the system, or a limit of it, does not give them. Called by
 * one who has something to lose when they cannot be had; engine_start does it otherwise. */
enum status engine_allocate(struct engine *e) MUST_CHECK;

/* Loads the programs with their constants, and the weights: from a Hugging Face model folder, or
 * drawn from the seed when that is NULL. A model with an adapter also takes the folder of one: the
 * rest is then the config's model. */
enum status engine_start(struct engine *e, const char *weights_folder) MUST_CHECK;

/* The first half of that. */
enum status engine_load_programs(struct engine *e) MUST_CHECK;

/* The stage for a purpose, or NULL. */
struct stage *engine_stage(const struct engine *e, enum stage_purpose purpose);

/* A section of a stage's program; its inputs and outputs on the host, NULL when there is none of
 * that name. */
enum status engine_run(struct engine *e, const struct stage *s, const char *section) MUST_CHECK;
void *engine_input(const struct engine *e, const struct stage *s, const char *name);
const void *engine_output(const struct engine *e, const struct stage *s, const char *name);

/* Host memory of the request, once the engine has started; *n_bytes (NULL: not wanted) of it. */
void *engine_reserve(const struct engine *e, const char *name, int64_t *n_bytes);

#ifdef __cplusplus
}
#endif
#endif
