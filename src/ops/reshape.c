#include "ops/op_support.h"

static const struct attr_def attrs[] = {
    {.name = "dims", .type = ATTR_INTS, .required = true},
};

/* The given dims with a -1 worked out. */
static enum status infer(const struct op_call *c)
{
    const struct attr *dims = &c->attrs[0];
    int64_t n = shape_elems(&c->in[0].shape), known = 1;
    int free_dim = -1;
    if (!call_has(c, 0))
        return REJECT(c, "x is absent");
    if (dims->n_ints > MAX_RANK)
        return REJECT(c, "%d dims; at most %d", dims->n_ints, MAX_RANK);
    struct shape s = {.rank = dims->n_ints};
    for (int i = 0; i < s.rank; i++) {
        s.dim[i] = dims->ints[i];
        if (s.dim[i] == -1 && free_dim < 0) {
            free_dim = i;
            continue;
        }
        if (s.dim[i] < 1 || s.dim[i] > n / known)
            return REJECT(c, "dim %d is %lld; x has %lld elements", i, (long long)s.dim[i],
                          (long long)n);
        known *= s.dim[i];
    }
    if (free_dim >= 0)
        s.dim[free_dim] = n / known;
    if (shape_elems(&s) != n)
        return REJECT(c, "the dims hold %lld elements; x has %lld", (long long)shape_elems(&s),
                      (long long)n);
    out_set(c, 0, c->in[0].dtype, s);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0]) {
        struct shape from = *build_shape(b, n->in[0]);
        d_in[0] = build_reshape(b, d_out[0], from);
    }
    return builder_status(b);
}

static const struct alias_rule aliases[] = {{ALIAS_VIEW, 0, 0}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5] {dims=[15]}"},  {.text = "f32[2,3,4] {dims=[4,-1]}"},
    {.text = "f32[1] {dims=[]}"},      {.text = "f32[6] {dims=[1,2,3,1]}"},
    {.text = "i32[6]~9 {dims=[2,3]}"},
};
static const char *const rejects[] = {
    "f32[3,5] {dims=[16]}", "f32[3,5] {dims=[-1,-1]}", "f32[3,5] {dims=[-1,2]}",
    "f32[3] {dims=[0]}",    "f32[3] {dims=[]}",        "f32[1] {dims=[1,1,1,1,1,1,1]}",
};

const struct op_def op_def_reshape = {
    .name = "reshape",
    .synopsis = "y = x with other dims and the same elements; one dim may be -1",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
