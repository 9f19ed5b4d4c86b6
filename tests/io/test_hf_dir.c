/* Model folders by path and by name, their config, weights and pass-through files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "io/hf_dir.h"
#include "support/scratch.h"

static void refuse(const char *model, const char *hub, const char *part)
{
    char *folder;
    assert_int_equal(hf_dir_resolve(&folder, model, hub), ERR_CONFIG);
    assert_null(folder);
    expect_message(model);
    expect_message(part);
}

static void a_folder_is_taken_as_it_is(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    char *folder;
    assert_int_equal(hf_dir_resolve(&folder, s.folder, NULL), OK);
    assert_string_equal(folder, s.folder);
    mem_free(folder);
    scratch_release(&s);
}

static void a_cached_name_resolves_through_refs_main(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    char want[SCRATCH_PATH], *folder;
    scratch_write_text(&s, "models--Org--Some-Model_1.5B/refs/main", "abc123\n");
    scratch_write_text(&s, "models--Org--Some-Model_1.5B/snapshots/abc123/config.json", "{}");
    scratch_write_text(&s, "models--Org--Some-Model_1.5B/snapshots/older/config.json", "{}");
    assert_int_equal(hf_dir_resolve(&folder, "Org/Some-Model_1.5B", s.folder), OK);
    scratch_path(&s, "models--Org--Some-Model_1.5B/snapshots/abc123", want);
    assert_string_equal(folder, want);
    mem_free(folder);

    scratch_write_text(&s, "models--gpt2/refs/main", "r");
    scratch_write_text(&s, "models--gpt2/snapshots/r/config.json", "{}");
    assert_int_equal(hf_dir_resolve(&folder, "gpt2", s.folder), OK);
    scratch_path(&s, "models--gpt2/snapshots/r", want);
    assert_string_equal(folder, want);
    mem_free(folder);
    scratch_release(&s);
}

static void what_cannot_be_found_says_what_was_looked_for(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH];
    refuse("Org/Name", s.folder, scratch_path(&s, "models--Org--Name", path));
    expect_message("Snug does not download");
    refuse("Org/Name", NULL, "Snug does not download");
    refuse("/no/such/folder", s.folder, "no such folder");
    refuse("../Name", s.folder, "no such folder");
    refuse("a/b/c", s.folder, "no such folder");
    scratch_write_text(&s, "a.safetensors", "");
    refuse(scratch_path(&s, "a.safetensors", path), s.folder, "is a file; give the folder");

    scratch_write_text(&s, "models--Org--Name/x", "");
    refuse("Org/Name", s.folder, "refs/main");
    expect_message("Snug does not download");
    scratch_write_text(&s, "models--Org--Name/refs/main", "../../etc");
    refuse("Org/Name", s.folder, "does not hold the name of a snapshot");
    scratch_write_text(&s, "models--Org--Name/refs/main", "");
    refuse("Org/Name", s.folder, "does not hold the name of a snapshot");
    scratch_write_text(&s, "models--Org--Name/refs/main", "abc");
    refuse("Org/Name", s.folder, "snapshots/abc: missing");
    scratch_release(&s);
}

static void config_is_read_or_the_reason_is_given(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    json_t *config;
    assert_int_equal(hf_dir_read_config(&config, s.folder), ERR_DATA);
    expect_message("config.json: missing");
    assert_null(config);
    scratch_write_text(&s, "config.json", "{\"a\":");
    assert_int_equal(hf_dir_read_config(&config, s.folder), ERR_DATA);
    expect_message("config.json:1:6: not valid JSON");
    assert_null(config);
    scratch_write_text(&s, "config.json", "[]");
    assert_int_equal(hf_dir_read_config(&config, s.folder), ERR_DATA);
    expect_message("config.json: not a JSON object");
    assert_null(config);
    scratch_write_text(&s, "config.json", "{\"model_type\":\"gpt2\"}");
    assert_int_equal(hf_dir_read_config(&config, s.folder), OK);
    assert_string_equal(json_string_value(json_object_get(config, "model_type")), "gpt2");
    json_decref(config);
    scratch_release(&s);
}

static void pickled_weights_get_a_conversion_hint(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    struct st_reader *r;
    assert_int_equal(hf_dir_open_weights(&r, s.folder), ERR_DATA);
    expect_message("neither model.safetensors nor");
    scratch_write_text(&s, "pytorch_model.bin", "x");
    assert_int_equal(hf_dir_open_weights(&r, s.folder), ERR_DATA);
    assert_null(r);
    expect_message("pytorch_model.bin");
    expect_message("python3 -c");
    expect_message("save_pretrained");
    scratch_write(&s, "model.safetensors", "\x02\0\0\0\0\0\0\0{}", 10);
    assert_int_equal(hf_dir_open_weights(&r, s.folder), OK);
    st_reader_close(r);
    scratch_release(&s);
}

static void expect_copied(const struct scratch *s, const char *name, const char *want)
{
    char path[SCRATCH_PATH], *text;
    assert_int_equal(file_read(scratch_path(s, name, path), &text, NULL), OK);
    assert_string_equal(text, want);
    mem_free(text);
}

static void extras_that_exist_are_copied_and_nothing_else(void **state)
{
    (void)state;
    static const char *const names[] = {
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
        "vocab.json",
        "merges.txt",
        "tokenizer.model",
    };
    struct scratch from, to;
    scratch_init(&from);
    scratch_init(&to);
    char path[SCRATCH_PATH];
    assert_int_equal(hf_dir_copy_extras(from.folder, to.folder), OK);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        assert_false(file_exists(scratch_path(&to, names[i], path)));
        scratch_write_text(&from, names[i], names[i]);
    }
    scratch_write_text(&from, "merges.txt", ""); /* an empty file is copied as one */
    scratch_write_text(&from, "config.json", "{}");
    scratch_write_text(&from, "model.safetensors", "x");
    assert_int_equal(hf_dir_copy_extras(from.folder, to.folder), OK);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        expect_copied(&to, names[i], strcmp(names[i], "merges.txt") ? names[i] : "");
    assert_false(file_exists(scratch_path(&to, "config.json", path)));
    assert_false(file_exists(scratch_path(&to, "model.safetensors", path)));

    /* Onto itself, as when a model is exported in place. */
    assert_int_equal(hf_dir_copy_extras(from.folder, from.folder), OK);
    expect_copied(&from, "tokenizer.json", "tokenizer.json");
    scratch_release(&to);
    assert_int_equal(hf_dir_copy_extras(from.folder, to.folder), ERR_IO);
    expect_message(to.folder);
    scratch_release(&from);
}

