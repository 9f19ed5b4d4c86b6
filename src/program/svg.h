/* svg.h: inside program/: what the parts of a picture share (timeline_svg.c, svg_parts.c). */
#ifndef SNUG_PROGRAM_SVG_H
#define SNUG_PROGRAM_SVG_H

#include "program/timeline.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SVG_WIDTH = 1120, SVG_LEFT = 92, SVG_RIGHT = 236 };

/* A panel: where it is, and what its axes stand for. */
struct svg_box {
    struct str *out;
    double top, height; /* of the plot, in pixels */
    int n_columns;
    double seconds; /* of all columns; 0: they are instructions */
};

double svg_x(const struct svg_box *b, double column);
/* Characters that mean something in a document are written as what they are. */
void svg_add_text(struct str *out, const char *text);
/* Ticks of time below the plot, and where parts of the step begin. */
void svg_add_time(const struct svg_box *b);
void svg_add_marks(const struct svg_box *b, const struct timeline *t);
/* The queues, one lane each; its height in pixels. */
double svg_lanes_height(const struct lanes *l);
void svg_add_lanes(const struct svg_box *b, const struct lanes *l);

#ifdef __cplusplus
}
#endif
#endif
