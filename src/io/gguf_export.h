/* gguf_export.h: a model as one GGUF file, with its tokenizer: what llama.cpp and its relatives
 * run.
 *
 *     struct gguf_export *e;
 *     TRY(gguf_export_new(&e, &content));
 *     ... gguf_export_bytes(e) is what writing will hold beside what the process holds now ...
 *     status = gguf_export_write(e, "model.gguf", force);
 *     gguf_export_free(e);
 */
#ifndef SNUG_IO_GGUF_EXPORT_H
#define SNUG_IO_GGUF_EXPORT_H

#include "base/team.h"
#include "io/gguf_model.h"
#include "run/stage.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which types tensors get. Vectors, norms, routers and positions are f32 in all of them. */
enum gguf_recipe {
    GGUF_ALL_F32,
    GGUF_ALL_F16,
    GGUF_ALL_BF16,
    GGUF_ALL_Q8_0,
    GGUF_MOST_Q4_0, /* q4_0; the head q6_k */
    GGUF_MOST_Q4_K, /* "q4_k_m": q4_k; the head, and some values and down projections q6_k */
    GGUF_MOST_TQ2,  /* "tq2_0": of ternary models; the embedding f16 */
    GGUF_RECIPE_COUNT
};
/* False when there is none of that name. */
bool gguf_recipe_parse(const char *name, enum gguf_recipe *out);
const char *gguf_recipe_name(enum gguf_recipe recipe);

/* Everything is borrowed until gguf_export_free. */
struct gguf_content {
    const struct model *model;
    const struct model_param *params; /* [n_params] */
    int n_params;
    const struct tensor *tensors;     /* [n_params], f32 */
    const struct tensor_stage *stage; /* how to read them */
    struct team *team;                /* NULL: the caller alone */
    enum gguf_recipe recipe;
    const char *name;          /* general.name */
    const char *extras_folder; /* of the tokenizer; NULL: there is none */
    const char *chat_family;   /* of its chat template; NULL: its own */
};

struct gguf_export;

/* Settles all that is in the file but the weights' bytes. ERR_UNSUPPORTED, with the reason, for a
 * model or a tokenizer that llama.cpp has no form for. */
enum status gguf_export_new(struct gguf_export **out, const struct gguf_content *c) MUST_CHECK;
void gguf_export_free(struct gguf_export *e); /* NULL is fine */

int64_t gguf_export_bytes(const struct gguf_export *e);      /* of buffers, while it writes */
int64_t gguf_export_file_bytes(const struct gguf_export *e); /* of the weights in the file */
int64_t gguf_export_n_tensors(const struct gguf_export *e);
/* Those whose rows are no whole blocks of the type they should have: they have a wider one. */
int64_t gguf_export_n_wider(const struct gguf_export *e);
bool gguf_export_has_tokenizer(const struct gguf_export *e);
/* What differs in use; "": nothing. */
const char *gguf_export_caveats(const struct gguf_export *e);

/* The file, whole or not at all. One that exists is ERR_USAGE unless `force`. A weight that its
 * type cannot hold is ERR_CONFIG. */
enum status gguf_export_write(struct gguf_export *e, const char *path, bool force) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
