/* The disk tier by itself: what is copied there comes back, whatever its ends are; files are whole
 * before they are used and gone afterwards; what goes wrong is said. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "device/device.h"
#include "device/disk/disk.h"
#include "device/disk/disk_internal.h"
#include "support/golden.h"
#include "support/scratch.h"

enum { N_BYTES = 3 << 20, N_COPIES = 200 };

static struct scratch scratch;

static int begin(void **state)
{
    (void)state;
    scratch_init(&scratch);
    return 0;
}

static int end(void **state)
{
    (void)state;
    disk_use_threads(false);
    disk_fail_after(0, false, 0);
    disk_pretend(NULL);
    disk_stall(0);
    disk_set_patience(0);
    scratch_release(&scratch);
    return 0;
}

struct fixture {
    struct disk *disk;
    struct memory file, memory;
    char *model; /* what the file must hold */
};

static void open_fixture(struct fixture *x, bool threads)
{
    disk_use_threads(threads);
    expect_ok(disk_open(&x->disk, scratch.folder));
    x->file = (struct memory){.tier = TIER_DISK, .n_bytes = N_BYTES};
    x->memory = (struct memory){.tier = TIER_HOST, .n_bytes = N_BYTES};
    expect_ok(disk_alloc(x->disk, N_BYTES, &x->file.base));
    expect_ok(mem_try_array(&x->memory.base, N_BYTES, 1));
    expect_ok(mem_try_array(&x->model, N_BYTES, 1));
}

static void close_fixture(struct fixture *x)
{
    disk_close(x->disk);
    mem_free(x->memory.base);
    mem_free(x->model);
}

static struct place on_disk(const struct fixture *x, int64_t at)
{
    return (struct place){&x->file, at};
}

static struct place in_memory(const struct fixture *x, int64_t at)
{
    return (struct place){&x->memory, at};
}

/* Any offset, any length; now and then aligned ones. */
static int64_t draw(struct rng *rng, int64_t below)
{
    int64_t n = (int64_t)rng_below(rng, (uint64_t)below);
    return rng_below(rng, 3) ? n : n / 4096 * 4096;
}

static void copy_at_random(struct fixture *x, bool queued)
{
    struct rng rng = {.key = 5, .stream = queued};
    char *memory = x->memory.base;
    expect_ok(disk_prepare(x->disk, 2));
    for (int i = 0; i < N_COPIES; i++) {
        int64_t n = draw(&rng, rng_below(&rng, 4) ? 9000 : N_BYTES / 2) + 1;
        int64_t at = draw(&rng, N_BYTES - n), from = draw(&rng, N_BYTES - n);
        for (int64_t k = 0; k < n; k++)
            memory[from + k] = (char)(k * 7 + i);
        memcpy(x->model + at, memory + from, (size_t)n);
        if (queued) {
            expect_ok(disk_enqueue(x->disk, on_disk(x, at), in_memory(x, from), n));
            disk_record(x->disk, i % 2);
            expect_ok(disk_wait(x->disk, i % 2));
        } else {
            expect_ok(disk_copy(x->disk, on_disk(x, at), in_memory(x, from), n));
        }
        int64_t back = draw(&rng, N_BYTES - n), first = draw(&rng, N_BYTES - n);
        expect_ok(disk_copy(x->disk, in_memory(x, back), on_disk(x, first), n));
        assert_memory_equal(memory + back, x->model + first, (size_t)n);
    }
    expect_ok(disk_sync(x->disk));
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    for (int threads = 0; threads < 2; threads++) {
        for (int queued = 0; queued < 2; queued++) {
            struct fixture x;
            open_fixture(&x, threads);
            if (threads)
                assert_string_equal(disk_method(x.disk), "threads");
            assert_int_equal(disk_file_bytes(x.disk, x.file.base), N_BYTES);
            copy_at_random(&x, queued);
            close_fixture(&x);
        }
    }
}

/* A read that is enqueued behind a write of the same bytes finds them. */
static void the_queue_is_in_order(void **state)
{
    struct fixture x;
    (void)state;
    open_fixture(&x, false);
    char *memory = x.memory.base;
    expect_ok(disk_prepare(x.disk, 1));
    for (int i = 0; i < 600; i++) { /* more than it has room for at once */
        memory[i] = (char)i;
        expect_ok(disk_enqueue(x.disk, on_disk(&x, 100), in_memory(&x, i), 1));
        expect_ok(disk_enqueue(x.disk, in_memory(&x, 5000 + i), on_disk(&x, 100), 1));
    }
    disk_record(x.disk, 0);
    expect_ok(disk_wait(x.disk, 0));
    assert_memory_equal(memory, memory + 5000, 600);
    close_fixture(&x);
}

