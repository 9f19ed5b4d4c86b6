#include "report/snapshot.h"

#include <math.h>
#include <stdlib.h>

#include "report/pickle.h"
#include "report/purpose.h"

/* Memory that is taken for a while: a buffer, or what the run has stored beside the program. */
struct span {
    const char *name;
    enum tier tier;
    enum memory_class kind;
    enum purpose purpose;
    int64_t offset, n_bytes;
    int32_t first, last;
};

/* The beginning or the end of one. */
struct moment {
    int32_t at, span;
    bool is_end;
};

struct snapshot {
    const struct plan_data *d;
    const struct program *p;
    struct pickle pickle;
    VEC(struct span) spans;
    struct moment *moments; /* in order */
    double *clock;          /* of predict_clock */
};

/* ---- what there is --------------------------------------------------------------------------- */

static enum status add_buffers(struct snapshot *s, bool *has_buffer)
{
    for (size_t i = 0; i < s->p->buffers.n; i++) {
        const struct buffer *b = &s->p->buffers.items[i];
        if (b->storage >= 0)
            has_buffer[b->storage] = true;
        if (b->merged_into >= 0 || b->n_bytes == 0)
            continue;
        struct span x = {b->name,   b->tier,    b->kind,  purpose_of(s->p, &s->d->stage->plan, b),
                         b->offset, b->n_bytes, b->first, b->last};
        TRY(vec_push(&s->spans, x));
    }
    return OK;
}

static enum status add_reserves(struct snapshot *s, const bool *has_buffer)
{
    int32_t last = (int32_t)s->p->instrs.n - 1;
    for (size_t i = 0; i < s->d->storage->entries.n; i++) {
        const struct storage_entry *e = &s->d->storage->entries.items[i];
        struct span x = {e->name,   e->tier,    e->kind, PURPOSE_RESERVED,
                         e->offset, e->n_bytes, 0,       last};
        if (!has_buffer[i] && e->n_bytes > 0)
            TRY(vec_push(&s->spans, x));
    }
    return OK;
}

/* By address, so that blocks come in the order that a segment has them in. */
static int by_address(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->tier != y->tier)
        return x->tier < y->tier ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Ends before beginnings: what begins may lie where something ended. */
static int by_time(const void *a, const void *b)
{
    const struct moment *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    if (x->is_end != y->is_end)
        return x->is_end ? -1 : 1;
    return (x->span > y->span) - (x->span < y->span);
}

static enum status find_moments(struct snapshot *s)
{
    size_t n = s->spans.n;
    TRY(mem_try_array(&s->moments, 2 * n + 1, sizeof(*s->moments)));
    for (size_t i = 0; i < n; i++) {
        const struct span *x = &s->spans.items[i];
        s->moments[2 * i] = (struct moment){x->first, (int32_t)i, false};
        s->moments[2 * i + 1] = (struct moment){x->last + 1, (int32_t)i, true};
    }
    qsort(s->moments, 2 * n, sizeof(*s->moments), by_time);
    return OK;
}

static enum status find_clock(struct snapshot *s)
{
    TRY(mem_try_array(&s->clock, s->p->instrs.n + 1, sizeof(*s->clock)));
    return predict_clock(&s->d->stage->prediction, s->p, s->d->device, s->clock);
}

static enum status gather(struct snapshot *s)
{
    bool *has_buffer;
    enum status status;
    TRY(mem_try_array(&has_buffer, s->d->storage->entries.n + 1, sizeof(*has_buffer)));
    TRY_GOTO(add_buffers(s, has_buffer), out);
    TRY_GOTO(add_reserves(s, has_buffer), out);
    if (s->spans.n > 0)
        qsort(s->spans.items, s->spans.n, sizeof(*s->spans.items), by_address);
    TRY_GOTO(find_moments(s), out);
    TRY_GOTO(find_clock(s), out);
out:
    mem_free(has_buffer);
    return status;
}

/* ---- the file -------------------------------------------------------------------------------- */

static bool is_whole(const struct snapshot *s, const struct span *x)
{
    return x->first == 0 && (size_t)x->last + 1 >= s->p->instrs.n;
}

/* Tiers are told apart by address too: viewers count how often an address is used. */
static int64_t address_of(enum tier t, int64_t offset)
{
    return ((int64_t)t + 1) * ((int64_t)1 << 44) + offset;
}

static void add_frame(struct pickle *p, const char *file, int64_t line, const char *name)
{
    pickle_next(p);
    pickle_open_dict(p);
    pickle_set_text(p, "filename", file);
    pickle_set_int(p, "line", line);
    pickle_set_text(p, "name", name);
    pickle_close_dict(p);
}

static void add_frames(struct snapshot *s, const struct span *x)
{
    struct pickle *p = &s->pickle;
    struct str place = {0}, text = {0};
    pickle_text(p, "frames");
    pickle_open_list(p);
    add_frame(p, x->name, x->first, purpose_text(x->purpose));
    if (!is_whole(s, x)) {
        const struct instr *i = &s->p->instrs.items[x->first];
        int block = i->kind == INSTR_COMPUTE ? graph_node(s->p->graph, i->node)->block : BLOCK_NONE;
        str_add(&place, instr_part(s->p, i));
        if (block != BLOCK_NONE)
            str_addf(&place, " of block %d", block);
        instr_add_text(s->p, i, &text);
        add_frame(p, str_text(&place), x->first, str_text(&text));
    }
    pickle_close_list(p);
    p->out->failed |= place.failed | text.failed;
    str_release(&place);
    str_release(&text);
}

