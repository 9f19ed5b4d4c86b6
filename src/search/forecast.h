/* forecast.h: what a workload will take, said before anything runs: memory, whether it fits, time.
 */
#ifndef SNUG_SEARCH_FORECAST_H
#define SNUG_SEARCH_FORECAST_H

#include "search/budget.h"
#include "search/workload.h"

#ifdef __cplusplus
extern "C" {
#endif

struct forecast {
    int64_t n_params, n_active;  /* parameters; of these, those that one token meets */
    int64_t n_trained, n_frozen; /* of n_params; of n_active, those in products */
    int64_t arena_bytes, host_bytes, disk_bytes; /* arenas, to the byte */
    int64_t context_bytes;  /* of the device's memory: the process outside its arenas */
    int64_t beside_bytes;   /* of the host's memory: likewise; on the CPU the context */
    int64_t around_bytes;   /* of these, what there was when it was planned */
    int64_t data_bytes;     /* of the host's memory, on top, while data is read */
    int64_t before_bytes;   /* of the host's memory: the most that planning took, less the arena */
    int64_t process_bytes;  /* the most that the system will show on the device */
    int64_t resident_bytes; /* the most that it will show of the host's memory, for the process */
    double step_s;
    bool estimated;                  /* step_s, of a device that is not here */
    int n_calls, n_by_rate;          /* kernels a step calls, and how many of them were not timed */
    int64_t recorded_bytes;          /* of context_bytes, for recordings of the programs */
    int64_t disk_read, disk_written; /* bytes from and to disk in a step, */
    double disk_read_s, disk_written_s;         /* and how long that takes */
    double step_flops;                          /* useful ones: recompute not counted */
    int64_t breakdown[MEMORY_CLASS_COUNT];      /* device tier, at the fullest instant */
    int64_t fragmentation;                      /* arena - what is alive at that instant */
    int64_t host_breakdown[MEMORY_CLASS_COUNT]; /* host tier, at its own fullest instant */
    int64_t disk_breakdown[MEMORY_CLASS_COUNT]; /* disk tier, likewise */
    bool fits;
    enum tier binding; /* the tier over its budget, or the fullest one */
    struct budget budget;
};

/* Memory of a workload whose programs are emitted, held against the limits: `fits` says. What
 * counts against a tier's budget (budget.needs) is its arena and what the process holds beside it;
 * on the CPU that is host memory, and device_memory bounds the arena alone. */
void forecast_memory(struct forecast *f, const struct workload *w, const struct limits *limits);
/* Programs as workload_place makes them, in arenas that may fill the limits. */
enum status forecast_place(struct workload *w, const struct limits *limits) MUST_CHECK;
/* What arenas may take: the budgets less what the process holds beside them. */
void forecast_room(const struct forecast *f, int64_t room[TIER_COUNT]);
/* Bytes of the device that recordings of the workload's programs take. */
int64_t forecast_recordings(const struct workload *w);

/* Seconds of an optimizer step, where a stage trains. Kernels are timed (times NULL: not) in memory
 * that the plan will need anyway, so only for a plan that fits; what timing took is in the memory
 * afterwards. */
enum status forecast_time(struct forecast *f, struct workload *w, const struct limits *limits,
                          struct kernel_times *times) MUST_CHECK;

/* The same by what is known of the kernels: nothing is timed. */
enum status forecast_time_known(struct forecast *f, struct workload *w, const struct limits *limits,
                                const struct kernel_times *times) MUST_CHECK;

/* Seconds of an optimizer step by what is known of the kernels (times NULL: rates alone), nothing
 * timed; where no stage trains, of one run of every stage: a batch, or a prompt and a token. */
enum status forecast_seconds(const struct workload *w, const struct kernel_times *times,
                             double *seconds) MUST_CHECK;

/* Of those, how long compute has nothing to do, where a stage trains: it waits for copies. */
enum status forecast_idle(const struct workload *w, const struct kernel_times *times,
                          double *seconds) MUST_CHECK;

/* How step_s was made, as reports say it: "measured kernels", "rates" or "an estimate". */
const char *forecast_source(const struct forecast *f);

#ifdef __cplusplus
}
#endif
#endif
