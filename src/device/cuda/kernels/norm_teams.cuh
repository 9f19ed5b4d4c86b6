/* norm_teams.cuh: gradients of layer_norm and rms_norm, a team of warps to a row.
 *
 * One block to a multiprocessor, its warps in teams of 1, 2, 4, 8 or 16: as many as give each lane
 * at most TEAM_VECTORS vectors of 16 bytes of a row. A team takes rows a fixed distance apart; the
 * blocks take turns, so that all have the same number of rows, give or take one.
 *
 * Rows on their way wait in a ring in shared memory, where the hardware copies them without
 * registers: `n_stages` rows of a team, one of which is worked on. A lane reads only what it has
 * itself sent for, so nothing but its own wait stands between the two. The only thing that teams of
 * more than one warp wait for is the two sums of a row.
 *
 *     shared memory:  | weight, f32 | ring: team 0: stage 0: dy, x, add | stage 1 ... | team 1 ...
 *     in the end:     | weight      | slots: sums of dw and db, added up by the teams in turns
 *
 * A lane keeps its share of dw and db in registers until then; a block leaves one line in the
 * workspace, which columns_finish adds to the other blocks' lines.
 */
#ifndef SNUG_DEVICE_CUDA_KERNELS_NORM_TEAMS_CUH
#define SNUG_DEVICE_CUDA_KERNELS_NORM_TEAMS_CUH

#include "device/cuda/declared/norms.h"
#include "device/cuda/kernels/norm_warps.cuh"
#include "device/cuda/support/copies.cuh"

/* Elements of a row with its last vectors made whole. */
static __host__ __device__ inline int team_length(const struct team_cut &c, int per_vector)
{
    return c.vectors_each * c.team_warps * WARP * per_vector;
}

/* ---- copies on their way --------------------------------------------------------------------- */

/* Until all of this thread's groups but the last `n` have arrived; n is 1 to 3. */
static __device__ __forceinline__ void copies_wait(int n)
{
    if (n == 1)
        copies_wait<1>();
    else if (n == 2)
        copies_wait<2>();
    else
        copies_wait<3>();
}

/* ---- teams ----------------------------------------------------------------------------------- */

/* A thread's place. */
struct team_place {
    int lane, member, team; /* of the warp, the team, the block */
};

/* The vector of a row that is a lane's k-th, in units of WARP vectors and the lane. */
static __device__ __forceinline__ int team_block(const struct team_cut &c,
                                                 const struct team_place &p, int k)
{
    return k * c.team_warps + p.member;
}

/* Where a lane's k-th vector of an array is in a stage. */
template <int K>
static __device__ __forceinline__ int stage_at(const struct team_cut &c, const struct team_place &p,
                                               int array, int k)
{
    return (array * K * c.team_warps + team_block(c, p, k)) * WARP + p.lane;
}

/* Sends for a row of the team: this lane's vectors. */
template <int K, typename T>
static __device__ __forceinline__ void team_fetch(uint4 *stage, const struct norm_grad_args<T> &a,
                                                  const struct team_cut &c,
                                                  const struct team_place &p, int64_t row)
{
    constexpr int N = per_16_bytes<T>::n;
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int j = (team_block(c, p, k) * WARP + p.lane) * N;
        if (j >= (int)a.n)
            break;
        copy_16(stage + stage_at<K>(c, p, 0, k), a.dy + row * a.n + j);
        copy_16(stage + stage_at<K>(c, p, 1, k), a.x + row * a.n + j);
        if (a.add)
            copy_16(stage + stage_at<K>(c, p, 2, k), a.add + row * a.n + j);
    }
}

template <typename T, int N>
static __device__ __forceinline__ void stage_get(float (&v)[N], const uint4 *from)
{
    const uint4 u = *from;
    const struct raw r = {{u.x, u.y, u.z, u.w}};
    raw_get<T>(v, r);
}

/* Both sums over the team. `scratch` has a pair for each warp of the block; two of them take turns,
 * so that one barrier is enough: a warp writes a turn's pair again only after the barrier of the
 * turn between, which its team reaches after reading. */
