/* loop.h: what the parts of the training loop share; nothing outside of them includes it.
 *
 *     trainer.c         the loop: a step, what is due after it, the next one
 *     loop_record.c     what a step was, in numbers, and whether they are ones to go on with
 *     loop_tell.c       the observers, told
 *     loop_requests.c   what is asked of a run while it goes on: files in its folder, other budgets
 *     loop_summary.c    what the run came to
 */
#ifndef SNUG_TRAIN_LOOP_H
#define SNUG_TRAIN_LOOP_H

#include "train/plan_trials_run.h"
#include "train/resume.h"
#include "train/step.h"
#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct loop {
    struct session *s;
    const struct run_start *start;
    const struct train_options *o;
    struct train_result *result;
    struct train_state state;
    struct schedule schedule;
    struct profile profile;
    int64_t n_steps;
    struct stepper stepper;
    struct elastic elastic;
    struct plan_trials_run trials;
    int64_t n_steps_before_plan; /* of this call, until the plan that runs took over */
    bool is_disturbed; /* since the last step other things ran than what is between any two */
    double typical_s;  /* of the last step; 0: it was disturbed, or had nothing to do */
    struct metric_value losses[MODEL_MOST_LOSSES];
    struct {
        int64_t n;
        double seconds;
    } kinds[2];      /* steps of this call: plain ones, and those with predicted gradients */
    int64_t n_stuck; /* steps in a row that were skipped although the loss scale is at its least */
    double started;
    double paused_s;   /* of the time since then: it waited */
    double peak_flops; /* what MFU is measured against */
    bool peak_doubted; /* and that it was measured anew is said */
};

/* ---- trainer.c ---- */

double loop_epoch(const struct loop *l);
/* A checkpoint of this step, unless there is one. */
enum status loop_save(struct loop *l) MUST_CHECK;

/* ---- loop_record.c ---- */

struct step_record loop_record_step(struct loop *l, double lr, double seconds);
/* ERR_NUMERIC: no step can follow this one. */
enum status loop_check_numbers(struct loop *l, const struct step_record *r) MUST_CHECK;
void loop_measure_memory(const struct loop *l);
double loop_mfu(struct loop *l, double seconds);

/* ---- loop_tell.c ---- */

enum status tell_step(const struct loop *l, const struct step_record *r) MUST_CHECK;
enum status tell_phase(const struct loop *l, enum train_phase phase) MUST_CHECK;
enum status tell_eval(const struct loop *l, const struct eval_record *r) MUST_CHECK;
enum status tell_sample(const struct loop *l, const struct sample_record *r) MUST_CHECK;
enum status tell_save(const struct loop *l, const char *path, double seconds) MUST_CHECK;
enum status tell_budget(const struct loop *l, const struct budget_record *r) MUST_CHECK;
enum status tell_trials(const struct loop *l, const struct trials_record *r) MUST_CHECK;
enum status tell_jump(const struct loop *l, const struct jump_record *r) MUST_CHECK;
enum status tell_control(const struct loop *l, const struct control_record *r) MUST_CHECK;

/* ---- loop_requests.c ---- */

/* Whether `touch output_dir/NAME` asked for it; SAVE and STOP are taken once. */
bool loop_requested(const struct loop *l, const char *name);
/* While output_dir/PAUSE is there the run waits, unless it is told to stop or its time is over. */
enum status loop_wait_while_paused(struct loop *l) MUST_CHECK;
/* What was asked for, what others have left, which plan is the fastest, what may be planned for
 * beforehand. */
enum status loop_adapt(struct loop *l) MUST_CHECK;

/* ---- loop_summary.c ---- */

void loop_summarise(struct loop *l);

#ifdef __cplusplus
}
#endif
#endif
