#include "watch/view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "program/timeline.h"

struct box {
    int row, column, height, width;
};

static enum ink ink_of(enum health h)
{
    return h >= HEALTH_CRITICAL ? INK_BAD : h == HEALTH_WARNING ? INK_WARN : INK_GOOD;
}

static void title(struct canvas *c, struct box b, const char *text)
{
    int at = canvas_textf(c, b.row, b.column, b.width, INK_BOLD, "%s ", text);
    for (; at < b.column + b.width; at++)
        canvas_put(c, b.row, at, INK_DIM, "─");
}

/* ---- the head: four rows --------------------------------------------------------------------- */

static void draw_progress(struct canvas *c, const struct watch *w, int row)
{
    const struct live_now *n = &w->live.now;
    char eta[BYTES_TEXT], right[128];
    double share = n->n_steps > 0 ? (double)n->step / (double)n->n_steps : 0;
    format_duration(eta, n->eta_s);
    (void)snprintf(right, sizeof(right), " %5.1f%%  step %lld of %lld%s%s", 100 * share,
                   (long long)n->step, (long long)n->n_steps, n->eta_s > 0 ? "  ETA " : "",
                   n->eta_s > 0 ? eta : "");
    int width = c->n_columns - 2 - (int)strlen(right);
    canvas_bar(c, row, 1, MAX(width, 4), share, INK_CURVE);
    canvas_text(c, row, 1 + MAX(width, 4), (int)strlen(right), INK_PLAIN, right);
}

static void draw_figures(struct canvas *c, const struct watch *w, int row)
{
    const struct live_now *n = &w->live.now;
    const struct live_run *r = &w->live.run;
    char rate[BYTES_TEXT], predicted[BYTES_TEXT];
    int at = canvas_textf(c, row, 1, 40, INK_PLAIN, "loss ");
    at = canvas_textf(c, row, at, 20, INK_BOLD, "%.4f", n->loss);
    if (n->eval_step > 0)
        at = canvas_textf(c, row, at, 24, INK_DIM, " (eval %.4f)", n->eval_loss);
    at = canvas_textf(c, row, at, 40, INK_PLAIN, "  lr %.3g", n->lr);
    at = canvas_textf(c, row, at, 40, INK_BOLD, "  %s %s", format_rate(rate, n->units_per_s),
                      r->rate);
    if (r->units_per_s > 0)
        at = canvas_textf(c, row, at, 40, INK_DIM, " (predicted %s)",
                          format_rate(predicted, r->units_per_s));
    at = canvas_textf(c, row, at, 40, INK_PLAIN, "  MFU %.0f%%", 100 * n->mfu);
    char rest[64];
    (void)snprintf(rest, sizeof(rest), "  norm %.3g  epoch %.2f", n->grad_norm, n->epoch);
    if (at + (int)strlen(rest) < c->n_columns) /* all of it or nothing */
        (void)canvas_text(c, row, at, 64, INK_DIM, rest);
}

