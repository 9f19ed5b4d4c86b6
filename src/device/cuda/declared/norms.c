#include "device/cuda/declared/norms.h"

#include <stddef.h>

#include "base/compiler.h"
#include "device/cuda/declared/declared.h"
#include "device/cuda/declared/sums.h"
#include "ops/layer_support.h"

enum { WARP_LANES = 32, VECTOR_BYTES = 16 };

/* ---- layer_norm and rms_norm ----------------------------------------------------------------- */

/* Warps of a team, stages and slots that the shared memory has room for; n_sums of them at the end.
 */
static void cut_shared(struct team_cut *c, int shared_bytes, int per_vector, int n_sums)
{
    int length = c->vectors_each * c->team_warps * WARP_LANES * per_vector;
    int weight_bytes = length * (int)sizeof(float);
    int warp_bytes = c->n_arrays * c->vectors_each * WARP_LANES * VECTOR_BYTES; /* of a stage */
    int room = shared_bytes - TEAMS_STATIC_BYTES - weight_bytes, n_warps = TEAMS_WARPS;
    while (n_warps > c->team_warps && 2 * n_warps * warp_bytes > room)
        n_warps /= 2;
    c->n_stages = MIN(room / (n_warps * warp_bytes), (int)TEAMS_STAGES);
    c->n_teams = n_warps / c->team_warps;
    c->fits = room > 0 && c->n_stages >= 2;
    /* The slots lie over the ring, which holds two stages of at least two arrays: one slot fits. */
    int ring_bytes = c->n_stages * n_warps * warp_bytes;
    c->n_slots = TEAMS_SLOTS;
    while (c->n_slots > 1 &&
           (c->n_slots > c->n_teams || c->n_slots * n_sums * weight_bytes > ring_bytes))
        c->n_slots /= 2;
    c->shared_bytes = weight_bytes + ring_bytes;
}

struct team_cut norm_team_cut(const struct op_call *c, const struct kernel_env *env, bool centred)
{
    int64_t n = shape_last(&c->in[0].shape), n_rows = shape_elems(&c->in[0].shape) / n;
    int per_vector = VECTOR_BYTES / (int)dtype_size(c->in[0].dtype);
    struct team_cut cut = {0};
    if (n % per_vector != 0 || n > TEAMS_LONGEST)
        return cut;
    int64_t n_vectors = n / per_vector;
    cut.team_warps = 1;
    while (ceil_div(n_vectors, cut.team_warps * WARP_LANES) > TEAM_VECTORS)
        cut.team_warps *= 2;
    cut.vectors_each = (int)ceil_div(n_vectors, cut.team_warps * WARP_LANES);
    cut.n_arrays = call_has(c, centred ? 5 : 4) ? 3 : 2;
    cut_shared(&cut, env->gpu->shared_per_block_optin, per_vector, centred ? 2 : 1);
    cut.n_blocks = MIN(n_rows, (int64_t)env->gpu->n_multiprocessors);
    return cut;
}

int64_t norm_bands(const struct op_call *c, const struct kernel_env *env)
{
    int64_t n = shape_last(&c->in[0].shape), n_rows = shape_elems(&c->in[0].shape) / n;
    return columns_bands(env, n_rows, ceil_div(n, COLUMNS_LANES));
}

static int64_t norm_grad_workspace(const struct op_call *c, const struct kernel_env *env,
                                   bool centred)
{
    struct team_cut cut = norm_team_cut(c, env, centred);
    int64_t n_lines = MAX(norm_bands(c, env), cut.fits ? cut.n_blocks : 0);
    return n_lines * (centred ? 2 : 1) * shape_last(&c->in[0].shape) * (int64_t)sizeof(float);
}

int64_t cuda_layer_norm_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return norm_grad_workspace(c, env, true);
}

int64_t cuda_rms_norm_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return norm_grad_workspace(c, env, false);
}

/* ---- head_norm ------------------------------------------------------------------------------- */

int head_lanes(int64_t head_dim, int n)
{
    int lanes = 1;
    while (lanes < WARP_LANES && lanes * n < head_dim)
        lanes *= 2;
    return lanes;
}

struct head_cut head_cut_of(const struct op_call *c, const struct kernel_env *env)
{
    struct qkv_dims d = qkv_dims_of(c, 0);
    int n = VECTOR_BYTES / (int)dtype_size(c->in[0].dtype);
    struct head_cut cut = {.held = d.head_dim % n == 0 && d.head_dim <= WARP_LANES * n};
    cut.lanes = head_lanes(d.head_dim, cut.held ? n : 1);
    const int64_t first[N_PARTS] = {0, d.heads, d.heads + d.kv_heads};
    const int64_t n_heads[N_PARTS] = {d.heads, d.kv_heads, d.kv_heads};
    int64_t next = 0, n_rows = d.batch * d.n_tokens;
    for (int i = 0; i < N_PARTS; i++) {
        int64_t want = ceil_div(n_rows * n_heads[i], HEAD_THREADS / cut.lanes);
        int64_t most = 4 * (int64_t)env->gpu->n_multiprocessors;
        cut.part[i] = (struct head_part){first[i], n_heads[i], next, MIN(want, most)};
        next += cut.part[i].n_blocks;
    }
    cut.n_bands = columns_bands(env, n_rows, ceil_div(d.head_dim, COLUMNS_LANES));
    return cut;
}

/* Lines of sums of both weights: those of either way, as addresses decide between them. */
int64_t cuda_head_norm_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct head_cut cut = head_cut_of(c, env);
    int64_t held = cut.part[PART_QUERY].n_blocks + cut.part[PART_KEY].n_blocks;
    int64_t lines = MAX(cut.held ? held : 0, 2 * cut.n_bands);
    return lines * qkv_dims_of(c, 0).head_dim * (int64_t)sizeof(float);
}
