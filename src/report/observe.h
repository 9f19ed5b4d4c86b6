/* observe.h: what watches a training run: the terminal, metrics.jsonl, TensorBoard.
 *
 * Each is a struct train_observer over its own state. The trainer calls them between steps; the
 * owner tells metrics.jsonl how a run begins and ends, which the trainer does not know.
 *
 * metrics.jsonl has one object a line; "kind" is config, plan, step, eval, save, budget,
 * trials, jump, control or end, "t" the time in seconds since 1970. Every step is written, whatever
 * logging_steps says: when a run was killed and resumed, steps that were run twice stand there
 * twice, and the later line counts. The line of the config says the id of the run ("run"), the same
 * after a resume.
 */
#ifndef SNUG_REPORT_OBSERVE_H
#define SNUG_REPORT_OBSERVE_H

#include "report/metrics.h"
#include "report/tfevents.h"
#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- lines: the objects of metrics.jsonl, also shown by log_format: json --------------------- */

/* New references; NULL when out of memory. Numbers that are not finite become null. */
json_t *line_config(const struct config *cfg, const char *run);
json_t *line_plan(const struct forecast *f);
json_t *line_step(const struct step_record *r);
json_t *line_eval(const struct eval_record *r);
json_t *line_save(int64_t step, const char *path, double seconds);
json_t *line_budget(const struct budget_record *r);
json_t *line_trials(const struct trials_record *r);
json_t *line_sample(const struct sample_record *r);
json_t *line_jump(const struct jump_record *r);
json_t *line_control(const struct control_record *r);
json_t *line_end(const struct train_result *r, const struct task_unit *unit, enum status status);

/* ---- the loss between two lines -------------------------------------------------------------- */

/* People's lines and curves show the mean loss of the steps since the line before, as Hugging
 * Face's do; metrics.jsonl and the result have every step's own. Steps without a finite loss do not
 * count. */
struct loss_mean {
    double sum;
    int64_t n;
};
void loss_mean_add(struct loss_mean *m, double loss);
double loss_mean_take(struct loss_mean *m); /* and starts over; NAN: there was none */

/* ---- terminal -------------------------------------------------------------------------------- */

/* One line per logging step, evaluation and checkpoint through base/log.h; on a terminal a progress
 * bar in between. log_format decides: text, JSON lines, or nothing. */
struct observe_terminal {
    const struct config *config; /* borrowed */
    double bar_shown;            /* when, monotonic */
    struct loss_mean loss;
};
struct train_observer observe_terminal(struct observe_terminal *o, const struct config *cfg);
/* The log line of a step and the progress bar, in at most n_columns characters. */
void observe_step_text(struct str *out, const struct step_record *r, int n_columns);
void observe_bar_text(struct str *out, const struct step_record *r, int n_columns);
/* That of plans that were tried, once it is settled which goes on. */
void observe_trials_text(struct str *out, const struct trials_record *r);

/* ---- metrics.jsonl --------------------------------------------------------------------------- */

struct observe_metrics {
    struct metrics file;
    const struct task_unit *unit; /* what the task counts in */
};
/* Opens output_dir/metrics.jsonl (the folder is made) and writes config and plan; `run` is the id
 * of the run. */
enum status observe_metrics_open(struct observe_metrics *o, const struct config *cfg,
                                 const char *run, const struct forecast *f,
                                 const struct task_unit *unit) MUST_CHECK;
struct train_observer observe_metrics(struct observe_metrics *o);
/* Writes the end of the run. Keeps the thread's error message. */
enum status observe_metrics_end(struct observe_metrics *o, const struct train_result *r,
                                enum status how) MUST_CHECK;
void observe_metrics_close(struct observe_metrics *o);

/* ---- TensorBoard ----------------------------------------------------------------------------- */

struct observe_tensorboard {
    struct tfevents file;
    const struct config *config; /* borrowed */
    struct loss_mean loss;
};
/* A new events file in `folder`. */
enum status observe_tensorboard_open(struct observe_tensorboard *o, const struct config *cfg,
                                     const char *folder) MUST_CHECK;
struct train_observer observe_tensorboard(struct observe_tensorboard *o);
void observe_tensorboard_close(struct observe_tensorboard *o);

/* True for steps that logging_strategy, logging_steps and logging_first_step want logged. */
bool observe_is_due(const struct config *cfg, const struct step_record *r);

/* Seconds since 1970. */
double observe_wall_time(void);

#ifdef __cplusplus
}
#endif
#endif
