/* activation_with_grad.c:
 *
 *     y = silu_gate(x)                            y = silu_gate(x)
 *     ...                                         ...
 *     dw = linear_grad_weight(d, y)               dx, again = silu_gate_with_grad(dy, x)
 *     dx = silu_gate_grad(dy, x)          ==>     dw = linear_grad_weight(d, again)
 *
 * when nothing else in the backward pass reads y; likewise gelu_gate, gelu_bias, and grouped
 * products. A plan would make y once more for dw, or keep it; here it comes from the pass over x
 * that makes dx, and may take dy's memory.
 */
#include "graph/builder.h"
#include "rewrite/rewrite_internal.h"

/* An activation, its gradient as (dy, the activation's inputs ...), and the op that is both, whose
 * outputs are the gradient's and y. */
static const struct {
    enum op_id forward, grad, both;
} activations[] = {
    {OP_silu_gate, OP_silu_gate_grad, OP_silu_gate_with_grad},
    {OP_gelu_gate, OP_gelu_gate_grad, OP_gelu_gate_with_grad},
    {OP_relu2_gate, OP_relu2_gate_grad, OP_relu2_gate_with_grad},
    {OP_gelu_bias, OP_gelu_bias_grad, OP_gelu_bias_with_grad},
};

enum { WEIGHT_GRAD_X = 1 }; /* linear_grad_weight(dy, x), grouped_linear_grad_weight(dy, x, ...) */

static bool makes_weight_gradient(enum op_id op)
{
    return op == OP_linear_grad_weight || op == OP_grouped_linear_grad_weight;
}

static bool same_attributes(const struct node *forward, const struct node *grad)
{
    const struct op_def *op = op_get(forward->op);
    for (int i = 0; i < op->n_attrs; i++) {
        const struct attr *a = &forward->attrs[i], *b = node_attr(grad, op->attrs[i].name);
        if (!b || a->i != b->i || a->f != b->f)
            return false;
    }
    return true;
}

/* Does node `forward` make the y whose gradient node `grad` makes? */
static bool belong_together(const struct node *forward, const struct node *grad)
{
    for (int i = 0; i < forward->n_in; i++) {
        if (forward->in[i] != grad->in[i + 1])
            return false;
    }
    return forward->pass == PASS_FORWARD && same_attributes(forward, grad);
}

/* The y that node k, a gradient of `forward`, belongs to, when one weight gradient of its block
 * alone reads it in the backward pass: *reader. */
static value_id output_read_once(const struct rewriting *r, node_id k, enum op_id forward,
                                 node_id *reader)
{
    const struct node *grad = graph_node(r->g, k);
    value_id y = VALUE_NONE;
    for (node_id j = 0; (size_t)j < r->g->nodes.n; j++) {
        const struct node *n = graph_node(r->g, j);
        if (n->op == forward && belong_together(n, grad)) {
            y = n->out[0];
            *reader = NODE_NONE;
        }
        for (int i = 0; i < n->n_in && n->pass != PASS_FORWARD && y != VALUE_NONE; i++) {
            if (n->in[i] == VALUE_NONE || value_view_root(r->g, n->in[i]) != y)
                continue;
            bool fits = makes_weight_gradient(n->op) && i == WEIGHT_GRAD_X && n->in[i] == y &&
                        n->pass == grad->pass && n->block == grad->block;
            if (!fits || *reader != NODE_NONE)
                return VALUE_NONE;
            *reader = j;
        }
    }
    return y;
}

enum status rewrite_activation_with_grad(struct rewriting *r, node_id k, bool *applied)
{
    for (size_t i = 0; i < ARRAY_LEN(activations); i++) {
        node_id reader = NODE_NONE;
        if (graph_node(r->g, k)->op != activations[i].grad)
            continue;
        value_id y = output_read_once(r, k, activations[i].forward, &reader), again;
        if (y == VALUE_NONE || reader == NODE_NONE ||
            (reader < k && !rewrite_can_move(r, reader, k)))
            continue;
        TRY(rewrite_add_output(r, k, y, &again));
        graph_node(r->g, k)->op = activations[i].both;
        TRY(rewrite_set_input(r, reader, WEIGHT_GRAD_X, again));
        if (reader < k)
            rewrite_move_behind(r, reader, k);
        *applied = true;
    }
    return OK;
}
