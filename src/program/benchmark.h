/* benchmark.h: one call of a program, timed on scratch memory with benchmark inputs. */
#ifndef SNUG_PROGRAM_BENCHMARK_H
#define SNUG_PROGRAM_BENCHMARK_H

#include "program/program.h"

#ifdef __cplusplus
extern "C" {
#endif

struct scratch {
    struct device *device;
    char *data;
    int64_t n_bytes;
};

/* Memory for calls that need up to `largest` bytes, at most `most`; or what can be had: a device
 * that is nearly full times its small calls. */
void scratch_take(struct scratch *s, struct device *d, int64_t largest, int64_t most);
void scratch_give_back(struct scratch *s);

/* Bytes that a call's operands and workspace take. */
enum status benchmark_bytes(const struct program *p, int32_t instr, int64_t *n_bytes) MUST_CHECK;

/* Fails where the call does not run there, or needs more memory than that. */
enum status benchmark_call(const struct scratch *s, const struct program *p, int32_t instr,
                           struct call_time *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
