/* timeline_svg.c: a picture for documents: the memory of each tier as stacked areas, the queues
 * below; one document that needs nothing else. */
#include <ctype.h>
#include <string.h>

#include "program/svg.h"

/* Pixels: the head of the picture; a panel's title, plot and what stands below it. */
enum { HEAD = 40, PANEL_TITLE = 44, PLOT = 300, PLOT_BELOW = 210, PANEL_FOOT = 44, BOTTOM = 14 };

static const char *const fill[MEMORY_CLASS_COUNT] = {
    [MEMORY_WEIGHTS] = "#4c6f91",     [MEMORY_MASTERS] = "#86b4c9",
    [MEMORY_GRADIENTS] = "#d9825b",   [MEMORY_OPTIMIZER] = "#59598e",
    [MEMORY_ACTIVATIONS] = "#4a9f84", [MEMORY_RECOMPUTE] = "#a3cf8d",
    [MEMORY_LOGITS] = "#e3b964",      [MEMORY_WORKSPACE] = "#9a9a9a",
    [MEMORY_STAGING] = "#b48cb0",     [MEMORY_FROZEN] = "#2f4a63",
};

struct panel {
    struct svg_box box;
    const struct timeline *t;
    int64_t budget;
    double most; /* bytes at the upper edge of the plot */
};

static bool has_budget(const struct panel *p)
{
    return p->budget > 0 && p->budget < INT64_MAX;
}

static double y_of(const struct panel *p, double n_bytes)
{
    return p->box.top + p->box.height * (1.0 - n_bytes / p->most);
}

/* ---- the plot -------------------------------------------------------------------------------- */

/* Grid steps that read well in powers of 1024: 1, 2, 4, ... 512 of a unit. */
static double grid_step(const struct panel *p)
{
    double step = 1;
    while (p->most / step > p->box.height / 46)
        step *= 2;
    return step;
}

static void add_grid(const struct panel *p)
{
    char text[BYTES_TEXT];
    double step = grid_step(p);
    for (double at = 0; at <= p->most; at += step) {
        double y = y_of(p, at);
        str_addf(p->box.out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                 SVG_LEFT, SVG_WIDTH - SVG_RIGHT, y, y);
        str_addf(p->box.out, "<text class=\"tick\" x=\"%d\" y=\"%.1f\">%s</text>\n", SVG_LEFT - 10,
                 y + 4, format_bytes(text, (int64_t)at));
    }
}

/* The bytes of a column up to and with a level of the stack; -1 is the ground. */
static double sum_to(const struct panel *p, int column, int level)
{
    double sum = 0;
    for (int i = 0; i <= level; i++)
        sum += (double)p->t->columns[column].by_class[timeline_stack[i]];
    return sum;
}

/* Along the top of a level, rightwards or back. Steps, not slopes: memory is held or it is not. */
static void add_edge(const struct panel *p, int level, bool back)
{
    int n = p->t->n_columns, first = back ? n - 1 : 0;
    double y = y_of(p, sum_to(p, first, level));
    str_addf(p->box.out, "%s%.1f %.1f", back ? "L" : "M", svg_x(&p->box, back ? n : 0), y);
    for (int i = 1; i < n; i++) {
        int k = back ? n - 1 - i : i;
        double here = y_of(p, sum_to(p, k, level));
        if (here < y || here > y)
            str_addf(p->box.out, "H%.1fV%.1f", svg_x(&p->box, back ? k + 1 : k), here);
        y = here;
    }
    str_addf(p->box.out, "H%.1f", svg_x(&p->box, back ? 0 : n));
}

/* The area between the sum of the classes below and that sum plus this class. */
static void add_area(const struct panel *p, int level)
{
    if (!timeline_has(p->t, timeline_stack[level]))
        return;
    str_add(p->box.out, "<path class=\"area\" d=\"");
    add_edge(p, level, false);
    add_edge(p, level - 1, true);
    str_addf(p->box.out, "Z\" fill=\"%s\"><title>%s</title></path>\n", fill[timeline_stack[level]],
             memory_class_name(timeline_stack[level]));
}

