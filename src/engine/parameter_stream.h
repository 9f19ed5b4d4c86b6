/* parameter_stream.h: a model's parameters one after the other through one buffer, in f32: from a
 * Hugging Face folder, or drawn from the seed; of a model with an adapter those that are trained
 * from the adapter's folder, and the others as they are or with the adapter merged into them.
 * Nothing is planned and no device is opened, so that what only copies weights (export) runs
 * anywhere, in the memory of the largest of them.
 */
#ifndef SNUG_ENGINE_PARAMETER_STREAM_H
#define SNUG_ENGINE_PARAMETER_STREAM_H

#include "engine/adapter_config.h"
#include "graph/graph.h"
#include "io/peft.h"
#include "io/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

struct parameter_stream {
    struct graph *graph; /* owns the parameter table */
    struct model_graph io;
    struct weights *weights;    /* NULL: drawn from the seed */
    struct model_param *stored; /* [n_stored], which `weights` reads: not an adapter's */
    int *index;                 /* [n_stored], in io.params */
    int n_stored;
    struct weights *adapter; /* reads the table; NULL: drawn too */
    struct peft_table table; /* what is trained beside an adapter */
    bool merges;
    float *merging; /* matrices of an adapter, while they are merged */
    uint64_t seed;
    struct team *team;
    /* What io functions take: tensors whose bytes exist only while the stage fetches them. */
    struct tensor *tensors; /* [io.n_params], f32 */
    struct tensor_stage stage;
};

struct parameter_stream_options {
    const struct model *model;
    struct weight_folders folders;
    uint64_t seed;
    int n_threads; /* 0: all processors */
    bool merge;    /* W + scale B A instead of W */
};

/* The stage points to *s, which stays where it is. On failure there is nothing to close. */
enum status parameter_stream_open(struct parameter_stream *s,
                                  const struct parameter_stream_options *o) MUST_CHECK;
/* Parameter i as it is stored or drawn, in f32. */
enum status parameter_stream_read(const struct parameter_stream *s, int i,
                                  float *buffer) MUST_CHECK;
void parameter_stream_close(struct parameter_stream *s);
/* What a process that writes them as `dtype` will hold: what it holds now and buffers. */
int64_t parameter_stream_bytes(const struct parameter_stream *s, enum dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
