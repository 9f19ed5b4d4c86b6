/* emit.c: a graph and a plan become instructions.
 *
 * Nodes are emitted in graph order. A backward node that reads a value the plan dropped makes its
 * producer be emitted again first, and that one's dropped inputs before it: recompute is on demand,
 * so what is recomputed lives only from there to its last use; what costs next to nothing
 * (RECOMPUTE_ALWAYS) is made for each reader. Buffers are created as values
 * appear; their lifetimes are the instructions that touch them, and addresses come later (place.c).
 */
#include "program/emit.h"

#include <string.h>

static enum status emitter_init(struct emitter *e)
{
    size_t n = MAX(e->g->values.n, (size_t)1);
    TRY(mem_try_array(&e->where, n, sizeof(*e->where)));
    TRY(mem_try_array(&e->home, n, sizeof(*e->home)));
    TRY(mem_try_array(&e->moved, n, sizeof(*e->moved)));
    TRY(mem_try_array(&e->ready, n, sizeof(*e->ready)));
    TRY(mem_try_array(&e->again, n, sizeof(*e->again)));
    TRY(mem_try_array(&e->now, n, sizeof(*e->now)));
    TRY(mem_try_array(&e->leaves_after, n, sizeof(*e->leaves_after)));
    TRY(mem_try_array(&e->touched_last, n, sizeof(*e->touched_last)));
    TRY(mem_try_array(&e->read_later, n, sizeof(*e->read_later)));
    TRY(mem_try_array(&e->read, n, sizeof(*e->read)));
    TRY(mem_try_array(&e->whole_reads, n, sizeof(*e->whole_reads)));
    TRY(mem_try_array(&e->overwrites, n, sizeof(*e->overwrites)));
    TRY(mem_try_array(&e->gradient, n, sizeof(*e->gradient)));
    TRY(mem_try_array(&e->carried, n, sizeof(*e->carried)));
    TRY(mem_try_array(&e->kept, n, sizeof(*e->kept)));
    TRY(mem_try_array(&e->newest, n, sizeof(*e->newest)));
    TRY(mem_try_array(&e->picks, N_PICKS, sizeof(*e->picks)));
    e->root = e->plan->root;
    e->held = e->plan->held;
    e->n_bytes = e->plan->n_bytes;
    const struct plan_emitted *before = e->plan->emitted;
    TRY(vec_reserve(&e->p->instrs, MAX(2 * e->g->nodes.n, before->n_instrs)));
    TRY(vec_reserve(&e->p->operands, MAX(8 * e->g->nodes.n, before->n_operands)));
    TRY(vec_reserve(&e->p->buffers, MAX(e->g->values.n, before->n_buffers)));
    for (size_t v = 0; v < n; v++) {
        e->where[v] = e->home[v] = e->moved[v] = e->kept[v] = -1;
        e->ready[v] = -1;
        e->now[v] = (value_id)v;
        e->leaves_after[v] = e->touched_last[v] = NODE_NONE;
    }
    return OK;
}

static void emitter_release(struct emitter *e)
{
    mem_free(e->where);
    mem_free(e->home);
    mem_free(e->moved);
    mem_free(e->ready);
    mem_free(e->again);
    mem_free(e->now);
    mem_free(e->leaves_after);
    mem_free(e->touched_last);
    mem_free(e->read_later);
    mem_free(e->read);
    mem_free(e->whole_reads);
    mem_free(e->overwrites);
    mem_free(e->gradient);
    mem_free(e->carried);
    mem_free(e->kept);
    mem_free(e->newest);
    mem_free(e->picks);
    vec_release(&e->staged);
    vec_release(&e->parts);
    vec_release(&e->pending);
    vec_release(&e->fetches);
    vec_release(&e->reads);
    vec_release(&e->waits);
}

/* ---- storage: roots that exist before the program starts ------------------------------------- */

