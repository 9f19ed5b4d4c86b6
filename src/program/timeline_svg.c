/* timeline_svg.c: a timeline as a picture: stacked areas, one document that needs nothing else. */
#include <string.h>

#include "program/timeline.h"

enum { WIDTH = 1120, HEIGHT = 560, LEFT = 92, RIGHT = 236, TOP = 84, BOTTOM = 58 };

static const char *const fill[MEMORY_CLASS_COUNT] = {
    [MEMORY_WEIGHTS] = "#4c6f91",     [MEMORY_MASTERS] = "#7fa3b5",
    [MEMORY_GRADIENTS] = "#d9825b",   [MEMORY_OPTIMIZER] = "#59598e",
    [MEMORY_ACTIVATIONS] = "#5aa88f", [MEMORY_RECOMPUTE] = "#a3cf8d",
    [MEMORY_LOGITS] = "#e3b964",      [MEMORY_WORKSPACE] = "#a7a7a7",
    [MEMORY_STAGING] = "#b48cb0",
};

struct picture {
    const struct timeline *t;
    const struct timeline_style *style;
    struct str *out;
    double top; /* bytes at the upper edge of the plot */
};

static bool has_budget(const struct timeline_style *s)
{
    return s->budget > 0 && s->budget < INT64_MAX;
}

static void add_escaped(struct str *out, const char *text)
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

static double x_of(const struct picture *p, double column)
{
    return LEFT + column / p->t->n_columns * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct picture *p, double n_bytes)
{
    return HEIGHT - BOTTOM - n_bytes / p->top * (HEIGHT - TOP - BOTTOM);
}

/* ---- the plot -------------------------------------------------------------------------------- */

/* Grid steps that read well in powers of 1024: 1, 2, 4, ... 512 of a unit. */
static double grid_step(double top)
{
    double step = 1;
    while (top / step > 6)
        step *= 2;
    return step;
}

static void add_grid(const struct picture *p)
{
    char text[BYTES_TEXT];
    double step = grid_step(p->top);
    for (double at = 0; at <= p->top; at += step) {
        double y = y_of(p, at);
        str_addf(p->out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                 LEFT, WIDTH - RIGHT, y, y);
        str_addf(p->out, "<text class=\"tick\" x=\"%d\" y=\"%.1f\">%s</text>\n", LEFT - 10, y + 4,
                 format_bytes(text, (int64_t)at));
    }
}

/* The area between the sum of the classes below and that sum plus this class. Steps, not slopes:
 * memory is held or it is not. */
static void add_area(const struct picture *p, int level)
{
    const struct timeline *t = p->t;
    if (!timeline_has(t, timeline_stack[level]))
        return;
    for (int edge = 0; edge < 2; edge++) { /* upper edge rightwards, lower edge back */
        for (int i = 0; i < t->n_columns; i++) {
            int k = edge ? t->n_columns - 1 - i : i;
            double sum = 0;
            for (int below = 0; below <= level - edge; below++)
                sum += (double)t->columns[k].by_class[timeline_stack[below]];
            const char *move = edge == 0 && i == 0 ? "<path class=\"area\" d=\"M" : "L";
            str_addf(p->out, "%s%.1f %.1fL%.1f %.1f", move, x_of(p, k + edge), y_of(p, sum),
                     x_of(p, k + 1 - edge), y_of(p, sum));
        }
    }
    str_addf(p->out, "Z\" fill=\"%s\"><title>%s</title></path>\n", fill[timeline_stack[level]],
             memory_class_name(timeline_stack[level]));
}

static void add_outline(const struct picture *p)
{
    str_add(p->out, "<path class=\"outline\" d=\"");
    for (int k = 0; k < p->t->n_columns; k++) {
        double y = y_of(p, (double)p->t->columns[k].total);
        str_addf(p->out, "%s%.1f %.1fL%.1f %.1f", k ? "L" : "M", x_of(p, k), y, x_of(p, k + 1), y);
    }
    str_add(p->out, "\"/>\n");
}

static void add_marks(const struct picture *p)
{
    double free_from = 0;
    for (int i = 0; i < p->t->n_marks; i++) {
        double x = x_of(p, p->t->marks[i].column);
        if (p->t->marks[i].column > 0)
            str_addf(p->out, "<line class=\"mark\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n",
                     x, x, TOP, HEIGHT - BOTTOM + 8);
        if (x < free_from)
            continue; /* no room for its name */
        str_addf(p->out, "<text class=\"part\" x=\"%.1f\" y=\"%d\">", x + 4, HEIGHT - BOTTOM + 22);
        add_escaped(p->out, p->t->marks[i].name);
        str_add(p->out, "</text>\n");
        free_from = x + 14 + 7.5 * (double)strlen(p->t->marks[i].name);
    }
}

