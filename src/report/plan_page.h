/* plan_page.h: a plan as a page for a browser: one file that needs nothing else.
 *
 * The page itself is in src/report/page; cmake/Page.cmake makes one text of it with a place for the
 * data, and that a part of the library.
 */
#ifndef SNUG_REPORT_PLAN_PAGE_H
#define SNUG_REPORT_PLAN_PAGE_H

#include "report/plan_data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the page shows beside the program. */
struct plan_words {
    const char *forecast;  /* a JSON object, as --json prints it */
    const char *decisions; /* lines */
};

/* Appends the whole page. */
enum status plan_page_print(const struct plan_data *d, const struct plan_words *words,
                            struct str *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
