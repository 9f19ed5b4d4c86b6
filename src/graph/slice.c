#include "graph/slice.h"

static value_id operand_value(const struct node *n, int operand)
{
    return operand < n->n_in ? n->in[operand] : n->out[operand - n->n_in];
}

static int64_t n_elems(const struct graph *g, value_id v)
{
    return shape_elems(&graph_value(g, v)->shape);
}

int64_t node_sliceable(const struct graph *g, const struct node *n)
{
    return op_get(n->op)->granule > 0 && n->in[0] != VALUE_NONE ? n_elems(g, n->in[0]) : 0;
}

bool slice_is_valid(const struct graph *g, const struct node *n, struct slice s)
{
    int64_t all = node_sliceable(g, n), granule = op_get(n->op)->granule;
    if (s.n == 0)
        return s.first == 0;
    return s.first >= 0 && s.n > 0 && s.first < all && s.n <= all - s.first &&
           s.first % granule == 0 && (s.n % granule == 0 || s.first + s.n == all);
}

static bool is_whole(const struct node *n, struct slice s, int operand)
{
    return s.n == 0 || (operand < n->n_in && mask_has(op_get(n->op)->whole_inputs, operand));
}

/* The elements of an operand that belong to a slice of the node. */
static struct slice elements_of(const struct graph *g, const struct node *n, struct slice s,
                                int operand)
{
    const struct op_def *d = op_get(n->op);
    value_id v = operand_value(n, operand);
    if (v == VALUE_NONE)
        return (struct slice){0};
    int64_t own = n_elems(g, v);
    if (is_whole(n, s, operand))
        return (struct slice){0, own};
    if (own == node_sliceable(g, n))
        return s;
    return (struct slice){s.first / d->granule, (s.n + d->granule - 1) / d->granule};
}

struct byte_range slice_bytes(const struct graph *g, const struct node *n, struct slice s,
                              int operand)
{
    value_id v = operand_value(n, operand);
    struct slice e = elements_of(g, n, s, operand);
    int64_t size = v == VALUE_NONE ? 0 : dtype_size(graph_value(g, v)->dtype);
    return (struct byte_range){e.first * size, e.n * size};
}

struct tensor slice_tensor(const struct graph *g, const struct node *n, struct slice s, int operand)
{
    value_id v = operand_value(n, operand);
    struct tensor t = {0};
    if (v != VALUE_NONE)
        t = value_tensor(g, v);
    if (tensor_present(&t) && !is_whole(n, s, operand))
        t.shape = shape_of(1, elements_of(g, n, s, operand).n);
    return t;
}

void node_call_slice(const struct graph *g, const struct node *n, struct slice s, struct tensor *in,
                     struct tensor *out, struct op_call *call)
{
    node_call(g, n, in, out, call);
    call->first_element = s.first;
    for (int k = 0; k < n->n_in; k++)
        in[k] = slice_tensor(g, n, s, k);
    for (int k = 0; k < n->n_out; k++)
        out[k] = slice_tensor(g, n, s, n->n_in + k);
}
