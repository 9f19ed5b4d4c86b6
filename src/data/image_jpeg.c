/* image_jpeg.c: JPEG by libjpeg. Its errors come as jumps; warnings (data that ends early, say) are
 * errors here. */
#include <setjmp.h>
#include <stdio.h>

#include "base/compiler.h"
#include "data/image_formats.h"

#ifdef SNUG_HAS_JPEG
#include <jpeglib.h>

struct jpeg_failure {
    struct jpeg_error_mgr base; /* first: libjpeg knows this one */
    jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
};

static void leave(j_common_ptr info)
{
    struct jpeg_failure *f = (struct jpeg_failure *)(void *)info->err;
    f->base.format_message(info, f->message);
    longjmp(f->jump, 1);
}

static void note(j_common_ptr info, int level)
{
    if (level < 0)
        leave(info);
}

/* Rows come one by one. The sizes are known to be right. */
static void read_rows(struct jpeg_decompress_struct *info, const struct image_call *c)
{
    while (info->output_scanline < info->output_height) {
        JSAMPROW row = c->out + (int64_t)info->output_scanline * c->width * c->channels;
        (void)jpeg_read_scanlines(info, &row, 1);
    }
}

enum status image_read_jpeg(const struct image_call *c)
{
    struct jpeg_decompress_struct info = {0}; /* which may be destroyed whatever comes first */
    struct jpeg_failure failure;
    volatile enum status status = OK;
    if (c->channels == 4)
        return FAIL(ERR_DATA, "%s: JPEG files have 1 or 3 channels, not 4", c->path);
    info.err = jpeg_std_error(&failure.base);
    failure.base.error_exit = leave;
    failure.base.emit_message = note;
    if (setjmp(failure.jump)) {
        status =
            FAIL(ERR_DATA, "%s: is no JPEG file that can be read: %s", c->path, failure.message);
        jpeg_destroy_decompress(&info);
        return status;
    }
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, c->data, (unsigned long)c->n_bytes);
    (void)jpeg_read_header(&info, TRUE);
    info.out_color_space = c->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    status = image_need_size(c, info.image_height, info.image_width);
    if (status == OK) {
        (void)jpeg_start_decompress(&info);
        read_rows(&info, c);
        (void)jpeg_finish_decompress(&info);
    }
    jpeg_destroy_decompress(&info);
    return status;
}
#else
enum status image_read_jpeg(const struct image_call *c)
{
    return FAIL(ERR_UNSUPPORTED,
                "%s: this build reads no JPEG; install libjpeg-dev and build again", c->path);
}
#endif
