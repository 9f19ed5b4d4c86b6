/* view.h: what is seen of a run, drawn for a screen of any size. */
#ifndef SNUG_WATCH_VIEW_H
#define SNUG_WATCH_VIEW_H

#include "watch/canvas.h"
#include "watch/watch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `remedies` (NULL: none are known) is text in lines; `note` stands in the last row. */
void view_draw(struct canvas *c, const struct watch *w, const char *remedies, const char *note);

#ifdef __cplusplus
}
#endif
#endif