static void add_budget(const struct picture *p)
{
    char text[BYTES_TEXT];
    if (!has_budget(p->style) || (double)p->style->budget > p->top)
        return;
    double y = y_of(p, (double)p->style->budget);
    str_addf(p->out, "<line class=\"budget\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n", LEFT,
             WIDTH - RIGHT, y, y);
    str_addf(p->out, "<text class=\"budget-text\" x=\"%d\" y=\"%.1f\">budget %s</text>\n",
             WIDTH - RIGHT - 6, y - 6, format_bytes(text, p->style->budget));
}

static void add_peak(const struct picture *p)
{
    double x = x_of(p, p->t->peak_column + 0.5), y = y_of(p, (double)p->t->peak.total);
    str_addf(p->out, "<circle class=\"peak\" cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\"/>\n", x, y);
}

/* ---- words ----------------------------------------------------------------------------------- */

static void add_title(const struct picture *p)
{
    char peak[BYTES_TEXT], arena[BYTES_TEXT];
    const struct timeline *t = p->t;
    str_addf(p->out, "<text class=\"title\" x=\"%d\" y=\"36\">", LEFT);
    add_escaped(p->out, p->style->title ? p->style->title : t->program);
    str_addf(p->out, "</text>\n<text class=\"subtitle\" x=\"%d\" y=\"58\">peak %s in ", LEFT,
             format_bytes(peak, t->peak.total));
    add_escaped(p->out, t->peak_place);
    str_addf(p->out, " · %s arena %s</text>\n", tier_name(t->tier),
             format_bytes(arena, t->arena_bytes));
}

static void add_legend(const struct picture *p)
{
    char text[BYTES_TEXT];
    int x = WIDTH - RIGHT + 26, y = TOP + 8;
    str_addf(p->out, "<text class=\"part\" x=\"%d\" y=\"%d\">at the peak</text>\n", x, y);
    for (int i = MEMORY_CLASS_COUNT; i-- > 0;) {
        enum memory_class kind = timeline_stack[i];
        int64_t n_bytes = p->t->peak.by_class[kind];
        if (!timeline_has(p->t, kind))
            continue;
        y += 27;
        str_addf(p->out,
                 "<rect x=\"%d\" y=\"%d\" width=\"13\" height=\"13\" rx=\"3\" fill=\"%s\"/>\n", x,
                 y - 11, fill[kind]);
        str_addf(p->out, "<text class=\"class\" x=\"%d\" y=\"%d\">%s</text>\n", x + 22, y,
                 memory_class_name(kind));
        str_addf(p->out, "<text class=\"bytes\" x=\"%d\" y=\"%d\">%s</text>\n", WIDTH - 24, y,
                 format_bytes(text, n_bytes));
    }
}

static const char style_sheet[] =
    "<style>\n"
    "text{font-family:'Inter','Segoe UI','Helvetica Neue',Arial,sans-serif;fill:#2b3440}\n"
    ".title{font-size:20px;font-weight:600}\n"
    ".subtitle{font-size:13.5px;fill:#66717e}\n"
    ".tick{font-size:12px;fill:#7b8592;text-anchor:end}\n"
    ".part{font-size:12.5px;fill:#66717e}\n"
    ".class{font-size:13.5px}\n"
    ".bytes{font-size:13.5px;text-anchor:end;fill:#66717e}\n"
    ".grid{stroke:#e7eaee;stroke-width:1}\n"
    ".mark{stroke:#2b3440;stroke-width:1;stroke-dasharray:2 4;opacity:.45}\n"
    ".outline{fill:none;stroke:#2b3440;stroke-width:1.1;stroke-linejoin:round;opacity:.75}\n"
    ".budget{stroke:#c0392b;stroke-width:1.6;stroke-dasharray:8 5}\n"
    ".budget-text{font-size:12.5px;fill:#c0392b;text-anchor:end;font-weight:600}\n"
    ".peak{fill:#fff;stroke:#2b3440;stroke-width:1.8}\n"
    "</style>\n";

enum status timeline_svg(const struct timeline *t, const struct timeline_style *style,
                         struct str *out)
{
    struct picture p = {.t = t, .style = style, .out = out};
    p.top = 1.06 * (double)MAX(t->peak.total, (int64_t)1);
    if (has_budget(style) && (double)style->budget < 3.0 * p.top)
        p.top = MAX(p.top, 1.06 * (double)style->budget);
    str_addf(out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
             "height=\"%d\">\n%s<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
             WIDTH, HEIGHT, WIDTH, HEIGHT, style_sheet);
    add_title(&p);
    add_grid(&p);
    for (int level = 0; level < MEMORY_CLASS_COUNT; level++)
        add_area(&p, level);
    add_outline(&p);
    add_marks(&p);
    add_budget(&p);
    add_peak(&p);
    add_legend(&p);
    str_add(out, "</svg>\n");
    return str_status(out);
}
