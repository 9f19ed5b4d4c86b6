/* The tokenizer beside a model is the one the model was trained with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "data/tokenizer.h"
#include "io/tokenizer_files.h"
#include "support/golden.h"
#include "support/scratch.h"

static void expect_same_ids(const struct tokenizer *a, const struct tokenizer *b, const char *text,
                            size_t n_bytes)
{
    struct token_list x = {0}, y = {0};
    expect_ok(tokenizer_encode(a, text, n_bytes, 0, &x));
    expect_ok(tokenizer_encode(b, text, n_bytes, 0, &y));
    assert_int_equal(x.n, y.n);
    assert_memory_equal(x.items, y.items, x.n * sizeof(*x.items));
    token_list_release(&x);
    token_list_release(&y);
}

static void the_bytes_tokenizer_is_written_as_files_that_give_its_ids(void **state)
{
    (void)state;
    struct scratch s;
    struct tokenizer *built_in, *read;
    scratch_init(&s);
    expect_ok(tokenizer_files_write("bytes", s.folder));
    expect_ok(tokenizer_open(&built_in, "bytes"));
    expect_ok(tokenizer_open(&read, s.folder));
    assert_int_equal(tokenizer_vocab_size(read), tokenizer_vocab_size(built_in));
    assert_int_equal(tokenizer_eos(read), tokenizer_eos(built_in));
    static const char text[] =
        "Two words,\n\ttabs  and 12 numbers <|endoftext|> \xC3\xA9\xE2\x82\xAC";
    expect_same_ids(built_in, read, text, sizeof(text) - 1);
    struct rng r = {.key = 5};
    for (int i = 0; i < 200; i++) { /* any bytes, mostly no UTF-8 */
        char bytes[300];
        size_t n = rng_below(&r, sizeof(bytes)) + 1;
        for (size_t k = 0; k < n; k++)
            bytes[k] = (char)rng_next(&r);
        expect_same_ids(built_in, read, bytes, n);
    }
    tokenizer_free(built_in);
    tokenizer_free(read);
    scratch_release(&s);
}

static void a_tokenizer_file_of_any_name_is_copied_with_its_config(void **state)
{
    (void)state;
    struct scratch s;
    char from[SCRATCH_PATH], to[SCRATCH_PATH];
    struct tokenizer *t;
    scratch_init(&s);
    scratch_write_text(&s, "made/x", "");
    expect_ok(tokenizer_files_write("bytes", scratch_path(&s, "made", from)));
    scratch_write_text(&s, "to/x", "");
    scratch_path(&s, "made/tokenizer.json", from);
    expect_ok(tokenizer_files_write(from, scratch_path(&s, "to", to)));
    expect_ok(tokenizer_open(&t, to));
    assert_int_equal(tokenizer_eos(t), 256);
    tokenizer_free(t);
    scratch_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_tokenizer_is_written_as_files_that_give_its_ids),
        cmocka_unit_test(a_tokenizer_file_of_any_name_is_copied_with_its_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
