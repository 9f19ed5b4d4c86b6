/* points.h: several plans of one config side by side: on every card, or for budgets of growing
 * size. */
#ifndef SNUG_CLI_POINTS_H
#define SNUG_CLI_POINTS_H

#include <jansson.h>

#include "base/str.h"
#include "cli/cli.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kind of a plan: by the last thing that has left the device, or is made again. */
enum point_kind {
    POINT_RESIDENT,
    POINT_RECOMPUTED,
    POINT_ACTIVATIONS,
    POINT_OPTIMIZER,
    POINT_GRADIENTS,
    POINT_WEIGHTS,
    POINT_OVER, /* it does not fit */
    POINT_KIND_COUNT
};
/* "all on the device", "weights on the host". */
const char *point_kind_name(enum point_kind k);

/* A plan, in numbers and its own texts. */
struct point {
    enum snug_status status; /* of planning; then there is nothing else but its message */
    char message[512];
    bool fits, device_is_short; /* short of the device's memory; else of the host's */
    enum point_kind kind;
    char text[256];       /* how it runs, "states of 29/29 on the host, 28/28 recomputed" */
    char precision[64];   /* "bf16 with f32 masters" */
    char host_whose[128]; /* whose memory the host's is; "": it was given */
    double tokens_per_s, step_s;
    int64_t device_needs, device_budget, host_needs, host_budget;
};

/* Plans the command's config: on a card (NULL: the config's device), with one more override (NULL:
 * none). */
void point_plan(struct point *p, struct cli *cli, const char *gpu, const char *override);

/* Its members for JSON, a new reference; NULL: out of memory. */
json_t *point_json(const struct point *p);
/* What it lacks, for people: "3.20 GiB of device memory". */
const char *point_lack(const struct point *p, char out[64]);

/* Whose memory the host's is, where it was not given, and how to plan for another machine. */
void show_host_of(const struct point *p);

/* The picture of a sweep: tokens per second against budgets. */
void sweep_svg(const struct point *points, const int64_t *budgets, int n, const char *title,
               struct str *out);

#ifdef __cplusplus
}
#endif
#endif