static void open_event(struct pickle *p, const char *action, int64_t address, int64_t n_bytes,
                       double seconds)
{
    pickle_next(p);
    pickle_open_dict(p);
    pickle_set_text(p, "action", action);
    pickle_set_int(p, "addr", address);
    pickle_set_int(p, "size", n_bytes);
    pickle_set_int(p, "stream", 0);
    pickle_set_int(p, "time_us", llround(1e6 * MIN(seconds, 1e12)));
}

static void add_event(struct snapshot *s, const struct moment *m, const char *action)
{
    const struct span *x = &s->spans.items[m->span];
    open_event(&s->pickle, action, address_of(x->tier, x->offset),
               align_up(x->n_bytes, tier_align(x->tier)), s->clock[m->at]);
    pickle_set_text(&s->pickle, "category", memory_class_name(x->kind));
    add_frames(s, x);
    pickle_close_dict(&s->pickle);
}

/* The arena first. Its class is "unknown": memory_viz fails on categories without one of that. */
static void add_trace(struct snapshot *s, enum tier t)
{
    struct pickle *p = &s->pickle;
    pickle_next(p);
    pickle_open_list(p);
    if (s->p->n_bytes[t] > 0) {
        open_event(p, "segment_alloc", address_of(t, 0), s->p->n_bytes[t], 0);
        pickle_set_text(p, "category", "unknown");
        pickle_close_dict(p);
    }
    for (size_t i = 0; i < 2 * s->spans.n; i++) {
        const struct moment *m = &s->moments[i];
        const struct span *x = &s->spans.items[m->span];
        if (x->tier != t || (m->is_end && is_whole(s, x)))
            continue;
        if (m->is_end)
            add_event(s, m, "free_requested");
        add_event(s, m, m->is_end ? "free_completed" : "alloc");
    }
    pickle_close_list(p);
}

static void add_block(struct snapshot *s, enum tier t, int64_t offset, int64_t n_bytes,
                      const struct span *x)
{
    struct pickle *p = &s->pickle;
    pickle_next(p);
    pickle_open_dict(p);
    pickle_set_int(p, "address", address_of(t, offset));
    pickle_set_int(p, "size", n_bytes);
    pickle_set_int(p, "requested_size", x ? x->n_bytes : n_bytes);
    pickle_set_text(p, "state", x ? "active_allocated" : "inactive");
    if (x)
        add_frames(s, x);
    pickle_close_dict(p);
}

/* What is there when the step is done, and the gaps in between: blocks fill their segment. */
static int64_t add_blocks(struct snapshot *s, enum tier t)
{
    int64_t end = 0, taken = 0;
    pickle_text(&s->pickle, "blocks");
    pickle_open_list(&s->pickle);
    for (size_t i = 0; i < s->spans.n; i++) {
        const struct span *x = &s->spans.items[i];
        if (x->tier != t || !is_whole(s, x))
            continue;
        int64_t n_bytes = align_up(x->n_bytes, tier_align(x->tier));
        if (x->offset > end)
            add_block(s, t, end, x->offset - end, NULL);
        add_block(s, t, x->offset, n_bytes, x);
        end = x->offset + n_bytes;
        taken += n_bytes;
    }
    if (s->p->n_bytes[t] > end)
        add_block(s, t, end, s->p->n_bytes[t] - end, NULL);
    pickle_close_list(&s->pickle);
    return taken;
}

static void add_segment(struct snapshot *s, enum tier t)
{
    struct pickle *p = &s->pickle;
    if (s->p->n_bytes[t] == 0)
        return;
    pickle_next(p);
    pickle_open_dict(p);
    pickle_set_int(p, "device", (int64_t)t);
    pickle_set_int(p, "address", address_of(t, 0));
    pickle_set_int(p, "total_size", s->p->n_bytes[t]);
    pickle_set_int(p, "stream", 0);
    pickle_set_text(p, "segment_type", "large");
    int64_t taken = add_blocks(s, t);
    pickle_set_int(p, "allocated_size", taken);
    pickle_set_int(p, "active_size", taken);
    pickle_set_int(p, "requested_size", taken);
    pickle_close_dict(p);
}

static void print_all(struct snapshot *s)
{
    struct pickle *p = &s->pickle;
    pickle_begin(p);
    pickle_open_dict(p);
    pickle_text(p, "segments");
    pickle_open_list(p);
    for (int t = 0; t < TIER_COUNT; t++)
        add_segment(s, (enum tier)t);
    pickle_close_list(p);
    pickle_text(p, "device_traces");
    pickle_open_list(p);
    for (int t = 0; t < TIER_COUNT; t++)
        add_trace(s, (enum tier)t);
    pickle_close_list(p);
    pickle_close_dict(p);
}

enum status snapshot_print(const struct plan_data *d, struct str *out)
{
    struct snapshot s = {.d = d, .p = d->stage->program, .pickle = {.out = out}};
    enum status status = gather(&s), ended;
    if (status == OK)
        print_all(&s);
    ended = pickle_end(&s.pickle);
    vec_release(&s.spans);
    mem_free(s.moments);
    mem_free(s.clock);
    return status == OK ? ended : status;
}
