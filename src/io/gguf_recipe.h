/* gguf_recipe.h: types of the tensors of a GGUF file. Inside io/. */
#ifndef SNUG_IO_GGUF_RECIPE_H
#define SNUG_IO_GGUF_RECIPE_H

#include "io/gguf_export.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gguf_wanted {
    const char *name; /* in the file */
    int rank;
    int64_t row_elems;
    int64_t layer; /* -1: of none */
    int64_t n_layers, n_experts;
    bool tied; /* the embedding is the head too */
};

uint32_t gguf_recipe_id(enum gguf_recipe recipe); /* general.file_type */
/* *wider: its rows are no whole blocks of what the recipe asks for. */
enum gguf_type gguf_recipe_type(enum gguf_recipe recipe, const struct gguf_wanted *w, bool *wider);

#ifdef __cplusplus
}
#endif
#endif
