/* stage.h: tensors whose bytes may not be in host memory, read and written through a buffer that
 * is.
 *
 * Functions that stream tensors to and from files take a stage, always: tensor.data is whatever the
 * stage's owner understands (a GPU's address) and is never followed without it. Tensors of the host
 * have `host_stage`. There is no meaning to a stage left out, so that one who forgets it fails on
 * every device and not only where the memory is apart.
 */
#ifndef SNUG_RUN_STAGE_H
#define SNUG_RUN_STAGE_H

#include "graph/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tensor_stage {
    void *buffer;    /* of the owner; NULL: none is needed */
    int64_t n_bytes; /* of the buffer: no tensor that goes through it is larger */
    /* Whether the host can follow this tensor's data as it is; NULL: of none, if there is a buffer.
     */
    bool (*is_here)(void *user, const struct tensor *t);
    enum status (*fetch)(void *user, const struct tensor *t, void *buffer);
    enum status (*store)(void *user, const struct tensor *t, const void *buffer);
    void *user;
};

/* Of tensors in host memory: they are read and written where they are. */
extern const struct tensor_stage host_stage;

static inline bool stage_is_needed(const struct tensor_stage *s, const struct tensor *t)
{
    return s->buffer && !(s->is_here && s->is_here(s->user, t));
}

/* *host = t in host memory, to be filled: followed by stage_store. */
static inline struct tensor stage_tensor(const struct tensor_stage *s, const struct tensor *t)
{
    struct tensor host = *t;
    if (stage_is_needed(s, t)) {
        BUG_ON(tensor_bytes(t) > s->n_bytes);
        host.data = s->buffer;
    }
    return host;
}

/* *host = t with its elements in host memory, until the next call. */
static inline enum status MUST_CHECK stage_fetch(const struct tensor_stage *s,
                                                 const struct tensor *t, struct tensor *host)
{
    *host = stage_tensor(s, t);
    return stage_is_needed(s, t) ? s->fetch(s->user, t, s->buffer) : OK;
}

/* What stage_tensor's tensor now holds becomes t's elements. */
static inline enum status MUST_CHECK stage_store(const struct tensor_stage *s,
                                                 const struct tensor *t)
{
    return stage_is_needed(s, t) ? s->store(s->user, t, s->buffer) : OK;
}

#ifdef __cplusplus
}
#endif
#endif
