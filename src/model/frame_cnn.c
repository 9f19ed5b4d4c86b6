/* frame_cnn.c: a number from a few frames and two scalars: one convolutional network for every
 * frame, attention over the frames.
 *
 *     frame [H, W] ─▶ gate ─▶ conv ─▶ FiLM by the scalars ─▶ conv ─▶ conv ─▶ mean [C] ─┐ T times
 *     scalars [2] ─▶ gamma, beta ────────┘            softmax over T, weighted sum ◀───┘─▶ head ─▶
 * y
 *
 * The T calls share their weights; batch norm takes the statistics of each call for itself and
 * moves the running ones T times. A frame is a block, or all of them are one: what is kept or made
 * again.
 */
#include <string.h>

#include "model/config_keys.h"
#include "model/layers/modules.h"
#include "model/layers/objective.h"

enum { STAGES = 3, SCALARS = 2, FILM_HIDDEN = 256, MOST_FRAMES = 1 << 12 };

struct frame_cnn {
    int64_t n_frames, height, width;
    int64_t channels[STAGES];
    double dropout;     /* all rates times this */
    bool one_segment;   /* all frames are one block */
    bool gates, weighs; /* attention over places, over frames */
    struct loss_term terms[3];
    struct objective losses; /* these terms */
};

static const char *const model_types[] = {"frame_cnn", NULL};
static const char *const architectures[] = {"FrameCnn", NULL};

/* ---- a frame --------------------------------------------------------------------------------- */

/* x * sigmoid(conv(relu(conv(x)))). */
static value_id gate(struct writer *w, value_id x)
{
    const char *before = writer_enter(w, "gate");
    value_id y = writer_op(w, OP_relu, module_conv(w, "0", x, conv_of(1, 3, 1, 1)));
    y = writer_op(w, OP_sigmoid, module_conv(w, "2", y, conv_of(1, 1, 1, 0)));
    w->prefix = before;
    return writer_op2(w, OP_mul, x, y);
}

static value_id stage(struct writer *w, const struct frame_cnn *m, int i, value_id x,
                      const value_id film[2])
{
    static const char *const convs[STAGES] = {"conv.0", "conv.1", "conv.2"};
    static const char *const norms[STAGES] = {"norm.0", "norm.1", "norm.2"};
    x = module_conv(w, convs[i], x, conv_of(m->channels[i], 3, 1, 1));
    x = writer_leaky_relu(w, module_batch_norm(w, norms[i], x), 0.01);
    if (i == 0)
        x = build(w->b, OP_film, IN(x, film[0], film[1]), NO_ATTRS);
    return writer_dropout(w, writer_max_pool(w, x, 2, 2, 0), 0.25 * m->dropout, true);
}

/* [B, H, W, 1] -> [B, C]. */
static value_id frame(struct writer *w, const struct frame_cnn *m, value_id x,
                      const value_id film[2])
{
    if (m->gates)
        x = gate(w, x);
    for (int i = 0; i < STAGES; i++)
        x = stage(w, m, i, x, film);
    return writer_global_mean(w, x);
}

