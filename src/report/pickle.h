/* pickle.h: values as Python's pickle module reads them (protocol 2), as far as files for other
 * programs need it: whole numbers, texts, lists and dictionaries.
 *
 *     struct pickle p = {.out = &text};
 *     pickle_begin(&p);
 *     pickle_open_dict(&p);
 *     pickle_text(&p, "sizes");
 *     pickle_open_list(&p);
 *     pickle_int(&p, 7);
 *     pickle_close_list(&p);
 *     pickle_close_dict(&p);
 *     TRY(pickle_end(&p));
 *
 * A list or dictionary that is opened inside another is an item of it. Texts are written once and
 * referred to after that: the files are full of the same keys.
 */
#ifndef SNUG_REPORT_PICKLE_H
#define SNUG_REPORT_PICKLE_H

#include "base/str.h"
#include "report/names.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PICKLE_DEPTH = 16 };

/* All zero but `out`, which may hold NUL bytes afterwards. */
struct pickle {
    struct str *out;
    struct names texts;
    int64_t n_items[PICKLE_DEPTH]; /* of the lists that are open */
    int depth;
    enum status status; /* the first failure */
};

void pickle_begin(struct pickle *p);
void pickle_int(struct pickle *p, int64_t x);
void pickle_text(struct pickle *p, const char *text); /* bytes that are no UTF-8 become U+FFFD */
void pickle_open_dict(struct pickle *p);
void pickle_close_dict(struct pickle *p);
/* Items are written in batches: readers keep a whole batch on a stack. pickle_next comes before
 * each item of a list. */
void pickle_open_list(struct pickle *p);
void pickle_next(struct pickle *p);
void pickle_close_list(struct pickle *p);
/* Ends the file and releases what the writer holds. */
enum status pickle_end(struct pickle *p) MUST_CHECK;

/* A text or number under a key, in a dictionary. */
void pickle_set_int(struct pickle *p, const char *key, int64_t x);
void pickle_set_text(struct pickle *p, const char *key, const char *text);

#ifdef __cplusplus
}
#endif
#endif
