/* graph.c: building and asking. Passes that change a whole graph are in transform.c, the invariants
 * in check.c, the text form in print.c and parse.c. */
#include "graph/graph.h"

#include <string.h>

static const char *const role_names[ROLE_COUNT] = {
    [ROLE_ACTIVATION] = "activation", [ROLE_GRADIENT] = "gradient", [ROLE_INPUT] = "input",
    [ROLE_PARAMETER] = "parameter",   [ROLE_FROZEN] = "frozen",     [ROLE_MASTER] = "master",
    [ROLE_STATE] = "state",           [ROLE_CONSTANT] = "constant", [ROLE_METRIC] = "metric",
};

static const char *const pass_names[PASS_COUNT] = {
    [PASS_BEGIN] = "begin", [PASS_FORWARD] = "forward", [PASS_BACKWARD] = "backward",
    [PASS_NORM] = "norm",   [PASS_UPDATE] = "update",
};

const char *role_name(enum role r)
{
    return role_names[r];
}

bool role_parse(const char *text, enum role *r)
{
    for (int i = 0; i < ROLE_COUNT; i++) {
        if (strcmp(text, role_names[i]) == 0) {
            *r = (enum role)i;
            return true;
        }
    }
    return false;
}

bool role_is_persistent(enum role r)
{
    return role_is_parameter(r) || r == ROLE_MASTER || r == ROLE_STATE || r == ROLE_CONSTANT;
}

bool role_is_parameter(enum role r)
{
    return r == ROLE_PARAMETER || r == ROLE_FROZEN;
}

const char *pass_name(enum pass p)
{
    return pass_names[p];
}

bool pass_parse(const char *text, enum pass *p)
{
    for (int i = 0; i < PASS_COUNT; i++) {
        if (strcmp(text, pass_names[i]) == 0) {
            *p = (enum pass)i;
            return true;
        }
    }
    return false;
}

enum status graph_new(struct graph **out, const char *name)
{
    struct graph *g = mem_calloc(1, sizeof(*g));
    *out = g;
    if (!g)
        return FAIL(ERR_MEMORY, "out of memory for a graph");
    pool_init(&g->pool);
    g->name = pool_strdup(&g->pool, name);
    enum status status = pool_status(&g->pool);
    if (status != OK) {
        graph_free(g);
        *out = NULL;
    }
    return status;
}

void graph_free(struct graph *g)
{
    if (!g)
        return;
    vec_release(&g->values);
    vec_release(&g->nodes);
    vec_release(&g->outputs);
    pool_release(&g->pool);
    mem_free(g);
}

/* Rejects shapes whose element or byte count would not fit 63 bits, and negative dims. */
static enum status check_size(const char *name, enum dtype dtype, const struct shape *s)
{
    int64_t left = INT64_MAX / MAX(dtype_size(dtype), (int64_t)1);
    for (int i = 0; i < s->rank; i++) {
        if (s->dim[i] < 0)
            return FAIL(ERR_SHAPE, "%s: dimension %d is negative", name, i);
        if (s->dim[i] > 0) {
            left /= s->dim[i];
            if (left == 0)
                return FAIL(ERR_SHAPE, "%s: too many elements", name);
        }
    }
    return OK;
}

enum status graph_add_value(struct graph *g, const char *name, enum role role, enum dtype dtype,
                            struct shape shape, const void *data, value_id *out)
{
    *out = VALUE_NONE;
    TRY(check_size(name, dtype, &shape));
    struct value v = {.dtype = dtype, .shape = shape, .role = role, .producer = NODE_NONE};
    v.name = pool_strdup(&g->pool, name ? name : "");
    if (data) {
        size_t n_bytes = (size_t)(shape_elems(&shape) * dtype_size(dtype));
        void *copy;
        TRY(pool_try(&g->pool, &copy, MAX(n_bytes, (size_t)1)));
        memcpy(copy, data, n_bytes);
        v.data = copy;
    }
    TRY(pool_status(&g->pool));
    TRY(vec_push(&g->values, v));
    *out = (value_id)(g->values.n - 1);
    return OK;
}

static enum status check_arity(const struct graph *g, const struct op_def *d, const value_id *in,
                               int n_in)
{
    if (n_in < d->min_in || (d->max_in >= 0 && n_in > d->max_in))
        return FAIL(ERR_SHAPE, "%s: takes %d to %d inputs, got %d", d->name, d->min_in, d->max_in,
                    n_in);
    for (int i = 0; i < n_in; i++) {
        if (in[i] == VALUE_NONE && i >= d->min_in)
            continue;
        if (in[i] < 0 || (size_t)in[i] >= g->values.n)
            return FAIL(ERR_SHAPE, "%s: input %d is not a value", d->name, i);
    }
    return OK;
}

/* Inference over a node whose inputs are known; outputs' dtype and shape land in `out`. */
static enum status infer(const struct graph *g, const struct node *n, struct tensor *out)
{
    struct tensor *in;
    TRY(mem_try_array(&in, (size_t)MAX(n->n_in, 1), sizeof(*in)));
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] != VALUE_NONE) /* absent ones stay dtype NONE */
            in[i] = value_tensor(g, n->in[i]);
    }
    struct op_call call = {
        .op = n->op, .n_in = n->n_in, .n_out = n->n_out, .in = in, .out = out, .attrs = n->attrs};
    enum status status = op_get(n->op)->infer(&call);
    for (int i = 0; i < n->n_out && status == OK; i++)
        status = check_size(op_get(n->op)->name, out[i].dtype, &out[i].shape);
    mem_free(in);
    return status;
}

