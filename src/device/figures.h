/* figures.h: what is measured when a device is opened, kept between processes.
 *
 * Measuring takes most of the time that opening a device takes. The figures are valid for one
 * device (its identity) and one build; those taken while other programs were in the way are used
 * but not kept. `snug env --measure` forgets them all.
 */
#ifndef SNUG_DEVICE_FIGURES_H
#define SNUG_DEVICE_FIGURES_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct figures_source {
    /* Fills in d->rates and *n_bytes; *undisturbed says whether the next process may have them. */
    enum status (*measure)(struct device *d, bool *undisturbed);
    int64_t *n_bytes; /* a size that is measured with the rates; NULL: there is none */
};

/* From the file `devices` in the folder where it knows them, else by measuring. NULL: no file. */
enum status device_figures(struct device *d, const char *cache_folder,
                           const struct figures_source *source) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
