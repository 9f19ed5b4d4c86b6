/* likeness.h: are two ways of running a step much the same?
 *
 * What the model of time has wrong of one is then wrong of the other too, and a clock tells them
 * apart no better than the model does: a list of runners-up has use for one of them. */
#ifndef SNUG_SEARCH_LIKENESS_H
#define SNUG_SEARCH_LIKENESS_H

#include "search/decisions.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Decisions of one search: both have places. */
bool decisions_are_alike(const struct decisions *a, const struct decisions *b);

#ifdef __cplusplus
}
#endif
#endif
