/* stage.h: tensors whose bytes may not be in host memory, read and written through a buffer that
 * is.
 *
 * The buffer may be smaller than a tensor. Then it goes through in parts:
 *
 *     int64_t n = shape_elems(&t->shape), most = stage_elems(stage, t, 1);
 *     for (int64_t at = 0; at < n; at += most) {
 *         struct tensor part = tensor_part(t, at, MIN(most, n - at)), host;
 *         TRY(stage_fetch(stage, &part, &host));
 *         ...
 *     }
 *
 * Functions that stream tensors to and from files take a stage, always: tensor.data is whatever the
 * stage's owner understands (a GPU's address) and is never followed without it. Tensors of the host
 * have `host_stage`. There is no meaning to a stage left out, so that one who forgets it fails on
 * every device and not only where the memory is apart.
 */
#ifndef SNUG_RUN_STAGE_H
#define SNUG_RUN_STAGE_H

#include "base/team.h"
#include "graph/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tensor_stage {
    void *buffer;    /* of the owner; NULL: none is needed */
    int64_t n_bytes; /* of the buffer: nothing that goes through it at once is larger */
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

/* Elements [first, first + n) of t, as a vector; all of them: t itself. */
static inline struct tensor tensor_part(const struct tensor *t, int64_t first, int64_t n)
{
    struct tensor part = {t->dtype, shape_of(1, n), (char *)t->data + first * dtype_size(t->dtype)};
    return first == 0 && n == shape_elems(&t->shape) ? *t : part;
}

/* How many elements of t go through at once, at least 1: all, or a multiple of `unit`, the fewest
 * that have to stay together, for which there is room. */
static inline int64_t stage_elems(const struct tensor_stage *s, const struct tensor *t,
                                  int64_t unit)
{
    int64_t n = MAX(shape_elems(&t->shape), (int64_t)1);
    if (!stage_is_needed(s, t) || tensor_bytes(t) <= s->n_bytes)
        return n;
    int64_t most = s->n_bytes / dtype_size(t->dtype) / unit * unit;
    BUG_ON(most <= 0);
    return most;
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

/* Every byte of t becomes this one. */
enum status stage_set(const struct tensor_stage *s, const struct tensor *t,
                      unsigned char byte) MUST_CHECK;
/* Between t and memory of its size. */
enum status stage_read(const struct tensor_stage *s, const struct tensor *t, void *to) MUST_CHECK;
enum status stage_write(const struct tensor_stage *s, const struct tensor *t, const void *from,
                        struct team *team) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
