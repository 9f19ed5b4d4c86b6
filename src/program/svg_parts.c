/* svg_parts.c: axes and lanes of pictures. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "program/svg.h"

double svg_x(const struct svg_box *b, double column)
{
    return SVG_LEFT + column / b->n_columns * (SVG_WIDTH - SVG_LEFT - SVG_RIGHT);
}

void svg_add_text(struct str *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<':
            str_add(out, "&lt;");
            break;
        case '&':
            str_add(out, "&amp;");
            break;
        case '>':
            str_add(out, "&gt;");
            break;
        default:
            if ((unsigned char)*text >= 0x20)
                str_add_n(out, text, 1);
        }
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

/* 1, 2 or 5 of a power of ten: at most eight of them. */
static double time_step(double seconds)
{
    double unit = pow(10.0, floor(log10(seconds / 8)));
    return seconds / 8 <= unit       ? unit
           : seconds / 8 <= 2 * unit ? 2 * unit
           : seconds / 8 <= 5 * unit ? 5 * unit
                                     : 10 * unit;
}

void svg_add_time(const struct svg_box *b)
{
    if (!(b->seconds > 0))
        return;
    double step = time_step(b->seconds), y = b->top + b->height;
    double unit = step >= 0.5 ? 1 : step >= 5e-4 ? 1e3 : 1e6;
    const char *name = step >= 0.5 ? "s" : step >= 5e-4 ? "ms" : "µs";
    for (int i = 0; i * step <= b->seconds; i++) {
        double x = svg_x(b, i * step / b->seconds * b->n_columns);
        str_addf(b->out, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                 x, x, y, y + 4);
        str_addf(b->out, "<text class=\"time\" x=\"%.1f\" y=\"%.1f\">%lld%s%s</text>\n", x, y + 17,
                 llround(i * step * unit), i ? " " : "", i ? name : "");
    }
}

void svg_add_marks(const struct svg_box *b, const struct timeline *t)
{
    double end = SVG_WIDTH - SVG_RIGHT;
    for (int i = 0; i < t->n_marks; i++) {
        double x = svg_x(b, t->marks[i].column);
        double next = i + 1 < t->n_marks ? svg_x(b, t->marks[i + 1].column) : end;
        if (t->marks[i].column > 0)
            str_addf(b->out,
                     "<line class=\"mark\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", x,
                     x, b->top, b->top + b->height);
        if (next - x < 8 + 7.5 * (double)strlen(t->marks[i].name))
            continue; /* no room for its name before the next begins */
        str_addf(b->out, "<text class=\"part\" x=\"%.1f\" y=\"%.1f\">", x + 2,
                 b->top + b->height + 34);
        svg_add_text(b->out, t->marks[i].name);
        str_add(b->out, "</text>\n");
    }
}

/* ---- lanes ----------------------------------------------------------------------------------- */

enum { LANE_HEIGHT = 22, LANE_STEP = 30 };

static const char *part_fill(const struct lane_span *s)
{
    static const char *const fills[LANE_PART_COUNT] = {
        [PASS_BEGIN] = "#9a9a9a", [PASS_FORWARD] = "#4c86c6", [PASS_BACKWARD] = "#d98a3d",
        [PASS_NORM] = "#8c6d46",  [PASS_UPDATE] = "#8a63b8",  [LANE_RECOMPUTE] = "#7fbf6a",
        [LANE_COPY] = "#2f9c95"};
    if (s->part == LANE_COPY && s->queue == QUEUE_DISK)
        return "#7a7f3a";
    return s->part == LANE_COPY && s->queue == QUEUE_OUT ? "#c4648f" : fills[s->part];
}

static const char *part_word(const struct lane_span *s)
{
    if (s->part == LANE_COPY)
        return s->queue == QUEUE_DISK  ? "to, from disk"
               : s->queue == QUEUE_OUT ? "copies out"
                                       : "copies in";
    return s->part == LANE_RECOMPUTE ? "recompute" : pass_name((enum pass)s->part);
}

double svg_lanes_height(const struct lanes *l)
{
    int n = 0;
    for (int q = 0; q < QUEUE_COUNT; q++)
        n += l->is_used[q];
    return n * LANE_STEP;
}

static void add_lane(const struct svg_box *b, const struct lanes *l, enum queue q, double y)
{
    str_addf(b->out,
             "<rect class=\"lane\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\"/>\n"
             "<text class=\"tick\" x=\"%d\" y=\"%.1f\">%s %.0f%%</text>\n",
             SVG_LEFT, y, SVG_WIDTH - SVG_LEFT - SVG_RIGHT, LANE_HEIGHT, SVG_LEFT - 10, y + 15,
             queue_name(q), 100.0 * l->busy[q]);
    for (size_t i = 0; i < l->spans.n; i++) {
        const struct lane_span *s = &l->spans.items[i];
        double x = svg_x(b, s->first), end = svg_x(b, s->first + s->n_columns);
        if (s->queue == q)
            str_addf(b->out,
                     "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"%s\" "
                     "opacity=\"%.2f\"/>\n",
                     x, y, end - x, LANE_HEIGHT, part_fill(s), MAX(s->busy, 0.35));
    }
}

/* The parts there are, each once. */
static void add_lane_legend(const struct svg_box *b, const struct lanes *l)
{
    const char *seen[LANE_PART_COUNT + 1];
    int n = 0;
    double x = SVG_WIDTH - SVG_RIGHT + 26, y = b->top + 11;
    for (size_t i = 0; i < l->spans.n; i++) {
        const char *word = part_word(&l->spans.items[i]);
        bool known = false;
        for (int k = 0; k < n; k++)
            known = known || strcmp(seen[k], word) == 0;
        if (known)
            continue;
        double column = x + (n % 2 ? 104 : 0);
        str_addf(b->out,
                 "<rect x=\"%.1f\" y=\"%.1f\" width=\"13\" height=\"13\" rx=\"3\" fill=\"%s\"/>\n"
                 "<text class=\"class\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                 column, y - 11, part_fill(&l->spans.items[i]), column + 20, y, word);
        y += n % 2 ? 24 : 0;
        seen[n++] = word;
    }
}

void svg_add_lanes(const struct svg_box *b, const struct lanes *l)
{
    double y = b->top;
    for (int q = 0; q < QUEUE_COUNT; q++) {
        if (!l->is_used[q])
            continue;
        add_lane(b, l, (enum queue)q, y);
        y += LANE_STEP;
    }
    add_lane_legend(b, l);
}
