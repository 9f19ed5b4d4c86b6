#include "precision/precision.h"

#include <string.h>

#include "base/half.h"

struct precision precision_f32(void)
{
    return (struct precision){
        .weights = DTYPE_F32, .gradients = DTYPE_F32, .states = FORMAT_F32, .masters = false};
}

struct precision precision_bf16(void)
{
    return (struct precision){
        .weights = DTYPE_BF16, .gradients = DTYPE_F32, .states = FORMAT_F32, .masters = true};
}

struct precision precision_f16(void)
{
    return (struct precision){.weights = DTYPE_F16,
                              .gradients = DTYPE_F32,
                              .states = FORMAT_F32,
                              .masters = true,
                              .loss_scaling = true};
}

bool precision_needs_chance(const struct precision *p)
{
    return p->states == FORMAT_BF16 ||
           (p->weights == DTYPE_BF16 && (!p->masters || p->split_masters));
}

/* ---- what comes from outside ----------------------------------------------------------------- */

static void round_element(void *to, enum dtype dtype, int64_t i, float x)
{
    if (dtype == DTYPE_F64)
        ((double *)to)[i] = (double)x;
    else
        ((uint16_t *)to)[i] = dtype == DTYPE_BF16 ? bf16_from_f32(x) : f16_from_f32(x);
}

enum status precision_set_dtype(struct graph *g, value_id v, enum dtype dtype)
{
    struct value *x = graph_value(g, v);
    const float *from = x->data;
    void *to;
    if (x->role == ROLE_CONSTANT && dtype != DTYPE_F32) {
        BUG_ON(x->dtype != DTYPE_F32);
        int64_t n = shape_elems(&x->shape);
        TRY(pool_try(&g->pool, &to, (size_t)(n * dtype_size(dtype))));
        for (int64_t i = 0; i < n; i++)
            round_element(to, dtype, i, from[i]);
        x->data = to;
    }
    x->dtype = dtype;
    return OK;
}

/* ---- one parameter --------------------------------------------------------------------------- */

/* Below this many elements a tensor keeps its states in f32 whatever was asked for, as in
 * bitsandbytes: biases and norms, whose few numbers differ most in size. */
enum { LEAST_BLOCKWISE = 4096 };

static enum format state_format(enum format asked, int64_t n_elems)
{
    return format_block(asked) > 0 && n_elems < LEAST_BLOCKWISE ? FORMAT_F32 : asked;
}

struct param_role precision_role(const struct precision *p, const struct value *param,
                                 bool is_frozen)
{
    struct param_role role = {.trained = !is_frozen, .storage = format_of_dtype(param->dtype)};
    if (is_frozen)
        return role;
    if (p->masters && dtype_accumulator(param->dtype) != param->dtype)
        role.master =
            p->split_masters && param->dtype == DTYPE_BF16 ? FORMAT_REMAINDER : FORMAT_F32;
    role.states = state_format(p->states, shape_elems(&param->shape));
    return role;
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* narrow[v]: some op that reads v does not take it in f32 beside 16-bit activations. */
static void find_narrow(const struct graph *g, bool *narrow)
{
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, (node_id)k);
        uint32_t f32_inputs = op_get(n->op)->f32_inputs;
        for (int i = 0; i < n->n_in; i++) {
            if (n->in[i] != VALUE_NONE && !mask_has(f32_inputs, i))
                narrow[n->in[i]] = true;
        }
    }
}

static enum status set_parameters(struct graph *g, const struct precision *p)
{
    bool *narrow;
    TRY(mem_try_array(&narrow, MAX(g->values.n, (size_t)1), sizeof(*narrow)));
    find_narrow(g, narrow);
    for (size_t v = 0; v < g->values.n; v++) {
        struct value *x = graph_value(g, (value_id)v);
        bool is_weight =
            x->producer == NODE_NONE && role_is_parameter(x->role) && x->dtype == DTYPE_F32;
        if (is_weight && (narrow[v] || !p->masters))
            x->dtype = p->weights;
    }
    mem_free(narrow);
    return OK;
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* Ops that make parameter gradients have an optional `dtype`; a cast's is not optional. */
static void set_gradient(struct node *n, const struct precision *p)
{
    const struct op_def *d = op_get(n->op);
    for (int i = 0; i < d->n_attrs; i++) {
        const struct attr_def *a = &d->attrs[i];
        if (a->type == ATTR_DTYPE && !a->required && strcmp(a->name, "dtype") == 0)
            n->attrs[i].i = p->gradients;
    }
}

/* Ops that only ever make parameter gradients; then sums, which make gradients of activations as
 * well: those that are, perhaps in another shape, the gradient of a parameter. */
static void set_gradients(struct graph *g, const struct precision *p)
{
    for (size_t k = 0; k < g->nodes.n; k++) {
        struct node *n = graph_node(g, (node_id)k);
        if (n->pass == PASS_BACKWARD && op_get(n->op)->no_grad)
            set_gradient(n, p);
    }
    for (size_t v = 0; v < g->values.n; v++) {
        if (graph_value(g, (value_id)v)->role != ROLE_GRADIENT)
            continue;
        node_id maker = graph_value(g, value_view_root(g, (value_id)v))->producer;
        if (maker != NODE_NONE)
            set_gradient(graph_node(g, maker), p);
    }
}

/* ---- casts ----------------------------------------------------------------------------------- */

/* Where an activation is cast although all is f32 yet, it is to be f32 in any precision (a loss);
 * its gradient then goes back to what activations are. */
static void set_casts(struct graph *g, const struct precision *p)
{
    for (size_t k = 0; k < g->nodes.n; k++) {
        struct node *n = graph_node(g, (node_id)k);
        if (n->op == OP_cast && n->pass == PASS_BACKWARD && n->attrs[0].i == DTYPE_F32 &&
            graph_value(g, n->in[0])->dtype == DTYPE_F32)
            n->attrs[0].i = p->weights;
    }
}

/* ---- the stage ------------------------------------------------------------------------------- */

enum status precision_apply(struct graph *g, const struct precision *p)
{
    set_casts(g, p);
    TRY(set_parameters(g, p));
    set_gradients(g, p);
    return graph_reinfer(g);
}