static __device__ __forceinline__ float2 team_sum(float2 v, float2 *scratch,
                                                  const struct team_cut &c,
                                                  const struct team_place &p)
{
    v.x = warp_sum(v.x);
    v.y = warp_sum(v.y);
    if (c.team_warps == 1)
        return v;
    float2 *pairs = scratch + p.team * c.team_warps, sum = {0.0f, 0.0f};
    if (p.lane == 0)
        pairs[p.member] = v;
    /* Barrier 0 is the block's; teams of more than one warp are at most eight. */
    asm volatile("bar.sync %0, %1;" ::"r"(1 + p.team), "r"(c.team_warps * WARP) : "memory");
    for (int i = 0; i < c.team_warps; i++) {
        sum.x += pairs[i].x;
        sum.y += pairs[i].y;
    }
    return sum;
}

struct row_stats {
    float mean, rstd;
};

template <bool CENTRED, typename T>
static __device__ __forceinline__ struct row_stats stats_of(const struct norm_grad_args<T> &a,
                                                            int64_t row)
{
    return {CENTRED ? a.mean[row] : 0.0f, a.rstd[row]};
}

/* First pass over a row: its two sums, and what it adds to dw and db. */
template <int K, bool CENTRED, typename T>
static __device__ __forceinline__ float2 row_sums(const uint4 *stage, const float *w,
                                                  const struct row_stats &s,
                                                  float (&dw)[K][per_16_bytes<T>::n],
                                                  float (&db)[K][per_16_bytes<T>::n],
                                                  const struct team_cut &c,
                                                  const struct team_place &p, int n)
{
    constexpr int N = per_16_bytes<T>::n;
    float2 sums = {0.0f, 0.0f};
#pragma unroll
    for (int k = 0; k < K; k++) {
        if ((team_block(c, p, k) * WARP + p.lane) * N >= n)
            break;
        float scale[N], dy[N], x[N];
        warps_get<N>(scale, w, team_block(c, p, k), p.lane);
        stage_get<T>(dy, stage + stage_at<K>(c, p, 0, k));
        stage_get<T>(x, stage + stage_at<K>(c, p, 1, k));
#pragma unroll
        for (int e = 0; e < N; e++) {
            const float h = (x[e] - s.mean) * s.rstd, g = dy[e] * scale[e];
            dw[k][e] += dy[e] * h;
            if constexpr (CENTRED) {
                db[k][e] += dy[e];
                sums.x += g;
            }
            sums.y += g * h;
        }
    }
    return sums;
}

/* Second pass: dx. */
template <int K, bool CENTRED, typename T>
static __device__ __forceinline__ void
row_store(T *dx, const uint4 *stage, const float *w, const struct row_stats &s, float avg_g,
          float avg_gh, const struct team_cut &c, const struct team_place &p, int n)
{
    constexpr int N = per_16_bytes<T>::n;
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int j = (team_block(c, p, k) * WARP + p.lane) * N;
        if (j >= n)
            break;
        float v[N], dy[N], x[N];
        warps_get<N>(v, w, team_block(c, p, k), p.lane);
        stage_get<T>(dy, stage + stage_at<K>(c, p, 0, k));
        stage_get<T>(x, stage + stage_at<K>(c, p, 1, k));
#pragma unroll
        for (int e = 0; e < N; e++) {
            const float h = (x[e] - s.mean) * s.rstd;
            v[e] = s.rstd * (dy[e] * v[e] - avg_g - h * avg_gh);
        }
        if (c.n_arrays == 3) {
            stage_get<T>(x, stage + stage_at<K>(c, p, 2, k));
#pragma unroll
            for (int e = 0; e < N; e++)
                v[e] += x[e];
        }
        store_f32(dx + j, v);
    }
}

