#include "plan/plan.h"

#include <string.h>

#include "graph/slice.h"

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y > 0) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return x > 0 ? a / x * b : 0;
}

static void note_slices(struct plan_fact *f, const struct graph *g, const struct node *n, int i)
{
    if (node_reads_slices(g, n, i))
        f->granule = common_multiple(f->granule, node_granule(g, n));
    else
        f->read_whole = true;
}

/* Walks once over the graph, so that every question after it is a look-up. */
static void find_facts(struct plan *p, const struct graph *g)
{
    for (size_t v = 0; v < g->values.n; v++) {
        p->facts[v].first_backward = p->facts[v].first_reader = p->facts[v].overwritten = NODE_NONE;
        p->facts[v].granule = 1;
    }
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        bool updating = n->pass == PASS_NORM || n->pass == PASS_UPDATE;
        p->n_blocks = MAX(p->n_blocks, n->block + 1);
        if (n->block != BLOCK_NONE && n->pass == PASS_FORWARD && p->blocks_begin == NODE_NONE)
            p->blocks_begin = k;
        for (int i = 0; i < n->n_in; i++) {
            if (n->in[i] == VALUE_NONE)
                continue;
            value_id v = value_view_root(g, n->in[i]);
            struct plan_fact *f = &p->facts[v];
            node_id producer = graph_value(g, v)->producer;
            bool crosses = producer != NODE_NONE && graph_node(g, producer)->block != n->block;
            if (f->first_reader == NODE_NONE)
                f->first_reader = k;
            f->leaves_block |= n->pass == PASS_FORWARD && crosses;
            f->read_at_update |= updating;
            note_slices(f, g, n, i);
            f->read_in_step |= n->pass != PASS_UPDATE;
            if (n->pass == PASS_BACKWARD && f->first_backward == NODE_NONE)
                f->first_backward = k;
            p->facts[value_root(g, v)].waits_for_update = updating;
        }
        for (int i = 0; i < n->n_out; i++) {
            const struct alias_rule *a = node_alias(n, i);
            if (a && a->kind == ALIAS_UPDATE)
                p->facts[value_view_root(g, n->in[a->in])].overwritten = k;
            p->facts[value_root(g, n->out[i])].waits_for_update = false;
        }
    }
    for (size_t i = 0; i < g->outputs.n; i++)
        p->facts[value_view_root(g, g->outputs.items[i].value)].is_output = true;
}

/* What is made for every reader is no decision. */
static void drop_copies(struct plan *p, const struct graph *g)
{
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, (node_id)k);
        if (n->pass == PASS_FORWARD && op_get(n->op)->recompute == RECOMPUTE_ALWAYS)
            p->treat[n->out[0]] = RECOMPUTE;
    }
}

enum status plan_init(struct plan *p, const struct graph *g, int64_t n_micro)
{
    size_t n = MAX(g->values.n, (size_t)1);
    *p = (struct plan){.n_micro = n_micro, .blocks_begin = NODE_NONE};
    pool_init(&p->pool);
    TRY(pool_try(&p->pool, &p->treat, n * sizeof(*p->treat)));
    TRY(pool_try(&p->pool, &p->home, n * sizeof(*p->home)));
    TRY(pool_try(&p->pool, &p->sliceable, MAX(g->nodes.n, (size_t)1) * sizeof(*p->sliceable)));
    TRY(pool_try(&p->pool, &p->emitted, sizeof(*p->emitted)));
    TRY(pool_try(&p->pool, &p->emitted->picked,
                 MAX(g->nodes.n, (size_t)1) * sizeof(*p->emitted->picked)));
    TRY(pool_try(&p->pool, &p->facts, n * sizeof(*p->facts)));
    TRY(pool_try(&p->pool, &p->root, n * sizeof(*p->root)));
    TRY(pool_try(&p->pool, &p->held, n * sizeof(*p->held)));
    TRY(pool_try(&p->pool, &p->n_bytes, n * sizeof(*p->n_bytes)));
    graph_find_roots(g, p->root);
    for (value_id v = 0; (size_t)v < g->values.n; v++) {
        p->held[v] = value_view_root(g, v);
        p->n_bytes[v] = value_bytes(g, v);
    }
    for (node_id k = 0; (size_t)k < g->nodes.n; k++)
        p->sliceable[k] = node_sliceable(g, graph_node(g, k));
    find_facts(p, g);
    drop_copies(p, g);
    return OK;
}

