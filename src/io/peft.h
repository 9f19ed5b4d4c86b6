/* peft.h: adapters (model/adapter.h) as folders in the format of the PEFT library:
 *
 *     adapter_config.json          what the adapter is, and of which model
 *     adapter_model.safetensors    its matrices, and modules that were trained whole
 *
 * A tensor's name is the module's path behind "base_model.model.".
 */
#ifndef SNUG_IO_PEFT_H
#define SNUG_IO_PEFT_H

#include "io/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

bool peft_is_folder(const char *folder);

/* *base (freed by the caller with mem_free) = the model the adapter says it is of; NULL: it does
 * not. */
enum status peft_read_base(const char *folder, char **base) MUST_CHECK;

/* *out, in the pool. What this version does not have is ERR_UNSUPPORTED, with the key. */
enum status peft_read_config(struct adapter *out, struct pool *pool, const char *folder) MUST_CHECK;

/* adapter_config.json of the model's adapter. params: of the model; base: where it comes from, as
 * other programs find it; NULL: nowhere. */
enum status peft_write_config(const char *folder, const struct model *model,
                              const struct model_param *params, int n_params,
                              const char *base) MUST_CHECK;

/* Those of params that an adapter's file holds, which are the trained ones, into and from the
 * tensors of the same places. The file must hold all of them and no others. */
enum status peft_load(const char *folder, const struct model_param *params, int n_params,
                      const struct tensor *dst, const struct tensor_stage *stage,
                      struct team *team) MUST_CHECK;
enum status peft_save(const char *folder, const struct model_param *params, int n_params,
                      const struct tensor *src, const struct tensor_stage *stage,
                      const struct weights_save_options *options) MUST_CHECK;

/* The parameters as the file names them, for readers of single ones. index[i]: which of the
 * model's parameters params[i] is. */
struct peft_table {
    struct pool pool;
    struct model_param *params;
    int *index;
    int n;
};
enum status peft_table_make(struct peft_table *t, const struct model_param *params,
                            int n_params) MUST_CHECK;
void peft_table_release(struct peft_table *t);
/* For weights_read of the table's parameters. */
enum status peft_open(struct weights **out, const char *folder,
                      const struct peft_table *t) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