const char *emit_name(struct emitter *e, const struct node *n, int output)
{
    const char *given = graph_value(e->g, n->out[output])->name;
    if (given[0])
        return given;
    const char *op = op_get(n->op)->name;
    if (n->block == BLOCK_NONE)
        return op;
    if (e->named[n->op].name && e->named[n->op].block == n->block)
        return e->named[n->op].name;
    size_t n_bytes = strlen(op) + 1;
    char digits[16], *at = digits + sizeof(digits), *name; /* printf would be most of emission */
    *--at = '.';
    for (int block = n->block; block > 0 || *at == '.'; block /= 10)
        *--at = (char)('0' + block % 10);
    size_t n_digits = (size_t)(digits + sizeof(digits) - at);
    if (pool_try(&e->p->pool, &name, n_digits + n_bytes) != OK)
        return "";
    memcpy(name, at, n_digits);
    memcpy(name + n_digits, op, n_bytes);
    e->named[n->op].block = n->block;
    e->named[n->op].name = name;
    return name;
}

/* Parameters, states and constants get storage; accumulators and metrics memory that is carried
 * from section to section. Each lives in the tier the plan calls its home. */
static enum status emit_root(struct emitter *e, value_id v)
{
    const struct value *x = graph_value(e->g, v);
    bool persistent = role_is_persistent(x->role);
    enum tier tier = persistent || x->role == ROLE_GRADIENT ? e->plan->home[v] : TIER_DEVICE;
    enum memory_class kind = emit_class(e, v, false);
    int32_t b;
    TRY(emit_buffer(e, x->name, kind, tier, e->n_bytes[v], v, &b));
    e->p->buffers.items[b].carried = !persistent;
    if (persistent) {
        if (x->name[0] == '\0')
            return FAIL(ERR_INTERNAL, "value %d is storage and has no name", v);
        TRY(storage_need(e->storage, x->name, kind, tier, e->n_bytes[v],
                         &e->p->buffers.items[b].storage));
    }
    if (tier == TIER_DEVICE)
        e->where[v] = b;
    else
        e->home[v] = b;
    return OK;
}

/* What one step makes and the next one reads is in memory of its own in between. */
static enum status emit_kept(struct emitter *e, value_id v)
{
    const struct value *x = graph_value(e->g, v);
    enum tier tier = e->plan->treat[v] == MOVE ? e->plan->home[v] : TIER_DEVICE;
    const char *name = emit_name(e, graph_node(e->g, x->producer), x->output);
    TRY(pool_status(&e->p->pool));
    TRY(emit_buffer(e, name, emit_class(e, v, false), tier, e->n_bytes[v], v, &e->kept[v]));
    e->p->buffers.items[e->kept[v]].carried = true;
    return OK;
}

static enum status emit_roots(struct emitter *e)
{
    for (value_id v = 0; (size_t)v < e->g->values.n; v++) {
        const struct value *x = graph_value(e->g, v);
        bool has_use = e->read[v] || x->role == ROLE_PARAMETER; /* all are loaded and saved */
        if (x->producer == NODE_NONE && x->role != ROLE_INPUT && has_use)
            TRY(emit_root(e, v));
        if (e->carried[v])
            TRY(emit_kept(e, v));
    }
    return OK;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static enum status emit_node(struct emitter *e, node_id k, bool recompute);

enum status emit_ensure(struct emitter *e, value_id v, bool backward)
{
    value_id root = e->root[v], held = e->held[v];
    const struct value *x = graph_value(e->g, held);
    const struct node *maker = x->producer != NODE_NONE ? graph_node(e->g, x->producer) : NULL;
    bool dropped = maker && maker->pass == PASS_FORWARD && e->plan->treat[held] == RECOMPUTE;
    bool stale = !e->again[root] || (maker && op_get(maker->op)->recompute == RECOMPUTE_ALWAYS);
    if (backward && dropped && stale)
        return emit_node(e, x->producer, true);
    if (e->where[root] >= 0)
        return OK;
    if (e->home[root] >= 0)
        return emit_stage_in(e, root);
    if (e->moved[root] >= 0)
        return emit_move_in(e, root);
    return FAIL(ERR_INTERNAL, "value %d (%s) is read where it does not exist", v,
                graph_value(e->g, v)->name);
}

static bool is_kept_on_device(const struct emitter *e, value_id v)
{
    return e->kept[v] >= 0 && e->p->buffers.items[e->kept[v]].tier == TIER_DEVICE;
}

enum status emit_output(struct emitter *e, const struct node *n, int i, bool recompute,
                        int32_t *buffer)
{
    value_id v = n->out[i], root = e->root[v];
    if (node_alias(n, i)) {
        *buffer = e->where[root];
        /* The newest version that the step before makes is v0 of this one. */
        e->now[root] = e->late && e->newest[root] == v ? root : v;
        return OK;
    }
    if (is_kept_on_device(e, v)) {
        *buffer = e->kept[v];
    } else {
        const char *name = emit_name(e, n, i);
        TRY(pool_status(&e->p->pool));
        enum memory_class kind = emit_class(e, v, recompute);
        TRY(emit_buffer(e, name, kind, TIER_DEVICE, e->n_bytes[v], v, buffer));
    }
    /* A kept output of a node that runs again for another output: written, never read. */
    if (recompute && e->plan->treat[v] != RECOMPUTE)
        return OK;
    e->where[root] = *buffer;
    e->moved[root] = -1;
    e->now[root] = v;
    e->again[root] = recompute;
    return OK;
}

static bool is_view(const struct node *n)
{
    const struct alias_rule *a = node_alias(n, 0);
    return n->n_out == 1 && a && a->kind == ALIAS_VIEW;
}

/* slice_bytes; most calls are of whole nodes, whose operands' bytes are known. */
static struct byte_range bytes_of(const struct emitter *e, const struct node *n, struct slice slice,
                                  int operand)
{
    value_id v = operand < n->n_in ? n->in[operand] : n->out[operand - n->n_in];
    if (slice.n > 0)
        return slice_bytes(e->g, n, slice, operand);
    return (struct byte_range){0, v == VALUE_NONE ? 0 : e->n_bytes[v]};
}

enum status emit_compute(struct emitter *e, node_id k, bool recompute, struct slice slice)
{
    const struct node *n = graph_node(e->g, k);
    struct instr instr = {.kind = INSTR_COMPUTE,
                          .queue = QUEUE_COMPUTE,
                          .node = k,
                          .slice = slice,
                          .recompute = recompute};
    struct picked picked;
    TRY(emit_pick(e, k, slice, &picked));
    instr.kernel = picked.kernel;
    instr.call = picked.call;

