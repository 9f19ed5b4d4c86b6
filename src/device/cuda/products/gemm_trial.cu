#include "device/cuda/products/gemm_trial.cuh"

#include "base/log.h"
#include "device/cuda/support/noise.cuh"

enum {
    COPIES_MOST = 8,
    ROUNDS = 6, /* of the short runs */
    RUNS_MOST = 32,
    TURNS = 2, /* of the final: without and with passes over memory */
    FINALISTS_MOST = 8,
    PASS_THREADS = 256,
};
#define ROUND_S  1e-3 /* a candidate's runs in a round take about so long */
#define HOPELESS 1.5
#define LONG_S   50e-6 /* a product of this length goes to the final */
#define CLOSE    1.1   /* of the fastest's time, to be in it */
#define SETTLE_S 30e-3 /* a turn: until the clock has settled, */
#define TURN_S   30e-3 /* and what counts */
#define AT_LEAST 0.995 /* of the first choice's time: a smaller gain may be noise */

/* ---- scratch -------------------------------------------------------------------------------- */

/* The product's buffers, several times over, so that a run finds its operands in memory and not in
 * the cache. */
struct scratch {
    char *base;
    int64_t copy_bytes;
    int n_copies;
    struct cuda_gemm products[COPIES_MOST];
    char *workspace;
};

static int64_t aligned(int64_t n_bytes)
{
    return ceil_div(n_bytes, GEMM_ALIGN) * GEMM_ALIGN;
}

static int64_t extent(int64_t n_rows, int64_t n_columns, int64_t row, int64_t offset, enum dtype d)
{
    return aligned((offset + (n_rows - 1) * row + n_columns) * dtype_size(d));
}

/* Only the alignment of an offset matters to a timing. */
static int64_t small_offset(int64_t offset)
{
    return offset % GEMM_ALIGN;
}

/* Puts the product's buffers one after the other from `at` on; returns their bytes. */
static int64_t place(const struct cuda_gemm *g, char *at, struct cuda_gemm *out)
{
    const char *start = at;
    *out = *g;
    out->a.offset = small_offset(g->a.offset);
    out->b.offset = small_offset(g->b.offset);
    out->c_offset = small_offset(g->c_offset);
    out->a.data = at;
    at += g->a.transposed ? extent(g->k, g->m, g->a.row, out->a.offset, g->dtype)
                          : extent(g->m, g->k, g->a.row, out->a.offset, g->dtype);
    out->b.data = at;
    at += g->b.transposed ? extent(g->n, g->k, g->b.row, out->b.offset, g->dtype)
                          : extent(g->k, g->n, g->b.row, out->b.offset, g->dtype);
    int64_t c_bytes = extent(g->m, g->n, g->c_row, out->c_offset, g->c_dtype);
    out->c = at;
    at += c_bytes;
    out->residual = g->residual ? at : NULL;
    at += g->residual ? c_bytes : 0;
    out->bias = g->bias ? at : NULL;
    at += g->bias ? aligned(g->n * dtype_size(g->c_dtype)) : 0;
    return at - start;
}

/* Noise of the factors' type everywhere: zeros would run faster. Two 16-bit numbers seen as one of
 * 32 bits are still an ordinary number. */
static enum status scratch_fill(struct scratch *s, enum dtype d, cudaStream_t stream)
{
    int64_t n = s->copy_bytes * s->n_copies / dtype_size(d);
    CUDA_DISPATCH_FLOAT(d, T, (fill_noise<T><<<1024, 256, 0, stream>>>((T *)s->base, n)));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* *enough says whether there was memory for one copy at least. */
static enum status scratch_open(struct scratch *s, const struct cuda_libraries *l,
                                const struct cuda_gemm *g, int64_t workspace_bytes,
                                cudaStream_t stream, bool *enough)
{
    size_t free_bytes = 0, total = 0;
    struct cuda_gemm unused;
    *s = {};
    s->copy_bytes = place(g, NULL, &unused);
    CUDA_TRY(cudaMemGetInfo(&free_bytes, &total));
    int64_t room = (int64_t)free_bytes - workspace_bytes - ((int64_t)64 << 20);
    int64_t n = ceil_div(3 * l->gpu.l2_bytes, s->copy_bytes);
    n = n < room / s->copy_bytes ? n : room / s->copy_bytes;
    s->n_copies = n < COPIES_MOST ? (int)n : (int)COPIES_MOST;
    *enough = s->n_copies >= 1;
    if (!*enough)
        return OK;
    void *base = NULL;
    cudaError_t e = cudaMalloc(&base, (size_t)(s->copy_bytes * s->n_copies + workspace_bytes));
    *enough = e == cudaSuccess;
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return OK;
    }
    CUDA_TRY(e);
    s->base = (char *)base;
    s->workspace = s->base + s->copy_bytes * s->n_copies;
    for (int i = 0; i < s->n_copies; i++)
        (void)place(g, s->base + i * s->copy_bytes, &s->products[i]);
    return scratch_fill(s, g->dtype, stream);
}

