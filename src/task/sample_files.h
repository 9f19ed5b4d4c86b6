/* sample_files.h: samples out of files: a tensor for every field, whose first axis counts samples.
 *
 *     data.safetensors     a tensor named as each field
 *     data.h5              a data set named as each field
 *     data/                a file <field>.npy for each
 *     list.jsonl           a record for each sample (sample_manifest.h)
 *
 * Several such places are read one after the other. Numbers may be of any plain type. Images may
 * lie with their channels first: they are turned as they are read. Rows are read from the file when
 * they are wanted, so the memory held is a row.
 */
#ifndef SNUG_TASK_SAMPLE_FILES_H
#define SNUG_TASK_SAMPLE_FILES_H

#include "config/config.h"
#include "data/samples.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sample_files;

/* ERR_DATA, with the file and the tensor, for what is not there or has another shape. With
 * skips_bad a sample with a number that is not finite, or a label that is no class, does not count
 * instead of ending the run. */
enum status sample_files_open(struct sample_files **out, const struct config_datasets *places,
                              const struct sample_facts *facts, bool skips_bad) MUST_CHECK;
void sample_files_close(struct sample_files *f); /* NULL is fine; says what was skipped */

struct sample_source sample_files_source(struct sample_files *f);
/* Of names, sizes and some of the bytes: other data has another. */
uint64_t sample_files_hash(const struct sample_files *f);

#ifdef __cplusplus
}
#endif
#endif
