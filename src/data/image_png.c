/* image_png.c: PNG by libpng's simplified interface, which converts what a file has to what is
 * asked for. */
#include "data/image_formats.h"

#ifdef SNUG_HAS_PNG
#include <png.h>

enum status image_read_png(const struct image_call *c)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    enum status status;
    if (!png_image_begin_read_from_memory(&image, c->data, c->n_bytes))
        return FAIL(ERR_DATA, "%s: is no PNG file that can be read: %s", c->path, image.message);
    status = image_need_size(c, image.height, image.width);
    image.format = c->channels == 1   ? PNG_FORMAT_GRAY
                   : c->channels == 3 ? PNG_FORMAT_RGB
                                      : PNG_FORMAT_RGBA;
    /* Opacity that is not asked for is laid on black. */
    const png_color black = {0, 0, 0};
    if (status == OK && !png_image_finish_read(&image, &black, c->out, 0, NULL))
        status = FAIL(ERR_DATA, "%s: is a damaged PNG file: %s", c->path, image.message);
    png_image_free(&image);
    return status;
}
#else
enum status image_read_png(const struct image_call *c)
{
    return FAIL(ERR_UNSUPPORTED, "%s: this build reads no PNG; install libpng-dev and build again",
                c->path);
}
#endif
