#include "search/survey.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* What a survey is made from. */
struct surveyor {
    struct survey *s;
    const struct graph *g;
    const struct plan *plan; /* keeps everything */
    const struct plan *configured;
    const struct program *program;
    const struct decisions *base;
    int group;       /* micro-batches that run together: a place's units are those of the first, */
                     /* and weigh as much as those of all */
    double *seconds; /* per node */
    int *n_seen;     /* per place: forward nodes so far */
    int64_t *least;  /* per place: smaller nodes are no units, */
    int *n_of_least; /* and of those that are as large so many */
    int *unit_of;    /* per value: the unit that makes it; -1 */
    int *fetched;    /* per value: the last phase that it was counted in; -1 */
    int *written;    /* likewise, where it is sent back */
    int *ends;       /* per root: the last phase that touches it; -1 */
    bool in_one;     /* a step is one group: sums that are used up where they are made stay */
    node_id reader;  /* the last that something is fetched for, */
    int64_t n_read[HOME_CLASS_COUNT]; /* and how much, by class */
    VEC(struct touch) touches;
};

/* ---- phases ---------------------------------------------------------------------------------- */

static bool starts_phase(const struct node *n, const struct node *before)
{
    return !before || n->block != before->block ||
           (n->pass == PASS_FORWARD) != (before->pass == PASS_FORWARD);
}

/* A further slice of a node, in the section that its first one is in. */
static void add_slice(struct surveyor *x, node_id k, int section, double seconds)
{
    struct phase *p = &x->s->phases[x->s->phase_of[k]];
    if (p->section != section)
        return;
    p->seconds += seconds;
    x->seconds[k] += seconds;
}

/* The last micro-step has the nodes of the others once more: of it only the updates count as a
 * section of their own. */
static enum status find_phases(struct surveyor *x, const double *instr_seconds)
{
    struct survey *s = x->s;
    const struct program *p = x->program;
    TRY(pool_try(&s->pool, &s->phases, (p->instrs.n + 1) * sizeof(*s->phases)));
    TRY(pool_try(&s->pool, &s->phase_of, (x->g->nodes.n + 1) * sizeof(*s->phase_of)));
    for (size_t k = 0; k < x->g->nodes.n; k++)
        s->phase_of[k] = -1;
    for (int i = 0; i < (int)p->sections.n; i++) {
        const struct section *section = &p->sections.items[i];
        const struct node *before = NULL;
        int beside = -1;
        for (int32_t k = section->first; k < section->first + section->n; k++) {
            const struct instr *instr = &p->instrs.items[k];
            if (instr->kind != INSTR_COMPUTE)
                continue;
            if (s->phase_of[instr->node] >= 0) {
                if (s->phases[s->phase_of[instr->node]].section != i)
                    beside = s->phase_of[instr->node];
                add_slice(x, instr->node, i, instr_seconds[k]);
                continue;
            }
            const struct node *n = graph_node(x->g, instr->node);
            if (starts_phase(n, before)) {
                s->phases[s->n_phases] =
                    (struct phase){.place = place_of_node(x->plan, x->g, instr->node),
                                   .section = i,
                                   .beside = beside < 0 ? s->n_phases : beside};
                s->n_phases++;
            }
            before = n;
            s->phase_of[instr->node] = s->n_phases - 1;
            s->phases[s->n_phases - 1].seconds += instr_seconds[k];
            x->seconds[instr->node] = instr_seconds[k];
        }
    }
    return OK;
}

static enum status find_sections(struct surveyor *x, int64_t n_micro)
{
    struct survey *s = x->s;
    s->n_sections = (int)x->program->sections.n;
    TRY(pool_try(&s->pool, &s->section_times, (size_t)(s->n_sections + 1) * sizeof(double)));
    for (int i = 0; i < s->n_sections; i++) {
        const char *name = x->program->sections.items[i].name;
        bool repeats = strcmp(name, "micro") == 0 || strcmp(name, "group") == 0;
        s->section_times[i] =
            repeats ? (double)MAX((n_micro + x->group - 1) / x->group, (int64_t)1) : 1;
    }
    return OK;
}

/* ---- units ----------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * UINT64_C(0x100000001b3);
}

static uint64_t mix_value(const struct graph *g, uint64_t hash, value_id v)
{
    const struct value *x = graph_value(g, v);
    hash = mix(mix(hash, (uint64_t)x->dtype), (uint64_t)x->shape.rank);
    for (int i = 0; i < x->shape.rank; i++)
        hash = mix(hash, (uint64_t)x->shape.dim[i]);
    return hash;
}

/* What distinguishes a node from one of another place: its op, shapes, and what it reads of its own
 * place. Attributes are in the shapes and the time it takes. */
