#include "search/decisions.h"

#include <stdio.h>
#include <string.h>

#include "plan/group.h"
#include "program/program.h"

/* ---- places ---------------------------------------------------------------------------------- */

int place_of_node(const struct plan *p, const struct graph *g, node_id k)
{
    int block = graph_node(g, k)->block;
    bool before = p->blocks_begin == NODE_NONE || k < p->blocks_begin;
    return block != BLOCK_NONE ? block : before ? p->n_blocks : p->n_blocks + 1;
}

/* The parameter that an update is about. */
static value_id updated_parameter(const struct graph *g, const struct node *n)
{
    for (int i = 0; i < n->n_in && n->pass == PASS_UPDATE; i++) {
        value_id v = n->in[i] == VALUE_NONE ? VALUE_NONE : value_root(g, n->in[i]);
        if (v != VALUE_NONE && graph_value(g, v)->role == ROLE_PARAMETER)
            return v;
    }
    return VALUE_NONE;
}

int place_of_root(const struct plan *p, const struct graph *g, value_id v)
{
    node_id reader = p->facts[v].first_reader;
    if (reader == NODE_NONE)
        return p->n_blocks + 1;
    /* What an optimizer keeps of the embedding is read where the step ends. */
    value_id about = updated_parameter(g, graph_node(g, reader));
    if (about != VALUE_NONE && graph_node(g, reader)->block == BLOCK_NONE)
        reader = p->facts[about].first_reader;
    return place_of_node(p, g, reader);
}

/* In an extent both of what belongs to no block come last. */
static bool is_within(const struct plan *p, int place, int extent)
{
    return MIN(place, p->n_blocks) < extent;
}

bool decisions_is_large(const struct decisions *d, const struct graph *g, value_id v)
{
    return value_bytes(g, v) >= MAX(d->small_bytes, (int64_t)1);
}

/* ---- homes ----------------------------------------------------------------------------------- */

enum home_class home_class_of(enum role role)
{
    switch (role) {
    case ROLE_PARAMETER:
    case ROLE_FROZEN:
        return HOME_WEIGHTS;
    case ROLE_MASTER:
    case ROLE_STATE:
        return HOME_STATES;
    case ROLE_GRADIENT:
        return HOME_GRADIENTS;
    default:
        return HOME_CLASS_COUNT;
    }
}

/* In an extent, gradients that wait for the norm count from the last block: the backward pass makes
 * those first, so they wait longest and have the most time to leave. */
static bool waits_away(const struct decisions *d, const struct plan *p, int place)
{
    if (d->places)
        return d->places[place].away[HOME_GRADIENTS];
    return is_within(p, place < p->n_blocks ? p->n_blocks - 1 - place : place,
                     d->n[EXTENT_GRADIENTS]);
}

enum extent home_extent(enum home_class c)
{
    static const enum extent extents[HOME_CLASS_COUNT] = {
        [HOME_WEIGHTS] = EXTENT_WEIGHTS,
        [HOME_STATES] = EXTENT_STATES,
        [HOME_GRADIENTS] = EXTENT_GRADIENTS,
    };
    return extents[c];
}

static bool is_away(const struct decisions *d, const struct plan *p, int place, enum home_class c)
{
    return d->places ? d->places[place].away[c] : is_within(p, place, d->n[home_extent(c)]);
}

/* Activations on disk are those of the first blocks: they are needed last, and have the most time
 * to be written and read, with the host's memory to wait in that those of later blocks do not take
 * yet, or no more. Of everything else the blocks on disk are spread over the network: the disk is
 * as busy at one end of a pass as at the other, with the blocks between them to hide behind. What
 * belongs to no block is the last to go. */
enum tier decisions_disk_tier(const struct decisions *d, enum extent e, int place, int n_blocks)
{
    int64_t n = d->disk[e], p = place;
    if (n > n_blocks)
        return TIER_DISK;
    bool is_spread = place < n_blocks && (p + 1) * n / n_blocks > p * n / n_blocks;
    bool is_one = e == EXTENT_MOVED ? p < n : is_spread;
    return is_one ? TIER_DISK : TIER_HOST;
}

bool decisions_use_disk(const struct decisions *d)
{
    for (int e = 0; e < EXTENT_COUNT; e++) {
        if (d->disk[e] > 0)
            return true;
    }
    return false;
}

