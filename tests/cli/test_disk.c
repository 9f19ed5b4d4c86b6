/* Runs whose states, weights and gradients are on disk: the losses are those of a run that keeps
 * everything in memory, memory is what was predicted on all tiers, and whatever ends a run leaves
 * nothing in the folder but what is not ours. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <snug.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/file.h"
#include "base/log.h"
#include "device/disk/disk.h"
#include "support/process.h"

static char config[SCRATCH_PATH];
static struct scratch scratch;

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    scratch_write_text(&scratch, "tiny.yaml",
                       "model: {model_type: llama, vocab_size: 64, hidden_size: 64,\n"
                       "  intermediate_size: 128, num_hidden_layers: 12, num_attention_heads: 2,\n"
                       "  num_key_value_heads: 2, max_position_embeddings: 32}\n"
                       "max_seq_length: 8\nper_device_train_batch_size: 1\nmax_grad_norm: 0\n"
                       "lr_scheduler_type: constant\nnum_threads: 1\nseed: 7\n"
                       "overwrite_output_dir: true\nsave_steps: 2\nreport_to: none\n"
                       "datasets: [{type: synthetic, n_tokens: 9000}]\n");
    (void)scratch_path(&scratch, "tiny.yaml", config);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    disk_fail_after(0, false, 0);
    scratch_release(&scratch);
    return 0;
}

static const char *in_scratch(const char *name)
{
    static char paths[8][SCRATCH_PATH];
    static int next;
    return scratch_path(&scratch, name, paths[next++ % 8]);
}

/* "key=.../name", of the scratch folder. */
static const char *setting(const char *key, const char *name)
{
    static char texts[8][SCRATCH_PATH + 64];
    static int next;
    char *text = texts[next++ % 8];
    (void)snprintf(text, sizeof(texts[0]), "%s=%s", key, in_scratch(name));
    return text;
}

#define DISK                                                                           \
    setting("offload_folder", "disk"), "offload_optimizer=disk", "offload_param=disk", \
        "activation_offloading=disk", "gradient_checkpointing=true", "device_memory=560KiB"

/* So that what leaves the device is more than planning takes. */
#define WIDER "model.hidden_size=128", "model.intermediate_size=256"

static int count_files(const char *name)
{
    DIR *d = opendir(in_scratch(name));
    int n = 0;
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    (void)closedir(d);
    return n;
}

static json_t *train(const char *out, const char *const *more)
{
    const char *args[MAX_ARGS] = {"train", config, setting("output_dir", out), "--json", "-q"};
    struct process p;
    size_t n = 5;
    while (*more)
        args[n++] = *more++;
    process_run(&p, &scratch, NULL, args);
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    process_release(&p);
    return j;
}

#define TRAIN(out, ...) train(out, (const char *const[]){__VA_ARGS__, NULL})

static void expect_same_file(const char *a, const char *b)
{
    char *x, *y;
    size_t n, m;
    assert_int_equal(file_read(in_scratch(a), &x, &n), OK);
    assert_int_equal(file_read(in_scratch(b), &y, &m), OK);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    mem_free(x);
    mem_free(y);
}

static void expect_equal_bytes(const json_t *j, const char *member)
{
    char predicted[64], measured[64];
    (void)snprintf(predicted, sizeof(predicted), "predicted.%s", member);
    (void)snprintf(measured, sizeof(measured), "measured.%s", member);
    assert_int_equal(json_int_at(j, predicted), json_int_at(j, measured));
}

static void states_many_times_the_memory_train_as_without_a_budget(void **state)
{
    (void)state;
    json_t *kept = TRAIN("kept", "max_steps=4");
    json_t *disk = TRAIN("away", "max_steps=4", DISK);
    assert_true(json_equal(json_at(kept, "losses"), json_at(disk, "losses")));
    expect_same_file("kept/checkpoint-4/model.safetensors", "away/checkpoint-4/model.safetensors");
    int64_t states = json_int_at(kept, "breakdown.optimizer");
    int64_t arenas =
        json_int_at(disk, "predicted.arena_bytes") + json_int_at(disk, "predicted.host_bytes");
    if (states < 4 * arenas)
        fail_msg("%lld bytes of states, %lld in memory", (long long)states, (long long)arenas);
    assert_true(json_int_at(disk, "predicted.disk_bytes") > states);
    expect_equal_bytes(disk, "arena_bytes");
    expect_equal_bytes(disk, "host_bytes");
    expect_equal_bytes(disk, "disk_bytes");
    assert_int_equal(count_files("disk"), 0);
    json_decref(kept);
    json_decref(disk);
}

