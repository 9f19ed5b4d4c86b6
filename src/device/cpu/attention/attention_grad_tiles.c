/* attention_grad_tiles.c: the gradient of attention by tiles, from the saved log-sum-exp, of one
 * sequence or between two (struct attention_grad).
 *
 * For a tile of queries and a tile of keys, with p = exp(scale q k - lse) recomputed:
 *
 *     dv += p^T dout     dp = dout v^T     ds = p (dp - delta) scale
 *     dk += ds^T q       dq += ds k        delta = rowsum(dout out), once per query
 *
 * With dropout, what was dropped of p counts neither in dv nor in dp; ds takes p whole. Under a cap
 * the scores s are cap tanh(scale q k / cap), and ds has its slope 1 - (s / cap)^2 as a factor.
 *
 * A unit is one key/value head of one batch entry with the query heads that read it. Where there
 * are enough units, a thread takes whole units and each tile of scores is made once. Where there
 * are not, the work is split finer into two passes: tiles of keys (dk, dv), then tiles of queries
 * (dq); scores are made twice, but any number of threads has work. Either way each output is summed
 * by one thread in a fixed order.
 */
#include <math.h>

#include "device/cpu/attention/attention_dropout.h"
#include "device/cpu/attention/attention_tiles.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/math.h"
#include "ops/layer_support.h"

struct problem {
    struct attention_grad g;
    int64_t group, width; /* query heads per unit; tile width */
    int64_t n_queries, n_keys;
    int64_t n_query_tiles, n_key_tiles;
    bool by_unit;
    const struct tile_math *math;
    float *delta; /* [batch, heads, n_queries] */
};

struct scratch {
    float *k, *v, *q, *dout;    /* [CPU_TILE, width] */
    float *k_across, *v_across; /* [head_dim, CPU_TILE] */
    float *p, *ds;              /* [CPU_TILE, CPU_TILE] */
    float *dk, *dv;             /* [CPU_TILE, width] */
    float *dq; /* [group, queries in whole tiles, width] by unit, else [CPU_TILE, width] */
};

static struct problem problem_of(const struct attention_grad *g, const struct kernel_env *env)
{
    struct problem s = {.g = *g, .n_queries = g->q.n_rows, .n_keys = g->k.n_rows};
    s.group = g->heads / g->kv_heads;
    s.width = tile_width(g->head_dim);
    s.math =
        tile_math_for(g->out.gradient->dtype == DTYPE_BF16 && g->q.t->dtype == DTYPE_BF16, s.width);
    s.n_query_tiles = (s.n_queries + CPU_TILE - 1) / CPU_TILE;
    s.n_key_tiles = (s.n_keys + CPU_TILE - 1) / CPU_TILE;
    int64_t n_units = g->batch * g->kv_heads;
    s.by_unit = n_units >= 4 * env->n_threads || n_units % env->n_threads == 0;
    return s;
}

static struct attention_mask mask_of(const struct problem *s, int64_t batch)
{
    struct attention_mask m = s->g.mask;
    m.positions = s->g.positions ? s->g.positions + batch * s->n_queries : NULL;
    m.keys = s->g.keys ? s->g.keys + batch * s->n_keys : NULL;
    return m;
}

static int64_t dq_floats(const struct problem *s)
{
    return (s->by_unit ? s->group * s->n_query_tiles : 1) * CPU_TILE * s->width;
}

static int64_t scratch_floats(const struct problem *s)
{
    return 6 * CPU_TILE * s->width + 2 * tile_across(s->g.head_dim) + 2 * CPU_TILE * CPU_TILE +
           dq_floats(s);
}

static int64_t delta_floats(const struct problem *s)
{
    return micro_round_up(s->g.batch * s->g.heads * s->n_queries, 16);
}

