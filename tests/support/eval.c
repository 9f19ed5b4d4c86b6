#include "support/eval.h"

#include <string.h>

#include "base/alloc.h"
#include "device/cpu/cpu_kernels.h"

enum { ZONE_BYTES = 256, ZONE_BYTE = 0xC7, EVAL_ALIGN = 64, EVAL_MAX_OUT = 8 };

/* | ZONE_BYTES | n_bytes (64-byte aligned) | ZONE_BYTES | */
struct block {
    void *base; /* what mem_alloc gave; NULL: shares another value's memory */
    uint8_t *data;
    size_t n_bytes;
};

struct eval {
    const struct graph *g;
    struct eval_options options;
    struct block *blocks; /* per value */
    struct tensor *in;    /* scratch: the widest node's inputs */
    struct team *team;
};

static enum status block_init(struct block *b, size_t n_bytes, uint8_t poison)
{
    b->base = mem_alloc(n_bytes + 2 * ZONE_BYTES + EVAL_ALIGN);
    if (!b->base)
        return FAIL(ERR_MEMORY, "out of memory for %zu bytes", n_bytes);
    uintptr_t at = (uintptr_t)b->base + ZONE_BYTES;
    b->data =
        (uint8_t *)b->base + ((at + EVAL_ALIGN - 1) / EVAL_ALIGN * EVAL_ALIGN - at) + ZONE_BYTES;
    b->n_bytes = n_bytes;
    memset(b->data - ZONE_BYTES, ZONE_BYTE, ZONE_BYTES);
    memset(b->data, poison, n_bytes);
    memset(b->data + n_bytes, ZONE_BYTE, ZONE_BYTES);
    return OK;
}

static enum status block_check(const struct block *b, const char *what, int i)
{
    for (size_t k = 0; b->base && k < ZONE_BYTES; k++) {
        if (b->data[b->n_bytes + k] != ZONE_BYTE)
            return FAIL(ERR_INTERNAL, "wrote %zu bytes past the end of %s %d", k + 1, what, i);
        if (b->data[-(ptrdiff_t)k - 1] != ZONE_BYTE)
            return FAIL(ERR_INTERNAL, "wrote %zu bytes before the start of %s %d", k + 1, what, i);
    }
    return OK;
}

/* The input whose memory output i of n takes in this run, or -1. */
static int shared_input(const struct eval *e, const struct node *n, int i)
{
    const struct alias_rule *a = node_alias(n, i);
    if (a)
        return a->in;
    a = op_get(n->op)->aliases;
    for (int r = 0; a && a[r].kind != ALIAS_NONE && r < 32; r++) {
        if (!(e->options.overlays >> r & 1u) || a[r].kind != ALIAS_MAY || a[r].out != i ||
            a[r].in >= n->n_in || n->in[a[r].in] == VALUE_NONE)
            continue;
        if (value_bytes(e->g, n->out[i]) <= value_bytes(e->g, n->in[a[r].in]))
            return a[r].in;
    }
    return -1;
}

static enum status allocate(struct eval *e)
{
    const struct graph *g = e->g;
    for (size_t v = 0; v < g->values.n; v++) {
        const struct value *x = graph_value(g, (value_id)v);
        if (x->producer != NODE_NONE)
            continue;
        size_t n_bytes = (size_t)value_bytes(g, (value_id)v);
        TRY(block_init(&e->blocks[v], n_bytes, e->options.poison));
        if (x->data)
            memcpy(e->blocks[v].data, x->data, n_bytes);
    }
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, (node_id)k);
        for (int i = 0; i < n->n_out; i++) {
            int in = shared_input(e, n, i);
            struct block *b = &e->blocks[n->out[i]];
            if (in >= 0)
                *b = (struct block){.data = e->blocks[n->in[in]].data,
                                    .n_bytes = (size_t)value_bytes(g, n->out[i])};
            else
                TRY(block_init(b, (size_t)value_bytes(g, n->out[i]), e->options.poison));
        }
    }
    return OK;
}

