#include "search/clocks.h"

#include <string.h>

/* What a phase does besides what it always does, and when. */
struct phase_work {
    double seconds; /* of compute */
    int64_t n_in, n_out, largest_in, at_once;
    int copies_in, copies_out;
    double disk_s;       /* of copies to and from disk */
    int after;           /* a phase whose copies out come before its copies in; -1: none */
    double begins, ends; /* compute */
    double leaves, left; /* its copies out begin, and are done */
};

/* What phases do where everything is kept and these homes are elsewhere. Estimates of many saved
 * sets and rings follow each other with the same homes, and most phases do nothing besides. */
struct phases_of_homes {
    struct phase_work *work; /* [n_phases] */
    int *busy, n_busy;       /* phases that do more than compute, or may with some option; and
                              * the last of each section */
    bool *is_open;           /* [n_phases]: that may */
    bool (*away)[HOME_CLASS_COUNT]; /* [n_places] */
    int disk[EXTENT_COUNT];         /* of the decisions */
    bool is_known;
};

/* Of a phase's compute, what is left when the last of its fetches is there. */
static const double tail = 0.3;
/* Of a phase's compute, what is done when its copies out begin. */
static const double head = 0.5;

/* All 0: there is no such link. */
static struct pace pace_of(const struct device *d, enum tier from, enum tier to)
{
    const struct link_rate *r = &d->rates.links[from][to];
    if (r->alone <= 0)
        return (struct pace){0};
    return (struct pace){.alone = 1 / r->alone,
                         .against = r->both > 0 ? 1 / r->both - 1 / r->alone : 0,
                         .copy = r->latency_s};
}

static void open_phase(struct phases_of_homes *h, int phase)
{
    if (phase >= 0)
        h->is_open[phase] = true;
}

/* Those of what is made again or moved. */
static void open_phases(struct phases_of_homes *h, const struct survey *s)
{
    for (int i = 0; i < s->n_places; i++) {
        const struct place_facts *p = &s->places[i];
        open_phase(h, p->backward);
        for (int u = 0; u < p->n_units; u++) {
            open_phase(h, p->units[u].gone);
            open_phase(h, p->units[u].back);
        }
    }
}

static enum status make_scratch(struct clocks *c, struct pool *pool)
{
    const struct survey *s = c->survey;
    const size_t n = (size_t)s->n_phases + 1;
    struct phases_of_homes *h;
    TRY(pool_try(pool, &c->work, n * sizeof(*c->work)));
    TRY(pool_try(pool, &h, sizeof(*h)));
    TRY(pool_try(pool, &h->work, n * sizeof(*h->work)));
    TRY(pool_try(pool, &h->busy, n * sizeof(*h->busy)));
    TRY(pool_try(pool, &h->is_open, n * sizeof(*h->is_open)));
    TRY(pool_try(pool, &h->away, (size_t)s->n_places * sizeof(*h->away)));
    open_phases(h, s);
    c->homes = h;
    return OK;
}

enum status clocks_init(struct clocks *c, struct survey *s, const struct options *options,
                        const struct device *device)
{
    *c = (struct clocks){.survey = s,
                         .options = options,
                         .device = device,
                         .in = pace_of(device, TIER_HOST, TIER_DEVICE),
                         .out = pace_of(device, TIER_DEVICE, TIER_HOST),
                         .disk_in = pace_of(device, TIER_DISK, TIER_HOST),
                         .disk_out = pace_of(device, TIER_HOST, TIER_DISK),
                         .held = 1 - 1.0 / MAX(s->group, 1)};
    if (device->ops->queue) {
        c->wait = device->rates.wait_s;
        c->beside = device_crossing_s(&device->rates);
    }
    return make_scratch(c, &s->pool);
}

enum status clocks_share(const struct clocks *c, struct pool *pool, struct clocks *out)
{
    *out = *c;
    return make_scratch(out, pool);
}