void plan_restart(struct plan *p, const struct graph *g)
{
    size_t n = MAX(g->values.n, (size_t)1);
    memset(p->treat, 0, n * sizeof(*p->treat));
    memset(p->home, 0, n * sizeof(*p->home));
    p->defer_updates = false;
    p->ahead_bytes = p->behind_bytes = p->halfway_bytes = p->slice_bytes = 0;
    p->n_blocks_recomputed = 0;
    drop_copies(p, g);
}

/* Of a word at a time: a search asks for each of its trials. */
static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

uint64_t plan_hash(const struct plan *p, const struct graph *g)
{
    const int64_t sizes[] = {p->n_micro,       p->ahead_bytes, p->behind_bytes,
                             p->halfway_bytes, p->slice_bytes, p->defer_updates};
    uint64_t hash = 0;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        hash = mix(hash, (uint64_t)sizes[i]);
    for (size_t v = 0; v < g->values.n; v++)
        hash = mix(hash, (uint64_t)p->treat[v] << 8 | (uint64_t)p->home[v]);
    return hash;
}

void plan_release(struct plan *p)
{
    pool_release(&p->pool);
    *p = (struct plan){0};
}

/* ---- what is allowed ------------------------------------------------------------------------- */

/* Its own memory, made by the forward pass and never overwritten. */
static bool is_plain_forward_value(const struct plan *p, const struct graph *g, value_id v)
{
    node_id producer = graph_value(g, v)->producer;
    return producer != NODE_NONE && graph_node(g, producer)->pass == PASS_FORWARD &&
           value_root(g, v) == v && p->facts[v].overwritten == NODE_NONE;
}

/* Its own memory, made by the backward pass, and an update that leaves it alone reads it last. */
static bool is_waiting_gradient(const struct plan *p, const struct graph *g, value_id v)
{
    node_id producer = graph_value(g, v)->producer;
    return producer != NODE_NONE && graph_node(g, producer)->pass == PASS_BACKWARD &&
           value_root(g, v) == v && p->facts[v].waits_for_update;
}

int64_t plan_form_unit(const struct plan *p, const struct graph *g, value_id v)
{
    const struct plan_fact *f = &p->facts[v];
    if (!is_waiting_gradient(p, g, v) || f->overwritten != NODE_NONE || f->read_whole ||
        f->is_output)
        return 0;
    const struct node *n = graph_node(g, graph_value(g, v)->producer);
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] != VALUE_NONE &&
            p->facts[value_view_root(g, n->in[i])].overwritten != NODE_NONE)
            return 0;
    }
    return op_get(n->op)->by_rows ? common_multiple(f->granule, node_granule(g, n)) : 0;
}

int64_t plan_slice_bytes(int64_t slice_bytes, int64_t n_bytes)
{
    enum { SLICES_MOST = 256 };
    return MIN(n_bytes, MAX(slice_bytes, n_bytes / SLICES_MOST + 1));
}

/* Would the producer, run again when the backward pass first asks for v, find its inputs as they
 * were? Inputs that are themselves dropped are made again first. */
static bool inputs_last(const struct plan *p, const struct graph *g, value_id v)
{
    const struct node *n = graph_node(g, graph_value(g, v)->producer);
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] == VALUE_NONE)
            continue;
        node_id overwritten = p->facts[value_view_root(g, n->in[i])].overwritten;
        if (overwritten != NODE_NONE && overwritten <= p->facts[v].first_backward)
            return false;
    }
    return true;
}

bool plan_allows(const struct plan *p, const struct graph *g, value_id v, enum treatment t)
{
    if (t == KEEP)
        return true;
    if (t == FORM)
        return plan_form_unit(p, g, v) > 0;
    if (t == MOVE && is_waiting_gradient(p, g, v))
        return true;
    if (!is_plain_forward_value(p, g, v))
        return false;
    const struct node *n = graph_node(g, graph_value(g, v)->producer);
    if (t == MOVE)
        return op_get(n->op)->recompute != RECOMPUTE_ALWAYS;
    const struct plan_fact *f = &p->facts[v];
    return op_get(n->op)->recompute != RECOMPUTE_NEVER && !f->is_output && !f->read_at_update &&
           inputs_last(p, g, v);
}

/* ---- decisions ------------------------------------------------------------------------------- */

/* What other blocks' forward nodes read stays, or recomputing them would reach back. */
static bool stays_inside(const struct plan *p, value_id v)
{
    return !p->facts[v].leaves_block && !p->facts[v].is_output;
}

