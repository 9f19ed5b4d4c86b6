/* gemm.c: how fast the linked BLAS runs the matrix products of one training step.
 *
 *     OMP_NUM_THREADS=2 bench_gemm [SUBSTRING]       only the cases whose name contains SUBSTRING
 *
 * The shapes are those of GPT-2 124M with 1024 tokens (batch 4, 256 positions). A linear layer
 * makes three products; all matrices are row-major:
 *
 *     fwd   Y[M,N]  = X[M,K] * W[N,K]^T         weights stored [out, in]
 *     dx    dX[M,K] = dY[M,N] * W[N,K]
 *     dw    dW[N,K] = dY[M,N]^T * X[M,K]        "dw+" adds to dW (beta 1, gradient accumulation)
 *
 * and the same with weights stored [in, out] (names with "io"), as GPT-2's files hold them. The
 * output head is also timed in chunks of rows, as a loss that never holds all logits would run it.
 * Each line gives the median and the best rate in GFLOP/s and the median as a share of the peak,
 * which is measured by a loop of fused multiply-adds that touches no memory (AVX-512 builds only).
 */
#include <cblas.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "base/alloc.h"
#include "base/machine.h"
#include "base/rng.h"
#include "base/status.h"

enum product { FWD, DX, DW, FWD_IO, DX_IO, DW_IO, N_PRODUCTS };

static const char *const product_names[N_PRODUCTS] = {"fwd",    "dx",    "dw",
                                                      "fwd-io", "dx-io", "dw-io"};

struct layer {
    const char *name;
    int m, k, n; /* tokens, inputs, outputs */
};

static const struct layer layers[] = {
    {"qkv", 1024, 768, 2304},     {"proj", 1024, 768, 768},     {"up", 1024, 768, 3072},
    {"down", 1024, 3072, 768},    {"head128", 128, 768, 50304}, {"head256", 256, 768, 50304},
    {"head512", 512, 768, 50304}, {"head", 1024, 768, 50304},
};

/* Every operand of the largest case; `a`, `b`, `c` are reused by all of them. */
struct operands {
    float *a, *b, *c;
};

enum { MAX_ELEMS = 50304 * 1024, MAX_REPEATS = 64 };

static enum status fill(float **out, int64_t n, uint64_t key)
{
    TRY(mem_try_array(out, (size_t)n, sizeof(float)));
    float *x = *out;
#pragma omp parallel for
    for (int64_t i = 0; i < n / 4; i++) {
        struct philox4 p = philox(key, 0, (uint64_t)i);
        for (int j = 0; j < 4; j++)
            x[4 * i + j] = rng_uniform(p.v[j]) - 0.5f;
    }
    return OK;
}

