/* sampler.h: from logits to the next token.
 *
 * Temperature, then the top_k likeliest, then the smallest set of those whose probability reaches
 * top_p (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020), then one draw.
 * Temperature 0 takes the likeliest token; among equals the lowest id.
 */
#ifndef SNUG_TRAIN_SAMPLER_H
#define SNUG_TRAIN_SAMPLER_H

#include "base/rng.h"
#include "base/status.h"
#include "graph/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sampler {
    double temperature; /* >= 0 */
    int64_t top_k;      /* 0: all */
    double top_p;       /* (0, 1] */
    struct rng rng;
};

/* Bytes of scratch that sampler_draw needs for such a vocabulary. */
int64_t sampler_scratch_bytes(int64_t vocab_size);

/* logits: a host tensor with vocab_size elements of f32, bf16 or f16. ERR_NUMERIC when they are
 * not numbers. Allocates nothing. */
enum status sampler_draw(struct sampler *s, const struct tensor *logits, void *scratch,
                         int32_t *token) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
