/* driver.h: functions of the driver by name (the program is not linked with it). */
#ifndef SNUG_DEVICE_CUDA_SUPPORT_DRIVER_H
#define SNUG_DEVICE_CUDA_SUPPORT_DRIVER_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Copied into a variable of the function's type, which becomes NULL when this driver has none:
 * false. */
bool cuda_driver_function(const char *name, void *function_pointer);

#ifdef __cplusplus
}
#endif
#endif
