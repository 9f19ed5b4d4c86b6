/* refusal.h: what to say when a workload does not fit: the constraint in bytes, and the nearest
 * change that would fit. */
#ifndef SNUG_SEARCH_REFUSAL_H
#define SNUG_SEARCH_REFUSAL_H

#include "search/advice.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which bytes of what are lacking. */
struct shortage {
    const struct budget *budget;
    enum tier tier;
    bool is_given; /* of the budget that was given; otherwise of what can be had now */
};

/* Bytes that the tier may have. */
int64_t shortage_limit(const struct shortage *s);

/* ERR_FIT for a run, with the advice about it. */
enum status refuse_run(const struct shortage *s, const struct advice *advice) MUST_CHECK;
/* ERR_FIT for a model in use: its weights and a cache of so many tokens. */
enum status refuse_use(const struct shortage *s, int64_t storage_bytes,
                       int64_t n_tokens) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
