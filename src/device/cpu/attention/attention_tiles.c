/* attention_tiles.c: the forward pass of attention over a block of queries with an online softmax.
 *
 * For each tile of keys: load it once, transpose the keys; for each tile of the block's queries
 * that sees it: scores, under their cap where there is one, then the running maximum m and sum l of
 * each query are brought up to date (what was summed under an older maximum is scaled by exp(old m
 * - new m)), then out += p v, where some of p is dropped. Keys that are padding are loaded as zeros
 * and have no weight; tiles of nothing else are left out, so that a query that meets a tile sees
 * some key of it.
 */
#include "device/cpu/attention/attention_tiles.h"

#include <math.h>

#include "device/cpu/attention/attention_dropout.h"
#include "device/cpu/support/math.h"

struct scratch {
    float *q, *out;   /* [CPU_QUERIES, width] */
    float *k, *v;     /* [CPU_TILE, width] */
    float *k_across;  /* [head_dim, CPU_TILE] */
    float *scores;    /* [CPU_TILE, CPU_TILE] */
    float *top, *sum; /* [CPU_QUERIES] */
    struct tile_draws *draws;
};

int64_t cpu_attention_scratch(int64_t head_dim)
{
    return 2 * (CPU_QUERIES + CPU_TILE) * tile_width(head_dim) + tile_across(head_dim) +
           CPU_TILE * CPU_TILE + 2 * CPU_QUERIES;
}

static struct scratch lay_out(float *base, int64_t head_dim)
{
    int64_t width = tile_width(head_dim);
    struct scratch s = {.q = base};
    s.out = s.q + CPU_QUERIES * width;
    s.k = s.out + CPU_QUERIES * width;
    s.v = s.k + CPU_TILE * width;
    s.k_across = s.v + CPU_TILE * width;
    s.scores = s.k_across + tile_across(head_dim);
    s.top = s.scores + CPU_TILE * CPU_TILE;
    s.sum = s.top + CPU_QUERIES;
    return s;
}

/* Scores outside first .. last - 1 become -infinity; returns the largest of the n (whole groups of
 * lanes) and `top`. */
static float mask_scores(float *p, int first, int last, int n, float top)
{
    float tops[CPU_LANES];
    for (int lane = 0; lane < CPU_LANES; lane++)
        tops[lane] = top;
    for (int j = 0; j < n; j += CPU_LANES) {
#pragma omp simd
        for (int lane = 0; lane < CPU_LANES; lane++) {
            float x = j + lane >= first && j + lane < last ? p[j + lane] : -INFINITY;
            p[j + lane] = x;
            tops[lane] = x > tops[lane] ? x : tops[lane];
        }
    }
    for (int lane = 0; lane < CPU_LANES; lane++)
        top = tops[lane] > top ? tops[lane] : top;
    return top;
}

/* p = exp(p - top) for n scores; returns their sum. What would be flushed is not let down to where
 * numbers are subnormal on the way: that takes hundreds of cycles. */
static float exponentiate(float *p, int n, float top)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < n; j++) {
        float x = p[j] - top;
        p[j] = micro_flush(cpu_expf(x < -80.0f ? -80.0f : x));
        sum += p[j];
    }
    return sum;
}

/* One query's scores over keys first .. last - 1 of n become weights, the others 0; its running
 * maximum, sum and output follow. */
static void soften(float *p, int64_t first, int64_t last, int64_t n, float *top, float *sum,
                   float *out, int64_t width)
{
    int n_lanes = (int)micro_round_up(n, CPU_LANES);
    if (first >= last) { /* it sees none of these keys */
        memset(p, 0, (size_t)n_lanes * sizeof(float));
        return;
    }
    float highest = mask_scores(p, (int)first, (int)last, n_lanes, *top);
    float added = exponentiate(p, n_lanes, highest);
    if (highest > *top && *top > -INFINITY) { /* else sum and output are still 0 */
        float factor = cpu_expf(*top - highest);
        *sum *= factor;
#pragma omp simd
        for (int64_t e = 0; e < width; e++)
            out[e] *= factor;
    }
    *top = highest;
    *sum += added;
}

/* Queries i .. i + n (one tile, from row r of the block) against keys k .. k + n_k, a strip of
 * queries at a time: a strip goes only as far as its last query sees. */
