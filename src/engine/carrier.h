/* carrier.h: bytes outside of any arena while arenas change: the first of them in memory, the rest
 * in a file without a name. */
#ifndef SNUG_ENGINE_CARRIER_H
#define SNUG_ENGINE_CARRIER_H

#include <stdint.h>

#include "base/status.h"
#include "base/team.h"

#ifdef __cplusplus
extern "C" {
#endif

struct carrier {
    char *memory;         /* NULL: none */
    int64_t memory_bytes; /* of n_bytes */
    int64_t n_bytes;
    int fd;             /* -1: no file */
    const char *folder; /* borrowed: for messages */
    struct team *team;  /* borrowed: whose threads copy, read and write */
};

/* Memory that cannot be had is the file's. ERR_IO where the folder has too little room: it is asked
 * for before the first byte. On failure there is nothing to close. */
enum status carrier_open(struct carrier *c, const char *folder, int64_t memory_bytes,
                         int64_t n_bytes, struct team *team) MUST_CHECK;
enum status carrier_write(const struct carrier *c, int64_t at, const void *from,
                          int64_t n_bytes) MUST_CHECK;
enum status carrier_read(const struct carrier *c, int64_t at, void *to, int64_t n_bytes) MUST_CHECK;
void carrier_close(struct carrier *c); /* also of one that is all zero */

/* For tests: the n-th read or write of a carrier's file from now on fails; 0: none does. */
void carrier_fail_after(int64_t n);

#ifdef __cplusplus
}
#endif
#endif
