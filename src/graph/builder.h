/* builder.h: writing graphs as a list of calls.
 *
 * Errors are sticky: after the first failure every call returns VALUE_NONE, and builder_status()
 * gives it at the end. So models and gradients read as mathematics:
 *
 *     value_id h = build(b, OP_linear, IN(x, w, bias), NO_ATTRS);
 *     value_id y = build(b, OP_attention, IN(h), ATTRS({"heads", .i = 12}, {"scale", .f = 0.125}));
 *     value_id lse = build_output(b, 1);
 */
#ifndef SNUG_GRAPH_BUILDER_H
#define SNUG_GRAPH_BUILDER_H

#include "graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

struct builder {
    struct graph *g;
    enum pass pass; /* given to the nodes built from now on */
    int block;
    enum status status;
    node_id last; /* the node built last */
};

/* An attribute given by name; the rest take their defaults. */
struct attr_set {
    const char *name;
    int64_t i; /* INT, BOOL, DTYPE */
    double f;  /* FLOAT */
    int n_ints;
    int64_t ints[MAX_ATTR_INTS];
};

#define IN(...) \
    (const value_id[]){__VA_ARGS__}, (int)(sizeof((value_id[]){__VA_ARGS__}) / sizeof(value_id))
#define ATTRS(...)                          \
    (const struct attr_set[]){__VA_ARGS__}, \
        (int)(sizeof((const struct attr_set[]){__VA_ARGS__}) / sizeof(struct attr_set))
#define NO_ATTRS NULL, 0

void builder_init(struct builder *b, struct graph *g);
enum status builder_status(const struct builder *b) MUST_CHECK;

/* Adds a node and returns its first output. */
value_id build(struct builder *b, enum op_id op, const value_id *in, int n_in,
               const struct attr_set *attrs, int n_attrs);
/* Output i of the node built last. */
value_id build_output(const struct builder *b, int i);
/* Adds a node with a complete attribute array (copying another node's, say). */
value_id build_with(struct builder *b, enum op_id op, const value_id *in, int n_in,
                    const struct attr *attrs);

value_id build_value(struct builder *b, const char *name, enum role role, enum dtype dtype,
                     struct shape shape);
value_id build_constant(struct builder *b, const char *name, enum dtype dtype, struct shape shape,
                        const void *data);
/* Names the value (for reports and text); returns it. */
value_id build_name(struct builder *b, value_id v, const char *name);
value_id build_reshape(struct builder *b, value_id v, struct shape shape);

const struct shape *build_shape(const struct builder *b, value_id v);

/* The value of an attribute of a built node, by name (grad functions read their node's). */
const struct attr *node_attr(const struct node *n, const char *name);

#ifdef __cplusplus
}
#endif
#endif
