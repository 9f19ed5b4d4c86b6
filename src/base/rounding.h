/* rounding.h: stochastic rounding of f32 to bf16.
 *
 * A number between two neighbours of bf16 goes up with the probability of its distance from the
 * lower one, so that it is right on average: updates much smaller than the distance of neighbours
 * are kept in the mean, where rounding to nearest would lose every one of them.
 *
 * Which way is a pure function of (seed, step, element): 32 bits for an element, of which its
 * parameter takes 16 and two states 8 each (8 bits are the middle of 256 equal parts, so the mean
 * is right to 1/512 of the distance). The CPU and CUDA kernels both call these functions.
 */
#ifndef SNUG_BASE_ROUNDING_H
#define SNUG_BASE_ROUNDING_H

#include <stdint.h>

#include "base/compiler.h"
#include "base/rng.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Elements whose bits are drawn at once, and rounds of philox for that. */
enum { ROUNDING_QUAD = 4, ROUNDING_ROUNDS = 7 };

/* The bits of elements 4 i_quad .. 4 i_quad + 3. */
static inline HOST_DEVICE struct philox4 rounding_draw(uint64_t seed, int64_t step, int64_t i_quad)
{
    return philox_rounds(seed, (uint64_t)step, (uint64_t)i_quad, ROUNDING_ROUNDS);
}

/* The same draws by the keys of all rounds (philox_rounds makes them on the way), where one seed
 * makes very many. */
struct rounding_keys {
    uint32_t key[ROUNDING_ROUNDS][2];
};

static inline struct rounding_keys rounding_keys_of(uint64_t seed)
{
    struct rounding_keys k = {{{(uint32_t)seed, (uint32_t)(seed >> 32)}}};
    for (int round = 1; round < ROUNDING_ROUNDS; round++) {
        k.key[round][0] = k.key[round - 1][0] + 0x9E3779B9u;
        k.key[round][1] = k.key[round - 1][1] + 0xBB67AE85u;
    }
    return k;
}

static inline HOST_DEVICE struct philox4 rounding_draw_by(const struct rounding_keys *k,
                                                          int64_t step, int64_t i_quad)
{
    struct philox4 c = {{(uint32_t)i_quad, (uint32_t)((uint64_t)i_quad >> 32), (uint32_t)step,
                         (uint32_t)((uint64_t)step >> 32)}};
    for (int round = 0; round < ROUNDING_ROUNDS; round++) {
        uint32_t high0, low0, high1, low1;
        philox_product(0xD2511F53u, c.v[0], &high0, &low0);
        philox_product(0xCD9E8D57u, c.v[2], &high1, &low1);
        struct philox4 next = {
            {high1 ^ c.v[1] ^ k->key[round][0], low1, high0 ^ c.v[3] ^ k->key[round][1], low0}};
        c = next;
    }
    return c;
}

/* What an element's bits are worth, in parts of 65536 of the distance of neighbours. */
static inline HOST_DEVICE uint32_t rounding_param(uint32_t bits)
{
    return bits & 0xffffu;
}
/* Of a number of 24 bits, in parts of 256 (base/split.h). */
static inline HOST_DEVICE uint32_t rounding_split(uint32_t bits)
{
    return bits & 0xffu;
}
static inline HOST_DEVICE uint32_t rounding_state1(uint32_t bits)
{
    return (bits >> 8 & 0xff00u) | 0x80u;
}
static inline HOST_DEVICE uint32_t rounding_state2(uint32_t bits)
{
    return (bits >> 16 & 0xff00u) | 0x80u;
}

/* The bf16 (in the low half) of a float given by its bits; NaN stays NaN. */
static inline HOST_DEVICE uint32_t bf16_round_by(uint32_t f32_bits, uint32_t parts)
{
    uint32_t is_nan = (f32_bits & 0x7fffffffu) > 0x7f800000u;
    return is_nan ? f32_bits >> 16 | 0x0040u : (f32_bits + parts) >> 16;
}

#ifdef __cplusplus
}
#endif
#endif
