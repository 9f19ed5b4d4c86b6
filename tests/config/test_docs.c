/* docs/CONFIG.md is what the schema prints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "config/config.h"

static void the_committed_reference_is_what_the_schema_prints(void **state)
{
    (void)state;
    struct str printed = {0};
    char *committed;
    size_t n_bytes;
    config_docs_markdown(&printed);
    assert_int_equal(str_status(&printed), OK);
    assert_int_equal(file_read(SNUG_SOURCE_DIR "/docs/CONFIG.md", &committed, &n_bytes), OK);
    if (n_bytes != printed.n || memcmp(committed, str_text(&printed), n_bytes) != 0)
        fail_msg("docs/CONFIG.md is out of date: run config_docs > docs/CONFIG.md");
    mem_free(committed);
    str_release(&printed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_committed_reference_is_what_the_schema_prints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
