/* What data is, wherever it lies: the same tokens give the same hash, others another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "data/source_survey.h"
#include "support/golden.h"
#include "support/scratch.h"

enum { N_BYTES = 70000 }; /* more than a piece */

/* Text files in a folder are read in their order, each with an end of text behind it. */
static struct source_survey survey_of(const char *path, int64_t most)
{
    struct source *s;
    struct tokenizer *t;
    struct source_survey found;
    expect_ok(tokenizer_open(&t, "bytes"));
    struct scratch cache;
    scratch_init(&cache);
    struct source_options o = {.kind = SOURCE_AUTO,
                               .paths = &path,
                               .n_paths = 1,
                               .tokenizer = t,
                               .vocab_size = 257,
                               .cache_folder = cache.folder};
    expect_ok(source_open(&s, &o));
    expect_ok(source_survey(s, most, &found));
    source_free(s);
    scratch_release(&cache);
    tokenizer_free(t);
    return found;
}

static void write_text(const struct scratch *s, const char *name, size_t changed)
{
    static char text[N_BYTES];
    for (size_t i = 0; i < N_BYTES; i++)
        text[i] = (char)('a' + i % 7 + (i == changed));
    scratch_write(s, name, text, sizeof(text));
}

static void the_same_tokens_have_the_same_hash_wherever_they_lie(void **state)
{
    (void)state;
    struct scratch s;
    char a[SCRATCH_PATH], b[SCRATCH_PATH];
    scratch_init(&s);
    write_text(&s, "a.txt", N_BYTES);
    write_text(&s, "elsewhere/b", N_BYTES);
    struct source_survey x = survey_of(scratch_path(&s, "a.txt", a), SURVEY_ALL);
    struct source_survey y = survey_of(scratch_path(&s, "elsewhere/b", b), SURVEY_ALL);
    assert_true(x.is_whole);
    assert_int_equal(x.n_tokens, N_BYTES + 1);
    assert_int_equal(x.n_labels, N_BYTES + 1);
    assert_true(x.hash == y.hash);
    /* Any single letter makes it other data. */
    static const size_t places[] = {0, 1, 16383, 16384, N_BYTES / 2, N_BYTES - 1};
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        write_text(&s, "elsewhere/b", places[i]);
        assert_true(survey_of(b, SURVEY_ALL).hash != x.hash);
    }
    scratch_release(&s);
}

static void of_long_data_pieces_from_end_to_end_are_looked_at(void **state)
{
    (void)state;
    struct scratch s;
    char a[SCRATCH_PATH];
    const int64_t most = 2 << 14;
    scratch_init(&s);
    write_text(&s, "a.txt", N_BYTES);
    struct source_survey x = survey_of(scratch_path(&s, "a.txt", a), most);
    assert_false(x.is_whole);
    assert_int_equal(x.n_labels, most);
    write_text(&s, "a.txt", 5);
    assert_true(survey_of(a, most).hash != x.hash);
    write_text(&s, "a.txt", N_BYTES - 5);
    assert_true(survey_of(a, most).hash != x.hash);
    scratch_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_tokens_have_the_same_hash_wherever_they_lie),
        cmocka_unit_test(of_long_data_pieces_from_end_to_end_are_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
