/* stage.h: tensors whose bytes are not in host memory, read and written through a buffer that is.
 *
 * Functions that stream tensors to and from files take a stage; NULL means that tensor.data is host
 * memory. With a stage, tensor.data is whatever the owner's functions understand (a GPU's address)
 * and is never followed here.
 */
#ifndef SNUG_IO_STAGE_H
#define SNUG_IO_STAGE_H

#include "graph/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tensor_stage {
    void *buffer; /* of the owner, large enough for each of its tensors */
    enum status (*fetch)(void *user, const struct tensor *t, void *buffer);
    enum status (*store)(void *user, const struct tensor *t, const void *buffer);
    void *user;
};

/* *host = t in host memory, to be filled: followed by stage_store. */
static inline struct tensor stage_tensor(const struct tensor_stage *s, const struct tensor *t)
{
    struct tensor host = *t;
    if (s)
        host.data = s->buffer;
    return host;
}

/* *host = t with its elements in host memory, until the next call. */
static inline enum status MUST_CHECK stage_fetch(const struct tensor_stage *s,
                                                 const struct tensor *t, struct tensor *host)
{
    *host = stage_tensor(s, t);
    return s ? s->fetch(s->user, t, s->buffer) : OK;
}

/* What stage_tensor's tensor now holds becomes t's elements. */
static inline enum status MUST_CHECK stage_store(const struct tensor_stage *s,
                                                 const struct tensor *t)
{
    return s ? s->store(s->user, t, s->buffer) : OK;
}

#ifdef __cplusplus
}
#endif
#endif