    int32_t outputs[MAX_OUTPUTS], workspace = -1;
    for (int i = 0; i < n->n_in; i++) {
        bool given = n->in[i] != VALUE_NONE;
        TRY(emit_operand_range(e, given ? e->where[e->root[n->in[i]]] : -1,
                               given ? ACCESS_READ : ACCESS_NONE,
                               given ? e->held[n->in[i]] : VALUE_NONE, bytes_of(e, n, slice, i)));
    }
    for (int i = 0; i < n->n_out; i++) {
        outputs[i] = e->where[e->root[n->out[i]]];
        if (slice.n == 0)
            TRY(emit_output(e, n, i, recompute, &outputs[i]));
        TRY(emit_operand_range(e, outputs[i], ACCESS_WRITE, n->out[i],
                               bytes_of(e, n, slice, n->n_in + i)));
    }
    if (picked.n_workspace > 0) {
        const struct op_def *d = op_get(n->op);
        enum memory_class kind = d->workspace_is_logits ? MEMORY_LOGITS : MEMORY_WORKSPACE;
        TRY(emit_buffer(e, d->name, kind, TIER_DEVICE, picked.n_workspace, VALUE_NONE, &workspace));
        TRY(emit_operand(e, workspace, ACCESS_WRITE, VALUE_NONE));
        instr.has_workspace = true;
    }
    return emit_instr(e, instr, n->n_in + n->n_out + (workspace >= 0));
}

/* Does output i overwrite a root whose home is off the device? */
static bool updates_elsewhere(const struct emitter *e, const struct node *n, int i)
{
    return node_alias(n, i) && e->home[e->root[n->out[i]]] >= 0;
}

/* A sum over micro-steps whose update stands in the same stretch as its last term is used up there:
 * the next step clears it. */
static bool is_used_up(const struct emitter *e, value_id root)
{
    return e->ends_step && e->p->buffers.items[e->home[root]].carried &&
           e->touched_last[root] <= e->stretch_end;
}

static enum status emit_node(struct emitter *e, node_id k, bool recompute)
{
    const struct node *n = graph_node(e->g, k);
    bool backward = recompute || (n->pass != PASS_BEGIN && n->pass != PASS_FORWARD);
    if (!recompute && emit_in_slices(e, k))
        return emit_slices(e, k);
    for (int i = 0; i < n->n_in; i++) {
        value_id root = n->in[i] == VALUE_NONE ? VALUE_NONE : e->root[n->in[i]];
        bool blank = op_get(n->op)->ignores_inputs && root != VALUE_NONE && e->home[root] >= 0;
        if (blank && e->where[root] < 0)
            TRY(emit_stage_blank(e, root));
        else if (root != VALUE_NONE)
            TRY(emit_ensure(e, n->in[i], backward));
    }
    if (is_view(n) || emit_is_formed(e, n))
        return OK;
    /* An earlier value on its way home must not be overwritten before it has left. */
    for (int i = 0; i < n->n_out; i++) {
        if (updates_elsewhere(e, n, i))
            TRY(emit_wait_buffer(e, e->where[e->root[n->out[i]]]));
    }
    TRY(emit_compute(e, k, recompute, (struct slice){0}));
    for (int i = 0; i < n->n_out; i++) {
        value_id root = e->root[n->out[i]];
        bool last = e->overwrites[root] <= 1; /* of this stretch: what comes after it goes home */
        if (updates_elsewhere(e, n, i) && last && !is_used_up(e, root))
            TRY(emit_write_back(e, root));
    }
    return OK;
}

/* Values that the plan moves leave here. */
static enum status emit_departures(struct emitter *e, node_id k)
{
    const struct node *n = graph_node(e->g, k);
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        value_id v = i < n->n_in ? n->in[i] : n->out[i - n->n_in];
        if (v == VALUE_NONE)
            continue;
        value_id root = e->root[v];
        if (e->plan->treat[root] == MOVE && e->leaves_after[root] == k && e->read_later[root] &&
            e->where[root] >= 0 && e->moved[root] < 0)
            TRY(emit_move_out(e, root));
    }
    return OK;
}

