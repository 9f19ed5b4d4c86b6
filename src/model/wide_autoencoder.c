/* wide_autoencoder.c: vectors of video, audio and text through a bottleneck to brain voxels and
 * back: fully connected layers with batch norm throughout. Nearly all of its weights are the first
 * layer of the video encoder and the last of the voxel head.
 *
 *     video [V] ─▶ 4096 ─▶ 2048 ─▶ 1024 ─┐
 *     audio [A] ─▶  512 ─▶  256 ─────────┼▶ 1536 ─▶ 4096 ─▶ 8000 ─▶ bottleneck ─▶ 16384 ─▶ voxels
 * [N] text  [X] ─▶  512 ─▶  256 ─────────┘                              │ a frame, audio, text  ◀─
 * 1536 ◀─ 2048 ◀─ 4096 ◀─ 8000 ◀─────────┘
 *
 * Each loss is a mean of squares over the deviation of its targets in the batch. Audio is a vector
 * of codes (vector head), or mels over time, which transposed convolutions bring up to 64 steps
 * (mel head).
 */
#include <string.h>

#include "model/config_keys.h"
#include "model/layers/objective.h"
#include "ops/window_support.h"

enum { MEL_STEPS = 8, MEL_UPS = 3, AUDIO_STEPS = 65, COLOURS = 3, CODE_MOST = 1023 };

struct autoencoder {
    int64_t video, frame;  /* numbers of all frames, of one */
    int64_t audio, n_mels; /* n_mels 0: a vector of codes */
    int64_t text, voxels, bottleneck;
    int64_t divisor; /* of all widths in between */
    double dropout;  /* all rates times this */
    struct loss_term losses[4];
};

static const char *const model_types[] = {"wide_autoencoder", NULL};
static const char *const architectures[] = {"WideAutoencoder", NULL};

/* ---- the config ------------------------------------------------------------------------------ */

static void parse_video(struct keys *k, struct autoencoder *a)
{
    int64_t height = keys_int(k, "frame_height", 90, 1, 1 << 16);
    int64_t width = keys_int(k, "frame_width", 160, 1, 1 << 16);
    int64_t n_frames = keys_int(k, "frames", 38, 1, 1 << 16);
    int64_t skip = keys_int(k, "frame_skip", 1, 1, 1 << 16);
    a->frame = height * width * COLOURS;
    a->video = (n_frames + skip - 1) / skip * a->frame;
}

static void parse_audio(struct keys *k, struct autoencoder *a)
{
    const char *mode = keys_text(k, "audio_mode", "codec");
    bool mel = strcmp(mode, "mel") == 0;
    if (!mel && strcmp(mode, "codec") != 0)
        KEYS_FAIL(k, "audio_mode", ERR_CONFIG, "key 'audio_mode' is '%s'; there are codec and mel",
                  mode);
    int64_t n_mels = keys_int(k, "n_mels", 128, 1, 1 << 16);
    int64_t n_codes = keys_int(k, "audio_dim", 896, 1, 1 << 24);
    a->n_mels = mel ? n_mels : 0;
    a->audio = mel ? n_mels * AUDIO_STEPS : n_codes;
}

static void parse_losses(struct keys *k, struct autoencoder *a)
{
    static const char *const names[] = {"video", "audio", "text", "fmri"};
    static const char *const weights[] = {"video_weight", "audio_weight", "text_weight",
                                          "fmri_weight"};
    const char *kind = keys_text(k, "fmri_loss", "mse");
    bool mae = strcmp(kind, "mae") == 0, known = mae || strcmp(kind, "mse") == 0;
    for (int i = 0; i < 4; i++) {
        double weight = keys_float(k, weights[i], 1.0, 0, 1e9);
        a->losses[i] = objective_term("mse", names[i], weight);
        a->losses[i].over_std = true;
    }
    if (mae)
        a->losses[3].kind = objective_term("l1", "fmri", 1).kind;
    if (strcmp(kind, "cosine") == 0)
        a->losses[3] = objective_term("cosine", "fmri", a->losses[3].weight);
    else if (!known)
        KEYS_FAIL(k, "fmri_loss", ERR_CONFIG,
                  "key 'fmri_loss' is '%s'; there are mse, mae and cosine", kind);
}