static void add_outline(const struct panel *p)
{
    str_add(p->box.out, "<path class=\"outline\" d=\"");
    add_edge(p, MEMORY_CLASS_COUNT - 1, false);
    str_add(p->box.out, "\"/>\n");
}

static void add_budget(const struct panel *p)
{
    char text[BYTES_TEXT];
    if (!has_budget(p) || (double)p->budget > p->most)
        return;
    double y = y_of(p, (double)p->budget);
    str_addf(p->box.out, "<line class=\"budget\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
             SVG_LEFT, SVG_WIDTH - SVG_RIGHT, y, y);
    str_addf(p->box.out, "<text class=\"budget-text\" x=\"%d\" y=\"%.1f\">budget %s</text>\n",
             SVG_WIDTH - SVG_RIGHT - 6, y - 6, format_bytes(text, p->budget));
}

static void add_peak(const struct panel *p)
{
    double x = svg_x(&p->box, p->t->peak_column + 0.5), y = y_of(p, (double)p->t->peak.total);
    str_addf(p->box.out, "<circle class=\"peak\" cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\"/>\n", x, y);
}

/* ---- words ----------------------------------------------------------------------------------- */

static void add_panel_title(const struct panel *p)
{
    char peak[BYTES_TEXT], arena[BYTES_TEXT];
    const struct timeline *t = p->t;
    str_addf(p->box.out,
             "<text class=\"panel\" x=\"%d\" y=\"%.1f\">%c%s memory</text>\n"
             "<text class=\"subtitle\" x=\"%d\" y=\"%.1f\">arena %s, fullest (%s) in ",
             SVG_LEFT, p->box.top - 24, toupper(tier_name(t->tier)[0]), tier_name(t->tier) + 1,
             SVG_LEFT + 128, p->box.top - 24, format_bytes(arena, t->arena_bytes),
             format_bytes(peak, t->peak.total));
    svg_add_text(p->box.out, t->peak_place);
    str_add(p->box.out, "</text>\n");
}

static void add_legend(const struct panel *p)
{
    char text[BYTES_TEXT];
    int x = SVG_WIDTH - SVG_RIGHT + 26;
    double y = p->box.top + 8;
    str_addf(p->box.out, "<text class=\"part\" x=\"%d\" y=\"%.1f\">when fullest</text>\n", x, y);
    for (int i = MEMORY_CLASS_COUNT; i-- > 0;) {
        enum memory_class kind = timeline_stack[i];
        if (!timeline_has(p->t, kind))
            continue;
        y += 24;
        str_addf(p->box.out,
                 "<rect x=\"%d\" y=\"%.1f\" width=\"13\" height=\"13\" rx=\"3\" fill=\"%s\"/>\n", x,
                 y - 11, fill[kind]);
        str_addf(p->box.out, "<text class=\"class\" x=\"%d\" y=\"%.1f\">%s</text>\n", x + 22, y,
                 memory_class_name(kind));
        str_addf(p->box.out, "<text class=\"bytes\" x=\"%d\" y=\"%.1f\">%s</text>\n",
                 SVG_WIDTH - 24, y, format_bytes(text, p->t->peak.by_class[kind]));
    }
}

