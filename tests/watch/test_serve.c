/* The page of a run against clients of all kinds: what it shows, what it refuses, and who cannot
 * keep it from answering. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <snug.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/machine.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "watch/live.h"
#include "watch/serve.h"

static struct scratch scratch;
static struct live *live;
static struct snug_server *server;
static int port;
static char token[64];

static int start(void **state)
{
    (void)state;
    if (!http_is_built())
        return 0;
    scratch_init(&scratch);
    scratch_write_text(&scratch, "config.yaml", "output_dir: /home/somebody/out\nseed: 3\n");
    scratch_write_text(&scratch, "secret.txt", "SECRET");
    scratch_write_text(&scratch, "metrics.jsonl",
                       "{\"kind\":\"step\",\"step\":1,\"loss\":2.5,\"lr\":0.5,\"step_ms\":4}\n");
    struct live_run run = {.pid = getpid(),
                           .process_start = live_process_start(getpid()),
                           .is_shared = true,
                           .id = "a",
                           .model = "llama"};
    expect_ok(live_create(&live, scratch.folder, &run));
    assert_int_equal(snug_server_open(&server, scratch.folder, "0", NULL, NULL), SNUG_OK);
    const char *url = snug_server_url(server);
    assert_int_equal(sscanf(url, "http://127.0.0.1:%d/#token=%63s", &port, token), 2);
    assert_int_equal(snug_server_start(server), SNUG_OK);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    if (!server)
        return 0;
    snug_server_close(server);
    live_close(live);
    scratch_release(&scratch);
    server = NULL;
    return 0;
}

static void need_server(void)
{
    if (!server)
        skip();
}

/* ---- clients --------------------------------------------------------------------------------- */

static int connect_to(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    for (size_t n = strlen(text); n > 0;) {
        ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return; /* it has heard enough */
        text += sent;
        n -= (size_t)sent;
    }
}

