#include "program/predict.h"

#include <string.h>

#include "program/queues.h"

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

/* Distinct calls, by their hash: a network has many instructions and few of these. */
struct known_call {
    uint64_t hash;
    double seconds;
    bool used;
};

struct known_calls {
    struct known_call *slots; /* open addressing: never full */
    size_t n_slots;           /* a power of two */
};

static enum status known_calls_init(struct known_calls *k, const struct program *p)
{
    size_t n_calls = 0;
    for (size_t i = 0; i < p->instrs.n; i++)
        n_calls += p->instrs.items[i].kind == INSTR_COMPUTE;
    *k = (struct known_calls){.n_slots = 64};
    while (k->n_slots < 2 * n_calls)
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

static void predict_call(struct prediction *out, struct known_calls *known, const struct program *p,
                         const struct device *device, const struct kernel_times *times,
                         int32_t instr)
{
    uint64_t hash = instr_hash(p, device, instr);
    struct known_call *call = find_call(known, hash);
    if (!call->used) {
        double seconds = times ? kernel_times_find(times, p, instr) : -1;
        out->n_calls++;
        out->n_by_rate += seconds < 0;
        *call = (struct known_call){hash, seconds < 0 ? by_rate(p, device, instr) : seconds, true};
    }
    out->seconds[instr] = call->seconds;
}

/* Bytes that a copy reads from disk, or writes there. */
static int64_t disk_bytes(const struct program *p, int32_t instr, bool written)
{
    const struct instr *i = &p->instrs.items[instr];
    const struct operand *o = &p->operands.items[i->first_operand];
    return i->kind == INSTR_COPY && o[written].tier == TIER_DISK ? o[written].n_bytes : 0;
}

/* Copies from and to disk stand in turns on one queue: so much of a section as goes both ways goes
 * at the rates of that. */
static void predict_turns(struct prediction *out, const struct program *p,
                          const struct device *device, const struct section *s)
{
    int64_t n_bytes[2] = {0};
    for (int32_t k = s->first; k < s->first + s->n; k++) {
        for (int w = 0; w < 2; w++)
            n_bytes[w] += disk_bytes(p, k, w);
    }
    double least = (double)MIN(n_bytes[0], n_bytes[1]);
    for (int32_t k = s->first; least > 0 && k < s->first + s->n; k++) {
        bool written = disk_bytes(p, k, true) > 0;
        int64_t n = disk_bytes(p, k, written);
        const struct operand *o = &p->operands.items[p->instrs.items[k].first_operand];
        const struct link_rate *link = n > 0 ? &device->rates.links[o[0].tier][o[1].tier] : NULL;
        if (link && link->both > 0 && link->both < link->alone)
            out->seconds[k] += least / (double)n_bytes[written] * (double)n *
                               (1.0 / link->both - 1.0 / link->alone);
    }
}

enum status predict(struct prediction *out, const struct program *p, const struct device *device,
                    const struct kernel_times *times)
{
    struct known_calls known;
    enum status status;
    *out = (struct prediction){0};
    TRY(known_calls_init(&known, p));
    TRY_GOTO(mem_try_array(&out->seconds, MAX(p->instrs.n, (size_t)1), sizeof(double)), out);
    for (int32_t k = 0; (size_t)k < p->instrs.n; k++) {
        const struct instr *i = &p->instrs.items[k];
        if (i->kind == INSTR_COMPUTE)
            predict_call(out, &known, p, device, times, k);
        else if (i->kind == INSTR_COPY)
            out->seconds[k] = by_rate(p, device, k);
        else if (i->kind == INSTR_WAIT && i->queue == QUEUE_COMPUTE)
            out->seconds[k] = device->rates.wait_s;
    }
    for (size_t i = 0; i < p->sections.n; i++)
        predict_turns(out, p, device, &p->sections.items[i]);
out:
    mem_free(known.slots);
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

enum status predict_section(const struct prediction *prediction, const struct program *p,
                            const struct device *device, const struct section *s, double *starts,
                            double *seconds)
{
    double *begins;
    TRY(mem_try_array(&begins, (size_t)MAX(s->n, 1), sizeof(*begins)));
    enum status status = queues_run(p, device, s, prediction->seconds + s->first, begins, seconds);
    for (int32_t k = 0; starts && k < s->n; k++)
        starts[s->first + k] = begins[k];
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
        *seconds += once * (double)section_runs(p, s, n_micro);
    }
    return OK;
}
