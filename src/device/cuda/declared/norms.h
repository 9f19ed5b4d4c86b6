/* norms.h: how the gradients of layer_norm, rms_norm and head_norm are cut, by the shape and the
 * GPU alone. */
#ifndef SNUG_DEVICE_CUDA_DECLARED_NORMS_H
#define SNUG_DEVICE_CUDA_DECLARED_NORMS_H

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- layer_norm and rms_norm (kernels/norm_teams.cuh) ---------------------------------------- */

enum {
    TEAM_VECTORS = 4, /* of a lane, at most */
    TEAMS_WARPS = 16,
    TEAMS_STAGES = 4,
    TEAMS_SLOTS = 4,           /* places where the teams add up */
    TEAMS_LONGEST = 8192,      /* elements of a row */
    TEAMS_STATIC_BYTES = 1024, /* shared memory kept for what is not the ring */
};

struct team_cut {
    bool fits;
    int vectors_each;        /* of a lane: K */
    int team_warps, n_teams; /* of a block: powers of two */
    int n_arrays;            /* dy, x and perhaps add */
    int n_stages, n_slots;
    int shared_bytes;
    int64_t n_blocks;
};

/* Of a gradient call; layer_norm's are `centred`. */
struct team_cut norm_team_cut(const struct op_call *c, const struct kernel_env *env, bool centred);
/* Bands of rows for the sums of what no team takes. */
int64_t norm_bands(const struct op_call *c, const struct kernel_env *env);

/* ---- head_norm (kernels/head_norm.cu) -------------------------------------------------------- */

enum { HEAD_THREADS = 256 };
enum { PART_QUERY, PART_KEY, PART_VALUE, N_PARTS };

/* Heads [first, first + n) of every row, and the blocks that work on them. */
struct head_part {
    int64_t first, n;
    int64_t first_block, n_blocks;
};

struct head_cut {
    struct head_part part[N_PARTS];
    bool held;       /* one vector per thread covers a head */
    int lanes;       /* of vectors, when held */
    int64_t n_bands; /* otherwise: bands of rows for dw, of either weight */
};

/* Vectors are of n elements; the lanes of a group cover a head in one go when it is short enough.
 */
int head_lanes(int64_t head_dim, int n);
struct head_cut head_cut_of(const struct op_call *c, const struct kernel_env *env);

#ifdef __cplusplus
}
#endif
#endif
