/* writer.h: what networks of layers are written with: inputs, parameters, and the layers that have
 * parameters.
 *
 * A struct writer is on the stack of one build function; errors are sticky in the builder. Names of
 * parameters are those PyTorch gives them: "<prefix>weight", where the prefix is the path through
 * the modules ("3.0.").
 */
#ifndef SNUG_MODEL_LAYERS_WRITER_H
#define SNUG_MODEL_LAYERS_WRITER_H

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How weights begin. The preset is PyTorch's: spread evenly up to 1 / sqrt(inputs of a unit). */
enum weight_rule { WEIGHT_PRESET, WEIGHT_KAIMING, WEIGHT_XAVIER, WEIGHT_NORMAL, WEIGHT_ZERO };

struct weight_init {
    enum weight_rule rule;
    bool uniform; /* KAIMING, XAVIER: spread evenly, else normal */
    bool fan_out; /* KAIMING: by the outputs of a unit, else by its inputs */
    double std;   /* NORMAL */
};

enum { WRITER_MOST_TABLES = 4 };  /* constants that meet weights */
enum { WRITER_MOST_FIELDS = 15 }; /* of a batch, beside which samples count */

struct layer;

/* In the graph's pool. */
struct named_value {
    const char *name;
    value_id value;
    struct named_value *before;
};

struct writer {
    struct builder *b;
    const struct model_request *r;
    struct model_graph *out;
    const char *prefix;
    struct weight_init init;                       /* of modules (modules.h) */
    struct model_field fields[WRITER_MOST_FIELDS]; /* inputs made so far */
    value_id values[WRITER_MOST_FIELDS];
    int n_fields;
    struct named_value *named; /* what layers with names have made so far, the last first */
    value_id tables[WRITER_MOST_TABLES];
    int n_tables;
    value_id valid; /* f32 [B]: 1 for samples that count; VALUE_NONE: no loss yet */
    int n_blocks;
    int depth; /* lists inside lists */
    int params_room;
    int64_t n_dropouts;
    /* Channels of an image whose values were put in a row: what reads the row has the order of a
     * checkpoint's columns from it. 0: nothing was. */
    int64_t flat_channels;
    /* The modules written now were written before, with the same names: they have the weights they
     * had, and running statistics go on from where they are. */
    bool repeats;
    bool has_batch_norm;
    const char *coupling;       /* as in struct sample_facts */
    const struct layer *failed; /* the innermost layer whose writing failed; NULL: none */
};

/* Sets up `out`. */
void writer_begin(struct writer *w, struct builder *b, const struct model_request *r,
                  struct model_graph *out);
/* What is only known at the end: features, blocks. */
void writer_end(struct writer *w);
/* And what the model then knows of its samples: fields, blocks, what couples them. */
enum status writer_facts(const struct writer *w, struct model *m) MUST_CHECK;

/* An input of the graph for a field of the samples; one of the same name is taken again. */
value_id writer_input(struct writer *w, const struct model_field *f);
/* The input of that name; VALUE_NONE: there is none. */
value_id writer_find(const struct writer *w, const char *name);
/* Which steps of a sequence of n_steps are padding: i32 [B, n_steps], 0 where one is. It comes with
 * the batch as `name`, which must be no other input's. */
value_id writer_mask(struct writer *w, const char *name, int64_t n_steps);

/* What a layer of that name has made; of several the last that was written. */
void writer_name(struct writer *w, const char *name, value_id x);
/* An input, or what a layer has made; VALUE_NONE: neither has the name. */
value_id writer_find_named(const struct writer *w, const char *name);

/* From here on nodes belong to a new block. */
void writer_start_block(struct writer *w);

/* The names inside module `name` ("": those outside): returns the prefix to be put back. */
const char *writer_enter(struct writer *w, const char *name);

/* x [.., I] -> [.., n_out]. */
struct linear_layer {
    int64_t n_out;
    bool bias;
    struct weight_init init;
};
value_id writer_linear(struct writer *w, value_id x, const struct linear_layer *l);

/* A weight of `fan_in` inputs and `fan_out` outputs to a unit, and a bias beside such a weight. */
value_id writer_weight(struct writer *w, const char *suffix, struct shape shape, int64_t fan_in,
                       int64_t fan_out, const struct weight_init *init);
value_id writer_bias(struct writer *w, int64_t n, int64_t fan_in, const struct weight_init *init);
/* Any other: a vector of norms, say. */
value_id writer_param(struct writer *w, const char *suffix, struct model_param param);

#define NORM_EPSILON 1e-5
/* y = (x - mean) / deviation by row, or by a sample's group of channels; with weight and bias. */
value_id writer_layer_norm(struct writer *w, value_id x, double epsilon);
value_id writer_group_norm(struct writer *w, value_id x, int64_t groups, double epsilon);

/* By channel, over all else: in training with the statistics of the batch, which also move the
 * running ones ("running_mean", "running_var"); otherwise with those. */
#define BATCH_NORM_EPSILON  1e-5
#define BATCH_NORM_MOMENTUM 0.1
struct batch_norm_layer {
    double epsilon, momentum;
};
value_id writer_batch_norm(struct writer *w, value_id x, const struct batch_norm_layer *l);

/* x itself unless training with a rate above 0; whole channels of a sample, or each number. */
value_id writer_dropout(struct writer *w, value_id x, double rate, bool channels);

/* The input that every dropout of the graph draws from. */
value_id writer_random_state(struct writer *w);

/* A number as a tensor without axes; the same one again for the same number. */
value_id writer_number(struct writer *w, double number);

/* A constant that meets weights: it has their dtype, whatever that is in a run. */
value_id writer_table(struct writer *w, const char *name, struct shape shape, const float *data);

/* Channels of x [B, .., C]. */
int64_t writer_channels(const struct writer *w, value_id x);

#ifdef __cplusplus
}
#endif
#endif
