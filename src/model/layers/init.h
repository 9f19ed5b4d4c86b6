/* init.h: `init:` of a layer or a network. */
#ifndef SNUG_MODEL_LAYERS_INIT_H
#define SNUG_MODEL_LAYERS_INIT_H

#include "model/config_keys.h"
#include "model/layers/writer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The key `init` of k: the name of a rule, or {normal: 0.02}; absent: the preset given. */
struct weight_init init_parse(struct keys *k, struct weight_init preset);

#ifdef __cplusplus
}
#endif
#endif
