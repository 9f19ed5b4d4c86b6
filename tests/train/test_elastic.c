/* Budgets that change while a run goes on: every loss is that of the undisturbed run to the bit,
 * the arena is what was predicted after each change, what does not fit is refused and changes
 * nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "support/apart_device.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "support/train_session.h"

enum { N_STEPS = 16, N_CHANGES = 10 };

/* ---- a run that is asked ----------------------------------------------------------------------*/

struct asked {
    const struct scratch *scratch;
    struct rng rng;
    int64_t needs; /* bytes of the device without a budget */
    int64_t host_needs;
    int64_t whole, last;    /* of these, of the arena; as it is now */
    bool asks;              /* budgets change, as chance has it */
    const char *once;       /* or this is asked for after the second step */
    int n_changed, n_other; /* times it did; of these, to an arena of another size */
    int n_refused;
    bool is_pending;
    struct session *session;
    /* or these, one after every third step */
    const char *const *script;
    int n_script, n_asked;
    int64_t least_disk, most_disk; /* bytes of the plans that were changed to */
    char texts[1024];              /* that the model wrote */
    bool waits;                    /* until other budgets are planned for, after the fourth step */
    int n_planned;                 /* changes that were planned beforehand */
};

static void ask(struct asked *a, const char *setting)
{
    char text[128];
    (void)snprintf(text, sizeof(text), "id-1\n%s\n", setting);
    scratch_write_text(a->scratch, "out/BUDGET", text);
    a->is_pending = true;
}

static enum status on_step(void *user, const struct step_record *r)
{
    struct asked *a = user;
    char setting[64];
    assert_false(a->is_pending);
    if (r->arena_bytes != r->arena_predicted)
        fail_msg("step %d: arena of %lld bytes, %lld predicted", (int)r->step,
                 (long long)r->arena_bytes, (long long)r->arena_predicted);
    if (a->waits && r->step == 4)
        assert_true(ahead_end(a->session->ahead));
    if (a->once && r->step == 2)
        ask(a, a->once);
    if (r->step % 3 == 0 && a->n_asked < a->n_script)
        ask(a, a->script[a->n_asked++]);
    if (!a->asks || (a->waits && r->step < 4) || r->step == r->n_steps ||
        rng_below(&a->rng, 8) == 0)
        return OK;
    int64_t percent = 45 + (int64_t)rng_below(&a->rng, 60);
    (void)snprintf(setting, sizeof(setting), "device_memory=%lld",
                   (long long)(a->needs - a->whole * (100 - percent) / 100));
    ask(a, rng_below(&a->rng, 5) == 0 ? "device_memory=auto" : setting);
    return OK;
}

static enum status on_budget(void *user, const struct budget_record *r)
{
    struct asked *a = user;
    char path[SCRATCH_PATH], *text;
    size_t n;
    a->is_pending = false;
    a->n_changed += r->changed;
    a->n_planned += r->was_planned;
    if (r->was_planned)
        assert_non_null(strstr(r->text, "planned beforehand"));
    a->n_refused += !r->changed;
    a->n_other += r->changed && r->forecast->arena_bytes != a->last;
    a->last = r->forecast->arena_bytes;
    a->least_disk = MIN(a->least_disk, r->forecast->disk_bytes);
    a->most_disk = MAX(a->most_disk, r->forecast->disk_bytes);
    assert_int_equal(file_read(scratch_path(a->scratch, "out/BUDGET.answer", path), &text, &n), OK);
    assert_non_null(strstr(text, r->changed ? "id-1\nchanged\n" : "id-1\nrefused\n"));
    mem_free(text);
    return OK;
}

static enum status on_sample(void *user, const struct sample_record *r)
{
    struct asked *a = user;
    size_t n = strlen(a->texts);
    (void)snprintf(a->texts + n, sizeof(a->texts) - n, "%d: %s\n", (int)r->step, r->text);
    return OK;
}

static const char config_text[] =
    "model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 64,"
    " num_hidden_layers: 3, num_attention_heads: 2, num_key_value_heads: 1,"
    " max_position_embeddings: 96}\n"
    "tokenizer: bytes\n"
    "datasets: [{type: synthetic, n_tokens: 9000}]\n"
    "max_seq_length: 48\n"
    "per_device_train_batch_size: 4\n"
    "num_threads: 1\n"
    "device: cpu\n"
    "save_strategy: \"no\"\n"
    "report_to: none\n";

