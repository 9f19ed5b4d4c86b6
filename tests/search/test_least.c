/* What a refusal names as needed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "support/golden.h"
#include "support/paper_device.h"
#include "support/planning.h"
#include "support/training.h"

static const char llama[] =
    "{\"model_type\":\"llama\",\"vocab_size\":8000,\"hidden_size\":1024,"
    "\"intermediate_size\":2752,\"num_hidden_layers\":8,\"num_attention_heads\":16,"
    "\"num_key_value_heads\":16,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5,"
    "\"hidden_act\":\"silu\",\"rope_theta\":10000.0}";

/* What a refusal names, whatever was asked for: it fits when it is given, so does all that is more,
 * and a search in much less of it finds nothing. */
static void what_is_said_to_be_needed_is(void **state)
{
    (void)state;
    enum { N_REFUSED = 4, N_MORE = 8, MUCH = 8 };
    struct training t;
    struct device device;
    expect_ok(device_open_cpu(&device, 1));
    paper_device_make(&device);
    training_init(&t, &(struct training_options){.config = llama,
                                                 .batch = 8,
                                                 .seq_len = 256,
                                                 .n_micro = 1,
                                                 .max_grad_norm = 1,

                                                 .device = &device});
    struct workload *w = &t.engine.work;
    const int64_t coarse = planned_least(w);
    assert_true(planned_seconds(w, 1) == HUGE_VAL);
    const int64_t said = planned_needs(w);
    assert_true(said <= coarse);
    for (int i = 1; i <= N_REFUSED; i++) {
        assert_true(planned_seconds(w, (said - said / MUCH) * i / N_REFUSED) == HUGE_VAL);
        assert_int_equal(planned_needs(w), said);
    }
    for (int i = 0; i < N_MORE; i++)
        assert_true(isfinite(planned_seconds(w, said + (coarse - said) * i / N_MORE)));
    print_message("%lld bytes, and %lld by whole extents\n", (long long)said, (long long)coarse);
    training_release(&t);
    device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_said_to_be_needed_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