/* ---- sections -------------------------------------------------------------------------------- */

/* Nothing computed in one section is visible in another, except what lives in roots; and everything
 * is finished in between, so that no event reaches across. */
static void forget_transients(struct emitter *e, const struct section_rule *rule)
{
    section_held(e->g, e->root, rule->late ? ~rule->late : rule->before, false, e->now);
    for (value_id v = 0; (size_t)v < e->g->values.n; v++) {
        const struct value *x = graph_value(e->g, v);
        if (rule->late && x->producer == NODE_NONE && e->newest[v] == e->now[v])
            e->now[v] = v; /* no late node changes it: the step before is done with it */
        if (x->producer != NODE_NONE || x->role == ROLE_INPUT)
            e->where[v] = -1;
        e->moved[v] = e->ready[v] = -1;
        e->again[v] = false;
        if (rule->late && is_kept_on_device(e, v))
            e->where[v] = e->kept[v];
        else if (rule->late)
            e->moved[v] = e->kept[v];
    }
}

static bool is_same_stretch(const struct emitter *e, const struct ordered_node *a,
                            const struct ordered_node *b)
{
    const struct node *x = graph_node(e->g, a->beside), *y = graph_node(e->g, b->beside);
    return x->block == y->block && (x->pass == PASS_FORWARD) == (y->pass == PASS_FORWARD);
}

/* The end of the stretch that begins with item i: what lives elsewhere is fetched once for a
 * block's forward part, with the late updates before it, and once for its backward part. */
static size_t find_stretch_end(const struct emitter *e, const struct section_order *o, size_t i)
{
    size_t end = i + 1;
    while (end < o->n && is_same_stretch(e, &o->items[i], &o->items[end]))
        end++;
    return end;
}

/* Nodes that cannot be called on slices read what they read as a whole. */
static void count_uses(struct emitter *e, node_id k, int32_t by)
{
    const struct node *n = graph_node(e->g, k);
    bool sliceable = e->plan->sliceable[k] > 0;
    for (int i = 0; i < n->n_out; i++)
        e->overwrites[e->root[n->out[i]]] += by;
    for (int i = 0; i < n->n_in; i++) {
        bool whole = !sliceable || mask_has(op_get(n->op)->whole_inputs, i);
        if (whole && n->in[i] != VALUE_NONE)
            e->whole_reads[e->root[n->in[i]]] += by;
    }
}

