/* llama.h: the Llama family of models, put together from traits.
 *
 * All of them are decoders of blocks of two halves, attention and a gated feed-forward layer, with
 * RMS norms, rotary positions and grouped key/value heads. What sets one apart from the other is a
 * row of traits (llama_families.c): data that the reader of configs (llama_config.c) and the writer
 * of graphs (llama.c) go by. Neither asks for a model by name.
 */
#ifndef SNUG_MODEL_LLAMA_H
#define SNUG_MODEL_LLAMA_H

#include "model/experts.h"
#include "model/model.h"
#include "model/rope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The norms of a block by their names in checkpoints; NULL: there is none. A half of a block is
 * x + after(half(before(x))). */
struct block_norms {
    const char *before_attention, *after_attention;
    const char *before_feed_forward, *after_feed_forward;
    const char *before_out, *before_down; /* the last linear layer of each half */
};

/* RMS norms of queries and keys. */
enum query_norm {
    QUERY_NORM_NONE,
    QUERY_NORM_HEAD, /* each head by itself, one weight for all of them */
    QUERY_NORM_WHOLE /* all heads of a token together */
};

/* The activation that gates the feed-forward layer. */
struct gate_kind {
    enum op_id op;
    const char *key;      /* of the config */
    const char *names[3]; /* what the key may say, NULL-terminated; the first is its preset */
};

/* Which layers see no further than sliding_window. */
enum window_rule {
    WINDOW_NONE,
    WINDOW_EVERYWHERE,   /* all, where sliding_window is given */
    WINDOW_SWITCHED,     /* layer_types; from max_window_layers on, with use_sliding_window */
    WINDOW_ALTERNATING,  /* layer_types; every other before max_window_layers, switched likewise */
    WINDOW_ALL_SWITCHED, /* all, with use_sliding_window */
    WINDOW_UNROTATED,    /* layer_types; those without rotary positions, with use_sliding_window */
    WINDOW_PATTERN       /* layer_types; all but each window_pattern-th */
};

struct llama_traits {
    const char *model_type;

    /* the block */
    const struct block_norms *norms;
    double norm_offset; /* a norm multiplies by its weight + this */
    enum query_norm query_norm;
    const struct gate_kind *gate, *other_gate; /* NULL: there is one alone */
    bool packed; /* checkpoints hold qkv_proj and gate_up_proj, each one tensor */
    const struct expert_traits *experts; /* of the feed-forward layers; NULL: they are dense */
    bool embedding_grows;                /* embeddings are multiplied by sqrt(hidden_size) */

    /* keys that are read */
    bool qkv_bias;             /* always (Qwen2); else attention_bias decides */
    bool has_qkv_bias;         /* qkv_bias, true unless given */
    bool has_qkv_clip;         /* clip_qkv */
    bool has_attention_bias;   /* attention_bias: q, k, v and the output projection */
    bool has_mlp_bias;         /* mlp_bias */
    bool kv_heads_required;    /* absent would mean a number made for one model size */
    bool has_residual_dropout; /* resid_pdrop */
    bool skips_rope;           /* no_rope_layers, no_rope_layer_interval */
    bool has_query_scalar;     /* query_pre_attn_scalar */
    bool has_attention_cap;    /* attn_logit_softcapping */
    bool has_logit_cap;        /* final_logit_softcapping */
    bool has_local_rope;       /* rotary positions of their own where the window holds */
    bool has_window_pattern;   /* sliding_window_pattern */
    enum window_rule window;
    struct rope_rules rope;

    /* presets of keys, as transformers has them */
    int64_t head_dim; /* 0: hidden / heads */
    int64_t window_preset, window_pattern;
    double norm_epsilon, attention_cap, logit_cap, local_theta;
    bool tied;
};

extern const char *const llama_model_types[], *const llama_architectures[];
/* NULL: there is none of that model_type. */
const struct llama_traits *llama_traits_of(const char *model_type);

struct llama_layer {
    bool slides;  /* the window holds */
    bool rotates; /* positions are rotary; else there are none */
};

struct llama_config {
    const struct llama_traits *traits;
    const struct gate_kind *gate; /* one of theirs */
    int64_t heads, kv_heads, head_dim, intermediate;
    double norm_epsilon, init_std, attention_dropout, residual_dropout;
    double query_scalar;             /* scores are divided by its root */
    double attention_cap, logit_cap; /* 0: none */
    double qkv_clip;                 /* queries, keys and values lie within +-this; 0: anywhere */
    bool qkv_bias, out_bias, mlp_bias;
    struct rope rope, local_rope; /* local: of the layers that slide, where traits have it */
    int64_t window;               /* sliding_window; 0: none */
    int64_t window_pattern;
    struct llama_layer *layers; /* [n_layers] */
    struct experts experts;     /* where the traits have them */
};

enum status llama_parse(struct model *m, const json_t *config,
                        const struct key_origin *origin) MUST_CHECK;
json_t *llama_export_config(const struct model *m);

#ifdef __cplusplus
}
#endif
#endif
