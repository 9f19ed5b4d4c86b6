#include "device/cpu/kernels/update.h"

#include <string.h>

#include "base/half.h"
#include "base/rounding.h"
#include "base/split.h"
#include "device/cpu/kernels/codes.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

bool update_is_skipped(const struct tensor *scale)
{
    return ref_get(scale, 0) == 0.0;
}

static void copy_tensor(const struct tensor *out, const struct tensor *in)
{
    if (out->data != in->data)
        memcpy(out->data, in->data, (size_t)tensor_bytes(in));
}

void update_copy(const struct update_stream *streams, int n_streams)
{
    for (int i = 0; i < n_streams; i++) {
        copy_tensor(streams[i].out, streams[i].in);
        if (streams[i].codes)
            copy_tensor(streams[i].codes->absmax_out, streams[i].codes->absmax_in);
        if (streams[i].upper_in)
            copy_tensor(streams[i].upper_out, streams[i].upper_in);
    }
}

/* ---- rounding -------------------------------------------------------------------------------- */

static bool is_random(const struct update_stream *s, uint64_t seed)
{
    return seed != 0 && s->rounding != ROUND_NEAREST &&
           (s->out->dtype == DTYPE_BF16 || s->upper_out);
}

static uint32_t parts_of(enum rounding rounding, uint32_t bits)
{
    return rounding == ROUND_PARAM    ? rounding_param(bits)
           : rounding == ROUND_STATE1 ? rounding_state1(bits)
                                      : rounding_state2(bits);
}

struct update_draw update_draw_of(const struct op_call *c, int seed, int step)
{
    return (struct update_draw){.seed = (uint64_t)call_int(c, seed),
                                .step = (int64_t)ref_get(&c->in[step], 0),
                                .first_element = c->first_element};
}

static void set_split(const struct update_stream *s, int64_t i, uint32_t split)
{
    ((uint16_t *)s->upper_out->data)[i] = (uint16_t)(split >> 8);
    ((uint8_t *)s->out->data)[i] = (uint8_t)split;
}

double update_get(const struct update_stream *s, int64_t i)
{
    if (!s->upper_in)
        return ref_get(s->in, i);
    return (double)f32_from_bits(
        split_join(((const uint16_t *)s->upper_in->data)[i], ((const uint8_t *)s->in->data)[i]));
}

void update_set(const struct update_stream *s, int64_t i, double x, const struct update_draw *d)
{
    bool random = is_random(s, d->seed);
    if (!random && s->upper_out) {
        set_split(s, i, split_nearest(f32_bits((float)x)));
        return;
    }
    if (!random) {
        ref_set(s->out, i, x);
        return;
    }
    int64_t element = d->first_element + i;
    uint32_t bits =
        rounding_draw(d->seed, d->step, element / ROUNDING_QUAD).v[element % ROUNDING_QUAD];
    if (s->upper_out) {
        set_split(s, i, split_by(f32_bits((float)x), rounding_split(bits)));
        return;
    }
    ((uint16_t *)s->out->data)[i] =
        (uint16_t)bf16_round_by(f32_bits((float)x), parts_of(s->rounding, bits));
}

/* The bits of the call's elements [at, at + CPU_BLOCK); at and the call's first element are
 * multiples of ROUNDING_QUAD. */
static void draw_block(uint32_t *restrict bits, const struct update_draw *d, int64_t at)
{
    const uint64_t seed = d->seed;
    const int64_t step = d->step, first_quad = (d->first_element + at) / ROUNDING_QUAD;
#pragma omp simd
    for (int64_t i = 0; i < CPU_BLOCK / ROUNDING_QUAD; i++) {
        struct philox4 r = rounding_draw(seed, step, first_quad + i);
        for (int k = 0; k < ROUNDING_QUAD; k++)
            bits[ROUNDING_QUAD * i + k] = r.v[k];
    }
}

/* One loop for each share, so that the share is no choice inside it. */
#define ROUND_BLOCK(parts)                                     \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = \
        (uint16_t)bf16_round_by(f32_bits(block[i]), parts(bits[i]))