enum status eval_new(struct eval **out, const struct graph *g, const struct eval_options *options)
{
    struct eval *e = mem_calloc(1, sizeof(*e));
    *out = NULL;
    if (!e)
        return FAIL(ERR_MEMORY, "out of memory");
    e->g = g;
    e->options = *options;
    if (e->options.n_threads == 0)
        e->options.n_threads = 2;
    size_t widest = 1;
    for (size_t k = 0; k < g->nodes.n; k++)
        widest = MAX(widest, (size_t)g->nodes.items[k].n_in);
    enum status status = mem_try_array(&e->blocks, MAX(g->values.n, (size_t)1), sizeof(*e->blocks));
    if (status == OK)
        status = mem_try_array(&e->in, widest, sizeof(*e->in));
    if (status == OK)
        status = allocate(e);
    if (status == OK)
        status = team_new(&e->team, e->options.n_threads);
    if (status != OK) {
        eval_free(e);
        return status;
    }
    *out = e;
    return OK;
}

void eval_free(struct eval *e)
{
    if (!e)
        return;
    for (size_t v = 0; e->blocks && v < e->g->values.n; v++)
        mem_free(e->blocks[v].base);
    mem_free(e->blocks);
    mem_free(e->in);
    team_free(e->team);
    mem_free(e);
}

struct tensor eval_tensor(const struct eval *e, value_id v)
{
    struct tensor t = value_tensor(e->g, v);
    t.data = e->blocks[v].data;
    return t;
}

static struct kernel_env env_of(const struct eval *e)
{
    return (struct kernel_env){.n_threads = e->options.n_threads, .team = e->team};
}

static enum status pick(const struct eval *e, const struct op_call *c, const struct kernel **out)
{
    const char *why = "there is none of that name";
    const struct kernel *list = cpu_kernels(c->op);
    struct kernel_env env = env_of(e);
    if (!e->options.kernel) {
        *out = kernel_pick(list, c, &env, &why);
        return *out ? OK : FAIL(ERR_INTERNAL, "no kernel: %s", why);
    }
    for (const struct kernel *k = list; k && k->name; k++) {
        if (strcmp(k->name, e->options.kernel) != 0)
            continue;
        *out = k;
        why = k->declines ? k->declines(c, &env) : NULL;
        break;
    }
    return why ? FAIL(ERR_INTERNAL, "kernel '%s': %s", e->options.kernel, why) : OK;
}

/* Asks for workspace, runs, and looks at the redzones of everything in reach. */
static enum status run_kernel(const struct eval *e, const struct node *n, const struct kernel *k,
                              const struct op_call *c)
{
    struct kernel_ctx x = {.env = env_of(e)};
    int64_t n_bytes = k->workspace ? k->workspace(c, &x.env) : 0;
    if (n_bytes < 0)
        return FAIL(ERR_INTERNAL, "declares %lld bytes of workspace", (long long)n_bytes);
    struct block w;
    TRY(block_init(&w, (size_t)n_bytes, e->options.poison));
    x.workspace = w.data;
    enum status status = k->run(&x, c);
    if (status == OK)
        status = block_check(&w, "workspace", 0);
    for (int i = 0; i < n->n_in && status == OK; i++) {
        if (n->in[i] != VALUE_NONE)
            status = block_check(&e->blocks[n->in[i]], "input", i);
    }
    for (int i = 0; i < n->n_out && status == OK; i++)
        status = block_check(&e->blocks[n->out[i]], "output", i);
    mem_free(w.base);
    return status;
}

static enum status run_node(struct eval *e, node_id id)
{
    const struct node *n = graph_node(e->g, id);
    struct tensor out[EVAL_MAX_OUT];
    struct op_call c;
    bool only_views = true;
    node_call(e->g, n, e->in, out, &c);
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] != VALUE_NONE)
            e->in[i].data = e->blocks[n->in[i]].data;
    }
    for (int i = 0; i < n->n_out; i++) {
        const struct alias_rule *a = node_alias(n, i);
        const struct block *b = &e->blocks[n->out[i]];
        only_views &= a && a->kind == ALIAS_VIEW;
        out[i].data = b->data;
        if (b->base)
            memset(b->data, e->options.poison, b->n_bytes);
    }
    if (only_views)
        return OK;
    const struct kernel *k = NULL;
    enum status status = pick(e, &c, &k);
    if (status == OK)
        status = run_kernel(e, n, k, &c);
    return status == OK ? OK : status_prefix(status, "node %d (%s)", id, op_get(n->op)->name);
}

enum status eval_run(struct eval *e)
{
    for (size_t k = 0; k < e->g->nodes.n; k++)
        TRY(run_node(e, (node_id)k));
    return OK;
}
