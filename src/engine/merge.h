/* merge.h: an adapter's matrices added to the weights they are beside, in f32. */
#ifndef SNUG_ENGINE_MERGE_H
#define SNUG_ENGINE_MERGE_H

#include "engine/parameter_stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Elements that s->merging needs. */
int64_t merge_elems(const struct parameter_stream *s);

/* Adds what adapters have for parameter i to it; nothing where none is beside it. */
enum status merge_into(const struct parameter_stream *s, int i, float *weight) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