void decisions_apply_homes(const struct decisions *d, struct plan *p, const struct graph *g)
{
    p->ahead_bytes = p->behind_bytes = d->ring_bytes;
    p->halfway_bytes = MAX(d->halfway_bytes, d->ring_bytes);
    p->slice_bytes = d->slice_bytes;
    for (value_id v = 0; (size_t)v < g->values.n; v++) {
        const struct value *x = graph_value(g, v);
        enum home_class c = home_class_of(x->role);
        if (x->producer != NODE_NONE || c == HOME_CLASS_COUNT ||
            p->facts[v].first_reader == NODE_NONE)
            continue;
        int place = place_of_root(p, g, v);
        if (is_away(d, p, place, c) && decisions_is_large(d, g, v))
            p->home[v] = decisions_tier(d, home_extent(c), place, p->n_blocks);
    }
}

/* ---- what is saved --------------------------------------------------------------------------- */

static void move_outputs(const struct decisions *d, struct plan *p, const struct graph *g,
                         node_id k)
{
    const struct node *n = graph_node(g, k);
    enum extent e = n->pass == PASS_FORWARD ? EXTENT_MOVED : EXTENT_GRADIENTS;
    enum tier tier = decisions_tier(d, e, place_of_node(p, g, k), p->n_blocks);
    for (int i = 0; i < n->n_out; i++) {
        value_id v = n->out[i];
        if (p->treat[v] == KEEP && decisions_is_large(d, g, v) && plan_allows(p, g, v, MOVE))
            plan_move(p, v, tier);
    }
}

static void apply_moves(const struct decisions *d, struct plan *p, const struct graph *g)
{
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        int place = place_of_node(p, g, k);
        if ((n->pass == PASS_FORWARD && !d->places && is_within(p, place, d->n[EXTENT_MOVED])) ||
            (n->pass == PASS_BACKWARD && waits_away(d, p, place)))
            move_outputs(d, p, g, k);
    }
}

static void treat_outputs(const struct decisions *d, struct plan *p, const struct graph *g,
                          node_id k, enum treatment t)
{
    const struct node *n = graph_node(g, k);
    if (t == MOVE)
        move_outputs(d, p, g, k);
    for (int i = 0; t == RECOMPUTE && i < n->n_out; i++) {
        if (plan_may_drop(p, g, n->out[i]))
            p->treat[n->out[i]] = RECOMPUTE;
    }
}

/* Blocks that run more again than what costs next to nothing. */
static void count_recomputed(struct plan *p, const struct graph *g)
{
    int last = BLOCK_NONE;
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        enum recompute_class cost = op_get(n->op)->recompute;
        if (n->pass != PASS_FORWARD || n->block == BLOCK_NONE || n->block == last ||
            cost == RECOMPUTE_CHEAP || cost == RECOMPUTE_ALWAYS || p->treat[n->out[0]] != RECOMPUTE)
            continue;
        last = n->block;
        p->n_blocks_recomputed++;
    }
}

enum status saved_set_copy(const struct saved_set *s, struct pool *pool,
                           const struct saved_set **out)
{
    struct saved_set *copy;
    enum treatment *treat;
    size_t n_bytes = (size_t)s->n_nodes * sizeof(*treat);
    TRY(pool_try(pool, &copy, sizeof(*copy)));
    TRY(pool_try(pool, &treat, n_bytes + 1));
    memcpy(treat, s->treat, n_bytes);
    *copy = (struct saved_set){treat, s->n_nodes, pool_strdup(pool, s->recomputed),
                               pool_strdup(pool, s->moved)};
    *out = copy;
    return pool_status(pool);
}

enum status decisions_keep(const struct decisions *d, struct pool *pool, struct decisions *out)
{
    struct place_choice *places;
    *out = *d;
    if (!d->places)
        return OK;
    TRY(pool_try(pool, &places, (size_t)d->n_places * sizeof(*places)));
    memcpy(places, d->places, (size_t)d->n_places * sizeof(*places));
    for (int p = 0; p < d->n_places; p++) {
        int like = 0;
        while (d->places[like].saved != d->places[p].saved)
            like++;
        if (like < p)
            places[p].saved = places[like].saved;
        else
            TRY(saved_set_copy(d->places[p].saved, pool, &places[p].saved));
    }
    out->places = places;
    return OK;
}