static uint64_t mix_node(const struct surveyor *x, uint64_t hash, node_id k)
{
    const struct node *n = graph_node(x->g, k);
    hash = mix(mix(hash, (uint64_t)n->op), (uint64_t)n->n_in);
    for (int i = 0; i < n->n_out; i++)
        hash = mix_value(x->g, hash, n->out[i]);
    return mix(hash, hash_bytes(&x->seconds[k], sizeof(double)));
}

static uint64_t mix_unit(uint64_t hash, const struct unit *u)
{
    hash = mix(mix(hash, (uint64_t)u->index), u->reads);
    hash = mix(mix(hash, (uint64_t)u->n_bytes), (uint64_t)u->n_movable);
    return mix(hash, (uint64_t)(u->wanted | u->may_drop << 1 | u->drop_by_default << 2));
}

static void note_output(const struct surveyor *x, struct unit *u, value_id v)
{
    const struct plan_fact *f = &x->plan->facts[v];
    int64_t n_bytes = align_up(value_bytes(x->g, v), ARENA_ALIGN);
    u->n_bytes += x->group * n_bytes;
    u->wanted |= f->first_backward != NODE_NONE;
    if (decisions_is_large(x->base, x->g, v) && plan_allows(x->plan, x->g, v, MOVE)) {
        u->n_movable += x->group * n_bytes;
        u->largest = MAX(u->largest, n_bytes);
    }
    u->may_drop &= plan_may_drop(x->plan, x->g, v);
    u->drop_by_default |= x->configured->treat[v] == RECOMPUTE;
}

/* Bytes of a node's outputs where all of them are memory of their own that may be kept; else 0. */
static int64_t own_bytes(const struct graph *g, const struct node *n)
{
    int64_t n_bytes = 0;
    if (op_get(n->op)->recompute == RECOMPUTE_ALWAYS)
        return 0; /* nothing is to be decided about it */
    for (int i = 0; i < n->n_out; i++) {
        if (value_root(g, n->out[i]) != n->out[i])
            return 0;
        n_bytes += align_up(value_bytes(g, n->out[i]), ARENA_ALIGN);
    }
    return n_bytes;
}

static const char *short_name(const struct graph *g, const struct node *n)
{
    const char *name = graph_value(g, n->out[0])->name, *dot = strrchr(name, '.');
    return dot ? dot + 1 : name[0] ? name : op_get(n->op)->name;
}

/* Is a node with such outputs one of the largest of its place? Of those that are as large as the
 * last of these, the first. */
static bool takes_unit(struct surveyor *x, int place, int64_t n_bytes)
{
    if (n_bytes == x->least[place])
        return x->n_of_least[place]-- > 0;
    return n_bytes > x->least[place];
}

static void add_unit(struct surveyor *x, node_id k, int place)
{
    struct place_facts *p = &x->s->places[place];
    const struct node *n = graph_node(x->g, k);
    int64_t n_bytes = own_bytes(x->g, n);
    if (n_bytes == 0 || !takes_unit(x, place, n_bytes))
        return;
    struct unit u = {.name = short_name(x->g, n),
                     .index = x->n_seen[place],
                     .seconds = x->group * x->seconds[k],
                     .may_drop = true,
                     .gone = x->s->phase_of[k],
                     .back = -1};
    for (int i = 0; i < n->n_out; i++) {
        note_output(x, &u, n->out[i]);
        x->unit_of[n->out[i]] = p->n_units;
    }
    p->units[p->n_units++] = u;
}

static int descending(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x < *y) - (*x > *y);
}

/* A forward node of the first micro-batch of a group. */
static bool is_first(const struct node *n)
{
    return n->pass == PASS_FORWARD && n->micro == 0;
}

/* Counts the forward nodes of a place; of many, only the largest become units. */
static enum status weigh_nodes(struct surveyor *x, int place)
{
    int64_t *weights;
    int n = 0;
    TRY(pool_try(&x->s->pool, &weights, (x->g->nodes.n + 1) * sizeof(*weights)));
    for (node_id k = 0; (size_t)k < x->g->nodes.n; k++) {
        const struct node *node = graph_node(x->g, k);
        if (is_first(node) && place_of_node(x->plan, x->g, k) == place)
            weights[n++] = own_bytes(x->g, node);
    }
    qsort(weights, (size_t)n, sizeof(*weights), descending);
    x->least[place] = n > MAX_UNITS ? weights[MAX_UNITS - 1] : 0;
    for (int i = MIN(n, (int)MAX_UNITS); i-- > 0 && weights[i] == x->least[place];)
        x->n_of_least[place]++;
    x->s->places[place].n_nodes = n;
    return OK;
}

