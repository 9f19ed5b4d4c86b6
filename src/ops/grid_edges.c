#include "ops/edge_support.h"

enum { MOST = 1 << 15 }; /* of each side: edges fit i32 */

static const struct attr_def attrs[] = {
    {"height", ATTR_INT, {.i = 0}, true},
    {"width", ATTR_INT, {.i = 0}, true},
    {"loops", ATTR_BOOL, {.i = 1}, false},
};

static enum status infer(const struct op_call *c)
{
    int64_t h = call_int(c, GRID_HEIGHT), w = call_int(c, GRID_WIDTH);
    if (h < 1 || w < 1 || h > MOST || w > MOST || h * w > INT32_MAX / 8)
        return REJECT(c, "a grid of %lld x %lld", (long long)h, (long long)w);
    int64_t n = 2 * (h * (w - 1) + (h - 1) * w) + (call_bool(c, GRID_LOOPS) ? h * w : 0);
    if (n < 1)
        return REJECT(c, "a grid of one node has no edges");
    out_set(c, 0, DTYPE_I32, shape_of(1, n));
    out_set(c, 1, DTYPE_I32, shape_of(1, n));
    return OK;
}

static const struct op_sample samples[] = {
    {.text = "{height=3, width=4}"},
    {.text = "{height=1, width=7, loops=false}"},
    {.text = "{height=1, width=1}"},
};
static const char *const rejects[] = {
    "{height=0, width=4}",
    "{height=1, width=1, loops=false}",
    "{height=40000, width=1}",
    "{height=3}",
};

const struct op_def op_def_grid_edges = {
    .name = "grid_edges",
    .synopsis = "where edges between neighbours of a grid come from and go to, row-major: to the "
                "right, to the left, down, up, and with loops from every node to itself",
    .min_in = 0,
    .max_in = 0,
    .n_out = 2,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