static void write_all(struct writer *w, const struct autoencoder *a);

static enum status try_autoencoder(struct model *m, const struct autoencoder *a)
{
    const struct model_request request = {
        .purpose = MODEL_TRAIN, .batch = 2, .seq_len = 1, .dtype = DTYPE_F32};
    struct graph *g = NULL;
    struct builder b;
    struct model_graph io;
    struct writer w;
    enum status status;
    TRY_GOTO(graph_new(&g, "trial"), out);
    builder_init(&b, g);
    writer_begin(&w, &b, &request, &io);
    write_all(&w, a);
    TRY_GOTO(builder_status(&b), out);
    status = writer_facts(&w, m);
out:
    graph_free(g);
    return status;
}

static enum status parse(struct model *m, const json_t *config, const struct key_origin *origin)
{
    struct autoencoder *a;
    struct keys k;
    TRY(pool_try(&m->pool, &a, sizeof(*a)));
    m->config = a;
    keys_init(&k, config, origin);
    parse_video(&k, a);
    parse_audio(&k, a);
    a->text = keys_int(&k, "text_dim", 1024, 1, 1 << 24);
    a->voxels = keys_int(&k, "n_voxels", 85810, 1, INT32_MAX);
    a->bottleneck = keys_int(&k, "bottleneck_dim", 2048, 1, 1 << 24);
    a->divisor = keys_int(&k, "width_divisor", 1, 1, 4096);
    a->dropout = keys_float(&k, "dropout_scale", 1.0, 0, 1.5);
    parse_losses(&k, a);
    TRY(keys_finish(&k));
    return try_autoencoder(m, a);
}

/* ---- chains of layers ------------------------------------------------------------------------ */

/* A chain's layers are numbered as PyTorch's Sequential numbers them. */
struct chain {
    struct writer *w;
    const struct autoencoder *a;
    int n; /* modules so far */
};

static const char *enter(struct chain *c)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "%d", c->n++);
    return writer_enter(c->w, name);
}

static int64_t width_of(const struct autoencoder *a, int64_t width)
{
    return MAX(width / a->divisor, (int64_t)8);
}

static value_id add_linear(struct chain *c, value_id x, int64_t n_out, bool fan_out)
{
    struct linear_layer l = {.n_out = n_out, .bias = true};
    if (fan_out)
        l.init = (struct weight_init){.rule = WEIGHT_KAIMING, .fan_out = true};
    writer_start_block(c->w);
    const char *before = enter(c);
    x = writer_linear(c->w, x, &l);
    c->w->prefix = before;
    return x;
}

static value_id add_norm(struct chain *c, value_id x)
{
    const struct batch_norm_layer l = {BATCH_NORM_EPSILON, BATCH_NORM_MOMENTUM};
    const char *before = enter(c);
    x = writer_batch_norm(c->w, x, &l);
    c->w->prefix = before;
    return x;
}

static value_id add_relu(struct chain *c, value_id x)
{
    c->n++;
    return build(c->w->b, OP_relu, IN(x), NO_ATTRS);
}

static value_id add_dropout(struct chain *c, value_id x, double rate)
{
    c->n++;
    return writer_dropout(c->w, x, rate * c->a->dropout, false);
}