static void tasks_are_copies_and_the_same_copy_is_the_same_task(void **state)
{
    struct fixture x;
    struct disk_task *out, *again, *back;
    (void)state;
    open_fixture(&x, false);
    char *memory = x.memory.base;
    memset(memory, 9, 5000);
    expect_ok(disk_task(x.disk, on_disk(&x, 8192), in_memory(&x, 0), 5000, &out));
    expect_ok(disk_task(x.disk, on_disk(&x, 8192), in_memory(&x, 0), 5000, &again));
    assert_ptr_equal(out, again);
    expect_ok(disk_task(x.disk, in_memory(&x, 6000), on_disk(&x, 8192), 5000, &back));
    disk_task_run(out);
    disk_task_run(back);
    expect_ok(disk_sync(x.disk));
    assert_memory_equal(memory, memory + 6000, 5000);
    disk_fail_after(1, false, EIO);
    disk_task_run(back);
    assert_int_equal(disk_sync(x.disk), ERR_IO);
    close_fixture(&x);
}

/* ---- files ----------------------------------------------------------------------------------- */

static int make_file(const char *name, bool locked)
{
    char path[SCRATCH_PATH];
    int fd = open(scratch_path(&scratch, name, path), O_CREAT | O_RDWR, 0600);
    assert_true(fd >= 0);
    if (locked)
        assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    return fd;
}

static bool has_file(const char *name)
{
    char path[SCRATCH_PATH];
    return file_exists(scratch_path(&scratch, name, path));
}

static void only_what_crashed_processes_left_is_removed(void **state)
{
    struct fixture x;
    (void)state;
    (void)close(make_file("snug-offload-123-0", false));
    (void)close(make_file("snug-offload-123-0.old", false));
    (void)close(make_file("model.safetensors", false));
    int live = make_file("snug-offload-124-3", true);
    open_fixture(&x, false);
    assert_false(has_file("snug-offload-123-0"));
    assert_true(has_file("snug-offload-123-0.old") && has_file("model.safetensors"));
    assert_true(has_file("snug-offload-124-3"));
    (void)close(live);
    close_fixture(&x);
}

static void a_file_has_no_name_while_it_is_used(void **state)
{
    struct fixture x;
    char path[SCRATCH_PATH], name[64];
    (void)state;
    open_fixture(&x, false);
    for (int i = 0; i < 3; i++) {
        (void)snprintf(name, sizeof(name), "snug-offload-%ld-%d", (long)getpid(), i);
        assert_false(file_exists(scratch_path(&scratch, name, path)));
    }
    close_fixture(&x);
}

static void more_than_there_is_room_for_is_refused(void **state)
{
    struct fixture x;
    void *base;
    (void)state;
    open_fixture(&x, false);
    assert_int_equal(disk_alloc(x.disk, (int64_t)1 << 55, &base), ERR_FIT);
    expect_message("offload_folder");
    expect_message("(36028797018963968 bytes)");
    expect_message("name a folder with more");
    close_fixture(&x);
}

