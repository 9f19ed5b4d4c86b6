/* language.h: language modelling: the next token, from those before it.
 *
 * A sample is a window of max_seq_length tokens; the loss is the cross-entropy of the tokens that
 * follow. A data cursor counts windows.
 */
#ifndef SNUG_TASK_LANGUAGE_H
#define SNUG_TASK_LANGUAGE_H

#include "data/chat.h"
#include "data/source.h"
#include "task/task.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct task_def task_language;
struct task language_task(const struct model *model);

/* Where the tokenizer knows no EOS, the model's is taken. */
enum status language_open_tokenizer(const struct config *cfg, const struct model *model,
                                    const char *model_folder, struct tokenizer **out) MUST_CHECK;
/* What it is opened by: a name of the config's, the model's folder, or "bytes". */
const char *language_tokenizer_name(const struct config *cfg, const char *model_folder);
/* How conversations are written, as the config says; `name` is the tokenizer's. */
enum status language_open_template(const struct config *cfg, const char *name,
                                   const struct tokenizer *t,
                                   struct chat_template **out) MUST_CHECK;
/* Says what documents begin and end with. */
void language_tell_documents(const struct tokenizer *t);

/* The tokens that are trained on, of the task's data once it was read. */
const struct source *language_source(const void *data);

/* ---- inside task/ ---------------------------------------------------------------------------- */

extern const struct task_data_def language_data;
/* What any task of a model of language answers. */
enum status language_check(const struct task *t, const struct config *cfg) MUST_CHECK;
double language_flops(const struct task *t, int64_t n_active, int64_t length);
int64_t language_n_blocks(const struct task *t);
/* Records are packed where the config asks for it; texts are one stream anyway. */
bool language_packs(const struct config *cfg);

#ifdef __cplusplus
}
#endif
#endif
