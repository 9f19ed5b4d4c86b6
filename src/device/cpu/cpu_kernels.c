#include "device/cpu/cpu_kernels.h"

#include <string.h>

#include "base/half.h"
#include "base/sanitizer.h"
#include "device/cpu/support/block.h"

#define LIST_YES(sym) sym
#define LIST_NO(sym)  NULL

static const struct kernel *const lists[OP_COUNT] = {
#define OP(name, family, cpu, cuda) [OP_##name] = LIST_##cpu(cpu_kernels_##name),
#include "graph/ops.def"
#undef OP
};

const struct kernel *cpu_kernels(enum op_id op)
{
    return lists[op];
}

static void expect_halves(const uint16_t *halves, const float *floats, int64_t n)
{
    sanitizer_expect(halves, (size_t)n * sizeof(*halves));
    sanitizer_expect(floats, (size_t)n * sizeof(*floats));
}

static UNSANITIZED void load_halves(float *restrict dst, const uint16_t *restrict from,
                                    enum dtype dtype, int64_t n)
{
    expect_halves(from, dst, n);
    if (dtype == DTYPE_BF16) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            dst[i] = bf16_to_f32(from[i]);
    } else {
        for (int64_t i = 0; i < n; i++)
            dst[i] = f16_to_f32(from[i]);
    }
}

static UNSANITIZED void store_halves(uint16_t *restrict to, enum dtype dtype,
                                     const float *restrict src, int64_t n)
{
    expect_halves(to, src, n);
    if (dtype == DTYPE_BF16) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            to[i] = bf16_from_f32(src[i]);
    } else {
        for (int64_t i = 0; i < n; i++)
            to[i] = f16_from_f32(src[i]);
    }
}

void cpu_load_f32(float *restrict dst, const void *src, enum dtype dtype, int64_t offset, int64_t n)
{
    if (dtype == DTYPE_F32)
        memcpy(dst, (const float *)src + offset, (size_t)n * sizeof(float));
    else
        load_halves(dst, (const uint16_t *)src + offset, dtype, n);
}

void cpu_store_f32(void *dst, enum dtype dtype, int64_t offset, const float *restrict src,
                   int64_t n)
{
    if (dtype == DTYPE_F32)
        memcpy((float *)dst + offset, src, (size_t)n * sizeof(float));
    else
        store_halves((uint16_t *)dst + offset, dtype, src, n);
}

static int any_float_is(const struct op_call *c, bool (*bad)(enum dtype))
{
    for (int i = 0; i < c->n_in; i++) {
        if (dtype_is_float(c->in[i].dtype) && bad(c->in[i].dtype))
            return 1;
    }
    for (int i = 0; i < c->n_out; i++) {
        if (dtype_is_float(c->out[i].dtype) && bad(c->out[i].dtype))
            return 1;
    }
    return 0;
}

static bool is_f64(enum dtype d)
{
    return d == DTYPE_F64;
}

const char *cpu_declines_f64(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return any_float_is(c, is_f64) ? "does not take f64" : NULL;
}

struct each_block {
    int64_t n;
    block_work *work;
    const void *job;
};

static void run_blocks(const void *job, int64_t first, int64_t last, int thread)
{
    const struct each_block *e = job;
    (void)thread;
    for (int64_t at = first * CPU_BLOCK; at < MIN(last * CPU_BLOCK, e->n); at += CPU_BLOCK)
        e->work(e->job, at, block_size(e->n, at));
}

void cpu_each_block(const struct kernel_ctx *x, int64_t n, block_work *work, const void *job)
{
    struct each_block e = {n, work, job};
    cpu_loop(x, block_count(n), CPU_BLOCK, run_blocks, &e);
}
