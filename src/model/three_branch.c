/* three_branch.c: two clips, three vectors and a class to two outcomes, trained end to end.
 *
 *     clip [T, H, W, 3] ─▶ unet3d ─▶ mask of every frame        ─▶ 512 ┐
 *                      └▶ siamese ─▶ mask of what changed       ─▶ 256 ┤
 *     clip [T, H, W, 1] ─▶ detector, a frame at a time ─▶ boxes ─▶ 256 ┼▶ fusion ─▶ two outcomes
 *     tracks [10, 6]    ─▶ tracks                               ─▶ 256 ┤
 *     vectors [3, 9]    ─▶ vectors, tempo                 ─▶ 192 + 192 ┤
 *     class             ─▶ an embedding                         ─▶  32 ┘
 *
 * Siamese and tracks may be left out: the fusion sees zeros in their place. Every branch has losses
 * of its own beside those of the outcomes. Of the image's branch one may train nothing but that:
 * its embedding then has a target of its own.
 */
#include <string.h>

#include "model/branches/branches.h"
#include "model/config_keys.h"

static const char *const model_types[] = {"three_branch", NULL};
static const char *const architectures[] = {"ThreeBranch", NULL};

int64_t branch_width(const struct three_branch *m, int64_t width)
{
    const int64_t least = 8; /* group norms have as many groups, attention as many heads */
    return MAX(width / m->divisor, least);
}

void branch_loss(struct writer *w, struct loss_term term, value_id output, const char *target)
{
    if (w->b->status == OK)
        objective_write(w, &(struct objective){&term, 1}, output, target);
}

/* ---- the graph ------------------------------------------------------------------------------- */

static value_id clip(struct writer *w, const struct three_branch *m, const char *name, int64_t n)
{
    return writer_input(
        w, &(struct model_field){.name = name,
                                 .shape = shape_of(4, m->n_frames, m->height, m->width, n),
                                 .draw = DRAW_UNIFORM});
}

/* a, and b or as many zeros behind it. */
static value_id beside(struct writer *w, value_id a, value_id b, int64_t n)
{
    const value_id both[] = {
        a, b != VALUE_NONE ? b : writer_scaled(w, writer_slice(w, a, 1, 0, n), 0.0)};
    return writer_concat(w, both, 2, 1);
}

struct inputs {
    value_id video_a, video_b, vectors, tracks, track_mask, classes;
};

/* Classes after all that are numbers. */
static struct inputs write_inputs(struct writer *w, const struct three_branch *m)
{
    struct inputs in = {.tracks = VALUE_NONE, .track_mask = VALUE_NONE};
    in.video_a = clip(w, m, "video_a", 3);
    in.video_b = clip(w, m, "video_b", 1);
    in.vectors = writer_input(
        w, &(struct model_field){.name = "vectors", .shape = shape_of(2, INT64_C(3), INT64_C(9))});
    if (m->tracks) {
        in.tracks = writer_input(
            w, &(struct model_field){.name = "tracks",
                                     .shape = shape_of(2, (int64_t)BRANCH_TRACKS, INT64_C(6))});
        in.track_mask =
            writer_input(w, &(struct model_field){.name = "track_mask",
                                                  .shape = shape_of(1, (int64_t)BRANCH_TRACKS),
                                                  .draw = DRAW_BITS});
    }
    in.classes =
        writer_input(w, &(struct model_field){.name = "class", .n_classes = BRANCH_CLASSES + 1});
    return in;
}

static void write_image_alone(struct writer *w, const struct three_branch *m)
{
    value_id seen = branch_unet3d(w, m, clip(w, m, "video_a", 3));
    w->b->block = BLOCK_NONE;
    branch_loss(w, objective_term("mse", "embedding", 1.0), seen, "embedding");
}

