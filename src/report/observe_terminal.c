/* observe_terminal.c: a run as people watch it, on stderr.
 *
 *     step 120/1500  loss 1.2345  gnorm 0.87  lr 1.9e-04  4,812 tok/s  MFU 41%  mem 2.31G
 *     proc 2.45G  ETA 1h12m                                                  (one line)
 *
 * The loss is the mean since the line before, with "(no labels)" where the step had none. mem is
 * the arena: its high-water mark so far, against its predicted size where they differ; proc is the
 * whole process as the system sees it. With loss scaling "scale 65536" follows MFU, and "(skipped)"
 * where the step overflowed and changed nothing. A line never wraps: on a narrow terminal it has
 * fewer fields. metrics.jsonl has all of them.
 */
#include <string.h>

#include "base/fields.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/machine.h"
#include "report/observe.h"

enum { LINE_COLUMNS = 110, BAR_LEAST = 8, BAR_MOST = 28 };

/* One unit for all numbers of a line, so that they compare at a glance. */
static double unit_of(int64_t n_bytes, char *letter)
{
    bool gib = n_bytes >= (int64_t)1 << 30;
    *letter = gib ? 'G' : 'M';
    return gib ? 1024.0 * 1024.0 * 1024.0 : 1024.0 * 1024.0;
}

static void add_memory(struct fields *f, const struct step_record *r)
{
    char letter;
    double unit = unit_of(r->device_predicted, &letter);
    if (r->arena_bytes == r->arena_predicted)
        fields_add(f, 7, "mem %.2f%c", (double)r->arena_bytes / unit, letter);
    else
        fields_add(f, 7, "mem %.2f/%.2f%c", (double)r->arena_bytes / unit,
                   (double)r->arena_predicted / unit, letter);
    fields_add(f, 8, "proc %.2f%c", (double)r->device_bytes / unit, letter);
}

void observe_step_text(struct str *out, const struct step_record *r, int n_columns)
{
    char rate[BYTES_TEXT], time[BYTES_TEXT], eta[BYTES_TEXT];
    struct fields f = {0};
    fields_add(&f, 1, "step %lld/%lld", (long long)r->step, (long long)r->n_steps);
    fields_add(&f, 12, "%.1f%%", 100.0 * (double)r->step / (double)r->n_steps);
    fields_add(&f, 2, "loss %.4f%s", r->loss, r->n_units == 0 ? " (no labels)" : "");
    fields_add(&f, 6, "gnorm %.2f", r->grad_norm);
    fields_add(&f, 5, "lr %.1e", r->lr);
    fields_add(&f, 3, "%s %s", format_rate(rate, r->units_per_s), r->unit->rate);
    fields_add(&f, 9, "MFU %.0f%%", 100.0 * r->mfu);
    if (r->loss_scale > 0)
        fields_add(&f, r->skipped ? 2 : 10, "scale %g%s", r->loss_scale,
                   r->skipped ? " (skipped)" : "");
    if (r->phase)
        fields_add(&f, 10, "%s", r->phase);
    add_memory(&f, r);
    fields_add(&f, 11, "%s", format_duration(time, r->seconds));
    fields_add(&f, 4, "ETA %s", format_duration(eta, r->eta_s));
    fields_fit(&f, n_columns, out);
}

void observe_bar_text(struct str *out, const struct step_record *r, int n_columns)
{
    char rate[BYTES_TEXT], eta[BYTES_TEXT];
    double share = (double)r->step / (double)r->n_steps;
    struct fields f = {0};
    struct str text = {0};
    fields_add(&f, 1, "%lld/%lld", (long long)r->step, (long long)r->n_steps);
    fields_add(&f, 5, "%.1f%%", 100.0 * share);
    fields_add(&f, 2, "loss %.4f", r->loss);
    fields_add(&f, 4, "%s %s", format_rate(rate, r->units_per_s), r->unit->rate);
    fields_add(&f, 3, "ETA %s", format_duration(eta, r->eta_s));
    fields_fit(&f, n_columns, &text);
    int room = n_columns - (int)text.n - (int)strlen("[] ");
    int width = MIN(room, BAR_MOST), filled = (int)(share * width);
    if (width >= BAR_LEAST) {
        str_add(out, "[");
        for (int i = 0; i < width; i++)
            str_add(out, i < filled ? "=" : i == filled ? ">" : " ");
        str_add(out, "] ");
    }
    str_add(out, str_text(&text));
    out->failed |= text.failed;
    str_release(&text);
}

