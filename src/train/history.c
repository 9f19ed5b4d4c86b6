#include "train/history.h"

#include <math.h>

#include "base/alloc.h"
#include "base/json.h"

enum status history_init(struct history *h)
{
    *h = (struct history){.stride = 1};
    return mem_try_array(&h->entries, HISTORY_MOST, sizeof(*h->entries));
}

void history_release(struct history *h)
{
    mem_free(h->entries);
    *h = (struct history){0};
}

/* ---- keeping it small ------------------------------------------------------------------------ */

/* Steps are a stride apart; evaluations, at whatever steps they are, no closer than that. */
static bool is_wanted(const struct history *h, const struct history_entry *e)
{
    if (!e->is_eval)
        return e->step % h->stride == 0;
    for (size_t i = h->n; i-- > 0;) {
        if (h->entries[i].is_eval)
            return e->step - h->entries[i].step >= h->stride;
    }
    return true;
}

/* Takes the entries up again with twice the stride. */
static void thin(struct history *h)
{
    size_t n = h->n;
    h->stride *= 2;
    h->n = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_wanted(h, &h->entries[i]))
            h->entries[h->n++] = h->entries[i];
    }
}

void history_add(struct history *h, const struct history_entry *e)
{
    while (h->n == HISTORY_MOST && is_wanted(h, e))
        thin(h);
    if (is_wanted(h, e))
        h->entries[h->n++] = *e;
}

/* ---- as JSON --------------------------------------------------------------------------------- */

/* Any number may be none: losses that overflowed, fields that somebody took out of a file. */
static json_t *entry_json(const struct history_entry *e)
{
    if (e->is_eval)
        return json_pack("{s:I, s:o, s:o, s:o}", "step", (json_int_t)e->step, "epoch",
                         json_finite(e->epoch), "eval_loss", json_finite(e->loss), "eval_runtime",
                         json_finite(e->seconds));
    return json_pack("{s:I, s:o, s:o, s:o, s:o}", "step", (json_int_t)e->step, "epoch",
                     json_finite(e->epoch), "loss", json_finite(e->loss), "grad_norm",
                     json_finite(e->grad_norm), "learning_rate", json_finite(e->lr));
}

json_t *history_json(const struct history *h)
{
    json_t *log = json_array();
    for (size_t i = 0; log && i < h->n; i++) {
        if (json_array_append_new(log, entry_json(&h->entries[i])) != 0) {
            json_decref(log);
            return NULL;
        }
    }
    return log;
}

/* Of one entry: an object with its table and up to five numbers; its text, which grows by
 * doubling. */
enum { ENTRY_JSON_BYTES = 1024, ENTRY_TEXT_BYTES = 4 * 160 };

int64_t history_bytes(void)
{
    return HISTORY_MOST * (int64_t)sizeof(struct history_entry);
}

int64_t history_json_bytes(int64_t n)
{
    return MIN(n, (int64_t)HISTORY_MOST) * (ENTRY_JSON_BYTES + ENTRY_TEXT_BYTES);
}

static double number(const json_t *object, const char *key)
{
    const json_t *x = json_object_get(object, key);
    return json_is_number(x) ? json_number_value(x) : (double)NAN;
}

/* The stride it was written with: the largest power of two that all noted steps are multiples of.
 * A short one was not thinned. */
static int64_t stride_of(const json_t *log)
{
    size_t i;
    json_t *x;
    int64_t stride = (int64_t)1 << 40;
    json_array_foreach(log, i, x)
    {
        int64_t step = (int64_t)json_integer_value(json_object_get(x, "step"));
        while (json_object_get(x, "loss") && step > 0 && step % stride != 0)
            stride /= 2;
    }
    return json_array_size(log) < HISTORY_MOST / 4 ? 1 : stride;
}

void history_read(struct history *h, const json_t *log)
{
    size_t i;
    json_t *x;
    h->n = 0;
    h->stride = stride_of(log);
    json_array_foreach(log, i, x)
    {
        struct history_entry e = {.step = (int64_t)json_integer_value(json_object_get(x, "step")),
                                  .epoch = number(x, "epoch"),
                                  .is_eval = json_object_get(x, "eval_loss") != NULL};
        e.loss = number(x, e.is_eval ? "eval_loss" : "loss");
        e.grad_norm = number(x, "grad_norm");
        e.lr = number(x, "learning_rate");
        e.seconds = number(x, "eval_runtime");
        if (json_is_integer(json_object_get(x, "step")) && e.step >= 0 && e.step <= INT32_MAX)
            history_add(h, &e);
    }
}
