/* parameter_table.h: a model's parameters alone: names, shapes and where each comes from in a file.
 */
#ifndef SNUG_ENGINE_PARAMETER_TABLE_H
#define SNUG_ENGINE_PARAMETER_TABLE_H

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The smallest graph of the model: it has all parameters in it (io->params). *graph owns the table
 * and is the caller's to free, also on failure (NULL: there is none). */
enum status parameter_table(const struct model *model, struct graph **graph,
                            struct model_graph *io) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