static enum status emit_nodes(struct emitter *e, const struct section_order *o)
{
    size_t end = 0;
    for (size_t i = 0; i < o->n; i++) {
        node_id k = o->items[i].node;
        if (i == end) {
            emit_unstage_all(e);
            end = find_stretch_end(e, o, i);
            e->stretch_end = o->items[end - 1].node;
            for (size_t to_come = i; to_come < end; to_come++)
                count_uses(e, o->items[to_come].node, 1);
        }
        e->late = o->items[i].late;
        TRY(emit_wait_due(e));
        TRY(emit_node(e, k, false));
        if (!e->late)
            TRY(emit_departures(e, k));
        count_uses(e, k, -1);
    }
    e->late = false;
    emit_unstage_all(e);
    return OK;
}

static enum status emit_ordered(struct emitter *e, const struct section_rule *rule)
{
    struct section_order order;
    enum status status = section_order(e->g, rule, &order);
    if (status == OK)
        status = emit_nodes(e, &order);
    mem_free(order.items);
    return status;
}

static enum status emit_section(struct emitter *e, const struct section_rule *rule)
{
    struct section s = {.name = rule->name, .first = (int32_t)e->p->instrs.n};
    e->ends_step = !rule->carries;
    forget_transients(e, rule);
    TRY(emit_input_copies(e, rule));
    TRY(emit_ordered(e, rule));
    if (rule->ends)
        TRY(emit_output_copies(e));
    TRY(emit_wait_all(e));
    emit_unstage_all(e);
    s.n = (int32_t)e->p->instrs.n - s.first;
    return vec_push(&e->p->sections, s);
}

static void live_throughout(struct program *p, struct buffer *b)
{
    b->first = 0;
    b->last = MAX((int32_t)p->instrs.n - 1, 0);
}

/* Storage, values carried over micro-steps and host ports live for the whole program. */
static void extend_lifetimes(struct program *p)
{
    for (size_t i = 0; i < p->buffers.n; i++) {
        struct buffer *b = &p->buffers.items[i];
        if (b->storage >= 0 || b->carried)
            live_throughout(p, b);
    }
    for (size_t i = 0; i < p->inputs.n; i++)
        live_throughout(p, &p->buffers.items[p->inputs.items[i].buffer]);
    for (size_t i = 0; i < p->outputs.n; i++)
        live_throughout(p, &p->buffers.items[p->outputs.items[i].buffer]);
}

static enum status emit_all(struct emitter *e)
{
    const struct section_rule *rules = section_rules(e->g, e->plan);
    TRY(emitter_init(e));
    section_carried(e->g, rules, e->carried);
    section_held(e->g, e->root, ~0u, false, e->newest);
    emit_find_uses(e);
    TRY(emit_roots(e));
    for (const struct section_rule *r = rules; r->name; r++)
        TRY(emit_section(e, r));
    return OK;
}

/* The next program of the plan will be much as long: its arrays need not grow step by step. */
static void note_sizes(const struct plan *plan, const struct program *p)
{
    plan->emitted->n_instrs = p->instrs.n;
    plan->emitted->n_operands = p->operands.n;
    plan->emitted->n_buffers = p->buffers.n;
}

enum status program_emit(struct program **out, const char *name, const struct graph *g,
                         const struct plan *plan, const struct device *device,
                         struct storage *storage)
{
    *out = NULL;
    struct program *p = mem_calloc(1, sizeof(*p));
    if (!p)
        return FAIL(ERR_MEMORY, "out of memory for a program");
    pool_init(&p->pool);
    p->graph = g;
    p->env = device->env;
    p->plan = plan_hash(plan, g);
    p->name = pool_strdup(&p->pool, name);

    struct emitter e = {.p = p, .g = g, .plan = plan, .device = device, .storage = storage};
    enum status status;
    TRY_GOTO(pool_status(&p->pool), out);
    TRY_GOTO(emit_all(&e), out);
    extend_lifetimes(p);
    TRY_GOTO(overlap_fetches(&e), out);
    TRY_GOTO(merge_in_place(p), out);
    note_sizes(plan, p);
out:
    emitter_release(&e);
    if (status != OK)
        program_free(p);
    else
        *out = p;
    return status;
}

void program_free(struct program *p)
{
    if (!p)
        return;
    vec_release(&p->instrs);
    vec_release(&p->operands);
    vec_release(&p->buffers);
    vec_release(&p->sections);
    vec_release(&p->inputs);
    vec_release(&p->outputs);
    pool_release(&p->pool);
    mem_free(p);
}