static void run(struct asked *a, const char *const *more, size_t n_more, double losses[N_STEPS])
{
    char path[SCRATCH_PATH], out[SCRATCH_PATH + 16];
    const char *overrides[16] = {out, "max_steps=16"};
    struct train_observer observer = {
        .user = a, .on_step = on_step, .on_budget = on_budget, .on_sample = on_sample};
    struct train_result result;
    struct config *cfg;
    struct session s;
    (void)snprintf(out, sizeof(out), "output_dir=%s/out", a->scratch->folder);
    memcpy(overrides + 2, more, n_more * sizeof(*more));
    scratch_write_text(a->scratch, "tiny.yaml", config_text);
    expect_ok(
        config_load(&cfg, scratch_path(a->scratch, "tiny.yaml", path), overrides, 2 + n_more));
    expect_ok(config_resolve(cfg, 1));
    expect_ok(session_open(&s, cfg, &(struct session_options){.train = true}));
    a->session = &s;
    a->whole = a->last = s.engine.forecast.arena_bytes;
    a->needs = s.engine.forecast.budget.needs[TIER_DEVICE];
    a->host_needs = s.engine.forecast.budget.needs[TIER_HOST];
    expect_ok(session_data(&s));
    expect_ok(session_start(&s));
    expect_ok(train_session(&s, &(struct train_options){.observers = &observer, .n_observers = 1},
                            &result));
    assert_int_equal(result.n_steps, N_STEPS);
    memcpy(losses, result.losses, N_STEPS * sizeof(*losses));
    train_result_release(&result);
    session_close(&s);
    config_free(cfg);
}

static void expect_same_bits(const char *const *more, size_t n_more, uint64_t seed)
{
    double plain[N_STEPS], elastic[N_STEPS];
    struct scratch scratch;
    scratch_init(&scratch);
    struct asked a = {.scratch = &scratch};
    if (!SNUG_ASAN) /* bits are compared without sanitizers */
        run(&a, more, n_more, plain);
    a = (struct asked){.scratch = &scratch, .rng.key = seed, .asks = true};
    run(&a, more, n_more, elastic);
    for (int i = 0; i < N_STEPS && !SNUG_ASAN; i++) {
        if (memcmp(&plain[i], &elastic[i], sizeof(plain[i])) != 0)
            fail_msg("step %d of %s: %.17g, undisturbed %.17g", i + 1, more[0], elastic[i],
                     plain[i]);
    }
    if (a.n_changed < N_CHANGES || a.n_other < N_CHANGES / 2)
        fail_msg("%d changes, %d of them to another arena", a.n_changed, a.n_other);
    scratch_release(&scratch);
}

/* ---- tests -----------------------------------------------------------------------------------*/

