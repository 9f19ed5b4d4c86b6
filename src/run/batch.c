#include "run/batch.h"

/* ---- memory ---------------------------------------------------------------------------------- */

static bool overlap(const struct tensor *a, const struct tensor *b)
{
    const char *a_first = a->data, *b_first = b->data;
    int64_t a_bytes = tensor_bytes(a), b_bytes = tensor_bytes(b);
    return a_bytes > 0 && b_bytes > 0 && a_first < b_first + b_bytes && b_first < a_first + a_bytes;
}

/* A tensor that `a` writes is read or written by b. */
static bool disturbs(const struct op_call *a, const struct op_call *b)
{
    for (int o = 0; o < a->n_out; o++) {
        for (int i = 0; i < b->n_in; i++) {
            if (call_has(b, i) && overlap(&a->out[o], &b->in[i]))
                return true;
        }
        for (int i = 0; i < b->n_out; i++) {
            if (overlap(&a->out[o], &b->out[i]))
                return true;
        }
    }
    return false;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Kernels are of one kind when the device runs them together in the same way. */
static bool can_follow(const struct program *p, const struct device *device,
                       const struct op_call *const *calls, int32_t first, int32_t at)
{
    const struct instr *a = &p->instrs.items[first], *b = &p->instrs.items[at];
    if (b->kind != INSTR_COMPUTE || b->queue != a->queue || b->has_workspace ||
        device->ops->batch(b->kernel) != device->ops->batch(a->kernel))
        return false;
    for (int32_t k = first; k < at; k++) {
        if (disturbs(calls[k], calls[at]) || disturbs(calls[at], calls[k]))
            return false;
    }
    return true;
}

static int32_t run_length(const struct program *p, const struct device *device,
                          const struct op_call *const *calls, int32_t first, int32_t end)
{
    const struct instr *i = &p->instrs.items[first];
    int32_t n = 1;
    if (i->kind != INSTR_COMPUTE || i->has_workspace || !device->ops->batch ||
        !device->ops->batch(i->kernel))
        return 1;
    while (n < BATCH_MOST && first + n < end && can_follow(p, device, calls, first, first + n))
        n++;
    return n;
}

void batch_find(const struct program *p, const struct device *device,
                const struct op_call *const *calls, int32_t *n_together)
{
    for (size_t x = 0; x < p->sections.n; x++) {
        const struct section *s = &p->sections.items[x];
        for (int32_t at = s->first, n; at < s->first + s->n; at += n) {
            n = run_length(p, device, calls, at, s->first + s->n);
            n_together[at] = n;
            for (int32_t k = 1; k < n; k++)
                n_together[at + k] = 0;
        }
    }
}
