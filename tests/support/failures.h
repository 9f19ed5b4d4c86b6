/* failures.h: which allocation or write fails next, in tests that let one after another fail until
 * none does.
 *
 * Every one of the first is tried, then fewer and fewer of those behind them: most of these are the
 * same line again, with the next element of a list.
 */
#ifndef SNUG_TESTS_FAILURES_H
#define SNUG_TESTS_FAILURES_H

#include <stdint.h>

#include "base/compiler.h"

static inline int64_t next_failure(int64_t n)
{
    return n + 1 + n / (SNUG_ASAN ? 8 : 32);
}

#endif