static const char style_sheet[] =
    "<style>\n"
    "text{font-family:'Inter','Segoe UI','Helvetica Neue',Arial,sans-serif;fill:#2b3440}\n"
    ".title{font-size:20px;font-weight:600}\n"
    ".panel{font-size:15px;font-weight:600}\n"
    ".subtitle{font-size:13.5px;fill:#66717e}\n"
    ".tick{font-size:12px;fill:#7b8592;text-anchor:end}\n"
    ".time{font-size:12px;fill:#7b8592;text-anchor:middle}\n"
    ".part{font-size:12.5px;fill:#66717e}\n"
    ".class{font-size:13.5px}\n"
    ".bytes{font-size:13.5px;text-anchor:end;fill:#66717e}\n"
    ".grid{stroke:#e7eaee;stroke-width:1}\n"
    ".axis{stroke:#c3cad2;stroke-width:1}\n"
    ".lane{fill:#f3f5f7}\n"
    ".mark{stroke:#2b3440;stroke-width:1;stroke-dasharray:2 4;opacity:.45}\n"
    ".outline{fill:none;stroke:#2b3440;stroke-width:1.1;stroke-linejoin:round;opacity:.75}\n"
    ".budget{stroke:#c0392b;stroke-width:1.6;stroke-dasharray:8 5}\n"
    ".budget-text{font-size:12.5px;fill:#c0392b;text-anchor:end;font-weight:600}\n"
    ".peak{fill:#fff;stroke:#2b3440;stroke-width:1.8}\n"
    "</style>\n";

/* ---- the whole ------------------------------------------------------------------------------- */

static void add_panel(struct panel *p)
{
    p->most = 1.06 * (double)MAX(p->t->peak.total, (int64_t)1);
    if (has_budget(p) && (double)p->budget < 2.0 * p->most)
        p->most = MAX(p->most, 1.08 * (double)p->budget);
    add_panel_title(p);
    add_grid(p);
    for (int level = 0; level < MEMORY_CLASS_COUNT; level++)
        add_area(p, level);
    add_outline(p);
    svg_add_marks(&p->box, p->t);
    svg_add_time(&p->box);
    add_budget(p);
    add_peak(p);
    add_legend(p);
}

static double plot_height(const struct timeline_picture *picture, int tier)
{
    return tier == TIER_DEVICE || !picture->tiers[TIER_DEVICE] ? PLOT : PLOT_BELOW;
}

static double picture_height(const struct timeline_picture *picture)
{
    double height = HEAD + BOTTOM;
    for (int t = 0; t < TIER_COUNT; t++)
        height += picture->tiers[t] ? PANEL_TITLE + plot_height(picture, t) + PANEL_FOOT : 0;
    if (picture->lanes)
        height += PANEL_TITLE + svg_lanes_height(picture->lanes) + PANEL_FOOT;
    return height;
}

static void add_queues(const struct timeline_picture *picture, double top, struct str *out)
{
    struct svg_box box = {.out = out,
                          .top = top,
                          .height = svg_lanes_height(picture->lanes),
                          .n_columns = picture->lanes->n_columns,
                          .seconds = picture->lanes->seconds};
    str_addf(out, "<text class=\"panel\" x=\"%d\" y=\"%.1f\">Queues</text>\n", SVG_LEFT, top - 14);
    svg_add_lanes(&box, picture->lanes);
    svg_add_time(&box);
}

enum status timeline_svg(const struct timeline_picture *picture, struct str *out)
{
    double height = picture_height(picture), top = HEAD;
    str_addf(out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" "
             "height=\"%.0f\">\n%s<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
             SVG_WIDTH, height, SVG_WIDTH, height, style_sheet);
    str_addf(out, "<text class=\"title\" x=\"%d\" y=\"32\">", SVG_LEFT);
    svg_add_text(out, picture->title ? picture->title : "");
    str_add(out, "</text>\n");
    for (int t = 0; t < TIER_COUNT; t++) {
        if (!picture->tiers[t])
            continue;
        struct panel p = {.t = picture->tiers[t],
                          .budget = picture->budgets[t],
                          .box = {.out = out,
                                  .top = top + PANEL_TITLE,
                                  .height = plot_height(picture, t),
                                  .n_columns = picture->tiers[t]->n_columns,
                                  .seconds = picture->seconds}};
        add_panel(&p);
        top += PANEL_TITLE + p.box.height + PANEL_FOOT;
    }
    if (picture->lanes)
        add_queues(picture, top + PANEL_TITLE - 8, out);
    str_add(out, "</svg>\n");
    return str_status(out);
}