/* What comes until the other end closes, or until `until` has come. */
static char *hear(int fd, const char *until)
{
    struct str all = {0};
    char buffer[4096];
    ssize_t n;
    while ((n = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
        str_add_n(&all, buffer, (size_t)n);
        if (until && strstr(str_text(&all), until))
            break;
    }
    (void)close(fd);
    if (!all.text)
        str_add(&all, "");
    return str_take(&all);
}

static char *ask(const char *method, const char *path, const char *headers)
{
    struct str text = {0};
    int fd = connect_to();
    str_addf(&text, "%s %s HTTP/1.1\r\n%sConnection: close\r\n%s\r\n", method, path,
             strstr(headers, "Host:") ? "" : "Host: 127.0.0.1\r\n", headers);
    say(fd, str_text(&text));
    str_release(&text);
    return hear(fd, NULL);
}

static int code_of(const char *answer)
{
    int code = 0;
    (void)sscanf(answer, "HTTP/1.1 %d", &code);
    return code;
}

static void expect_code(const char *method, const char *path, const char *headers, int code)
{
    char *answer = ask(method, path, headers);
    if (code_of(answer) != code)
        fail_msg("%s %s: %d expected, but: %.200s", method, path, code, answer);
    mem_free(answer);
}

static bool has(const char *name)
{
    char path[SCRATCH_PATH];
    return file_exists(scratch_path(&scratch, name, path)) != 0;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void the_page_forbids_frames_and_foreign_scripts(void **state)
{
    (void)state;
    need_server();
    char *page = ask("GET", "/", "");
    assert_int_equal(code_of(page), 200);
    assert_non_null(strstr(page, "Content-Security-Policy: default-src 'none'; script-src 'self'"));
    assert_non_null(strstr(page, "frame-ancestors 'none'"));
    assert_non_null(strstr(page, "X-Frame-Options: DENY"));
    assert_non_null(strstr(page, "<!doctype html>"));
    assert_null(strstr(page, token));
    mem_free(page);
    expect_code("GET", "/live.js", "", 200);
    expect_code("GET", "/live.css", "", 200);
}

static void no_file_of_the_machine_is_reached_and_no_path_is_shown(void **state)
{
    (void)state;
    need_server();
    const char *const paths[] = {"/../../../etc/passwd",
                                 "/..%2f..%2f..%2fetc%2fpasswd",
                                 "//etc/passwd",
                                 "/config/../secret.txt",
                                 "/secret.txt",
                                 "/metrics.jsonl",
                                 "/live.js/../secret.txt",
                                 "/%2e%2e/secret.txt",
                                 "/config.yaml",
                                 "/.snug-live",
                                 "/secret.txt%00.js"};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        char *answer = ask("GET", paths[i], "");
        assert_in_range(code_of(answer), 400, 499);
        assert_null(strstr(answer, "root:"));
        assert_null(strstr(answer, "SECRET"));
        mem_free(answer);
    }
    char *config = ask("GET", "/config", "");
    assert_non_null(strstr(config, "seed: 3"));
    assert_non_null(strstr(config, "…/out"));
    assert_null(strstr(config, "somebody"));
    mem_free(config);
    char *shown = ask("GET", "/state", "");
    assert_null(strstr(shown, scratch.folder));
    mem_free(shown);
}

static void what_changes_the_run_takes_the_token(void **state)
{
    (void)state;
    need_server();
    char right[128], wrong[128];
    (void)snprintf(right, sizeof(right), "X-Snug-Token: %s\r\nContent-Length: 0\r\n", token);
    (void)snprintf(wrong, sizeof(wrong), "X-Snug-Token: %.31sg\r\nContent-Length: 0\r\n", token);
    expect_code("POST", "/save", "Content-Length: 0\r\n", 403);
    expect_code("POST", "/stop", wrong, 403);
    expect_code("GET", "/stop", right, 404); /* a link does nothing */
    expect_code("DELETE", "/stop", right, 405);
    assert_false(has("SAVE") || has("STOP") || has("PAUSE"));
    expect_code("POST", "/pause", right, 200);
    assert_true(has("PAUSE"));
    expect_code("POST", "/resume", right, 200);
    assert_false(has("PAUSE"));
    expect_code("POST", "/save", right, 200);
    assert_true(has("SAVE"));
    expect_code("POST", "/nothing", right, 404);
    char budget[192];
    (void)snprintf(budget, sizeof(budget), "X-Snug-Budget: device_memory=1GiB\r\n%s", wrong);
    expect_code("POST", "/budget", budget, 403);
    assert_false(has("BUDGET"));
    (void)snprintf(budget, sizeof(budget), "X-Snug-Budget: learning_rate=1\r\n%s", right);
    expect_code("POST", "/budget", budget, 400);
    expect_code("POST", "/budget", right, 400);
    assert_false(has("BUDGET"));
    (void)snprintf(budget, sizeof(budget), "X-Snug-Budget: device_memory=1GiB\r\n%s", right);
    expect_code("POST", "/budget", budget, 200);
    assert_true(has("BUDGET"));
}

static void pages_of_others_are_refused(void **state)
{
    (void)state;
    need_server();
    char headers[160];
    (void)snprintf(headers, sizeof(headers),
                   "X-Snug-Token: %s\r\nOrigin: http://evil.example\r\nContent-Length: 0\r\n",
                   token);
    expect_code("GET", "/state", "Host: evil.example\r\n", 421); /* a name that was pointed here */
    expect_code("GET", "/state", "Host: localhost:1\r\n", 200);
    expect_code("GET", "/state", "Origin: http://evil.example\r\n", 403);
    expect_code("POST", "/stop", headers, 403);
    assert_false(has("STOP"));
}

static void a_huge_header_is_refused_and_the_next_client_is_served(void **state)
{
    (void)state;
    need_server();
    struct str header = {0};
    str_add(&header, "X-Big: ");
    for (int i = 0; i < 20000; i++)
        str_add(&header, "aaaaaaaaaa");
    str_add(&header, "\r\n");
    char *answer = ask("GET", "/", str_text(&header));
    int code = code_of(answer);
    assert_true(code == 0 || code >= 400); /* refused, or cut off */
    mem_free(answer);
    str_release(&header);
    struct str path = {0};
    str_add(&path, "/");
    for (int i = 0; i < 3000; i++)
        str_add(&path, "../../../");
    answer = ask("GET", str_text(&path), "");
    assert_true(code_of(answer) == 0 || code_of(answer) >= 400);
    mem_free(answer);
    str_release(&path);
    expect_code("GET", "/state", "", 200);
}

static void slow_and_silent_clients_keep_nobody_waiting(void **state)
{
    (void)state;
    need_server();
    enum { N = 200 };
    int clients[N];
    for (int i = 0; i < N; i++) {
        clients[i] = connect_to();
        if (i % 4 == 1)
            say(clients[i], "GET /state HTT"); /* and never the rest */
        if (i % 4 == 2)
            say(clients[i], "GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); /* never read */
        if (i % 4 == 3)
            say(clients[i], "GET /live.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
                            "GET /live.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    }
    double began = now_s();
    for (int i = 0; i < 5; i++)
        expect_code("GET", "/state", "", 200);
    assert_true(now_s() - began < 5);
    for (int i = 0; i < N; i++)
        (void)close(clients[i]);
}

static void a_stream_brings_what_is_new(void **state)
{
    (void)state;
    need_server();
    int fd = connect_to();
    say(fd, "GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    live_begin(live);
    live->now.state = LIVE_TRAINING;
    live->now.step = 4711;
    live_add_sample(live, 4711, "Once", " upon <a> \"time\"");
    live_end(live);
    char *heard = hear(fd, "\"step\":4711");
    assert_non_null(strstr(heard, "text/event-stream"));
    assert_non_null(strstr(heard, "event: state\ndata: {"));
    assert_non_null(strstr(heard, "\"step\":4711"));
    mem_free(heard);
    char *curve = ask("GET", "/curve", "");
    assert_non_null(strstr(curve, "\"loss\":[2.5]"));
    mem_free(curve);
    char *samples = ask("GET", "/samples", "");
    assert_non_null(strstr(samples, "\"step\":4711,\"prompt\":\"Once\",\"text\":\" upon <a> "
                                    "\\\"time\\\"\""));
    mem_free(samples);
}

static void addresses_are_read_as_they_are_meant(void **state)
{
    (void)state;
    struct serve_address a;
    expect_ok(serve_parse("", &a));
    assert_string_equal(a.host, "127.0.0.1");
    assert_int_equal(a.port, SERVE_PORT);
    expect_ok(serve_parse("8080", &a));
    assert_string_equal(a.host, "127.0.0.1");
    assert_int_equal(a.port, 8080);
    expect_ok(serve_parse("0.0.0.0:80", &a));
    assert_string_equal(a.host, "0.0.0.0");
    expect_ok(serve_parse("[::1]:9", &a));
    assert_string_equal(a.host, "::1");
    expect_ok(serve_parse("localhost:9", &a));
    assert_string_equal(a.host, "127.0.0.1");
    const char *const bad[] = {"x",         "65536", "-1", "127.0.0.1:", "example.org:80",
                               "1:2:3:80x", ":80"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(serve_parse(bad[i], &a), ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_forbids_frames_and_foreign_scripts),
        cmocka_unit_test(no_file_of_the_machine_is_reached_and_no_path_is_shown),
        cmocka_unit_test(what_changes_the_run_takes_the_token),
        cmocka_unit_test(pages_of_others_are_refused),
        cmocka_unit_test(a_huge_header_is_refused_and_the_next_client_is_served),
        cmocka_unit_test(slow_and_silent_clients_keep_nobody_waiting),
        cmocka_unit_test(a_stream_brings_what_is_new),
        cmocka_unit_test(addresses_are_read_as_they_are_meant),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
