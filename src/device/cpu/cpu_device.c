/* cpu_device.c: the CPU as a device.
 *
 * Queues run in program order on the calling thread (kernels use OpenMP inside), so events need no
 * work: the simulator has already proved that they order every use. Arenas are anonymous mappings
 * of exactly the planned size: a page becomes resident when it is first touched.
 */
#include <cblas.h>
#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/host_memory.h"
#include "base/machine.h"
#include "base/str.h"
#include "device/cpu/cpu_gemm.h"
#include "device/cpu/cpu_gemm_amx.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/cpu_time.h"
#include "device/device.h"

static enum status memory_alloc(struct device *d, enum tier t, int64_t n_bytes, void **out)
{
    (void)d;
    *out = NULL;
    if (n_bytes == 0)
        return OK;
    void *p =
        mmap(NULL, (size_t)n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        char text[BYTES_TEXT];
        return FAIL(ERR_FIT, "the system refused %s of memory for the %s arena",
                    format_bytes(text, n_bytes), tier_name(t));
    }
    (void)madvise(p, (size_t)n_bytes, MADV_HUGEPAGE); /* fewer page faults; best effort */
    *out = p;
    return OK;
}

static void memory_free(struct device *d, enum tier t, void *p, int64_t n_bytes)
{
    (void)d;
    (void)t;
    if (p)
        (void)munmap(p, (size_t)n_bytes);
}

static enum status copy(struct device *d, enum queue q, void *dst, const void *src, int64_t n_bytes)
{
    (void)d;
    (void)q;
    memcpy(dst, src, (size_t)n_bytes);
    return OK;
}

static enum status no_event(struct device *d, enum queue q, int event)
{
    (void)d;
    (void)q;
    (void)event;
    return OK;
}

static enum status no_sync(struct device *d)
{
    (void)d;
    return OK;
}

static int64_t used_bytes(struct device *d)
{
    (void)d;
    return process_peak();
}

static enum status room(struct device *d, struct device_room *out)
{
    (void)d;
    room_of_host(out);
    return OK;
}

/* Rate of a product of n x n matrices, the best of a few. */
static double matmul_rate(struct device *d, enum dtype dtype, void *const matrices[3], int64_t n,
                          void *workspace)
{
    struct cpu_gemm g = {.m = n,
                         .n = n,
                         .k = n,
                         .a = {matrices[0], dtype, 0, n, 1},
                         .b = {matrices[1], dtype, 0, 1, n},
                         .c = matrices[2],
                         .c_dtype = dtype,
                         .c_row = n};
    double best = 1e30;
    for (int i = 0; i < 3; i++) {
        double t = now_s();
        cpu_gemm(&d->env, workspace, &g);
        best = fmin(best, now_s() - t);
    }
    return 2.0 * (double)(n * n * n) / best;
}

/* A small product first: only where it is fast is one run that is large enough for the steady rate
 * (builds with sanitizers would take seconds over it). */
static double measure_matmul(struct device *d, enum dtype dtype, void *const matrices[3], int64_t n,
                             void *workspace)
{
    double rate = matmul_rate(d, dtype, matrices, n / 8, workspace);
    if (2.0 * (double)(n * n * n) / rate < 0.1)
        rate = matmul_rate(d, dtype, matrices, n, workspace);
    return rate;
}

static void measure_memory(struct device_rates *r, float *dst, const float *src, int64_t n,
                           int n_threads)
{
    double best = 1e30;
    for (int i = 0; i < 3; i++) {
        double t = now_s();
#pragma omp parallel for simd schedule(static) num_threads(n_threads)
        for (int64_t k = 0; k < n; k++)
            dst[k] = src[k] * 1.5f;
        best = fmin(best, now_s() - t);
    }
    r->memory_bytes = 8.0 * (double)n / best;
    r->copy_bytes = r->memory_bytes / 2;
    r->launch_s = 2e-6;
}

/* Measures the machine on scratch memory that is returned to the system before it comes back. */
static enum status measure(struct device *d)
{
    enum { N = 1024 };
    const int64_t stream = 4 << 20, matrix = N * N;
    const int64_t n_floats = 2 * stream; /* the matrices lie where the streams will */
    const int64_t n_bytes = n_floats * 4 + cpu_gemm_workspace(&d->env, N, N, N);
    void *scratch;
    TRY(memory_alloc(d, TIER_HOST, n_bytes, &scratch));
    float *p = scratch;
    for (int64_t i = 0; i < n_floats; i++)
        p[i] = (float)(i % 13) * 0.25f;
    void *const matrices[] = {p, p + matrix, p + 2 * matrix};
    d->rates.matmul_flops = measure_matmul(d, DTYPE_F32, matrices, N, p + n_floats);
    d->rates.half_matmul_flops = d->rates.matmul_flops; /* 16-bit operands are products in f32 */
    if (CPU_GEMM_AMX && cpu_gemm_amx_usable())
        d->rates.half_matmul_flops = measure_matmul(d, DTYPE_BF16, matrices, N, p + n_floats);
    measure_memory(&d->rates, p, p + stream, stream, d->env.n_threads);
    memory_free(d, TIER_HOST, scratch, n_bytes);
    return OK;
}

static int64_t context_bytes(struct device *d)
{
    (void)d;
    return process_resident();
}

static void close_device(struct device *d)
{
    (void)d;
}

static const struct device_ops cpu_ops = {
    .name = "cpu",
    .kernels = cpu_kernels,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .copy = copy,
    .record = no_event,
    .wait = no_event,
    .sync = no_sync,
    .fill = cpu_fill,
    .time_calls = cpu_time_calls,
    .context_bytes = context_bytes,
    .room = room,
    .used_bytes = used_bytes,
    .close = close_device,
};

static int usable_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    return MAX(CPU_COUNT(&set), 1);
}

/* What the kernels of this build are made of. */
static const char *instructions(void)
{
#if defined(__AVX512F__)
    return CPU_GEMM_AMX && cpu_gemm_amx_usable() ? "AVX-512, AMX for bf16" : "AVX-512";
#elif defined(__AVX2__)
    return "AVX2";
#elif defined(__aarch64__)
    return "NEON";
#else
    return openblas_get_corename(); /* products go to the BLAS */
#endif
}

enum status device_open_cpu(struct device *d, int n_threads)
{
    *d = (struct device){.ops = &cpu_ops};
    d->env.n_threads = n_threads > 0 ? n_threads : MIN(usable_processors(), omp_get_max_threads());
    omp_set_num_threads(d->env.n_threads);
    openblas_set_num_threads(d->env.n_threads);
    (void)snprintf(d->description, sizeof(d->description), "cpu, %d thread%s, %s", d->env.n_threads,
                   d->env.n_threads == 1 ? "" : "s", instructions());
    char model[96];
    processor_name(model, sizeof(model));
    (void)snprintf(d->identity, sizeof(d->identity), "%.60s, %.80s", d->description, model);
    d->cache_bytes = MAX(sysconf(_SC_LEVEL2_CACHE_SIZE), 0) * d->env.n_threads;
    return measure(d);
}
