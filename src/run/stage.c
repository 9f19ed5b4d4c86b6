/* stage.c: the stage of tensors that need none, and whole tensors through any. */
#include "run/stage.h"

#include <string.h>

static enum status fetch_nothing(void *user, const struct tensor *t, void *buffer)
{
    (void)user;
    (void)t;
    (void)buffer;
    return OK;
}

static enum status store_nothing(void *user, const struct tensor *t, const void *buffer)
{
    (void)user;
    (void)t;
    (void)buffer;
    return OK;
}

const struct tensor_stage host_stage = {.fetch = fetch_nothing, .store = store_nothing};

enum status stage_set(const struct tensor_stage *s, const struct tensor *t, unsigned char byte)
{
    int64_t n = shape_elems(&t->shape), most = stage_elems(s, t, 1);
    for (int64_t at = 0; at < n; at += most) {
        struct tensor part = tensor_part(t, at, MIN(most, n - at)), host = stage_tensor(s, &part);
        memset(host.data, byte, (size_t)tensor_bytes(&host));
        TRY(stage_store(s, &part));
    }
    return OK;
}

enum status stage_read(const struct tensor_stage *s, const struct tensor *t, void *to)
{
    int64_t n = shape_elems(&t->shape), most = stage_elems(s, t, 1);
    for (int64_t at = 0; at < n; at += most) {
        struct tensor part = tensor_part(t, at, MIN(most, n - at)), host;
        TRY(stage_fetch(s, &part, &host));
        memcpy((char *)to + at * dtype_size(t->dtype), host.data, (size_t)tensor_bytes(&host));
    }
    return OK;
}

enum status stage_write(const struct tensor_stage *s, const struct tensor *t, const void *from,
                        struct team *team)
{
    int64_t n = shape_elems(&t->shape), most = stage_elems(s, t, 1);
    for (int64_t at = 0; at < n; at += most) {
        struct tensor part = tensor_part(t, at, MIN(most, n - at)), host = stage_tensor(s, &part);
        team_copy(team, host.data, (const char *)from + at * dtype_size(t->dtype),
                  tensor_bytes(&host));
        TRY(stage_store(s, &part));
    }
    return OK;
}