/* Linear, norm, ReLU, dropout. */
static value_id add_step(struct chain *c, value_id x, int64_t width, double rate, bool fan_out)
{
    x = add_norm(c, add_linear(c, x, width_of(c->a, width), fan_out));
    return add_dropout(c, add_relu(c, x), rate);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static value_id encode_video(struct chain *c, value_id x)
{
    x = add_step(c, x, 4096, 0.3, false);
    x = add_step(c, x, 2048, 0.3, false);
    return add_step(c, x, 1024, 0.2, false);
}

/* Here dropout comes before ReLU. */
static value_id encode_audio(struct chain *c, value_id x)
{
    static const double rates[] = {0.3, 0.2};
    for (int i = 0; i < 2; i++) {
        x = add_norm(c, add_linear(c, x, width_of(c->a, i ? 256 : 512), false));
        x = add_relu(c, add_dropout(c, x, rates[i]));
    }
    return x;
}

static value_id encode_text(struct chain *c, value_id x)
{
    return add_step(c, add_step(c, x, 512, 0.2, false), 256, 0.2, false);
}

static value_id trunk(struct chain *c, value_id x)
{
    x = add_step(c, x, 1536, 0.2, false);
    x = add_step(c, x, 4096, 0.3, false);
    x = add_step(c, x, 8000, 0.3, false);
    return add_norm(c, add_linear(c, x, width_of(c->a, c->a->bottleneck), false));
}

static value_id voxel_head(struct chain *c, value_id x)
{
    return add_linear(c, add_step(c, x, 16384, 0.3, false), c->a->voxels, false);
}

static value_id decode(struct chain *c, value_id x)
{
    static const int64_t widths[] = {8000, 4096, 2048, 1536};
    for (size_t i = 0; i < ARRAY_LEN(widths); i++)
        x = add_step(c, x, widths[i], 0.3, true);
    return x;
}

static value_id decode_video(struct chain *c, value_id x)
{
    x = add_step(c, add_step(c, x, 2048, 0.3, true), 4096, 0.3, true);
    return build(c->w->b, OP_sigmoid, IN(add_linear(c, x, c->a->frame, true)), NO_ATTRS);
}

static value_id decode_text(struct chain *c, value_id x)
{
    x = add_step(c, add_step(c, x, 1024, 0.3, true), 1024, 0.3, true);
    return add_linear(c, x, c->a->text, true);
}

/* ---- the audio decoder ----------------------------------------------------------------------- */

static value_id swap_axes(struct writer *w, value_id x)
{
    return build(w->b, OP_transpose, IN(x),
                 ATTRS({.name = "axes", .n_ints = 3, .ints = {0, 2, 1}}));
}

/* [B, T, M] -> [B, 2 T, M], with norm and ReLU. */
static value_id add_up(struct chain *c, value_id x)
{
    enum { KERNEL = 4 };
    struct writer *w = c->w;
    int64_t n = c->a->n_mels;
    const struct weight_init preset = {.rule = WEIGHT_PRESET};
    const struct conv_transpose t = {
        .stride = {2}, .pad_before = {1}, .pad_after = {1}, .dilation = {1}, .groups = 1};
    const char *before = enter(c);
    value_id weight = writer_weight(w, "weight", shape_of(3, n, (int64_t)KERNEL, n), KERNEL * n,
                                    KERNEL * n, &preset);
    value_id bias = writer_bias(w, n, KERNEL * n, &preset);
    x = build(w->b, OP_add, IN(build_conv_transpose(w->b, x, weight, &t), bias), NO_ATTRS);
    w->prefix = before;
    return add_relu(c, add_norm(c, x));
}

static value_id add_smooth(struct chain *c, value_id x)
{
    enum { KERNEL = 3 };
    struct writer *w = c->w;
    int64_t n = c->a->n_mels;
    const struct weight_init preset = {.rule = WEIGHT_PRESET};
    const char *before = enter(c);
    value_id weight = writer_weight(w, "weight", shape_of(3, n, (int64_t)KERNEL, n), KERNEL * n,
                                    KERNEL * n, &preset);
    value_id bias = writer_bias(w, n, KERNEL * n, &preset);
    w->prefix = before;
    return build(w->b, OP_conv, IN(x, weight, bias),
                 ATTRS({.name = "pad_before", .n_ints = 1, .ints = {1}},
                       {.name = "pad_after", .n_ints = 1, .ints = {1}}));
}

/* The last step is silence: 8 steps doubled three times are 64. */
static value_id add_silence(struct writer *w, value_id x)
{
    value_id one = build(
        w->b, OP_slice, IN(x),
        ATTRS({.name = "axis", .i = 1}, {.name = "start", .i = 0}, {.name = "length", .i = 1}));
    value_id silence = build(w->b, OP_scale, IN(one), ATTRS({.name = "factor", .f = 0.0}));
    return build(w->b, OP_concat, IN(x, silence), ATTRS({.name = "axis", .i = 1}));
}

static value_id decode_audio(struct chain *c, value_id x)
{
    struct writer *w = c->w;
    const struct autoencoder *a = c->a;
    x = add_step(c, add_step(c, x, 2048, 0.3, true), 2048, 0.3, true);
    if (!a->n_mels) {
        x = build(w->b, OP_sigmoid, IN(add_linear(c, x, a->audio, true)), NO_ATTRS);
        return build(w->b, OP_scale, IN(x), ATTRS({.name = "factor", .f = CODE_MOST}));
    }
    x = add_linear(c, x, a->n_mels * MEL_STEPS, true);
    x = swap_axes(w,
                  build_reshape(w->b, x, shape_of(3, w->r->batch, a->n_mels, (int64_t)MEL_STEPS)));
    for (int i = 0; i < MEL_UPS; i++)
        x = add_up(c, x);
    x = swap_axes(w, add_silence(w, add_smooth(c, x)));
    return build_reshape(w->b, x, shape_of(2, w->r->batch, a->audio));
}

/* ---- the whole ------------------------------------------------------------------------------- */

static value_id part(struct writer *w, const struct autoencoder *a, const char *name,
                     value_id (*write)(struct chain *c, value_id x), value_id x)
{
    struct chain c = {.w = w, .a = a};
    const char *before = writer_enter(w, name);
    x = write(&c, x);
    w->prefix = before;
    return x;
}

static void add_loss(struct writer *w, const struct loss_term *t, value_id output, value_id target)
{
    w->b->block = BLOCK_NONE;
    objective_write_to(w, &(struct objective){(struct loss_term *)(uintptr_t)t, 1}, output, target);
}

static void write_all(struct writer *w, const struct autoencoder *a)
{
    struct builder *b = w->b;
    value_id video =
        writer_input(w, &(struct model_field){
                            .name = "video", .shape = shape_of(1, a->video), .draw = DRAW_UNIFORM});
    value_id audio =
        writer_input(w, &(struct model_field){.name = "audio",
                                              .shape = shape_of(1, a->audio),
                                              .draw = a->n_mels ? DRAW_NORMAL : DRAW_CODES});
    value_id text =
        writer_input(w, &(struct model_field){.name = "text", .shape = shape_of(1, a->text)});
    value_id voxels =
        writer_input(w, &(struct model_field){
                            .name = "voxels", .shape = shape_of(1, a->voxels), .is_target = true});
    value_id seen[] = {part(w, a, "video_encoder", encode_video, video),
                       part(w, a, "audio_encoder", encode_audio, audio),
                       part(w, a, "text_encoder", encode_text, text)};
    value_id x = build(b, OP_concat, seen, 3, ATTRS({.name = "axis", .i = 1}));
    x = part(w, a, "trunk", trunk, x);
    value_id y = part(w, a, "voxel_head", voxel_head, x);
    x = part(w, a, "decoder", decode, x);
    value_id frame = build(b, OP_slice, IN(video),
                           ATTRS({.name = "axis", .i = 1}, {.name = "start", .i = 0},
                                 {.name = "length", .i = a->frame}));
    add_loss(w, &a->losses[0], part(w, a, "video_decoder", decode_video, x), frame);
    add_loss(w, &a->losses[1], part(w, a, "audio_decoder", decode_audio, x), audio);
    add_loss(w, &a->losses[2], part(w, a, "text_decoder", decode_text, x), text);
    add_loss(w, &a->losses[3], y, voxels);
    writer_end(w);
}

static enum status build_graph(const struct model *m, struct builder *b,
                               const struct model_request *r, struct model_graph *out)
{
    struct writer w;
    writer_begin(&w, b, r, out);
    write_all(&w, m->config);
    return builder_status(b);
}

/* The config says it all. */
static json_t *export_config(const struct model *m)
{
    (void)m;
    return json_object();
}

const struct model_def model_def_wide_autoencoder = {
    .name = "wide_autoencoder",
    .model_types = model_types,
    .architectures = architectures,
    .parse = parse,
    .build = build_graph,
    .export_config = export_config,
};
