/* carrier.h: what outlives a step, outside of any arena: a file without a name, a part for each
 * storage entry. Staging is left behind. */
#ifndef SNUG_ENGINE_CARRIER_H
#define SNUG_ENGINE_CARRIER_H

#include "run/executor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct carried {
    const char *name;
    int64_t n_bytes, at;
};

struct carrier {
    int fd;
    const char *folder; /* borrowed: for messages */
    struct pool pool;
    VEC(struct carried) parts;
};

/* Everything in an executor's storage. ERR_IO where the folder has too little room: it is asked for
 * before the first byte. On failure there is nothing to close. */
enum status carrier_load(struct carrier *c, const char *folder, struct executor *x,
                         const struct storage *storage) MUST_CHECK;
/* Into the entries of the same names, in whatever tier they are at home. */
enum status carrier_unload(const struct carrier *c, struct executor *x,
                           const struct storage *storage) MUST_CHECK;
void carrier_close(struct carrier *c);

#ifdef __cplusplus
}
#endif
#endif
