/* rates.c: rates are the best of a few rounds, and of some more where the system says that
 * other programs had the processors meanwhile. Rounds are short, so that also between others some
 * run undisturbed. */
#include "device/cpu/runtime/rates.h"

#include "base/machine.h"
#include "base/sanitizer.h"
#include "device/cpu/products/gemm.h"
#include "device/cpu/products/gemm_amx.h"
#include "device/cpu/support/block.h"

enum {
    N = 1024, /* rows and columns of the largest product */
    STREAM = 4 << 20,
    ROUNDS = 3,
    MOST_ROUNDS = 40
};
#define MOST_S 0.15 /* for the rounds of one rate */

struct round {
    struct device *d;
    struct cpu_gemm product;
    void *workspace;
    float *dst; /* dst = 1.5 src */
    const float *src;
    bool disturbed; /* of a rate there was no round without others */
};

typedef void round_work(const struct round *r);

/* Seconds of the fastest round. */
static double fastest(struct round *r, round_work *work)
{
    struct team *team = r->d->env.team;
    double best = 1e30, begin = now_s();
    bool quiet = false;
    for (int i = 0; i < ROUNDS || (i < MOST_ROUNDS && !quiet && now_s() - begin < MOST_S); i++) {
        double delay = team_delay_s(team), start = now_s();
        work(r);
        best = MIN(best, now_s() - start);
        quiet = quiet || team_delay_s(team) - delay <= 0.0;
    }
    r->disturbed |= !quiet;
    return best;
}

static void multiply(const struct round *r)
{
    cpu_gemm(&r->d->env, r->workspace, &r->product);
}

/* FLOP/s of a product of n x n matrices. */
static double product_rate(struct round *r, enum dtype dtype, void *const matrices[3], int64_t n)
{
    r->product = (struct cpu_gemm){.m = n,
                                   .n = n,
                                   .k = n,
                                   .a = {matrices[0], dtype, 0, n, 1},
                                   .b = {matrices[1], dtype, 0, 1, n},
                                   .c = matrices[2],
                                   .c_dtype = dtype,
                                   .c_row = n};
    return 2.0 * (double)(n * n * n) / fastest(r, multiply);
}

/* Small products first: only where they are fast is one run that is large enough for the steady
 * rate (builds with sanitizers would take seconds over it). */
static double matmul_rate(struct round *r, enum dtype dtype, void *const matrices[3])
{
    double best = product_rate(r, dtype, matrices, N / 8);
    for (int64_t n = N / 2; n <= N && 2.0 * (double)(n * n * n) / best < 0.05; n *= 2) {
        double rate = product_rate(r, dtype, matrices, n); /* MAX would measure it twice */
        best = MAX(best, rate);
    }
    return best;
}

static UNSANITIZED void stream_floats(float *restrict dst, const float *restrict src, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = src[i] * 1.5f;
}

static void stream_some(const void *job, int64_t first, int64_t last, int thread)
{
    float *dst = ((const struct round *)job)->dst + first;
    const float *src = ((const struct round *)job)->src + first;
    const size_t n_bytes = (size_t)(last - first) * sizeof(*src);
    (void)thread;
    sanitizer_expect(dst, n_bytes);
    sanitizer_expect(src, n_bytes);
    stream_floats(dst, src, last - first);
}

static void stream(const struct round *r)
{
    team_run(r->d->env.team, STREAM, CPU_PIECE, stream_some, r);
}

enum status cpu_measure(struct device *d, bool *undisturbed)
{
    const int64_t matrix = (int64_t)N * N;
    const int64_t n_floats = 2 * STREAM; /* the matrices lie where the streams will */
    const int64_t n_bytes = n_floats * 4 + cpu_gemm_workspace(&d->env, N, N, N);
    struct device_rates *rates = &d->rates;
    void *scratch;
    TRY(d->ops->memory_alloc(d, TIER_HOST, n_bytes, &scratch));
    float *p = scratch;
    for (int64_t i = 0; i < n_floats; i++)
        p[i] = (float)(i % 13) * 0.25f;
    void *const matrices[] = {p, p + matrix, p + 2 * matrix};
    struct round r = {.d = d, .workspace = p + n_floats, .dst = p, .src = p + STREAM};
    rates->matmul_flops = matmul_rate(&r, DTYPE_F32, matrices);
    rates->half_matmul_flops = rates->matmul_flops; /* 16-bit operands are products in f32 */
    if (CPU_GEMM_AMX && cpu_gemm_amx_usable())
        rates->half_matmul_flops = matmul_rate(&r, DTYPE_BF16, matrices);
    rates->memory_bytes = 8.0 * (double)STREAM / fastest(&r, stream);
    double copies = rates->memory_bytes / 2; /* a byte is read and written */
    const struct link_rate link = {.alone = copies, .both = copies / 2};
    rates->links[TIER_DEVICE][TIER_HOST] = rates->links[TIER_HOST][TIER_DEVICE] = link;
    rates->launch_s = 2e-6;
    d->ops->memory_free(d, TIER_HOST, scratch, n_bytes);
    *undisturbed = !r.disturbed;
    return OK;
}