static void note_reads(struct surveyor *x, node_id k)
{
    const struct node *n = graph_node(x->g, k);
    int place = place_of_node(x->plan, x->g, k), phase = x->s->phase_of[k];
    for (int i = 0; i < n->n_in; i++) {
        value_id v = n->in[i] == VALUE_NONE ? VALUE_NONE : value_view_root(x->g, n->in[i]);
        if (v == VALUE_NONE || x->unit_of[v] < 0 || phase < 0)
            continue;
        int owner = place_of_node(x->plan, x->g, graph_value(x->g, v)->producer);
        struct unit *u = &x->s->places[owner].units[x->unit_of[v]];
        if (n->pass == PASS_FORWARD)
            u->gone = MAX(u->gone, phase);
        else if (n->pass == PASS_BACKWARD && (u->back < 0 || phase < u->back))
            u->back = phase;
        int reader = n->pass == PASS_FORWARD && n->n_out > 0 ? x->unit_of[n->out[0]] : -1;
        if (owner == place && reader >= 0)
            x->s->places[place].units[reader].reads |= 1u << x->unit_of[v];
    }
}

static enum status find_units(struct surveyor *x)
{
    struct survey *s = x->s;
    for (int p = 0; p < s->n_places; p++) {
        TRY(weigh_nodes(x, p));
        TRY(pool_try(&s->pool, &s->places[p].units, (MAX_UNITS + 1) * sizeof(struct unit)));
    }
    for (node_id k = 0; (size_t)k < x->g->nodes.n; k++) {
        if (!is_first(graph_node(x->g, k)))
            continue;
        int place = place_of_node(x->plan, x->g, k);
        add_unit(x, k, place);
        s->places[place].shape = mix_node(x, s->places[place].shape, k);
        x->n_seen[place]++;
    }
    for (node_id k = 0; (size_t)k < x->g->nodes.n; k++)
        note_reads(x, k);
    for (int p = 0; p < s->n_places; p++)
        for (int u = 0; u < s->places[p].n_units; u++)
            s->places[p].shape = mix_unit(s->places[p].shape, &s->places[p].units[u]);
    return OK;
}

/* ---- what crosses the link ------------------------------------------------------------------- */

static struct touch *touch_of(struct surveyor *x, int phase, int place, enum home_class home,
                              int after)
{
    for (size_t i = x->touches.n; i-- > 0 && x->touches.items[i].phase == phase;) {
        struct touch *t = &x->touches.items[i];
        if (t->place == place && t->home == home && t->after == after)
            return t;
    }
    struct touch t = {.phase = phase, .place = place, .home = home, .after = after};
    return vec_push(&x->touches, t) == OK ? &x->touches.items[x->touches.n - 1] : NULL;
}

/* How much of n_bytes a node needs at once. */
static int64_t bytes_at_once(const struct surveyor *x, node_id k, int64_t n_bytes)
{
    bool in_slices = x->base->slice_bytes > 0 && node_sliceable(x->g, graph_node(x->g, k)) > 0;
    return in_slices ? plan_slice_bytes(x->base->slice_bytes, n_bytes) : n_bytes;
}

/* Bytes of a class that are fetched for a node, with these. */
static int64_t read_with(struct surveyor *x, node_id k, enum home_class home, int64_t n_bytes)
{
    if (x->reader != k)
        memset(x->n_read, 0, sizeof(x->n_read));
    x->reader = k;
    return x->n_read[home] += n_bytes;
}

/* A root that a node reads: fetched once in a phase, and sent back when it was written. */
static enum status touch_root(struct surveyor *x, node_id k, value_id root, bool is_written)
{
    enum home_class home = home_class_of(graph_value(x->g, root)->role);
    int phase = x->s->phase_of[k];
    if (home == HOME_CLASS_COUNT || phase < 0 || !decisions_is_large(x->base, x->g, root))
        return OK;
    struct touch *t = touch_of(x, phase, place_of_root(x->plan, x->g, root), home, -1);
    if (!t)
        return ERR_MEMORY;
    int64_t n_bytes = value_bytes(x->g, root);
    bool used_up = x->in_one && home == HOME_GRADIENTS && x->ends[root] == phase;
    if (is_written && x->written[root] != phase && !used_up) {
        t->n_out += n_bytes;
        t->copies_out++;
        x->written[root] = phase;
    } else if (!is_written && x->fetched[root] != phase) {
        t->n_in += n_bytes;
        t->copies_in++;
        t->largest_in = MAX(t->largest_in, bytes_at_once(x, k, n_bytes));
        t->at_once = MAX(t->at_once, read_with(x, k, home, n_bytes));
        x->fetched[root] = phase;
    }
    return OK;
}

