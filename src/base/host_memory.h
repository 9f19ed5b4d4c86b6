/* host_memory.h: how much memory the machine has left for this process, and what the process holds.
 *
 * A process may be told less than the machine has: each control group it is in, and each of their
 * ancestors, may have a limit (cgroup v1 and v2), and so may the process itself (ulimit). The
 * tightest one counts.
 */
#ifndef SNUG_BASE_HOST_MEMORY_H
#define SNUG_BASE_HOST_MEMORY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct host_memory {
    int64_t total_bytes; /* of the machine, or all that the group may hold; INT64_MAX: not known */
    int64_t free_bytes;  /* of it; page cache that the system would give back counts as free */
    char whose[256];     /* "the machine", "cgroup /jobs/17", "ulimit -v" */
};

/* `root` stands before /proc and the cgroups' folders: "" outside of tests. */
void host_memory_read(const char *root, struct host_memory *out);

/* Bytes that this process may lock in memory (ulimit -l); -1: no limit. */
int64_t process_locked_limit(void);

/* What the system says of this process, in bytes; 0 where it does not say. */
int64_t process_resident(void);  /* now */
int64_t process_peak(void);      /* the most that was ever resident at once */
void process_forget_peak(void);  /* from here on it is that of what comes, where the system can */
int64_t process_anonymous(void); /* now, without pages of files, which the system can drop */
int64_t process_code_left(void); /* code that is not resident: it has not run yet */

#ifdef __cplusplus
}
#endif
#endif