/* The i-th forward node of a place is what its set says of i, for every micro-batch of a group. */
static enum status apply_saved_sets(const struct decisions *d, struct plan *p,
                                    const struct graph *g)
{
    int *n_seen, n_places = d->n_places;
    size_t n_counts = (size_t)(group_size(g) * n_places);
    TRY(pool_try(&p->pool, &n_seen, n_counts * sizeof(*n_seen)));
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        if (n->pass != PASS_FORWARD)
            continue;
        int place = place_of_node(p, g, k);
        const struct saved_set *set = d->places[place].saved;
        int *i = &n_seen[n->micro * n_places + place];
        if (*i < set->n_nodes)
            treat_outputs(d, p, g, k, set->treat[(*i)++]);
    }
    count_recomputed(p, g);
    return OK;
}

static enum status apply_extents(const struct decisions *d, struct plan *p, const struct graph *g)
{
    if (d->recompute_cheap)
        plan_recompute_cheap(p, g);
    if (d->recompute.modules) {
        TRY(plan_recompute_modules(p, g, d->recompute.modules));
        count_recomputed(p, g);
        return OK;
    }
    for (int b = 0; b < p->n_blocks; b++) {
        if (b < d->n[EXTENT_RECOMPUTED] || block_set_has(&d->recompute, b))
            plan_recompute_block(p, g, b);
    }
    return OK;
}

/* ---- gradients that are never whole ---------------------------------------------------------- */

enum { FEWEST_SLICES = 4 }; /* fewer save little */

static bool is_formed(const struct decisions *d, const struct plan *p, const struct graph *g,
                      value_id v)
{
    int64_t unit = plan_form_unit(p, g, v), n_bytes = value_bytes(g, v);
    return n_bytes > d->form_bytes && unit > 0 &&
           unit <= shape_elems(&graph_value(g, v)->shape) / FEWEST_SLICES;
}