/* A gradient that waits for the norm of all: out where it is made, back where it is used. */
static enum status touch_gradient(struct surveyor *x, node_id k, value_id v)
{
    const struct value *g = graph_value(x->g, v);
    int made = x->s->phase_of[g->producer], used = x->s->phase_of[k];
    int64_t n_bytes = value_bytes(x->g, v);
    int place = place_of_node(x->plan, x->g, g->producer);
    if (made < 0 || used <= made || x->fetched[v] == used ||
        !decisions_is_large(x->base, x->g, v) || !plan_allows(x->plan, x->g, v, MOVE) ||
        x->plan->treat[v] == FORM)
        return OK;
    struct touch *t = touch_of(x, used, place, HOME_GRADIENTS, made);
    if (!t)
        return ERR_MEMORY;
    t->n_in += n_bytes;
    t->copies_in++;
    t->largest_in = MAX(t->largest_in, bytes_at_once(x, k, n_bytes));
    x->fetched[v] = used;
    x->s->places[place].n_bytes[HOME_GRADIENTS] += n_bytes;
    return OK;
}

/* What is never kept is made again where it is read, of operands that are fetched again. */
static enum status touch_made_again(struct surveyor *x, node_id k, node_id producer)
{
    const struct node *n = graph_node(x->g, producer);
    if (op_get(n->op)->recompute != RECOMPUTE_ALWAYS ||
        x->s->phase_of[producer] == x->s->phase_of[k])
        return OK;
    for (int i = 0; i < n->n_in; i++) {
        value_id root = n->in[i] == VALUE_NONE ? VALUE_NONE : value_root(x->g, n->in[i]);
        if (root != VALUE_NONE && graph_value(x->g, root)->producer == NODE_NONE)
            TRY(touch_root(x, k, root, false));
    }
    return OK;
}

/* Where each root is touched last. */
static void find_ends(struct surveyor *x)
{
    for (node_id k = 0; (size_t)k < x->g->nodes.n; k++) {
        const struct node *n = graph_node(x->g, k);
        for (int i = 0; i < n->n_in; i++) {
            if (n->in[i] != VALUE_NONE)
                x->ends[value_root(x->g, n->in[i])] = x->s->phase_of[k];
        }
    }
}

static enum status touch_operands(struct surveyor *x, node_id k)
{
    const struct node *n = graph_node(x->g, k);
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] == VALUE_NONE)
            continue;
        value_id root = value_root(x->g, n->in[i]);
        if (op_get(n->op)->ignores_inputs) { /* it is there then, and nothing was fetched */
            x->fetched[root] = x->s->phase_of[k];
            continue;
        }
        const struct value *v = graph_value(x->g, root);
        if (v->producer != NODE_NONE)
            TRY(touch_made_again(x, k, v->producer));
        if (v->producer == NODE_NONE)
            TRY(touch_root(x, k, root, false));
        else if (n->pass == PASS_UPDATE && graph_node(x->g, v->producer)->pass == PASS_BACKWARD)
            TRY(touch_gradient(x, k, root));
    }
    for (int i = 0; i < n->n_out; i++) {
        value_id root = value_root(x->g, n->out[i]);
        if (graph_value(x->g, root)->producer == NODE_NONE)
            TRY(touch_root(x, k, root, true));
    }
    return OK;
}

static int by_phase(const void *a, const void *b)
{
    const struct touch *x = a, *y = b;
    return (x->phase > y->phase) - (x->phase < y->phase);
}

static enum status find_touches(struct surveyor *x)
{
    struct survey *s = x->s;
    find_ends(x);
    for (node_id k = 0; (size_t)k < x->g->nodes.n; k++)
        TRY(touch_operands(x, k));
    s->n_touches = (int)x->touches.n;
    TRY(pool_try(&s->pool, &s->touches, (x->touches.n + 1) * sizeof(*s->touches)));
    if (s->n_touches)
        memcpy(s->touches, x->touches.items, x->touches.n * sizeof(*s->touches));
    qsort(s->touches, x->touches.n, sizeof(*s->touches), by_phase);
    for (value_id v = 0; (size_t)v < x->g->values.n; v++) {
        const struct value *root = graph_value(x->g, v);
        enum home_class home = home_class_of(root->role);
        if (root->producer == NODE_NONE && home != HOME_CLASS_COUNT &&
            x->plan->facts[v].first_reader != NODE_NONE && decisions_is_large(x->base, x->g, v))
            s->places[place_of_root(x->plan, x->g, v)].n_bytes[home] +=
                align_up(value_bytes(x->g, v), ARENA_ALIGN);
    }
    return OK;
}

