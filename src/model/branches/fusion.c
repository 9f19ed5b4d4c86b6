/* fusion.c: four tokens (three branches and a class) through a small transformer to two outcomes.
 */
#include "model/branches/branches.h"

enum { TOKENS = 4, CLASS_WIDTH = 32, EVENT_KINDS = 6, EVENT_FACTS = 3 };

/* The class's vector [B, 32]; what is no class has one of its own. */
static value_id class_vector(struct writer *w, value_id classes)
{
    const char *before = writer_enter(w, "classes");
    const value_id rows[] = {
        writer_param(w, "weight",
                     (struct model_param){
                         .shape = shape_of(2, (int64_t)BRANCH_CLASSES, (int64_t)CLASS_WIDTH),
                         .init = INIT_NORMAL,
                         .std = 0.1}),
        writer_param(w, "unknown",
                     (struct model_param){.shape = shape_of(2, INT64_C(1), (int64_t)CLASS_WIDTH),
                                          .init = INIT_NORMAL,
                                          .std = 0.1})};
    w->prefix = before;
    return build(w->b, OP_embedding, IN(writer_concat(w, rows, 2, 0), classes), NO_ATTRS);
}

/* Weights for a list of events as a fifth token. No samples have events, so nothing reads them:
 * they are kept as they begin. */
static void add_event_weights(struct writer *w, int64_t d)
{
    const struct weight_init init = {.rule = WEIGHT_XAVIER, .uniform = true};
    const int64_t n_in[] = {d / 4 + EVENT_FACTS, d / 2}, n_out[] = {d / 2, d};
    const char *before = writer_enter(w, "events");
    (void)writer_weight(w, "kinds", shape_of(2, (int64_t)EVENT_KINDS, d / 4), EVENT_KINDS, d / 4,
                        &init);
    for (int i = 0; i < 2; i++) {
        const char *inside = writer_enter(w, i ? "3" : "0");
        (void)writer_weight(w, "weight", shape_of(2, n_out[i], n_in[i]), n_in[i], n_out[i], &init);
        (void)writer_bias(w, n_out[i], n_in[i], &init);
        w->prefix = inside;
    }
    w->prefix = before;
}

static value_id tokens(struct writer *w, int64_t d, const struct fusion_inputs *in)
{
    static const char *const names[TOKENS] = {"image", "thermal", "radar", "class"};
    const value_id from[TOKENS] = {in->image, in->thermal, in->radar, class_vector(w, in->classes)};
    value_id parts[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        parts[i] = build_reshape(w->b, module_linear(w, names[i], from[i], d),
                                 shape_of(3, w->r->batch, INT64_C(1), d));
    value_id kinds = writer_param(w, "modality",
                                  (struct model_param){.shape = shape_of(2, (int64_t)TOKENS, d),
                                                       .init = INIT_NORMAL,
                                                       .std = 0.02});
    return writer_op2(w, OP_add, writer_concat(w, parts, TOKENS, 1), kinds);
}

static value_id head(struct writer *w, const struct three_branch *m, const char *name, value_id x)
{
    const char *before = writer_enter(w, name);
    x = writer_op(w, OP_relu, module_linear(w, "0", x, branch_width(m, 256)));
    x = writer_dropout(w, x, 0.1 * m->dropout, false);
    x = writer_op(w, OP_relu, module_linear(w, "3", x, branch_width(m, 64)));
    x = module_linear(w, "5", x, 1);
    w->prefix = before;
    return x;
}

/* The second outcome is no likelier than the first; how far it would be is a loss of its own, which
 * is taken before the smaller of both is. A target of the second without the first is none. */
static void write_losses(struct writer *w, value_id first, value_id second)
{
    const struct model_field field = {
        .name = "outcomes", .shape = shape_of(1, INT64_C(2)), .is_target = true, .draw = DRAW_BITS};
    struct loss_term each[] = {objective_term("bce", "bce", 2.0),
                               objective_term("brier", "brier", 0.5)};
    struct loss_term hinge = objective_term("hinge", "hierarchy", 0.2);
    w->b->block = BLOCK_NONE;
    value_id target = writer_input(w, &field);
    value_id y1 = writer_slice(w, target, 1, 0, 1), y2 = writer_slice(w, target, 1, 1, 1);
    const value_id due[] = {y1, writer_op2(w, OP_minimum, y2, y1)};
    const value_id is[] = {first, writer_op2(w, OP_minimum, second, first)};
    objective_write_to(w, &(struct objective){each, 2}, writer_concat(w, is, 2, 1),
                       writer_concat(w, due, 2, 1));
    objective_write_to(w, &(struct objective){&hinge, 1}, writer_op(w, OP_sigmoid, second),
                       writer_op(w, OP_sigmoid, first));
}

void branch_fusion(struct writer *w, const struct three_branch *m, const struct fusion_inputs *in)
{
    static const char *const layers[] = {"layers.0", "layers.1", "layers.2"};
    int64_t d = branch_width(m, 512);
    const struct encoder_layer layer = {.heads = 8, .hidden = 4 * d, .dropout = 0.1 * m->dropout};
    const char *before = writer_enter(w, "fusion");
    w->init = (struct weight_init){.rule = WEIGHT_XAVIER, .uniform = true};
    writer_start_block(w);
    value_id x = tokens(w, d, in);
    for (int i = 0; i < 3; i++) {
        writer_start_block(w);
        x = module_encoder(w, layers[i], x, &layer);
    }
    writer_start_block(w);
    x = build(w->b, OP_mean, IN(x), ATTRS({.name = "axes", .n_ints = 1, .ints = {1}}));
    x = writer_op(w, OP_gelu, module_layer_norm(w, "out.1", module_linear(w, "out.0", x, d)));
    x = writer_dropout(w, x, 0.1 * m->dropout, false);
    value_id first = head(w, m, "first", x), second = head(w, m, "second", x);
    add_event_weights(w, d);
    w->prefix = before;
    write_losses(w, first, second);
}
