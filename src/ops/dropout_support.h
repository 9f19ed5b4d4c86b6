/* dropout_support.h: what ops that drop or add noise share: the checks of rate, seed and random
 * state, and where a node's draws lie in the generator's counters.
 *
 * The random state is i64[2]: the key of the run and the number of the micro-step (mod 2^44). Nodes
 * of one graph need different seeds. */
#ifndef SNUG_OPS_DROPOUT_SUPPORT_H
#define SNUG_OPS_DROPOUT_SUPPORT_H

#include "base/compiler.h"
#include "base/rng.h"
#include "ops/op_support.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DROPOUT_SEEDS = 1 << 20 };
enum { DROPOUT_P, DROPOUT_SEED, DROPOUT_CHANNELS }; /* attributes of the op dropout */
enum { NOISE_MAGNITUDE, NOISE_SEED };               /* and of add_noise */

/* The upper half of the counter of every draw of a node. */
static inline HOST_DEVICE uint64_t dropout_counter(int64_t micro_step, int64_t seed)
{
    return (uint64_t)micro_step * DROPOUT_SEEDS + (uint64_t)seed;
}

/* What add_noise adds, given the bits of a draw. */
static inline HOST_DEVICE float noise_of(uint32_t bits, float magnitude)
{
    return magnitude * (2.0f * rng_uniform(bits) - 1.0f);
}

/* The rate p and the seed are sound, and so is the random state, input i_rng, where it is given. */
static inline enum status MUST_CHECK need_dropout(const struct op_call *c, int i_rng, double p,
                                                  int64_t seed)
{
    struct shape two = shape_of(1, (int64_t)2);
    if (!(p >= 0.0 && p < 1.0))
        return REJECT(c, "the share dropped is %g; it must be in [0, 1)", p);
    if (seed < 0 || seed >= DROPOUT_SEEDS)
        return REJECT(c, "seed is %lld; it must be in [0, %d)", (long long)seed, DROPOUT_SEEDS);
    if (!call_has(c, i_rng))
        return OK;
    TRY(need_dtype(c, i_rng, DTYPE_I64));
    return need_shape(c, i_rng, &two);
}

#ifdef __cplusplus
}
#endif
#endif
