/* Samples out of files: what is read, and what is said of what cannot be. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "io/safetensors.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "task/sample_files.h"

enum { N = 3, PATH = SCRATCH_PATH + 64 };

/* An image of 2 x 2 pixels and 3 colours, and one of four classes. */
static const struct model_field fields[] = {
    {.name = "input", .shape = {.rank = 3, .dim = {2, 2, 3}}},
    {.name = "target", .is_target = true, .n_classes = 4}};
static const struct sample_facts facts = {.fields = fields, .n_fields = 2};

static void write_tensors(const char *path, const int64_t *dims, const float *input,
                          const int32_t *target)
{
    struct st_writer *w;
    int64_t n = N;
    expect_ok(st_writer_new(&w));
    expect_ok(st_writer_add(w, "input", ST_F32, 4, dims));
    expect_ok(st_writer_add(w, "target", ST_I32, 1, &n));
    expect_ok(st_writer_open_file(w, path));
    for (int64_t i = st_writer_next(w); i >= 0; i = st_writer_next(w))
        expect_ok(i == 0 ? st_writer_append(w, input, N * 12 * sizeof(float))
                         : st_writer_append(w, target, N * sizeof(int32_t)));
    expect_ok(st_writer_finish(w, 0));
    st_writer_free(w);
}

static enum status open_at(struct sample_files **f, char *path, bool skips_bad)
{
    struct config_dataset d = {.path = path, .where = "net.yaml:3"};
    const struct config_datasets all = {&d, 1};
    return sample_files_open(f, &all, &facts, skips_bad);
}

static void images_with_channels_first_are_turned(void **state)
{
    struct scratch s;
    struct sample_files *f;
    char path[PATH];
    float input[N * 12], row[12];
    int32_t target[N] = {0, 3, 1}, label;
    bool counts = true;
    (void)state;
    scratch_init(&s);
    (void)snprintf(path, sizeof(path), "%s/data.safetensors", s.folder);
    for (int i = 0; i < N * 12; i++)
        input[i] = (float)i;
    write_tensors(path, (const int64_t[]){N, 3, 2, 2}, input, target);
    expect_ok(open_at(&f, path, false));
    struct sample_source source = sample_files_source(f);
    assert_int_equal(source.n_samples, N);
    expect_ok(source.read(source.user, 0, 1, row, &counts));
    for (int place = 0; place < 4; place++) {
        for (int c = 0; c < 3; c++)
            assert_true(row[place * 3 + c] == (float)(12 + c * 4 + place));
    }
    expect_ok(source.read(source.user, 1, 1, &label, &counts));
    assert_int_equal(label, 3);
    assert_true(counts);
    sample_files_close(f);
    scratch_release(&s);
}

static void numbers_that_are_none_and_labels_that_are_no_class_are_refused_by_place(void **state)
{
    struct scratch s;
    struct sample_files *f;
    char path[PATH];
    float input[N * 12] = {0}, row[12];
    int32_t target[N] = {0, 4, 1}, label;
    bool counts = true;
    (void)state;
    scratch_init(&s);
    (void)snprintf(path, sizeof(path), "%s/data.safetensors", s.folder);
    input[2 * 12 + 5] = NAN;
    write_tensors(path, (const int64_t[]){N, 2, 2, 3}, input, target);
    expect_ok(open_at(&f, path, false));
    struct sample_source source = sample_files_source(f);
    assert_int_equal(source.read(source.user, 0, 2, row, &counts), ERR_DATA);
    assert_non_null(
        strstr(status_message(), "data.safetensors: 'input': sample 2, element 5 is NaN"));
    assert_int_equal(source.read(source.user, 1, 1, &label, &counts), ERR_DATA);
    assert_non_null(strstr(status_message(), "'target': sample 1: label 4; the network has 4"));
    sample_files_close(f);
    expect_ok(open_at(&f, path, true));
    source = sample_files_source(f);
    expect_ok(source.read(source.user, 0, 2, row, &counts));
    assert_false(counts);
    for (int i = 0; i < 12; i++)
        assert_true(row[i] == 0);
    log_set_level(LOG_ERROR);
    sample_files_close(f);
    scratch_release(&s);
}

