/* watch.h: a run as another process sees it: what it tells (live.h), what was planned for the
 * instruction it is at (plan_table.h), what others hold (poll.h), how it went (curve.h); and from
 * these its health and what to be told about.
 *
 *     struct watch w;
 *     TRY(watch_open(&w, output_dir, &health_profiles[0]));
 *     TRY(watch_look(&w));          as often as wanted
 *     watch_close(&w);
 */
#ifndef SNUG_WATCH_WATCH_H
#define SNUG_WATCH_WATCH_H

#include <jansson.h>

#include "train/health.h"
#include "watch/curve.h"
#include "watch/live.h"
#include "watch/plan_table.h"
#include "watch/poll.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WATCH_ALERTS = 8, WATCH_USES = 100 };

struct watch_alert {
    enum health level; /* HEALTH_WARNING and up */
    const char *about; /* "room", "growth", "plan", "pressure", "stall", "end" */
    int memory;        /* MEMORY_DEVICE, MEMORY_HOST; -1: none */
    int64_t pid;       /* growth: whose; 0: not known */
    char text[256];
};

struct watch_memory {
    bool is_there;
    struct health_view health;
    struct health_input input;
    double risk;             /* that it runs out, 0 to 1 */
    double uses[WATCH_USES]; /* the last ones, oldest first */
    int n_uses;
    struct growth others, own;
    struct growth processes[POLL_PROCESSES];
};

struct watch {
    char *folder;
    const struct health_profile *profile;
    struct live live;
    bool is_running;   /* its process is there */
    uint64_t position; /* as told, or estimated: */
    bool is_estimated;
    struct plan_table table;
    char table_of[32];          /* the run it belongs to; "": none is read */
    int64_t table_at;           /* and after how many changes of its budget */
    struct plan_memory planned; /* alive now */
    struct poller poller;
    struct poll poll;
    struct watch_memory memory[MEMORY_VIEWS];
    struct curve curve;
    enum health health; /* the worst of the memories */
    struct watch_alert alerts[WATCH_ALERTS];
    int n_alerts;
};

enum status watch_open(struct watch *w, const char *folder,
                       const struct health_profile *profile) MUST_CHECK;
enum status watch_look(struct watch *w) MUST_CHECK;
/* Only where the run is: without asking the system for anything. */
enum status watch_glance(struct watch *w) MUST_CHECK;
void watch_close(struct watch *w);

/* "training", "paused"; "ended", or "gone" when its process is and never said so. */
const char *watch_state(const struct watch *w);
/* What is being done: "backward", "forward"; "between steps". */
const char *watch_part(const struct watch *w);
/* Bytes at the fullest instant of a step, device and host. */
int64_t watch_peak(const struct watch *w, enum tier t);
/* Writes, or removes, output_dir/NAME: "SAVE", "STOP", "PAUSE". */
enum status watch_request(const struct watch *w, const char *name, bool on) MUST_CHECK;
bool watch_requested(const struct watch *w, const char *name);

/* Everything, as snug monitor --json says it; NULL when out of memory. */
json_t *watch_json(const struct watch *w);
/* The curve: {"step": [...], "loss": [...], "least", "most", "lr", "rate", "evals": [[step,
 * loss]]}; only points that end behind `after`. */
json_t *watch_curve_json(const struct watch *w, int64_t after);
/* [{"time", "step", "prompt", "text"}] of the last ones; watch_json says how many there ever were.
 */
json_t *watch_samples_json(const struct watch *w);
/* Planned memory over a step: {"tiers": {"device": {"classes": {...: [bytes]}}}, "marks": ...} in
 * at most n columns. */
json_t *watch_timeline_json(const struct watch *w, int n_columns);

#ifdef __cplusplus
}
#endif
#endif
