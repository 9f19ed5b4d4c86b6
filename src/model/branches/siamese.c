/* siamese.c: two frames of a clip through one network, attention among the places of both, and what
 * became of each place. */
#include "model/branches/branches.h"

enum { STAGES = 4 };

/* [B, H, W, 3] -> [B, h, w, C], h x w being the grid. */
static value_id see(struct writer *w, const struct three_branch *m, value_id x)
{
    static const char *const convs[STAGES] = {"conv0", "conv1", "conv2", "conv3"};
    static const char *const norms[STAGES] = {"norm0", "norm1", "norm2", "norm3"};
    if (m->efficientnet)
        return branch_efficientnet(w, m, x);
    for (int i = 0; i < STAGES; i++) {
        x = module_conv(w, convs[i], x, conv_of(branch_width(m, 32) << i, 3, 1, 1));
        x = writer_op(w, OP_relu, module_batch_norm(w, norms[i], x));
        if (i < STAGES - 1)
            x = writer_max_pool(w, x, 2, 2, 0);
    }
    return build(w->b, OP_adaptive_avg_pool, IN(x), ATTRS(window_attr("out", m->grid, 2)));
}

/* [B, H, W, 3] -> tokens [B, places, d]. */
static value_id encode(struct writer *w, const struct three_branch *m, value_id x)
{
    const char *before = writer_enter(w, "encoder");
    x = see(w, m, x);
    w->prefix = before;
    x = module_linear(w, "proj", x, branch_width(m, 256));
    return build_reshape(w->b, x,
                         shape_of(3, w->r->batch, m->grid[0] * m->grid[1], branch_width(m, 256)));
}

/* Tokens of both frames, with what is learned of their places. */
static value_id tokens(struct writer *w, const struct three_branch *m, value_id video)
{
    const int64_t picks[2] = {m->n_frames / 4, 3 * m->n_frames / 4};
    value_id ends[2];
    for (int i = 0; i < 2; i++) {
        writer_start_block(w);
        w->repeats = i > 0;
        ends[i] = encode(w, m, writer_step(w, video, picks[i]));
    }
    w->repeats = false;
    value_id places =
        writer_param(w, "pos",
                     (struct model_param){
                         .shape = shape_of(2, 2 * m->grid[0] * m->grid[1], branch_width(m, 256)),
                         .init = INIT_NORMAL,
                         .std = 0.02});
    return writer_op2(w, OP_add, writer_concat(w, ends, 2, 1), places);
}

/* The mask [B, H, W, 1] of what changed, from places [B, h, w, d]. */
static value_id decode(struct writer *w, const struct three_branch *m, value_id x)
{
    static const char *const ups[] = {"up0", "up1", "up2"}, *const norms[] = {"norm0", "norm1",
                                                                              "norm2"};
    const int64_t sizes[] = {m->height, m->width};
    const char *before = writer_enter(w, "decoder");
    for (int i = 0; i < 3; i++) {
        x = module_conv_transpose(w, ups[i], x, conv_of(branch_width(m, 128) >> i, 4, 2, 1));
        x = writer_op(w, OP_relu, module_batch_norm(w, norms[i], x));
    }
    x = writer_resize(w, module_conv(w, "mask", x, conv_of(1, 3, 1, 1)), sizes);
    w->prefix = before;
    return x;
}

static value_id mean_token(struct writer *w, value_id x)
{
    return build(w->b, OP_mean, IN(x), ATTRS({.name = "axes", .n_ints = 1, .ints = {1}}));
}

static void write_losses(struct writer *w, const struct three_branch *m, value_id change)
{
    int64_t d = branch_width(m, 256);
    value_id mask = decode(
        w, m, build_reshape(w->b, change, shape_of(4, w->r->batch, m->grid[0], m->grid[1], d)));
    value_id x = module_linear(w, "integrity.0", mean_token(w, change), branch_width(m, 64));
    x = module_linear(w, "integrity.2", writer_op(w, OP_relu, x), 1);
    w->b->block = BLOCK_NONE;
    branch_loss(w, objective_term("bce", "change", 0.5), mask, "change");
    branch_loss(w, objective_term("smooth_l1", "integrity", 0.25), writer_op(w, OP_tanh, x),
                "integrity");
}

value_id branch_siamese(struct writer *w, const struct three_branch *m, value_id video)
{
    const struct encoder_layer layer = {
        .heads = 4, .hidden = branch_width(m, 256), .dropout = 0.1 * m->dropout};
    int64_t n = m->grid[0] * m->grid[1];
    const char *before = writer_enter(w, "siamese");
    value_id x = tokens(w, m, video);
    writer_start_block(w);
    x = module_encoder(w, "layers.0", x, &layer);
    x = module_encoder(w, "layers.1", x, &layer);
    value_id change =
        writer_op2(w, OP_sub, writer_slice(w, x, 1, n, n), writer_slice(w, x, 1, 0, n));
    value_id seen = module_linear(w, "embed", mean_token(w, x), branch_width(m, 256));
    write_losses(w, m, change);
    w->prefix = before;
    return seen;
}