/* Adapters, in micro-batches that go together from block to block, with all of it on disk. */
static void adapters_go_in_groups_with_the_same_bits(void **state)
{
    (void)state;
#define ADAPTED "max_steps=3", "adapter=lora", "lora_r=4", "gradient_accumulation_steps=4"
    json_t *alone = TRAIN("alone", ADAPTED, "micro_batch_group=1");
    json_t *grouped = TRAIN("grouped", ADAPTED, "micro_batch_group=4", DISK);
    assert_int_equal(json_int_at(grouped, "decisions.micro_batch_group"), 4);
    assert_true(json_equal(json_at(alone, "losses"), json_at(grouped, "losses")));
    assert_true(json_int_at(grouped, "predicted.disk_bytes") > 0);
    expect_equal_bytes(grouped, "disk_bytes");
    assert_true(json_real_value(json_at(grouped, "measured.disk_read_rate")) > 0);
    assert_true(json_real_value(json_at(grouped, "predicted.disk_read_rate")) > 0);
    json_decref(alone);
    json_decref(grouped);
}

/* What neither the device nor the host has room for goes there without being asked to. */
static void what_is_left_over_goes_to_disk(void **state)
{
    struct process p;
    char host[64];
    (void)state;
    if (SNUG_ASAN)
        skip(); /* a sanitizer takes now more of the host's memory, now less */
    PROCESS_RUN(&p, &scratch, "plan", config, setting("offload_folder", "disk"), "--json", "-q",
                "device_memory=2MiB", WIDER);
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    assert_int_equal(json_int_at(j, "predicted.disk_bytes"), 0);
    (void)snprintf(host, sizeof(host), "host_memory=%lld",
                   (long long)(json_int_at(j, "budget.host_needs") -
                               json_int_at(j, "predicted.host_bytes") / 3));
    json_decref(j);
    process_release(&p);
    json_t *kept = TRAIN("kept", "max_steps=2", WIDER);
    json_t *some = TRAIN("away", "max_steps=2", WIDER, setting("offload_folder", "disk"),
                         "device_memory=2MiB", host);
    assert_true(json_int_at(some, "predicted.disk_bytes") > 0);
    assert_true(json_int_at(some, "predicted.disk_written_per_step") > 0);
    assert_true(json_equal(json_at(kept, "losses"), json_at(some, "losses")));
    expect_equal_bytes(some, "host_bytes");
    expect_equal_bytes(some, "disk_bytes");
    json_decref(kept);
    json_decref(some);
}

/* The newest checkpoint there is. */
static int newest(const char *name)
{
    DIR *d = opendir(in_scratch(name));
    int most = 0, step;
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        if (sscanf(e->d_name, "checkpoint-%d", &step) == 1)
            most = step > most ? step : most;
    }
    (void)closedir(d);
    return most;
}

/* A file that is none of Snug's is there all the time. */
static void killed_with_its_states_on_disk_it_goes_on_exactly(void **state)
{
    struct process p;
    (void)state;
    char steps[32], kept[64], away[64];
    assert_int_equal(file_make_folders(in_scratch("disk")), OK);
    scratch_write_text(&scratch, "disk/mine.txt", "text");
    process_start(&p, &scratch, NULL,
                  (const char *const[]){"train", config, setting("output_dir", "away"), DISK,
                                        "max_steps=100000", "save_total_limit=2", NULL});
    wait_for_file(&p, in_scratch("away/checkpoint-2"));
    assert_int_equal(kill(p.pid, SIGKILL), 0);
    process_wait(&p);
    assert_int_equal(p.signal, SIGKILL);
    process_release(&p);
    assert_int_equal(count_files("disk"), 1);
    int last = newest("away") + 2;
    (void)snprintf(steps, sizeof(steps), "max_steps=%d", last);
    json_decref(TRAIN("away", steps, "--resume", DISK));
    json_decref(TRAIN("kept", steps, "save_total_limit=1"));
    for (int i = 0; i < 2; i++) {
        const char *file = i ? "optimizer" : "model";
        (void)snprintf(kept, sizeof(kept), "kept/checkpoint-%d/%s.safetensors", last, file);
        (void)snprintf(away, sizeof(away), "away/checkpoint-%d/%s.safetensors", last, file);
        expect_same_file(kept, away);
    }
    assert_int_equal(count_files("disk"), 1);
}