/* ---- timing --------------------------------------------------------------------------------- */

struct timing {
    struct kernel_ctx x;
    cudaEvent_t start, stop;
    struct scratch scratch;
};

/* Reads and writes what is there. */
static __global__ void __launch_bounds__(PASS_THREADS) pass_over(uint4 *p, int64_t n)
{
    for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
        uint4 v = p[i];
        asm volatile("" : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)); /* or it would be nothing */
        p[i] = v;
    }
}

static bool pass(const struct timing *t, int copy)
{
    uint4 *p = (uint4 *)(t->scratch.base + copy * t->scratch.copy_bytes);
    int64_t n = t->scratch.copy_bytes / (int64_t)sizeof(*p);
    pass_over<<<grid_for(n, PASS_THREADS), PASS_THREADS, 0, cuda_stream(&t->x)>>>(p, n);
    return cudaGetLastError() == cudaSuccess;
}

/* `n` times one after the other, copy by copy: the product (c; NULL: not), a pass over its memory
 * where it is wanted. False: the library refuses after all. */
static bool run_times(struct timing *t, const struct gemm_choice *c, bool with_pass, int n,
                      double *seconds)
{
    cudaStream_t stream = cuda_stream(&t->x);
    float ms = 0.0f;
    bool good = cudaEventRecord(t->start, stream) == cudaSuccess;
    for (int i = 0; i < n && good; i++) {
        int copy = i % t->scratch.n_copies;
        good = !c || gemm_run(&t->x, t->scratch.workspace, &t->scratch.products[copy], c) == OK;
        good = good && (!with_pass || pass(t, copy));
    }
    good = good && cudaEventRecord(t->stop, stream) == cudaSuccess;
    good = cudaStreamSynchronize(stream) == cudaSuccess && good;
    good = good && cudaEventElapsedTime(&ms, t->start, t->stop) == cudaSuccess;
    (void)cudaGetLastError();
    *seconds = (double)ms * 1e-3 / (double)n;
    return good;
}

static int runs_for(double duration, double seconds)
{
    double n = duration / (seconds > 1e-7 ? seconds : 1e-7);
    return n < 1.0 ? 1 : (int)n;
}

/* ---- short runs ------------------------------------------------------------------------------ */

/* A first look: seconds[i] of each candidate, 0 where it cannot run or, unless it is the first
 * choice, is far behind. */
static void look(struct timing *t, const struct gemm_choice *candidates, int n, double *seconds)
{
    double best = 0.0;
    for (int i = 0; i < n; i++) {
        double unused;
        if (!run_times(t, &candidates[i], false, 1, &unused) ||
            !run_times(t, &candidates[i], false, 2, &seconds[i]))
            seconds[i] = 0.0;
        else if (best == 0.0 || seconds[i] < best)
            best = seconds[i];
    }
    for (int i = 0; i < n; i++)
        seconds[i] = i == 0 || seconds[i] <= HOPELESS * best ? seconds[i] : 0.0;
}

/* The best of several rounds: everything that disturbs a round makes it longer. Candidates take
 * turns, so that the clock, which what ran before has moved, is the same for all. Returns the
 * fastest's. */
static double sort_out(struct timing *t, const struct gemm_choice *candidates, int n,
                       double *seconds)
{
    double rough[GEMM_TRIAL_MOST], best = 0.0;
    look(t, candidates, n, rough);
    for (int i = 0; i < n; i++)
        seconds[i] = rough[i] > 0.0 ? 1e30 : 0.0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < n; i++) {
            double s = 0.0;
            int n_runs = runs_for(ROUND_S, rough[i]);
            if (seconds[i] == 0.0)
                continue;
            n_runs = n_runs < RUNS_MOST ? n_runs : (int)RUNS_MOST;
            if (!run_times(t, &candidates[i], false, n_runs, &s))
                seconds[i] = 0.0;
            else if (s < seconds[i])
                seconds[i] = s;
        }
    }
    for (int i = 0; i < n; i++) {
        if (seconds[i] > 0.0 && (best == 0.0 || seconds[i] < best))
            best = seconds[i];
    }
    return best;
}

/* ---- the final ------------------------------------------------------------------------------- */

/* The first choice, for comparison, and who is close to the best: at most FINALISTS_MOST, the
 * fastest of them, in their order. */
