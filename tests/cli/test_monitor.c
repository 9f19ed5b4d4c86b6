/* A run watched from another process: one look as text and as JSON, and what it can be asked for.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/file.h"
#include "support/process.h"

static struct scratch scratch;
static char config[SCRATCH_PATH], folder[SCRATCH_PATH], live[SCRATCH_PATH];

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    write_tiny_config(&scratch, "tiny.yaml", "report_to: none\n", config);
    scratch_path(&scratch, "out", folder);
    scratch_path(&scratch, "out/.snug-live", live);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

static void start_long_run(struct process *p)
{
    static char out[SCRATCH_PATH + 16];
    (void)snprintf(out, sizeof(out), "output_dir=%s", folder);
    const char *const args[] = {"train",
                                config,
                                out,
                                "max_steps=1000000",
                                "save_strategy=no",
                                "eval_strategy=no",
                                "overwrite_output_dir=true",
                                "log_level=warning",
                                NULL};
    process_start(p, &scratch, NULL, args);
    wait_for_file(p, live);
}

/* Looks until the member is what is wanted, half a minute at most. */
static json_t *look_until(const char *path, const char *wanted)
{
    for (int i = 0; i < 600; i++) {
        struct process p;
        PROCESS_RUN(&p, &scratch, "monitor", folder, "--json");
        expect_exit(&p, 0);
        json_t *j = expect_json(&p);
        process_release(&p);
        if (strcmp(json_text_at(j, path), wanted) == 0)
            return j;
        json_decref(j);
        (void)usleep(50000);
    }
    fail_msg("%s never was %s", path, wanted);
    return NULL;
}

static void stop(struct process *p)
{
    char path[SCRATCH_PATH];
    (void)snprintf(path, sizeof(path), "out/STOP");
    scratch_write_text(&scratch, path, "");
    process_wait(p);
    expect_exit(p, 0);
}

static void a_run_is_seen_paused_let_go_on_and_stopped(void **state)
{
    (void)state;
    struct process train, p;
    char path[SCRATCH_PATH];
    start_long_run(&train);
    json_t *j = look_until("state", "training");
    assert_int_equal(json_int_at(j, "run.pid"), train.pid);
    assert_int_equal(json_int_at(j, "progress.n_steps"), 1000000);
    assert_true(json_int_at(j, "now.tiers.device.planned_now") <=
                json_int_at(j, "now.tiers.device.planned_peak"));
    assert_true(json_int_at(j, "now.tiers.device.planned_peak") <=
                json_int_at(j, "now.tiers.device.arena"));
    assert_true(json_int_at(j, "memory.host.own") > 0);
    assert_non_null(json_at(j, "memory.host.health"));
    assert_non_null(json_at(j, "alerts"));
    json_decref(j);
    scratch_write_text(&scratch, "out/PAUSE", "");
    j = look_until("state", "paused");
    int64_t step = json_int_at(j, "progress.step");
    json_decref(j);
    (void)usleep(200000);
    j = look_until("state", "paused");
    assert_int_equal(json_int_at(j, "progress.step"), step);
    json_decref(j);
    assert_int_equal(unlink(scratch_path(&scratch, "out/PAUSE", path)), 0);
    json_decref(look_until("state", "training"));
    stop(&train);
    json_decref(look_until("state", "ended"));
    process_release(&train);
    PROCESS_RUN(&p, &scratch, "monitor", folder); /* no terminal: one look as text */
    expect_exit(&p, 0);
    assert_non_null(strstr(p.out, "ended"));
    assert_non_null(strstr(p.out, "loss"));
    assert_non_null(strstr(p.out, "goes on"));
    assert_null(strchr(p.out, '\033'));
    process_release(&p);
}

static void a_paused_run_is_ended_by_a_signal_and_saves(void **state)
{
    (void)state;
    struct process train;
    start_long_run(&train);
    json_decref(look_until("state", "training"));
    scratch_write_text(&scratch, "out/PAUSE", "");
    json_decref(look_until("state", "paused"));
    assert_int_equal(kill(train.pid, SIGTERM), 0);
    process_wait(&train);
    expect_exit(&train, 143);
    process_release(&train);
}

