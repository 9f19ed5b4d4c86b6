/* convolution.h: convolutions of networks of layers, also those written in C. */
#ifndef SNUG_MODEL_LAYERS_CONVOLUTION_H
#define SNUG_MODEL_LAYERS_CONVOLUTION_H

#include "model/layers/windows.h"

#ifdef __cplusplus
extern "C" {
#endif

struct conv_layer {
    int64_t n_out, groups;
    struct layer_window window;
    bool bias;
    struct weight_init init;
};

/* x [B, D.., C] -> [B, D'.., n_out]; parameters "weight" and "bias". */
value_id writer_conv(struct writer *w, value_id x, const struct conv_layer *l);
value_id writer_conv_transpose(struct writer *w, value_id x, const struct conv_layer *l);

#ifdef __cplusplus
}
#endif
#endif
