/* unet3d.c: a U-Net over time and space. Padded strides make odd sizes, so what is skipped is
 * resized to what it meets. */
#include "model/branches/branches.h"

static value_id block(struct writer *w, const char *name, value_id x, int64_t channels)
{
    const char *before = writer_enter(w, name);
    writer_start_block(w);
    x = module_group_norm(w, "norm", module_conv(w, "conv", x, conv_of(channels, 3, 1, 1)), 8);
    w->prefix = before;
    return writer_op(w, OP_gelu, x);
}

/* Half of every axis; height and width are padded. */
static value_id down(struct writer *w, const char *name, value_id x)
{
    struct conv_layer l = conv_of(writer_channels(w, x), 2, 2, 0);
    l.window.n_padding = 3;
    l.window.padding[1] = l.window.padding[2] = 1;
    return module_conv(w, name, x, l);
}

/* Twice every axis, beside what was skipped. */
static value_id up(struct writer *w, const char *name, value_id x, value_id skipped)
{
    x = module_conv_transpose(w, name, x, conv_of(writer_channels(w, x) / 2, 2, 2, 0));
    if (w->b->status != OK)
        return VALUE_NONE;
    const int64_t *sizes = build_shape(w->b, x)->dim + 1;
    const value_id both[] = {x, writer_resize(w, skipped, sizes)};
    return writer_concat(w, both, 2, 4);
}

static void write_losses(struct writer *w, value_id mask)
{
    w->b->block = BLOCK_NONE;
    branch_loss(w, objective_term("bce", "mask_bce", 0.5), mask, "mask");
    branch_loss(w, objective_term("dice", "mask_dice", 0.5), mask, "mask");
}

value_id branch_unet3d(struct writer *w, const struct three_branch *m, value_id video)
{
    const int64_t sizes[] = {m->n_frames, m->height, m->width};
    int64_t base = branch_width(m, 32);
    const char *before = writer_enter(w, "unet3d");
    value_id s0 = block(w, "enc0", video, base);
    value_id s1 = block(w, "enc1", down(w, "down0", s0), 2 * base);
    value_id s2 = block(w, "enc2", down(w, "down1", s1), 4 * base);
    value_id x = block(w, "mid", s2, 8 * base);
    value_id seen = module_linear(w, "embed", writer_global_mean(w, x), branch_width(m, 512));
    const value_id both[] = {x, s2};
    x = block(w, "dec2", writer_concat(w, both, 2, 4), 4 * base);
    x = block(w, "dec1", up(w, "up1", x, s1), 2 * base);
    x = block(w, "dec0", up(w, "up0", x, s0), base);
    x = writer_resize(w, module_conv(w, "mask", x, conv_of(1, 1, 1, 0)), sizes);
    w->prefix = before;
    write_losses(w, x);
    return seen;
}
