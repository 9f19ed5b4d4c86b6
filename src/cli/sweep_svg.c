/* sweep_svg.c: tokens per second against budgets, as a picture: one document that needs nothing
 * else. Dots and the line to the right of each have the colour of the plan's kind. */
#include <math.h>

#include "cli/points.h"

enum { WIDTH = 960, HEIGHT = 480, LEFT = 84, RIGHT = 216, TOP = 76, BOTTOM = 64 };

static const char *const colour[POINT_KIND_COUNT] = {
    [POINT_RESIDENT] = "#2f9e77",  [POINT_RECOMPUTED] = "#93c47d", [POINT_ACTIVATIONS] = "#e0a93b",
    [POINT_OPTIMIZER] = "#5b6abf", [POINT_GRADIENTS] = "#d9825b",  [POINT_WEIGHTS] = "#4c86b8",
    [POINT_OVER] = "#b4b4b4",
};

struct picture {
    const struct point *points;
    const int64_t *budgets;
    int n;
    double top; /* tokens per second at the upper edge */
    struct str *out;
};

static double x_of(const struct picture *p, int64_t budget)
{
    double from = (double)p->budgets[0], to = (double)p->budgets[p->n - 1];
    return LEFT + ((double)budget - from) / (to - from) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct picture *p, double rate)
{
    return HEIGHT - BOTTOM - rate / p->top * (HEIGHT - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten: four to ten steps to the top. */
static double grid_step(double top)
{
    double step = pow(10.0, floor(log10(top)));
    if (top / step < 2)
        step /= 5;
    else if (top / step < 4)
        step /= 2;
    return step;
}

static void add_text(const struct picture *p, const char *class, double x, double y,
                     const char *text)
{
    str_addf(p->out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    for (; *text; text++) {
        if (*text == '<' || *text == '&')
            str_add(p->out, *text == '<' ? "&lt;" : "&amp;");
        else
            str_add_n(p->out, text, 1);
    }
    str_add(p->out, "</text>\n");
}

static void add_grid(const struct picture *p)
{
    char text[BYTES_TEXT];
    double step = grid_step(p->top);
    for (double at = 0; at <= p->top; at += step) {
        double y = y_of(p, at);
        str_addf(p->out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                 LEFT, WIDTH - RIGHT, y, y);
        add_text(p, "tick", LEFT - 10, y + 4, format_count(text, (int64_t)at));
    }
    int each = (p->n + 6) / 7; /* labels that do not touch each other */
    for (int i = 0; i < p->n; i += each)
        add_text(p, "budget", x_of(p, p->budgets[i]), HEIGHT - BOTTOM + 22,
                 format_bytes(text, p->budgets[i]));
}

static void add_line(const struct picture *p)
{
    for (int i = 0; i + 1 < p->n; i++) {
        const struct point *a = &p->points[i], *b = a + 1;
        if (a->fits && b->fits)
            str_addf(p->out,
                     "<line class=\"curve\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                     "stroke=\"%s\"/>\n",
                     x_of(p, p->budgets[i]), y_of(p, a->tokens_per_s), x_of(p, p->budgets[i + 1]),
                     y_of(p, b->tokens_per_s), colour[a->kind]);
    }
}

/* Budgets that are too small are crosses on the axis. */
static void add_dots(const struct picture *p)
{
    for (int i = 0; i < p->n; i++) {
        const struct point *a = &p->points[i];
        double x = x_of(p, p->budgets[i]), y = y_of(p, a->fits ? a->tokens_per_s : 0);
        if (a->fits)
            str_addf(p->out,
                     "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"%s\"><title>%s</title>"
                     "</circle>\n",
                     x, y, colour[a->kind], a->text);
        else
            str_addf(p->out, "<path class=\"over\" d=\"M%.1f %.1fl10 10m0 -10l-10 10\"/>\n", x - 5,
                     y - 5);
    }
}

static void add_legend(const struct picture *p)
{
    int x = WIDTH - RIGHT + 24, y = TOP + 8;
    for (int k = 0; k < POINT_KIND_COUNT; k++) {
        bool seen = false;
        for (int i = 0; i < p->n; i++)
            seen = seen || (int)p->points[i].kind == k;
        if (!seen)
            continue;
        if (k == POINT_OVER)
            str_addf(p->out, "<path class=\"over\" d=\"M%d %dl10 10m0 -10l-10 10\"/>\n", x - 5,
                     y - 9);
        else
            str_addf(p->out, "<circle cx=\"%d\" cy=\"%d\" r=\"5\" fill=\"%s\"/>\n", x, y - 4,
                     colour[k]);
        add_text(p, "kind", x + 16, y, point_kind_name((enum point_kind)k));
        y += 26;
    }
}

static const char style_sheet[] =
    "<style>\n"
    "text{font-family:'Inter','Segoe UI','Helvetica Neue',Arial,sans-serif;fill:#2b3440}\n"
    ".title{font-size:19px;font-weight:600}\n"
    ".subtitle{font-size:13px;fill:#66717e}\n"
    ".tick{font-size:12px;fill:#66717e;text-anchor:end}\n"
    ".budget{font-size:12px;fill:#66717e;text-anchor:middle}\n"
    ".kind{font-size:13px}\n"
    ".grid{stroke:#e7eaee;stroke-width:1}\n"
    ".curve{stroke-width:2.5;stroke-linecap:round}\n"
    ".over{stroke:#9aa0a8;stroke-width:2;fill:none}\n"
    "</style>\n";

void sweep_svg(const struct point *points, const int64_t *budgets, int n, const char *title,
               struct str *out)
{
    struct picture p = {.points = points, .budgets = budgets, .n = n, .top = 1, .out = out};
    for (int i = 0; i < n; i++)
        p.top = points[i].fits ? MAX(p.top, 1.08 * points[i].tokens_per_s) : p.top;
    str_addf(out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
             "height=\"%d\">\n%s<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
             WIDTH, HEIGHT, WIDTH, HEIGHT, style_sheet);
    add_text(&p, "title", LEFT, 36, title);
    add_text(&p, "subtitle", LEFT, 58, "the colour of a dot is what its plan does to fit");
    add_grid(&p);
    add_line(&p);
    add_dots(&p);
    add_legend(&p);
    str_add(out, "</svg>\n");
}
