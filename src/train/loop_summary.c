#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/machine.h"
#include "device/beside.h"
#include "device/disk/disk.h"
#include "train/loop.h"

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The kept steps lie in a ring: the one after the last is the first. */
static void unroll(const struct train_result *r, double *ring, double *scratch)
{
    size_t n = (size_t)r->n_kept, first = (size_t)(r->n_steps % r->n_kept);
    memcpy(scratch, ring, n * sizeof(*ring));
    for (size_t i = 0; i < n; i++)
        ring[i] = scratch[(first + i) % n];
}

static void summarise_phases(struct loop *l)
{
    const struct phase_state *p = &l->state.phases;
    double seconds = l->result->phases.seconds, all = now_s() - l->started - l->paused_s;
    l->result->phases = (struct phase_totals){.has_phases = p->kind != PHASE_NONE,
                                              .n_accepted = p->n_accepted,
                                              .n_rejected = p->n_rejected,
                                              .n_withheld = p->n_withheld,
                                              .n_undone = p->n_undone,
                                              .n_jumped = p->n_jumped,
                                              .seconds = seconds,
                                              .share = seconds > 0 ? seconds / all : 0};
}

static double mean_seconds(const struct loop *l, bool predicted)
{
    return l->kinds[predicted].seconds / (double)MAX(l->kinds[predicted].n, (int64_t)1);
}

static void summarise_control(struct loop *l)
{
    const struct control_state *c = &l->state.control;
    struct control_totals *to = &l->result->control;
    double all = now_s() - l->started - l->paused_s;
    bool both = l->kinds[false].n > 0 && l->kinds[true].n > 0;
    to->has_control = c->is_on;
    to->n_measured = c->n_measured;
    to->n_paid = c->n_paid;
    to->n_predicted = c->n_predicted;
    to->variance_ratio = c->variance_ratios / (double)MAX(c->n_measured, (int64_t)1);
    to->time_ratio = both ? mean_seconds(l, true) / mean_seconds(l, false) : 0;
    to->share = to->seconds > 0 ? to->seconds / all : 0;
}

/* What the disk did while the steps ran. */
static void summarise_disk(const struct loop *l)
{
    const struct engine *e = &l->s->engine;
    struct train_result *r = l->result;
    struct disk_traffic t = {0};
    double all = now_s() - l->started - l->paused_s;
    if (e->device->disk)
        disk_traffic(e->device->disk, &t);
    device_keep_disk(e->device, &t, e->cache_folder);
    r->disk_read_rate = t.read_s > 0 ? (double)t.n_read / t.read_s : 0;
    r->disk_write_rate = t.written_s > 0 ? (double)t.n_written / t.written_s : 0;
    r->disk_busy = MIN((t.read_s + t.written_s) / MAX(all, 1e-9), 1.0);
}

/* What the process held beside its arenas, but for what was planned of that. A peak that planning
 * reached says nothing of it. */
static void keep_beside(const struct loop *l)
{
    const struct engine *e = &l->s->engine;
    const struct forecast *f = &e->forecast;
    int64_t over = l->result->resident_bytes - f->resident_bytes;
    if (MIN(l->result->resident_bytes, f->resident_bytes) > f->before_bytes)
        beside_store(e->device, e->cache_folder, f->around_bytes + over);
}

/* Of the kept steps, those with the plan that ran last: what its prediction is held against. Where
 * it had none, all. */
static size_t first_of_plan(const struct loop *l)
{
    const struct train_result *r = l->result;
    int64_t n = MIN(r->n_steps - l->n_steps_before_plan, r->n_kept);
    return n > 0 ? (size_t)(r->n_kept - n) : 0;
}

/* The median of these steps, and what follows from it. */
static void summarise_times(struct loop *l)
{
    struct train_result *r = l->result;
    const struct config *cfg = l->s->config;
    double *sorted;
    r->n_kept = MIN(r->n_steps, (int64_t)KEPT_STEPS);
    if (r->n_kept == 0 || mem_try_array(&sorted, (size_t)r->n_kept, sizeof(*sorted)) != OK)
        return;
    unroll(r, r->losses, sorted);
    unroll(r, r->step_seconds, sorted);
    size_t first = first_of_plan(l), n = (size_t)r->n_kept - first;
    memcpy(sorted, r->step_seconds + first, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), compare_doubles);
    r->median_step_s = sorted[n / 2];
    mem_free(sorted);
    r->samples_per_s = (double)cfg->train_batch_size / r->median_step_s;
    r->units_per_s = (double)step_units(l->s) / r->median_step_s;
    bool predicted = l->kinds[true].n > l->kinds[false].n; /* then so is the median step */
    r->mfu = loop_mfu(l, predicted ? r->median_step_s / r->control.cost_ratio : r->median_step_s);
}

/* What a profile has found; where there is no memory left for it the run is no worse. */
static void take_profile(struct loop *l)
{
    struct str text = {0};
    if (l->profile.steps.n > 0 && profile_times(&l->profile, &l->result->times) != OK)
        log_warn("no memory is left for the times of the profile");
    profile_table(&l->profile, &text);
    if (text.n > 0 && !text.failed)
        l->result->profile = str_take(&text);
    str_release(&text);
}

void loop_summarise(struct loop *l)
{
    const struct train_result *r = l->result;
    if (r->n_unlabelled > 0)
        log_warn("%lld of %lld steps had no labels and updated nothing", (long long)r->n_unlabelled,
                 (long long)r->n_steps);
    summarise_times(l);
    summarise_phases(l);
    summarise_control(l);
    summarise_disk(l);
    keep_beside(l);
    if (l->o->profile)
        take_profile(l);
}

/* ---- the result ------------------------------------------------------------------------------ */

int64_t train_state_bytes(const struct config *cfg)
{
    int64_t n_steps = cfg->max_steps > 0 ? cfg->max_steps : HISTORY_MOST;
    return history_json_bytes(2 * n_steps); /* each may have an evaluation */
}

int64_t train_result_bytes(const struct config *cfg)
{
    int64_t n_steps = cfg->max_steps > 0 ? MIN(cfg->max_steps, (int64_t)KEPT_STEPS) : KEPT_STEPS;
    /* losses, times, times sorted; what is noted for checkpoints */
    return 3 * n_steps * (int64_t)sizeof(double) + history_bytes();
}

void train_result_release(struct train_result *r)
{
    mem_free(r->losses);
    mem_free(r->step_seconds);
    mem_free(r->last_checkpoint);
    mem_free(r->profile);
    instr_times_release(&r->times);
    *r = (struct train_result){0};
}
