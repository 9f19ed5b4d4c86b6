/* Samples that a JSONL file lists, their images, and HDF5 files: what is read, and what is said of
 * what cannot be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#ifdef SNUG_HAS_PNG
#include <png.h>
#endif
#ifdef SNUG_HAS_JPEG
#include <jpeglib.h>
#endif
#ifdef SNUG_HAS_HDF5
#include <hdf5.h>
#endif

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "task/sample_files.h"

enum { HEIGHT = 8, WIDTH = 16, COLOURS = 3, PIXELS = HEIGHT * WIDTH, PATH = SCRATCH_PATH + 64 };

/* A clip of two frames, two scalars, one of four classes. */
static const struct model_field fields[] = {
    {.name = "images", .shape = {.rank = 4, .dim = {2, HEIGHT, WIDTH, COLOURS}}},
    {.name = "scalars", .shape = {.rank = 1, .dim = {2}}},
    {.name = "target", .is_target = true, .n_classes = 4}};
static const struct sample_facts facts = {.fields = fields, .n_fields = 3};

static enum status open_at(struct sample_files **f, const struct scratch *s, const char *name,
                           bool skips_bad)
{
    char path[PATH];
    (void)snprintf(path, sizeof(path), "%s/%s", s->folder, name);
    struct config_dataset d = {.path = path, .where = "net.yaml:3"};
    const struct config_datasets all = {&d, 1};
    return sample_files_open(f, &all, &facts, skips_bad);
}

/* One record of a list: the status of the first field that is not read. */
static enum status read_record(const struct scratch *s, const char *record, bool skips_bad,
                               float *images, bool *counts)
{
    float scalars[2];
    int32_t label;
    void *const out[] = {images, scalars, &label};
    struct sample_files *f;
    enum status status = OK;
    scratch_write_text(s, "list.jsonl", record);
    *counts = true;
    TRY(open_at(&f, s, "list.jsonl", skips_bad));
    struct sample_source source = sample_files_source(f);
    for (int k = 0; k < 3 && status == OK; k++)
        status = source.read(source.user, k, 0, out[k], counts);
    sample_files_close(f);
    return status;
}

#ifdef SNUG_HAS_PNG
/* Of every pixel: red is its column, green its row, blue `blue`. */
static void write_png(const struct scratch *s, const char *name, uint32_t width, int blue)
{
    uint8_t pixels[2 * PIXELS * COLOURS];
    char path[PATH];
    png_image image = {
        .version = PNG_IMAGE_VERSION, .width = width, .height = HEIGHT, .format = PNG_FORMAT_RGB};
    for (uint32_t i = 0; i < width * HEIGHT; i++) {
        pixels[3 * i] = (uint8_t)(i % width);
        pixels[3 * i + 1] = (uint8_t)(i / width);
        pixels[3 * i + 2] = (uint8_t)blue;
    }
    (void)snprintf(path, sizeof(path), "%s/%s", s->folder, name);
    assert_true(png_image_write_to_file(&image, path, 0, pixels, 0, NULL));
}

static void frames_of_png_files_are_a_clip(void **state)
{
    struct scratch s;
    float images[2 * PIXELS * COLOURS];
    bool counts;
    (void)state;
    scratch_init(&s);
    write_png(&s, "a.png", WIDTH, 51);
    write_png(&s, "b.png", WIDTH, 255);
    expect_ok(
        read_record(&s, "{\"images\": [\"a.png\", \"b.png\"], \"scalars\": [1, -2], \"target\": 3}",
                    false, images, &counts));
    assert_true(counts);
    assert_float_equal(images[3 * 17], 1 / 255.0F, 1e-7);     /* column 1 */
    assert_float_equal(images[3 * 17 + 1], 1 / 255.0F, 1e-7); /* row 1 */
    assert_float_equal(images[2], 0.2, 1e-7);                 /* blue */
    assert_float_equal(images[PIXELS * COLOURS + 2], 1.0, 1e-7);
    /* of too few frames the last is repeated; null is zeros */
    expect_ok(read_record(&s, "\n {\"images\": [\"a.png\"], \"scalars\": null, \"target\": 0}",
                          false, images, &counts));
    assert_memory_equal(images, images + PIXELS * COLOURS, PIXELS * COLOURS * sizeof(float));
    scratch_release(&s);
}