static void losses_do_not_depend_on_changes(void **state)
{
    static const char *const cases[][3] = {
        {"bf16=true", "gradient_accumulation_steps=3", "max_grad_norm=1.0"},
        {"optim=adamw_8bit", "max_grad_norm=0", "model.attention_dropout=0.1"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        expect_same_bits(cases[i], 3, 11 + i);
}

static void nor_where_the_device_has_a_memory_of_its_own(void **state)
{
    static const char *const more[] = {"bf16=true", "max_grad_norm=1.0"};
    (void)state;
    cpu_opens_apart = true;
    expect_same_bits(more, 2, 3);
    cpu_opens_apart = false;
}

/* Plans for eighths of what the run needs are there when one is asked for, and the losses are those
 * of the undisturbed run. What they took is no more than was said. */
static void plans_are_made_beforehand(void **state)
{
    static const char *const more[] = {"bf16=true", "elastic_budgets=auto"};
    double plain[N_STEPS], elastic[N_STEPS];
    struct scratch scratch;
    (void)state;
    scratch_init(&scratch);
    struct asked a = {.scratch = &scratch};
    run(&a, more, 1, plain);
    a = (struct asked){.scratch = &scratch, .rng.key = 5, .asks = true, .waits = true};
    run(&a, more, 2, elastic);
    assert_memory_equal(elastic, plain, sizeof(plain));
    if (a.n_planned < 5 || a.n_other < 3)
        fail_msg("%d changes, %d of them planned beforehand", a.n_changed, a.n_planned);
    scratch_release(&scratch);
}

static void what_does_not_fit_is_refused(void **state)
{
    static const char *const more[] = {"seed=3"};
    double plain[N_STEPS], refused[N_STEPS];
    struct scratch scratch;
    (void)state;
    scratch_init(&scratch);
    struct asked a = {.scratch = &scratch};
    run(&a, more, 1, plain);
    a = (struct asked){.scratch = &scratch, .once = "device_memory=100KiB"};
    run(&a, more, 1, refused);
    assert_int_equal(a.n_changed, 0);
    assert_int_equal(a.n_refused, 1);
    assert_memory_equal(refused, plain, sizeof(plain));
    scratch_release(&scratch);
}

/* ---- the disk --------------------------------------------------------------------------------*/

static const char *setting_of(char text[64], const char *key, int64_t n_bytes)
{
    (void)snprintf(text, 64, "%s=%lld", key, (long long)n_bytes);
    return text;
}

/* A network whose tensors are no small ones, which stay where there is room, and whose states are
 * many times what a process takes now more of, now less. */
#define LARGE                                                                                \
    "model.hidden_size=256", "model.intermediate_size=512", "per_device_train_batch_size=1", \
        "max_seq_length=16"

/* Both before and after a change the states are on disk. */
static void states_go_from_disk_to_disk(void **state)
{
    char folder[SCRATCH_PATH + 32], less[64], least[64];
    const char *const more[] = {"bf16=true", LARGE, folder, "offload_optimizer=disk"};
    double plain[N_STEPS], disk[N_STEPS], elastic[N_STEPS];
    struct scratch scratch;
    (void)state;
    scratch_init(&scratch);
    (void)snprintf(folder, sizeof(folder), "offload_folder=%s/disk", scratch.folder);
    struct asked a = {.scratch = &scratch};
    run(&a, more, ARRAY_LEN(more) - 2, plain);
    a = (struct asked){.scratch = &scratch};
    run(&a, more, ARRAY_LEN(more), disk);
    const char *const script[] = {
        setting_of(less, "device_memory", a.needs - a.whole / 10), "device_memory=auto",
        setting_of(least, "device_memory", a.needs - a.whole / 4), "device_memory=auto"};
    a = (struct asked){
        .scratch = &scratch, .script = script, .n_script = 4, .least_disk = INT64_MAX};
    run(&a, more, ARRAY_LEN(more), elastic);
    assert_memory_equal(disk, plain, sizeof(plain));
    assert_memory_equal(elastic, plain, sizeof(plain));
    assert_int_equal(a.n_changed, 4);
    assert_int_equal(a.n_other, 4);
    assert_true(a.least_disk > 0);
    scratch_release(&scratch);
}

/* To a budget that only a disk makes room for, and back. */
static void budgets_come_to_need_the_disk_and_no_longer(void **state)
{
    char folder[SCRATCH_PATH + 32], device[64], host[64], both[192];
    const char *const more[] = {folder, LARGE};
    double plain[N_STEPS], elastic[N_STEPS];
    struct scratch scratch;
    (void)state;
    if (SNUG_ASAN || SNUG_TSAN)
        skip(); /* a sanitizer takes now more of the host's memory, now less */
    scratch_init(&scratch);
    (void)snprintf(folder, sizeof(folder), "offload_folder=%s/disk", scratch.folder);
    struct asked a = {.scratch = &scratch};
    run(&a, more, ARRAY_LEN(more), plain);
    (void)snprintf(both, sizeof(both), "%s\n%s",
                   setting_of(device, "device_memory", a.needs - a.whole * 5 / 10),
                   setting_of(host, "host_memory", a.host_needs + (5 << 20)));
    const char *const script[] = {both, "device_memory=auto\nhost_memory=auto", both};
    a = (struct asked){
        .scratch = &scratch, .script = script, .n_script = 3, .least_disk = INT64_MAX};
    run(&a, more, ARRAY_LEN(more), elastic);
    assert_memory_equal(elastic, plain, sizeof(plain));
    assert_int_equal(a.n_changed, 3);
    assert_int_equal(a.least_disk, 0);
    assert_true(a.most_disk > 1 << 20);
    scratch_release(&scratch);
}

/* ---- samples ---------------------------------------------------------------------------------*/

static void so_are_texts_that_are_written_meanwhile(void **state)
{
    static const char *const more[] = {"bf16=true", "sample_prompts=[ab, c]", "sample_steps=4",
                                       "sample_max_new_tokens=8"};
    double without[N_STEPS], plain[N_STEPS], elastic[N_STEPS];
    struct scratch scratch;
    (void)state;
    scratch_init(&scratch);
    struct asked a = {.scratch = &scratch}, b = a;
    run(&a, more, 1, without);
    run(&a, more, ARRAY_LEN(more), plain);
    b = (struct asked){.scratch = &scratch, .rng.key = 4, .asks = true};
    run(&b, more, ARRAY_LEN(more), elastic);
    assert_memory_equal(plain, without, sizeof(plain));
    assert_memory_equal(elastic, plain, sizeof(plain));
    assert_true(strlen(a.texts) > 8 * strlen("16: "));
    assert_string_equal(b.texts, a.texts);
    assert_true(b.n_other >= N_CHANGES / 2);
    scratch_release(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_do_not_depend_on_changes),
        cmocka_unit_test(nor_where_the_device_has_a_memory_of_its_own),
        cmocka_unit_test(plans_are_made_beforehand),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(states_go_from_disk_to_disk),
        cmocka_unit_test(budgets_come_to_need_the_disk_and_no_longer),
        cmocka_unit_test(so_are_texts_that_are_written_meanwhile),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
