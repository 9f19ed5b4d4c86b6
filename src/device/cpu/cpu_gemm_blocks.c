#include "device/cpu/cpu_gemm_blocks.h"

#include <omp.h>

#include "device/cpu/cpu_micro.h"

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

/* Run by every thread of a team. */
static void run_block(const struct gemm_tiling *t, const struct gemm_block *s, int n_threads,
                      void *sliver)
{
    int64_t n_slivers = (s->n + t->columns - 1) / t->columns;
    /* Where the slivers are few for so many threads, rows are divided too. */
    int64_t n_parts = n_threads > 1 ? (4 * n_threads + n_slivers - 1) / n_slivers : 1;
    int64_t part = micro_round_up((s->m + n_parts - 1) / n_parts, t->rows);
    part = MAX(part, MIN(s->m, t->least_rows));
    n_parts = (s->m + part - 1) / part;
#pragma omp for schedule(dynamic, 2)
    for (int64_t i = 0; i < s->m; i += t->rows)
        t->pack_a(s, i);
#pragma omp for schedule(dynamic, 1)
    for (int64_t item = 0; item < n_slivers * n_parts; item++) {
        int64_t i = item % n_parts * part;
        t->multiply(s, i, MIN(i + part, s->m), item / n_parts * t->columns, sliver);
    }
}

static void run_all(const struct gemm_tiling *t, struct gemm_block *s, int n_threads, void *sliver)
{
    const struct cpu_gemm *g = s->g;
    int64_t depth = depth_of(t, g->k);
    bool in_parts = g->c_dtype != DTYPE_F32 && g->k > depth;
    int64_t rows = in_parts ? t->part_rows : t->block_rows;
    int64_t columns = in_parts ? t->part_columns : g->n;
    for (s->i = 0; s->i < g->m; s->i += rows) {
        s->m = MIN(g->m - s->i, rows);
        for (s->j = 0; s->j < g->n; s->j += columns) {
            s->n = MIN(g->n - s->j, columns);
            for (s->k = 0; s->k == 0 || s->k < g->k; s->k += depth) {
                s->depth = MIN(g->k - s->k, depth);
                s->first = s->k == 0;
                s->last = s->k + depth >= g->k;
                run_block(t, s, n_threads, sliver);
            }
        }
    }
}

void gemm_blocks_run(const struct gemm_tiling *t, int n_threads, void *workspace,
                     const struct cpu_gemm *g)
{
    char *slivers = (char *)workspace + a_bytes(t, g->m, g->k);
    void *sums = slivers + n_threads * b_bytes(t, g->k);
#pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    {
        struct gemm_block s = {.g = g, .a = workspace, .sums = sums};
        if (t->enter)
            t->enter();
        run_all(t, &s, n_threads, slivers + omp_get_thread_num() * b_bytes(t, g->k));
        if (t->leave)
            t->leave();
    }
}
