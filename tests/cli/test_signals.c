/* Commands that have nothing to save: Ctrl-C and SIGTERM end them at once, whatever they are doing,
 * with the exit code a shell expects and nothing half-written. (Runs that save: test_interruption.)
 */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/file.h"
#include "support/process.h"

static char config[SCRATCH_PATH];
static struct scratch scratch;

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    write_tiny_config(&scratch, "tiny.yaml", "report_to: none\n", config);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

static void pause_ms(long ms)
{
    struct timespec t = {0, ms * 1000000};
    (void)nanosleep(&t, NULL);
}

static double clock_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void expect_end(struct process *p, int number)
{
    double start = clock_s();
    assert_int_equal(kill(p->pid, number), 0);
    process_wait(p);
    expect_exit(p, number == SIGTERM ? 143 : 130);
    expect_stderr(p, number == SIGTERM ? "terminated" : "interrupted");
    assert_true(clock_s() - start < 5);
}

/* Names in a folder that begin with `start`. */
static int count_names(const char *folder, const char *start)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (const struct dirent *e = readdir(d); e; e = readdir(d))
        n += strncmp(e->d_name, start, strlen(start)) == 0;
    (void)closedir(d);
    return n;
}

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const int signals[] = {SIGINT, SIGTERM};

static void every_command_that_waits_for_its_config_can_be_ended(void **state)
{
    (void)state;
    char pipe[SCRATCH_PATH], out[SCRATCH_PATH];
    assert_int_equal(mkfifo(scratch_path(&scratch, "pipe", pipe), 0600), 0);
    scratch_path(&scratch, "result", out);
    const char *const *const commands[] = {
        ARGS("plan", pipe, "--json"),
        ARGS("train", pipe, "--json"),
        ARGS("eval", pipe, "--json"),
        ARGS("generate", pipe, "--json"),
        ARGS("export", pipe, "-o", out, "--json"),
        ARGS("tokenize", pipe, "a.txt", "-o", out, "--json"),
    };
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        struct process p;
        int number = signals[i % 2], writer;
        process_start(&p, &scratch, NULL, commands[i]);
        while ((writer = open(pipe, O_WRONLY | O_NONBLOCK)) < 0) /* until it reads */
            pause_ms(1);
        expect_end(&p, number);
        json_t *j = expect_json(&p);
        assert_string_equal(json_text_at(j, "error.status"),
                            number == SIGTERM ? "ERR_TERMINATED" : "ERR_INTERRUPTED");
        assert_int_equal(json_int_at(j, "error.exit_code"), p.exit_code);
        json_decref(j);
        (void)close(writer);
        process_release(&p);
        assert_false(file_exists(out));
    }
}

static void a_config_can_come_through_a_pipe(void **state)
{
    (void)state;
    struct process p;
    char pipe[SCRATCH_PATH], *text;
    size_t n;
    int writer;
    assert_int_equal(mkfifo(scratch_path(&scratch, "pipe", pipe), 0600), 0);
    assert_int_equal(file_read(config, &text, &n), OK);
    process_start(&p, &scratch, NULL, ARGS("plan", pipe, "max_steps=1", "--json", "-q"));
    while ((writer = open(pipe, O_WRONLY | O_NONBLOCK)) < 0)
        pause_ms(1);
    assert_int_equal(write(writer, text, n), (ssize_t)n);
    (void)close(writer);
    process_wait(&p);
    expect_exit(&p, 0);
    process_release(&p);
    mem_free(text);
}

/* A token file that takes some seconds to copy, and no disk: its tokens are a hole. */
static void write_long_token_file(const char *path)
{
    enum { N = 1 << 28 };
    int32_t header[256] = {20240520, 1, N};
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, header, sizeof(header)), sizeof(header));
    assert_int_equal(ftruncate(fd, (off_t)sizeof(header) + 2 * (off_t)N), 0);
    (void)close(fd);
}

static void tokenize_leaves_nothing_behind(void **state)
{
    (void)state;
    char in[SCRATCH_PATH], out[SCRATCH_PATH], temporary[SCRATCH_PATH + 32];
    write_long_token_file(scratch_path(&scratch, "in.bin", in));
    scratch_path(&scratch, "result.bin", out);
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        struct process p;
        process_start(&p, &scratch, NULL, ARGS("tokenize", config, in, "-o", out));
        (void)snprintf(temporary, sizeof(temporary), "%s.tmp-%ld", out, (long)p.pid);
        wait_for_file(&p, temporary);
        expect_end(&p, signals[i]);
        assert_int_equal(count_names(scratch.folder, "result"), 0);
        process_release(&p);
    }
}

static void export_leaves_nothing_behind(void **state)
{
    (void)state;
    char out[SCRATCH_PATH], name[64], temporary[SCRATCH_PATH];
    scratch_path(&scratch, "result", out);
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        struct process p;
        process_start(&p, &scratch, NULL,
                      ARGS("export", config, "-o", out, "model.vocab_size=200000",
                           "model.hidden_size=512", "model.num_hidden_layers=1"));
        (void)snprintf(name, sizeof(name), ".tmp-export-result-%ld", (long)p.pid);
        wait_for_file(&p, scratch_path(&scratch, name, temporary));
        expect_end(&p, signals[i]);
        assert_int_equal(count_names(scratch.folder, "result"), 0);
        assert_int_equal(count_names(scratch.folder, ".tmp-"), 0);
        process_release(&p);
    }
}

static void eval_ends_before_its_data_does(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        struct process p;
        process_start(&p, &scratch, NULL,
                      ARGS("eval", config, "datasets.0.type=synthetic",
                           "eval_max_batches=100000000", "--json"));
        pause_ms(500);
        expect_end(&p, signals[i]);
        process_release(&p);
    }
}

/* A text that has no end: these weights, taking the likeliest token each time, never choose it. */
static void generate_that_is_stopped_says_so(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        struct process p;
        struct stat st = {0};
        process_start(&p, &scratch, NULL,
                      ARGS("generate", config, "model.max_position_embeddings=50000", "seed=1",
                           "-p", "x", "-n", "49000", "--temperature", "0", "--no-echo"));
        while (stat(p.out_path, &st) != 0 || st.st_size == 0) /* until text comes */
            pause_ms(1);
        expect_end(&p, signals[i]);
        (void)unlink(p.out_path); /* or the next one is taken to have written already */
        process_release(&p);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_scratch, drop_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_command_that_waits_for_its_config_can_be_ended),
        TEST(a_config_can_come_through_a_pipe),
        TEST(tokenize_leaves_nothing_behind),
        TEST(export_leaves_nothing_behind),
        TEST(eval_ends_before_its_data_does),
        TEST(generate_that_is_stopped_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
