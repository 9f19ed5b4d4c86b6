/* kernel_times.h: what kernels cost on this device, measured once.
 *
 * Rates (device_rates) say what a kernel could cost at best; small and odd shapes take longer. A
 * device that can time kernels (device_ops.time_calls) is asked how long each distinct call of a
 * program takes. The answers are kept in a file per machine and user, so that the next plan of the
 * same shapes costs nothing; they are valid for one GPU, driver and build. A time that was
 * disturbed by other processes is used but measured again by the next process.
 *
 * What measurements take is limited (device.limits): calls beyond that go by the rates. Their
 * memory is given back.
 */
#ifndef SNUG_PROGRAM_KERNEL_TIMES_H
#define SNUG_PROGRAM_KERNEL_TIMES_H

#include "base/str.h"
#include "program/program.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kernel_times;

/* cache_folder NULL: nothing is read or kept. The device is borrowed. */
enum status kernel_times_open(struct kernel_times **out, struct device *device,
                              const char *cache_folder) MUST_CHECK;
void kernel_times_free(struct kernel_times *t); /* NULL is fine */

/* Measures the calls of a placed program that are not known yet, in no more of the device's memory
 * than that, and keeps them. A call that cannot be measured (too little free memory, say) stays
 * unknown: only running out of heap is an error. */
enum status kernel_times_measure(struct kernel_times *t, const struct program *p,
                                 int64_t most_bytes) MUST_CHECK;

/* Seconds of a compute instruction, or a negative number when they are not known. */
double kernel_times_find(const struct kernel_times *t, const struct program *p, int32_t instr);

/* How many calls were measured since it was opened. */
int kernel_times_n_measured(const struct kernel_times *t);

/* ---- for predictions and tests ----------------------------------------------------- */

/* True when the executor may run the instruction together with its neighbour (run/batch.h): then it
 * costs what its share of a batch costs. */
bool instr_is_batched(const struct program *p, const struct device *device, int32_t instr);

/* What the time depends on, as text: op, kernel, attributes, dtypes and shapes, which operands
 * share memory. Equal texts, equal times. */
void instr_signature(const struct program *p, const struct device *device, int32_t instr,
                     struct str *out);
/* The same as a number that is good while the process runs: programs have many instructions. */
uint64_t instr_hash(const struct program *p, const struct device *device, int32_t instr);

#ifdef __cplusplus
}
#endif
#endif