static struct scratch lay_out(const struct problem *s, const struct kernel_ctx *x, int64_t thread)
{
    float *base = (float *)x->workspace + delta_floats(s) + thread * scratch_floats(s);
    struct scratch w = {.k = base};
    w.v = w.k + CPU_TILE * s->width;
    w.q = w.v + CPU_TILE * s->width;
    w.dout = w.q + CPU_TILE * s->width;
    w.dk = w.dout + CPU_TILE * s->width;
    w.dv = w.dk + CPU_TILE * s->width;
    w.dq = w.dv + CPU_TILE * s->width;
    w.k_across = w.dq + dq_floats(s);
    w.v_across = w.k_across + tile_across(s->g.head_dim);
    w.p = w.v_across + tile_across(s->g.head_dim);
    w.ds = w.p + CPU_TILE * CPU_TILE;
    return w;
}

/* The rows of head `head` of a batch entry, in one of the tensors of a layout. */
static struct head_rows rows_of(const struct problem *s, const struct head_layout *l,
                                const struct tensor *t, int64_t batch, int64_t head)
{
    struct head_rows h = {.t = t, .stride = l->width};
    h.first = batch * l->n_rows * l->width + l->at + head * s->g.head_dim;
    return h;
}

static void store_rows(const struct problem *s, const struct head_rows *to, int64_t i, int64_t n,
                       const float *from)
{
    for (int64_t r = 0; r < n; r++)
        cpu_store_f32(to->t->data, to->t->dtype, to->first + (i + r) * to->stride,
                      from + r * s->width, s->g.head_dim);
}

static void load_keys(const struct problem *s, const struct scratch *w, int64_t batch, int64_t kv,
                      int64_t k, int64_t n_k)
{
    const struct attention_mask mask = mask_of(s, batch);
    struct head_rows keys = rows_of(s, &s->g.k, s->g.k.t, batch, kv);
    struct head_rows values = rows_of(s, &s->g.v, s->g.v.t, batch, kv);
    tile_load(w->k, &keys, k, n_k, CPU_TILE, s->g.head_dim);
    tile_load(w->v, &values, k, n_k, CPU_TILE, s->g.head_dim);
    tile_blank(w->k, &mask, k, n_k, s->g.head_dim);
    tile_blank(w->v, &mask, k, n_k, s->g.head_dim);
    tile_transpose(w->k_across, w->k, s->g.head_dim);
    tile_transpose(w->v_across, w->v, s->g.head_dim);
}

static void load_queries(const struct problem *s, const struct scratch *w, int64_t batch,
                         int64_t head, int64_t i, int64_t n)
{
    struct head_rows queries = rows_of(s, &s->g.q, s->g.q.t, batch, head);
    struct head_rows dout = rows_of(s, &s->g.out, s->g.out.gradient, batch, head);
    tile_load(w->q, &queries, i, n, CPU_TILE, s->g.head_dim);
    tile_load(w->dout, &dout, i, n, CPU_TILE, s->g.head_dim);
}

/* Row of one query: scores p -> weights, dp in ds -> score gradients; 0 outside first .. last - 1.
 * `flat` is 1 / cap, or 0 for a slope of 1. The whole tile in groups of lanes, chosen rather than
 * multiplied by 0: what lies outside may be anything. */
static void soften(float *restrict p, float *restrict ds, int64_t first, int64_t last, float lse,
                   float delta, float scale, float flat)
{
    int begin = (int)first, end = (int)last;
    int computed = (int)micro_round_up(end, CPU_LANES);
    for (int j = 0; j < computed; j += CPU_LANES) {
#pragma omp simd
        for (int lane = 0; lane < CPU_LANES; lane++) {
            bool sees = j + lane >= begin && j + lane < end;
            float x = p[j + lane] - lse;
            float weight = micro_flush(cpu_expf(x < -80.0f ? -80.0f : x)); /* never subnormal */
            float bend = p[j + lane] * flat, slope = 1.0f - bend * bend;
            float gradient = micro_flush(weight * (ds[j + lane] - delta) * scale * slope);
            p[j + lane] = sees ? weight : 0.0f;
            ds[j + lane] = sees ? gradient : 0.0f;
        }
    }
    memset(p + computed, 0, (size_t)(CPU_TILE - computed) * sizeof(float));
    memset(ds + computed, 0, (size_t)(CPU_TILE - computed) * sizeof(float));
}

