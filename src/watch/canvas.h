/* canvas.h: a screen of characters to draw on, whatever shows it: a terminal by ncurses, or text.
 */
#ifndef SNUG_WATCH_CANVAS_H
#define SNUG_WATCH_CANVAS_H

#include <stdbool.h>

#include "base/compiler.h"
#include "base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ink {
    INK_PLAIN,
    INK_DIM,
    INK_BOLD,
    INK_GOOD,
    INK_WARN,
    INK_BAD,
    INK_CURVE,
    INK_SECOND,
    INK_CURSOR,
    INK_COUNT
};

struct cell {
    char text[5]; /* one character, UTF-8; "": a blank */
    unsigned char ink;
};

struct canvas {
    int n_rows, n_columns;
    struct cell *cells;
};

enum status canvas_init(struct canvas *c, int n_rows, int n_columns) MUST_CHECK;
void canvas_release(struct canvas *c);

/* All of these clip at the edges. */
void canvas_put(struct canvas *c, int row, int column, enum ink ink, const char *character);
/* Text to at most `width` characters; returns the column behind it. */
int canvas_text(struct canvas *c, int row, int column, int width, enum ink ink, const char *text);
int canvas_textf(struct canvas *c, int row, int column, int width, enum ink ink, const char *fmt,
                 ...) PRINTF_LIKE(6, 7);
/* A bar of `width` characters, filled to `share` of it with the ink. */
void canvas_bar(struct canvas *c, int row, int column, int width, double share, enum ink ink);
/* A column of a graph, `height` rows up from `bottom`, filled to `share` in eighths of a row. */
void canvas_column(struct canvas *c, int bottom, int column, int height, double share,
                   enum ink ink);

/* Lines of text, blanks at their ends left out; ANSI colours if wanted. */
enum status canvas_print(const struct canvas *c, bool colour, struct str *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
