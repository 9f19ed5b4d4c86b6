/* decisions_json.h: decisions as JSON, and back, for plans that outlive the process that searched
 * for them. What the config says of blocks (`recompute`) is not in it: who reads it has the config.
 */
#ifndef SNUG_SEARCH_DECISIONS_JSON_H
#define SNUG_SEARCH_DECISIONS_JSON_H

#include <jansson.h>

#include "search/decisions.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A new object; NULL: no memory. */
json_t *decisions_to_json(const struct decisions *d);

/* *d: for so many places (blocks + 2), with all that it points to in the pool but `recompute`,
 * which stays as it is. Anybody may have written it: ERR_DATA where it is not that. */
enum status decisions_from_json(const json_t *json, int n_places, struct pool *pool,
                                struct decisions *d) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
