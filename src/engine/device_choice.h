/* device_choice.h: the device a config asks for. */
#ifndef SNUG_ENGINE_DEVICE_CHOICE_H
#define SNUG_ENGINE_DEVICE_CHOICE_H

#include "config/config.h"
#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* device: cpu, cuda (ERR_UNSUPPORTED with the reason when there is none to be had), or auto: the
 * first GPU, and with a printed reason the CPU when a build with CUDA finds none it can use.
 * `cache_folder` keeps what is measured about a device; NULL: measured anew each time. */
enum status device_choose(struct device *d, const struct config *cfg, const char *cache_folder,
                          int n_threads) MUST_CHECK;
/* A GPU that is planned for without having it (device/card), whatever device the config names. */
enum status device_choose_card(struct device *d, const struct config *cfg,
                               const char *name) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
