/* Exports: a Hugging Face folder that loads again, whole or not at all, and never over something
 * that is not an export. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/half.h"
#include "base/json.h"
#include "base/log.h"
#include "io/export.h"
#include "io/hf_dir.h"
#include "io/weights.h"
#include "support/golden.h"
#include "support/scratch.h"

struct fixture {
    struct scratch scratch;
    struct golden golden;
    struct tensor tensors[64];
    struct export_content content;
    char out[SCRATCH_PATH], source[SCRATCH_PATH];
};

static struct tensor *new_tensors(const struct fixture *f, struct tensor *tensors)
{
    for (int i = 0; i < f->golden.built.n_params; i++) {
        tensors[i] = (struct tensor){.dtype = DTYPE_F32, .shape = f->golden.built.params[i].shape};
        tensors[i].data = mem_calloc((size_t)tensor_bytes(&tensors[i]), 1);
        assert_non_null(tensors[i].data);
    }
    return tensors;
}

static void free_tensors(const struct fixture *f, struct tensor *tensors)
{
    for (int i = 0; i < f->golden.built.n_params; i++)
        mem_free(tensors[i].data);
}

static void fixture_init(struct fixture *f, const char *name)
{
    struct model_request request = {
        .purpose = MODEL_EVAL, .batch = 1, .seq_len = 8, .dtype = DTYPE_F32};
    memset(f, 0, sizeof(*f));
    scratch_init(&f->scratch);
    golden_open(&f->golden, name, "config.json", &request);
    assert_in_range(f->golden.built.n_params, 1, 64);
    expect_ok(weights_load(f->golden.folder, f->golden.built.params, f->golden.built.n_params,
                           new_tensors(f, f->tensors), NULL));
    scratch_write_text(&f->scratch, "source/tokenizer.json", "{}");
    f->content = (struct export_content){
        .model = f->golden.model,
        .params = f->golden.built.params,
        .n_params = f->golden.built.n_params,
        .tensors = f->tensors,
        .stage = &host_stage,
        .dtype = DTYPE_F32,
        .extras_folder = scratch_path(&f->scratch, "source", f->source),
    };
    scratch_path(&f->scratch, "models/mine", f->out);
}

static void fixture_release(struct fixture *f)
{
    free_tensors(f, f->tensors);
    golden_close(&f->golden);
    scratch_release(&f->scratch);
}

static bool exists(const struct fixture *f, const char *name)
{
    char path[SCRATCH_PATH];
    return file_exists(scratch_path(&f->scratch, name, path)) != 0;
}

static float rounded(enum dtype dtype, float x)
{
    return dtype == DTYPE_BF16  ? bf16_to_f32(bf16_from_f32(x))
           : dtype == DTYPE_F16 ? f16_to_f32(f16_from_f32(x))
                                : x;
}

/* The exported folder is a model with the same config and the weights rounded to its dtype. */
static void expect_export(const struct fixture *f, const char *dtype)
{
    struct tensor back[64];
    expect_ok(
        weights_load(f->out, f->content.params, f->content.n_params, new_tensors(f, back), NULL));
    for (int i = 0; i < f->content.n_params; i++) {
        const float *due = f->tensors[i].data, *got = back[i].data;
        for (int64_t e = 0; e < shape_elems(&back[i].shape); e++)
            assert_true(got[e] == rounded(f->content.dtype, due[e]));
    }
    free_tensors(f, back);
    json_t *config;
    struct model *model;
    expect_ok(hf_dir_read_config(&config, f->out));
    assert_string_equal(json_string_value(json_object_get(config, "dtype")), dtype);
    expect_ok(model_new(&model, config, &(struct key_origin){.where = f->out}));
    json_decref(config);
    json_t *a = model_export_config(model), *b = model_export_config(f->golden.model);
    assert_true(json_equal(a, b));
    json_decref(a);
    json_decref(b);
    model_free(model);
}

static void an_export_loads_again_in_every_dtype(void **state)
{
    (void)state;
    const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    const char *const names[] = {"float32", "bfloat16", "float16"};
    for (int i = 0; golden_names[i]; i++) {
        struct fixture f;
        fixture_init(&f, golden_names[i]);
        for (size_t k = 0; k < ARRAY_LEN(dtypes); k++) {
            f.content.dtype = dtypes[k];
            f.content.max_shard_bytes = k == 1 ? 10000 : 0;
            expect_ok(export_model(f.out, &f.content, true)); /* over the one before */
            expect_export(&f, names[k]);
            assert_true(exists(&f, "models/mine/tokenizer.json"));
            assert_int_equal(exists(&f, "models/mine/model.safetensors.index.json"), k == 1);
            assert_int_equal(exists(&f, "models/mine/model.safetensors"), k != 1);
        }
        fixture_release(&f);
    }
}

static void weights_that_f16_cannot_hold_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    f.content.dtype = DTYPE_F16;
    ((float *)f.tensors[1].data)[5] = 65519.0f;
    expect_ok(export_model(f.out, &f.content, false));
    ((float *)f.tensors[1].data)[5] = -65520.0f;
    assert_int_equal(export_model(f.out, &f.content, true), ERR_CONFIG);
    expect_message(f.content.params[1].name);
    expect_message("element 5 is -65520");
    fixture_release(&f);
}