static void evaluation_reads_weights_from_disk(void **state)
{
    struct process p;
    double losses[2];
    (void)state;
    json_decref(TRAIN("kept", "max_steps=2"));
    for (int i = 0; i < 2; i++) {
        PROCESS_RUN(&p, &scratch, "eval", config, setting("output_dir", "kept"), "--json", "-q",
                    "eval_max_batches=2", setting("offload_folder", "disk"),
                    i ? "offload_param=disk" : "offload_param=auto");
        expect_exit(&p, 0);
        json_t *j = expect_json(&p);
        losses[i] = json_number_at(j, "eval_loss");
        json_decref(j);
        process_release(&p);
    }
    assert_true(losses[0] == losses[1]);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void a_disk_without_room_is_refused_before_the_first_step(void **state)
{
    struct process p;
    struct process_options o = {.max_file_bytes = 256 << 10};
    (void)state;
    process_run(&p, &scratch, &o,
                (const char *const[]){"train", config, setting("output_dir", "away"), DISK, NULL});
    expect_exit(&p, 3);
    expect_stderr(&p, "offload_folder");
    expect_stderr(&p, "has no room for");
    expect_stderr(&p, "free some of it, name a folder with more");
    process_release(&p);
}

static void a_folder_that_cannot_be_is_named(void **state)
{
    struct process p;
    (void)state;
    scratch_write_text(&scratch, "file", "text");
    PROCESS_RUN(&p, &scratch, "plan", config, setting("offload_folder", "file"));
    assert_int_equal(p.exit_code, 1);
    expect_stderr(&p, in_scratch("file"));
    process_release(&p);
}

static void a_folder_in_memory_is_said_to_be(void **state)
{
    struct process p;
    (void)state;
    assert_int_equal(file_make_folders(in_scratch("memory")), OK);
    if (mount("none", in_scratch("memory"), "tmpfs", 0, "size=64m") != 0)
        skip(); /* not allowed to */
    PROCESS_RUN(&p, &scratch, "plan", config, setting("offload_folder", "memory"));
    (void)umount(in_scratch("memory"));
    expect_exit(&p, 0);
    expect_stderr(&p, "is in memory (tmpfs)");
    process_release(&p);
}

static enum snug_status fail_later(void *user, const struct snug_step *s)
{
    if (s->step == 3)
        disk_fail_after(20, *(const bool *)user, EIO);
    return SNUG_OK;
}

/* In the middle of a step: the run ends with a message, and the checkpoint before it is as it was.
 */
static void an_error_of_the_disk_ends_the_run_and_not_its_checkpoints(void **state)
{
    (void)state;
    for (int write = 0; write < 2; write++) {
        const char *settings[] = {setting("output_dir", "away"), DISK, "max_steps=8"};
        struct snug_config *c;
        struct snug_run *run;
        bool is_write = write;
        assert_int_equal(snug_config_load(&c, config, settings, ARRAY_LEN(settings)), SNUG_OK);
        assert_int_equal(snug_run_open(&run, c, NULL, SNUG_TRAIN), SNUG_OK);
        struct snug_observer watch = {.on_step = fail_later, .user = &is_write};
        struct snug_train_options o = {.observer = &watch};
        assert_int_equal(snug_run_train(run, &o), SNUG_ERR_IO);
        assert_non_null(strstr(snug_error_message(), write ? "cannot write" : "cannot read"));
        assert_non_null(strstr(snug_error_message(), "at offset"));
        snug_run_close(run);
        snug_config_free(c);
        disk_fail_after(0, false, 0);
        json_decref(TRAIN("kept", "max_steps=4"));
        json_decref(TRAIN("away", "max_steps=4", "--resume", DISK));
        expect_same_file("kept/checkpoint-4/model.safetensors",
                         "away/checkpoint-4/model.safetensors");
        assert_int_equal(count_files("disk"), 0);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, make_scratch, drop_scratch)
    const struct CMUnitTest tests[] = {
        T(states_many_times_the_memory_train_as_without_a_budget),
        T(adapters_go_in_groups_with_the_same_bits),
        T(what_is_left_over_goes_to_disk),
        T(killed_with_its_states_on_disk_it_goes_on_exactly),
        T(evaluation_reads_weights_from_disk),
        T(a_disk_without_room_is_refused_before_the_first_step),
        T(a_folder_that_cannot_be_is_named),
        T(a_folder_in_memory_is_said_to_be),
        T(an_error_of_the_disk_ends_the_run_and_not_its_checkpoints),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
