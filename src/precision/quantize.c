#include "precision/quantize.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

const char *quantize_part_name(char out[QUANT_NAME], const char *param, const char *suffix)
{
    (void)snprintf(out, QUANT_NAME, "%s%s%s", param, suffix[0] ? "." : "", suffix);
    return out;
}

/* Per value: what is read in its place, and before which node that is made. */
struct rewiring {
    value_id *matrix; /* VALUE_NONE: the value itself */
    node_id *reader;  /* the first; NODE_NONE: none */
    node_id *made_by;
};

static void find_readers(const struct graph *g, struct rewiring *w)
{
    for (node_id k = (node_id)g->nodes.n - 1; k >= 0; k--) {
        const struct node *n = graph_node(g, k);
        for (int i = 0; i < n->n_in; i++) {
            if (n->in[i] != VALUE_NONE)
                w->reader[n->in[i]] = k;
        }
    }
}

/* The parameter's value becomes its codes; the others are added. */
static enum status add_parts(struct graph *g, const struct model_param *p,
                             const struct quant_layout *l, value_id in[QUANT_PARTS], int *n)
{
    struct format_part part[QUANT_PARTS];
    struct value *codes = graph_value(g, p->value);
    *n = quant_parts(l, part);
    codes->dtype = part[0].dtype;
    codes->shape = part[0].shape;
    in[0] = p->value;
    for (int i = 1; i < *n; i++) {
        char name[QUANT_NAME];
        TRY(graph_add_value(g, quantize_part_name(name, p->name, part[i].suffix), ROLE_FROZEN,
                            part[i].dtype, part[i].shape, NULL, &in[i]));
    }
    return OK;
}

static enum status add_matrix(struct graph *g, const struct model_param *p, struct rewiring *w)
{
    struct quant_layout l = param_quant_layout(p);
    enum dtype dtype = graph_value(g, p->value)->dtype;
    node_id reader = w->reader[p->value], made;
    struct attr attrs[] = {{.i = l.q.code},
                           {.i = l.n_columns},
                           {.n_ints = quant_pieces_each(&l)},
                           {.i = dtype},
                           {.i = l.n_matrices}};
    value_id in[QUANT_PARTS];
    int n_parts;
    for (int k = 0; k < attrs[2].n_ints; k++)
        attrs[2].ints[k] = l.rows[k];
    TRY(add_parts(g, p, &l, in, &n_parts));
    if (reader == NODE_NONE)
        return OK;
    TRY(graph_add_node(g, OP_dequantize, in, n_parts, attrs, PASS_FORWARD,
                       graph_node(g, reader)->block, &made));
    w->matrix[p->value] = graph_node(g, made)->out[0];
    w->made_by[p->value] = made;
    return OK;
}

/* Nodes below n_before read the matrices, each of which is made before its first reader. */
static enum status rewire(struct graph *g, size_t n_before, const struct rewiring *w)
{
    node_id *order;
    size_t n = 0;
    TRY(mem_try_array(&order, MAX(g->nodes.n, (size_t)1), sizeof(*order)));
    for (node_id k = 0; (size_t)k < n_before; k++) {
        struct node *node = graph_node(g, k);
        for (int i = 0; i < node->n_in; i++) {
            value_id v = node->in[i];
            if (v == VALUE_NONE || w->matrix[v] == VALUE_NONE)
                continue;
            if (w->reader[v] == k)
                order[n++] = w->made_by[v];
            node->in[i] = w->matrix[v];
        }
        order[n++] = k;
    }
    enum status status = graph_reorder(g, order, n);
    mem_free(order);
    return status;
}

enum status quantize_apply(struct graph *g, const struct model_graph *io)
{
    struct rewiring w = {0};
    size_t n_values = g->values.n, n_nodes = g->nodes.n;
    enum status status;
    TRY_GOTO(mem_try_array(&w.matrix, n_values + 1, sizeof(*w.matrix)), out);
    TRY_GOTO(mem_try_array(&w.reader, n_values + 1, sizeof(*w.reader)), out);
    TRY_GOTO(mem_try_array(&w.made_by, n_values + 1, sizeof(*w.made_by)), out);
    for (size_t v = 0; v < n_values; v++) {
        w.matrix[v] = VALUE_NONE;
        w.reader[v] = w.made_by[v] = NODE_NONE;
    }
    find_readers(g, &w);
    for (int i = 0; i < io->n_params; i++) {
        if (io->params[i].quantization.code != CODE_NONE)
            TRY_GOTO(add_matrix(g, &io->params[i], &w), out);
    }
    TRY_GOTO(rewire(g, n_nodes, &w), out);
out:
    mem_free(w.matrix);
    mem_free(w.reader);
    mem_free(w.made_by);
    return status;
}
