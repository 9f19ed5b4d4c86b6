#include "search/workload.h"

#include <string.h>

#include "plan/group.h"

enum status workload_init(struct workload *w, struct device *device, int n_stages)
{
    *w = (struct workload){.device = device, .n_stages = n_stages};
    storage_init(&w->storage);
    pool_init(&w->pool);
    TRY(mem_try_array(&w->stages, (size_t)MAX(n_stages, 1), sizeof(*w->stages)));
    for (int i = 0; i < n_stages; i++)
        w->stages[i] = (struct stage){.handle = -1, .group = 1};
    return OK;
}

static void drop_program(struct stage *s)
{
    prediction_release(&s->prediction);
    program_free(s->program);
    s->program = NULL;
}

void workload_release(struct workload *w)
{
    for (int i = 0; w->stages && i < w->n_stages; i++) {
        drop_program(&w->stages[i]);
        plan_release(&w->stages[i].plan);
        graph_free(w->stages[i].graph);
        graph_free(w->stages[i].single);
    }
    mem_free(w->stages);
    storage_release(&w->storage);
    pool_release(&w->pool);
    *w = (struct workload){0};
}

enum status workload_twin(struct workload *out, const struct workload *w)
{
    TRY(workload_init(out, w->device, w->n_stages));
    for (int i = 0; i < w->n_stages; i++) {
        const struct stage *s = &w->stages[i];
        out->stages[i] = (struct stage){.purpose = s->purpose,
                                        .graph = s->single ? s->single : s->graph,
                                        .io = s->io,
                                        .n_micro = s->n_micro,
                                        .group = 1,
                                        .handle = -1};
    }
    out->reserves = w->reserves;
    out->n_reserves = w->n_reserves;
    return OK;
}

void workload_twin_release(struct workload *w)
{
    for (int i = 0; w->stages && i < w->n_stages; i++) {
        stage_clear(&w->stages[i]); /* what it has of groups is its own */
        w->stages[i].graph = NULL;
    }
    workload_release(w);
}

void workload_drop_programs(struct workload *w)
{
    for (int i = 0; i < w->n_stages; i++)
        drop_program(&w->stages[i]);
    storage_release(&w->storage);
    storage_init(&w->storage);
}

struct stage *workload_stage(const struct workload *w, enum stage_purpose purpose)
{
    for (int i = 0; i < w->n_stages; i++) {
        if (w->stages[i].purpose == purpose)
            return &w->stages[i];
    }
    return NULL;
}

int workload_n_training(const struct workload *w)
{
    int n = 0;
    for (int i = 0; i < w->n_stages; i++)
        n += w->stages[i].purpose == STAGE_TRAIN;
    return n;
}

int64_t workload_n_instrs(const struct workload *w)
{
    int64_t n = 0;
    for (int i = 0; i < w->n_stages; i++)
        n += (int64_t)w->stages[i].program->instrs.n;
    return n;
}

int64_t workload_layout_work(const struct workload *w)
{
    int64_t n = 0;
    for (int i = 0; i < w->n_stages; i++)
        n += w->stages[i].program->layout_work;
    return n;
}

const struct stage *workload_fullest(const struct workload *w, enum tier t)
{
    const struct stage *fullest = &w->stages[0];
    for (int i = 1; i < w->n_stages; i++) {
        const struct stage *s = &w->stages[i];
        if (s->program->n_bytes[t] > fullest->program->n_bytes[t])
            fullest = s;
    }
    return fullest;
}

/* ---- deciding -------------------------------------------------------------------------------- */

void stage_clear(struct stage *s)
{
    drop_program(s);        /* it borrows the graph, */
    plan_release(&s->plan); /* and this is about it */
    if (!s->single)
        return;
    graph_free(s->graph);
    s->graph = s->single;
    s->single = NULL;
    s->group = 1;
}

/* The graph of a step whose micro-batches run in groups of that size. */
static enum status group_stage(struct stage *s, int group)
{
    if (s->group == group)
        return OK;
    stage_clear(s);
    if (group == 1)
        return OK;
    struct graph *grouped;
    TRY(group_graph(&grouped, s->graph, group));
    s->single = s->graph;
    s->graph = grouped;
    s->group = group;
    return OK;
}

int workload_group(const struct stage *s, const struct decisions *d)
{
    bool several = s->purpose == STAGE_TRAIN && s->n_micro > 1;
    return several ? (int)MIN((int64_t)MAX(d->group, 1), s->n_micro) : 1;
}

/* Beside training a cache is small, and read and written for every token. */
static void keep_caches(struct stage *s)
{
    for (int i = 0; s->io.caches && i < s->io.n_blocks; i++)
        s->plan.home[s->io.caches[i]] = TIER_DEVICE;
}

/* What is predicted of gradients is written by one program and read by another, at different
 * places: where it is at hand is said for both. */
static void keep_predicted(struct stage *s)
{
    static const char prefix[] = "predicted.";
    for (value_id v = 0; (size_t)v < s->graph->values.n; v++) {
        const struct value *x = graph_value(s->graph, v);
        if (x->role == ROLE_STATE && x->producer == NODE_NONE &&
            strncmp(x->name, prefix, sizeof(prefix) - 1) == 0)
            s->plan.home[v] = TIER_DEVICE;
    }
}

static bool has_backward(const struct stage *s)
{
    return s->purpose == STAGE_TRAIN || s->purpose == STAGE_PREDICT || s->purpose == STAGE_MEASURE;
}

