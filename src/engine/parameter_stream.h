/* parameter_stream.h: a model's parameters one after the other through one buffer, in f32: from a
 * Hugging Face folder, or drawn from the seed. Nothing is planned and no device is opened, so that
 * what only copies weights (export) runs anywhere, in the memory of the largest of them.
 */
#ifndef SNUG_ENGINE_PARAMETER_STREAM_H
#define SNUG_ENGINE_PARAMETER_STREAM_H

#include "graph/graph.h"
#include "io/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

struct parameter_stream {
    struct graph *graph; /* owns the parameter table */
    struct model_graph io;
    struct weights *weights; /* NULL: drawn from the seed */
    uint64_t seed;
    struct team *team;
    /* What io functions take: tensors whose bytes exist only while the stage fetches them. */
    struct tensor *tensors; /* [io.n_params], f32 */
    struct tensor_stage stage;
};

/* folder NULL: from the seed. n_threads 0: all processors. The stage points to *s, which stays
 * where it is. On failure there is nothing to close. */
enum status parameter_stream_open(struct parameter_stream *s, const struct model *model,
                                  const char *folder, uint64_t seed, int n_threads) MUST_CHECK;
void parameter_stream_close(struct parameter_stream *s);
/* What a process that writes them as `dtype` will hold: what it holds now and buffers. */
int64_t parameter_stream_bytes(const struct parameter_stream *s, enum dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
