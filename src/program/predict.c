#include "program/predict.h"

#include <string.h>

#include "base/hash.h"

/* ---- single instructions -------------------------------------------------------------------- */

/* What instructions that run together cost by rate: one start between them, which none of them is
 * charged for. */
static double by_rate(const struct program *p, const struct device *device, int32_t instr)
{
    struct program_cost cost;
    program_cost(p, instr, 1, device, &cost);
    return instr_is_batched(p, device, instr) ? MAX(cost.time_s - device->rates.launch_s, 0.0)
                                              : cost.time_s;
}

/* Distinct calls, by the hash of their text: a network has many instructions and few of these. */
struct known_call {
    uint64_t hash;
    double seconds;
    bool used;
};

struct known_calls {
    struct known_call *slots; /* open addressing: never full */
    size_t n_slots;           /* a power of two */
    struct str text;
};

static enum status known_calls_init(struct known_calls *k, size_t n_instrs)
{
    *k = (struct known_calls){.n_slots = 64};
    while (k->n_slots < 2 * n_instrs)
        k->n_slots *= 2;
    return mem_try_array(&k->slots, k->n_slots, sizeof(*k->slots));
}

static struct known_call *find_call(const struct known_calls *k, uint64_t hash)
{
    size_t at = (size_t)hash & (k->n_slots - 1);
    while (k->slots[at].used && k->slots[at].hash != hash)
        at = (at + 1) & (k->n_slots - 1);
    return &k->slots[at];
}

static enum status predict_call(struct prediction *out, struct known_calls *known,
                                const struct program *p, const struct device *device,
                                const struct kernel_times *times, int32_t instr)
{
    str_clear(&known->text);
    instr_signature(p, device, instr, &known->text);
    TRY(str_status(&known->text));
    uint64_t hash = hash_text(str_text(&known->text));
    struct known_call *call = find_call(known, hash);
    if (!call->used) {
        double seconds = times ? kernel_times_find(times, p, instr) : -1;
        out->n_calls++;
        out->n_by_rate += seconds < 0;
        *call = (struct known_call){hash, seconds < 0 ? by_rate(p, device, instr) : seconds, true};
    }
    out->seconds[instr] = call->seconds;
    return OK;
}

enum status predict(struct prediction *out, const struct program *p, const struct device *device,
                    const struct kernel_times *times)
{
    struct known_calls known;
    enum status status;
    *out = (struct prediction){0};
    TRY(known_calls_init(&known, p->instrs.n));
    TRY_GOTO(mem_try_array(&out->seconds, MAX(p->instrs.n, (size_t)1), sizeof(double)), out);
    for (int32_t k = 0; (size_t)k < p->instrs.n; k++) {
        const struct instr *i = &p->instrs.items[k];
        if (i->kind == INSTR_COMPUTE)
            TRY_GOTO(predict_call(out, &known, p, device, times, k), out);
        else if (i->kind == INSTR_COPY)
            out->seconds[k] = by_rate(p, device, k);
    }
out:
    mem_free(known.slots);
    str_release(&known.text);
    if (status != OK)
        prediction_release(out);
    return status;
}

void prediction_release(struct prediction *p)
{
    mem_free(p->seconds);
    *p = (struct prediction){0};
}

/* ---- queues --------------------------------------------------------------------------------- */

/* Where kernels run when they are called, all queues are one. */
static int clock_of(const struct device *device, enum queue q)
{
    return device->ops->queue ? (int)q : 0;
}

/* Runs a section's instructions on its queues; starts[k - s->first] = when each begins. */
static enum status run_queues(const double *taken, const struct program *p,
                              const struct device *device, const struct section *s, double *starts,
                              double *seconds)
{
    double clocks[QUEUE_COUNT] = {0}, host = 0, *events;
    bool by_host = device->ops->queue && (!device->ops->capture_begin || device->tuning.unrecorded);
    *seconds = 0;
    TRY(mem_try_array(&events, (size_t)MAX(p->n_events, 1), sizeof(*events)));
    for (int32_t k = s->first; k < s->first + s->n; k++) {
        const struct instr *i = &p->instrs.items[k];
        double *now = &clocks[clock_of(device, i->queue)], own = taken[k - s->first];
        if (i->kind == INSTR_WAIT)
            *now = MAX(*now, events[i->event]);
        if (by_host && own > 0) { /* it cannot run before it was enqueued */
            host += instr_is_batched(p, device, k) ? 0 : device->rates.launch_s;
            *now = MAX(*now, host);
        }
        starts[k - s->first] = *now;
        if (i->kind == INSTR_RECORD)
            events[i->event] = *now;
        *now += own;
        *seconds = MAX(*seconds, *now);
    }
    mem_free(events);
    return OK;
}

