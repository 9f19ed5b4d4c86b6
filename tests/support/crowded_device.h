/* crowded_device.h: a device with a memory of its own, of which others hold what a test says. */
#ifndef SNUG_TESTS_CROWDED_DEVICE_H
#define SNUG_TESTS_CROWDED_DEVICE_H

#include "support/apart_device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CROWDED_CONTEXT = 1 << 16 }; /* what a process takes of it beside its arena */

extern struct crowded {
    bool is_used; /* a CPU opened by the library is to be one (support/crowded_device.c) */
    int64_t total, others;
    int64_t arena; /* that the run holds now; two while programs change */
    int64_t peak;  /* the most of it */
} crowded;

/* From here on a CPU is one of so many bytes, nobody else's; 0: it is a CPU again. */
void crowded_begin(int64_t total);
/* Others take all but so many bytes. */
void crowded_leave(int64_t n_bytes);

#ifdef __cplusplus
}
#endif
#endif
