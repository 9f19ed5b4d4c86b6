/* observe_metrics.c: output_dir/metrics.jsonl. */
#include <stdio.h>

#include "base/file.h"
#include "report/observe.h"

/* Takes over the object. */
static enum status write_line(struct observe_metrics *o, json_t *line)
{
    if (!line)
        return FAIL(ERR_MEMORY, "%s: out of memory for a line", o->file.path);
    enum status status = metrics_write(&o->file, line);
    json_decref(line);
    return status;
}

enum status observe_metrics_open(struct observe_metrics *o, const struct config *cfg,
                                 const char *run, const struct forecast *f,
                                 const struct task_unit *unit)
{
    struct str path = {0};
    str_addf(&path, "%s/metrics.jsonl", cfg->output_dir);
    enum status status = str_status(&path);
    *o = (struct observe_metrics){.file.file.fd = -1, .unit = unit};
    if (status == OK)
        status = file_make_folders(cfg->output_dir);
    if (status == OK)
        status = metrics_open(&o->file, path.text);
    str_release(&path);
    TRY(status);
    TRY(write_line(o, line_config(cfg, run)));
    return write_line(o, line_plan(f));
}

static enum status on_step(void *user, const struct step_record *r)
{
    return write_line(user, line_step(r));
}

static enum status on_eval(void *user, const struct eval_record *r)
{
    return write_line(user, line_eval(r));
}

static enum status on_sample(void *user, const struct sample_record *r)
{
    return write_line(user, line_sample(r));
}

static enum status on_save(void *user, int64_t step, const char *path, double seconds)
{
    return write_line(user, line_save(step, path, seconds));
}

static enum status on_budget(void *user, const struct budget_record *r)
{
    return write_line(user, line_budget(r));
}

static enum status on_trials(void *user, const struct trials_record *r)
{
    return write_line(user, line_trials(r));
}

static enum status on_jump(void *user, const struct jump_record *r)
{
    return write_line(user, line_jump(r));
}

static enum status on_control(void *user, const struct control_record *r)
{
    return write_line(user, line_control(r));
}

struct train_observer observe_metrics(struct observe_metrics *o)
{
    return (struct train_observer){.user = o,
                                   .on_step = on_step,
                                   .on_eval = on_eval,
                                   .on_sample = on_sample,
                                   .on_save = on_save,
                                   .on_budget = on_budget,
                                   .on_trials = on_trials,
                                   .on_jump = on_jump,
                                   .on_control = on_control};
}

enum status observe_metrics_end(struct observe_metrics *o, const struct train_result *r,
                                enum status how)
{
    if (o->file.file.fd < 0)
        return OK;
    TRY(write_line(o, line_end(r, o->unit, how)));
    return metrics_sync(&o->file);
}

void observe_metrics_close(struct observe_metrics *o)
{
    (void)!metrics_close(&o->file); /* synced at the end, if it could be */
}