/* The last column stays free: some terminals go to the next line after it. */
static int line_columns(void)
{
    int n = log_columns();
    return n > 0 ? MAX(n - 1, 1) : LINE_COLUMNS;
}

static enum status show_bar(struct observe_terminal *o, const struct step_record *r)
{
    double now = now_s();
    struct str text = {0};
    if (!log_is_terminal() || now - o->bar_shown < 0.1)
        return OK;
    o->bar_shown = now;
    observe_bar_text(&text, r, line_columns());
    enum status status = str_status(&text);
    if (status == OK)
        log_progress("%s", text.text);
    str_release(&text);
    return status;
}

/* Takes over the line. */
static enum status show_json(json_t *line)
{
    struct str text = {0};
    enum status status = json_text_take(line, JSON_COMPACT, &text);
    if (status == OK)
        log_info("%s", text.text);
    str_release(&text);
    return status;
}

static enum status on_step(void *user, const struct step_record *r)
{
    struct observe_terminal *o = user;
    if (o->config->log_format == CONFIG_LOG_QUIET)
        return OK;
    bool due = observe_is_due(o->config, r);
    loss_mean_add(&o->loss, r->loss);
    if (o->config->log_format == CONFIG_LOG_JSON)
        return due ? show_json(line_step(r)) : OK;
    if (due) {
        struct str text = {0};
        struct step_record shown = *r;
        shown.loss = loss_mean_take(&o->loss);
        observe_step_text(&text, &shown, line_columns());
        enum status status = str_status(&text);
        if (status == OK)
            log_info("%s", text.text);
        str_release(&text);
        TRY(status);
    }
    return show_bar(o, r);
}

static enum status on_eval(void *user, const struct eval_record *r)
{
    const struct observe_terminal *o = user;
    if (o->config->log_format == CONFIG_LOG_QUIET)
        return OK;
    if (o->config->log_format == CONFIG_LOG_JSON)
        return show_json(line_eval(r));
    char count[BYTES_TEXT], time[BYTES_TEXT];
    struct str values = {0};
    for (int i = 0; i < r->result.n_values; i++) {
        if (r->result.values[i].is_logged)
            str_addf(&values, "  %s %.4g", r->result.values[i].name, r->result.values[i].value);
    }
    log_info("eval  step %lld  loss %.4f%s over %s %s (%lld batches, %s)", (long long)r->step,
             r->result.loss, str_text(&values), format_count(count, r->result.n_units),
             r->result.unit->many, (long long)r->result.n_batches,
             format_duration(time, r->result.seconds));
    str_release(&values);
    return OK;
}

/* The prompt and what follows it in one line, however many they have. */
static enum status on_sample(void *user, const struct sample_record *r)
{
    const struct observe_terminal *o = user;
    if (o->config->log_format == CONFIG_LOG_QUIET)
        return OK;
    if (o->config->log_format == CONFIG_LOG_JSON)
        return show_json(line_sample(r));
    struct str text = {0};
    str_add(&text, r->prompt);
    str_add(&text, "|");
    str_add(&text, r->text);
    enum status status = str_status(&text);
    for (size_t i = 0; i < text.n; i++) {
        if ((unsigned char)text.text[i] < ' ' || text.text[i] == 0x7f)
            text.text[i] = ' '; /* nor does it reach the terminal as anything but text */
    }
    if (status == OK)
        log_info("sample step %lld  %s%s", (long long)r->step, text.text, r->ended ? " (end)" : "");
    str_release(&text);
    return status;
}

