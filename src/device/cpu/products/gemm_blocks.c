#include "device/cpu/products/gemm_blocks.h"

#include "device/cpu/products/micro.h"

/* ---- workspace ------------------------------------------------------------------------------ */

static int64_t a_bytes(const struct gemm_tiling *t, int64_t m, int64_t k)
{
    return micro_round_up(MIN(m, t->block_rows), t->rows) *
           MIN(micro_round_up(k, t->step), t->block_depth) * t->element_bytes;
}

static int64_t b_bytes(const struct gemm_tiling *t, int64_t k)
{
    return MIN(micro_round_up(k, t->step), t->block_depth) * t->columns * t->element_bytes;
}

static int64_t sums_bytes(const struct gemm_tiling *t, int64_t m, int64_t n, int64_t k)
{
    if (k <= t->block_depth)
        return 0;
    return micro_round_up(MIN(m, t->part_rows) * MIN(n, t->part_columns) * 4, 64);
}

int64_t gemm_blocks_workspace(const struct gemm_tiling *t, int n_threads, int64_t m, int64_t n,
                              int64_t k)
{
    return a_bytes(t, m, k) + n_threads * b_bytes(t, k) + sums_bytes(t, m, n, k);
}

/* ---- the loops ------------------------------------------------------------------------------ */

/* k is cut into equal blocks of whole steps: the cut depends on k alone. */
static int64_t depth_of(const struct gemm_tiling *t, int64_t k)
{
    int64_t n_blocks = MAX((k + t->block_depth - 1) / t->block_depth, 1);
    return MAX(micro_round_up((k + n_blocks - 1) / n_blocks, t->step), t->step);
}

/* A block as the threads see it: its rows are cut into parts. */
struct shared_block {
    const struct gemm_tiling *t;
    const struct gemm_block *s;
    int64_t part, n_parts; /* rows of a part, and how many there are */
    char *slivers;         /* one per thread */
};

static void pack_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct shared_block *b = job;
    (void)thread;
    for (int64_t i = first; i < last; i++)
        b->t->pack_a(b->s, i * b->t->rows);
}

/* Item i: sliver i / n_parts of B with part i % n_parts of A. */
static void multiply_items(const void *job, int64_t first, int64_t last, int thread)
{
    const struct shared_block *b = job;
    const struct gemm_tiling *t = b->t;
    void *sliver = b->slivers + thread * b_bytes(t, b->s->g->k);
    if (t->enter)
        t->enter();
    for (int64_t item = first; item < last; item++) {
        int64_t i = item % b->n_parts * b->part;
        t->multiply(b->s, i, MIN(i + b->part, b->s->m), item / b->n_parts * t->columns, sliver);
    }
    if (t->leave)
        t->leave();
}

static void run_block(const struct kernel_env *env, struct shared_block *b)
{
    const struct gemm_tiling *t = b->t;
    int64_t m = b->s->m, n_slivers = (b->s->n + t->columns - 1) / t->columns;
    /* Where the slivers are few for so many threads, rows are divided too. */
    int64_t n_parts = env->n_threads > 1 ? (4 * env->n_threads + n_slivers - 1) / n_slivers : 1;
    int64_t part = micro_round_up((m + n_parts - 1) / n_parts, t->rows);
    b->part = MAX(part, MIN(m, t->least_rows));
    b->n_parts = (m + b->part - 1) / b->part;
    team_run(env->team, (m + t->rows - 1) / t->rows, 2, pack_rows, b);
    team_run(env->team, n_slivers * b->n_parts, 1, multiply_items, b);
}

void gemm_blocks_run(const struct gemm_tiling *t, const struct kernel_env *env, void *workspace,
                     const struct cpu_gemm *g)
{
    char *slivers = (char *)workspace + a_bytes(t, g->m, g->k);
    void *sums = slivers + env->n_threads * b_bytes(t, g->k);
    struct gemm_block s = {.g = g, .a = workspace, .sums = sums};
    struct shared_block shared = {.t = t, .s = &s, .slivers = slivers};
    int64_t depth = depth_of(t, g->k);
    bool in_parts = g->c_dtype != DTYPE_F32 && g->k > depth;
    int64_t rows = in_parts ? t->part_rows : t->block_rows;
    int64_t columns = in_parts ? t->part_columns : g->n;
    for (s.i = 0; s.i < g->m; s.i += rows) {
        s.m = MIN(g->m - s.i, rows);
        for (s.j = 0; s.j < g->n; s.j += columns) {
            s.n = MIN(g->n - s.j, columns);
            for (s.k = 0; s.k == 0 || s.k < g->k; s.k += depth) {
                s.depth = MIN(g->k - s.k, depth);
                s.first = s.k == 0;
                s.last = s.k + depth >= g->k;
                run_block(env, &shared);
            }
        }
    }
}