static void draw_head(struct canvas *c, const struct watch *w)
{
    const struct live_run *r = &w->live.run;
    char params[BYTES_TEXT], right[64];
    bool judged = w->is_running;
    (void)snprintf(right, sizeof(right), "%s", judged ? health_name(w->health) : "");
    const char *state = watch_state(w);
    int n_right = (int)(strlen(state) + strlen(right)) + (judged ? 3 : 0);
    int at = canvas_text(c, 0, 1, c->n_columns, INK_BOLD, "snug ");
    (void)canvas_text(c, 0, at, c->n_columns - at - n_right - 2, INK_PLAIN, w->folder);
    at = MAX(c->n_columns - 1 - n_right, 0);
    bool bad = strcmp(state, "gone") == 0 || (w->live.now.exit_code && strcmp(state, "ended") == 0);
    at = canvas_text(c, 0, at, n_right, bad ? INK_BAD : INK_BOLD, state);
    if (judged)
        (void)canvas_textf(c, 0, at, n_right, ink_of(w->health), " · %s", right);
    (void)canvas_textf(c, 1, 1, c->n_columns - 2, INK_DIM, "%s, %s parameters, %s; %s", r->model,
                       format_count(params, r->n_params), r->precision, r->device);
    draw_progress(c, w, 2);
    draw_figures(c, w, 3);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

/* The points of column k of n: steps are spread evenly. */
static bool mean_of(const struct curve *c, int k, int n, bool of_rate, double *out)
{
    double sum = 0, count = 0;
    int64_t first = c->points[0].first, span = c->points[c->n - 1].last - first + 1;
    int64_t from = first + span * k / n, to = MAX(first + span * (k + 1) / n, from + 1);
    for (int i = 0; i < c->n; i++) {
        const struct curve_point *p = &c->points[i];
        if (p->last < from || p->first >= to)
            continue;
        sum += of_rate ? p->rate : p->sum;
        count += of_rate ? p->n_rates : (double)p->n;
    }
    *out = count > 0 ? sum / count : 0;
    return count > 0;
}

enum { LABEL = 8, MOST_COLUMNS = 512 };

static void draw_graph(struct canvas *c, const struct watch *w, struct box b, bool of_rate)
{
    const struct curve *x = &w->curve;
    double values[MOST_COLUMNS], low = HUGE_VAL, high = -HUGE_VAL;
    bool has[MOST_COLUMNS];
    int n = MIN(MIN(b.width - LABEL, (int)MOST_COLUMNS), (int)MAX(x->n_steps, (int64_t)1));
    double scale = of_rate ? w->live.run.units_per_s * w->live.run.step_s : 1;
    if (x->n == 0 || n < 1 || b.height < 3)
        return;
    for (int k = 0; k < n; k++) {
        has[k] = mean_of(x, k, n, of_rate, &values[k]);
        values[k] *= scale;
        low = has[k] ? fmin(low, values[k]) : low;
        high = has[k] ? fmax(high, values[k]) : high;
    }
    if (of_rate)
        low = 0;
    int height = b.height - 1, bottom = b.row + b.height - 1;
    (void)canvas_textf(c, b.row + 1, b.column, LABEL - 1, INK_DIM, of_rate ? "%7.0f" : "%7.3f",
                       high);
    (void)canvas_textf(c, bottom, b.column, LABEL - 1, INK_DIM, of_rate ? "%7.0f" : "%7.3f", low);
    int wide = MAX((b.width - LABEL) / n, 1); /* few steps are drawn broad */
    for (int k = 0; k < n; k++) {
        double share = high > low ? (values[k] - low) / (high - low) : 0.5;
        for (int i = 0; i < wide && has[k]; i++)
            canvas_column(c, bottom, b.column + LABEL + k * wide + i, height, 0.06 + 0.94 * share,
                          of_rate ? INK_SECOND : INK_CURVE);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int draw_tier(struct canvas *c, const struct watch *w, struct box b, enum tier t)
{
    char now[BYTES_TEXT], peak[BYTES_TEXT];
    int64_t most = watch_peak(w, t);
    if (most == 0)
        return 0;
    int bar = MAX(b.width - 42, 6);
    canvas_text(c, b.row, b.column, 7, INK_PLAIN, tier_name(t));
    canvas_bar(c, b.row, b.column + 7, bar, (double)w->planned.total[t] / (double)most, INK_CURVE);
    (void)canvas_textf(c, b.row, b.column + 8 + bar, b.width - bar - 8, INK_PLAIN,
                       "%10s now, %s at most", format_bytes(now, w->planned.total[t]),
                       format_bytes(peak, most));
    return 1;
}

static int draw_room(struct canvas *c, const struct watch *w, struct box b, int i)
{
    const struct watch_memory *m = &w->memory[i];
    const struct poll_memory *p = &w->poll.memory[i];
    char need[BYTES_TEXT], own[BYTES_TEXT], others[BYTES_TEXT], left[BYTES_TEXT],
        budget[BYTES_TEXT];
    if (!m->is_there || !w->is_running)
        return 0;
    int at = canvas_textf(c, b.row, b.column, b.width, INK_PLAIN, "%s: ", p->whose);
    at = canvas_text(c, b.row, at, 16, ink_of(m->health.health), health_name(m->health.health));
    (void)canvas_textf(c, b.row, at, b.column + b.width - at, INK_PLAIN, ", run %s of %s%s%s",
                       format_bytes(own, p->own_bytes), format_bytes(need, m->input.need),
                       m->input.budget < INT64_MAX ? ", budget " : "",
                       m->input.budget < INT64_MAX ? format_bytes(budget, m->input.budget) : "");
    if (p->known)
        (void)canvas_textf(c, b.row + 1, b.column + 2, b.width - 2, INK_DIM,
                           "others hold %s, %s are free of %s; use %.0f%%, planned %.0f%%",
                           format_bytes(others, p->others_bytes), format_bytes(left, p->free_bytes),
                           format_bytes(need, p->total_bytes), 100 * m->health.use,
                           100 * m->health.planned);
    return p->known ? 2 : 1;
}

static int draw_classes(struct canvas *c, const struct watch *w, struct box b)
{
    char bytes[BYTES_TEXT], text[64];
    int at = b.column, row = b.row;
    for (int k = 0; k < MEMORY_CLASS_COUNT; k++) {
        enum memory_class kind = timeline_stack[k];
        int64_t n = 0;
        for (int t = 0; t < TIER_COUNT; t++)
            n += w->planned.by_class[t][kind];
        if (n == 0)
            continue;
        (void)snprintf(text, sizeof(text), "%s %s  ", memory_class_name(kind),
                       format_bytes(bytes, n));
        if (at + (int)strlen(text) > b.column + b.width + 2 && at > b.column) {
            row++;
            at = b.column;
        }
        if (row >= b.row + b.height)
            break;
        at = canvas_text(c, row, at, b.width, INK_DIM, text);
    }
    return row - b.row + (at > b.column);
}

static void draw_memory(struct canvas *c, const struct watch *w, struct box b)
{
    char text[128];
    int row = b.row + 1, end = b.row + b.height;
    bool inside = (uint32_t)w->position != UINT32_MAX && w->is_running;
    (void)snprintf(text, sizeof(text), "memory, planned: %s%s%s", watch_part(w),
                   inside && w->is_estimated ? " (estimated)" : "",
                   w->table_of[0] ? "" : " (no plan)");
    title(c, b, text);
    for (int t = 0; t < TIER_COUNT && row < end; t++)
        row += draw_tier(c, w, (struct box){row, b.column, 1, b.width}, (enum tier)t);
    for (int i = 0; i < MEMORY_VIEWS && row + 1 < end; i++)
        row += draw_room(c, w, (struct box){row, b.column, 2, b.width}, i);
    if (row < end)
        (void)draw_classes(c, w, (struct box){row, b.column, end - row, b.width});
}

/* The planned memory of the device over a step, and where in it the run is. */
static void draw_timeline(struct canvas *c, const struct watch *w, struct box b)
{
    int height = b.height - 1;
    title(c, b, "a step, planned: device memory by instruction");
    if (w->table.n_programs == 0 || w->table.programs[0].n_instrs == 0 || height < 1)
        return;
    const struct plan_program *p = &w->table.programs[0];
    int64_t peak = MAX(watch_peak(w, TIER_DEVICE), (int64_t)1);
    int n = MIN(b.width, (int)p->n_instrs);
    bool here = w->position >> 32 == 0 && (uint32_t)w->position < (uint32_t)p->n_instrs;
    int cursor = here ? (int)((int64_t)(uint32_t)w->position * n / p->n_instrs) : -1;
    for (int k = 0; k < n; k++) {
        int64_t most = 0;
        int32_t to = (int32_t)((int64_t)p->n_instrs * (k + 1) / n);
        for (int32_t i = (int32_t)((int64_t)p->n_instrs * k / n); i < to; i++)
            most = MAX(most, p->at[i].total[TIER_DEVICE]);
        canvas_column(c, b.row + height, b.column + k, height, (double)most / (double)peak,
                      k == cursor ? INK_CURSOR : INK_DIM);
    }
}

/* ---- alerts, remedies, events ---------------------------------------------------------------- */

/* Text over several rows, broken at blanks; returns the rows taken. */
static int draw_wrapped(struct canvas *c, struct box b, enum ink ink, const char *text)
{
    int row = 0;
    while (*text && row < b.height) {
        size_t n = strlen(text), fits = (size_t)MAX(b.width, 8);
        if (n > fits) {
            n = fits;
            while (n > 0 && text[n] != ' ')
                n--;
            n = n > 0 ? n : fits;
        }
        (void)canvas_textf(c, b.row + row++, b.column, b.width, ink, "%.*s", (int)n, text);
        text += n + (text[n] == ' ');
    }
    return row;
}

static int draw_alerts(struct canvas *c, const struct watch *w, struct box b, const char *remedies)
{
    int row = 0;
    char text[320];
    for (int i = 0; i < w->n_alerts && row < b.height; i++) {
        const struct watch_alert *a = &w->alerts[i];
        (void)snprintf(text, sizeof(text), "%s: %s", health_name(a->level), a->text);
        row += draw_wrapped(c, (struct box){b.row + row, b.column, b.height - row, b.width},
                            ink_of(a->level), text);
    }
    for (const char *at = remedies ? remedies : ""; *at && row < b.height;) {
        size_t n = strcspn(at, "\n");
        (void)canvas_textf(c, b.row + row++, b.column, b.width, INK_PLAIN, "%.*s", (int)n, at);
        at += n + (at[n] == '\n');
    }
    return row;
}

static void draw_events(struct canvas *c, const struct watch *w, struct box b)
{
    const struct live *l = &w->live;
    title(c, b, "events");
    int64_t n = MIN(MIN(l->n_events, (int64_t)LIVE_EVENTS), (int64_t)b.height - 1);
    for (int64_t i = 0; i < n; i++) { /* the newest first */
        const struct live_event *e = &l->events[(l->n_events - 1 - i) % LIVE_EVENTS];
        time_t at = (time_t)e->time;
        struct tm local;
        char clock[16] = "";
        if (localtime_r(&at, &local))
            (void)strftime(clock, sizeof(clock), "%H:%M:%S", &local);
        (void)canvas_textf(c, b.row + 1 + (int)i, b.column, b.width, INK_PLAIN, "%s  step %lld  %s",
                           clock, (long long)e->step, e->text);
    }
}

/* A row each, the newest first; what ends a line there does not end it here. */
static void draw_samples(struct canvas *c, const struct watch *w, struct box b)
{
    const struct live *l = &w->live;
    title(c, b, "samples");
    int64_t n = MIN(MIN(l->n_samples, (int64_t)LIVE_SAMPLES), (int64_t)b.height - 1);
    for (int64_t i = 0; i < n; i++) {
        const struct live_sample *s = &l->samples[(l->n_samples - 1 - i) % LIVE_SAMPLES];
        char text[LIVE_PROMPT + LIVE_SAMPLE + 64];
        (void)snprintf(text, sizeof(text), "step %lld  %s|%s", (long long)s->step, s->prompt,
                       s->text);
        for (char *x = text; *x; x++)
            *x = (unsigned char)*x < ' ' || *x == 0x7f ? ' ' : *x;
        (void)canvas_text(c, b.row + 1 + (int)i, b.column, b.width, INK_PLAIN, text);
    }
}

/* Above what follows, where there are any and that has room left; rows taken. */
static int draw_samples_above(struct canvas *c, const struct watch *w, struct box b, int most)
{
    int64_t n = MIN(MIN(w->live.n_samples, (int64_t)LIVE_SAMPLES), (int64_t)most);
    int height = (int)MIN(n, (int64_t)(b.height - 2) / 2) + 1;
    if (height < 2)
        return 0;
    draw_samples(c, w, (struct box){b.row, b.column, height, b.width});
    return height;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void draw_narrow(struct canvas *c, const struct watch *w, struct box b, const char *remedies)
{
    bool alarmed = w->n_alerts > 0;
    int n_memory = w->live.run.is_shared ? 7 : 9;
    int n_graph = MAX(MIN((b.height - n_memory) / 2, 12), 4);
    struct box part = {b.row, b.column, n_graph, b.width};
    title(c, part, "loss");
    draw_graph(c, w, part, false);
    part = (struct box){b.row + n_graph, b.column, n_memory, b.width};
    draw_memory(c, w, part);
    part = (struct box){part.row + n_memory, b.column, 0, b.width};
    part.height = b.row + b.height - part.row;
    if (alarmed) {
        int n = draw_alerts(c, w, part, remedies);
        part.row += n;
        part.height -= n;
    }
    if (part.height >= 12) {
        draw_timeline(c, w, (struct box){part.row, b.column, 6, b.width});
        part.row += 6;
        part.height -= 6;
    }
    int n_samples = draw_samples_above(c, w, part, 2);
    part.row += n_samples;
    part.height -= n_samples;
    if (part.height >= 2)
        draw_events(c, w, part);
}

static void draw_wide(struct canvas *c, const struct watch *w, struct box b, const char *remedies)
{
    int left = b.width * 11 / 20, half = b.height / 2;
    struct box loss = {b.row, b.column, half, left - 2};
    struct box rate = {b.row + half, b.column, b.height - half, left - 2};
    title(c, loss, "loss");
    draw_graph(c, w, loss, false);
    char text[64];
    (void)snprintf(text, sizeof(text), "speed, %s", w->live.run.rate);
    title(c, rate, text);
    draw_graph(c, w, rate, true);
    struct box right = {b.row, b.column + left, MIN(10, b.height / 3), b.width - left};
    draw_memory(c, w, right);
    right.row += right.height;
    right.height = MAX(b.height / 4, 5);
    draw_timeline(c, w, right);
    right.row += right.height;
    right.height = b.row + b.height - right.row;
    if (w->n_alerts > 0) {
        title(c, right, "alerts");
        int n = draw_alerts(
            c, w, (struct box){right.row + 1, right.column, right.height - 1, right.width},
            remedies);
        right.row += n + 1;
        right.height -= n + 1;
    }
    int n_samples = draw_samples_above(c, w, right, 6);
    right.row += n_samples;
    right.height -= n_samples;
    if (right.height >= 2)
        draw_events(c, w, right);
}

void view_draw(struct canvas *c, const struct watch *w, const char *remedies, const char *note)
{
    memset(c->cells, 0, sizeof(*c->cells) * (size_t)c->n_rows * (size_t)c->n_columns);
    draw_head(c, w);
    struct box rest = {5, 1, c->n_rows - 6, c->n_columns - 2};
    if (c->n_columns >= 120 && rest.height >= 16)
        draw_wide(c, w, rest, remedies);
    else if (rest.height >= 4)
        draw_narrow(c, w, rest, remedies);
    (void)canvas_text(c, c->n_rows - 1, 1, c->n_columns - 2, INK_DIM, note);
}
