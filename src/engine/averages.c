#include "engine/averages.h"

#include <stdio.h>
#include <string.h>

#include "base/half.h"

/* The state "<prefix>.<parameter i>", f32; data NULL: there is none. */
static struct tensor beside(const struct engine *e, const char *prefix, int i)
{
    char name[256];
    struct tensor t = {.dtype = DTYPE_F32, .shape = e->param_tensors[i].shape};
    (void)snprintf(name, sizeof(name), "%s.%s", prefix, e->params[i].name);
    const struct storage_entry *entry = storage_find(&e->work.storage, name);
    if (entry)
        t.data = executor_storage_address(e->executor, entry);
    return t;
}

static float element(const struct tensor *t, int64_t i)
{
    if (t->dtype == DTYPE_F32)
        return ((const float *)t->data)[i];
    uint16_t x = ((const uint16_t *)t->data)[i];
    return t->dtype == DTYPE_BF16 ? bf16_to_f32(x) : f16_to_f32(x);
}

/* From the last element on: where both go through the stage's buffer, the wider one is written over
 * what was read already. */
static enum status widen(struct engine *e, const struct tensor *from, const struct tensor *to)
{
    int64_t n = shape_elems(&to->shape);
    int64_t most = MIN(stage_elems(e->stage, from, 1), stage_elems(e->stage, to, 1));
    for (int64_t at = 0; at < n; at += most) {
        struct tensor source = tensor_part(from, at, MIN(most, n - at)), in;
        struct tensor part = tensor_part(to, at, MIN(most, n - at));
        struct tensor out = stage_tensor(e->stage, &part);
        TRY(stage_fetch(e->stage, &source, &in));
        for (int64_t i = shape_elems(&in.shape) - 1; i >= 0; i--)
            ((float *)out.data)[i] = element(&in, i);
        TRY(stage_store(e->stage, &part));
    }
    return OK;
}

enum status averages_start(struct engine *e, const struct tensor *from)
{
    static const char *const prefixes[] = {"ema", "slow"};
    for (int i = 0; i < e->n_params; i++) {
        for (size_t k = 0; k < ARRAY_LEN(prefixes); k++) {
            struct tensor to = beside(e, prefixes[k], i);
            if (to.data)
                TRY(widen(e, &from[i], &to));
        }
    }
    return OK;
}

/* ---- swapping -------------------------------------------------------------------------------- */

enum { CHUNK = 1 << 16 }; /* elements that are swapped at once */

/* A weight of 16 bits takes the upper half of the average, rounded to nearest, and the average's
 * place the weight and the lower half, counted from the middle between neighbours (base/split.h):
 * nothing is lost. Back: `weights` is what the average's upper half became. */
static void swap_bf16(uint16_t *weights, uint32_t *averages, int64_t n, bool back)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t x = averages[i], w = weights[i];
        uint32_t moved = x + 0x8000u;
        weights[i] = (uint16_t)((back ? x : moved) >> 16);
        averages[i] = back ? (w << 16 | (x & 0xffffu)) - 0x8000u : w << 16 | (moved & 0xffffu);
    }
}

static void swap_f32(float *a, float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float x = a[i];
        a[i] = b[i];
        b[i] = x;
    }
}

/* Elements [at, at + n); `held` has room for the average's. */
static enum status swap_part(struct engine *e, const struct tensor *weight,
                             const struct tensor *average, void *held, bool back)
{
    struct tensor host;
    int64_t n = shape_elems(&weight->shape);
    TRY(stage_fetch(e->stage, average, &host));
    memcpy(held, host.data, (size_t)n * sizeof(float));
    TRY(stage_fetch(e->stage, weight, &host));
    if (weight->dtype == DTYPE_F32)
        swap_f32(host.data, held, n);
    else
        swap_bf16(host.data, held, n, back);
    TRY(stage_store(e->stage, weight));
    host = stage_tensor(e->stage, average);
    memcpy(host.data, held, (size_t)n * sizeof(float));
    return stage_store(e->stage, average);
}

static enum status swap_all(struct engine *e, float *held)
{
    for (int i = 0; i < e->n_params; i++) {
        const struct tensor *weight = &e->param_tensors[i], average = beside(e, "ema", i);
        int64_t n = average.data ? shape_elems(&weight->shape) : 0;
        int64_t most = MIN((int64_t)CHUNK, n ? stage_elems(e->stage, &average, 1) : 1);
        most = MIN(most, stage_elems(e->stage, weight, 1));
        for (int64_t at = 0; at < n; at += most) {
            int64_t size = MIN(most, n - at);
            struct tensor w = tensor_part(weight, at, size), a = tensor_part(&average, at, size);
            TRY(swap_part(e, &w, &a, held, e->averages_are_weights));
        }
    }
    return OK;
}

enum status averages_swap(struct engine *e)
{
    float *held;
    if (!(e->settings.numerics.optimizer.ema_decay > 0))
        return OK;
    TRY(mem_try_array(&held, CHUNK, sizeof(*held)));
    enum status status = swap_all(e, held);
    mem_free(held);
    e->averages_are_weights = !e->averages_are_weights;
    return status;
}
