/* Pickles as Python reads them: opcode by opcode, and by Python itself where there is one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "report/pickle.h"
#include "support/golden.h"
#include "support/scratch.h"

static void values_are_written_with_their_shortest_opcodes(void **state)
{
    (void)state;
    struct str out = {0};
    struct pickle p = {.out = &out};
    static const int64_t numbers[] = {7, 255, 256, 65536, -1, INT64_C(1) << 44};
    pickle_begin(&p);
    pickle_open_list(&p);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        pickle_next(&p);
        pickle_int(&p, numbers[i]);
    }
    pickle_close_list(&p);
    expect_ok(pickle_end(&p));
    static const char expected[] = "\x80\x02](K\x07K\xffM\x00\x01J\x00\x00\x01\x00J\xff\xff\xff\xff"
                                   "\x8a\x08\x00\x00\x00\x00\x00\x10\x00\x00"
                                   "e.";
    assert_int_equal(out.n, sizeof(expected) - 1);
    assert_memory_equal(out.text, expected, out.n);
    str_release(&out);
}

static void a_text_is_written_once(void **state)
{
    (void)state;
    struct str out = {0};
    struct pickle p = {.out = &out};
    pickle_begin(&p);
    pickle_open_dict(&p);
    pickle_set_text(&p, "ab", "ab");
    pickle_close_dict(&p);
    expect_ok(pickle_end(&p));
    static const char expected[] = "\x80\x02}(X\x02\x00\x00\x00"
                                   "abr\x00\x00\x00\x00j\x00\x00\x00\x00u.";
    assert_int_equal(out.n, sizeof(expected) - 1);
    assert_memory_equal(out.text, expected, out.n);
    str_release(&out);
}

/* Readers put a batch on their stack, and some cannot take 100,000 items at once. */
static void long_lists_are_written_in_batches(void **state)
{
    (void)state;
    struct str out = {0};
    struct pickle p = {.out = &out};
    int n_batches = 0;
    pickle_begin(&p);
    pickle_open_list(&p);
    for (int i = 0; i < 2500; i++) {
        pickle_next(&p);
        pickle_int(&p, 1);
    }
    pickle_close_list(&p);
    expect_ok(pickle_end(&p));
    for (size_t i = 0; i < out.n; i++)
        n_batches += out.text[i] == 'e';
    assert_int_equal(n_batches, 3);
    str_release(&out);
}

static void python_reads_what_was_written(void **state)
{
    (void)state;
    struct scratch s;
    struct str out = {0};
    struct pickle p = {.out = &out};
    char path[SCRATCH_PATH], command[SCRATCH_PATH + 512];
    if (system("python3 -c '' 2>/dev/null") != 0)
        skip();
    pickle_begin(&p);
    pickle_open_dict(&p);
    pickle_set_text(&p, "bad",
                    "a\xff"
                    "b\xc3\xa9");
    pickle_set_int(&p, "low", INT64_MIN);
    pickle_text(&p, "list");
    pickle_open_list(&p);
    for (int i = 0; i < 1001; i++) {
        pickle_next(&p);
        pickle_open_dict(&p);
        pickle_set_int(&p, "i", i);
        pickle_close_dict(&p);
    }
    pickle_close_list(&p);
    pickle_close_dict(&p);
    expect_ok(pickle_end(&p));
    scratch_init(&s);
    scratch_write(&s, "x.pickle", out.text, out.n);
    (void)snprintf(command, sizeof(command),
                   "python3 -c \"import pickle; x = pickle.load(open('%s', 'rb'));"
                   " assert x == {'bad': 'a\\ufffdb\\u00e9', 'low': -2**63,"
                   " 'list': [{'i': i} for i in range(1001)]}, x\"",
                   scratch_path(&s, "x.pickle", path));
    assert_int_equal(system(command), 0);
    scratch_release(&s);
    str_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_written_with_their_shortest_opcodes),
        cmocka_unit_test(a_text_is_written_once),
        cmocka_unit_test(long_lists_are_written_in_batches),
        cmocka_unit_test(python_reads_what_was_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
