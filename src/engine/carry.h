/* carry.h: the bytes of a route (route.h) on their way, from executor to executor. */
#ifndef SNUG_ENGINE_CARRY_H
#define SNUG_ENGINE_CARRY_H

#include "engine/carrier.h"
#include "engine/route.h"

#ifdef __cplusplus
extern "C" {
#endif

struct carry {
    struct device *device;
    const struct route *route;
    struct carrier carrier;
    struct executor *old, *fresh;
    const struct storage_entry *old_staging, *fresh_staging; /* of these; NULL: none */
};

/* All that goes by the carrier: out of the old arenas; into the new ones, or back into the old. */
enum status carry_out(const struct carry *c) MUST_CHECK;
enum status carry_in(const struct carry *c, bool back) MUST_CHECK;

/* All of one passage that goes directly; `back`: it comes back. */
enum status carry_directly(const struct carry *c, enum passage passage, bool back) MUST_CHECK;
/* PASSAGE_LAST, where pages go back to the system as they are copied. There is no way back from
 * here. */
enum status carry_last(const struct carry *c) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
