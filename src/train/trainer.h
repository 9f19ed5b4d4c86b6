/* trainer.h: the training loop.
 *
 * A step runs the train program's sections, reads a few numbers back (sums of losses, counts, the
 * gradient norm) and tells the observer. Evaluation, saving and stopping happen between steps. The
 * loop never prints: observers do (terminal, metrics.jsonl, TensorBoard).
 */
#ifndef SNUG_TRAIN_TRAINER_H
#define SNUG_TRAIN_TRAINER_H

#include <signal.h>

#include "train/control.h"
#include "train/elastic.h"
#include "train/jump.h"
#include "train/plan_trials_run.h"
#include "train/profile.h"
#include "train/run_start.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one optimizer step was. */
struct step_record {
    int64_t step, n_steps; /* 1-based */
    double epoch;
    bool ends_epoch; /* the next one begins another pass over the data */
    double loss, grad_norm, lr;
    const char *phase; /* of predictive phases; NULL: there are none */
    bool predicted;    /* most of its gradients were predicted */
    const struct metric_value
        *losses; /* [n_losses] that the loss is made of; none where it is one */
    int n_losses;
    double loss_scale;            /* of the next step; 0: the loss is not scaled */
    bool skipped;                 /* the scaled gradients overflowed: nothing was updated */
    const struct task_unit *unit; /* what the task counts in: tokens */
    int64_t n_units; /* that counted in the loss; 0: there is no loss (NAN), nothing was updated */
    int64_t n_units_total;
    double seconds;
    double units_per_s, mfu;
    int64_t arena_bytes, arena_predicted;   /* high-water mark so far, device tier */
    int64_t device_bytes, device_predicted; /* as the system sees the process */
    int64_t host_bytes;
    double eta_s;
};

struct eval_record {
    int64_t step;
    double epoch;
    struct evaluation result;
};

/* What a run is at, once it has begun; TRAIN_PHASE_PAUSE: it waits between two steps. */
enum train_phase {
    TRAIN_PHASE_STEPS,
    TRAIN_PHASE_EVAL,
    TRAIN_PHASE_SAMPLE,
    TRAIN_PHASE_SAVE,
    TRAIN_PHASE_PAUSE
};

/* Called between steps, in the order things happen; any may be NULL. */
struct train_observer {
    void *user;
    enum status (*on_step)(void *user, const struct step_record *r);
    enum status (*on_eval)(void *user, const struct eval_record *r);
    enum status (*on_sample)(void *user, const struct sample_record *r);
    enum status (*on_save)(void *user, int64_t step, const char *path, double seconds);
    enum status (*on_budget)(void *user, const struct budget_record *r);
    enum status (*on_trials)(void *user, const struct trials_record *r);
    enum status (*on_jump)(void *user, const struct jump_record *r);
    enum status (*on_control)(void *user, const struct control_record *r);
    enum status (*on_phase)(void *user, enum train_phase phase, int64_t step);
};

enum { KEPT_STEPS = 1 << 16 };

/* What predictive phases came to, those of before a resume included. */
struct phase_totals {
    bool has_phases;
    int64_t n_accepted, n_rejected, n_withheld, n_undone; /* jumps */
    double n_jumped;                                      /* steps that the accepted were worth */
    double seconds, share; /* of this call: snapshots, jumps and probes; of its time */
};

/* What predicted gradients came to, those of before a resume included. */
struct control_totals {
    bool has_control;
    int64_t n_measured, n_paid; /* measurements, and those that found that it pays */
    int64_t n_predicted;        /* steps */
    double variance_ratio;      /* mean of the measurements: of a step, beside a plain one */
    double cost_ratio;          /* in FLOPs of the passes */
    double time_ratio;          /* of steps of this call, measured; 0: not of both kinds */
    double seconds, share;      /* of this call: measuring; of its time */
};

struct train_result {
    int64_t n_steps;      /* run in this call */
    int64_t last_step;    /* number of the last one */
    int64_t n_kept;       /* steps of which loss and time are kept: the last KEPT_STEPS at most */
    double *losses;       /* [n_kept]; freed with train_result_release */
    double *step_seconds; /* likewise */
    int64_t n_skipped;    /* of these, because scaled gradients overflowed */
    int64_t n_unlabelled; /* of these, because nothing in them was a label */
    double loss_scale;    /* after the last step; 0: the loss is not scaled */
    double median_step_s;
    double units_per_s, samples_per_s, mfu;
    int64_t arena_bytes, host_bytes, device_bytes; /* measured */
    int64_t resident_bytes; /* of the host's memory: the most that the process ever held */
    int64_t disk_bytes;     /* of the file of the disk tier */
    double disk_read_rate, disk_write_rate; /* bytes per second, measured; 0: none */
    double disk_busy;                       /* share of the steps' time */
    struct phase_totals phases;
    struct control_totals control;
    char *last_checkpoint;    /* NULL: none saved */
    int signal;               /* that stopped it; 0: none */
    char *profile;            /* the table of the profile; NULL: none */
    struct instr_times times; /* of the profile; NULL in it: none */
};
void train_result_release(struct train_result *r);
/* Memory that a checkpoint of a run takes while it is written, its tensors aside. */
int64_t train_state_bytes(const struct config *cfg);
/* Memory that the result of a run takes at most. */
int64_t train_result_bytes(const struct config *cfg);

struct train_options {
    struct train_observer *observers;
    size_t n_observers;
    volatile sig_atomic_t *stop; /* set to a signal number to finish the step, save and return */
    const struct profile_options *profile; /* NULL: none is wanted */
};

/* The device counts steps in 32 bits. */
#define TRAIN_MOST_STEPS ((int64_t)INT32_MAX - 1)

/* *n_steps = how many optimizer steps the config asks for over the session's data. ERR_CONFIG when
 * there are more than TRAIN_MOST_STEPS. */
enum status train_total_steps(const struct session *s, int64_t *n_steps) MUST_CHECK;

/* Runs from where `start` (confirmed) says to the end. Returns ERR_INTERRUPTED,
 * ERR_TERMINATED or ERR_HANGUP after saving when a signal stopped it. The result is filled in every
 * case. */
enum status train_run(struct session *s, const struct run_start *start,
                      const struct train_options *o, struct train_result *result) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
