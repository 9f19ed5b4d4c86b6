/* loss_scale.c: the scaler in the graph: its states, the scaled seed, its update. The host is not
 * asked: whether a step counts is decided where the norm is. */
#include "optim/loss_scale.h"

#define SCALE     "scaler.scale"
#define GOOD      "scaler.good_steps"
#define APPLIED   "scaler.applied_steps"
#define TOLERATED "scaler.tolerated"

static enum status add_count(struct graph *g, const char *name)
{
    value_id v;
    return graph_add_value(g, name, ROLE_STATE, DTYPE_I32, shape_of(1, (int64_t)1), NULL, &v);
}

enum status optimizer_scale_seed(struct graph *g, const struct loss_scaling *s, value_id seed,
                                 value_id *scaled)
{
    struct builder b;
    value_id scale;
    const float initial = (float)s->initial;
    *scaled = seed;
    if (!(s->initial > 0))
        return OK;
    TRY(graph_add_value(g, SCALE, ROLE_STATE, DTYPE_F32, shape_of(1, (int64_t)1), &initial,
                        &scale));
    TRY(add_count(g, GOOD));
    TRY(add_count(g, APPLIED));
    TRY(add_count(g, TOLERATED));
    builder_init(&b, g);
    b.pass = PASS_BACKWARD;
    *scaled = build(&b, OP_mul, IN(seed, scale), NO_ATTRS);
    return builder_status(&b);
}

value_id loss_scale_value(const struct builder *b)
{
    return graph_find_value(b->g, SCALE);
}

value_id loss_scale_update(struct builder *b, const struct loss_scaling *s, value_id update,
                           value_id norm, value_id *next)
{
    const struct graph *g = b->g;
    *next = build(b, OP_loss_scale_update,
                  IN(graph_find_value(g, SCALE), graph_find_value(g, GOOD),
                     graph_find_value(g, APPLIED), graph_find_value(g, TOLERATED), update, norm),
                  ATTRS({"growth", .f = s->growth}, {"backoff", .f = s->backoff},
                        {"window", .i = s->window}, {"hysteresis", .i = s->hysteresis},
                        {"minimum", .f = s->minimum}));
    return build_output(b, 2);
}
