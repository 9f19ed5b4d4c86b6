/* timeline_draw.c: a timeline for the terminal.
 *
 *     1.2 GiB ┤┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄ budget
 *             ┤        ▂▅█▇▅▂
 *     512 MiB ┤   ▂▅██████████▅▂
 *             └──────────┬───────
 *             forward    backward
 *
 * Classes are stacked from the longest-lived up. In colour every cell shows the class at its
 * middle; without colour the outline is drawn and the legend carries the numbers.
 */
#include <string.h>

#include "program/timeline.h"

enum { LABEL_WIDTH = 11, EIGHTHS = 8 }; /* "1023.99 MiB" */

/* 256-colour codes, by class. */
static const int ansi[MEMORY_CLASS_COUNT] = {
    [MEMORY_WEIGHTS] = 67,   [MEMORY_MASTERS] = 109,    [MEMORY_GRADIENTS] = 173,
    [MEMORY_OPTIMIZER] = 61, [MEMORY_ACTIVATIONS] = 72, [MEMORY_RECOMPUTE] = 114,
    [MEMORY_LOGITS] = 180,   [MEMORY_WORKSPACE] = 245,  [MEMORY_STAGING] = 139,
    [MEMORY_FROZEN] = 24,
};

static const char *const levels[EIGHTHS + 1] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

struct canvas {
    const struct timeline *t;
    const struct timeline_style *style;
    struct str *out;
    int n_rows;
    int64_t top; /* bytes at the upper edge */
};

static bool has_budget(const struct timeline_style *s)
{
    return s->budget > 0 && s->budget < INT64_MAX;
}

/* How many characters a UTF-8 text shows as (no wide or combining ones here). */
static int shown(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0u) != 0x80u;
    return n;
}

static void pad(struct str *out, int n)
{
    for (int i = 0; i < n; i++)
        str_add(out, " ");
}

/* ---- cells ----------------------------------------------------------------------------------- */

/* The class that `bytes` from the bottom falls into; the topmost one beyond the end. */
static enum memory_class class_at(const struct timeline_column *column, int64_t bytes)
{
    int64_t below = 0;
    enum memory_class last = MEMORY_WEIGHTS;
    for (int i = 0; i < MEMORY_CLASS_COUNT; i++) {
        if (column->by_class[timeline_stack[i]] == 0)
            continue;
        below += column->by_class[timeline_stack[i]];
        last = timeline_stack[i];
        if (bytes < below)
            return last;
    }
    return last;
}

/* Row r counts from the bottom; filled eighths of the cell. */
static int filled(const struct canvas *c, const struct timeline_column *column, int r)
{
    double eighths = (double)column->total / (double)c->top * c->n_rows * EIGHTHS;
    int n = (int)(eighths + 0.5) - r * EIGHTHS;
    return n < 0 ? 0 : MIN(n, EIGHTHS);
}

static void draw_cell(const struct canvas *c, int column, int r, bool is_budget)
{
    const struct timeline_column *x = &c->t->columns[column];
    int n = filled(c, x, r);
    if (n == 0) {
        str_add(c->out, is_budget ? "┄" : " ");
        return;
    }
    if (!c->style->colour) {
        str_add(c->out, levels[n]);
        return;
    }
    double middle = ((double)r + 0.5 * (double)n / EIGHTHS) / c->n_rows;
    enum memory_class kind = class_at(x, (int64_t)(middle * (double)c->top));
    str_addf(c->out, "\x1b[38;5;%dm%s\x1b[0m", ansi[kind], levels[n]);
}

static void draw_row(const struct canvas *c, int r)
{
    char text[BYTES_TEXT];
    double per_row = (double)c->top / c->n_rows;
    int64_t upper = (int64_t)(per_row * (r + 1));
    bool is_budget = has_budget(c->style) && (double)c->style->budget > per_row * r &&
                     (double)c->style->budget <= per_row * (r + 1) + 0.5;
    bool labelled = is_budget || r == c->n_rows - 1 || r == c->n_rows / 2 - 1;
    format_bytes(text, is_budget ? c->style->budget : upper);
    pad(c->out, LABEL_WIDTH - (labelled ? shown(text) : 0));
    str_addf(c->out, "%s %s", labelled ? text : "", labelled ? "┤" : "│");
    for (int k = 0; k < c->t->n_columns; k++)
        draw_cell(c, k, r, is_budget);
    str_add(c->out, is_budget ? " budget\n" : "\n");
}

/* ---- axis and legend ------------------------------------------------------------------------- */

static bool is_marked(const struct timeline *t, int column)
{
    for (int i = 0; i < t->n_marks; i++) {
        if (t->marks[i].column == column)
            return true;
    }
    return false;
}

static void draw_axis(const struct canvas *c)
{
    const struct timeline *t = c->t;
    pad(c->out, LABEL_WIDTH + 1);
    str_add(c->out, "└");
    for (int k = 0; k < t->n_columns; k++)
        str_add(c->out, k == t->peak_column ? "▲" : is_marked(t, k) ? "┬" : "─");
    str_add(c->out, "\n");
    pad(c->out, LABEL_WIDTH + 2);
    int at = 0;
    for (int i = 0; i < t->n_marks; i++) {
        int width = shown(t->marks[i].name);
        if (t->marks[i].column < at)
            continue; /* no room */
        pad(c->out, t->marks[i].column - at);
        str_add(c->out, t->marks[i].name);
        at = t->marks[i].column + width + 1;
        str_add(c->out, " ");
    }
    str_add(c->out, "\n");
}

static void draw_legend(const struct canvas *c)
{
    const struct timeline *t = c->t;
    char text[BYTES_TEXT];
    pad(c->out, 2);
    format_bytes(text, t->peak.total);
    bool broken = shown(text) + shown(t->peak_place) + 14 > LABEL_WIDTH + 9 + t->n_columns;
    str_addf(c->out, "▲ peak %s%sin %s\n", text, broken ? "\n    " : " ", t->peak_place);
    for (int i = MEMORY_CLASS_COUNT; i-- > 0;) {
        enum memory_class kind = timeline_stack[i];
        int64_t n_bytes = t->peak.by_class[kind];
        if (!timeline_has(t, kind))
            continue;
        double share = 100.0 * (double)n_bytes / (double)MAX(t->peak.total, (int64_t)1);
        pad(c->out, 4);
        if (c->style->colour)
            str_addf(c->out, "\x1b[38;5;%dm█\x1b[0m ", ansi[kind]);
        str_addf(c->out, "%-12s %11s %5.1f %%\n", memory_class_name(kind),
                 format_bytes(text, n_bytes), share);
    }
    int64_t unused = t->arena_bytes - t->peak.total;
    if (unused > 0) {
        pad(c->out, 4);
        str_addf(c->out, "%s%-12s %11s\n", c->style->colour ? "  " : "", "gaps",
                 format_bytes(text, unused));
    }
}

enum status timeline_draw(const struct timeline *t, const struct timeline_style *style,
                          struct str *out)
{
    struct canvas c = {.t = t, .style = style, .out = out};
    c.n_rows = style->n_rows > 1 ? style->n_rows : 12;
    c.top = MAX(t->peak.total, (int64_t)1);
    /* A budget far above the peak would flatten the picture: then it stays outside. */
    if (has_budget(style) && style->budget > c.top && style->budget / 3 < c.top)
        c.top = style->budget;
    for (int r = c.n_rows; r-- > 0;)
        draw_row(&c, r);
    draw_axis(&c);
    draw_legend(&c);
    return str_status(out);
}
