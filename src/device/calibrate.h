/* calibrate.h: what a machine does, measured in a second or two: products by shape, memory, copies
 * between tiers one way and both ways, copies inside the host, the disk.
 *
 * Kernels are timed as plans have them timed (device_ops.time_calls). No timing takes long: what
 * would, by the rates, goes by the last one that did not. A rate is the best of a few rounds;
 * rounds far apart, or a device that says that others used it, make it disturbed: it is shown, and
 * does not take the place of one that was not.
 */
#ifndef SNUG_DEVICE_CALIBRATE_H
#define SNUG_DEVICE_CALIBRATE_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct calibration {
    char name[48];   /* "product 4096 x 1024 x 1024, bf16" */
    bool is_flops;   /* the rate is of FLOP, else of bytes; per second */
    double rate;     /* the best round's; 0: not known */
    double spread;   /* the worst round's time beyond the best one's, as a share of that */
    int64_t when;    /* seconds since 1970 */
    bool disturbed;  /* by other programs */
    bool is_guessed; /* as a smaller one goes: measuring it takes too long here */
};

enum { CALIBRATIONS_MOST = 24 };
struct calibrations {
    struct calibration rows[CALIBRATIONS_MOST];
    int n;
};

/* Measures. `folder`: a file is written there and read back for seconds, past the page cache, to
 * measure the disk; NULL: it is not. */
enum status calibrate(struct device *d, const char *folder, struct calibrations *out) MUST_CHECK;

/* What is known of the device, kept in the folder (NULL: nothing is). */
enum status calibrations_load(const struct device *d, const char *folder,
                              struct calibrations *out) MUST_CHECK;
/* Keeps them, all but disturbed ones where undisturbed ones are known already. */
enum status calibrations_store(const struct device *d, const char *folder,
                               const struct calibrations *c) MUST_CHECK;

/* "3 days", "12 minutes". */
const char *calibration_age(const struct calibration *c, int64_t now, char out[32]);

#ifdef __cplusplus
}
#endif
#endif
