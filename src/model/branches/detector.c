/* detector.c: a feature pyramid over every frame of a clip, one set of weights for all of them. Its
 * finest level is part of the network as published, and nothing reads it: it is never computed. */
#include <string.h>

#include "model/branches/branches.h"

enum { LEVELS = 3, HEADS = 4 };

static const char *const heads[HEADS] = {"heat", "offset", "size", "intensity"};
static const int64_t head_channels[HEADS] = {1, 2, 2, 1};

/* ---- a frame --------------------------------------------------------------------------------- */

static value_id residual(struct writer *w, const char *name, value_id x, int64_t channels)
{
    const char *before = writer_enter(w, name);
    value_id y =
        module_batch_norm(w, "bn1", module_conv(w, "conv1", x, conv_of(channels, 3, 1, 1)));
    y = module_conv(w, "conv2", writer_op(w, OP_relu, y), conv_of(channels, 3, 1, 1));
    y = module_batch_norm(w, "bn2", y);
    if (writer_channels(w, x) != channels)
        x = module_conv(w, "skip", x, conv_of(channels, 1, 1, 0));
    w->prefix = before;
    return writer_op(w, OP_relu, writer_op2(w, OP_add, y, x));
}

/* What the levels see: the finest first. */
static void look(struct writer *w, const struct three_branch *m, value_id x, value_id seen[LEVELS])
{
    static const char *const names[LEVELS] = {"res0", "res1", "res2"};
    int64_t base = branch_width(m, 32);
    x = module_batch_norm(w, "stem.1", module_conv(w, "stem.0", x, conv_of(base, 7, 2, 3)));
    x = writer_max_pool(w, writer_op(w, OP_relu, x), 3, 2, 1);
    for (int i = 0; i < LEVELS; i++) {
        if (i > 0)
            x = writer_max_pool(w, x, 2, 2, 0);
        seen[i] = x = residual(w, names[i], x, base << i);
    }
}

/* From the coarsest level down to the finest; the middle one is what is read. */
static value_id pyramid(struct writer *w, const struct three_branch *m, const value_id seen[LEVELS])
{
    static const char *const laterals[LEVELS] = {"lateral0", "lateral1", "lateral2"};
    static const char *const smooths[LEVELS] = {"smooth0", "smooth1", "smooth2"};
    int64_t channels = branch_width(m, 128);
    value_id above = VALUE_NONE, read = VALUE_NONE;
    for (int i = LEVELS - 1; i >= 0; i--) {
        value_id x = module_conv(w, laterals[i], seen[i], conv_of(channels, 1, 1, 0));
        if (above != VALUE_NONE && w->b->status == OK)
            x = writer_op2(w, OP_add, x, writer_resize(w, above, build_shape(w->b, x)->dim + 1));
        above = module_conv(w, smooths[i], x, conv_of(channels, 3, 1, 1));
        if (i == 1)
            read = above;
    }
    return read;
}

static value_id head(struct writer *w, const struct three_branch *m, int i, value_id x)
{
    const char *before = writer_enter(w, heads[i]);
    x = module_conv(w, "0", x, conv_of(branch_width(m, 64), 3, 1, 1));
    x = writer_op(w, OP_relu, module_batch_norm(w, "1", x));
    x = module_conv(w, "3", x, conv_of(head_channels[i], 1, 1, 0));
    w->prefix = before;
    return i >= 2 ? writer_op(w, OP_relu, x) : x; /* sizes and intensities are not negative */
}

/* ---- all frames ------------------------------------------------------------------------------ */

/* ends[i][t]: head i, and last the mean of what is read, of frame t. */
static void each_frame(struct writer *w, const struct three_branch *m, value_id video,
                       value_id *const ends[HEADS + 1])
{
    for (int64_t t = 0; t < m->n_frames && w->b->status == OK; t++) {
        value_id seen[LEVELS];
        if (t == 0 || !m->one_segment)
            writer_start_block(w);
        w->repeats = t > 0;
        look(w, m, writer_step(w, video, t), seen);
        value_id x = pyramid(w, m, seen);
        const char *before = writer_enter(w, "heads");
        for (int i = 0; i < HEADS; i++)
            ends[i][t] = writer_as_step(w, head(w, m, i, x));
        w->prefix = before;
        ends[HEADS][t] = writer_as_step(w, writer_global_mean(w, x));
    }
    w->repeats = false;
}

/* Of the six numbers of a place the first is a logit of its own; the others are compared with the
 * places of one target. */
static void write_losses(struct writer *w, const value_id all[HEADS])
{
    static const char *const kinds[HEADS] = {"focal", "l1", "smooth_l1", "l1"};
    static const double weights[HEADS] = {1.0, 0.25, 0.25, 0.25};
    struct model_field boxes = {.name = "boxes", .is_target = true};
    w->b->block = BLOCK_NONE;
    branch_loss(w, objective_term(kinds[0], heads[0], weights[0]), all[0], heads[0]);
    if (w->b->status != OK)
        return;
    const struct shape *heat = build_shape(w->b, all[0]);
    boxes.shape.rank = 4;
    memcpy(boxes.shape.dim, heat->dim + 1, 3 * sizeof(heat->dim[0]));
    boxes.shape.dim[3] = 5;
    value_id target = writer_input(w, &boxes);
    for (int64_t i = 1, at = 0; i < HEADS; at += head_channels[i], i++) {
        struct loss_term term = objective_term(kinds[i], heads[i], weights[i]);
        objective_write_to(w, &(struct objective){&term, 1}, all[i],
                           writer_slice(w, target, 4, at, head_channels[i]));
    }
}

value_id branch_detector(struct writer *w, const struct three_branch *m, value_id video)
{
    value_id *ends[HEADS + 1], all[HEADS + 1];
    const char *before = writer_enter(w, "detector");
    for (int i = 0; i <= HEADS && w->b->status == OK; i++)
        w->b->status = pool_try(&w->b->g->pool, &ends[i], (size_t)m->n_frames * sizeof(**ends));
    if (w->b->status != OK)
        return VALUE_NONE;
    each_frame(w, m, video, ends);
    writer_start_block(w);
    for (int i = 0; i <= HEADS; i++)
        all[i] = writer_concat(w, ends[i], (int)m->n_frames, 1);
    value_id x = writer_global_mean(w, all[HEADS]);
    x = module_linear(w, "embed", x, branch_width(m, 256));
    w->prefix = before;
    write_losses(w, all);
    return x;
}