static void tensors_of_another_shape_are_refused(void **state)
{
    struct scratch s;
    struct sample_files *f;
    char path[PATH];
    float input[N * 12] = {0};
    int32_t target[N] = {0};
    (void)state;
    scratch_init(&s);
    (void)snprintf(path, sizeof(path), "%s/data.safetensors", s.folder);
    write_tensors(path, (const int64_t[]){N, 1, 4, 3}, input, target);
    assert_int_equal(open_at(&f, path, false), ERR_DATA);
    assert_non_null(strstr(status_message(), "[1, 4, 3], the network's is [2, 2, 3]"));
    scratch_release(&s);
}

/* ---- .npy ------------------------------------------------------------------------------------ */

static void write_npy(const char *folder, const char *name, const char *header, const void *data,
                      size_t n_bytes)
{
    char path[PATH], bytes[1024];
    size_t n = strlen(header);
    (void)snprintf(path, sizeof(path), "%s/%s.npy", folder, name);
    memcpy(bytes, "\x93NUMPY\x01\x00", 8);
    bytes[8] = (char)n;
    bytes[9] = 0;
    memcpy(bytes + 10, header, n);
    memcpy(bytes + 10 + n, data, n_bytes);
    expect_ok(file_write_atomic(path, bytes, 10 + n + n_bytes));
}

static const char input_header[] =
    "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2, 2, 3), }\n";

static void a_folder_of_npy_files_is_samples(void **state)
{
    struct scratch s;
    struct sample_files *f;
    double input[N * 12];
    float row[12];
    uint8_t target[N] = {2, 0, 1};
    int32_t label;
    bool counts = true;
    (void)state;
    scratch_init(&s);
    for (int i = 0; i < N * 12; i++)
        input[i] = i;
    write_npy(s.folder, "input", input_header, input, sizeof(input));
    write_npy(s.folder, "target", "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }",
              target, sizeof(target));
    expect_ok(open_at(&f, s.folder, false));
    struct sample_source source = sample_files_source(f);
    expect_ok(source.read(source.user, 0, 2, row, &counts));
    assert_true(row[11] == 35.0f);
    expect_ok(source.read(source.user, 1, 0, &label, &counts));
    assert_int_equal(label, 2);
    sample_files_close(f);
    scratch_release(&s);
}

static void npy_files_that_cannot_be_read_say_why(void **state)
{
    static const struct {
        const char *header, *says;
    } cases[] = {
        {"{'descr': '>f8', 'fortran_order': False, 'shape': (3, 2, 2, 3), }", "big-endian"},
        {"{'descr': '<f8', 'fortran_order': True, 'shape': (3, 2, 2, 3), }", "Fortran"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (4, 2, 2, 3), }", "cut short"},
        {"{'descr': '<c16', 'fortran_order': False, 'shape': (3, 2, 2, 3), }", "not read"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (3, x), }", "shape cannot"},
    };
    struct scratch s;
    struct sample_files *f;
    double input[N * 12] = {0};
    (void)state;
    scratch_init(&s);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        write_npy(s.folder, "input", cases[i].header, input, sizeof(input));
        assert_int_equal(open_at(&f, s.folder, false), ERR_DATA);
        assert_non_null(strstr(status_message(), "input.npy"));
        assert_non_null(strstr(status_message(), cases[i].says));
    }
    scratch_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_with_channels_first_are_turned),
        cmocka_unit_test(numbers_that_are_none_and_labels_that_are_no_class_are_refused_by_place),
        cmocka_unit_test(tensors_of_another_shape_are_refused),
        cmocka_unit_test(a_folder_of_npy_files_is_samples),
        cmocka_unit_test(npy_files_that_cannot_be_read_say_why),
    };
    return cmocka_run_group_tests_name("sample_files", tests, NULL, NULL);
}