/* The file and the line, and what is wrong there; left out where that is asked for. */
static void bad_records_are_told_by_file_and_line(void **state)
{
    static const struct {
        const char *record, *says;
    } cases[] = {
        {"\n{\"images\": [\"wide.png\"], \"scalars\": [1, 2], \"target\": 0}",
         "list.jsonl:2: 'images': frame 0: "},
        {"{\"images\": [\"wide.png\"], \"scalars\": [1, 2], \"target\": 0}",
         "wide.png: 20 x 8 pixels; the network's images have 16 x 8"},
        {"{\"images\": [\"a.png\", \"cut.png\"], \"scalars\": [1, 2], \"target\": 0}",
         "cut.png: is a damaged PNG file"},
        {"{\"images\": [\"text.png\"], \"scalars\": [1, 2], \"target\": 0}",
         "text.png: is no PNG file"},
        {"{\"images\": [\"text.jpg\"], \"scalars\": [1, 2], \"target\": 0}",
         "text.jpg: is no JPEG file"},
        {"{\"images\": [\"a.png\", \"a.png\", \"a.png\"], \"scalars\": [1, 2], \"target\": 0}",
         "3 frames; the network has 2"},
        {"{\"images\": [\"a.png\"], \"scalars\": [1, 2, 3], \"target\": 0}",
         "list.jsonl:1: 'scalars': 3 numbers; the network's [2] has 2"},
        {"{\"images\": [\"a.png\"], \"scalars\": [1, true], \"target\": 0}", "expected numbers"},
        {"{\"images\": [\"a.png\"], \"scalars\": [1, 2]}", "'target': the record has no such"},
        {"{\"images\": [\"a.png\"], \"scalars\": [1, 2], \"target\": 4}",
         "list.jsonl:1: 'target': label 4; the network has 4 classes"},
        {"{\"images\": [\"a.png\"], \"scalars\": [1, 1e300], \"target\": 1}",
         "list.jsonl:1: 'scalars', element 1 is infinite"},
        {"{\"images\": [\"a.txt\"], \"scalars\": [1, 2], \"target\": 0}", "a .png or .jpg file"},
        {"{\"images\": [\"a.png\"", "list.jsonl:1: column"},
        {"[1, 2]", "list.jsonl:1: a record is an object"},
    };
    struct scratch s;
    float images[2 * PIXELS * COLOURS];
    char path[PATH], *bytes;
    size_t n_bytes;
    bool counts;
    (void)state;
    scratch_init(&s);
    write_png(&s, "a.png", WIDTH, 0);
    write_png(&s, "wide.png", 20, 0);
    scratch_write_text(&s, "text.png", "no image");
    scratch_write_text(&s, "text.jpg", "no image");
    (void)snprintf(path, sizeof(path), "%s/a.png", s.folder);
    expect_ok(file_read_stream(path, 1 << 20, &bytes, &n_bytes));
    (void)snprintf(path, sizeof(path), "%s/cut.png", s.folder);
    expect_ok(file_write_atomic(path, bytes, n_bytes - 20));
    mem_free(bytes);
    log_set_level(LOG_ERROR);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(read_record(&s, cases[i].record, false, images, &counts), ERR_DATA);
        if (!strstr(status_message(), cases[i].says))
            fail_msg("'%s' does not say '%s'", status_message(), cases[i].says);
        expect_ok(read_record(&s, cases[i].record, true, images, &counts));
        assert_false(counts);
    }
    scratch_release(&s);
}
#endif

static void an_empty_list_is_refused(void **state)
{
    struct scratch s;
    struct sample_files *f;
    (void)state;
    scratch_init(&s);
    scratch_write_text(&s, "list.jsonl", "\n  \n");
    assert_int_equal(open_at(&f, &s, "list.jsonl", true), ERR_DATA);
    assert_non_null(strstr(status_message(), "list.jsonl: has no samples"));
    scratch_release(&s);
}

#ifdef SNUG_HAS_JPEG
static void write_jpeg(const struct scratch *s, const char *name)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    uint8_t pixels[WIDTH * COLOURS];
    char path[PATH];
    (void)snprintf(path, sizeof(path), "%s/%s", s->folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    memset(pixels, 102, sizeof(pixels));
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_stdio_dest(&info, file);
    info.image_width = WIDTH;
    info.image_height = HEIGHT;
    info.input_components = COLOURS;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < HEIGHT) {
        JSAMPROW row = pixels;
        (void)jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    (void)fclose(file);
}