/* Everything this file offers, in a row. */
static enum status use_all(const struct scratch *hub, const char *to)
{
    char *folder = NULL;
    json_t *config = NULL;
    struct st_reader *weights = NULL;
    enum status status;
    TRY_GOTO(hf_dir_resolve(&folder, "Org/Name", hub->folder), out);
    TRY_GOTO(hf_dir_read_config(&config, folder), out);
    TRY_GOTO(hf_dir_open_weights(&weights, folder), out);
    TRY_GOTO(hf_dir_copy_extras(folder, to), out);
out:
    st_reader_close(weights);
    json_decref(config);
    mem_free(folder);
    return status;
}

static void failures_of_memory_and_disk_are_reported(void **state)
{
    (void)state;
    struct scratch s, to;
    scratch_init(&s);
    scratch_init(&to);
    scratch_write_text(&s, "models--Org--Name/refs/main", "r");
    scratch_write_text(&s, "models--Org--Name/snapshots/r/config.json", "{}");
    scratch_write_text(&s, "models--Org--Name/snapshots/r/tokenizer.json", "{}");
    scratch_write(&s, "models--Org--Name/snapshots/r/model.safetensors", "\x02\0\0\0\0\0\0\0{}",
                  10);
    int64_t live = mem_live(), n = 1;
    for (;; n++) {
        mem_fail_after(n, n % 2 == 0);
        enum status status = use_all(&s, to.folder);
        mem_fail_after(0, 0);
        assert_int_equal(mem_live(), live);
        if (status == OK)
            break;
        assert_int_equal(status, ERR_MEMORY);
    }
    assert_true(n > 10);
    for (n = 1;; n++) {
        file_fail_after(n);
        enum status status = use_all(&s, to.folder);
        file_fail_after(0);
        assert_int_equal(mem_live(), live);
        if (status == OK)
            break;
        assert_int_equal(status, ERR_IO);
        expect_message("tokenizer.json");
    }
    assert_int_equal(n, 5); /* open, write, sync, rename of the one extra */
    scratch_release(&s);
    scratch_release(&to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_is_taken_as_it_is),
        cmocka_unit_test(a_cached_name_resolves_through_refs_main),
        cmocka_unit_test(what_cannot_be_found_says_what_was_looked_for),
        cmocka_unit_test(config_is_read_or_the_reason_is_given),
        cmocka_unit_test(pickled_weights_get_a_conversion_hint),
        cmocka_unit_test(extras_that_exist_are_copied_and_nothing_else),
        cmocka_unit_test(failures_of_memory_and_disk_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
