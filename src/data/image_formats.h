/* image_formats.h: between image.c and the readers of each format. */
#ifndef SNUG_DATA_IMAGE_FORMATS_H
#define SNUG_DATA_IMAGE_FORMATS_H

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A file in memory, and what is to become of it. */
struct image_call {
    const char *path;
    const uint8_t *data;
    size_t n_bytes;
    int64_t height, width, channels;
    uint8_t *out;
};

enum status image_need_size(const struct image_call *c, int64_t height, int64_t width) MUST_CHECK;
enum status image_read_png(const struct image_call *c) MUST_CHECK;
enum status image_read_jpeg(const struct image_call *c) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
