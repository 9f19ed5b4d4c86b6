/* print.c: a graph as text, one line per value without a producer and one per node:
 *
 *     graph "gpt2" {
 *       %0 "tokens": i32[4,256] input
 *       %7 "inv_freq": f32[4] constant = [1, 0.1, 0.01, 0.001]
 *       %9: f32[4,256,768] activation, %10: f32[4,12,256] activation = attention(%8, _) {heads=12}
 * forward block=0 output "loss" %55
 *     }
 *
 * Values keep their numbers, nodes their order. Everything is exact, so that parsing gives the same
 * graph again. A value without a producer stands before the first node that reads it or that made a
 * value with a higher number, whichever comes first. */
#include "graph/graph.h"
#include "graph/text.h"

enum { ELEMENTS_ON_ONE_LINE = 64, ELEMENTS_PER_LINE = 16 };

static void add_declaration(const struct graph *g, value_id v, struct str *out)
{
    const struct value *x = graph_value(g, v);
    str_addf(out, "%%%d", v);
    if (x->name[0] != '\0') {
        str_add(out, " ");
        text_add_quoted(out, x->name);
    }
    str_addf(out, ": %s", dtype_name(x->dtype));
    text_add_shape(out, &x->shape);
    str_addf(out, " %s", role_name(x->role));
}

static void add_constant(const struct value *x, struct str *out)
{
    int64_t n = shape_elems(&x->shape), size = dtype_size(x->dtype);
    bool long_form = n > ELEMENTS_ON_ONE_LINE;
    str_add(out, " = [");
    for (int64_t i = 0; i < n; i++) {
        if (i)
            str_add(out, ",");
        if (long_form && i % ELEMENTS_PER_LINE == 0)
            str_add(out, "\n    ");
        else if (i)
            str_add(out, " ");
        text_add_element(out, x->dtype, (const char *)x->data + i * size);
    }
    str_add(out, long_form ? "\n  ]" : "]");
}

static void add_source(const struct graph *g, value_id v, struct str *out)
{
    str_add(out, "  ");
    add_declaration(g, v, out);
    if (graph_value(g, v)->data)
        add_constant(graph_value(g, v), out);
    str_add(out, "\n");
}

/* Values without a producer in [*next, limit). */
static void add_sources(const struct graph *g, value_id *next, value_id limit, struct str *out)
{
    for (; *next < limit; (*next)++) {
        if (graph_value(g, *next)->producer == NODE_NONE)
            add_source(g, *next, out);
    }
}

static void add_node(const struct graph *g, const struct node *n, struct str *out)
{
    const struct op_def *d = op_get(n->op);
    str_add(out, "  ");
    for (int i = 0; i < n->n_out; i++) {
        if (i)
            str_add(out, ", ");
        add_declaration(g, n->out[i], out);
    }
    str_addf(out, " = %s(", d->name);
    for (int i = 0; i < n->n_in; i++) {
        if (i)
            str_add(out, ", ");
        if (n->in[i] == VALUE_NONE)
            str_add(out, "_");
        else
            str_addf(out, "%%%d", n->in[i]);
    }
    str_add(out, ")");
    text_add_attrs(out, d, n->attrs);
    str_addf(out, " %s", pass_name(n->pass));
    if (n->block != BLOCK_NONE)
        str_addf(out, " block=%d", n->block);
    if (n->micro > 0)
        str_addf(out, " micro=%d", n->micro);
    str_add(out, "\n");
}

enum status graph_print(const struct graph *g, struct str *out)
{
    value_id next = 0;
    str_add(out, "graph ");
    text_add_quoted(out, g->name);
    str_add(out, " {\n");
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, (node_id)k);
        value_id limit = 0;
        for (int i = 0; i < n->n_in; i++)
            limit = MAX(limit, n->in[i] + 1);
        for (int i = 0; i < n->n_out; i++)
            limit = MAX(limit, n->out[i]);
        add_sources(g, &next, limit, out);
        add_node(g, n, out);
    }
    add_sources(g, &next, (value_id)g->values.n, out);
    for (size_t i = 0; i < g->outputs.n; i++) {
        str_add(out, "  output ");
        text_add_quoted(out, g->outputs.items[i].name);
        str_addf(out, " %%%d\n", g->outputs.items[i].value);
    }
    str_add(out, "}\n");
    return str_status(out);
}
