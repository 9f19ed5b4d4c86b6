/* fields.h: a line made of fields, that gives up the least important ones where room is short.
 *
 *     struct fields f = {0};
 *     fields_add(&f, 1, "step %d", 12);
 *     fields_add(&f, 3, "lr %g", 0.1);
 *     fields_add(&f, 2, "loss %.4f", 3.5);
 *     fields_fit(&f, 24, &out);               "step 12  loss 3.5000": the third had no room
 *
 * Fields are ASCII and stand in the order they were added.
 */
#ifndef SNUG_BASE_FIELDS_H
#define SNUG_BASE_FIELDS_H

#include "base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FIELDS_MAX = 16, FIELD_TEXT = 48 };

struct fields {
    struct {
        char text[FIELD_TEXT];
        int rank; /* 1: goes last; the highest goes first */
    } items[FIELDS_MAX];
    int n;
};

void fields_add(struct fields *f, int rank, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Appends the line in at most n_columns characters; the last field left is cut off if need be. */
void fields_fit(const struct fields *f, int n_columns, struct str *out);

#ifdef __cplusplus
}
#endif
#endif
