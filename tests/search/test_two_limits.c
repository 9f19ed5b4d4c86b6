/* Budgets of the device and of the host at once: what a plan takes, given as budgets, is kept and
 * planned for as well; and where less of the host is left, blocks that are recomputed make room
 * before anything is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "support/golden.h"
#include "support/planning.h"

/* What a process holds beside its arenas differs a little from one to the next. */
#define MARGIN ((int64_t)1 << 20)
#define NOISE  0.01

struct network {
    const char *gpu; /* NULL: this machine's processors */
    const char *file;
    const char *settings[8];
};

static const struct network gpt2 = {"h200", "configs/gpt2-124m.yaml", {"model.n_layer=4"}},
                            llama = {"h200",
                                     "configs/llama-1b.yaml",
                                     {"model.num_hidden_layers=4"}},
                            small = {"h200",
                                     "configs/llama-1b.yaml",
                                     {"model.num_hidden_layers=6", "model.hidden_size=192",
                                      "model.intermediate_size=512", "model.num_attention_heads=4",
                                      "model.num_key_value_heads=2", "model.vocab_size=320",
                                      "max_seq_length=128", "per_device_train_batch_size=4"}},
                            here = {NULL,
                                    "configs/llama-1b.yaml",
                                    {"model.num_hidden_layers=6", "model.hidden_size=384",
                                     "model.intermediate_size=1024", "model.num_attention_heads=4",
                                     "model.num_key_value_heads=4", "model.vocab_size=320",
                                     "max_seq_length=128", "per_device_train_batch_size=4"}};

static struct planned_step plan(const struct network *x, int64_t device_bytes, int64_t host_bytes)
{
    char device[64], host[64];
    const char *settings[ARRAY_LEN(x->settings) + 4] = {"num_threads=1", "device=cpu", device,
                                                        host};
    size_t n = 4;
    (void)snprintf(device, sizeof(device), "device_memory=%lldB", (long long)device_bytes);
    (void)snprintf(host, sizeof(host), "host_memory=%lldB", (long long)host_bytes);
    for (size_t i = 0; i < ARRAY_LEN(x->settings) && x->settings[i]; i++)
        settings[n++] = x->settings[i];
    return plan_for_card(x->gpu, x->file, settings, n);
}

/* In such a part of the arena that takes all it wants. */
static void expect_kept(const struct network *x, double part, double host_part)
{
    const int64_t plenty = (int64_t)1 << 37;
    const struct planned_step all = plan(x, plenty, plenty);
    const int64_t beside = x->gpu ? all.needs - all.arena : 0;
    const int64_t device_bytes = beside + (int64_t)(part * (double)all.arena);
    const struct planned_step open = plan(x, device_bytes, plenty);
    assert_true(isfinite(open.seconds));
    const struct planned_step tight = plan(x, device_bytes, open.host_needs + MARGIN);
    if (!(tight.seconds <= (1 + NOISE) * open.seconds) && x->gpu)
        fail_msg("%s, %.2f: %.6f s, and %.6f s without a limit of the host", x->file, part,
                 tight.seconds, open.seconds);
    const int64_t away = open.host_needs - all.host_needs;
    const int64_t less = all.host_needs + (int64_t)(host_part * (double)away) + MARGIN;
    if (!isfinite(plan(x, device_bytes, less).seconds))
        fail_msg("%s, %.2f: nothing fits %lld bytes of the host, of %lld", x->file, part,
                 (long long)less, (long long)open.host_needs);
}

static void what_a_plan_takes_is_enough_and_less_of_the_host_may_be(void **state)
{
    (void)state;
    expect_kept(&gpt2, 0.8, 0.8);
    expect_kept(&small, 0.6, 1.0);
    if (SNUG_ASAN) /* what a process holds is another matter there */
        return;
    expect_kept(&llama, 0.5, 0.9);
    expect_kept(&here, 0.8, 0.8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_plan_takes_is_enough_and_less_of_the_host_may_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