static void what_would_need_less_is_planned_with_bytes_and_time(void **state)
{
    (void)state;
    struct process train, p;
    start_long_run(&train);
    json_decref(look_until("state", "training"));
    scratch_write_text(&scratch, "out/PAUSE", ""); /* so that planning has the machine */
    json_decref(look_until("state", "paused"));
    PROCESS_RUN(&p, &scratch, "monitor", folder, "--json", "--advise");
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    const json_t *remedies = json_at(j, "remedies");
    assert_true(json_array_size(remedies) > 0);
    int64_t arena = json_int_at(j, "now.tiers.device.arena");
    for (size_t i = 0; i < json_array_size(remedies); i++) {
        const json_t *r = json_array_get(remedies, i);
        assert_non_null(strchr(json_text_at(r, "setting"), '='));
        assert_true(json_int_at(r, "bytes") < arena);
        assert_true(json_number_at(r, "step_ms") > 0);
    }
    json_decref(j);
    process_release(&p);
    stop(&train);
    process_release(&train);
}

static void a_folder_without_a_run_is_an_error(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "monitor", scratch.folder, "--once");
    expect_exit(&p, 1);
    expect_stderr(&p, "no run has trained here yet");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "monitor", scratch.folder, "--thresholds", "brave");
    expect_exit(&p, 2);
    expect_stderr(&p, "balanced, aggressive and conservative");
    process_release(&p);
}

/* ---- the page ---- */

static int connect_to(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* Where the page is, as the run says it. */
static int port_of(const struct process *p)
{
    for (int i = 0; i < 3000; i++) {
        char *text = NULL;
        size_t n;
        int port = 0;
        if (file_read(p->err_path, &text, &n) == OK) {
            const char *at = strstr(text, "http://127.0.0.1:");
            port = at && strchr(at, '#') ? (int)strtol(at + 17, NULL, 10) : 0;
        }
        mem_free(text);
        if (port > 0)
            return port;
        (void)usleep(20000);
    }
    fail_msg("the run does not say where its page is");
    return 0;
}

/* As many as are let in, and of every kind: silent ones, half a request, streams that nobody reads,
 * and such as want to stop the run without its token. */
enum { CROWD = 200 };
static void let_in(int port, int clients[CROWD])
{
    static const char *const says[4] = {
        "", "GET /state HTT", "GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "POST /stop HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"};
    for (int i = 0; i < CROWD; i++) {
        clients[i] = connect_to(port);
        (void)!write(clients[i], says[i % 4], strlen(says[i % 4]));
    }
}

/* The losses of a run of 60 steps; with a crowd at its page, if wanted: the run waits until all of
 * it is there, so that every step is made before its eyes. */
static void losses_of(bool served, double losses[60])
{
    int clients[CROWD];
    struct process p;
    char out[SCRATCH_PATH + 16], path[SCRATCH_PATH];
    (void)snprintf(out, sizeof(out), "output_dir=%s", folder);
    const char *const args[] = {"train",
                                config,
                                out,
                                "max_steps=60",
                                "overwrite_output_dir=true",
                                "--json",
                                served ? "--serve=0" : NULL,
                                NULL};
    if (served)
        scratch_write_text(&scratch, "out/PAUSE", "");
    process_start(&p, &scratch, NULL, args);
    if (served) {
        let_in(port_of(&p), clients);
        assert_int_equal(unlink(scratch_path(&scratch, "out/PAUSE", path)), 0);
    }
    process_wait(&p);
    expect_exit(&p, 0);
    for (int i = 0; served && i < CROWD; i++)
        (void)close(clients[i]);
    json_t *j = expect_json(&p);
    assert_int_equal(json_array_size(json_at(j, "losses")), 60);
    for (size_t i = 0; i < 60; i++)
        losses[i] = json_number_value(json_array_get(json_at(j, "losses"), i));
    json_decref(j);
    process_release(&p);
}

static void a_crowd_at_the_page_changes_nothing_of_the_run(void **state)
{
    (void)state;
    double alone[60], watched[60];
    struct process p;
    PROCESS_RUN(&p, &scratch, "env", "--json");
    json_t *j = expect_json(&p);
    bool built = json_bool_at(j, "features.http") != 0;
    json_decref(j);
    process_release(&p);
    if (!built)
        skip();
    losses_of(false, alone);
    losses_of(true, watched);
    assert_memory_equal(alone, watched, sizeof(alone));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_run_is_seen_paused_let_go_on_and_stopped, make_scratch,
                                        drop_scratch),
        cmocka_unit_test_setup_teardown(a_paused_run_is_ended_by_a_signal_and_saves, make_scratch,
                                        drop_scratch),
        cmocka_unit_test_setup_teardown(what_would_need_less_is_planned_with_bytes_and_time,
                                        make_scratch, drop_scratch),
        cmocka_unit_test_setup_teardown(a_crowd_at_the_page_changes_nothing_of_the_run,
                                        make_scratch, drop_scratch),
        cmocka_unit_test_setup_teardown(a_folder_without_a_run_is_an_error, make_scratch,
                                        drop_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
