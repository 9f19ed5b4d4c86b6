/* parts.h: the pieces architectures are put together from: a parameter and its place in a
 * checkpoint, a linear layer, norms, attention with or without a cache, dropout, the head.
 *
 * A struct parts is on the stack of one build function. Errors are sticky in the builder.
 * Names: inside block i (b->block = i) ours are "layers.<i>.<name>" and Hugging Face's
 * "<root><layers>.<i>.<name>"; outside "<name>" and "<root><name>".
 */
#ifndef SNUG_MODEL_PARTS_H
#define SNUG_MODEL_PARTS_H

#include "model/model.h"
#include "model/rope.h"

#ifdef __cplusplus
extern "C" {
#endif

struct parts {
    const struct model *m;
    struct builder *b;
    const struct model_request *r;
    struct model_graph *out;
    value_id tokens;       /* i32 [B, T] input */
    value_id positions;    /* i32 [T], or [B, T] where samples share rows; VALUE_NONE: 0 .. T-1 */
    value_id targets;      /* i32 [B, T] input, -100 = ignored; VALUE_NONE: no loss is wanted */
    const char *hf_root;   /* "transformer.", "model." */
    const char *hf_layers; /* "h", "layers" */
    int params_room;       /* of out->params; grows */
    int64_t n_dropouts;
};

/* Sets up `out` with the inputs the purpose needs. */
void parts_begin(struct parts *p);

/* Full names in the graph's pool; "" after a failure. */
const char *parts_name(const struct parts *p, const char *name);
const char *parts_hf_name(const struct parts *p, const char *name);

/* Adds a parameter of one checkpoint tensor; hf_name is full (parts_hf_name makes one). */
value_id parts_param(struct parts *p, const char *name, const char *hf_name, struct shape shape,
                     enum init_kind init, double std);

/* The table of token embeddings, "embed.weight", which is the head too where the config ties them.
 */
value_id parts_embedding(struct parts *p, const char *hf_name, double std);

/* The weight of the head: that table where the config ties them, else "head.weight". */
value_id parts_head_weight(struct parts *p, value_id table, double std);

/* The same for any parameter: adds it, with what all of them have filled in. */
value_id parts_add_param(struct parts *p, struct model_param param);

#define PIECES(...)                                   \
    .pieces = (const struct hf_piece[]){__VA_ARGS__}, \
    .n_pieces = (int)(sizeof((const struct hf_piece[]){__VA_ARGS__}) / sizeof(struct hf_piece))

/* y = x W^T + b, of layers of the checkpoint stacked in their order. Their names are without
 * ".weight" and ".bias" here. */
struct linear_spec {
    const char *name;
    int64_t n_in;
    const struct hf_piece *pieces; /* set by PIECES({"name", rows}, ...) */
    int n_pieces;
    double std;
    bool bias, transposed;
};
value_id parts_linear(struct parts *p, value_id x, const struct linear_spec *s);

value_id parts_layer_norm(struct parts *p, value_id x, const char *name, const char *hf_name,
                          double epsilon);

/* RMS norm over the last axis, n long, times weight + offset. */
struct rms_norm_spec {
    const char *name, *hf_name;
    int64_t n;
    double epsilon, offset;
};
value_id parts_rms_norm(struct parts *p, value_id x, const struct rms_norm_spec *s);

/* The table of angles that rotary positions go by, a constant. */
value_id parts_inv_freq(struct parts *p, const char *name, const struct rope *rope,
                        int64_t head_dim);

struct attention_spec {
    int64_t heads, kv_heads, head_dim;
    int64_t window; /* 0: none */
    double scale;
    double softcap; /* of the scores; 0: none */
    double dropout; /* of the probabilities, when training */
};
/* qkv [B, T, (heads + 2 kv_heads) head_dim] -> [B, T, heads head_dim]; DECODE: through a cache. */
value_id parts_attention(struct parts *p, value_id qkv, const struct attention_spec *s);

/* x itself unless training with a rate above 0. */
value_id parts_dropout(struct parts *p, value_id x, double rate);

/* Embeddings of tokens with noise, as large as alpha / sqrt(T C), when training with it (Jain et
 * al., "NEFTune: Noisy Embeddings Improve Instruction Finetuning"); else x itself. */
value_id parts_embedding_noise(struct parts *p, value_id x);

/* The hidden states the head will see: all [B, T, C], or the last [B, C] when decoding. */
value_id parts_head_input(struct parts *p, value_id x);
/* Loss or logits of normalised hidden states with the head's weight [V, C]; logits are under a soft
 * cap where it is not 0. */
void parts_head(struct parts *p, value_id x, value_id weight, double softcap);

#ifdef __cplusplus
}
#endif
#endif
