#include "data/image.h"

#include <strings.h>

#include "base/file.h"
#include "data/image_formats.h"

static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n >= m && strcasecmp(path + n - m, end) == 0;
}

static bool is_jpeg(const char *path)
{
    return ends_with(path, ".jpg") || ends_with(path, ".jpeg");
}

bool image_is_named(const char *path)
{
    return ends_with(path, ".png") || is_jpeg(path);
}

enum status image_need_size(const struct image_call *c, int64_t height, int64_t width)
{
    if (height == c->height && width == c->width)
        return OK;
    return FAIL(ERR_DATA,
                "%s: %" PRId64 " x %" PRId64 " pixels; the network's images have %" PRId64
                " x %" PRId64,
                c->path, width, height, c->width, c->height);
}

enum status image_read(const char *path, int64_t height, int64_t width, int64_t channels,
                       uint8_t *out)
{
    struct file_map file;
    struct image_call c = {path, NULL, 0, height, width, channels, out};
    TRY(file_map_open(&file, path));
    c.data = file.data;
    c.n_bytes = file.n_bytes;
    enum status status;
    if (!file.data)
        status = FAIL(ERR_DATA, "%s: is empty", path);
    else if (channels != 1 && channels != 3 && channels != 4)
        status = FAIL(ERR_DATA, "%s: the network wants %" PRId64 " channels, images have 1, 3 or 4",
                      path, channels);
    else
        status = is_jpeg(path) ? image_read_jpeg(&c) : image_read_png(&c);
    file_map_close(&file);
    return status;
}
