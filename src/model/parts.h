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

#ifdef __cplusplus
extern "C" {
#endif

struct parts {
    const struct model *m;
    struct builder *b;
    const struct model_request *r;
    struct model_graph *out;
    value_id tokens;       /* i32 [B, T] input */
    value_id targets;      /* i32 [B, T] input, -100 = ignored; VALUE_NONE: no loss is wanted */
    const char *hf_root;   /* "transformer.", "model." */
    const char *hf_layers; /* "h", "layers" */
    int max_params;
    int64_t n_dropouts;
};

/* Sets up `out`: room for max_params parameters, and the inputs the purpose needs. */
void parts_begin(struct parts *p, int max_params);

/* Full names in the graph's pool; "" after a failure. */
const char *parts_name(const struct parts *p, const char *name);
const char *parts_hf_name(const struct parts *p, const char *name);

/* Adds a parameter of one checkpoint tensor; hf_name is full (parts_hf_name makes one). */
value_id parts_param(struct parts *p, const char *name, const char *hf_name, struct shape shape,
                     enum init_kind init, double std);

enum { PARTS_MAX_STACK = 3 };

/* y = x W^T + b. The checkpoint has it as layers named pieces[i] of rows[i] outputs each, without
 * ".weight" and ".bias", stacked in this order. */
struct linear_spec {
    const char *name;
    int64_t n_in;
    const char *pieces[PARTS_MAX_STACK]; /* NULL after the last */
    int64_t rows[PARTS_MAX_STACK];
    double std;
    bool bias, transposed;
};
value_id parts_linear(struct parts *p, value_id x, const struct linear_spec *s);

value_id parts_layer_norm(struct parts *p, value_id x, const char *name, const char *hf_name,
                          double epsilon);
value_id parts_rms_norm(struct parts *p, value_id x, const char *name, const char *hf_name,
                        double epsilon);

struct attention_spec {
    int64_t heads, kv_heads, head_dim;
    int64_t window; /* 0: none */
    double scale;
    double dropout; /* of the probabilities, when training */
};
/* qkv [B, T, (heads + 2 kv_heads) head_dim] -> [B, T, heads head_dim]; DECODE: through a cache. */
value_id parts_attention(struct parts *p, value_id qkv, const struct attention_spec *s);

/* x itself unless training with a rate above 0. */
value_id parts_dropout(struct parts *p, value_id x, double rate);

/* The hidden states the head will see: all [B, T, C], or the last [B, C] when decoding. */
value_id parts_head_input(struct parts *p, value_id x);
/* Loss or logits of normalised hidden states with the head's weight [V, C]. */
void parts_head(struct parts *p, value_id x, value_id weight);

#ifdef __cplusplus
}
#endif
#endif
