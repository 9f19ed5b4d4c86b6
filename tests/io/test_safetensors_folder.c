/* Model folders: one file, shards and their index, and the ways they can disagree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/machine.h"
#include "base/str.h"
#include "io/safetensors.h"
#include "support/scratch.h"

enum { N_TENSORS = 7 };

/* Bytes of tensor i: 40, 8, 16, 24, 0, 100, 12; all U8 but number 2. */
static const int64_t sizes[N_TENSORS] = {40, 8, 16, 24, 0, 100, 12};

static enum status write_folder(const char *folder, int64_t max_shard_bytes)
{
    struct st_writer *w;
    TRY(st_writer_new(&w));
    enum status status;
    for (int i = 0; i < N_TENSORS; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "layer.%d", i);
        int64_t dims[1] = {i == 2 ? sizes[i] / 4 : sizes[i]};
        TRY_GOTO(st_writer_add(w, name, i == 2 ? ST_F32 : ST_U8, 1, dims), out);
    }
    TRY_GOTO(st_writer_open_folder(w, folder, max_shard_bytes), out);
    for (int64_t i; (i = st_writer_next(w)) >= 0;) {
        char bytes[100];
        memset(bytes, (int)i + 1, sizeof(bytes));
        TRY_GOTO(st_writer_append(w, bytes, (size_t)sizes[i]), out);
    }
    TRY_GOTO(st_writer_finish(w, 1), out);
out:
    st_writer_free(w);
    return status;
}

static void check_folder(const char *folder)
{
    struct st_reader *r;
    assert_int_equal(st_reader_open_folder(&r, folder), OK);
    assert_int_equal(st_reader_count(r), N_TENSORS);
    assert_int_equal(st_reader_bytes(r), 200);
    assert_string_equal(st_reader_metadata(r, "format"), "pt");
    for (int i = 0; i < N_TENSORS; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "layer.%d", i);
        const struct st_tensor *t;
        assert_int_equal(st_reader_get(r, name, &t), OK);
        assert_int_equal(t->n_bytes, sizes[i]);
        for (int64_t k = 0; k < t->n_bytes; k++)
            assert_int_equal(t->data[k], i + 1);
    }
    st_reader_close(r);
}

static void a_small_model_is_one_file_without_index(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH];
    assert_int_equal(write_folder(s.folder, ST_DEFAULT_SHARD_BYTES), OK);
    assert_true(file_exists(scratch_path(&s, "model.safetensors", path)));
    assert_false(file_exists(scratch_path(&s, "model.safetensors.index.json", path)));
    check_folder(s.folder);
    scratch_release(&s);
}

static void a_large_model_is_cut_into_shards_with_an_index(void **state)
{
    (void)state;
    int64_t live = mem_live();
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH];
    /* 40+8 | 16+24+0 | 100 alone, though over the limit | 12 */
    assert_int_equal(write_folder(s.folder, 50), OK);
    assert_false(file_exists(scratch_path(&s, "model.safetensors", path)));
    json_t *index;
    scratch_path(&s, "model.safetensors.index.json", path);
    assert_int_equal(json_read_file(&index, path, ERR_DATA), OK);
    const json_t *metadata = json_object_get(index, "metadata");
    assert_int_equal(json_integer_value(json_object_get(metadata, "total_size")), 200);
    static const int shard[N_TENSORS] = {1, 1, 2, 2, 2, 3, 4};
    for (int i = 0; i < N_TENSORS; i++) {
        char name[32], file[64];
        (void)snprintf(name, sizeof(name), "layer.%d", i);
        (void)snprintf(file, sizeof(file), "model-%05d-of-00004.safetensors", shard[i]);
        const json_t *map = json_object_get(index, "weight_map");
        assert_string_equal(json_string_value(json_object_get(map, name)), file);
        assert_true(file_exists(scratch_path(&s, file, path)));
    }
    json_decref(index);
    check_folder(s.folder);
    scratch_release(&s);
    assert_int_equal(mem_live(), live);
}