/* How many of keys k .. k + n_k the queries up to position p see, from the first on. */
static int64_t n_seen(const struct problem *s, int64_t p, int64_t k, int64_t n_k)
{
    return MAX(MIN(mask_last(&s->g.mask, p) + 1 - k, n_k), 0);
}

/* p and ds of queries i .. i + n and keys k .. k + n_k, whose tiles are loaded; by strips of
 * queries, each as far as its last query sees. */
static void scores(const struct problem *s, const struct scratch *w, int64_t i_head, int64_t i,
                   int64_t n, int64_t k, int64_t n_k)
{
    const float *lse = s->g.lse + i_head * s->n_queries;
    const float *delta = s->delta + i_head * s->n_queries;
    const struct attention_mask mask = mask_of(s, i_head / s->g.heads);
    struct tile_draws draws;
    bool drops = s->g.dropout.rng != NULL;
    if (drops)
        tile_draw(&draws, &s->g.dropout, &mask, &(struct tile_place){i_head, i, n, k, n_k});
    for (int64_t strip = 0; strip < n; strip += s->math->strip) {
        int64_t end = MIN(strip + s->math->strip, n), seen = n_seen(s, i + end - 1, k, n_k);
        int64_t at = strip * s->width, to = strip * CPU_TILE;
        s->math->product(end - strip, seen, s->g.head_dim, w->q + at, s->width, w->k_across,
                         CPU_TILE, s->g.scale, 0, w->p + to, CPU_TILE);
        s->math->product(end - strip, seen, s->g.head_dim, w->dout + at, s->width, w->v_across,
                         CPU_TILE, 1.0f, 0, w->ds + to, CPU_TILE);
        for (int64_t r = strip; r < end; r++) {
            int64_t first = MAX(mask_first(&mask, i + r) - k, 0);
            int64_t last = MIN(mask_last(&mask, i + r) + 1 - k, n_k);
            if (first >= last)
                first = last = 0;
            if (drops)
                tile_drop(&draws, r, first, last, w->ds + r * CPU_TILE);
            tile_cap(w->p + r * CPU_TILE, seen, s->g.cap);
            soften(w->p + r * CPU_TILE, w->ds + r * CPU_TILE, first, last, lse[i + r], delta[i + r],
                   s->g.scale, s->g.cap > 0.0f ? 1.0f / s->g.cap : 0.0f);
            tile_pad(w->p + r * CPU_TILE, &mask, k, n_k, 0.0f);
            tile_pad(w->ds + r * CPU_TILE, &mask, k, n_k, 0.0f);
            if (drops)
                tile_drop(&draws, r, first, last, w->p + r * CPU_TILE);
        }
    }
}

/* By strips of keys; the queries before a strip do not see it when attention is causal. */
static void add_keys(const struct problem *s, const struct scratch *w, int64_t i, int64_t n,
                     int64_t k, int64_t n_k)
{
    for (int64_t strip = 0; strip < n_k; strip += s->math->strip) {
        int64_t n_rows = MIN(n_k - strip, s->math->strip);
        int64_t r = s->g.mask.causal ? MAX(k + strip - i, 0) : 0;
        int64_t at = r * CPU_TILE + strip, from = r * s->width, to = strip * s->width;
        if (r >= n)
            break;
        s->math->product_transposed(n_rows, s->width, n - r, w->p + at, CPU_TILE, w->dout + from,
                                    s->width, w->dv + to, s->width);
        s->math->product_transposed(n_rows, s->width, n - r, w->ds + at, CPU_TILE, w->q + from,
                                    s->width, w->dk + to, s->width);
    }
}

static void add_queries(const struct problem *s, const struct scratch *w, int64_t i, int64_t n,
                        int64_t k, int64_t n_k, float *dq)
{
    for (int64_t strip = 0; strip < n; strip += s->math->strip) {
        int64_t n_rows = MIN(n - strip, s->math->strip);
        int64_t seen = n_seen(s, i + strip + n_rows - 1, k, n_k);
        s->math->product(n_rows, s->width, seen, w->ds + strip * CPU_TILE, CPU_TILE, w->k, s->width,
                         1.0f, 1, dq + strip * s->width, s->width);
    }
}

