/* attention_calls.h: an attention call and its gradient in host memory, with what the reference
 * says about both in double. */
#ifndef SNUG_TESTS_ATTENTION_CALLS_H
#define SNUG_TESTS_ATTENTION_CALLS_H

#include "support/device_call.h"

#ifdef __cplusplus
extern "C" {
#endif

struct attention_case {
    int64_t batch, tokens, heads, kv_heads, head_dim, window;
    bool causal;
    double scale; /* 0: one over the root of head_dim */
    double dropout;
    double softcap; /* 0: none */
};

/* The reference's own outputs, rounded, are inputs backwards. */
struct attention_calls {
    struct host_call forward, backward;
    struct tensor want[2], want_grad; /* f64 */
    char label[128];
};

void attention_attrs(struct host_call *h, const struct attention_case *s);
/* Runs the reference: seconds for a hundred million pairs times head_dim. Do not move it. */
void attention_calls_open(struct attention_calls *t, const struct attention_case *s,
                          enum dtype dtype);
/* The same with samples that share rows, of about `sample` tokens. */
void attention_calls_open_packed(struct attention_calls *t, const struct attention_case *s,
                                 enum dtype dtype, int sample);
void attention_calls_close(struct attention_calls *t);
/* Largest error over the largest value: f32 arithmetic; 16-bit storage and probabilities. */
double attention_limit(enum dtype d);

#ifdef __cplusplus
}
#endif
#endif
