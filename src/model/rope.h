/* rope.h: rotary position embedding: its config keys, in the older and the newer spelling, and the
 * table of inverse frequencies they stand for.
 *
 * Older configs have `rope_theta` and `rope_scaling` {`type` or `rope_type`, ...}; newer ones
 * `rope_parameters` {`rope_type`, `rope_theta`, ...}, which may be nested by layer type.
 */
#ifndef SNUG_MODEL_ROPE_H
#define SNUG_MODEL_ROPE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "model/config_keys.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ROPE_MAX_HEAD_DIM = 8192 };

enum rope_type {
    ROPE_DEFAULT,
    ROPE_LINEAR,  /* every frequency divided by factor */
    ROPE_DYNAMIC, /* as DEFAULT up to the model's context; longer sequences are refused elsewhere */
    ROPE_LLAMA3,  /* low frequencies divided, high ones kept, smooth between (Llama 3.1) */
    ROPE_YARN,    /* Peng et al., "YaRN: Efficient Context Window Extension", 2023 */
    ROPE_TYPE_COUNT
};

/* What a family's configs say and may say. */
struct rope_rules {
    double theta;  /* preset of rope_theta */
    bool partial;  /* partial_rotary_factor is read: only the first channels of a head turn */
    bool unscaled; /* no rope_type but default */
};

struct rope {
    enum rope_type type;
    double theta, factor;
    int64_t original_context;                 /* LLAMA3, YARN */
    double low_freq_factor, high_freq_factor; /* LLAMA3 */
    double beta_fast, beta_slow;              /* YARN */
    bool truncate;                            /* YARN: ramp between whole dimensions */
    double attention_factor;                  /* multiplies cos and sin; 1 except for YARN */
    double partial;                           /* the share of a head's channels that turn */
};

/* Reads the rope keys of a config whose context (max_position_embeddings) is known. Failures
 * stick to `k`. */
void rope_parse(struct rope *r, struct keys *k, int64_t context, const struct rope_rules *rules);
/* The same for models whose layers with a window have rotary positions of their own:
 * `rope_local_base_freq`, or an object by layer type inside `rope_parameters`. */
void rope_parse_both(struct rope *full, struct rope *local, struct keys *k, int64_t context,
                     const struct rope_rules *rules, double local_theta);

/* Channels of a head that turn. */
int64_t rope_channels(const struct rope *r, int64_t head_dim);
/* inv_freq[i], i < n_channels / 2 (n_channels at most ROPE_MAX_HEAD_DIM): radians per position of
 * pair i. */
void rope_inv_freq(const struct rope *r, int64_t n_channels, float *inv_freq);

/* Sets rope_theta, rope_scaling and rope_parameters. */
enum status rope_export(const struct rope *r, json_t *config) MUST_CHECK;
/* What rope_parse_both reads. */
enum status rope_export_both(const struct rope *full, const struct rope *local,
                             json_t *config) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