/* [B, T, H, W, 1] -> [B, T, C]. */
static value_id frames(struct writer *w, const struct frame_cnn *m, value_id images,
                       const value_id film[2])
{
    value_id *ends;
    struct shape one = shape_of(4, w->r->batch, m->height, m->width, INT64_C(1));
    if (w->b->status == OK)
        w->b->status = pool_try(&w->b->g->pool, &ends, (size_t)m->n_frames * sizeof(*ends));
    for (int64_t t = 0; t < m->n_frames && w->b->status == OK; t++) {
        if (t == 0 || !m->one_segment)
            writer_start_block(w);
        w->repeats = t > 0;
        value_id x = build_reshape(w->b, writer_slice(w, images, 1, t, 1), one);
        x = frame(w, m, x, film);
        ends[t] = build_reshape(w->b, x, shape_of(3, w->r->batch, INT64_C(1), m->channels[2]));
    }
    w->repeats = false;
    if (w->b->status != OK)
        return VALUE_NONE;
    return writer_concat(w, ends, (int)m->n_frames, 1);
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* gamma and beta [B, C] of the first stage. */
static void write_film(struct writer *w, const struct frame_cnn *m, value_id scalars,
                       value_id film[2])
{
    const char *before = writer_enter(w, "film");
    value_id x = writer_op(w, OP_relu, module_linear(w, "0", scalars, FILM_HIDDEN));
    x = module_linear(w, "2", x, 2 * m->channels[0]);
    w->prefix = before;
    film[0] = writer_slice(w, x, 1, 0, m->channels[0]);
    film[1] = writer_slice(w, x, 1, m->channels[0], m->channels[0]);
}

/* Weights of the frames from a score each, or the plain mean: [B, T, C] -> [B, C]. */
static value_id over_frames(struct writer *w, const struct frame_cnn *m, value_id x)
{
    int64_t channels = m->channels[2];
    if (!m->weighs)
        return build(w->b, OP_mean, IN(x), ATTRS({.name = "axes", .n_ints = 1, .ints = {1}}));
    const char *before = writer_enter(w, "score");
    value_id score = writer_op(w, OP_relu, module_linear(w, "0", x, channels / 2));
    score = module_linear(w, "2", score, 1);
    w->prefix = before;
    score = build_reshape(w->b, score, shape_of(2, w->r->batch, m->n_frames));
    return writer_weighted_sum(w, x, writer_op(w, OP_softmax, score));
}

static value_id head(struct writer *w, const struct frame_cnn *m, value_id x)
{
    const char *before = writer_enter(w, "head");
    x = module_batch_norm(w, "1", module_linear(w, "0", x, m->channels[2]));
    x = writer_dropout(w, writer_leaky_relu(w, x, 0.01), 0.5 * m->dropout, false);
    x = module_batch_norm(w, "5", module_linear(w, "4", x, m->channels[2] / 2));
    x = writer_dropout(w, writer_leaky_relu(w, x, 0.01), 0.3 * m->dropout, false);
    w->init = (struct weight_init){.rule = WEIGHT_NORMAL, .std = 0.5};
    x = module_linear(w, "8", x, 1);
    w->prefix = before;
    return writer_op(w, OP_nan_to_zero, x);
}

static void write_all(struct writer *w, const void *config)
{
    const struct frame_cnn *m = config;
    const struct weight_init xavier = {.rule = WEIGHT_XAVIER};
    const struct weight_init fan_out = {.rule = WEIGHT_KAIMING, .fan_out = true};
    value_id film[2];
    value_id images = writer_input(
        w,
        &(struct model_field){.name = "images",
                              .shape = shape_of(4, m->n_frames, m->height, m->width, INT64_C(1))});
    value_id scalars = writer_input(
        w, &(struct model_field){.name = "scalars", .shape = shape_of(1, (int64_t)SCALARS)});
    w->init = xavier;
    write_film(w, m, writer_op(w, OP_nan_to_zero, scalars), film);
    w->init = fan_out;
    value_id x = frames(w, m, writer_op(w, OP_nan_to_zero, images), film);
    w->init = xavier;
    writer_start_block(w);
    x = head(w, m, over_frames(w, m, x));
    w->b->block = BLOCK_NONE;
    if (w->b->status == OK)
        objective_write(w, &m->losses, x, "target");
}

/* ---- the config ------------------------------------------------------------------------------ */

static void add_loss(struct frame_cnn *m, const char *kind, const char *name, double weight)
{
    m->losses.terms = m->terms;
    m->terms[m->losses.n_terms++] = objective_term(kind, name, weight);
}

static void parse_losses(struct keys *k, struct frame_cnn *m)
{
    const char *kind = keys_text(k, "loss_type", "huber");
    double delta = keys_float(k, "huber_delta", 1.0, 1e-30, 1e9);
    double alpha = keys_float(k, "loss_alpha", 0.5, 0, 1);
    double hardest = keys_float(k, "hard_mining_k", 0.35, 0, 1);
    double factor = keys_float(k, "hard_mining_factor", 1.5, 0, 1e9);
    double lambda = keys_float(k, "variance_lambda", 0.5, 0, 1e9);
    bool both = strcmp(kind, "mse_mae") == 0;
    if (strcmp(kind, "huber") == 0)
        add_loss(m, "huber", "huber", 1.0);
    if (strcmp(kind, "mse") == 0 || both)
        add_loss(m, "mse", "mse", both ? alpha : 1.0);
    if (strcmp(kind, "mae") == 0 || both)
        add_loss(m, "l1", "mae", both ? 1.0 - alpha : 1.0);
    if (m->losses.n_terms == 0)
        KEYS_FAIL(k, "loss_type", ERR_CONFIG,
                  "key 'loss_type' is '%s'; there are huber, mse, mae and mse_mae", kind);
    for (int i = 0; i < m->losses.n_terms; i++) {
        m->terms[i].number = delta;
        m->terms[i].hardest = hardest;
        m->terms[i].hardest_factor = factor;
    }
    if (lambda > 0)
        add_loss(m, "variance", "variance", lambda);
}

static void parse_sizes(struct keys *k, struct frame_cnn *m)
{
    bool small = keys_bool(k, "memory_optimized", false);
    const char *segments = keys_text(k, "segments", "frame");
    for (int i = 0; i < STAGES; i++)
        m->channels[i] = (int64_t)(small ? 32 : 64) << i;
    int64_t divisor = keys_int(k, "width_divisor", 1, 1, 16);
    for (int i = 0; i < STAGES; i++)
        m->channels[i] /= divisor;
    m->n_frames = keys_int(k, "temporal_frames", 5, 1, MOST_FRAMES);
    m->height = keys_int(k, "image_height", 440, 1 << STAGES, 1 << 16);
    m->width = keys_int(k, "image_width", 640, 1 << STAGES, 1 << 16);
    m->one_segment = strcmp(segments, "sequence") == 0;
    if (!m->one_segment && strcmp(segments, "frame") != 0)
        KEYS_FAIL(k, "segments", ERR_CONFIG,
                  "key 'segments' is '%s'; what is made again is a frame or the sequence",
                  segments);
    m->gates = keys_bool(k, "use_spatial_attention", true);
    m->weighs = keys_bool(k, "use_temporal_attention", true);
    m->dropout = keys_float(k, "dropout_scale", 1.0, 0, 1.9);
}

static enum status parse(struct model *m, const json_t *config, const struct key_origin *origin)
{
    struct frame_cnn *own;
    struct keys k;
    TRY(pool_try(&m->pool, &own, sizeof(*own)));
    m->config = own;
    keys_init(&k, config, origin);
    parse_sizes(&k, own);
    parse_losses(&k, own);
    TRY(keys_finish(&k));
    return model_try(m, write_all);
}

static enum status build_graph(const struct model *m, struct builder *b,
                               const struct model_request *r, struct model_graph *out)
{
    return model_write(m, b, r, out, write_all);
}

/* The config says it all. */
static json_t *export_config(const struct model *m)
{
    (void)m;
    return json_object();
}

const struct model_def model_def_frame_cnn = {
    .name = "frame_cnn",
    .model_types = model_types,
    .architectures = architectures,
    .parse = parse,
    .build = build_graph,
    .export_config = export_config,
};