/* The teams' sums to the slots, `n_slots` teams at a time, and the block's line. */
template <int K, int SUMS, int N>
static __device__ __forceinline__ void
teams_finish(float *slots, float *line, const float (&dw)[K][N], const float (&db)[K][N],
             const struct team_cut &c, const struct team_place &p, int n)
{
    const int length = team_length(c, N);
    for (int round = 0; round < c.n_teams / c.n_slots; round++) {
        if (p.team / c.n_slots == round) {
            float *slot = slots + p.team % c.n_slots * SUMS * length;
#pragma unroll
            for (int k = 0; k < K; k++) {
                const int at = team_block(c, p, k);
                warps_add<N>(slot, dw[k], at, p.lane, round == 0);
                if constexpr (SUMS == 2)
                    warps_add<N>(slot + length, db[k], at, p.lane, round == 0);
            }
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < SUMS * n; i += blockDim.x) {
        const int which = i / n, j = i % n, vector = j / N, e = j % N;
        const int at = which * length + warps_at<N>(vector / WARP, vector % WARP, e) + e % 4;
        float sum = slots[at];
        for (int s = 1; s < c.n_slots; s++)
            sum += slots[s * SUMS * length + at];
        line[i] = sum;
    }
}

/* dx may be dy, x or add: a row is read and written by one team, and rows on their way are not yet
 * written. */
template <int K, bool CENTRED, typename T>
static __global__ void __launch_bounds__(TEAMS_WARPS *WARP, 1)
    norm_grad_teams(const struct norm_grad_args<T> a, const struct team_cut c)
{
    constexpr int N = per_16_bytes<T>::n, SUMS = CENTRED ? 2 : 1;
    extern __shared__ uint4 teams_memory[];
    __shared__ float2 scratch[2][TEAMS_WARPS];
    const int warp = threadIdx.x / WARP, n = (int)a.n;
    const struct team_place p = {(int)threadIdx.x % WARP, warp % c.team_warps, warp / c.team_warps};
    const int length = team_length(c, N), stage_size = c.n_arrays * K * c.team_warps * WARP;
    float *w = reinterpret_cast<float *>(teams_memory);
    uint4 *ring = teams_memory + length / 4, *mine = ring + p.team * c.n_stages * stage_size;
    const int64_t distance = (int64_t)gridDim.x * c.n_teams;
    int64_t row = blockIdx.x + (int64_t)gridDim.x * p.team;
    float dw[K][N] = {}, db[K][N] = {};
    for (int s = 0; s < c.n_stages; s++) {
        if (row + s * distance < a.n_rows)
            team_fetch<K, T>(mine + s * stage_size, a, c, p, row + s * distance);
        copies_commit();
    }
    struct row_stats next = {0.0f, 0.0f};
    if (row < a.n_rows)
        next = stats_of<CENTRED, T>(a, row);
    warps_share<T>(w, a.w, K * c.team_warps * WARP, n, 1.0f);
    __syncthreads();
    for (int turn = 0, i_stage = 0; row < a.n_rows; row += distance, turn ^= 1) {
        const struct row_stats now = next;
        uint4 *stage = mine + i_stage * stage_size;
        if (row + distance < a.n_rows)
            next = stats_of<CENTRED, T>(a, row + distance);
        copies_wait(c.n_stages - 1);
        const float2 part = row_sums<K, CENTRED, T>(stage, w, now, dw, db, c, p, n);
        const float2 sums = team_sum(part, scratch[turn], c, p);
        asm volatile("" ::: "memory"); /* the vectors are read again, not kept in registers */
        row_store<K, CENTRED, T>(a.dx + row * n, stage, w, now, CENTRED ? sums.x / (float)n : 0.0f,
                                 sums.y / (float)n, c, p, n);
        if (row + c.n_stages * distance < a.n_rows)
            team_fetch<K, T>(stage, a, c, p, row + c.n_stages * distance);
        copies_commit();
        i_stage = i_stage + 1 == c.n_stages ? 0 : i_stage + 1;
    }
    __syncthreads(); /* no copy is on its way any more: each was waited for by its row */
    teams_finish<K, SUMS, N>(reinterpret_cast<float *>(ring),
                             a.partial + (int64_t)blockIdx.x * SUMS * n, dw, db, c, p, n);
}

template <int K, bool CENTRED, typename T>
static enum status norm_grad_teams_launch(const struct kernel_ctx *x,
                                          const struct norm_grad_args<T> &a,
                                          const struct team_cut &c)
{
    TRY(cuda_allow_shared(norm_grad_teams<K, CENTRED, T>, c.shared_bytes));
    norm_grad_teams<K, CENTRED, T><<<(unsigned)c.n_blocks, c.n_teams * c.team_warps * WARP,
                                     (size_t)c.shared_bytes, cuda_stream(x)>>>(a, c);
    return OK;
}

/* A cut that fits; all data aligned to 16 bytes. Leaves c.n_blocks lines. */
template <bool CENTRED, typename T>
static enum status norm_grad_teams_run(const struct kernel_ctx *x,
                                       const struct norm_grad_args<T> &a, const struct team_cut &c)
{
    switch (c.vectors_each) {
    case 1:
        return norm_grad_teams_launch<1, CENTRED, T>(x, a, c);
    case 2:
        return norm_grad_teams_launch<2, CENTRED, T>(x, a, c);
    case 3:
        return norm_grad_teams_launch<3, CENTRED, T>(x, a, c);
    default:
        return norm_grad_teams_launch<TEAM_VECTORS, CENTRED, T>(x, a, c);
    }
}

#endif
