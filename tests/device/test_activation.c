/* An activation made together with its gradient has the bits of both made apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/activation_calls.h"

static void made_with_its_gradient_an_activation_has_the_same_bits(void **state)
{
    struct device d;
    (void)state;
    assert_int_equal(device_open_cpu(&d, 2), OK);
    int n_bad = activation_calls_check(&d);
    device_close(&d);
    assert_int_equal(n_bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(made_with_its_gradient_an_activation_has_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
