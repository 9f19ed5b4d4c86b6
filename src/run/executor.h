/* executor.h: runs checked programs.
 *
 * One arena per tier, sized for the largest of the programs it will run; calls are prepared up
 * front, so a step allocates nothing. The executor also measures: the high-water mark each tier
 * really reached, and time per instruction when asked. In debug builds dead memory is made visible
 * (poison.h).
 *
 * Between sections a program's inputs keep what the host put there only until another program of
 * the same executor runs: programs share the memory above storage. Fill inputs before every step.
 */
#ifndef SNUG_RUN_EXECUTOR_H
#define SNUG_RUN_EXECUTOR_H

#include "program/program.h"
#include "run/stage.h"

#ifdef __cplusplus
extern "C" {
#endif

struct executor;
struct timing;

/* Allocates the arenas (n_bytes per tier: the largest over the programs, staging for the caller
 * included) and runs nothing. */
enum status executor_new(struct executor **out, struct device *device,
                         const int64_t n_bytes[TIER_COUNT]) MUST_CHECK;
void executor_free(struct executor *x);

/* An executor changes arenas one by one: a tier that has none is given one; one that has loses it,
 * and with it every program that was loaded. */
enum status executor_add_arena(struct executor *x, enum tier t, int64_t n_bytes) MUST_CHECK;
void executor_drop_arena(struct executor *x, enum tier t);
/* Between steps: all but what is kept goes back to the system, where pages can (memory_release);
 * they come again with their next use. */
void executor_rest(struct executor *x, const struct storage *kept);
/* Bytes of an arena that have gone so and have not been used since. */
int64_t executor_resting(const struct executor *x, enum tier t);
/* For copies between arenas, by the device. */
const struct memory *executor_arena(const struct executor *x, enum tier t);

/* Prepares a program's calls against the arenas. Refuses a program that has not been checked with
 * program_check (it is checked here). *handle names it in executor_run. */
enum status executor_load(struct executor *x, const struct program *p,
                          const struct storage *storage, int *handle) MUST_CHECK;

/* What the executor holds for a program once it is loaded, beside the arenas. */
int64_t executor_load_bytes(const struct program *p);

/* Runs one section to its end (all queues finished). */
enum status executor_run(struct executor *x, int handle, const char *section) MUST_CHECK;

/* Host addresses of a program's inputs and outputs; NULL when there is none of that name. */
void *executor_input(struct executor *x, int handle, const char *name);
const void *executor_output(struct executor *x, int handle, const char *name);

/* Into an input, by all threads of the device where it is large: frames of video are hundreds of
 * megabytes, and one thread moves ten in a millisecond. */
void executor_fill_input(struct executor *x, void *input, const void *from, int64_t n_bytes);

/* Copies into and out of storage, whatever tier it lives in (initialising, checkpoints). */
enum status executor_write_storage(struct executor *x, const struct storage_entry *e,
                                   const void *src) MUST_CHECK;
enum status executor_read_storage(struct executor *x, const struct storage_entry *e,
                                  void *dst) MUST_CHECK;
/* Direct pointer to storage on devices whose memory the host can address (the CPU); else NULL. */
void *executor_storage_pointer(struct executor *x, const struct storage_entry *e);

/* Where storage lies, for copies by the device; to be followed only where the pointer above is not
 * NULL. */
void *executor_storage_address(struct executor *x, const struct storage_entry *e);

/* How files reach tensors whose data is such an address: through the storage entry `buffer`, in
 * host memory, where the host cannot follow it. NULL: it can follow all of them. */
struct tensor_stage executor_stage(struct executor *x, const struct storage_entry *buffer);

/* Highest byte used so far in a tier's arena (end of the highest operand, aligned). */
int64_t executor_high_water(const struct executor *x, enum tier t);

/* Bytes of the file of the disk tier, as the file system says. */
int64_t executor_disk_bytes(const struct executor *x);

/* Where the executor is, for whoever looks from another thread or process: from now on *position
 * (one aligned word, NULL: nobody looks) has the handle of the program in its upper half and the
 * instruction in its lower one, or EXECUTOR_BETWEEN outside of sections. It costs a store per
 * instruction. A device that is given whole sections at once (recordings, queues) is known to be in
 * a section, by its first instruction, and no closer. */
#define EXECUTOR_BETWEEN ((int32_t)-1)
void executor_publish(struct executor *x, uint64_t *position);

/* The next runs of the program's sections are written down (timing.h); NULL ends that. */
void executor_time_into(struct executor *x, int handle, struct timing *timing);

#ifdef __cplusplus
}
#endif
#endif
