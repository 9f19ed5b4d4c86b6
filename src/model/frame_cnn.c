/* frame_cnn.c: a number from a few frames and two scalars: one convolutional network for every
 * frame, attention over the frames, or another way from the frames to one vector (`architecture`).
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

/* From frames to one vector. */
enum over {
    OVER_SCORES,  /* a weight for each by its score */
    OVER_SCALES,  /* convolutions over two and three frames beside them, attention, mean */
    OVER_GRAPH,   /* attention between the places of each frame, mean */
    OVER_STATES,  /* a selective state space, mean */
    OVER_LSTM,    /* a recurrent network, mean */
    OVER_NOTHING, /* the mean of the frames is one image, and nothing else is done with it */
};

struct frame_cnn {
    int64_t n_frames, height, width;
    int64_t channels[STAGES];
    double dropout;     /* all rates times this */
    bool one_segment;   /* all frames are one block */
    bool gates, weighs; /* attention over places, over frames */
    enum over over;
    int64_t heads; /* OVER_SCALES, OVER_GRAPH */
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

/* The places of a frame as a graph of neighbours: [B, h, w, C] -> [B, C]. */
static value_id over_places(struct writer *w, const struct frame_cnn *m, value_id x)
{
    const struct shape s = *build_shape(w->b, x);
    const struct graph_layer wide = {m->heads, m->channels[2], 0.6 * m->dropout};
    const struct graph_layer last = {1, m->channels[2], 0.6 * m->dropout};
    struct graph_edges edges = writer_grid(w, s.dim[1], s.dim[2]);
    struct weight_init before = w->init;
    x = build_reshape(w->b, x, shape_of(3, s.dim[0], s.dim[1] * s.dim[2], s.dim[3]));
    w->init = (struct weight_init){.rule = WEIGHT_XAVIER, .uniform = true};
    x = module_graph_attention(w, "gat.0", writer_dropout(w, x, 0.6 * m->dropout, false), edges,
                               &wide);
    x = writer_dropout(w, writer_op(w, OP_elu, x), 0.6 * m->dropout, false);
    x = module_graph_attention(w, "gat.1", x, edges, &last);
    w->init = before;
    return writer_global_mean(w, module_layer_norm(w, "gat_norm", x));
}

/* [B, H, W, 1] -> [B, C]. */
static value_id frame(struct writer *w, const struct frame_cnn *m, value_id x,
                      const value_id film[2])
{
    if (m->gates)
        x = gate(w, x);
    for (int i = 0; i < STAGES; i++)
        x = stage(w, m, i, x, film);
    if (m->over == OVER_GRAPH && w->b->status == OK)
        return over_places(w, m, x);
    return writer_global_mean(w, x);
}

/* [B, T, H, W, 1] -> [B, T, C]. */
static value_id frames(struct writer *w, const struct frame_cnn *m, value_id images,
                       const value_id film[2])
{
    value_id *ends;
    if (w->b->status == OK)
        w->b->status = pool_try(&w->b->g->pool, &ends, (size_t)m->n_frames * sizeof(*ends));
    for (int64_t t = 0; t < m->n_frames && w->b->status == OK; t++) {
        if (t == 0 || !m->one_segment)
            writer_start_block(w);
        w->repeats = t > 0;
        ends[t] = writer_as_step(w, frame(w, m, writer_step(w, images, t), film));
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

static value_id mean_of_frames(struct writer *w, value_id x)
{
    return build(w->b, OP_mean, IN(x), ATTRS({.name = "axes", .n_ints = 1, .ints = {1}}));
}

/* Weights of the frames from a score each: [B, T, C] -> [B, C]. */
static value_id over_scores(struct writer *w, const struct frame_cnn *m, value_id x)
{
    const char *before = writer_enter(w, "score");
    value_id score = writer_op(w, OP_relu, module_linear(w, "0", x, m->channels[2] / 2));
    score = module_linear(w, "2", score, 1);
    w->prefix = before;
    score = build_reshape(w->b, score, shape_of(2, w->r->batch, m->n_frames));
    return writer_weighted_sum(w, x, writer_op(w, OP_softmax, score));
}

/* Frames beside what convolutions over two and three of them make: [B, T, C] -> [B, C]. */
static value_id over_scales(struct writer *w, const struct frame_cnn *m, value_id x)
{
    static const char *const convs[] = {"scale.0.conv", "scale.1.conv"};
    static const char *const norms[] = {"scale.0.norm", "scale.1.norm"};
    value_id parts[3] = {x};
    for (int i = 0; i < 2; i++) {
        value_id y = module_conv(w, convs[i], x, conv_of(m->channels[2], 2 + i, 1, 1));
        y = module_batch_norm(w, norms[i], writer_slice(w, y, 1, 0, m->n_frames));
        parts[1 + i] = writer_op(w, OP_relu, y);
    }
    x = module_attention(w, "attn", writer_concat(w, parts, 3, 2), m->heads, 0);
    x = module_linear(w, "merge", mean_of_frames(w, x), m->channels[2]);
    return module_layer_norm(w, "merge_norm", x);
}

/* [B, T, C] -> [B, C]. */
static value_id over_frames(struct writer *w, const struct frame_cnn *m, value_id x)
{
    static const struct state_space_layer states = {.states = 16, .kernel = 4, .expand = 2};
    const struct recurrent_layer lstm = {.hidden = m->channels[2], .n_layers = 2};
    if (m->over == OVER_SCORES && m->weighs)
        return over_scores(w, m, x);
    if (m->over == OVER_SCALES)
        return over_scales(w, m, x);
    if (m->over == OVER_STATES) {
        w->init = (struct weight_init){.rule = WEIGHT_PRESET};
        x = module_state_space(w, "ssm", x, &states);
        w->init = (struct weight_init){.rule = WEIGHT_XAVIER};
    }
    if (m->over == OVER_LSTM)
        x = module_recurrent(w, "lstm", x, &lstm);
    return mean_of_frames(w, x);
}

/* Three stages without norms over the mean of the frames: [B, T, H, W, 1] -> [B, C]. */
static value_id one_image(struct writer *w, const struct frame_cnn *m, value_id images)
{
    static const char *const convs[STAGES] = {"conv.0", "conv.1", "conv.2"};
    value_id x = mean_of_frames(w, images);
    writer_start_block(w);
    for (int i = 0; i < STAGES; i++) {
        x = module_conv(w, convs[i], x, conv_of(m->channels[i], 3, 1, 1));
        x = writer_max_pool(w, writer_op(w, OP_relu, x), 2, 2, 0);
    }
    return writer_global_mean(w, x);
}

/* A linear layer of the head, with its norm where the network has norms. */
static value_id dense(struct writer *w, const struct frame_cnn *m, const char *const names[2],
                      value_id x, int64_t n_out, double rate)
{
    x = module_linear(w, names[0], x, n_out);
    if (m->over == OVER_NOTHING)
        x = writer_op(w, OP_relu, x);
    else
        x = writer_leaky_relu(w, module_batch_norm(w, names[1], x), 0.01);
    return writer_dropout(w, x, rate * m->dropout, false);
}

static value_id head(struct writer *w, const struct frame_cnn *m, value_id x)
{
    static const char *const first[] = {"0", "1"}, *const second[] = {"4", "5"};
    const char *before = writer_enter(w, "head");
    x = dense(w, m, first, x, m->channels[2], 0.5);
    x = dense(w, m, second, x, m->channels[2] / 2, 0.3);
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
    value_id film[2], x;
    value_id images = writer_input(
        w,
        &(struct model_field){.name = "images",
                              .shape = shape_of(4, m->n_frames, m->height, m->width, INT64_C(1))});
    images = writer_op(w, OP_nan_to_zero, images);
    w->init = xavier;
    if (m->over != OVER_NOTHING) {
        value_id scalars = writer_input(
            w, &(struct model_field){.name = "scalars", .shape = shape_of(1, (int64_t)SCALARS)});
        write_film(w, m, writer_op(w, OP_nan_to_zero, scalars), film);
    }
    w->init = fan_out;
    x = m->over == OVER_NOTHING ? one_image(w, m, images) : frames(w, m, images, film);
    w->init = xavier;
    writer_start_block(w);
    x = head(w, m, m->over == OVER_NOTHING ? x : over_frames(w, m, x));
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

static const struct {
    const char *name;
    enum over over;
} architectures_of[] = {
    {"transformer", OVER_SCORES}, {"multi_scale", OVER_SCALES}, {"gnn", OVER_GRAPH},
    {"ssm", OVER_STATES},         {"mamba", OVER_STATES},       {"lstm", OVER_LSTM},
    {"cnn", OVER_NOTHING},        {"simple_cnn", OVER_NOTHING},
};

/* architecture: gnn, or {name: gnn}: the way from frames to one vector. */
static void parse_architecture(struct keys *k, struct frame_cnn *m)
{
    const json_t *value =
        keys_has(k, "architecture") ? json_object_get(k->object, "architecture") : NULL;
    const json_t *inner = json_is_object(value) ? json_object_get(value, "name") : value;
    const char *name = json_is_string(inner) ? json_string_value(inner) : "";
    bool known = !value;
    for (size_t i = 0; i < ARRAY_LEN(architectures_of) && !known; i++) {
        known = strcmp(name, architectures_of[i].name) == 0;
        m->over = architectures_of[i].over;
    }
    if (!known)
        KEYS_FAIL(k, "architecture", ERR_UNSUPPORTED,
                  "key 'architecture' is '%s'; there are transformer (attention over the frames), "
                  "multi_scale, gnn, ssm, lstm and cnn",
                  name);
    m->heads = keys_int(k, "attention_heads", m->over == OVER_GRAPH ? 8 : 4, 1, 1 << 10);
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
    m->dropout = keys_float(k, "dropout_scale", 1.0, 0, m->over == OVER_GRAPH ? 1.6 : 1.9);
    if (keys_good(k) && m->over == OVER_SCALES && 3 * m->channels[2] % m->heads != 0)
        KEYS_FAIL(k, "attention_heads", ERR_CONFIG,
                  "key 'attention_heads' (%lld) must divide %lld channels", (long long)m->heads,
                  (long long)(3 * m->channels[2]));
}

static enum status parse(struct model *m, const json_t *config, const struct key_origin *origin)
{
    struct frame_cnn *own;
    struct keys k;
    TRY(pool_try(&m->pool, &own, sizeof(*own)));
    m->config = own;
    keys_init(&k, config, origin);
    parse_architecture(&k, own);
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
    .implied_by = "temporal_frames",
    .parse = parse,
    .build = build_graph,
    .export_config = export_config,
};
