/* model.h: an architecture is a function from a config to a graph.
 *
 * `struct model` is a parsed Hugging Face config.json (or the same keys inline under `model:`).
 * model_build() writes its graph for one purpose (train, evaluate, score, decode) and shape; the
 * parameters come out in the same order whatever the purpose, so programs built from different
 * graphs of one model share storage by parameter name.
 */
#ifndef SNUG_MODEL_MODEL_H
#define SNUG_MODEL_MODEL_H

#include <jansson.h>

#include "base/pool.h"
#include "graph/builder.h"
#include "graph/quantized.h"
#include "model/adapter.h"
#include "model/key_origin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a parameter's rows come from in a Hugging Face checkpoint: tensors stacked along axis 0
 * (q, k, v into one packed projection; gate and up into one). */
struct hf_piece {
    const char *name; /* tensor name, e.g. "model.layers.0.self_attn.q_proj.weight" */
    int64_t rows;     /* rows of our tensor it fills (its out-features) */
};

/* COUNTS: log 1, log 2, .. along the last axis; STEPS: x with log(1 + e^x) spread evenly in its
 * logarithm from 0.001 to 0.1 (both of state spaces). */
enum init_kind { INIT_ZERO, INIT_ONE, INIT_NORMAL, INIT_UNIFORM, INIT_COUNTS, INIT_STEPS };

struct model_param {
    const char *name; /* ours; unique, stable: checkpoints and programs refer to it */
    value_id value;
    value_id latest; /* of a buffer: what the forward pass has made of it so far */
    struct shape shape;
    enum init_kind init;
    double std;       /* INIT_NORMAL */
    double bound;     /* INIT_UNIFORM: between -bound and bound */
    bool decay;       /* weight decay applies (matrices, not norms and biases) */
    bool frozen;      /* not trained (adapter.h says which) */
    double lr_factor; /* of the learning rate */
    bool adapter;     /* of the adapter: not in the files of the model itself */
    bool buffer;      /* no parameter but a state of the network (running statistics), which the
                       * forward pass writes: kept with the weights, never trained, not counted */
    bool table;       /* rows are looked up, and nothing is multiplied by it */
    bool linear;      /* the weight of a linear layer of a block */
    bool head;        /* the weight of the head alone, not the embedding's too */
    /* Kept as codes and scales; its value then stands for the codes (precision/quantize.h). */
    struct quantization quantization;
    bool transposed; /* stored [in, out] in the checkpoint (GPT-2's Conv1D) */
    /* Above 0: a row (all axes but the first) is [.., channels] here and [channels, ..] in the
     * checkpoint, as PyTorch lays out convolutions and what follows a flattened image. */
    int64_t channels;
    bool flat; /* and the checkpoint's tensor is a matrix as ours is */
    /* [E, ...]: what E experts have each of their own. Pieces are parts of one expert's tensor,
     * which has no axis for experts; a token meets `n_met` of them. 0: every token meets all. */
    int64_t n_experts, n_met;
    const struct hf_piece *pieces;
    int n_pieces;
    /* A second tensor name some checkpoints store the same parameter under (a tied head), or NULL.
     */
    const char *tied_name;
    /* The tensor that has the whole parameter, in its shape, where a checkpoint has none of the
     * pieces: all experts in one, as transformers 5 holds them. NULL: there is no such name. */
    const char *stacked_name;
};

/* An adapter of one module: rows [first, first + rows) of the weight params[base], which is W. Of
 * n_experts above 0: of all experts of a mixture, of each of whose matrices it is these rows. */
struct model_adapter {
    const char *module; /* its path in Hugging Face's model; the first expert's */
    int64_t n_experts;
    int base;
    int64_t first, rows;
    double scale;
    int down, up;  /* A and B, in the table of parameters */
    int magnitude; /* DoRA: the lengths of rows; -1: there are none */
};

enum model_purpose {
    MODEL_TRAIN,  /* losses with dropout: a batch -> sums and counts */
    MODEL_EVAL,   /* losses without dropout */
    MODEL_SCORE,  /* logits of every position: tokens -> logits [B, T, V] */
    MODEL_DECODE, /* with a key/value cache: tokens, position -> logits of the last token [B, V] */
};

struct model_request {
    enum model_purpose purpose;
    int64_t batch, seq_len;
    int64_t cache_len; /* DECODE */
    bool packed;       /* TRAIN, EVAL: samples share rows; "positions" says where they begin */
    bool pairs;        /* TRAIN, EVAL: rows come in pairs, and each has a loss of its own */
    bool no_adapter;   /* the adapter's parameters are there and add nothing */
    enum dtype dtype;  /* of parameters and activations as built (F32; passes may change it) */
    /* loss */
    int64_t loss_chunks; /* 0: the kernel chooses */
    double label_smoothing, z_loss;
    double embedding_noise; /* TRAIN: NEFTune's alpha; 0: none */
};

enum { MODEL_MOST_SUMS = 24, MODEL_MOST_LOSSES = 16 };

/* One of the losses that training minimises the weighted sum of; it has the name of its sum. */
struct model_loss {
    double weight;  /* 0: it is told, and not minimised */
    int sum, count; /* in model_graph.sums: it is the one divided by the other */
};

/* What model_build gives: value ids in the builder's graph. VALUE_NONE where the purpose has none.
 * The arrays live in the graph's pool. Inputs are the graph's, by name. Nothing is declared an
 * output of the graph: what the host reads is the caller's to say. */
