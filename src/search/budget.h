/* budget.h: what a plan may take of each memory: what was asked for, and what there is.
 *
 * On the CPU the device tier and the host tier are both the machine's memory. device_memory bounds
 * the arena there, host_memory everything else that the process holds; a tier without a budget may
 * take what is free and the other one does not need. On a GPU each has a memory of its own.
 */
#ifndef SNUG_SEARCH_BUDGET_H
#define SNUG_SEARCH_BUDGET_H

#include "search/surroundings.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that each tier may take, as device_memory, host_memory and disk_memory say. */
#define LIMIT_OPEN ((int64_t)-1) /* what there is */
struct limits {
    int64_t n_bytes[TIER_COUNT];
};

struct budget {
    bool is_shared; /* device and host tier are one memory */
    bool given[TIER_COUNT];
    int64_t needs[TIER_COUNT];   /* what the plan takes, the process around it included */
    int64_t n_bytes[TIER_COUNT]; /* what it may take; INT64_MAX: no limit */
    int64_t had[TIER_COUNT];     /* what can be had of each now, whatever was given */
    struct device_room room;     /* of the device's memory */
    struct device_room host;     /* of the host's; the same one where it is shared */
    struct device_room disk;     /* of the disk tier's folder */
};

void budget_make(struct budget *b, const struct surroundings *around, bool is_shared,
                 const struct limits *limits, const int64_t needs[TIER_COUNT]);

/* The first tier that needs more than it may take (`n_bytes`), or than can be had now (`had`);
 * TIER_COUNT: none. */
enum tier budget_over(const struct budget *b);
enum tier budget_short(const struct budget *b);
/* Do the tiers beside the device have what is needed of them? */
bool budget_holds_beside(const struct budget *b);

/* A limit in words: "the budget is 2.00 GiB (2147483648 bytes)", or, when it is what can be had,
 * "but only 1.00 GiB (1073741824 bytes) of the machine's 23.54 GiB are free, ...". */
void budget_add_text(const struct budget *b, enum tier t, bool is_given, struct str *out);
/* A budget to advise where so much is needed: what a process holds beside its arenas is of the
 * host, and varies from one to the next. */
int64_t budget_enough(enum tier t, int64_t needs);
/* How to have more of it: "raise device_memory", "end what holds the rest". */
const char *budget_fix(const struct budget *b, enum tier t, bool is_given, char out[320]);

#ifdef __cplusplus
}
#endif
#endif
