/* observe_terminal.c: a run as people watch it, on stderr.
 *
 *     step 120/1500  8.0%  loss 1.2345  gnorm 0.87  lr 1.9e-04  4,812 tok/s  MFU 41%
 *     mem 2.31/2.31G  proc 2.45G (pred 2.44)  412 ms  ETA 1h12m              (one line)
 *
 * The loss is the mean since the line before. mem is the arena: its high-water mark so far against
 * its predicted size; proc is the whole process as the system sees it, against its prediction. With
 * loss scaling "scale 65536" follows MFU, and "(skipped)" where the step overflowed and changed
 * nothing; "(no labels)" follows the loss where the step had none.
 */
#include <string.h>

#include "base/log.h"
#include "base/machine.h"
#include "train/json_text.h"
#include "train/observe.h"

enum { BAR_WIDTH = 28 };

/* One unit for all numbers of a line, so that they compare at a glance. */
static double unit_of(int64_t n_bytes, char *letter)
{
    bool gib = n_bytes >= (int64_t)1 << 30;
    *letter = gib ? 'G' : 'M';
    return gib ? 1024.0 * 1024.0 * 1024.0 : 1024.0 * 1024.0;
}

void observe_step_text(struct str *out, const struct step_record *r)
{
    char rate[BYTES_TEXT], time[BYTES_TEXT], eta[BYTES_TEXT], letter;
    double unit = unit_of(r->device_predicted, &letter);
    str_addf(out, "step %lld/%lld  %.1f%%  loss %.4f%s  gnorm %.2f  lr %.1e  %s tok/s  MFU %.0f%%",
             (long long)r->step, (long long)r->n_steps,
             100.0 * (double)r->step / (double)r->n_steps, r->loss,
             r->n_tokens == 0 ? " (no labels)" : "", r->grad_norm, r->lr,
             format_count(rate, (int64_t)r->tokens_per_s), 100.0 * r->mfu);
    if (r->loss_scale > 0)
        str_addf(out, "  scale %g%s", r->loss_scale, r->skipped ? " (skipped)" : "");
    str_addf(out, "  mem %.2f/%.2f%c  proc %.2f%c (pred %.2f)", (double)r->arena_bytes / unit,
             (double)r->arena_predicted / unit, letter, (double)r->device_bytes / unit, letter,
             (double)r->device_predicted / unit);
    str_addf(out, "  %s  ETA %s", format_duration(time, r->seconds),
             format_duration(eta, r->eta_s));
}

static void show_bar(struct observe_terminal *o, const struct step_record *r)
{
    double now = now_s();
    if (!log_is_terminal() || now - o->bar_shown < 0.1)
        return;
    o->bar_shown = now;
    char bar[BAR_WIDTH + 1], eta[BYTES_TEXT];
    double share = (double)r->step / (double)r->n_steps;
    int filled = (int)(share * BAR_WIDTH);
    memset(bar, ' ', BAR_WIDTH);
    memset(bar, '=', (size_t)MIN(filled, BAR_WIDTH));
    if (filled < BAR_WIDTH)
        bar[filled] = '>';
    bar[BAR_WIDTH] = '\0';
    log_progress("[%s] %lld/%lld  %.1f%%  loss %.4f  %.0f tok/s  ETA %s", bar, (long long)r->step,
                 (long long)r->n_steps, 100.0 * share, r->loss, r->tokens_per_s,
                 format_duration(eta, r->eta_s));
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
    bool due = observe_is_due(o->config->logging_steps, r);
    loss_mean_add(&o->loss, r->loss);
    if (o->config->log_format == CONFIG_LOG_JSON)
        return due ? show_json(line_step(r)) : OK;
    if (due) {
        struct str text = {0};
        struct step_record shown = *r;
        shown.loss = loss_mean_take(&o->loss);
        observe_step_text(&text, &shown);
        enum status status = str_status(&text);
        if (status == OK)
            log_info("%s", text.text);
        str_release(&text);
        TRY(status);
    }
    show_bar(o, r);
    return OK;
}

static enum status on_eval(void *user, const struct eval_record *r)
{
    const struct observe_terminal *o = user;
    if (o->config->log_format == CONFIG_LOG_QUIET)
        return OK;
    if (o->config->log_format == CONFIG_LOG_JSON)
        return show_json(line_eval(r));
    char tokens[BYTES_TEXT], time[BYTES_TEXT];
    log_info("eval  step %lld  loss %.4f over %s tokens (%lld batches, %s)", (long long)r->step,
             r->result.loss, format_count(tokens, r->result.n_tokens),
             (long long)r->result.n_batches, format_duration(time, r->result.seconds));
    return OK;
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

struct train_observer observe_terminal(struct observe_terminal *o, const struct config *cfg)
{
    *o = (struct observe_terminal){.config = cfg};
    return (struct train_observer){
        .user = o, .on_step = on_step, .on_eval = on_eval, .on_save = on_save};
}
