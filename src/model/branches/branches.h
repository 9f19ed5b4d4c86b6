/* branches.h: the parts of the three-branch network (three_branch.c): two clips, a few vectors and
 * a class become embeddings, which a small transformer fuses.
 *
 * Widths are those of the network as published; `divisor` makes all of them smaller.
 */
#ifndef SNUG_MODEL_BRANCHES_BRANCHES_H
#define SNUG_MODEL_BRANCHES_BRANCHES_H

#include "model/layers/modules.h"
#include "model/layers/objective.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRANCH_CLASSES = 100, BRANCH_TRACKS = 10 };

struct three_branch {
    int64_t n_frames, height, width;
    int64_t divisor;
    double dropout;       /* all rates times this */
    int64_t grid[2];      /* places of a frame that the siamese branch makes tokens of */
    bool siamese, tracks; /* without them the fusion sees zeros in their place */
    bool efficientnet;    /* the siamese branch sees frames by it, else by four convolutions */
    bool image_alone;     /* the image's branch and nothing else */
    bool one_segment;     /* of the detector: all frames are one block, else each is */
};

/* A published width in this network. */
int64_t branch_width(const struct three_branch *m, int64_t width);

/* Adds a loss of an output and the target `target`. */
void branch_loss(struct writer *w, struct loss_term term, value_id output, const char *target);

/* ---- branches: each writes its own losses, and returns what the fusion reads [B, n] ---------- */

/* video [B, T, H, W, 3] -> [B, 512]; a mask of every frame. */
value_id branch_unet3d(struct writer *w, const struct three_branch *m, value_id video);
/* The same clip -> [B, 256], from two of its frames; a mask of what changed, how much of it. */
value_id branch_siamese(struct writer *w, const struct three_branch *m, value_id video);
/* What it makes tokens of where m->efficientnet: [B, H, W, 3] -> [B, H / 32, W / 32, 320], rounded
 * up. */
value_id branch_efficientnet(struct writer *w, const struct three_branch *m, value_id x);
/* video [B, T, H, W, 1] -> [B, 256]; heat, places, sizes and intensities in every frame. */
value_id branch_detector(struct writer *w, const struct three_branch *m, value_id video);
/* tracks [B, 10, 6] and which of them there are [B, 10] -> [B, 256]; a time, one of two kinds. */
value_id branch_tracks(struct writer *w, const struct three_branch *m, value_id tracks,
                       value_id mask);
/* vectors [B, 3, 9] -> [B, 192]: as numbers and features of them; as a sequence of three. */
value_id branch_vectors(struct writer *w, const struct three_branch *m, value_id vectors);
value_id branch_tempo(struct writer *w, const struct three_branch *m, value_id vectors);

struct fusion_inputs {
    value_id image, thermal, radar; /* embeddings [B, n] of the three branches */
    value_id classes;               /* i32 [B]; BRANCH_CLASSES: unknown */
};
/* Two outcomes, the second only where the first is; with their losses. */
void branch_fusion(struct writer *w, const struct three_branch *m, const struct fusion_inputs *in);

#ifdef __cplusplus
}
#endif
#endif