enum status workload_decide(struct workload *w, const struct decisions *d)
{
    for (int i = 0; i < w->n_stages; i++) {
        struct stage *s = &w->stages[i];
        TRY(group_stage(s, workload_group(s, d)));
        if (s->plan.facts)
            plan_restart(&s->plan, s->graph);
        else
            TRY(plan_init(&s->plan, s->graph, s->n_micro));
        if (has_backward(s))
            TRY(decisions_apply(d, &s->plan, s->graph, w->device));
        else
            decisions_apply_homes(d, &s->plan, s->graph);
        if (workload_stage(w, STAGE_TRAIN))
            keep_caches(s);
        keep_predicted(s);
    }
    return OK;
}

/* ---- emitting -------------------------------------------------------------------------------- */

static enum status reserve(struct workload *w, const struct reserve *r)
{
    int32_t index;
    int64_t n_trained = r->n_copies > 0 ? model_count_trained(&w->stages[0].io) : 0;
    int64_t n_bytes = r->n_bytes + r->n_copies * n_trained * (int64_t)sizeof(float);
    if (n_bytes == 0)
        return OK;
    return storage_need(&w->storage, r->name, r->is_kept ? MEMORY_OPTIMIZER : MEMORY_STAGING,
                        TIER_HOST, n_bytes, &index);
}

/* What is read from files and written to them: weights, and with an optimizer what it keeps. A
 * cache of keys and values is neither. */
static bool is_staged(const struct workload *w, const struct storage_entry *e)
{
    return e->kind == MEMORY_WEIGHTS || e->kind == MEMORY_FROZEN ||
           (workload_stage(w, STAGE_TRAIN) && e->kind != MEMORY_STAGING);
}

/* Is it in its file in another order? */
static bool has_units(const struct model_param *p)
{
    return p->quantization.code == CODE_NONE && param_unit(p) > 1;
}

static bool any_has_units(const struct model_graph *io)
{
    bool any = false;
    for (int i = 0; i < io->n_params && !any; i++)
        any = has_units(&io->params[i]);
    return any;
}

/* Bytes of an entry that go through the staging together: of a parameter or its master what its
 * file has in another order; of what is kept as codes, and of states, whatever there is room for.
 */
static int64_t unit_bytes(const struct workload *w, const struct storage_entry *e)
{
    static const char master[] = "master.";
    const struct model_graph *io = &w->stages[0].io;
    bool is_master = strncmp(e->name, master, strlen(master)) == 0;
    const char *name = is_master ? e->name + strlen(master) : e->name;
    for (int i = 0; i < io->n_params; i++) {
        const struct model_param *p = &io->params[i];
        if (has_units(p) && strcmp(p->name, name) == 0)
            return e->n_bytes / MAX(shape_elems(&p->shape), (int64_t)1) * param_unit(p);
    }
    return 0; /* there is always room for an element */
}

/* Room for what goes through it at once, of what the host cannot reach: a tensor, or part of a
 * large one. */
static enum status reserve_staging(struct workload *w)
{
    int64_t most = 0, limit = w->device->staging_bytes ? w->device->staging_bytes : STAGING_BYTES;
    const bool any_units = any_has_units(&w->stages[0].io);
    for (size_t i = 0; i < w->storage.entries.n; i++) {
        const struct storage_entry *e = &w->storage.entries.items[i];
        if (!device_host_reaches(w->device, e->tier) && is_staged(w, e))
            most = MAX(most, e->n_bytes <= limit ? e->n_bytes
                             : any_units         ? MAX(limit, unit_bytes(w, e))
                                                 : limit);
    }
    return reserve(w, &(struct reserve){.name = STAGING_NAME, .n_bytes = most});
}

/* What is tried is about what a step saves far more often than about what evaluation reads: there
 * the program of before is the one that would be made once more. */
static enum status emit_stage(struct workload *w, struct stage *s)
{
    if (s->program && s->program->plan == plan_hash(&s->plan, s->graph))
        return program_need_storage(s->program, &w->storage);
    drop_program(s);
    return program_emit(&s->program, s->graph->name, s->graph, &s->plan, w->device, &w->storage);
}

static enum status emit_all(struct workload *w)
{
    for (int i = 0; i < w->n_stages; i++)
        TRY(emit_stage(w, &w->stages[i]));
    return OK;
}

/* Programs with the storage of all known: what lives inside a step begins where it ends. */
static enum status emit_programs(struct workload *w)
{
    storage_release(&w->storage);
    storage_init(&w->storage);
    TRY(emit_all(w));
    for (int i = 0; i < w->n_reserves; i++)
        TRY(reserve(w, &w->reserves[i]));
    return reserve_staging(w);
}

static void measure_arenas(struct workload *w)
{
    memset(w->n_bytes, 0, sizeof(w->n_bytes));
    for (int i = 0; i < w->n_stages; i++) {
        for (int t = 0; t < TIER_COUNT; t++)
            w->n_bytes[t] = MAX(w->n_bytes[t], w->stages[i].program->n_bytes[t]);
    }
}

enum status workload_bound(struct workload *w)
{
    TRY(emit_programs(w));
    for (int i = 0; i < w->n_stages; i++)
        TRY(program_bound(w->stages[i].program, &w->storage));
    measure_arenas(w);
    return OK;
}

enum status workload_place_within(struct workload *w, const int64_t room[TIER_COUNT])
{
    for (int i = 0; i < w->n_stages; i++)
        TRY(program_place(w->stages[i].program, &w->storage, room));
    measure_arenas(w);
    return OK;
}

enum status workload_place(struct workload *w)
{
    TRY(emit_programs(w));
    return workload_place_within(w, NULL);
}

enum status workload_check(const struct workload *w)
{
    for (int i = 0; i < w->n_stages; i++)
        TRY(program_check(w->stages[i].program, &w->storage));
    return OK;
}

enum status workload_emit(struct workload *w)
{
    TRY(workload_place(w));
    return workload_check(w);
}