static int choose_finalists(const double *seconds, int n, double best, int *finalists)
{
    int n_finalists = 0;
    for (int i = 0; i < n; i++) {
        int n_faster = 0;
        for (int j = 1; j < n; j++)
            n_faster += seconds[j] > 0.0 &&
                        (seconds[j] < seconds[i] || (seconds[j] == seconds[i] && j < i));
        bool close = seconds[i] <= CLOSE * best && n_faster < FINALISTS_MOST - 1;
        if (seconds[i] > 0.0 && (close || i == 0))
            finalists[n_finalists++] = i;
    }
    return n_finalists;
}

/* One after the other, or with passes between them, of pass_s each. */
static bool time_turn(struct timing *t, const struct gemm_choice *c, bool with_pass, double rough,
                      double pass_s, double *seconds)
{
    double both = rough + (with_pass ? pass_s : 0.0), unused;
    bool good = run_times(t, c, with_pass, runs_for(SETTLE_S, both), &unused) &&
                run_times(t, c, with_pass, runs_for(TURN_S, both), seconds);
    *seconds -= with_pass ? pass_s : 0.0;
    return good && *seconds > 0.0;
}

/* Replaces the finalists' times by those under load. Who fails now is out. */
static void hold_final(struct timing *t, const struct gemm_choice *candidates, const int *finalists,
                       int n_finalists, double *seconds)
{
    double turns[TURNS][FINALISTS_MOST] = {}, pass_s = 0.0;
    if (!run_times(t, NULL, true, 2 * COPIES_MOST, &pass_s))
        return;
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < n_finalists; i++) {
            int k = finalists[i];
            if (seconds[k] > 0.0 &&
                !time_turn(t, &candidates[k], turn % 2 == 1, seconds[k], pass_s, &turns[turn][i]))
                seconds[k] = 0.0;
        }
    }
    for (int i = 0; i < n_finalists; i++) {
        int k = finalists[i];
        double shortly = seconds[k], sum = 0.0;
        for (int turn = 0; turn < TURNS; turn++)
            sum += turns[turn][i];
        seconds[k] = shortly > 0.0 ? sum / (double)TURNS : 0.0;
        log_debug("proposal %d: %.1f us shortly, %.1f us under load", k, shortly * 1e6,
                  seconds[k] * 1e6);
    }
}

/* Of those that ran; the first when it is about as fast as the fastest. */
static int fastest(const double *seconds, const int *among, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++) {
        int k = among[i];
        if (seconds[k] > 0.0 && (best < 0 || seconds[k] < seconds[best]))
            best = k;
    }
    bool tie = n > 0 && seconds[among[0]] > 0.0 && seconds[best] >= AT_LEAST * seconds[among[0]];
    return tie ? among[0] : best;
}

static void time_all(struct timing *t, const struct gemm_choice *candidates, int n,
                     struct cuda_gemm_found *found, int *winner)
{
    double seconds[GEMM_TRIAL_MOST];
    int finalists[FINALISTS_MOST];
    double best = sort_out(t, candidates, n, seconds);
    for (int i = 0; i < n; i++)
        found->n_tried += seconds[i] > 0.0;
    int n_finalists = choose_finalists(seconds, n, best, finalists);
    if (best >= LONG_S && n_finalists > 1)
        hold_final(t, candidates, finalists, n_finalists, seconds);
    *winner = fastest(seconds, finalists, n_finalists);
    if (*winner >= 0) {
        found->best_s = seconds[*winner];
        found->first_s = seconds[0];
    }
}

enum status gemm_trial(const struct kernel_env *env, cudaStream_t stream, const struct cuda_gemm *g,
                       const struct gemm_choice *candidates, int n, struct cuda_gemm_found *found,
                       int *best)
{
    struct timing t = {};
    bool enough = false;
    int64_t workspace = 0;
    enum status status;
    *found = {};
    *best = -1;
    t.x.env = *env;
    t.x.queue = stream;
    for (int i = 0; i < n; i++)
        workspace = candidates[i].workspace > workspace ? candidates[i].workspace : workspace;
    TRY_GOTO(scratch_open(&t.scratch, cuda_libraries_of(env), g, workspace, stream, &enough), out);
    if (!enough) {
        log_info("no room to search for the fastest product of %lld x %lld x %lld", (long long)g->m,
                 (long long)g->n, (long long)g->k);
        goto out;
    }
    if (cudaEventCreate(&t.start) == cudaSuccess && cudaEventCreate(&t.stop) == cudaSuccess)
        time_all(&t, candidates, n, found, best);
out:
    if (t.start)
        (void)cudaEventDestroy(t.start);
    if (t.stop)
        (void)cudaEventDestroy(t.stop);
    if (t.scratch.base)
        (void)cudaFree(t.scratch.base);
    (void)cudaGetLastError();
    return status;
}