/* One product of `layer`; a and b hold whatever roles the product gives them. */
static void multiply(const struct layer *layer, enum product product, float beta,
                     const struct operands *o)
{
    const int m = layer->m, k = layer->k, n = layer->n;
    const enum CBLAS_TRANSPOSE no = CblasNoTrans, yes = CblasTrans;
    switch (product) {
    case FWD:
        cblas_sgemm(CblasRowMajor, no, yes, m, n, k, 1.0f, o->a, k, o->b, k, beta, o->c, n);
        break;
    case DX:
        cblas_sgemm(CblasRowMajor, no, no, m, k, n, 1.0f, o->a, n, o->b, k, beta, o->c, k);
        break;
    case DW:
        cblas_sgemm(CblasRowMajor, yes, no, n, k, m, 1.0f, o->a, n, o->b, k, beta, o->c, k);
        break;
    case FWD_IO:
        cblas_sgemm(CblasRowMajor, no, no, m, n, k, 1.0f, o->a, k, o->b, n, beta, o->c, n);
        break;
    case DX_IO:
        cblas_sgemm(CblasRowMajor, no, yes, m, k, n, 1.0f, o->a, n, o->b, n, beta, o->c, k);
        break;
    case DW_IO:
        cblas_sgemm(CblasRowMajor, yes, no, k, n, m, 1.0f, o->a, k, o->b, n, beta, o->c, n);
        break;
    case N_PRODUCTS:
        break;
    }
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Prints one line; repeats until about 0.6 s or MAX_REPEATS have passed, at least five times. */
static void time_case(const struct layer *layer, enum product product, float beta, double peak,
                      const struct operands *o)
{
    double t[MAX_REPEATS], total = 0;
    int n_runs = 0;
    multiply(layer, product, beta, o);
    while (n_runs < MAX_REPEATS && (n_runs < 5 || total < 0.6)) {
        double start = now_s();
        multiply(layer, product, beta, o);
        t[n_runs] = now_s() - start;
        total += t[n_runs++];
    }
    qsort(t, (size_t)n_runs, sizeof t[0], compare_doubles);
    double gflop = 2e-9 * layer->m * layer->k * layer->n;
    double median = gflop / t[n_runs / 2], best = gflop / t[0];
    printf("%-8s %-7s beta %.0f  %5d %5d %5d  %7.1f %7.1f", layer->name, product_names[product],
           (double)beta, layer->m, layer->k, layer->n, median, best);
    if (peak > 0)
        printf("  %5.1f %%", 100 * median / peak);
    printf("\n");
}

#ifdef __AVX512F__
/* N_CHAINS independent chains hide the latency of the multiply-add; few enough that the compiler
 * unrolls the inner loop and keeps them in registers. */
enum { N_CHAINS = 12 };

static float multiply_add_loop(int64_t n_rounds)
{
    __m512 acc[N_CHAINS], x = _mm512_set1_ps(0.999999f), y = _mm512_set1_ps(1e-6f), sum;
    for (int i = 0; i < N_CHAINS; i++)
        acc[i] = _mm512_set1_ps((float)i);
    for (int64_t round = 0; round < n_rounds; round++)
        for (int i = 0; i < N_CHAINS; i++)
            acc[i] = _mm512_fmadd_ps(acc[i], x, y);
    sum = acc[0];
    for (int i = 1; i < N_CHAINS; i++)
        sum = _mm512_add_ps(sum, acc[i]);
    return _mm512_reduce_add_ps(sum);
}

static double measure_peak(void)
{
    const int64_t n_rounds = 8000000;
    double best = 0;
    for (int attempt = 0; attempt < 5; attempt++) {
        float sink = 0;
        int n_threads = omp_get_max_threads();
        double start = now_s();
#pragma omp parallel reduction(+ : sink)
        sink += multiply_add_loop(n_rounds);
        double t = now_s() - start;
        double rate = 2e-9 * 16 * N_CHAINS * (double)n_rounds * n_threads / t;
        if (sink != 0 && rate > best)
            best = rate;
    }
    return best;
}
#else
static double measure_peak(void)
{
    return 0;
}
#endif

static enum status run(const char *filter)
{
    struct operands o = {NULL, NULL, NULL};
    enum status status = OK;
    TRY_GOTO(fill(&o.a, MAX_ELEMS, 1), out);
    TRY_GOTO(fill(&o.b, MAX_ELEMS, 2), out);
    TRY_GOTO(fill(&o.c, MAX_ELEMS, 3), out);

    double peak = measure_peak();
    printf("threads %d, peak %.1f GFLOP/s\n", omp_get_max_threads(), peak);
    printf("layer    product             M     K     N   median    best   of peak\n");
    for (size_t i = 0; i < ARRAY_LEN(layers); i++)
        for (int p = 0; p < N_PRODUCTS; p++) {
            char name[64];
            snprintf(name, sizeof name, "%s %s", layers[i].name, product_names[p]);
            if (!strstr(name, filter))
                continue;
            time_case(&layers[i], (enum product)p, 0.0f, peak, &o);
            if (p == DW || p == DW_IO)
                time_case(&layers[i], (enum product)p, 1.0f, peak, &o);
            fflush(stdout);
        }
out:
    mem_free(o.a);
    mem_free(o.b);
    mem_free(o.c);
    return status;
}

int main(int argc, char **argv)
{
    enum status status = run(argc > 1 ? argv[1] : "");
    if (status != OK)
        fprintf(stderr, "bench_gemm: %s\n", status_message());
    return status_exit_code(status);
}