bool plan_may_drop(const struct plan *p, const struct graph *g, value_id v)
{
    return stays_inside(p, v) && plan_allows(p, g, v, RECOMPUTE);
}

void plan_recompute_block(struct plan *p, const struct graph *g, int block)
{
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, (node_id)k);
        for (int i = 0; n->pass == PASS_FORWARD && n->block == block && i < n->n_out; i++) {
            if (plan_may_drop(p, g, n->out[i]))
                p->treat[n->out[i]] = RECOMPUTE;
        }
    }
    p->n_blocks_recomputed++;
}

void plan_move(struct plan *p, value_id v, enum tier tier)
{
    p->treat[v] = MOVE;
    p->home[v] = tier;
}

void plan_move_block(struct plan *p, const struct graph *g, int block, enum tier tier)
{
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, (node_id)k);
        for (int i = 0; n->pass == PASS_FORWARD && n->block == block && i < n->n_out; i++) {
            if (stays_inside(p, n->out[i]) && plan_allows(p, g, n->out[i], MOVE))
                plan_move(p, n->out[i], tier);
        }
    }
}

/* Needed in memory until the backward pass whatever we decide: storage, or read by a gradient. */
static bool inputs_saved_anyway(const struct plan *p, const struct graph *g, const struct node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] == VALUE_NONE)
            continue;
        value_id v = value_view_root(g, n->in[i]);
        if (graph_value(g, v)->producer != NODE_NONE && p->facts[v].first_backward == NODE_NONE)
            return false;
    }
    return true;
}

/* Is what the backward pass reads of a node's results worth making all of them again? Statistics
 * beside a result that nobody reads there are not. */
static bool worth_making_again(const struct plan *p, const struct graph *g, const struct node *n)
{
    enum { LEAST_SHARE = 16 };
    int64_t read = 0, all = 0;
    for (int i = 0; i < n->n_out; i++) {
        int64_t n_bytes = value_bytes(g, n->out[i]);
        all += n_bytes;
        read += p->facts[n->out[i]].first_backward == NODE_NONE ? 0 : n_bytes;
    }
    return read * LEAST_SHARE >= all;
}

void plan_recompute_cheap(struct plan *p, const struct graph *g)
{
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, (node_id)k);
        if (n->pass != PASS_FORWARD || op_get(n->op)->recompute != RECOMPUTE_CHEAP ||
            !inputs_saved_anyway(p, g, n) || !worth_making_again(p, g, n))
            continue;
        for (int i = 0; i < n->n_out; i++) {
            value_id v = n->out[i];
            if (p->treat[v] == KEEP && plan_may_drop(p, g, v))
                p->treat[v] = RECOMPUTE;
        }
    }
}

void plan_set_home(struct plan *p, const struct graph *g, enum role role, enum tier tier)
{
    for (size_t v = 0; v < g->values.n; v++) {
        const struct value *x = graph_value(g, (value_id)v);
        if (x->producer == NODE_NONE && x->role == role)
            p->home[v] = tier;
    }
}

/* ---- updates in the next step ---------------------------------------------------------------- */

/* An update can, if what it reads is the same in the next step: storage that only updates change,
 * inputs for updates alone, and what the backward pass and the norm have made, which is carried. */
static bool can_run_late(const struct plan *p, const struct graph *g, const struct node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] == VALUE_NONE)
            continue;
        value_id root = value_root(g, n->in[i]);
        const struct value *x = graph_value(g, root);
        bool is_input = x->producer == NODE_NONE && x->role == ROLE_INPUT;
        bool is_sum = x->producer == NODE_NONE && x->role == ROLE_GRADIENT;
        /* What is never whole is not carried either. */
        bool is_formed = p->treat[root] == FORM;
        if (is_sum || is_formed || (is_input && p->facts[root].read_in_step))
            return false;
        if (x->producer != NODE_NONE && graph_node(g, x->producer)->pass == PASS_FORWARD)
            return false;
    }
    return true;
}

bool plan_may_defer(const struct plan *p, const struct graph *g)
{
    if (p->n_micro > 1)
        return false;
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        if (n->pass == PASS_UPDATE && !can_run_late(p, g, n))
            return false;
    }
    /* The host would read it a step too late, as the loss scale. */
    for (size_t i = 0; i < g->outputs.n; i++) {
        node_id producer = graph_value(g, g->outputs.items[i].value)->producer;
        if (producer != NODE_NONE && graph_node(g, producer)->pass == PASS_UPDATE)
            return false;
    }
    return true;
}