static enum status on_save(void *user, int64_t step, const char *path, double seconds)
{
    const struct observe_terminal *o = user;
    if (o->config->log_format == CONFIG_LOG_QUIET)
        return OK;
    if (o->config->log_format == CONFIG_LOG_JSON)
        return show_json(line_save(step, path, seconds));
    char time[BYTES_TEXT];
    log_info("saved %s (%s)", path, format_duration(time, seconds));
    return OK;
}

static enum status on_budget(void *user, const struct budget_record *r)
{
    const struct observe_terminal *o = user;
    if (o->config->log_format == CONFIG_LOG_QUIET)
        return OK;
    if (o->config->log_format == CONFIG_LOG_JSON)
        return show_json(line_budget(r));
    const char *why = r->why ? r->why : "", *colon = r->why ? ": " : "";
    if (r->changed)
        log_info("budget step %lld  %s%s%s: %s", (long long)r->step, why, colon, r->wanted,
                 r->text);
    else
        log_warn("step %lld: %s%s%s is refused, and the run goes on as it was: %s",
                 (long long)r->step, why, colon, r->wanted, r->text);
    return OK;
}

void observe_trials_text(struct str *out, const struct trials_record *r)
{
    str_addf(out, "plans step %lld  goes on with plan %d:", (long long)r->step, r->rank);
    for (int i = 0; i < r->n_tried; i++) {
        const struct plan_trial *t = &r->tried[i];
        str_addf(out, "%s plan %d took %.4g ms (%.4g planned)", i > 0 ? "," : "", t->rank,
                 1e3 * t->measured_s, 1e3 * t->planned_s);
    }
}

static enum status on_trials(void *user, const struct trials_record *r)
{
    const struct observe_terminal *o = user;
    struct str text = {0};
    if (o->config->log_format == CONFIG_LOG_QUIET)
        return OK;
    if (o->config->log_format == CONFIG_LOG_JSON)
        return show_json(line_trials(r));
    if (!r->is_settled)
        return OK;
    observe_trials_text(&text, r);
    enum status status = str_status(&text);
    if (status == OK)
        log_info("%s", str_text(&text));
    str_release(&text);
    return status;
}

static enum status on_jump(void *user, const struct jump_record *r)
{
    const struct observe_terminal *o = user;
    char time[BYTES_TEXT];
    if (o->config->log_format == CONFIG_LOG_QUIET)
        return OK;
    if (o->config->log_format == CONFIG_LOG_JSON)
        return show_json(line_jump(r));
    if (r->outcome == JUMP_WITHHELD)
        log_info("jump  step %lld  withheld: the losses give warning", (long long)r->step);
    else if (r->outcome == JUMP_UNDONE)
        log_warn("step %lld: the losses after the jump are critical: it is undone",
                 (long long)r->step);
    else
        log_info("jump  step %lld  %s by %g of %g steps %s: probe loss %.4f, %+.4f (standard error "
                 "%.4f, %s)",
                 (long long)r->step, r->method, r->length, r->n_steps,
                 jump_outcome_name(r->outcome), r->probe_loss, r->difference, r->error,
                 format_duration(time, r->seconds));
    return OK;
}

static enum status on_control(void *user, const struct control_record *r)
{
    const struct observe_terminal *o = user;
    char time[BYTES_TEXT];
    if (o->config->log_format == CONFIG_LOG_QUIET)
        return OK;
    if (o->config->log_format == CONFIG_LOG_JSON)
        return show_json(line_control(r));
    log_info("control step %lld  gradients are %s: correlation %.3f, variance x%.3g at cost x%.3g "
             "(%s)",
             (long long)r->step, r->predicts ? "predicted" : "made, predicting does not pay",
             r->correlation, r->variance_ratio, r->cost_ratio, format_duration(time, r->seconds));
    return OK;
}

struct train_observer observe_terminal(struct observe_terminal *o, const struct config *cfg)
{
    *o = (struct observe_terminal){.config = cfg};
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