static void what_is_there_is_replaced_only_by_force(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    scratch_write_text(&f.scratch, "models/mine/thesis.tex", "x");
    assert_int_equal(export_model(f.out, &f.content, false), ERR_USAGE);
    expect_message("--force");
    assert_true(exists(&f, "models/mine/thesis.tex"));
    expect_ok(export_model(f.out, &f.content, true));
    assert_false(exists(&f, "models/mine/thesis.tex"));
    expect_export(&f, "float32");

    /* An earlier export may be of another model. */
    assert_int_equal(export_model(f.out, &f.content, false), ERR_USAGE);
    expect_message("not empty");

    scratch_write_text(&f.scratch, "models/mine/deep/x", "x");
    assert_int_equal(export_model(f.out, &f.content, true), ERR_USAGE);
    expect_message("has folders in it");
    assert_true(exists(&f, "models/mine/deep/x"));

    scratch_write_text(&f.scratch, "file", "x");
    char path[SCRATCH_PATH];
    assert_int_equal(export_model(scratch_path(&f.scratch, "file", path), &f.content, true),
                     ERR_USAGE);
    static const char *const bad[] = {"/", ".", "..", "", "a/.."};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(export_model(bad[i], &f.content, true), ERR_USAGE);
        expect_message("give the name of the folder");
    }
    f.content.extras_folder = "/no/such/folder";
    assert_int_equal(export_model(scratch_path(&f.scratch, "new", path), &f.content, true), ERR_IO);
    expect_message("/no/such/folder");
    assert_false(file_exists(path));
    fixture_release(&f);
}

static void a_folder_the_model_is_read_from_is_never_replaced(void **state)
{
    (void)state;
    struct fixture f;
    char path[SCRATCH_PATH];
    fixture_init(&f, "gpt2");
    assert_int_equal(export_model(f.source, &f.content, true), ERR_USAGE);
    expect_message("read from there");
    scratch_write_text(&f.scratch, "weights/model.safetensors", "x");
    f.content.weights_folder = scratch_path(&f.scratch, "weights", path);
    assert_int_equal(export_model(path, &f.content, true), ERR_USAGE);
    assert_true(exists(&f, "weights/model.safetensors"));
    fixture_release(&f);
}

static void an_empty_folder_and_a_trailing_slash_are_fine(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    expect_ok(file_make_folders(f.out));
    char path[SCRATCH_PATH + 2];
    snprintf(path, sizeof(path), "%s//", f.out);
    expect_ok(export_model(path, &f.content, false));
    expect_export(&f, "float32");
    fixture_release(&f);
}

/* Nothing but the export, or what was there before, is left in the parent folder. */
static void expect_no_rest(const struct fixture *f)
{
    char name[64];
    snprintf(name, sizeof(name), "models/.tmp-export-mine-%ld", (long)getpid());
    assert_false(exists(f, name));
    snprintf(name, sizeof(name), "models/.old-export-mine-%ld", (long)getpid());
    assert_false(exists(f, name));
}

static void a_full_disk_leaves_the_old_export_or_none(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    for (int replacing = 0; replacing < 2; replacing++) {
        int64_t n = 1;
        for (;; n++) {
            f.content.dtype = replacing ? DTYPE_BF16 : DTYPE_F32;
            file_fail_after(n);
            enum status status = export_model(f.out, &f.content, replacing);
            file_fail_after(0);
            expect_no_rest(&f);
            if (status == OK)
                break;
            assert_int_equal(status, ERR_IO);
            expect_message("the disk is full");
            assert_int_equal(file_exists(f.out), replacing);
            f.content.dtype = DTYPE_F32;
            if (replacing)
                expect_export(&f, "float32");
        }
        assert_true(n > 10);
        expect_export(&f, replacing ? "bfloat16" : "float32");
    }
    fixture_release(&f);
}

static void running_out_of_memory_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    expect_ok(export_model(f.out, &f.content, false));
    int64_t n = 1, live = mem_live();
    for (;; n++) {
        mem_fail_after(n, n % 2 == 0);
        enum status status = export_model(f.out, &f.content, true);
        mem_fail_after(0, 0);
        assert_int_equal(mem_live(), live);
        expect_no_rest(&f);
        if (status == OK)
            break;
        assert_int_equal(status, ERR_MEMORY);
        expect_export(&f, "float32");
    }
    assert_true(n > 10);
    fixture_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_export_loads_again_in_every_dtype),
        cmocka_unit_test(weights_that_f16_cannot_hold_are_refused),
        cmocka_unit_test(what_is_there_is_replaced_only_by_force),
        cmocka_unit_test(a_folder_the_model_is_read_from_is_never_replaced),
        cmocka_unit_test(an_empty_folder_and_a_trailing_slash_are_fine),
        cmocka_unit_test(a_full_disk_leaves_the_old_export_or_none),
        cmocka_unit_test(running_out_of_memory_is_reported_and_leaks_nothing),
    };
    log_set_level(LOG_QUIET);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