/* What the queries of one head give to a tile of keys, which is loaded; with all_dq also dq. */
static void key_tile_head(const struct problem *s, const struct scratch *w, int64_t batch,
                          int64_t head, int64_t k, int64_t n_k, bool all_dq)
{
    const struct attention_mask mask = mask_of(s, batch);
    int64_t g = head % s->group;
    for (int64_t i = 0; i < s->n_queries; i += CPU_TILE) {
        int64_t n = MIN(s->n_queries - i, CPU_TILE);
        if (!mask_meets(&mask, i, n, k, n_k))
            continue;
        load_queries(s, w, batch, head, i, n);
        scores(s, w, batch * s->g.heads + head, i, n, k, n_k);
        add_keys(s, w, i, n, k, n_k);
        if (all_dq)
            add_queries(s, w, i, n, k, n_k,
                        w->dq + (g * s->n_query_tiles * CPU_TILE + i) * s->width);
    }
}

/* dk and dv of one tile of keys, over all query heads of the unit; with all_dq also their dq. */
static void key_tile(const struct problem *s, const struct scratch *w, int64_t batch, int64_t kv,
                     int64_t k, bool all_dq)
{
    const struct attention_mask mask = mask_of(s, batch);
    int64_t n_k = MIN(s->n_keys - k, CPU_TILE);
    memset(w->dk, 0, (size_t)(CPU_TILE * s->width) * sizeof(float));
    memset(w->dv, 0, (size_t)(CPU_TILE * s->width) * sizeof(float));
    if (mask_has_key(&mask, k, n_k)) {
        load_keys(s, w, batch, kv, k, n_k);
        for (int64_t g = 0; g < s->group; g++)
            key_tile_head(s, w, batch, kv * s->group + g, k, n_k, all_dq);
    }
    struct head_rows dk = rows_of(s, &s->g.k, s->g.k.gradient, batch, kv);
    struct head_rows dv = rows_of(s, &s->g.v, s->g.v.gradient, batch, kv);
    store_rows(s, &dk, k, n_k, w->dk);
    store_rows(s, &dv, k, n_k, w->dv);
}

/* dq of one tile of queries of one head. */
static void query_tile(const struct problem *s, const struct scratch *w, int64_t batch,
                       int64_t head, int64_t i)
{
    const struct attention_mask mask = mask_of(s, batch);
    int64_t n = MIN(s->n_queries - i, CPU_TILE);
    load_queries(s, w, batch, head, i, n);
    memset(w->dq, 0, (size_t)(CPU_TILE * s->width) * sizeof(float));
    for (int64_t k = 0; k < s->n_keys; k += CPU_TILE) {
        int64_t n_k = MIN(s->n_keys - k, CPU_TILE);
        if (!mask_meets(&mask, i, n, k, n_k) || !mask_has_key(&mask, k, n_k))
            continue;
        load_keys(s, w, batch, head / s->group, k, n_k);
        scores(s, w, batch * s->g.heads + head, i, n, k, n_k);
        add_queries(s, w, i, n, k, n_k, w->dq);
    }
    struct head_rows dq = rows_of(s, &s->g.q, s->g.q.gradient, batch, head);
    store_rows(s, &dq, i, n, w->dq);
}

static void unit(const struct problem *s, const struct scratch *w, int64_t batch, int64_t kv)
{
    memset(w->dq, 0, (size_t)dq_floats(s) * sizeof(float));
    for (int64_t k = 0; k < s->n_keys; k += CPU_TILE)
        key_tile(s, w, batch, kv, k, true);
    for (int64_t g = 0; g < s->group; g++) {
        struct head_rows dq = rows_of(s, &s->g.q, s->g.q.gradient, batch, kv * s->group + g);
        store_rows(s, &dq, 0, s->n_queries, w->dq + g * s->n_query_tiles * CPU_TILE * s->width);
    }
}

