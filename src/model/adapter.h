/* adapter.h: which parameters of a model are trained: all of them, some, or none but small matrices
 * beside its linear layers (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021):
 *
 *     y = x W^T + scale (x A^T) B^T          W [out, in] as it is, A [rank, in], B [out, rank]
 *
 * Modules are named by their path in Hugging Face's model ("model.layers.0.self_attn.q_proj"), in
 * full or by its last parts ("q_proj"), as PEFT does. Layers that the graph computes as one product
 * (q, k and v) keep an adapter each, and so does every expert of a mixture; those have them only
 * where they are named.
 */
#ifndef SNUG_MODEL_ADAPTER_H
#define SNUG_MODEL_ADAPTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct model;
struct model_graph;
struct model_param;
struct builder;

/* Before the path of a module in the names of an adapter's tensors, as PEFT writes them. */
#define PEFT_PREFIX "base_model.model."

struct name_list {
    const char *const *items;
    size_t n;
};

/* What holds for some modules only. */
struct adapter_pattern {
    const char *module;
    double value;
};

enum adapter_bias { ADAPTER_BIAS_NONE, ADAPTER_BIAS_ALL, ADAPTER_BIAS_LORA_ONLY };

struct adapter {
    int64_t rank;
    double alpha;         /* scale = alpha / rank */
    bool rank_stabilised; /* scale = alpha / sqrt(rank) */
    double dropout;       /* of what A sees, when training */
    bool magnitude;       /* DoRA: the rows of W + scale B A have trained lengths */
    bool all_linear;      /* every linear layer but the head has one; else those of `targets` */
    struct name_list targets;
    struct name_list saved; /* modules that are trained whole */
    enum adapter_bias bias; /* biases that are trained too: of all layers, of adapted ones */
    const struct adapter_pattern *ranks, *alphas;
    size_t n_ranks, n_alphas;
};

/* Whether the module of this path is meant by a name: the path, or its last parts. */
bool module_matches(const char *path, const char *name);
/* Whether a tensor ("..q_proj.weight") is of a module that a name means. */
bool module_has(const char *tensor, const char *name);

/* Whether a name of `targets` means the module; and with `all_linear`. */
bool adapter_names(const struct adapter *a, const char *path);
bool adapter_has(const struct adapter *a, const char *path);
int64_t adapter_rank_of(const struct adapter *a, const char *path);
double adapter_scale_of(const struct adapter *a, const char *path);

/* Parameters by name: patterns with `*`, `?` and `[..]` over the names of tensors in a checkpoint
 * or our own, whole modules ("model.embed_tokens"), and blocks ("0-3", "7"). */
struct freezing {
    struct name_list frozen;  /* all others are trained */
    struct name_list trained; /* of those, or of all where `frozen` is empty */
};

/* Whether a pattern, as above, means piece k of a parameter; the block that the parameter is of, or
 * BLOCK_NONE. */
bool param_is_meant(const struct model_param *p, int k, const char *pattern);
int64_t param_block(const struct model_param *p);

/* How fast parameters learn beside the others. */
struct learning_rates {
    double layer_decay; /* from block to block, downwards; 0: all learn alike */
    bool has_embedding;
    double embedding; /* of the learning rate */
    const struct adapter_pattern *patterns;
    size_t n_patterns;
};

/* Gives every parameter of a built model its share of the learning rate. ERR_CONFIG as above. */
enum status model_set_rates(const struct model *m, struct model_graph *g) MUST_CHECK;

/* Marks what of a built model's parameters is frozen, in its table and in the graph, and what of
 * that is kept as codes. ERR_CONFIG
 * when a name means no parameter, or some of what one parameter is made of but not the rest. */
enum status model_mark_frozen(const struct model *m, struct builder *b,
                              struct model_graph *g) MUST_CHECK;
/* ERR_CONFIG when nothing of it is trained: such steps would change nothing. */
enum status model_check_trained(const struct model *m, const struct model_graph *g) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
