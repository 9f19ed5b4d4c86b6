/* kernel_times.c: measuring the calls of a program, and the table of what was measured.
 *
 * A call is rehearsed on scratch memory: its operands lie there one after the other as often as it
 * takes to be larger than the device's cache, so that no call finds what the one before it left.
 */
#include "program/kernel_times.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/build_id.h"
#include "base/hash.h"
#include "base/kvfile.h"
#include "base/log.h"

enum {
    COPIES_MOST = 64,
    CACHES = 3, /* scratch is so many times the device's cache */
    SCRATCH_LEAST = 16 << 20,
};

struct kernel_times {
    struct device *device;
    struct kvfile *file;
    bool kept;       /* the file has a path */
    char prefix[24]; /* of every key: what the times depend on beside the call */
    int n_measured;
};

/* ---- the table ------------------------------------------------------------------------------ */

enum status kernel_times_open(struct kernel_times **out, struct device *device,
                              const char *cache_folder)
{
    struct kernel_times *t = NULL;
    struct str path = {0}, identity = {0};
    char id[BUILD_ID_TEXT];
    enum status status;
    *out = NULL;
    TRY_GOTO(mem_try_array(&t, 1, sizeof(*t)), out);
    t->device = device;
    t->kept = cache_folder != NULL;
    if (cache_folder)
        str_addf(&path, "%s/kernel-times", cache_folder);
    /* Times that were measured with other tuning are not this device's. */
    str_addf(&identity, "%s; build %s%s%s", device->identity, build_id(id),
             device->tuning.search ? "; searched" : "", device->tuning.tf32 ? "; tf32" : "");
    TRY_GOTO(str_status(&path), out);
    TRY_GOTO(str_status(&identity), out);
    (void)snprintf(t->prefix, sizeof(t->prefix), "%016" PRIx64 " ", hash_text(str_text(&identity)));
    TRY_GOTO(kvfile_open(&t->file, str_text(&path)), out);
    *out = t;
out:
    if (status != OK)
        kernel_times_free(t);
    str_release(&path);
    str_release(&identity);
    return status;
}

void kernel_times_free(struct kernel_times *t)
{
    if (!t)
        return;
    kvfile_free(t->file);
    mem_free(t);
}

int kernel_times_n_measured(const struct kernel_times *t)
{
    return t->n_measured;
}

/* A call whose text is too long for a key goes by its beginning and a hash of all of it. */
static void make_key(const struct kernel_times *t, const char *signature, struct str *key)
{
    enum { TAIL = 20 };
    size_t most = KVFILE_KEY_MOST - sizeof(t->prefix) - TAIL, n = strlen(signature);
    str_clear(key);
    str_add(key, t->prefix);
    str_add_n(key, signature, MIN(n, most));
    if (n > most)
        str_addf(key, "...%016" PRIx64, hash_text(signature));
}

/* Anybody may have written the file: what is no time is not there. */
static double parse_time(const char *text)
{
    double seconds;
    bool good = text && parse_double(text, &seconds) && seconds > 0 && seconds < 1e4;
    return good ? seconds : -1;
}

static double look_up(const struct kernel_times *t, const char *signature, struct str *key)
{
    make_key(t, signature, key);
    return str_status(key) == OK ? parse_time(kvfile_get(t->file, str_text(key))) : -1;
}

double kernel_times_find(const struct kernel_times *t, const struct program *p, int32_t instr)
{
    struct str signature = {0}, key = {0};
    instr_signature(p, t->device, instr, &signature);
    double seconds = str_status(&signature) == OK ? look_up(t, str_text(&signature), &key) : -1;
    str_release(&signature);
    str_release(&key);
    return seconds;
}

/* Picoseconds as a whole number and an exponent: the same in every locale. */
static enum status keep(struct kernel_times *t, const char *signature, double seconds)
{
    struct str key = {0};
    char text[32];
    make_key(t, signature, &key);
    (void)snprintf(text, sizeof(text), "%llde-12", llround(seconds * 1e12));
    enum status status = str_status(&key);
    if (status == OK)
        status = kvfile_put(t->file, str_text(&key), text);
    str_release(&key);
    return status;
}

/* ---- a call on scratch memory --------------------------------------------------------------- */

/* Where the operands of an instruction go: offsets in a piece of n_bytes. */
struct arrangement {
    int64_t *offsets; /* per operand; -1: absent */
    int64_t n_bytes;
};

