/* picture.c: a plan as a picture for documents. */
#include <stdio.h>

#include "api/api_internal.h"
#include "base/alloc.h"

enum { COLUMNS = 792 }; /* a pixel each */

struct drawing {
    const struct snug_run *run;
    const struct stage *stage;
    struct timeline timelines[TIER_COUNT];
    struct lanes lanes;
    double *clock;
    struct timeline_picture picture;
};

static enum status find_times(struct drawing *d)
{
    const struct program *p = d->stage->program;
    const struct device *device = d->run->session.engine.device;
    if (!d->stage->prediction.seconds)
        return OK;
    TRY(mem_try_array(&d->clock, p->instrs.n + 1, sizeof(*d->clock)));
    TRY(predict_clock(&d->stage->prediction, p, device, d->clock));
    TRY(lanes_init(&d->lanes, &d->stage->prediction, p, device, d->stage->n_micro, COLUMNS));
    d->picture.seconds = d->lanes.seconds;
    d->picture.lanes = &d->lanes;
    return OK;
}

/* Every tier that something is in. */
static enum status find_memory(struct drawing *d)
{
    const struct engine *e = &d->run->session.engine;
    for (int t = 0; t < TIER_COUNT; t++) {
        struct timeline *line = &d->timelines[t];
        TRY(timeline_init(line, &(struct timeline_view){.program = d->stage->program,
                                                        .storage = &e->work.storage,
                                                        .tier = (enum tier)t,
                                                        .n_columns = COLUMNS,
                                                        .clock = d->clock,
                                                        .n_micro = d->stage->n_micro}));
        d->picture.tiers[t] = line->peak.total > 0 ? line : NULL;
        d->picture.budgets[t] = e->forecast.budget.n_bytes[t];
    }
    return OK;
}

static enum status draw(struct drawing *d, struct str *out)
{
    struct snug_forecast f;
    char title[256], n[BYTES_TEXT], step[BYTES_TEXT], rate[BYTES_TEXT];
    TRY(find_times(d));
    TRY(find_memory(d));
    snug_run_forecast(d->run, &f);
    int at =
        snprintf(title, sizeof(title), "%s, %s parameters", f.model, format_count(n, f.n_params));
    if (f.step_s > 0)
        (void)snprintf(title + at, sizeof(title) - (size_t)at, ": %s per step, %s tokens/s",
                       format_duration(step, f.step_s), format_rate(rate, f.tokens_per_s));
    d->picture.title = title;
    return timeline_svg(&d->picture, out);
}

enum snug_status snug_run_timeline_svg(const struct snug_run *run, char **text)
{
    const struct session *s = &run->session;
    struct drawing d = {.run = run, .stage = s->train ? s->train : s->eval};
    struct str svg = {0};
    enum status status = draw(&d, &svg);
    for (int t = 0; t < TIER_COUNT; t++)
        timeline_release(&d.timelines[t]);
    lanes_release(&d.lanes);
    mem_free(d.clock);
    return hand_out(&svg, status, text);
}