/* ---- places ---------------------------------------------------------------------------------- */

/* In the order of the forward pass; places without one come last. */
static enum status order_places(struct survey *s)
{
    int n = 0;
    TRY(pool_try(&s->pool, &s->order, (size_t)s->n_places * sizeof(*s->order)));
    for (int p = 0; p < s->n_places; p++)
        s->places[p].forward = s->places[p].backward = -1;
    for (node_id k = 0; (size_t)k < s->graph->nodes.n; k++) {
        const struct node *node = graph_node(s->graph, k);
        int phase = s->phase_of[k];
        if (phase < 0)
            continue;
        struct place_facts *p = &s->places[s->phases[phase].place];
        if (node->pass == PASS_FORWARD && p->forward < 0) {
            p->forward = phase;
            s->order[n++] = s->phases[phase].place;
        }
        if (node->pass == PASS_BACKWARD && p->backward < 0)
            p->backward = phase;
    }
    for (int p = 0; p < s->n_places; p++)
        if (s->places[p].forward < 0)
            s->order[n++] = p;
    return OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static enum status surveyor_init(struct surveyor *x)
{
    size_t n_values = x->g->values.n + 1;
    TRY(pool_try(&x->s->pool, &x->seconds, (x->g->nodes.n + 1) * sizeof(double)));
    TRY(pool_try(&x->s->pool, &x->n_seen, (size_t)x->s->n_places * sizeof(int)));
    TRY(pool_try(&x->s->pool, &x->least, (size_t)x->s->n_places * sizeof(int64_t)));
    TRY(pool_try(&x->s->pool, &x->n_of_least, (size_t)x->s->n_places * sizeof(int)));
    TRY(pool_try(&x->s->pool, &x->unit_of, n_values * sizeof(int)));
    TRY(pool_try(&x->s->pool, &x->fetched, n_values * sizeof(int)));
    TRY(pool_try(&x->s->pool, &x->written, n_values * sizeof(int)));
    TRY(pool_try(&x->s->pool, &x->ends, n_values * sizeof(int)));
    for (size_t v = 0; v < n_values; v++)
        x->unit_of[v] = x->fetched[v] = x->written[v] = x->ends[v] = -1;
    return pool_try(&x->s->pool, &x->s->places,
                    (size_t)x->s->n_places * sizeof(struct place_facts));
}

static enum status make_survey(struct surveyor *x, const struct workload *w,
                               const struct stage *stage, const struct kernel_times *times)
{
    struct prediction seconds;
    TRY(surveyor_init(x));
    TRY(predict(&seconds, x->program, w->device, times));
    enum status status = find_phases(x, seconds.seconds);
    prediction_release(&seconds);
    TRY(status);
    TRY(find_sections(x, stage->n_micro));
    TRY(find_units(x));
    TRY(find_touches(x));
    return order_places(x->s);
}

enum status survey_init(struct survey *s, struct workload *w, const struct kernel_times *times,
                        const struct decisions *base)
{
    struct stage *stage = workload_stage(w, STAGE_TRAIN);
    struct plan configured = {0};
    const struct decisions kept = {.group = base->group,
                                   .small_bytes = base->small_bytes,
                                   .slice_bytes = base->slice_bytes,
                                   .form_bytes = base->form_bytes};
    *s = (struct survey){0};
    pool_init(&s->pool);
    struct surveyor x = {.s = s, .plan = &stage->plan, .base = base, .reader = NODE_NONE};
    enum status status;
    TRY_GOTO(workload_decide(w, &kept), out);
    s->graph = x.g = stage->graph;
    s->group = x.group = stage->group;
    x.in_one = stage->group > 1 && stage->group == stage->n_micro;
    TRY_GOTO(workload_bound(w), out);
    TRY_GOTO(plan_init(&configured, stage->graph, stage->n_micro), out);
    TRY_GOTO(decisions_apply(base, &configured, stage->graph, w->device), out);
    s->n_places = stage->plan.n_blocks + 2;
    memcpy(s->storage_bytes, w->storage.n_bytes, sizeof(s->storage_bytes));
    s->host_bytes = w->n_bytes[TIER_HOST];
    x.configured = &configured;
    x.program = stage->program;
    TRY_GOTO(make_survey(&x, w, stage, times), out);
out:
    plan_release(&configured);
    vec_release(&x.touches);
    if (status != OK)
        survey_release(s);
    return status;
}

void survey_release(struct survey *s)
{
    pool_release(&s->pool);
    *s = (struct survey){0};
}