static void write_all(struct writer *w, const struct three_branch *m)
{
    struct inputs in = write_inputs(w, m);
    value_id siamese = VALUE_NONE, tracks = VALUE_NONE;
    value_id image = branch_unet3d(w, m, in.video_a);
    if (m->siamese)
        siamese = branch_siamese(w, m, in.video_a);
    value_id thermal = branch_detector(w, m, in.video_b);
    writer_start_block(w);
    if (m->tracks)
        tracks = branch_tracks(w, m, in.tracks, in.track_mask);
    value_id numbers = branch_vectors(w, m, in.vectors);
    value_id tempo = branch_tempo(w, m, in.vectors);
    int64_t n = branch_width(m, 256);
    const struct fusion_inputs all = {.image = beside(w, image, siamese, n),
                                      .thermal = beside(w, thermal, tracks, n),
                                      .radar = beside(w, numbers, tempo, 0),
                                      .classes = in.classes};
    branch_fusion(w, m, &all);
}

static void write_network(struct writer *w, const void *config)
{
    const struct three_branch *m = config;
    if (m->image_alone)
        write_image_alone(w, m);
    else
        write_all(w, m);
}

/* ---- the config ------------------------------------------------------------------------------ */

static void parse_parts(struct keys *k, struct three_branch *m)
{
    const char *siamese = keys_text(k, "siamese", "none");
    const char *segments = keys_text(k, "segments", "frame");
    const char *branches = keys_text(k, "branches", "all");
    m->image_alone = strcmp(branches, "image") == 0;
    m->efficientnet = strcmp(siamese, "efficientnet") == 0;
    m->siamese = m->efficientnet || strcmp(siamese, "cnn") == 0;
    m->tracks = keys_bool(k, "tracks", false);
    m->one_segment = strcmp(segments, "sequence") == 0;
    if (!m->siamese && strcmp(siamese, "none") != 0)
        KEYS_FAIL(k, "siamese", ERR_CONFIG,
                  "key 'siamese' is '%s'; there are none, cnn and efficientnet", siamese);
    if (!m->one_segment && strcmp(segments, "frame") != 0)
        KEYS_FAIL(k, "segments", ERR_CONFIG,
                  "key 'segments' is '%s'; what is made again is a frame or the sequence",
                  segments);
    if (!m->image_alone && strcmp(branches, "all") != 0)
        KEYS_FAIL(k, "branches", ERR_CONFIG, "key 'branches' is '%s'; there are all and image",
                  branches);
    if (m->image_alone && (m->siamese || m->tracks))
        KEYS_FAIL(
            k, "branches", ERR_CONFIG,
            "key 'branches' is 'image', which leaves out siamese and tracks: set them to none "
            "and false");
}

static enum status parse(struct model *m, const json_t *config, const struct key_origin *origin)
{
    struct three_branch *own;
    struct keys k;
    TRY(pool_try(&m->pool, &own, sizeof(*own)));
    m->config = own;
    keys_init(&k, config, origin);
    own->n_frames = keys_int(&k, "frames", 16, 4, 1 << 12);
    own->height = keys_int(&k, "image_height", 720, 16, 1 << 14);
    own->width = keys_int(&k, "image_width", 1280, 16, 1 << 14);
    own->divisor = keys_int(&k, "width_divisor", 1, 1, 16);
    own->dropout = keys_float(&k, "dropout_scale", 1.0, 0, 5);
    own->grid[0] = keys_int(&k, "grid_height", 8, 1, 1 << 10);
    own->grid[1] = keys_int(&k, "grid_width", 14, 1, 1 << 10);
    parse_parts(&k, own);
    for (int i = 0; i < 5 && own->efficientnet; i++) { /* it halves a frame five times */
        own->grid[0] = ((i ? own->grid[0] : own->height) + 1) / 2;
        own->grid[1] = ((i ? own->grid[1] : own->width) + 1) / 2;
    }
    if (own->divisor & (own->divisor - 1))
        KEYS_FAIL(&k, "width_divisor", ERR_CONFIG,
                  "key 'width_divisor' is %lld; it must be 1, 2, 4, 8 or 16",
                  (long long)own->divisor);
    TRY(keys_finish(&k));
    return model_try(m, write_network);
}

static enum status build_graph(const struct model *m, struct builder *b,
                               const struct model_request *r, struct model_graph *out)
{
    return model_write(m, b, r, out, write_network);
}

/* The config says it all. */
static json_t *export_config(const struct model *m)
{
    (void)m;
    return json_object();
}

const struct model_def model_def_three_branch = {
    .name = "three_branch",
    .model_types = model_types,
    .architectures = architectures,
    .parse = parse,
    .build = build_graph,
    .export_config = export_config,
};