struct model_graph {
    /* Float inputs and constants that meet weights: they have the dtype of weights, whatever that
     * is in a run. The others (targets) stay f32. */
    const value_id *features;
    int n_features;
    value_id rng;       /* i64 [2] input, when dropout is on; else VALUE_NONE */
    value_id position;  /* i32 [1] input (DECODE): position of the first token */
    value_id positions; /* i32 [T] input (DECODE): position, position + 1, ... */
    value_id logits;
    value_id row_losses; /* [batch], where rows come in pairs: each the sum over its labels */
    value_id reference;  /* what a task computes before it trains; else VALUE_NONE */
    /* f32 numbers to be added up over micro-steps and batches, then read by the host */
    struct graph_output sums[MODEL_MOST_SUMS];
    int n_sums;
    struct model_loss losses[MODEL_MOST_LOSSES];
    int n_losses;
    value_id *caches; /* [n_blocks], DECODE: states "cache.<layer>" [2, B, cache_len, KV, D] */
    struct model_param *params;
    int n_params;
    struct model_adapter *adapters;
    int n_adapters;
    int n_blocks;
};

struct model;

struct model_def {
    const char *name;
    const char *const *model_types;   /* HF model_type spellings, NULL-terminated */
    const char *const *architectures; /* what each saves as architectures[0], same order */
    const char *implied_by; /* a key that says as much as model_type; NULL: there is none */
    /* Reads HF keys into a config in the model's pool. Keys that ask for something we lack are
     * errors; of unknown ones, those a person wrote. */
    enum status (*parse)(struct model *m, const json_t *config, const struct key_origin *origin);
    enum status (*build)(const struct model *m, struct builder *b, const struct model_request *r,
                         struct model_graph *out);
    /* The config as HF config.json keys (both v4 and v5 spellings where they differ). */
    json_t *(*export_config)(const struct model *m);
};

/* What there is to know of a model of language beside its graph: for the task, for generation. */
struct language_facts {
    int64_t vocab_size, context;
    int64_t attention_width;          /* query heads x head size */
    int64_t eos_token, bos_token;     /* -1: none given */
    bool tied;                        /* the head's weight is the embedding table */
    int64_t local_blocks, block_size; /* attention_blocks.h; 0 of them: all tokens */
};

/* How made-up numbers of a field are drawn. */
enum field_draw { DRAW_NORMAL, DRAW_UNIFORM, DRAW_BITS, DRAW_CODES }; /* codes: 0 .. 1023 */

/* A tensor of a sample, for models whose samples are tensors. */
struct model_field {
    const char *name;   /* of the graph's input */
    struct shape shape; /* of one sample: the graph's has the batch before it */
    bool is_target;
    int64_t n_classes; /* above 0: i32 labels below it; else numbers */
    enum field_draw draw;
};

/* What there is to know of a model whose samples are tensors. */
struct sample_facts {
    const struct model_field *fields; /* inputs, then targets */
    int n_fields;                     /* 0: it is a model of language */
    /* What a loss takes over all samples of a batch at once, so that micro-batches would change
     * it; NULL: nothing. */
    const char *coupling;
    bool has_batch_norm; /* statistics are those of a micro-batch */
};

struct model {
    struct pool pool;
    const struct model_def *def;
    const char *model_type; /* which of def->model_types */
    void *config;           /* the architecture's own struct */
    json_t *source;         /* the config as given: export keeps keys that mean nothing to us */
    /* set by parse */
    int64_t n_layers, hidden;
    struct language_facts language;
    struct sample_facts samples;
    bool balances_tokens; /* experts, over those of a micro-batch: its size is of the mathematics */
    /* set by the caller, in the model's pool: what is trained of it */
    const struct adapter *adapter; /* NULL: it has none */
    struct freezing freezing;
    struct learning_rates rates;
    /* How weights of linear layers are kept that are not trained. Set by parse where the folder
     * holds them so, but for the modules that it names; else by the caller. */
    struct quantization quantization;
    struct name_list unquantized;
    bool stored_quantized; /* the folder says so */
    bool ternary;          /* BitNet b1.58: blocks compute with rounded weights and activations */
};

/* All that is wrong with the config is one error. */
enum status model_new(struct model **out, const json_t *config,
                      const struct key_origin *origin) MUST_CHECK;
void model_free(struct model *m);
enum status model_build(const struct model *m, struct builder *b, const struct model_request *r,
                        struct model_graph *out) MUST_CHECK;
/* New reference, NULL when out of memory. Says float32 until model_config_set_dtype. */
json_t *model_export_config(const struct model *m);
/* Writes the dtype of the weights beside a config under both spellings (dtype, torch_dtype). */
enum status model_config_set_dtype(json_t *config, enum dtype dtype) MUST_CHECK;

/* Adds a parameter with its value to the graph; *room is that of out->params, which grows. */
value_id model_add_param(struct builder *b, struct model_graph *out, int *room,
                         struct model_param param, enum dtype dtype);

/* Elements of all parameters together, buffers left out; and of those that one token meets. */
int64_t model_count_params(const struct model_graph *g);
int64_t model_count_active(const struct model_graph *g);
/* Those that are trained; and frozen ones that a token is multiplied by. */
int64_t model_count_trained(const struct model_graph *g);
int64_t model_count_frozen(const struct model_graph *g);

/* What piece k of a parameter looks like, and the elements of one of its rows. */
struct shape param_piece_shape(const struct model_param *p, int k);
int64_t param_row_elems(const struct model_param *p);
/* How a parameter that is kept as codes lies in memory. */
/* Elements that are read and written together, as they change places in a checkpoint's tensor: all
 * of a transposed parameter, a row of one with channels; 1: none does. */
int64_t param_unit(const struct model_param *p);
struct quant_layout param_quant_layout(const struct model_param *p);

#ifdef __cplusplus
}
#endif
#endif
