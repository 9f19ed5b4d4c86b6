/* Networks with padded sequences: the same bits whatever is kept or made again, and whatever the
 * padding holds; data whose masks are wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "support/golden.h"
#include "support/network_run.h"
#include "support/train_session.h"

static const char text[] =
    "model:\n"
    "  inputs: {question: [5, 6], passage: [7, 8]}\n"
    "  layers:\n"
    "    - input: passage\n"
    "    - encoder: {heads: 2, hidden: 8, dropout: 0.1, mask: passage_mask, name: memory}\n"
    "    - input: question\n"
    "    - attention: {heads: 3, mask: question_mask}\n"
    "    - cross_attention: {heads: 2, from: memory, mask: passage_mask, dropout: 0.2}\n"
    "    - global_mean\n"
    "    - linear: 2\n"
    "  loss: mse\n";

static void masked_networks_have_the_same_bits_whatever_is_made_again(void **state)
{
    static const char *const ways[] = {"gradient_checkpointing=false",
                                       "gradient_checkpointing=true", "gradient_checkpointing=1-2"};
    struct network_run first, x;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        const char *const settings[] = {"max_steps=6", "per_device_train_batch_size=4",
                                        "gradient_accumulation_steps=2", ways[i], NULL};
        network_train(i ? &x : &first, text, settings);
        if (i == 0)
            continue;
        assert_memory_equal(first.losses, x.losses, sizeof(x.losses));
        network_expect_same(&first, &x);
        network_finish(&x);
    }
    network_finish(&first);
}

static void masked_networks_train_in_half_precision(void **state)
{
    struct network_run x;
    const char *const settings[] = {"max_steps=40",       "per_device_train_batch_size=16",
                                    "bf16=true",          "optim=adamw",
                                    "learning_rate=0.01", NULL};
    (void)state;
    network_train(&x, text, settings);
    assert_true(x.losses[38] + x.losses[39] < 0.8 * (x.losses[0] + x.losses[1]));
    network_finish(&x);
}

/* ---- from a list ----------------------------------------------------------------------------- */

static const char small[] = "model:\n"
                            "  inputs: {q: [1, 2], m: [3, 2]}\n"
                            "  layers:\n"
                            "    - input: q\n"
                            "    - cross_attention: {heads: 1, from: m, mask: m_mask}\n"
                            "    - global_mean\n"
                            "    - linear: 1\n"
                            "  loss: mse\n";

/* Two samples, whose padded step holds `padding`, under the masks [1, 0, 1] and `mask`. */
static void write_list(struct scratch *data, const char *padding, const char *mask)
{
    char list[512];
    (void)snprintf(list, sizeof(list),
                   "{\"q\": [[1, 2]], \"m\": [[1, 0], %s, [0, 2]], \"m_mask\": [1, 0, 1], "
                   "\"target\": [0.3]}\n"
                   "{\"q\": [[3, 1]], \"m\": [%s, [2, 1], [1, 1]], \"m_mask\": %s, "
                   "\"target\": [-1]}\n",
                   padding, padding, mask);
    scratch_write_text(data, "list.jsonl", list);
}

static enum status load_list(struct network_run *x, struct scratch *data, bool trains)
{
    char path[SCRATCH_PATH], file[SCRATCH_PATH + 32];
    (void)snprintf(file, sizeof(file), "datasets.0.path=%s",
                   scratch_path(data, "list.jsonl", path));
    const char *const settings[] = {"max_steps=4", "per_device_train_batch_size=2",
                                    "learning_rate=0.1", file, NULL};
    if (!trains)
        return network_load(x, small, settings);
    network_train(x, small, settings);
    return OK;
}

static void what_padded_steps_hold_does_not_change_training(void **state)
{
    struct scratch data;
    struct network_run a, b;
    (void)state;
    scratch_init(&data);
    write_list(&data, "[0, 0]", "[0, 1, 1]");
    expect_ok(load_list(&a, &data, true));
    write_list(&data, "[-7, 1000]", "[0, 1, 1]");
    expect_ok(load_list(&b, &data, true));
    assert_memory_equal(a.losses, b.losses, sizeof(a.losses));
    network_expect_same(&a, &b);
    network_finish(&a);
    network_finish(&b);
    write_list(&data, "[-1, 2]", "[1, 1, 1]"); /* and is seen where it is none */
    expect_ok(load_list(&b, &data, true));
    assert_true(b.losses[0] != a.losses[0]);
    network_finish(&b);
    scratch_release(&data);
}

static enum status run_list(struct network_run *x, struct scratch *data)
{
    struct train_result result = {0};
    TRY(load_list(x, data, false));
    TRY(session_data(&x->session));
    TRY(session_start(&x->session));
    enum status status = train_session(&x->session, &(struct train_options){0}, &result);
    train_result_release(&result);
    return status;
}

static void expect_bad_mask(const char *mask, const char *message)
{
    struct scratch data;
    struct network_run x = {0};
    scratch_init(&data);
    scratch_init(&x.scratch);
    write_list(&data, "[0, 0]", mask);
    enum status status = run_list(&x, &data);
    assert_int_equal(status, ERR_DATA);
    expect_message(message);
    session_close(&x.session);
    config_free(x.config);
    scratch_release(&x.scratch);
    scratch_release(&data);
}

static void masks_of_the_data_that_are_wrong_are_told_with_their_line(void **state)
{
    (void)state;
    expect_bad_mask("[1, 1]", "list.jsonl:2");
    expect_bad_mask("[0, 2, 1]", "label 2; the network has 2 classes");
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masked_networks_have_the_same_bits_whatever_is_made_again),
        cmocka_unit_test(masked_networks_train_in_half_precision),
        cmocka_unit_test(what_padded_steps_hold_does_not_change_training),
        cmocka_unit_test(masks_of_the_data_that_are_wrong_are_told_with_their_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
