/* language_sources.h: what a list of datasets comes to: one stream of tokens, or examples of one or
 * more sources. Inside task/. */
#ifndef SNUG_TASK_LANGUAGE_SOURCES_H
#define SNUG_TASK_LANGUAGE_SOURCES_H

#include "config/config.h"
#include "data/source.h"

#ifdef __cplusplus
extern "C" {
#endif

struct source_list {
    struct source **items;
    double *weights; /* of each: see examples.h */
    size_t n;
    bool has_examples; /* else n is 1, and it is a stream */
};
void source_list_close(struct source_list *l); /* of a zeroed one too */

struct source_list_options {
    const struct config *config;
    const struct config_datasets *datasets;
    const char *key;                   /* "datasets", for messages */
    int64_t vocab_size;                /* of the model */
    const char *cache_folder;          /* NULL: with the run */
    const struct tokenizer *tokenizer; /* NULL where source_list_reads_text() says no */
    const char *tokenizer_name;        /* that it was opened by */
    int64_t spare_bytes;               /* of host memory */
};

/* Whether it is records to fine-tune on, by what the config says or by their first record. */
bool source_list_has_examples(const struct source_list_options *o);
/* Whether there is text to encode; memory that reading takes beside a tokenizer. */
bool source_list_reads_text(const struct source_list_options *o);
int64_t source_list_bytes(const struct source_list_options *o);

enum status source_list_open(struct source_list *out,
                             const struct source_list_options *o) MUST_CHECK;

/* Says how many examples there are, and what became of records that are none. */
void source_list_tell(const struct source_list *l, const char *key);

#ifdef __cplusplus
}
#endif
#endif
