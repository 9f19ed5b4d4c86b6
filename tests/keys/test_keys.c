/* Every key of a config acts: for each row of the schema a function key_<name> that lets two runs
 * differ in what the key is about and in nothing else, or sees the run refused. They stand in the
 * other files of this folder, by the groups of the schema; adding a key means adding one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "keys/keys.h"
#include "support/trial.h"

#define GROUP(title)
#define KEY(name, type, default_value, rule, resume, aliases, meaning) \
    static void name##_acts(void **state)                              \
    {                                                                  \
        (void)state;                                                   \
        key_##name();                                                  \
    }
#define CHOICE(name, set, default_value, resume, aliases, meaning) \
    KEY(name, CHOICE, default_value, "", resume, aliases, meaning)
#include "config/config.def"
#undef KEY

static int begin(void **state)
{
    (void)state;
    trials_begin();
    return 0;
}

static int end(void **state)
{
    (void)state;
    trials_end();
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
#define KEY(name, type, default_value, rule, resume, aliases, meaning) \
    cmocka_unit_test(name##_acts),
#include "config/config.def"
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, begin, end);
}
