/* plan_table.h: the planned memory of every instruction, for other processes:
 * output_dir/.snug-plan.
 *
 * Written once, when a run starts: lifetimes and sizes of all buffers of its programs, storage, and
 * when each instruction is predicted to begin. Whoever reads it knows the bytes of every tier and
 * class at any instruction, as program_memory_at says them.
 */
#ifndef SNUG_WATCH_PLAN_TABLE_H
#define SNUG_WATCH_PLAN_TABLE_H

#include "search/workload.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLAN_TABLE_NAME ".snug-plan"

enum { PLAN_TABLE_PROGRAMS = 8 };

/* Bytes alive at an instant. */
struct plan_memory {
    int64_t by_class[TIER_COUNT][MEMORY_CLASS_COUNT];
    int64_t total[TIER_COUNT];
};

struct plan_program {
    char name[32];
    int32_t n_instrs;
    double *starts;         /* [n_instrs + 1] seconds, every section once; the end */
    unsigned char *parts;   /* [n_instrs], indices of plan_part_name */
    struct plan_memory *at; /* [n_instrs] */
};

struct plan_table {
    struct pool pool;
    struct plan_memory storage;                        /* between sections: what outlives a step */
    struct plan_program programs[PLAN_TABLE_PROGRAMS]; /* by the executor's handle */
    int n_programs;
};

/* "forward", "backward" ...; "" for a number that is none. */
const char *plan_part_name(int part);

/* Of a workload that is loaded: its stages have handles. Streams: nothing large is held. */
enum status plan_table_write(const char *folder, const struct workload *w) MUST_CHECK;

/* On failure there is nothing to release. What the file says is checked. */
enum status plan_table_read(struct plan_table *t, const char *folder) MUST_CHECK;
void plan_table_release(struct plan_table *t);

/* What is planned to be alive at a position (executor_publish); storage outside of sections. */
const struct plan_memory *plan_table_at(const struct plan_table *t, uint64_t position);

#ifdef __cplusplus
}
#endif
#endif
