/* clock.c: predicted time as one axis: sections one behind the other, each once. */
#include "program/predict.h"

enum status predict_starts(const struct prediction *prediction, const struct program *p,
                           const struct device *device, double *starts, double *section_s)
{
    double start = 0;
    for (size_t i = 0; i < p->sections.n && prediction->seconds; i++) {
        const struct section *s = &p->sections.items[i];
        TRY(predict_section(prediction, p, device, s, starts, &section_s[i]));
        for (int32_t k = s->first; k < s->first + s->n; k++)
            starts[k] += start;
        start += section_s[i];
    }
    return OK;
}

enum status predict_clock(const struct prediction *prediction, const struct program *p,
                          const struct device *device, double *clock)
{
    double now = 0, end = 0, *section_s;
    size_t n = p->instrs.n;
    TRY(mem_try_array(&section_s, p->sections.n + 1, sizeof(*section_s)));
    enum status status = predict_starts(prediction, p, device, clock, section_s);
    for (size_t k = 0; k < n; k++) {
        bool counts = !device->ops->queue || p->instrs.items[k].queue == QUEUE_COMPUTE;
        now = counts ? MAX(now, clock[k]) : now;
        clock[k] = now;
    }
    for (size_t i = 0; i < p->sections.n; i++)
        end += section_s[i];
    clock[n] = MAX(now, end);
    mem_free(section_s);
    return status;
}