static void every_shard_limit_gives_the_same_tensors(void **state)
{
    (void)state;
    for (int64_t limit = 1; limit <= 201; limit += 10) {
        struct scratch s;
        scratch_init(&s);
        assert_int_equal(write_folder(s.folder, limit), OK);
        check_folder(s.folder);
        scratch_release(&s);
    }
}

static void shards_are_filled_to_the_limit_and_numbered_from_one(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH];
    /* 40+8 exactly | 16+24+0 | 100 | 12 */
    assert_int_equal(write_folder(s.folder, 48), OK);
    assert_true(file_exists(scratch_path(&s, "model-00001-of-00004.safetensors", path)));
    scratch_release(&s);

    /* Every tensor is over the limit; the empty one goes with its predecessor. */
    scratch_init(&s);
    assert_int_equal(write_folder(s.folder, 1), OK);
    for (int i = 1; i <= 6; i++) {
        char file[64];
        (void)snprintf(file, sizeof(file), "model-%05d-of-00006.safetensors", i);
        assert_true(file_exists(scratch_path(&s, file, path)));
    }
    scratch_release(&s);
}

static void refuse_folder(const struct scratch *s, const char *part, const char *tensor)
{
    int64_t live = mem_live();
    struct st_reader *r;
    assert_int_equal(st_reader_open_folder(&r, s->folder), ERR_DATA);
    assert_null(r);
    expect_message(s->folder);
    expect_message(part);
    expect_message(tensor);
    assert_int_equal(mem_live(), live);
}

static void a_disagreeing_index_is_refused(void **state)
{
    (void)state;
    static const char index[] = "model.safetensors.index.json";
    struct scratch s;
    scratch_init(&s);
    refuse_folder(&s, "neither model.safetensors nor", "");

    scratch_write_text(&s, index, "{");
    refuse_folder(&s, "not valid JSON", "");
    scratch_write_text(&s, index, "[]");
    refuse_folder(&s, "no \"weight_map\"", "");
    scratch_write_text(&s, index, "{\"weight_map\":{}}");
    refuse_folder(&s, "no \"weight_map\"", "");
    scratch_write_text(&s, index, "{\"weight_map\":{\"a\":1}}");
    refuse_folder(&s, "not the name of a file beside it", "'a'");
    scratch_write_text(&s, index, "{\"weight_map\":{\"a\":\"../x.safetensors\"}}");
    refuse_folder(&s, "not the name of a file beside it", "'a'");
    scratch_write_text(&s, index, "{\"weight_map\":{\"a\":\"/etc/passwd\"}}");
    refuse_folder(&s, "not the name of a file beside it", "'a'");
    scratch_write_text(&s, index, "{\"weight_map\":{\"a\":\"x.safetensors\"}}");
    refuse_folder(&s, "x.safetensors: missing", "'a'");
    scratch_write(&s, "x.safetensors", "\x02\0\0\0\0\0\0\0{}", 10);
    refuse_folder(&s, "which does not hold it", "'a'");
    scratch_write(&s, "x.safetensors", "\x02\0\0\0\0\0\0\0{", 9);
    refuse_folder(&s, "runs past the end", "x.safetensors");
    scratch_release(&s);
}

static void the_index_decides_which_shard_a_tensor_is_from(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    char file[128];
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},"
                                 "\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[1,2]}}";
    memcpy(file, "\0\0\0\0\0\0\0\0", 8);
    file[0] = (char)(sizeof(header) - 1);
    memcpy(file + 8, header, sizeof(header) - 1);
    memcpy(file + 8 + sizeof(header) - 1, "12", 2);
    scratch_write(&s, "x", file, 8 + sizeof(header) - 1 + 2);
    memcpy(file + 8 + sizeof(header) - 1, "34", 2);
    scratch_write(&s, "y", file, 8 + sizeof(header) - 1 + 2);
    scratch_write_text(&s, "model.safetensors.index.json",
                       "{\"weight_map\":{\"a\":\"y\",\"b\":\"x\"}}");
    struct st_reader *r;
    assert_int_equal(st_reader_open_folder(&r, s.folder), OK);
    assert_int_equal(st_reader_count(r), 2);
    assert_int_equal(st_reader_find(r, "a")->data[0], '3');
    assert_int_equal(st_reader_find(r, "b")->data[0], '2');
    st_reader_close(r);
    scratch_release(&s);
}

