#include "task/sample_manifest.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "data/image.h"
#include "data/manifest.h"

struct sample_manifest {
    struct manifest *list;
    char *folder;    /* of the list, with its slash; "": here */
    uint8_t *pixels; /* of the largest image */
};

/* ---- opening --------------------------------------------------------------------------------- */

static bool holds_images(const struct model_field *f)
{
    return f->shape.rank == 3 || f->shape.rank == 4;
}

/* [H, W, C] of a field's images. */
static const int64_t *image_dims(const struct model_field *f)
{
    return f->shape.dim + f->shape.rank - 3;
}

static int64_t image_bytes(const struct model_field *f)
{
    const int64_t *d = image_dims(f);
    return d[0] * d[1] * d[2];
}

static enum status open_parts(struct sample_manifest *s, const char *path,
                              const struct sample_facts *facts)
{
    const char *slash = strrchr(path, '/');
    int64_t most = 1;
    s->folder = mem_strdup(slash ? path : "");
    if (!s->folder)
        return FAIL(ERR_MEMORY, "%s: out of memory", path);
    if (slash)
        s->folder[slash - path + 1] = '\0';
    for (int i = 0; i < facts->n_fields; i++) {
        if (holds_images(&facts->fields[i]))
            most = MAX(most, image_bytes(&facts->fields[i]));
    }
    TRY(mem_try_array(&s->pixels, (size_t)most, 1));
    return manifest_open(&s->list, path);
}

enum status sample_manifest_open(struct sample_manifest **out, const char *path,
                                 const struct sample_facts *facts)
{
    struct sample_manifest *s;
    *out = NULL;
    TRY(mem_try_array(&s, 1, sizeof(*s)));
    enum status status = open_parts(s, path, facts);
    if (status != OK) {
        sample_manifest_close(s);
        return status;
    }
    *out = s;
    return OK;
}

void sample_manifest_close(struct sample_manifest *s)
{
    if (!s)
        return;
    manifest_close(s->list);
    mem_free(s->folder);
    mem_free(s->pixels);
    mem_free(s);
}

int64_t sample_manifest_count(const struct sample_manifest *s)
{
    return manifest_count(s->list);
}

const char *sample_manifest_where(struct sample_manifest *s, int64_t i)
{
    return manifest_where(s->list, i);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Numbers of lists inside lists, in their order; *n counts them, those beyond `most` too. */
static enum status flatten(const json_t *value, double *out, int64_t most, int64_t *n)
{
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++)
            TRY(flatten(json_array_get(value, i), out, most, n));
        return OK;
    }
    if (!json_is_number(value))
        return FAIL(ERR_DATA, "expected numbers, or the names of images");
    if (*n < most)
        out[*n] = json_number_value(value);
    ++*n;
    return OK;
}

static enum status read_numbers(const json_t *value, const struct model_field *f, double *out)
{
    int64_t due = shape_elems(&f->shape), n = 0;
    char shape[SHAPE_TEXT];
    TRY(flatten(value, out, due, &n));
    if (n != due)
        return FAIL(ERR_DATA, "%" PRId64 " numbers; the network's %s has %" PRId64, n,
                    shape_text(shape, &f->shape), due);
    return OK;
}

static enum status read_image(struct sample_manifest *s, const json_t *name,
                              const struct model_field *f, double *out)
{
    const int64_t *d = image_dims(f);
    struct str path = {0};
    if (!json_is_string(name) || !image_is_named(json_string_value(name)))
        return FAIL(ERR_DATA, "expected the name of a .png or .jpg file");
    const char *text = json_string_value(name);
    str_addf(&path, "%s%s", text[0] == '/' ? "" : s->folder, text);
    enum status status = str_status(&path);
    if (status == OK)
        status = image_read(str_text(&path), d[0], d[1], d[2], s->pixels);
    str_release(&path);
    TRY(status);
    for (int64_t i = 0; i < image_bytes(f); i++)
        out[i] = s->pixels[i] / 255.0;
    return OK;
}

static enum status read_frames(struct sample_manifest *s, const json_t *names,
                               const struct model_field *f, double *out)
{
    int64_t due = f->shape.rank == 4 ? f->shape.dim[0] : 1, size = image_bytes(f);
    int64_t n = (int64_t)json_array_size(names);
    if (n > due)
        return FAIL(ERR_DATA, "%" PRId64 " frames; the network has %" PRId64, n, due);
    for (int64_t t = 0; t < due; t++) {
        if (t >= n) {
            memcpy(out + t * size, out + (n - 1) * size, (size_t)size * sizeof(*out));
            continue;
        }
        TRY(status_prefix(read_image(s, json_array_get(names, (size_t)t), f, out + t * size),
                          "frame %" PRId64, t));
    }
    return OK;
}

static enum status read_value(struct sample_manifest *s, const json_t *value,
                              const struct model_field *f, double *out)
{
    bool is_frames = json_is_array(value) && json_is_string(json_array_get(value, 0));
    if (!value)
        return FAIL(ERR_DATA, "the record has no such member");
    if (json_is_null(value) && !f->is_target) {
        memset(out, 0, (size_t)shape_elems(&f->shape) * sizeof(*out));
        return OK;
    }
    if ((is_frames || json_is_string(value)) && !holds_images(f))
        return FAIL(ERR_DATA, "expected numbers: the field holds no images");
    if (is_frames)
        return read_frames(s, value, f, out);
    if (json_is_string(value) && f->shape.rank == 3)
        return read_image(s, value, f, out);
    return read_numbers(value, f, out);
}

enum status sample_manifest_read(struct sample_manifest *s, const struct model_field *f, int64_t i,
                                 double *out)
{
    const json_t *record;
    TRY(manifest_read(s->list, i, &record));
    enum status status = read_value(s, json_object_get(record, f->name), f, out);
    return status == OK ? OK
                        : status_prefix(status, "%s: '%s'", manifest_where(s->list, i), f->name);
}

uint64_t sample_manifest_hash(const struct sample_manifest *s)
{
    return manifest_hash(s->list);
}
