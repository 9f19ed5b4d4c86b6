/* gguf_model.h: what llama.cpp calls our models: architectures, keys, names of tensors. */
#ifndef SNUG_IO_GGUF_MODEL_H
#define SNUG_IO_GGUF_MODEL_H

#include "io/gguf.h"
#include "model/llama.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gguf_family {
    const char *model_type;   /* ours, as Hugging Face's */
    const char *architecture; /* general.architecture */
    bool pairs;      /* rotary channels are pairs (2 i, 2 i + 1) there, and halves in our rows */
    bool needs_head; /* a head of its own: none that is the embedding */
    bool needs_tied; /* a head that is the embedding */
    bool normalizes; /* weights of a token's experts sum to 1 */
    bool scales_by_table;  /* reads llama3's rotary scaling, as the tensor rope_freqs.weight */
    bool names_window;     /* says how long windows are, though llama.cpp has none there */
    int64_t window_period; /* all layers but each n-th have the window; 0: there are no windows */
    int64_t scaled_layers; /* with so many, scores are divided by sqrt(hidden / heads) */
};

/* ERR_UNSUPPORTED, with the reason, for a model that llama.cpp has no form for. */
enum status gguf_family_find(const struct gguf_family **out, const struct model *m) MUST_CHECK;

/* What differs in use without making the export wrong; "": nothing. */
void gguf_caveats(const struct model *m, const struct gguf_family *f, struct str *out);

/* The architecture's keys. */
enum status gguf_model_keys(struct gguf *g, const struct model *m,
                            const struct gguf_family *f) MUST_CHECK;

/* Adds the name of a checkpoint's tensor there. Experts are one tensor: the number of one in the
 * name does not count. ERR_UNSUPPORTED where there is none. */
enum status gguf_name(const struct model *m, const char *hf_name, struct str *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