static void jpeg_files_are_read_too(void **state)
{
    struct scratch s;
    float images[2 * PIXELS * COLOURS];
    bool counts;
    (void)state;
    scratch_init(&s);
    write_jpeg(&s, "a.jpg");
    expect_ok(read_record(&s, "{\"images\": [\"a.jpg\"], \"scalars\": [0, 0], \"target\": 1}",
                          false, images, &counts));
    for (int i = 0; i < 2 * PIXELS * COLOURS; i++)
        assert_float_equal(images[i], 0.4, 0.01);
    scratch_release(&s);
}
#endif

#ifdef SNUG_HAS_HDF5
static void write_set(hid_t file, const char *name, hid_t type, int rank, const hsize_t *dims,
                      const void *data)
{
    hid_t space = H5Screate_simple(rank, dims, NULL), plan = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk[8] = {1};
    for (int i = 1; i < rank; i++)
        chunk[i] = dims[i];
    assert_true(H5Pset_chunk(plan, rank, chunk) >= 0 && H5Pset_shuffle(plan) >= 0);
    hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, plan, H5P_DEFAULT);
    assert_true(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    (void)H5Dclose(set);
    (void)H5Pclose(plan);
    (void)H5Sclose(space);
}

/* Two samples; `target` is of any integer type. */
static void write_hdf5(const struct scratch *s, hsize_t n_targets)
{
    static float images[2][2 * PIXELS * COLOURS];
    const double scalars[2][2] = {{1, 2}, {3, 4}};
    const int8_t target[3] = {1, 3, 0};
    char path[PATH];
    for (int i = 0; i < 2 * PIXELS * COLOURS; i++) {
        images[0][i] = (float)i;
        images[1][i] = (float)-i;
    }
    (void)snprintf(path, sizeof(path), "%s/data.h5", s->folder);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    write_set(file, "images", H5T_NATIVE_FLOAT, 5, (const hsize_t[]){2, 2, HEIGHT, WIDTH, COLOURS},
              images);
    write_set(file, "scalars", H5T_NATIVE_DOUBLE, 2, (const hsize_t[]){2, 2}, scalars);
    write_set(file, "target", H5T_NATIVE_INT8, 1, &n_targets, target);
    (void)H5Fclose(file);
}

static void data_sets_of_hdf5_are_samples(void **state)
{
    struct scratch s;
    struct sample_files *f;
    float images[2 * PIXELS * COLOURS], scalars[2];
    int32_t label;
    bool counts = true;
    (void)state;
    scratch_init(&s);
    write_hdf5(&s, 2);
    expect_ok(open_at(&f, &s, "data.h5", false));
    struct sample_source source = sample_files_source(f);
    assert_int_equal(source.n_samples, 2);
    expect_ok(source.read(source.user, 0, 1, images, &counts));
    expect_ok(source.read(source.user, 1, 1, scalars, &counts));
    expect_ok(source.read(source.user, 2, 1, &label, &counts));
    assert_true(images[7] == -7.0f && scalars[0] == 3.0f && label == 3 && counts);
    sample_files_close(f);
    write_hdf5(&s, 3);
    assert_int_equal(open_at(&f, &s, "data.h5", false), ERR_DATA);
    assert_non_null(strstr(status_message(), "'target' has 3 samples, 'images' has 2"));
    scratch_write_text(&s, "text.h5", "no such thing");
    assert_int_equal(open_at(&f, &s, "text.h5", false), ERR_DATA);
    assert_non_null(strstr(status_message(), "text.h5: cannot be read as an HDF5 file"));
    scratch_release(&s);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef SNUG_HAS_PNG
        cmocka_unit_test(frames_of_png_files_are_a_clip),
        cmocka_unit_test(bad_records_are_told_by_file_and_line),
#endif
#ifdef SNUG_HAS_JPEG
        cmocka_unit_test(jpeg_files_are_read_too),
#endif
#ifdef SNUG_HAS_HDF5
        cmocka_unit_test(data_sets_of_hdf5_are_samples),
#endif
        cmocka_unit_test(an_empty_list_is_refused),
    };
    return cmocka_run_group_tests_name("sample_lists", tests, NULL, NULL);
}
