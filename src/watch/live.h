/* live.h: what a run tells other processes while it trains: output_dir/.snug-live.
 *
 * The file is one struct live, shared memory to the run. Between steps the run rewrites `now`,
 * `events` and `samples` under a sequence lock: `sequence` is odd while it does, and whoever reads
 * looks again when it was odd or has changed meanwhile. `position` is one word by itself that the
 * executor stores at every instruction (executor_publish). Nothing waits for a reader, and a step
 * costs a few hundred bytes of stores. What was planned lies beside it (plan_table.h).
 *
 * A new run makes a new file under the name: who has the old one open keeps the old one.
 */
#ifndef SNUG_WATCH_LIVE_H
#define SNUG_WATCH_LIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LIVE_NAME  ".snug-live"
#define LIVE_MAGIC UINT64_C(0x3145564947554e53) /* "SNUGIVE1" */

enum {
    LIVE_VERSION = 2,
    LIVE_EVENTS = 24, /* the last ones */
    LIVE_TEXT = 104,
    LIVE_SAMPLES = 16, /* likewise */
    LIVE_PROMPT = 160,
    LIVE_SAMPLE = 640,
};

enum live_state {
    LIVE_STARTING,
    LIVE_TRAINING,
    LIVE_EVALUATING,
    LIVE_SAMPLING,
    LIVE_SAVING,
    LIVE_PAUSED,
    LIVE_ENDED,
    LIVE_STATE_COUNT
};
const char *live_state_name(enum live_state s);

/* What changes with its budget alone. */
struct live_run {
    int64_t n_changes;          /* of the budget: the plan table is another one after each */
    int64_t pid, process_start; /* the second tells a process from a later one of its number */
    char id[32], model[48], device[128], address[32], precision[64], rate[16], unit[16];
    double began; /* seconds since 1970 */
    int64_t n_params;
    double step_s, units_per_s;  /* predicted */
    bool follows;                /* `position` is the instruction that runs now */
    bool is_shared;              /* device and host tier are one memory */
    int64_t arena[TIER_COUNT];   /* bytes, to the byte */
    int64_t needs[2], budget[2]; /* of device and host, the process around the arenas
                                    included; a budget of INT64_MAX is none */
    int64_t room[2];             /* what the run could have had when it was planned */
    int64_t resident_bytes;      /* of the host's memory: predicted for the process */
};

/* What the last step was, and what is going on. */
struct live_now {
    int32_t state;     /* enum live_state */
    int32_t exit_code; /* LIVE_ENDED */
    int64_t step, n_steps, n_units;
    double time; /* when this was written, seconds since 1970 */
    double epoch, loss, grad_norm, lr, loss_scale, seconds, units_per_s, mfu, eta_s;
    double eval_loss;
    int64_t eval_step;                             /* 0: there was none */
    int64_t arena_bytes, device_bytes, host_bytes; /* measured */
    char message[LIVE_TEXT * 2];                   /* LIVE_ENDED: why, where it failed */
};

struct live_event {
    double time;
    int64_t step;
    char text[LIVE_TEXT];
};

/* What was written after a prompt; of a longer one the beginning, in whole characters. */
struct live_sample {
    double time;
    int64_t step;
    char prompt[LIVE_PROMPT], text[LIVE_SAMPLE];
};

struct live {
    uint64_t magic;
    uint32_t version, n_bytes; /* of the struct */
    uint64_t position;
    uint64_t sequence;
    struct live_run run;
    struct live_now now;
    int64_t n_events; /* ever; event i is in slot i % LIVE_EVENTS */
    struct live_event events[LIVE_EVENTS];
    int64_t n_samples; /* likewise */
    struct live_sample samples[LIVE_SAMPLES];
};

/* ---- the run's side -------------------------------------------------------------------------- */

/* Makes the file in the folder. On failure there is nothing to close. */
enum status live_create(struct live **out, const char *folder,
                        const struct live_run *run) MUST_CHECK;
void live_close(struct live *l); /* NULL is fine; the file stays */

/* Changes of `now`, `events` and `samples` stand between the two. */
void live_begin(struct live *l);
void live_end(struct live *l);
/* Between the two. */
void live_add_event(struct live *l, int64_t step, const char *fmt, ...) PRINTF_LIKE(3, 4);
void live_add_sample(struct live *l, int64_t step, const char *prompt, const char *text);

/* ---- everybody else's ------------------------------------------------------------------------ */

/* A whole and consistent copy. ERR_IO where there is none: the message says that no run has told
 * anything here, or that it is another version's. */
enum status live_read(const char *folder, struct live *out) MUST_CHECK;
/* Only the word. */
enum status live_read_position(const char *folder, uint64_t *out) MUST_CHECK;

/* Is the process of the run there? */
bool live_is_running(const struct live_run *run);
/* When a process began, in the system's ticks; 0: there is none of that number. */
int64_t live_process_start(int64_t pid);

#ifdef __cplusplus
}
#endif
#endif
