/* source_survey.h: a look through the tokens of a source: which they are, and whether anything in
 * them is a label.
 *
 * The hash says what the tokens and labels are, not where they lie or how they are stored: the same
 * text in another folder, or as a token file, has the same one. All tokens are read up to
 * SURVEY_ALL; of longer sources so many are, in pieces spread evenly from the first to the last.
 */
#ifndef SNUG_DATA_SOURCE_SURVEY_H
#define SNUG_DATA_SOURCE_SURVEY_H

#include <stdbool.h>
#include <stdint.h>

#include "data/source.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SURVEY_ALL = 1 << 26, SURVEY_MADE_UP = 1 << 18 };

struct source_survey {
    uint64_t hash;    /* XXH3 of what was read, each piece seeded with the one before */
    int64_t n_tokens; /* of the source */
    int64_t n_labels; /* among those that were read */
    bool is_whole;    /* every token was read */
};

/* `most` bounds what is read: SURVEY_ALL, or SURVEY_MADE_UP for tokens that are computed. */
enum status source_survey(const struct source *s, int64_t most,
                          struct source_survey *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