/* The next copy on queue q from instruction k on; the section's end when there is none. */
static int32_t next_copy(const struct program *p, const struct section *s, enum queue q, int32_t k)
{
    while (k < s->first + s->n &&
           (p->instrs.items[k].kind != INSTR_COPY || p->instrs.items[k].queue != q))
        k++;
    return k;
}

/* A link that carries bytes both ways is slower in each: copies on queue q take longer while one
 * on queue `other` runs, by what the first run of the queues has seen of them. */
static void share_link(const struct program *p, const struct device *device,
                       const struct section *s, enum queue q, enum queue other,
                       const double *starts, const double *before, double *taken)
{
    int32_t end = s->first + s->n, against = next_copy(p, s, other, s->first);
    for (int32_t k = next_copy(p, s, q, s->first); k < end; k = next_copy(p, s, q, k + 1)) {
        const struct operand *o = &p->operands.items[p->instrs.items[k].first_operand];
        const struct link_rate *link = &device->rates.links[o[0].tier][o[1].tier];
        double from = starts[k - s->first], to = from + before[k - s->first], both = 0;
        int32_t j = against;
        for (; j < end; j = next_copy(p, s, other, j + 1)) {
            double begins = starts[j - s->first], ends = begins + before[j - s->first];
            if (begins >= to)
                break;
            both += MAX(MIN(ends, to) - MAX(begins, from), 0.0);
            if (ends <= from)
                against = j;
        }
        if (link->both > 0)
            taken[k - s->first] += MIN(both, to - from) * (link->alone / link->both - 1.0);
    }
}

static bool has_both_ways(const struct program *p, const struct section *s)
{
    int32_t end = s->first + s->n;
    return next_copy(p, s, QUEUE_IN, s->first) < end && next_copy(p, s, QUEUE_OUT, s->first) < end;
}

enum status predict_section(const struct prediction *prediction, const struct program *p,
                            const struct device *device, const struct section *s, double *starts,
                            double *seconds)
{
    size_t n = (size_t)MAX(s->n, 1);
    const double *alone = prediction->seconds + s->first;
    double *taken, *begins = NULL;
    enum status status;
    TRY(mem_try_array(&taken, n, sizeof(*taken)));
    TRY_GOTO(mem_try_array(&begins, n, sizeof(*begins)), out);
    for (int32_t k = 0; k < s->n; k++)
        taken[k] = alone[k];
    TRY_GOTO(run_queues(taken, p, device, s, begins, seconds), out);
    if (device->ops->queue && has_both_ways(p, s)) {
        share_link(p, device, s, QUEUE_IN, QUEUE_OUT, begins, alone, taken);
        share_link(p, device, s, QUEUE_OUT, QUEUE_IN, begins, alone, taken);
        TRY_GOTO(run_queues(taken, p, device, s, begins, seconds), out);
    }
    for (int32_t k = 0; starts && k < s->n; k++)
        starts[s->first + k] = begins[k];
out:
    mem_free(taken);
    mem_free(begins);
    return status;
}

enum status predict_step(const struct prediction *prediction, const struct program *p,
                         const struct device *device, int64_t n_micro, double *seconds)
{
    *seconds = 0;
    for (size_t i = 0; i < p->sections.n; i++) {
        const struct section *s = &p->sections.items[i];
        double once = 0;
        TRY(predict_section(prediction, p, device, s, NULL, &once));
        *seconds += once * (double)section_runs(s, n_micro);
    }
    return OK;
}