/* ---- what is to be done ---------------------------------------------------------------------- */

static void add_in(struct phase_work *w, int64_t n_bytes, int n_copies, int64_t largest, int after)
{
    w->n_in += n_bytes;
    w->largest_in = MAX(w->largest_in, largest);
    w->after = MAX(w->after, after);
    w->copies_in += n_copies;
}

static void add_out(struct phase_work *w, int64_t n_bytes, int n_copies)
{
    w->n_out += n_bytes;
    w->copies_out += n_copies;
}

/* Seconds of n bytes one way while m go the other. */
static double on_link(const struct pace *link, int64_t n, int64_t m)
{
    return (double)n * link->alone + (double)MIN(n, m) * link->against;
}

/* Bytes to or from disk; where they go by way of the host, that link is much the faster one. */
static void add_disk(const struct clocks *c, struct phase_work *w, int64_t n_in, int64_t n_out,
                     int n_copies)
{
    const struct pace *in = &c->disk_in, *out = &c->disk_out;
    if (in->alone > 0 && out->alone > 0)
        w->disk_s += on_link(in, n_in, n_out) + on_link(out, n_out, n_in) +
                     n_copies * MAX(in->copy, out->copy);
}

static bool is_on_disk(const struct clocks *c, const struct outline *o, enum extent e, int place)
{
    return decisions_tier(o->decisions, e, place, c->survey->n_places - 2) == TIER_DISK;
}

static void add_place(const struct clocks *c, const struct outline *outline, int place, int option)
{
    bool on_disk = is_on_disk(c, outline, EXTENT_MOVED, place);
    const struct place_facts *p = &c->survey->places[place];
    const struct option *o = &c->options[place].items[option];
    if (p->backward >= 0)
        c->work[p->backward].seconds += o->seconds;
    for (int u = 0; o->moved >> u; u++) {
        const struct unit *x = &p->units[u];
        int back = x->back >= 0 ? x->back : p->backward;
        if (!(o->moved >> u & 1) || back < 0 || x->gone < 0)
            continue;
        if (on_disk) {
            add_disk(c, &c->work[x->gone], 0, x->n_movable, 1);
            add_disk(c, &c->work[back], x->n_movable, 0, 1);
            continue;
        }
        add_out(&c->work[x->gone], x->n_movable, 1);
        add_in(&c->work[back], x->n_movable, 1, x->n_movable, x->gone);
    }
}

static void add_touch(const struct touch *t, struct phase_work *work)
{
    struct phase_work *w = &work[t->phase];
    w->at_once += t->at_once;
    if (t->n_in > 0)
        add_in(w, t->n_in, t->copies_in, t->largest_in, t->after);
    if (t->n_out > 0)
        add_out(w, t->n_out, t->copies_out);
    if (t->after >= 0)
        add_out(&work[t->after], t->n_in, t->copies_in);
}

static void add_homes(const struct clocks *c, const struct outline *o, struct phase_work *work)
{
    const struct survey *s = c->survey;
    for (int q = 0; q < s->n_phases; q++)
        work[q] = (struct phase_work){.seconds = s->phases[q].seconds, .after = -1};
    for (int i = 0; i < s->n_touches; i++) {
        const struct touch *t = &s->touches[i];
        if (!o->away[t->place][t->home])
            continue;
        if (is_on_disk(c, o, home_extent(t->home), t->place))
            add_disk(c, &work[t->phase], t->n_in, t->n_out, t->copies_in + t->copies_out);
        else
            add_touch(t, work);
    }
}

static bool ends_section(const struct survey *s, int q)
{
    return q + 1 == s->n_phases || s->phases[q + 1].section != s->phases[q].section;
}

static void list_busy(struct phases_of_homes *h, const struct survey *s)
{
    h->n_busy = 0;
    for (int q = 0; q < s->n_phases; q++) {
        const struct phase_work *w = &h->work[q];
        if (h->is_open[q] || w->n_in > 0 || w->n_out > 0 || w->disk_s > 0 || ends_section(s, q))
            h->busy[h->n_busy++] = q;
    }
}