/* delta of every query of some rows: dout . out. */
static void fill_delta(const void *job, int64_t first, int64_t last, int thread)
{
    const struct problem *s = job;
    int64_t n = s->g.head_dim;
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        for (int64_t head = 0; head < s->g.heads; head++) {
            float sum = 0.0f, a_buffer[CPU_BLOCK], b_buffer[CPU_BLOCK];
            for (int64_t e = 0; e < n; e += CPU_BLOCK) {
                int64_t at = (row * s->g.heads + head) * n + e, n_e = block_size(n, e);
                const float *a = block_read(s->g.out.gradient, at, n_e, a_buffer);
                const float *b = block_read(s->g.out.t, at, n_e, b_buffer);
#pragma omp simd reduction(+ : sum)
                for (int64_t i = 0; i < n_e; i++)
                    sum += a[i] * b[i];
            }
            int64_t batch = row / s->n_queries;
            s->delta[(batch * s->g.heads + head) * s->n_queries + row % s->n_queries] = sum;
        }
    }
}

int64_t cpu_attention_grad_bytes(const struct attention_grad *g, const struct kernel_env *env)
{
    struct problem s = problem_of(g, env);
    return (delta_floats(&s) + env->n_threads * scratch_floats(&s)) * (int64_t)sizeof(float);
}

/* Task i of the current pass: a unit; or a tile of keys; or a tile of queries. */
enum pass_kind { BY_UNIT, BY_KEYS, BY_QUERIES };

static void run_task(const struct problem *s, const struct scratch *w, enum pass_kind kind,
                     int64_t i)
{
    int64_t n_tiles = kind == BY_KEYS ? s->n_key_tiles : s->n_query_tiles;
    if (kind == BY_UNIT)
        unit(s, w, i / s->g.kv_heads, i % s->g.kv_heads);
    else if (kind == BY_KEYS)
        key_tile(s, w, i / n_tiles / s->g.kv_heads, i / n_tiles % s->g.kv_heads,
                 i % n_tiles * CPU_TILE, false);
    else
        query_tile(s, w, i / n_tiles / s->g.heads, i / n_tiles % s->g.heads,
                   i % n_tiles * CPU_TILE);
}

struct pass_job {
    const struct problem *s;
    const struct kernel_ctx *x;
    enum pass_kind kind;
};

static void run_tasks(const void *job, int64_t first, int64_t last, int thread)
{
    const struct pass_job *p = job;
    struct scratch w = lay_out(p->s, p->x, thread);
    if (p->s->math->enter)
        p->s->math->enter();
    for (int64_t i = first; i < last; i++)
        run_task(p->s, &w, p->kind, i);
    if (p->s->math->leave)
        p->s->math->leave();
}

static void run_pass(const struct problem *s, const struct kernel_ctx *x, enum pass_kind kind,
                     int64_t n_tasks)
{
    struct pass_job p = {s, x, kind};
    double work = (double)s->g.batch * (double)s->g.heads * (double)s->n_queries *
                  (double)s->n_keys * (double)s->g.head_dim;
    if (n_tasks > 0)
        team_run(x->env.team, n_tasks, cpu_attention_grain(work / (double)n_tasks), run_tasks, &p);
}

void cpu_attention_grad(const struct kernel_ctx *x, const struct attention_grad *g)
{
    struct problem s = problem_of(g, &x->env);
    int64_t n_units = g->batch * g->kv_heads;
    s.delta = x->workspace;
    cpu_loop(x, g->batch * s.n_queries, (g->heads + 2 * g->kv_heads) * g->head_dim, fill_delta, &s);
    if (s.by_unit) {
        run_pass(&s, x, BY_UNIT, n_units);
    } else {
        run_pass(&s, x, BY_KEYS, n_units * s.n_key_tiles);
        run_pass(&s, x, BY_QUERIES, n_units * s.group * s.n_query_tiles);
    }
}