static enum status arrange(const struct program *p, const struct instr *i, struct pool *pool,
                           struct arrangement *a)
{
    const struct operand *o = &p->operands.items[i->first_operand];
    *a = (struct arrangement){0};
    TRY(pool_try(pool, &a->offsets, sizeof(*a->offsets) * (size_t)MAX(i->n_operands, 1)));
    for (int32_t k = 0; k < i->n_operands; k++) {
        a->offsets[k] = -1;
        for (int32_t m = 0; m < k && o[k].buffer >= 0; m++) {
            if (o[m].buffer >= 0 && o[m].tier == o[k].tier && o[m].offset == o[k].offset)
                a->offsets[k] = a->offsets[m];
        }
        if (o[k].buffer < 0 || a->offsets[k] >= 0)
            continue;
        int64_t n_bytes = o[k].n_bytes;
        for (int32_t m = k + 1; m < i->n_operands; m++) {
            if (o[m].buffer >= 0 && o[m].tier == o[k].tier && o[m].offset == o[k].offset)
                n_bytes = MAX(n_bytes, o[m].n_bytes);
        }
        a->offsets[k] = a->n_bytes;
        a->n_bytes += align_up(n_bytes, ARENA_ALIGN);
    }
    a->n_bytes = MAX(a->n_bytes, (int64_t)ARENA_ALIGN);
    return OK;
}

struct rehearsal {
    const struct program *p;
    const struct instr *instr;
    char *scratch;
    int64_t n_bytes; /* of scratch */
    struct pool pool;
    struct op_call *calls;
    struct kernel_ctx *contexts;
    struct arrangement where;
};

static void *place(const struct rehearsal *r, int copy, int32_t operand)
{
    int64_t offset = r->where.offsets[operand];
    return offset < 0 ? NULL : r->scratch + copy * r->where.n_bytes + offset;
}

static enum status make_copy(struct rehearsal *r, struct device *d, int copy)
{
    const struct node *n = graph_node(r->p->graph, r->instr->node);
    const struct op_def *op = op_get(n->op);
    struct op_call *call = &r->calls[copy];
    struct tensor *in, *out;
    TRY(pool_try(&r->pool, &in, sizeof(*in) * (size_t)MAX(n->n_in, 1)));
    TRY(pool_try(&r->pool, &out, sizeof(*out) * (size_t)MAX(n->n_out, 1)));
    node_call(r->p->graph, n, in, out, call);
    int64_t limit = op->index_limit ? op->index_limit(call) : 1;
    for (int k = 0; k < n->n_in; k++) {
        in[k].data = place(r, copy, k);
        if (in[k].data)
            TRY(d->ops->fill(d, &in[k], limit));
    }
    for (int k = 0; k < n->n_out; k++)
        out[k].data = place(r, copy, n->n_in + k);
    r->contexts[copy].env = d->env;
    if (r->instr->has_workspace)
        r->contexts[copy].workspace = place(r, copy, n->n_in + n->n_out);
    return OK;
}

static enum status rehearse(struct rehearsal *r, struct device *d, bool batched, double *seconds)
{
    TRY(arrange(r->p, r->instr, &r->pool, &r->where));
    if (r->where.n_bytes > r->n_bytes)
        return FAIL(ERR_FIT, "too little memory to time '%s'", r->instr->kernel->name);
    int64_t wanted = batched ? COPIES_MOST : CACHES * d->cache_bytes / r->where.n_bytes + 1;
    int n = (int)MIN(MIN(wanted, r->n_bytes / r->where.n_bytes), (int64_t)COPIES_MOST);
    TRY(pool_try(&r->pool, &r->calls, sizeof(*r->calls) * (size_t)n));
    TRY(pool_try(&r->pool, &r->contexts, sizeof(*r->contexts) * (size_t)n));
    for (int copy = 0; copy < n; copy++)
        TRY(make_copy(r, d, copy));
    const struct timed_calls timed = {
        .kernel = r->instr->kernel,
        .batch = batched ? d->ops->batch(r->instr->kernel) : NULL,
        .contexts = r->contexts,
        .calls = r->calls,
        .n = n,
    };
    TRY(d->ops->time_calls(d, &timed, seconds));
    if (!(*seconds > 0 && *seconds < 1e4))
        return FAIL(ERR_FAILED, "the device says '%s' takes %g s", r->instr->kernel->name,
                    *seconds);
    return OK;
}

