/* screen.h: a canvas on a terminal, by ncurses, which is loaded when a screen is opened: every run
 * would pay for it otherwise. */
#ifndef SNUG_WATCH_SCREEN_H
#define SNUG_WATCH_SCREEN_H

#include "watch/canvas.h"

#ifdef __cplusplus
extern "C" {
#endif

bool screen_is_built(void);

/* Takes the terminal of stdin and stdout over. ERR_UNSUPPORTED where there is no ncurses, in this
 * build or on this machine, or where the terminal is none. */
enum status screen_open(bool colour) MUST_CHECK;
void screen_close(void); /* safe when it is not open */
void screen_size(int *n_rows, int *n_columns);
void screen_show(const struct canvas *c);
/* A key, or 0 when none came for so long. */
int screen_key(int milliseconds);

#ifdef __cplusplus
}
#endif
#endif
