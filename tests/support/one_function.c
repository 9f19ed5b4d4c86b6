/* SNUG_TEST=name runs the functions of that name alone, in any test program; * and ? are wildcards.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

__attribute__((constructor)) static void choose_functions(void)
{
    const char *name = getenv("SNUG_TEST");
    if (name)
        cmocka_set_test_filter(name);
}