static void meet(const struct attention_job *job, const struct tile_math *math,
                 const struct scratch *s, int64_t r, int64_t i, int64_t n, int64_t k, int64_t n_k)
{
    int64_t width = tile_width(job->head_dim);
    bool drops = job->dropout.rng != NULL;
    if (drops)
        tile_draw(s->draws, &job->dropout, &job->mask,
                  &(struct tile_place){job->head, i, n, k, n_k});
    for (int64_t strip = 0; strip < n; strip += math->strip) {
        int64_t p = job->position + i + strip, n_rows = MIN(n - strip, math->strip);
        int64_t seen = MIN(mask_last(&job->mask, p + n_rows - 1) + 1 - k, n_k);
        float *q = s->q + (r + strip) * width, *out = s->out + (r + strip) * width;
        if (seen <= 0)
            continue;
        math->product(n_rows, seen, job->head_dim, q, width, s->k_across, CPU_TILE, job->scale, 0,
                      s->scores, CPU_TILE);
        for (int64_t row = 0; row < n_rows; row++) {
            int64_t first = MAX(mask_first(&job->mask, p + row) - k, 0);
            int64_t last = MIN(mask_last(&job->mask, p + row) + 1 - k, n_k);
            tile_cap(s->scores + row * CPU_TILE, seen, job->cap);
            tile_pad(s->scores + row * CPU_TILE, &job->mask, k, seen, -INFINITY);
            soften(s->scores + row * CPU_TILE, first, last, seen, s->top + r + strip + row,
                   s->sum + r + strip + row, out + row * width, width);
            if (drops)
                tile_drop(s->draws, strip + row, first, last, s->scores + row * CPU_TILE);
        }
        math->product(n_rows, width, seen, s->scores, CPU_TILE, s->v, width, 1.0f, 1, out, width);
    }
}

static void finish(const struct attention_job *job, const struct scratch *s, int64_t i, int64_t n)
{
    int64_t width = tile_width(job->head_dim);
    for (int64_t row = 0; row < n; row++) {
        bool saw_none = s->sum[row] == 0.0f; /* all its keys are padding */
        float *out = s->out + row * width, factor = saw_none ? 0.0f : 1.0f / s->sum[row];
#pragma omp simd
        for (int64_t e = 0; e < job->head_dim; e++)
            out[e] *= factor;
        cpu_store_f32(job->out->data, job->out->dtype, job->out_first + (i + row) * job->out_stride,
                      out, job->head_dim);
        if (job->lse)
            job->lse[i + row] = saw_none ? 0.0f : s->top[row] + logf(s->sum[row]);
    }
}

static bool is_bf16(const struct attention_job *job)
{
    return job->q.t->dtype == DTYPE_BF16 && job->k.t->dtype == DTYPE_BF16 &&
           job->v.t->dtype == DTYPE_BF16;
}

void cpu_attention_block(const struct attention_job *job, int64_t i, int64_t n, float *scratch)
{
    struct tile_draws draws;
    struct scratch s = lay_out(scratch, job->head_dim);
    int64_t width = tile_width(job->head_dim);
    const struct tile_math *math = tile_math_for(is_bf16(job), width);
    int64_t n_padded = micro_round_up(n, math->rows);
    int64_t begin = mask_first(&job->mask, job->position + i) / DROPOUT_SQUARE * DROPOUT_SQUARE;
    int64_t end = mask_last(&job->mask, job->position + i + n - 1) + 1;
    s.draws = &draws;
    tile_load(s.q, &job->q, i, n, n_padded, job->head_dim);
    memset(s.out, 0, (size_t)(n_padded * width) * sizeof(float));
    for (int64_t row = 0; row < n; row++) {
        s.top[row] = -INFINITY;
        s.sum[row] = 0.0f;
    }
    if (math->enter)
        math->enter();
    for (int64_t k = begin; k < end; k += CPU_TILE) {
        int64_t n_k = MIN(end - k, CPU_TILE);
        if (!mask_has_key(&job->mask, k, n_k))
            continue;
        tile_load(s.k, &job->k, k, n_k, CPU_TILE, job->head_dim);
        tile_load(s.v, &job->v, k, n_k, n_k, job->head_dim);
        tile_blank(s.k, &job->mask, k, n_k, job->head_dim);
        tile_blank(s.v, &job->mask, k, n_k, job->head_dim);
        tile_transpose(s.k_across, s.k, job->head_dim);
        for (int64_t r = 0; r < n; r += CPU_TILE) {
            int64_t n_q = MIN(n - r, CPU_TILE);
            if (mask_meets(&job->mask, job->position + i + r, n_q, k, n_k))
                meet(job, math, &s, r, i + r, n_q, k, n_k);
        }
    }
    if (math->leave)
        math->leave();
    finish(job, &s, i, n);
}
