#include "graph/slice.h"

static value_id operand_value(const struct node *n, int operand)
{
    return operand < n->n_in ? n->in[operand] : n->out[operand - n->n_in];
}

static int64_t n_elems(const struct graph *g, value_id v)
{
    return shape_elems(&graph_value(g, v)->shape);
}

int64_t node_granule(const struct graph *g, const struct node *n)
{
    const struct op_def *d = op_get(n->op);
    if (!d->by_rows)
        return d->granule;
    const struct shape *s = &graph_value(g, n->out[0])->shape;
    return s->rank > 0 && s->dim[0] > 0 ? shape_elems(s) / s->dim[0] : 0;
}

int64_t node_sliceable(const struct graph *g, const struct node *n)
{
    if (node_granule(g, n) == 0)
        return 0;
    if (op_get(n->op)->by_rows)
        return n_elems(g, n->out[0]);
    return n->in[0] != VALUE_NONE ? n_elems(g, n->in[0]) : 0;
}

bool node_reads_slices(const struct graph *g, const struct node *n, int i)
{
    int64_t all = node_sliceable(g, n);
    return all > 0 && n->in[i] != VALUE_NONE && !mask_has(op_get(n->op)->whole_inputs, i) &&
           n_elems(g, n->in[i]) == all;
}

/* So many times: a product of a few rows with a few others, not one of matrices. */
enum { EXPANDS = 8 };

bool node_expands(const struct graph *g, const struct node *n)
{
    int64_t n_read = 0;
    for (int i = 0; i < n->n_in; i++)
        n_read += n->in[i] == VALUE_NONE ? 0 : value_bytes(g, n->in[i]);
    return op_get(n->op)->by_rows && n_read <= value_bytes(g, n->out[0]) / EXPANDS;
}

bool slice_is_valid(const struct graph *g, const struct node *n, struct slice s)
{
    int64_t all = node_sliceable(g, n), granule = node_granule(g, n);
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
    value_id v = operand_value(n, operand);
    if (v == VALUE_NONE)
        return (struct slice){0};
    int64_t own = n_elems(g, v), granule = node_granule(g, n);
    if (is_whole(n, s, operand))
        return (struct slice){0, own};
    if (own == node_sliceable(g, n))
        return s;
    return (struct slice){s.first / granule, (s.n + granule - 1) / granule};
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
    if (!tensor_present(&t) || is_whole(n, s, operand))
        return t;
    if (op_get(n->op)->by_rows)
        t.shape.dim[0] = s.n / node_granule(g, n);
    else
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