static void apply_forming(const struct decisions *d, struct plan *p, const struct graph *g,
                          const struct device *device)
{
    for (node_id k = 0; d->form_bytes > 0 && (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        if (n->pass == PASS_BACKWARD && node_expands(g, n) && is_formed(d, p, g, n->out[0]) &&
            program_makes_rows(g, k, device))
            p->treat[n->out[0]] = FORM;
    }
}

enum status decisions_apply(const struct decisions *d, struct plan *plan, const struct graph *g,
                            const struct device *device)
{
    apply_forming(d, plan, g, device);
    if (d->places)
        TRY(apply_saved_sets(d, plan, g));
    else
        TRY(apply_extents(d, plan, g));
    decisions_apply_homes(d, plan, g);
    apply_moves(d, plan, g);
    plan->defer_updates = d->defer_updates && plan_may_defer(plan, g);
    return OK;
}

/* ---- words ----------------------------------------------------------------------------------- */

const char *extent_name(enum extent e)
{
    static const char *const names[EXTENT_COUNT] = {
        [EXTENT_MOVED] = "activations_on_host", [EXTENT_RECOMPUTED] = "recomputed",
        [EXTENT_STATES] = "optimizer_on_host",  [EXTENT_GRADIENTS] = "gradients_on_host",
        [EXTENT_WEIGHTS] = "weights_on_host",
    };
    return names[e];
}

bool decisions_copy(const struct decisions *d)
{
    return d->n[EXTENT_MOVED] || d->n[EXTENT_STATES] || d->n[EXTENT_GRADIENTS] ||
           d->n[EXTENT_WEIGHTS];
}

static void add_count(struct str *out, int n, int n_blocks)
{
    if (n > n_blocks)
        str_add(out, "all blocks, embedding and head");
    else if (n == n_blocks)
        str_addf(out, "all %d blocks", n_blocks);
    else
        str_addf(out, "%d of %d blocks", n, n_blocks);
}

/* "20 of 28 blocks: gate_up recomputed, qkv, x on the host". */
static void add_saved_set(const struct saved_set *s, enum tier tier, int n, int n_blocks,
                          struct str *out)
{
    if (!s->recomputed[0] && !s->moved[0])
        return;
    str_add(out, out->n ? "; " : "");
    add_count(out, n, n_blocks);
    str_addf(out, ": %s%s", s->recomputed, s->recomputed[0] ? " recomputed" : "");
    str_addf(out, "%s%s", s->recomputed[0] && s->moved[0] ? ", " : "", s->moved);
    if (s->moved[0])
        str_add(out, tier == TIER_DISK ? " on disk" : " on the host");
}

static bool save_alike(const struct decisions *d, int a, int b, int n_blocks)
{
    const struct saved_set *s = d->places[a].saved;
    return s == d->places[b].saved &&
           (!s->moved[0] || decisions_tier(d, EXTENT_MOVED, a, n_blocks) ==
                                decisions_tier(d, EXTENT_MOVED, b, n_blocks));
}

static void add_saved_sets(const struct decisions *d, int n_blocks, struct str *out)
{
    for (int b = 0; b < n_blocks; b++) {
        int n = 0, first = b;
        for (int k = 0; k < n_blocks; k++) {
            if (save_alike(d, b, k, n_blocks)) {
                first = MIN(first, k);
                n++;
            }
        }
        if (first == b)
            add_saved_set(d->places[b].saved, decisions_tier(d, EXTENT_MOVED, b, n_blocks), n,
                          n_blocks, out);
    }
}

static const char *const extent_words[EXTENT_COUNT] = {
    [EXTENT_MOVED] = "saved activations of ", [EXTENT_RECOMPUTED] = "",
    [EXTENT_STATES] = "optimizer states of ", [EXTENT_GRADIENTS] = "gradients of ",
    [EXTENT_WEIGHTS] = "weights of ",
};

/* Blocks, and what belongs to none, whose part of a class is on disk. */
static int count_on_disk(const struct decisions *d, enum extent e, int n_blocks)
{
    int n = 0;
    bool by_place = d->places && e != EXTENT_MOVED;
    for (int p = 0; p <= n_blocks; p++) {
        bool away = !by_place && p < d->n[e];
        for (int c = 0; c < HOME_CLASS_COUNT; c++)
            away |= by_place && home_extent((enum home_class)c) == e && d->places[p].away[c];
        n += away && decisions_tier(d, e, p, n_blocks) == TIER_DISK;
    }
    return n;
}

static void add_where(const struct decisions *d, enum extent e, int n_blocks, struct str *out)
{
    int n = count_on_disk(d, e, n_blocks);
    if (n == 0) {
        str_add(out, " on the host");
    } else if (n >= MIN(d->n[e], n_blocks + 1)) {
        str_add(out, " on disk");
    } else {
        str_add(out, " away, ");
        add_count(out, n, n_blocks);
        str_add(out, "' on disk, the rest on the host");
    }
}

void decisions_add_text(const struct decisions *d, int n_blocks, struct str *out)
{
    char ring[BYTES_TEXT];
    struct str text = {0};
    if (d->places)
        add_saved_sets(d, n_blocks, &text);
    for (int e = d->places ? EXTENT_STATES : 0; e < EXTENT_COUNT; e++) {
        int n = e == EXTENT_RECOMPUTED ? MIN(d->n[e], n_blocks) : d->n[e];
        if (n == 0)
            continue;
        str_addf(&text, "%s%s", text.n ? "; " : "", extent_words[e]);
        add_count(&text, n, n_blocks);
        if (e == EXTENT_RECOMPUTED)
            str_add(&text, " recomputed");
        else
            add_where(d, (enum extent)e, n_blocks, &text);
    }
    if (d->group > 1)
        str_addf(&text, "%smicro-batches in groups of %d", text.n ? "; " : "", d->group);
    if (d->form_bytes > 0)
        str_addf(&text, "%slarge gradients made in slices, never whole", text.n ? "; " : "");
    if (d->defer_updates)
        str_addf(&text, "%supdates in the next forward pass", text.n ? "; " : "");
    if (decisions_copy(d) && d->ring_bytes > 0)
        str_addf(&text, "%s%s fetched ahead", text.n ? "; " : "",
                 format_bytes(ring, d->ring_bytes));
    if (decisions_copy(d) && d->halfway_bytes > d->ring_bytes)
        str_addf(&text, "%s%s of the host for what comes from disk or goes there",
                 text.n ? "; " : "", format_bytes(ring, d->halfway_bytes));
    str_add(out, str_text(&text));
    str_release(&text);
}
