/* peaks.c: how many bytes a program has alive in each phase of a survey. */
#include <string.h>

#include "search/survey.h"

/* What comes before a phase's first node (fetches, nodes that run again) is part of it. */
static void peaks_of_sections(const struct survey *s, const struct program *p,
                              const int64_t *changes, int64_t *peaks)
{
    int64_t live = 0, most = 0;
    int phase = 0;
    for (size_t k = 0; k < p->instrs.n; k++) {
        const struct instr *i = &p->instrs.items[k];
        live += changes[k];
        most = MAX(most, live);
        if (i->kind != INSTR_COMPUTE || i->recompute || s->phase_of[i->node] < 0)
            continue;
        phase = s->phase_of[i->node];
        peaks[phase] = MAX(peaks[phase], most);
        most = live;
    }
    if (s->n_phases > 0)
        peaks[phase] = MAX(peaks[phase], most);
}

enum status survey_peaks(const struct survey *s, const struct program *p, int64_t *peaks)
{
    int64_t *changes;
    TRY(mem_try_array(&changes, p->instrs.n + 1, sizeof(*changes)));
    memset(peaks, 0, (size_t)s->n_phases * sizeof(*peaks));
    for (size_t i = 0; i < p->buffers.n; i++) {
        const struct buffer *b = &p->buffers.items[i];
        if (b->tier != TIER_DEVICE || b->storage >= 0 || b->merged_into >= 0 || b->last < b->first)
            continue;
        int64_t n_bytes = align_up(b->n_bytes, ARENA_ALIGN);
        changes[b->first] += n_bytes;
        changes[b->last + 1] -= n_bytes;
    }
    peaks_of_sections(s, p, changes, peaks);
    mem_free(changes);
    return OK;
}