enum status graph_add_node(struct graph *g, enum op_id op, const value_id *in, int n_in,
                           const struct attr *attrs, enum pass pass, int block, node_id *out)
{
    const struct op_def *d = op_get(op);
    *out = NODE_NONE;
    BUG_ON(d->n_out > MAX_OUTPUTS);
    TRY(check_arity(g, d, in, n_in));

    struct node n = {.op = op, .pass = pass, .block = block, .n_in = n_in, .n_out = d->n_out};
    TRY(pool_try(&g->pool, &n.in, sizeof(value_id) * (size_t)MAX(n_in, 1)));
    TRY(pool_try(&g->pool, &n.out, sizeof(value_id) * (size_t)d->n_out));
    TRY(pool_try(&g->pool, &n.attrs, sizeof(struct attr) * (size_t)MAX(d->n_attrs, 1)));
    if (n_in)
        memcpy(n.in, in, sizeof(value_id) * (size_t)n_in);
    if (d->n_attrs)
        memcpy(n.attrs, attrs, sizeof(struct attr) * (size_t)d->n_attrs);

    struct tensor result[MAX_OUTPUTS] = {{0}};
    TRY(infer(g, &n, result));
    for (int i = 0; i < n.n_out; i++) {
        enum role role = ROLE_ACTIVATION;
        const struct alias_rule *a = node_alias(&n, i);
        if (a && a->kind == ALIAS_UPDATE)
            role = graph_value(g, n.in[a->in])->role;
        TRY(graph_add_value(g, "", role, result[i].dtype, result[i].shape, NULL, &n.out[i]));
        graph_value(g, n.out[i])->producer = (node_id)g->nodes.n;
        graph_value(g, n.out[i])->output = i;
    }
    TRY(vec_push(&g->nodes, n));
    *out = (node_id)(g->nodes.n - 1);
    return OK;
}

enum status graph_reinfer(struct graph *g)
{
    for (size_t k = 0; k < g->nodes.n; k++) {
        struct node *n = &g->nodes.items[k];
        struct tensor result[MAX_OUTPUTS] = {{0}};
        TRY(infer(g, n, result));
        for (int i = 0; i < n->n_out; i++) {
            graph_value(g, n->out[i])->dtype = result[i].dtype;
            graph_value(g, n->out[i])->shape = result[i].shape;
        }
    }
    return OK;
}

enum status graph_add_output(struct graph *g, const char *name, value_id v)
{
    struct graph_output o = {pool_strdup(&g->pool, name), v};
    TRY(pool_status(&g->pool));
    return vec_push(&g->outputs, o);
}

value_id graph_find_output(const struct graph *g, const char *name)
{
    for (size_t i = 0; i < g->outputs.n; i++) {
        if (strcmp(g->outputs.items[i].name, name) == 0)
            return g->outputs.items[i].value;
    }
    return VALUE_NONE;
}

value_id graph_find_value(const struct graph *g, const char *name)
{
    for (size_t i = 0; i < g->values.n; i++) {
        if (strcmp(g->values.items[i].name, name) == 0)
            return (value_id)i;
    }
    return VALUE_NONE;
}

struct tensor value_tensor(const struct graph *g, value_id v)
{
    const struct value *x = graph_value(g, v);
    return (struct tensor){x->dtype, x->shape, NULL};
}

int64_t value_bytes(const struct graph *g, value_id v)
{
    const struct value *x = graph_value(g, v);
    return shape_elems(&x->shape) * dtype_size(x->dtype);
}

void node_call(const struct graph *g, const struct node *n, struct tensor *in, struct tensor *out,
               struct op_call *call)
{
    static const struct tensor absent = {0};
    for (int i = 0; i < n->n_in; i++)
        in[i] = n->in[i] == VALUE_NONE ? absent : value_tensor(g, n->in[i]);
    for (int i = 0; i < n->n_out; i++)
        out[i] = value_tensor(g, n->out[i]);
    *call = (struct op_call){
        .op = n->op, .n_in = n->n_in, .n_out = n->n_out, .in = in, .out = out, .attrs = n->attrs};
}

double node_flops(const struct graph *g, const struct node *n)
{
    enum { MOST = 64 };
    struct tensor in[MOST], out[MAX_OUTPUTS];
    struct op_call call;
    if (n->n_in > MOST)
        return 0;
    node_call(g, n, in, out, &call);
    return call_flops(&call);
}

const struct alias_rule *node_find_alias(const struct node *n, int output)
{
    const struct alias_rule *a = op_get(n->op)->aliases;
    for (; a->kind != ALIAS_NONE; a++) {
        bool binding = a->kind == ALIAS_VIEW || a->kind == ALIAS_UPDATE;
        if (binding && a->out == output && a->in < n->n_in && n->in[a->in] != VALUE_NONE)
            return a;
    }
    return NULL;
}

static value_id root(const struct graph *g, value_id v, bool through_updates)
{
    for (;;) {
        const struct value *x = graph_value(g, v);
        if (x->producer == NODE_NONE)
            return v;
        const struct node *n = graph_node(g, x->producer);
        const struct alias_rule *a = node_alias(n, x->output);
        if (!a || (a->kind == ALIAS_UPDATE && !through_updates))
            return v;
        v = n->in[a->in];
    }
}

value_id value_root(const struct graph *g, value_id v)
{
    return root(g, v, true);
}

void graph_find_roots(const struct graph *g, value_id *of)
{
    for (size_t v = 0; v < g->values.n; v++)
        of[v] = (value_id)v;
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        for (int i = 0; i < n->n_out; i++) {
            const struct alias_rule *a = node_alias(n, i);
            if (a)
                of[n->out[i]] = of[n->in[a->in]];
        }
    }
}

value_id value_view_root(const struct graph *g, value_id v)
{
    return root(g, v, false);
}