static void find_homes(const struct clocks *c, const struct outline *o)
{
    struct phases_of_homes *h = c->homes;
    const size_t n_bytes = (size_t)c->survey->n_places * sizeof(*h->away);
    if (h->is_known && memcmp(h->away, o->away, n_bytes) == 0 &&
        memcmp(h->disk, o->decisions->disk, sizeof(h->disk)) == 0)
        return;
    add_homes(c, o, h->work);
    list_busy(h, c->survey);
    memcpy(c->work, h->work, (size_t)c->survey->n_phases * sizeof(*c->work));
    memcpy(h->away, o->away, n_bytes);
    memcpy(h->disk, o->decisions->disk, sizeof(h->disk));
    h->is_known = true;
}

static void gather(const struct clocks *c, const struct outline *o)
{
    const struct phases_of_homes *h = c->homes;
    find_homes(c, o);
    for (int i = 0; i < h->n_busy; i++)
        c->work[h->busy[i]] = h->work[h->busy[i]];
    for (int p = 0; p < c->survey->n_places; p++)
        add_place(c, o, p, o->option[p]);
    for (int i = 0; i < h->n_busy; i++) {
        struct phase_work *w = &c->work[h->busy[i]];
        w->seconds += c->beside * (double)(w->n_in + w->n_out) +
                      c->wait * (double)(w->copies_in + w->copies_out);
    }
}

/* ---- running it ------------------------------------------------------------------------------ */

/* A place in the bytes that a section's phases copy one after the other. */
struct mark {
    int busy;       /* the phase that it is in, among those, */
    int64_t before; /* and the bytes of those before that */
};

/* The clocks of a section, and the windows that the ring leaves them. */
struct run {
    double compute, in, out, disk;
    int64_t n_in, n_out; /* of the phases so far */
    struct mark read;    /* what compute has to have come to for the next fetch to begin */
    struct mark gone;    /* what has to be gone for compute to go on */
};

static const struct phase_work *busy_work(const struct clocks *c, int i)
{
    return &c->work[c->homes->busy[i]];
}

/* When compute comes to the last reader of so many of the bytes that are fetched: those of a phase
 * are read all through it, by each micro-batch of a group. i: the busy phase that is next. */
static double read_by(const struct clocks *c, struct run *r, int64_t n_bytes, int i)
{
    struct mark *m = &r->read;
    if (n_bytes <= 0)
        return 0;
    for (; m->busy < i && m->before + busy_work(c, m->busy)->n_in < n_bytes; m->busy++)
        m->before += busy_work(c, m->busy)->n_in;
    if (m->busy == i)
        return r->compute;
    const struct phase_work *w = busy_work(c, m->busy);
    double part = (double)(n_bytes - m->before) / (double)w->n_in;
    return w->begins + (w->ends - w->begins) * (c->held + (1 - c->held) * part);
}

/* When so many of the bytes that leave are gone. */
static double gone_by(const struct clocks *c, struct run *r, int64_t n_bytes)
{
    struct mark *m = &r->gone;
    if (n_bytes <= 0)
        return 0;
    for (; m->before + busy_work(c, m->busy)->n_out < n_bytes; m->busy++)
        m->before += busy_work(c, m->busy)->n_out;
    const struct phase_work *w = busy_work(c, m->busy);
    return w->leaves + (w->left - w->leaves) * (double)(n_bytes - m->before) / (double)w->n_out;
}

/* Copies in: what the ring has room for comes before the phase begins, a tensor as soon as there is
 * room for it; the rest while it runs. Tensors that a ring has no room for are waited for. It is
 * never quite full: the next tensor has to fit as a whole, and what a node reads leaves at once. */
