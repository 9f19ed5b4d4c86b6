/* weights.h: parameters in and out of Hugging Face model folders.
 *
 * A parameter table (model_graph.params) says which tensors of a checkpoint a parameter is made
 * of: several stacked along axis 0 (q, k, v), transposed (GPT-2's Conv1D), possibly stored under a
 * second name too (tied heads). Experts of a mixture have tensors of their own, or one that has
 * them all (stacked_name): both are read, the former is written. Everything is checked before the
 * first byte is read: a model that opens can be loaded.
 *
 *     struct weights *w;
 *     TRY(weights_open(&w, folder, g.params, g.n_params));
 *     for (int i = 0; i < g.n_params && status == OK; i++)
 *         status = weights_read(w, i, &host_tensor, team);
 *     weights_close(w);
 */
#ifndef SNUG_IO_WEIGHTS_H
#define SNUG_IO_WEIGHTS_H

#include "base/team.h"
#include "io/coded_matrix.h"
#include "io/file_hash.h"
#include "io/safetensors.h"
#include "model/model.h"
#include "run/stage.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weights;

/* Finds every tensor and checks names, shapes and dtypes (F32, F16, BF16, F64, or the codes of
 * bitsandbytes with what belongs to them). A missing tensor,
 * a wrong shape, or a tensor the model has no place for is ERR_DATA. Names may lack the first part
 * ("transformer.", "model."); masks and rotary tables are passed over; a tied head must equal the
 * embedding. params is borrowed until weights_close. */
enum status weights_open(struct weights **out, const char *folder, const struct model_param *params,
                         int n_params) MUST_CHECK;
/* The same of one file. */
enum status weights_open_file(struct weights **out, const char *path,
                              const struct model_param *params, int n_params) MUST_CHECK;
void weights_close(struct weights *w); /* NULL is fine */

/* Parameter i into dst->data: a whole host tensor of the parameter's shape, of any float dtype. The
 * team may be NULL: the caller alone. */
enum status weights_read(const struct weights *w, int i, const struct tensor *dst,
                         struct team *team) MUST_CHECK;

/* The same with dst wherever the stage writes it. */
enum status weights_read_staged(const struct weights *w, int i, const struct tensor *dst,
                                const struct tensor_stage *stage, struct team *team) MUST_CHECK;

/* Parameter i, which its table says is kept as codes, into m, a matrix of its layout: coded as it
 * is read, or as it is where the file has these codes. */
enum status weights_read_coded(const struct weights *w, int i, struct coded_matrix *m,
                               struct team *team) MUST_CHECK;

/* Both for all parameters: dst[i] is where params[i] goes. */
enum status weights_load(const char *folder, const struct model_param *params, int n_params,
                         const struct tensor *dst, struct team *team) MUST_CHECK;
/* The same with dst wherever the stage writes it. */
enum status weights_load_staged(const char *folder, const struct model_param *params, int n_params,
                                const struct tensor *dst, const struct tensor_stage *stage,
                                struct team *team) MUST_CHECK;

/* The most that loading holds beside the parameters. */
int64_t weights_load_bytes(const struct model_param *params, int n_params);

/* What the weights of a folder are, in digits: by names, shapes, and both ends of each tensor. */
enum status weights_identity(const char *folder, char out[HASH_TEXT]) MUST_CHECK;

struct weights_save_options {
    enum dtype dtype;        /* in the file: F32, BF16, F16 or F64; NONE: each as in memory */
    int64_t max_shard_bytes; /* 0: ST_DEFAULT_SHARD_BYTES */
    bool sync;               /* on disk when it returns */
    const char *file;        /* this one in the folder; NULL: model.safetensors, or shards */
};

/* Writes model.safetensors (or shards and index) into an existing folder, in Hugging Face's names
 * and layout: src[i], read through the stage, is params[i]. A tied head
 * is written once. Beside the tensors it holds weights_save_bytes. */
enum status weights_save(const char *folder, const struct model_param *params, int n_params,
                         const struct tensor *src, const struct tensor_stage *stage,
                         const struct weights_save_options *options) MUST_CHECK;
/* Of parameters in memory as `from` into files as `to`; the same twice: nothing is converted. */
int64_t weights_save_bytes(const struct model_param *params, int n_params, enum dtype from,
                           enum dtype to);

#ifdef __cplusplus
}
#endif
#endif