static void a_folder_that_is_none_is_refused(void **state)
{
    struct disk *d;
    char path[SCRATCH_PATH];
    (void)state;
    scratch_write_text(&scratch, "file", "text");
    assert_int_equal(disk_open(&d, scratch_path(&scratch, "file", path)), ERR_IO);
    expect_message(path);
    assert_null(d);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void a_failed_read_or_write_says_where(void **state)
{
    static const struct {
        bool write;
        int error;
        const char *says;
    } rows[] = {
        {false, EIO, "cannot read"}, {true, EIO, "cannot write"}, {true, ENOSPC, "free space"}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct fixture x;
        struct place to, from;
        open_fixture(&x, i % 2);
        to = rows[i].write ? on_disk(&x, 1 << 20) : in_memory(&x, 0);
        from = rows[i].write ? in_memory(&x, 0) : on_disk(&x, 1 << 20);
        disk_fail_after(2, rows[i].write, rows[i].error); /* the second piece */
        assert_int_equal(disk_copy(x.disk, to, from, 1 << 20), ERR_IO);
        expect_message(rows[i].says);
        expect_message("at offset 1572864 of");
        expect_message("Checkpoints are as they were");
        expect_ok(disk_copy(x.disk, to, from, 1 << 20)); /* it was that one */
        close_fixture(&x);
    }
}

static void whoever_waits_hears_of_a_failure(void **state)
{
    struct fixture x;
    (void)state;
    open_fixture(&x, false);
    expect_ok(disk_prepare(x.disk, 2));
    disk_fail_after(1, true, EIO);
    expect_ok(disk_enqueue(x.disk, on_disk(&x, 0), in_memory(&x, 0), 4096));
    disk_record(x.disk, 0);
    assert_int_equal(disk_wait(x.disk, 0), ERR_IO);
    expect_message("cannot write 4096 bytes at offset 0 of");
    expect_ok(disk_enqueue(x.disk, on_disk(&x, 0), in_memory(&x, 0), 4096));
    assert_int_equal(disk_sync(x.disk), ERR_IO); /* nothing is made behind it */
    close_fixture(&x);
}

/* 100 MB/s for 30 MB, then 10 MB/s; reading 40 MB/s; 10 ms from one to the other. The clock is the
 * pretended disk's: what comes out does not depend on the machine. */
static const struct disk_pretence slow = {
    .read = 40e6, .written = 10e6, .cache_bytes = 30000000, .cached = 1e8, .turn_s = 0.01};

static void expect_near(double found, double want)
{
    if (found < 0.95 * want || found > 1.05 * want)
        fail_msg("%g, not about %g", found, want);
}

static void what_counts_is_what_a_disk_keeps_up(void **state)
{
    struct disk *d;
    struct disk_rates r;
    struct disk_traffic none;
    (void)state;
    expect_ok(disk_open(&d, scratch.folder));
    disk_pretend(&slow);
    expect_ok(disk_measure(d, &r));
    assert_true(r.written > 50e6); /* its cache's */
    expect_ok(disk_measure_long(d, (int64_t)64 << 20, &r));
    /* Edges of a copy that is not of blocks are read before they are written: one more turn. */
    assert_true(r.read <= 1.01 * 40e6 && r.read > 0.8 * 40e6);
    assert_true(r.written <= 1.01 * 10e6 && r.written > 0.5 * 10e6);
    assert_true(r.read_in_turns < 0.9 * r.read); /* 21 ms for 8 MiB, and 10 to turn */
    assert_true(r.written_in_turns <= r.written);
    disk_traffic(d, &none);
    assert_true(none.n_read == 0 && none.n_written == 0); /* that was not the run's */
    disk_pretend(NULL);
    disk_close(d);
}

static void rates_are_kept_for_the_next_process(void **state)
{
    struct disk *d;
    struct disk_rates r = {3e9, 2e9, 2e9, 1e9, 1e-4, 0}, found;
    const char *folder = scratch.folder;
    char path[SCRATCH_PATH];
    (void)state;
    expect_ok(disk_open(&d, folder));
    assert_false(disk_rates_load(d, folder, 100, &found));
    disk_rates_store(d, folder, 100, &r);
    assert_true(disk_rates_load(d, folder, 100, &found));
    assert_memory_equal(&r, &found, sizeof(r));
    assert_false(disk_rates_load(d, folder, 101, &found)); /* with more it may be slower */
    assert_false(disk_rates_load(d, NULL, 100, &found));
    r.written = 0; /* no rate */
    disk_rates_store(d, folder, 100, &r);
    assert_false(disk_rates_load(d, folder, 100, &found));
    (void)remove(scratch_path(&scratch, "disks", path));
    disk_close(d);
}

static void a_device_has_the_rates_of_its_disk(void **state)
{
    struct device d;
    char cache[SCRATCH_PATH];
    (void)state;
    (void)scratch_path(&scratch, "cache", cache);
    expect_ok(device_open_cpu(&d, 1));
    expect_ok(device_use_disk(&d, scratch.folder));
    disk_pretend(&slow);
    expect_ok(device_measure_disk(&d, 1000, cache)); /* too little to be measured for */
    assert_true(!has_file("cache"));
    if (disk_is_memory(d.disk)) { /* and memory is none of it either */
        disk_pretend(NULL);
        device_close(&d);
        return;
    }
    expect_ok(device_measure_disk(&d, (int64_t)256 << 20, cache));
    const struct link_rate *in = &d.rates.links[TIER_DISK][TIER_DEVICE],
                           *out = &d.rates.links[TIER_HOST][TIER_DISK];
    if (!(in->alone < 41e6 && in->both < in->alone && out->alone < 11e6))
        fail_msg("%g, %g read, %g written", in->alone, in->both, out->alone);
    double before = in->alone;
    disk_pretend(&(struct disk_pretence){.read = 1e6, .written = 1e6});
    expect_ok(device_measure_disk(&d, (int64_t)256 << 20, cache)); /* known: not measured */
    expect_near(in->alone, before);
    const int64_t much = DISK_MEASURED_MOST;
    device_keep_disk(&d, &(struct disk_traffic){much, much - 1, 1, 1},
                     cache); /* too little of it */
    expect_ok(device_measure_disk(&d, (int64_t)256 << 20, cache));
    expect_near(in->alone, before);
    device_keep_disk(&d, &(struct disk_traffic){2 * much, much, 1, 1000}, cache);
    expect_ok(device_measure_disk(&d, much, cache)); /* a run's are known for a file of any size */
    expect_near(in->alone, 2 * (double)much);
    expect_near(in->both, 2 * (double)much);
    expect_near(out->both, 1e-3 * (double)much);
    assert_true(out->alone > 2 * out->both); /* alone it was as fast as it had been */
    /* by seconds: a half and a third of one, which is five twelfths for each */
    device_keep_disk(&d, &(struct disk_traffic){3 * much, much, 1, 1000}, cache);
    expect_ok(device_measure_disk(&d, much, cache));
    expect_near(in->both, 2.4 * (double)much);
    disk_pretend(NULL);
    device_close(&d);
}

/* ---- slowness -------------------------------------------------------------------------------- */

/* What goes to stderr goes to a file of the scratch folder. */
static int divert(const char *name)
{
    char path[SCRATCH_PATH];
    (void)fflush(stderr);
    int kept = dup(STDERR_FILENO),
        to = open(scratch_path(&scratch, name, path), O_CREAT | O_WRONLY, 0600);
    assert_true(kept >= 0 && to >= 0 && dup2(to, STDERR_FILENO) >= 0);
    (void)close(to);
    return kept;
}

static void restore(int kept)
{
    (void)fflush(stderr);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    (void)close(kept);
}

/* The disk does nothing until that was said twice: whoever waits hears of it, and of what it does
 * then the run keeps count. */
static void a_slow_disk_is_said_to_be_slow(void **state)
{
    struct fixture x;
    struct disk_traffic t;
    char *said, path[SCRATCH_PATH];
    size_t n;
    (void)state;
    open_fixture(&x, false);
    expect_ok(disk_prepare(x.disk, 1));
    int kept = divert("said");
    log_set_level(LOG_WARN);
    disk_set_patience(0.005);
    disk_stall(2);
    expect_ok(disk_enqueue(x.disk, on_disk(&x, 0), in_memory(&x, 0), 2 << 20));
    expect_ok(disk_enqueue(x.disk, in_memory(&x, 0), on_disk(&x, 0), 1 << 20));
    disk_record(x.disk, 0);
    enum status status = disk_wait(x.disk, 0);
    log_set_level(LOG_QUIET);
    restore(kept);
    expect_ok(status);
    disk_stall(0);
    disk_set_patience(0);
    disk_traffic(x.disk, &t);
    assert_int_equal(t.n_written, 2 << 20);
    assert_int_equal(t.n_read, 1 << 20);
    assert_true(t.written_s > 0 && t.read_s > 0);
    expect_ok(file_read(scratch_path(&scratch, "said", path), &said, &n));
    if (!strstr(said, "has kept the step waiting for"))
        fail_msg("nothing was said but '%s'", said);
    mem_free(said);
    close_fixture(&x);
}

static void a_disk_has_rates(void **state)
{
    struct device d;
    (void)state;
    expect_ok(device_open_cpu(&d, 1));
    assert_true(d.rates.links[TIER_DISK][TIER_DEVICE].alone == 0);
    expect_ok(device_use_disk(&d, scratch.folder));
    for (int t = 0; t < TIER_DISK; t++) {
        assert_true(d.rates.links[t][TIER_DISK].alone > 1e5);
        assert_true(d.rates.links[TIER_DISK][t].alone > 1e5);
    }
    device_close(&d);
}

/* The first touch of a page costs more than what a fast disk takes for it. */
static void timed_reads_find_their_memory_there(void **state)
{
    enum { N = 4 << 20, PAGES = N / 4096 };
    struct disk *disk;
    struct disk_trial t;
    struct rusage before, after;
    double seconds;
    (void)state;
    expect_ok(disk_open(&disk, scratch.folder));
    expect_ok(disk_trial_open(&t, disk, N, N));
    expect_ok(disk_trial_copy(&t, true, 0, N, &seconds));
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    expect_ok(disk_trial_copy(&t, false, 0, N, &seconds));
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    assert_true(after.ru_minflt - before.ru_minflt < PAGES / 4);
    disk_trial_close(&t);
    disk_close(disk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(the_queue_is_in_order),
        cmocka_unit_test(tasks_are_copies_and_the_same_copy_is_the_same_task),
        cmocka_unit_test(only_what_crashed_processes_left_is_removed),
        cmocka_unit_test(a_file_has_no_name_while_it_is_used),
        cmocka_unit_test(more_than_there_is_room_for_is_refused),
        cmocka_unit_test(a_folder_that_is_none_is_refused),
        cmocka_unit_test(a_failed_read_or_write_says_where),
        cmocka_unit_test(whoever_waits_hears_of_a_failure),
        cmocka_unit_test(a_disk_has_rates),
        cmocka_unit_test(timed_reads_find_their_memory_there),
        cmocka_unit_test(what_counts_is_what_a_disk_keeps_up),
        cmocka_unit_test(rates_are_kept_for_the_next_process),
        cmocka_unit_test(a_device_has_the_rates_of_its_disk),
        cmocka_unit_test(a_slow_disk_is_said_to_be_slow),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
