/* stage.h: tensors whose bytes may not be in host memory, read and written through a buffer that
 * is.
 *
 * Functions that stream tensors to and from files take a stage, always: tensor.data is whatever the
 * stage's owner understands (a GPU's address) and is never followed without it. Tensors of the host
 * have `host_stage`. There is no meaning to a stage left out, so that one who forgets it fails on
 * every device and not only where the memory is apart.
 */
#ifndef SNUG_IO_STAGE_H
#define SNUG_IO_STAGE_H

#include "graph/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tensor_stage {
    void *buffer; /* of the owner, large enough for each of its tensors; NULL: none is needed */
    enum status (*fetch)(void *user, const struct tensor *t, void *buffer);
    enum status (*store)(void *user, const struct tensor *t, const void *buffer);
    void *user;
};

/* Of tensors in host memory: they are read and written where they are. */
extern const struct tensor_stage host_stage;

/* *host = t in host memory, to be filled: followed by stage_store. */
static inline struct tensor stage_tensor(const struct tensor_stage *s, const struct tensor *t)
{
    struct tensor host = *t;
    if (s->buffer)
        host.data = s->buffer;
    return host;
}

/* *host = t with its elements in host memory, until the next call. */
static inline enum status MUST_CHECK stage_fetch(const struct tensor_stage *s,
                                                 const struct tensor *t, struct tensor *host)
{
    *host = stage_tensor(s, t);
    return s->fetch(s->user, t, s->buffer);
}

/* What stage_tensor's tensor now holds becomes t's elements. */
static inline enum status MUST_CHECK stage_store(const struct tensor_stage *s,
                                                 const struct tensor *t)
{
    return s->store(s->user, t, s->buffer);
}

#ifdef __cplusplus
}
#endif
#endif