/* ---- all calls of a program ----------------------------------------------------------------- */

struct pending {
    int32_t instr;
    const char *signature;
    int64_t n_bytes;
};
struct pending_list {
    VEC(struct pending) items;
    struct pool pool;
    int64_t largest;
};

static bool is_pending(const struct pending_list *list, const char *signature)
{
    for (size_t i = 0; i < list->items.n; i++) {
        if (strcmp(list->items.items[i].signature, signature) == 0)
            return true;
    }
    return false;
}

static enum status find_pending(struct kernel_times *t, const struct program *p,
                                struct pending_list *list)
{
    struct str signature = {0}, key = {0};
    enum status status = OK;
    for (int32_t k = 0; (size_t)k < p->instrs.n && status == OK; k++) {
        const struct instr *i = &p->instrs.items[k];
        struct arrangement a;
        if (i->kind != INSTR_COMPUTE)
            continue;
        str_clear(&signature);
        instr_signature(p, t->device, k, &signature);
        TRY_GOTO(str_status(&signature), out);
        const char *text = str_text(&signature);
        if (look_up(t, text, &key) > 0 || is_pending(list, text))
            continue;
        TRY_GOTO(arrange(p, i, &list->pool, &a), out);
        struct pending x = {k, pool_strdup(&list->pool, text), a.n_bytes};
        TRY_GOTO(pool_status(&list->pool), out);
        list->largest = MAX(list->largest, a.n_bytes);
        status = vec_push(&list->items, x);
    }
out:
    str_release(&signature);
    str_release(&key);
    return status;
}

/* As much as is wanted, or what can be had: a device that is nearly full times its small calls. */
static void *take_scratch(struct device *d, int64_t wanted, int64_t *n_bytes)
{
    void *scratch = NULL;
    for (*n_bytes = wanted; *n_bytes >= ARENA_ALIGN;
         *n_bytes = *n_bytes / 2 / ARENA_ALIGN * ARENA_ALIGN) {
        if (d->ops->memory_alloc(d, TIER_DEVICE, *n_bytes, &scratch) == OK)
            return scratch;
        if (*n_bytes < SCRATCH_LEAST)
            break;
    }
    *n_bytes = 0;
    return NULL;
}

static enum status measure_pending(struct kernel_times *t, const struct program *p,
                                   const struct pending_list *list)
{
    struct device *d = t->device;
    int64_t n_bytes;
    int64_t wanted = MAX(list->largest, (int64_t)CACHES * d->cache_bytes);
    char *scratch = take_scratch(d, MIN(wanted, p->n_bytes[TIER_DEVICE]), &n_bytes);
    enum status status = OK;
    for (size_t i = 0; scratch && i < list->items.n && status == OK; i++) {
        const struct pending *x = &list->items.items[i];
        struct rehearsal r = {
            .p = p, .instr = &p->instrs.items[x->instr], .scratch = scratch, .n_bytes = n_bytes};
        double seconds = 0;
        pool_init(&r.pool);
        enum status timed = rehearse(&r, d, instr_is_batched(p, d, x->instr), &seconds);
        pool_release(&r.pool);
        if (timed != OK) {
            log_debug("not timed: %s: %s", x->signature, status_message());
            continue;
        }
        t->n_measured++;
        status = keep(t, x->signature, seconds);
    }
    if (scratch)
        d->ops->memory_free(d, TIER_DEVICE, scratch, n_bytes);
    return status;
}

enum status kernel_times_measure(struct kernel_times *t, const struct program *p)
{
    struct pending_list list = {0};
    enum status status = OK;
    if (!t->device->ops->time_calls || !t->device->ops->fill)
        return OK;
    pool_init(&list.pool);
    TRY_GOTO(find_pending(t, p, &list), out);
    if (list.items.n == 0)
        goto out;
    log_info("timing %zu kernels%s", list.items.n,
             t->kept ? "; the next plan of these shapes knows them" : "");
    TRY_GOTO(measure_pending(t, p, &list), out);
    /* A cache that cannot be written costs time, not the run. */
    if (t->kept && kvfile_save(t->file) != OK)
        log_warn("times of kernels are not kept: %s", status_message());
out:
    vec_release(&list.items);
    pool_release(&list.pool);
    return status;
}
