/* adapter_rows.h: what DoRA begins with: the lengths of the rows of the weights it is beside. */
#ifndef SNUG_ENGINE_ADAPTER_ROWS_H
#define SNUG_ENGINE_ADAPTER_ROWS_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* to[i] is parameter i; the weights are there, and adapters add nothing yet. */
enum status measure_rows(struct engine *e, const struct tensor *to) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
