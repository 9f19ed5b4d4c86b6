/* modules.h: what networks written in C are put together from: layers under the name of a module,
 * so that their parameters are called as PyTorch calls them ("stem.weight" of module "stem").
 *
 * A module that is written again while writer.repeats is set has the weights it had.
 */
#ifndef SNUG_MODEL_LAYERS_MODULES_H
#define SNUG_MODEL_LAYERS_MODULES_H

#include "model/layers/convolution.h"

#ifdef __cplusplus
extern "C" {
#endif

/* With weights that begin as writer.init says, and biases. */
value_id module_linear(struct writer *w, const char *name, value_id x, int64_t n_out);
/* One number for all axes; conv_of gives what module_conv takes, to be changed where axes differ.
 */
struct conv_layer conv_of(int64_t n_out, int64_t kernel, int64_t stride, int64_t padding);
value_id module_conv(struct writer *w, const char *name, value_id x, struct conv_layer l);
value_id module_conv_transpose(struct writer *w, const char *name, value_id x, struct conv_layer l);

value_id module_batch_norm(struct writer *w, const char *name, value_id x);
value_id module_group_norm(struct writer *w, const char *name, value_id x, int64_t groups);
value_id module_layer_norm(struct writer *w, const char *name, value_id x);

/* Attention of all tokens to each other, then a feed-forward network, x [B, T, d] -> the same. */
struct encoder_layer {
    int64_t heads, hidden; /* of attention; of the feed-forward network */
    double dropout;        /* of probabilities, of what is added, inside the feed-forward network */
    bool norms_first;      /* norms before what is added to x, else after the sum */
    const char *mask;      /* the input that says which steps are padding; NULL: none is */
};
value_id module_encoder(struct writer *w, const char *name, value_id x,
                        const struct encoder_layer *l);

/* The first half of it alone: x [B, T, d], heads of d / heads channels each. */
value_id module_attention(struct writer *w, const char *name, value_id x, int64_t heads,
                          double dropout);

/* Attention of x [B, T, d] to `from` [B, S, c], which may be x itself; mask i32 [B, S] is 0 where a
 * step of `from` is padding (VALUE_NONE: none is). Parameters as module_attention's. */
struct cross_layer {
    int64_t heads;
    double dropout;
};
value_id module_cross_attention(struct writer *w, value_id x, value_id from, value_id mask,
                                const struct cross_layer *l);

/* A recurrent network over the steps of x [B, T, C] -> [B, T, hidden]; twice as wide where it is
 * walked both ways. Parameters as PyTorch's nn.LSTM and nn.GRU have them. */
struct recurrent_layer {
    bool is_gru;
    int64_t hidden, n_layers;
    bool both_ways;
    double dropout; /* between layers */
};
value_id module_recurrent(struct writer *w, const char *name, value_id x,
                          const struct recurrent_layer *l);

/* A selective state space over the steps of x [B, T, C] -> the same, with parameters as Mamba has
 * them ("Mamba", Gu and Dao 2023). */
struct state_space_layer {
    int64_t states, kernel, expand;
};
value_id module_state_space(struct writer *w, const char *name, value_id x,
                            const struct state_space_layer *l);

/* Attention of the nodes x [B, N, C] to those that edges come from, and what they make of each
 * other
 * -> [B, N, heads width], with parameters as PyTorch Geometric's GATConv has them ("Graph Attention
 * Networks", Velickovic et al. 2018). */
struct graph_edges {
    value_id from, to;
};
struct graph_layer {
    int64_t heads, width;
    double dropout; /* of the weights of edges */
};
/* Neighbours of a grid, up and down and to both sides, and every node to itself. */
struct graph_edges writer_grid(struct writer *w, int64_t height, int64_t width);
value_id module_graph_attention(struct writer *w, const char *name, value_id x,
                                struct graph_edges edges, const struct graph_layer *l);

/* ---- without weights ------------------------------------------------------------------------- */

value_id writer_op(struct writer *w, enum op_id op, value_id x);
value_id writer_op2(struct writer *w, enum op_id op, value_id a, value_id b);
value_id writer_scaled(struct writer *w, value_id x, double factor);
value_id writer_leaky_relu(struct writer *w, value_id x, double slope);
value_id writer_max_pool(struct writer *w, value_id x, int64_t kernel, int64_t stride,
                         int64_t padding);
/* To the sizes of the axes between batch and channels; linear interpolation. */
value_id writer_resize(struct writer *w, value_id x, const int64_t *sizes);
/* Over all axes between batch and channels: [B, .., C] -> [B, C]. */
value_id writer_global_mean(struct writer *w, value_id x);
/* Places [start, start + length) of an axis; concat along one. */
value_id writer_slice(struct writer *w, value_id x, int64_t axis, int64_t start, int64_t length);
value_id writer_concat(struct writer *w, const value_id *parts, int n, int64_t axis);
/* Step t of x [B, T, ..] -> [B, ..], and x [B, ..] as one step of a sequence: [B, 1, ..]. */
value_id writer_step(struct writer *w, value_id x, int64_t t);
value_id writer_as_step(struct writer *w, value_id x);
/* sum over t of weights[b, t] x[b, t, c]: [B, T, C] and [B, T] -> [B, C]. */
value_id writer_weighted_sum(struct writer *w, value_id x, value_id weights);

/* ---- of a network as a whole ----------------------------------------------------------------- */

/* Writes the network once as for training, to see that it can be and what its samples are. */
enum status model_try(struct model *m,
                      void (*write)(struct writer *w, const void *config)) MUST_CHECK;
/* The build function of a model whose graph is what `write` writes. */
enum status model_write(const struct model *m, struct builder *b, const struct model_request *r,
                        struct model_graph *out,
                        void (*write)(struct writer *w, const void *config)) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
