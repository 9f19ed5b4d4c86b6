/* block.h: elementwise kernels in f32 arithmetic over f32, bf16 or f16 storage.
 *
 * A kernel works on blocks of at most CPU_BLOCK elements. An f32 tensor is read and written where
 * it is; a 16-bit one goes through a buffer on the stack that stays in the first-level cache. So
 * one loop, written for floats, serves every dtype:
 *
 *     const float *x = block_read(&c->in[0], at, n, x_buffer);
 *     float *y = block_open(&c->out[0], at, y_buffer);
 *     ... y[i] = f(x[i]) ...
 *     block_close(&c->out[0], at, y, n);
 *
 * An output may share its memory with an input: each element is read before it is written, by the
 * same thread.
 */
#ifndef SNUG_DEVICE_CPU_SUPPORT_BLOCK_H
#define SNUG_DEVICE_CPU_SUPPORT_BLOCK_H

#include "base/compiler.h"
#include "base/sanitizer.h"
#include "device/cpu/cpu_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CPU_BLOCK = 1024,
    /* With fewer elements than this, handing a piece to another thread costs more than it gains. */
    CPU_PIECE = 16384,
};

/* Items [0, n), of about so many elements each, shared among the threads. */
static inline void cpu_loop(const struct kernel_ctx *x, int64_t n, int64_t item_elems,
                            team_work *work, const void *job)
{
    team_run(x->env.team, n, CPU_PIECE / MAX(item_elems, (int64_t)1), work, job);
}

/* Work on `size` elements from `at` on, at most CPU_BLOCK. */
typedef void block_work(const void *job, int64_t at, int64_t size);
/* All n elements block by block, shared among the threads. */
void cpu_each_block(const struct kernel_ctx *x, int64_t n, block_work *work, const void *job);

static inline int64_t block_count(int64_t n)
{
    return (n + CPU_BLOCK - 1) / CPU_BLOCK;
}

/* Size of the block that starts at element `at` of n. */
static inline int64_t block_size(int64_t n, int64_t at)
{
    return MIN((int64_t)CPU_BLOCK, n - at);
}

/* Elements [at, at + n) as floats: the tensor's own memory, or the buffer. */
static inline const float *block_read(const struct tensor *t, int64_t at, int64_t n, float *buffer)
{
    if (t->dtype == DTYPE_F32)
        return (const float *)t->data + at;
    cpu_load_f32(buffer, t->data, t->dtype, at, n);
    return buffer;
}

/* Where to write elements from `at` on; block_close puts them into the tensor. */
static inline float *block_open(const struct tensor *t, int64_t at, float *buffer)
{
    return t->dtype == DTYPE_F32 ? (float *)t->data + at : buffer;
}

static inline void block_close(const struct tensor *t, int64_t at, const float *block, int64_t n)
{
    if (t->dtype != DTYPE_F32)
        cpu_store_f32(t->data, t->dtype, at, block, n);
}

/* The same for output i, which a call may lack: what the loop makes of it then goes to the buffer,
 * which nobody reads. */
static inline float *block_open_given(const struct op_call *c, int i, int64_t at, float *buffer)
{
    return i < c->n_out ? block_open(&c->out[i], at, buffer) : buffer;
}

static inline void block_close_given(const struct op_call *c, int i, int64_t at, const float *y,
                                     int64_t n)
{
    if (i < c->n_out)
        block_close(&c->out[i], at, y, n);
}

/* Sums side by side: enough of them that one addition does not wait for the last. */
enum { BLOCK_SUMS = 64 };

/* To the sums, products of elements of two blocks, or of one with itself. */
static inline UNSANITIZED void block_add_products(double sums[BLOCK_SUMS], const float *a,
                                                  const float *b, int64_t n)
{
    int64_t k = 0;
    sanitizer_expect(sums, BLOCK_SUMS * sizeof(*sums));
    sanitizer_expect(a, (size_t)n * sizeof(*a));
    sanitizer_expect(b, (size_t)n * sizeof(*b));
    for (; k + BLOCK_SUMS <= n; k += BLOCK_SUMS) {
#pragma omp simd
        for (int s = 0; s < BLOCK_SUMS; s++)
            sums[s] += (double)a[k + s] * (double)b[k + s];
    }
    for (; k < n; k++)
        sums[0] += (double)a[k] * (double)b[k];
}

#ifdef __cplusplus
}
#endif
#endif