static double fetch(const struct clocks *c, const struct outline *o, struct run *r, int i,
                    double *begins)
{
    const struct phase_work *w = busy_work(c, i);
    if (w->n_in == 0)
        return 0;
    const int64_t tensor = MIN(w->largest_in, w->n_in), before = r->n_in;
    double all = on_link(&c->in, w->n_in, w->n_out) + c->in.copy * w->copies_in;
    double of_all = 1 / (double)w->n_in, one = (double)tensor * of_all * all;
    double start = MAX(r->in, w->after >= 0 ? c->work[w->after].left : 0);
    r->n_in += w->n_in;
    if (tensor > o->ring_bytes) {
        r->in = MAX(start, r->compute) + all;
        *begins = MAX(*begins, r->in);
        return r->in;
    }
    const int64_t ring = MAX(o->ring_bytes - MAX(tensor, w->at_once) / 2, (int64_t)0);
    double has_room = read_by(c, r, before + tensor - ring, i);
    start = MAX(start, has_room);
    *begins = MAX(*begins, start + one);
    if (w->n_in > ring) {
        double part = (double)ring * of_all;
        r->in = MAX(start + part * all, *begins + c->held * w->seconds) + (1 - part) * all;
    } else {
        has_room = read_by(c, r, r->n_in - ring, i);
        r->in = MAX(start + all, has_room + one);
    }
    return r->in;
}

static void run_phase(const struct clocks *c, const struct outline *o, struct run *r, int i)
{
    struct phase_work *w = &c->work[c->homes->busy[i]];
    w->begins = r->compute;
    r->disk += w->disk_s;
    if (o->ring_bytes == 0)
        w->begins += w->disk_s;
    double there = fetch(c, o, r, i, &w->begins);
    w->ends = MAX(w->begins + w->seconds, there + tail * w->seconds);
    w->leaves = w->left = r->out;
    if (w->n_out > 0) {
        w->leaves = MAX(r->out, w->begins + head * w->seconds);
        r->out = w->left =
            w->leaves + on_link(&c->out, w->n_out, w->n_in) + c->out.copy * w->copies_out;
        r->n_out += w->n_out;
        double has_room = gone_by(c, r, r->n_out - o->ring_bytes);
        w->ends = MAX(w->ends, has_room);
    }
    r->compute = w->ends;
}

/* Where kernels run when they are called, copies are part of the line, but the disk's; of those a
 * phase waits for what its ring has no room for. */
static double in_line(const struct clocks *c, const struct outline *o, int q)
{
    const struct phase_work *w = &c->work[q];
    double start = MAX(c->in.copy, c->device->rates.launch_s);
    double seconds = w->seconds + on_link(&c->in, w->n_in, 0) + on_link(&c->out, w->n_out, 0) +
                     start * (w->copies_in + w->copies_out);
    return o->ring_bytes == 0 ? seconds + w->disk_s : MAX(seconds, w->disk_s);
}

static double run_queues(const struct clocks *c, const struct outline *o)
{
    const struct survey *s = c->survey;
    const struct phases_of_homes *h = c->homes;
    double step = 0;
    struct run r = {0};
    for (int i = 0, q = 0; i < h->n_busy; i++) {
        for (; q < h->busy[i]; q++)
            r.compute += s->phases[q].seconds;
        run_phase(c, o, &r, i);
        if (ends_section(s, q)) {
            step += MAX(MAX(r.compute, r.disk), MAX(r.in, r.out)) *
                    s->section_times[s->phases[q].section];
            r = (struct run){.read.busy = i + 1, .gone.busy = i + 1};
        }
        q++;
    }
    return step;
}

double clocks_step(const struct clocks *c, const struct outline *o)
{
    const struct survey *s = c->survey;
    double step = 0;
    gather(c, o);
    if (c->device->ops->queue)
        return run_queues(c, o);
    for (int q = 0; q < s->n_phases; q++)
        step += in_line(c, o, q) * s->section_times[s->phases[q].section];
    return step;
}