/* An index may name a shard for many tensors that it does not hold: it is read once all the same.
 */
static void a_shard_is_read_once_however_often_it_is_named(void **state)
{
    (void)state;
    enum { N_HELD = 2000, N_NAMED = 20000 };
    struct scratch s;
    struct str header = {0}, index = {0};
    struct st_reader *r;
    scratch_init(&s);
    for (int i = 0; i < N_HELD; i++)
        str_addf(&header, "%s\"held.%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                 i ? "," : "{", i);
    str_add(&header, "}");
    for (int i = 0; i < N_NAMED; i++)
        str_addf(&index, "%s\"named.%d\":\"a.safetensors\"", i ? "," : "{\"weight_map\":{", i);
    str_add(&index, "}}");
    struct str file = {0};
    uint64_t n = header.n;
    str_add_n(&file, (const char *)&n, sizeof(n));
    str_add_n(&file, header.text, header.n);
    scratch_write(&s, "a.safetensors", file.text, file.n);
    scratch_write(&s, "model.safetensors.index.json", index.text, index.n);
    double start = now_s();
    assert_int_equal(st_reader_open_folder(&r, s.folder), ERR_DATA);
    expect_message("does not hold it");
    assert_true(now_s() - start < 5);
    str_release(&header);
    str_release(&index);
    str_release(&file);
    scratch_release(&s);
}

static void folders_survive_every_failed_allocation(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    assert_int_equal(write_folder(s.folder, 50), OK);
    int64_t live = mem_live(), n = 1;
    for (;; n++) {
        struct st_reader *r;
        mem_fail_after(n, n % 2 == 0);
        enum status status = st_reader_open_folder(&r, s.folder);
        mem_fail_after(0, 0);
        if (status == OK) {
            st_reader_close(r);
            break;
        }
        assert_int_equal(status, ERR_MEMORY);
        assert_int_equal(mem_live(), live);
    }
    assert_true(n > 5);
    for (n = 1;; n++) {
        mem_fail_after(n, n % 2 == 0);
        enum status status = write_folder(s.folder, 50);
        mem_fail_after(0, 0);
        assert_int_equal(mem_live(), live);
        if (status == OK)
            break;
        assert_int_equal(status, ERR_MEMORY);
    }
    assert_true(n > 5);
    scratch_release(&s);
}

static void sharded_writing_reports_every_failed_write(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    int64_t live = mem_live(), n = 1;
    for (;; n++) {
        file_fail_after(n);
        enum status status = write_folder(s.folder, 50);
        file_fail_after(0);
        assert_int_equal(mem_live(), live);
        if (status == OK)
            break;
        assert_int_equal(status, ERR_IO);
        expect_message(s.folder);
    }
    assert_true(n > 25); /* 4 files opened, headed, 6 tensors, index, 4 + 1 syncs */
    check_folder(s.folder);
    scratch_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_model_is_one_file_without_index),
        cmocka_unit_test(a_large_model_is_cut_into_shards_with_an_index),
        cmocka_unit_test(every_shard_limit_gives_the_same_tensors),
        cmocka_unit_test(shards_are_filled_to_the_limit_and_numbered_from_one),
        cmocka_unit_test(a_disagreeing_index_is_refused),
        cmocka_unit_test(the_index_decides_which_shard_a_tensor_is_from),
        cmocka_unit_test(a_shard_is_read_once_however_often_it_is_named),
        cmocka_unit_test(folders_survive_every_failed_allocation),
        cmocka_unit_test(sharded_writing_reports_every_failed_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
