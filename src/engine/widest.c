#include "engine/widest.h"

#include <string.h>

#include "base/half.h"
#include "base/split.h"
#include "engine/weights.h"

/* ---- one format each ------------------------------------------------------------------------- */

static void widen(const struct tensor *t, int64_t n, float *to)
{
    const uint16_t *half = t->data;
    if (t->dtype == DTYPE_F32)
        memcpy(to, t->data, (size_t)n * sizeof(*to));
    for (int64_t k = 0; t->dtype != DTYPE_F32 && k < n; k++)
        to[k] = t->dtype == DTYPE_BF16 ? bf16_to_f32(half[k]) : f16_to_f32(half[k]);
}

static void narrow(const float *from, int64_t n, const struct tensor *t)
{
    uint16_t *half = t->data;
    if (t->dtype == DTYPE_F32)
        memcpy(t->data, from, (size_t)n * sizeof(*from));
    for (int64_t k = 0; t->dtype != DTYPE_F32 && k < n; k++)
        half[k] = t->dtype == DTYPE_BF16 ? bf16_from_f32(from[k]) : f16_from_f32(from[k]);
}

/* `to` has the weights already, which are bf16. */
static void add_rest(const uint8_t *rest, int64_t n, float *to)
{
    for (int64_t k = 0; k < n; k++) {
        uint32_t bits;
        memcpy(&bits, &to[k], sizeof(bits));
        bits = split_join(bits >> 16, rest[k]);
        memcpy(&to[k], &bits, sizeof(bits));
    }
}

static uint32_t split(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return split_nearest(bits);
}

/* ---- through the stage ----------------------------------------------------------------------- */

enum status widest_read(const struct engine *e, int i, int64_t at, int64_t n, float *to)
{
    struct tensor master = engine_master(e, i), host;
    bool splits = master.data && master.dtype == DTYPE_U8;
    struct tensor t = tensor_part(master.data && !splits ? &master : &e->param_tensors[i], at, n);
    BUG_ON(n > WIDEST_MOST || e->params[i].frozen);
    TRY(stage_fetch(e->stage, &t, &host));
    widen(&host, n, to);
    if (!splits)
        return OK;
    t = tensor_part(&master, at, n);
    TRY(stage_fetch(e->stage, &t, &host));
    add_rest(host.data, n, to);
    return OK;
}

/* The bf16 of 24 bits, and the byte below. */
static enum status write_split(const struct engine *e, const struct tensor *weight,
                               const struct tensor *rest, int64_t n, const float *from)
{
    struct tensor host = stage_tensor(e->stage, weight);
    for (int64_t k = 0; k < n; k++)
        ((uint16_t *)host.data)[k] = (uint16_t)(split(from[k]) >> 8);
    TRY(stage_store(e->stage, weight));
    host = stage_tensor(e->stage, rest);
    for (int64_t k = 0; k < n; k++)
        ((uint8_t *)host.data)[k] = (uint8_t)split(from[k]);
    return stage_store(e->stage, rest);
}

enum status widest_write(const struct engine *e, int i, int64_t at, int64_t n, const float *from)
{
    struct tensor whole = engine_master(e, i), master = {0}, host;
    struct tensor weight = tensor_part(&e->param_tensors[i], at, n);
    BUG_ON(n > WIDEST_MOST || e->params[i].frozen);
    if (whole.data)
        master = tensor_part(&whole, at, n);
    if (whole.data && whole.dtype == DTYPE_U8)
        return write_split(e, &weight, &master, n, from);
    if (whole.data) {
        host = stage_tensor(e->stage, &master);
        narrow(from, n, &host);
        TRY(stage_store(e->stage, &master));
    }
    host = stage_tensor(e->stage, &weight);
    narrow(from, n, &host);
    return stage_store(e->stage, &weight);
}
