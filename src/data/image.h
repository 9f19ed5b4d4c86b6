/* image.h: pictures out of PNG and JPEG files, by the distribution's libraries. */
#ifndef SNUG_DATA_IMAGE_H
#define SNUG_DATA_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Does the name end in .png, .jpg or .jpeg? */
bool image_is_named(const char *path);

/* Pixels of a file as [height, width, channels] bytes: 1 channel is grey, 3 are red, green, blue, 4
 * (PNG alone) have opacity behind them; other files are converted. ERR_DATA, with the file's name,
 * for what is no such file, is damaged, or has another size. */
enum status image_read(const char *path, int64_t height, int64_t width, int64_t channels,
                       uint8_t *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