static void round_block(const struct update_stream *s, int64_t at, const float *restrict block,
                        const uint32_t *restrict bits, int64_t n)
{
    uint16_t *restrict y = (uint16_t *)s->out->data + at;
    if (s->rounding == ROUND_PARAM)
        ROUND_BLOCK(rounding_param);
    else if (s->rounding == ROUND_STATE1)
        ROUND_BLOCK(rounding_state1);
    else
        ROUND_BLOCK(rounding_state2);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void decode_block(const struct update_stream *s, int64_t at, int64_t n, float *block)
{
    const struct update_codes *k = s->codes;
    cpu_decode(block, (const uint8_t *)s->in->data + at,
               (const float *)k->absmax_in->data + at / DYNAMIC_BLOCK, k->map, n);
}

static void encode_block(const struct update_stream *s, int64_t at, int64_t n, const float *block)
{
    const struct update_codes *k = s->codes;
    cpu_encode((uint8_t *)s->out->data + at, (float *)k->absmax_out->data + at / DYNAMIC_BLOCK,
               block, k->map, k->is_signed, n);
}

static void join_block(const struct update_stream *s, int64_t at, int64_t n, float *restrict block)
{
    const uint16_t *upper = (const uint16_t *)s->upper_in->data + at;
    const uint8_t *rest = (const uint8_t *)s->in->data + at;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        block[i] = f32_from_bits(split_join(upper[i], rest[i]));
}

/* bits NULL: to nearest. */
static void split_block(const struct update_stream *s, int64_t at, int64_t n,
                        const float *restrict block, const uint32_t *restrict bits)
{
    uint16_t *restrict upper = (uint16_t *)s->upper_out->data + at;
    uint8_t *restrict rest = (uint8_t *)s->out->data + at;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint32_t x = f32_bits(block[i]);
        uint32_t split = bits ? split_by(x, rounding_split(bits[i])) : split_nearest(x);
        upper[i] = (uint16_t)(split >> 8);
        rest[i] = (uint8_t)split;
    }
}

/* The block of a stream, ready to be changed where it lies: in the output when that is f32. */
static float *open_block(const struct update_stream *s, int64_t at, int64_t n, float *buffer)
{
    if (s->codes || s->upper_in) {
        s->codes ? decode_block(s, at, n, buffer) : join_block(s, at, n, buffer);
        return buffer;
    }
    float *block = block_open(s->out, at, buffer);
    if (s->in->dtype == DTYPE_F32 && (const float *)s->in->data + at == block)
        return block;
    cpu_load_f32(block, s->in->data, s->in->dtype, at, n);
    return block;
}

_Static_assert(CPU_BLOCK % DYNAMIC_BLOCK == 0, "a block of a loop has whole blocks of codes");

/* An update, and whether any of its streams is rounded stochastically. */
struct updating {
    const struct update *u;
    bool any_random;
};

/* As floats: where it is stored, or in the buffer. */
static const float *gradient_block(const struct update *u, int64_t at, int64_t n, float *buffer)
{
    if (!u->factors)
        return block_read(u->grad, at, n, buffer);
    update_factors_block(u->factors, u->draw.first_element + at, n, buffer);
    return buffer;
}

static void update_block(const void *job, int64_t at, int64_t n)
{
    const struct update *u = ((const struct updating *)job)->u;
    bool any_random = ((const struct updating *)job)->any_random;
    float buffer[UPDATE_STREAMS][CPU_BLOCK], g_buffer[CPU_BLOCK];
    float *block[UPDATE_STREAMS] = {NULL};
    uint32_t bits[CPU_BLOCK];
    const float *g = gradient_block(u, at, n, g_buffer);
    for (int i = 0; i < u->n_streams; i++) {
        if (!u->streams[i].is_image)
            block[i] = open_block(&u->streams[i], at, n, buffer[i]);
    }
    u->apply(u->rule, block, g, at, n);
    if (any_random)
        draw_block(bits, &u->draw, at);
    for (int i = 0; i < u->n_streams; i++) {
        if (u->streams[i].is_image)
            cpu_store_f32(u->streams[i].out->data, u->streams[i].out->dtype, at, block[0], n);
        else if (u->streams[i].upper_out)
            split_block(&u->streams[i], at, n, block[i],
                        is_random(&u->streams[i], u->draw.seed) ? bits : NULL);
        else if (is_random(&u->streams[i], u->draw.seed))
            round_block(&u->streams[i], at, block[i], bits, n);
        else if (u->streams[i].codes)
            encode_block(&u->streams[i], at, n, block[i]);
        else
            block_close(u->streams[i].out, at, block[i], n);
    }
}

void update_run(const struct kernel_ctx *x, const struct update *u)
{
    struct updating job = {.u = u};
    for (int i = 0; i < u->n_streams; i++)
        job.any_random |= is_random(&u->streams[i], u->draw.seed);
    cpu_each_block(x, shape_elems(&u->streams[0].in->shape), update_block, &job);
}
