#include "watch/serve.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json_text.h"
#include "io/budget_request.h"

extern const unsigned char live_html[], live_css[], live_js[];
extern const size_t live_html_size, live_css_size, live_js_size;

/* ---- where ----------------------------------------------------------------------------------- */

static enum status bad_address(const char *text)
{
    return FAIL(ERR_USAGE,
                "--serve is '%s'; it must be a port, or an address and a port (127.0.0.1:7007, "
                "0.0.0.0:7007 for everybody, [::1]:7007)",
                text);
}

enum status serve_parse(const char *text, struct serve_address *out)
{
    const char *port = strrchr(text, ':');
    int64_t number = SERVE_PORT;
    unsigned char bytes[16];
    *out = (struct serve_address){.host = "127.0.0.1"};
    if (port) {
        bool wrapped = text[0] == '[' && port > text + 1 && port[-1] == ']';
        size_t n = (size_t)(port - text) - (wrapped ? 2 : 0);
        if (n >= sizeof(out->host))
            return bad_address(text);
        memcpy(out->host, text + wrapped, n);
        out->host[n] = '\0';
        if (strcmp(out->host, "localhost") == 0)
            (void)snprintf(out->host, sizeof(out->host), "127.0.0.1");
    }
    bool is_known =
        inet_pton(AF_INET, out->host, bytes) == 1 || inet_pton(AF_INET6, out->host, bytes) == 1;
    port = port ? port + 1 : text;
    if (!is_known || (*port && (!parse_int(port, &number) || number < 0 || number > 65535)) ||
        (!*port && *text))
        return bad_address(text);
    out->port = (int)number;
    return OK;
}

union any_address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
};

enum status serve_listen(struct serve_address *a, int *fd)
{
    union any_address to = {.four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)a->port)}};
    socklen_t size = sizeof(to.four);
    int on = 1;
    if (inet_pton(AF_INET, a->host, &to.four.sin_addr) != 1) {
        to.six =
            (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)a->port)};
        (void)inet_pton(AF_INET6, a->host, &to.six.sin6_addr);
        size = sizeof(to.six);
    }
    *fd = socket(to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return FAIL(ERR_FAILED, "no socket for the page: %s", strerror(errno));
    (void)setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(*fd, &to.any, size) != 0 || listen(*fd, 128) != 0 ||
        getsockname(*fd, &to.any, &size) != 0) {
        enum status status =
            FAIL(ERR_FAILED,
                 "the page cannot be served at %s, port %d: %s; --serve=PORT chooses "
                 "another (0: any that is free)",
                 a->host, a->port, strerror(errno));
        (void)close(*fd);
        *fd = -1;
        return status;
    }
    a->port = ntohs(to.any.sa_family == AF_INET ? to.four.sin_port : to.six.sin6_port);
    return OK;
}

enum status serve_make_token(char out[SERVE_TOKEN])
{
    unsigned char bytes[(SERVE_TOKEN - 1) / 2];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return FAIL(ERR_FAILED, "no random numbers for the page's token: %s", strerror(errno));
    for (size_t i = 0; i < sizeof(bytes); i++)
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return OK;
}

/* ---- who ------------------------------------------------------------------------------------- */

/* The name in a Host header, without the port: "[::1]:7007" is "::1". */
static bool host_name(const char *header, char out[256])
{
    bool wrapped = header[0] == '[';
    const char *from = header + wrapped;
    size_t n = wrapped ? strcspn(from, "]") : strcspn(from, ":");
    if (n == 0 || n >= 256)
        return false;
    memcpy(out, from, n);
    out[n] = '\0';
    return true;
}

/* A browser that was sent here under another name asks for that name: the page of somebody else. */
static bool is_own_host(const char *header)
{
    char name[256], own[256] = "";
    unsigned char bytes[16];
    if (!header || !host_name(header, name))
        return false;
    (void)gethostname(own, sizeof(own) - 1);
    return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1 ||
           strcasecmp(name, "localhost") == 0 || (own[0] && strcasecmp(name, own) == 0);
}

static bool is_own_page(const struct http_request *r)
{
    if (!r->origin)
        return true;
    return strncmp(r->origin, "http://", 7) == 0 && r->host && strcmp(r->origin + 7, r->host) == 0;
}

/* Takes as long whatever is wrong. */
static bool is_token(const char *given, const char *token)
{
    unsigned char differs = 0;
    if (!given || strlen(given) != SERVE_TOKEN - 1)
        return false;
    for (int i = 0; i < SERVE_TOKEN - 1; i++)
        differs |= (unsigned char)(given[i] ^ token[i]);
    return differs == 0;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static bool begins_path(const char *text, const char *at)
{
    char before = at > text ? at[-1] : ' ';
    return *at == '/' && (isalnum((unsigned char)at[1]) || at[1] == '.' || at[1] == '_') &&
           !isalnum((unsigned char)before) && before != '/' && before != '.' && before != '_';
}

void serve_hide_paths(const char *text, struct str *out)
{
    for (const char *at = text; *at;) {
        if (!begins_path(text, at)) {
            str_add_n(out, at, 1);
            at++;
            continue;
        }
        size_t n = strcspn(at, " \t\r\n\"',;:)]}");
        const char *last = at;
        for (const char *p = at; p + 1 < at + n; p++)
            last = *p == '/' ? p : last;
        str_add(out, "…");
        str_add_n(out, last, n - (size_t)(last - at));
        at += n;
    }
}

/* Takes over the object. */
static void answer_json(struct server *s, json_t *o, struct http_answer *a)
{
    struct str text = {0};
    str_clear(&s->text);
    if (json_text_take(o, JSON_COMPACT, &text) == OK)
        serve_hide_paths(str_text(&text), &s->text);
    str_release(&text);
    *a = (struct http_answer){.code = s->text.failed || s->text.n == 0 ? 500 : 200,
                              .type = "application/json",
                              .body = str_text(&s->text),
                              .n_bytes = s->text.n};
}

static void answer_config(struct server *s, struct http_answer *a)
{
    char path[4096], *text;
    size_t n;
    str_clear(&s->text);
    (void)snprintf(path, sizeof(path), "%s/config.yaml", s->folder);
    if (file_read(path, &text, &n) == OK) {
        serve_hide_paths(text, &s->text);
        mem_free(text);
    }
    *a = (struct http_answer){.code = 200,
                              .type = "text/plain; charset=utf-8",
                              .body = str_text(&s->text),
                              .n_bytes = s->text.n};
}

static void answer_text(struct http_answer *a, int code, const char *text)
{
    *a = (struct http_answer){.code = code,
                              .type = "text/plain; charset=utf-8",
                              .body = text,
                              .n_bytes = strlen(text),
                              .is_constant = true};
}

static void answer_constant(struct http_answer *a, const char *type, const unsigned char *body,
                            size_t n)
{
    *a = (struct http_answer){
        .code = 200, .type = type, .body = body, .n_bytes = n, .is_constant = true};
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool answer_page(const struct http_request *r, struct http_answer *a)
{
    if (strcmp(r->path, "/") == 0)
        answer_constant(a, "text/html; charset=utf-8", live_html, live_html_size);
    else if (strcmp(r->path, "/live.css") == 0)
        answer_constant(a, "text/css; charset=utf-8", live_css, live_css_size);
    else if (strcmp(r->path, "/live.js") == 0)
        answer_constant(a, "text/javascript; charset=utf-8", live_js, live_js_size);
    else
        return false;
    return true;
}

enum { TIMELINE_COLUMNS = 400 };

static void answer_get(struct server *s, const struct http_request *r, struct http_answer *a)
{
    if (answer_page(r, a))
        return;
    if (strcmp(r->path, "/events") == 0)
        *a = (struct http_answer){.code = 200, .type = "text/event-stream", .is_stream = true};
    else if (strcmp(r->path, "/config") == 0)
        answer_config(s, a);
    else if (strcmp(r->path, "/state") == 0)
        *a = (struct http_answer){.code = 200,
                                  .type = "application/json",
                                  .body = str_text(&s->state),
                                  .n_bytes = s->state.n};
    else if (strcmp(r->path, "/curve") == 0)
        answer_json(s, s->is_watching ? watch_curve_json(&s->watch, -1) : json_object(), a);
    else if (strcmp(r->path, "/samples") == 0)
        answer_json(s, s->is_watching ? watch_samples_json(&s->watch) : json_array(), a);
    else if (strcmp(r->path, "/timeline") == 0)
        answer_json(
            s, s->is_watching ? watch_timeline_json(&s->watch, TIMELINE_COLUMNS) : json_object(),
            a);
    else
        answer_text(a, 404, "there is nothing here\n");
}

/* Settings, with spaces between them. */
static enum status send_budget(const struct server *s, const char *settings)
{
    struct budget_request r;
    char text[256], *rest = text, *setting;
    enum status status = OK;
    if (!settings || (size_t)snprintf(text, sizeof(text), "%s", settings) >= sizeof(text))
        return FAIL(ERR_USAGE, "which budget? device_memory=9GiB is one");
    budget_request_init(&r);
    while (status == OK && (setting = strsep(&rest, " ")))
        status = *setting ? budget_request_set(&r, setting) : OK;
    if (status == OK && r.text.n == 0)
        status = FAIL(ERR_USAGE, "which budget? device_memory=9GiB is one");
    if (status == OK)
        status = budget_request_send(s->folder, &r);
    budget_request_release(&r);
    return status;
}

static void answer_budget(const struct server *s, const struct http_request *r,
                          struct http_answer *a)
{
    static char reason[512]; /* lives until it is copied */
    switch (send_budget(s, r->budget)) {
    case OK:
        answer_text(a, 200, "asked for; the events will say what came of it\n");
        return;
    case ERR_USAGE:
        (void)snprintf(reason, sizeof(reason), "%s\n", status_message());
        answer_text(a, 400, reason);
        return;
    default:
        answer_text(a, 500, "the request cannot be written into output_dir\n");
    }
}

static void answer_post(struct server *s, const struct http_request *r, struct http_answer *a)
{
    static const struct {
        const char *path, *name;
        bool on;
    } requests[] = {{"/save", "SAVE", true},
                    {"/stop", "STOP", true},
                    {"/pause", "PAUSE", true},
                    {"/resume", "PAUSE", false},
                    {"/budget", NULL, true}};
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        if (strcmp(r->path, requests[i].path) != 0)
            continue;
        if (!is_token(r->token, s->token))
            answer_text(a, 403,
                        "the token is missing or wrong: it is in the address that snug "
                        "printed\n");
        else if (!s->is_watching || !s->watch.is_running)
            answer_text(a, 409, "no run is at work here\n");
        else if (!requests[i].name)
            answer_budget(s, r, a);
        else if (watch_request(&s->watch, requests[i].name, requests[i].on) != OK)
            answer_text(a, 500, "the request cannot be written into output_dir\n");
        else
            answer_text(a, 200, "asked for\n");
        return;
    }
    answer_text(a, 404, "there is nothing here\n");
}

static void handle(void *user, const struct http_request *r, struct http_answer *a)
{
    struct server *s = user;
    if (!is_own_host(r->host))
        answer_text(a, 421, "this is not the host that was asked for\n");
    else if (!is_own_page(r))
        answer_text(a, 403, "other pages may not ask\n");
    else if (strcmp(r->method, "GET") == 0)
        answer_get(s, r, a);
    else if (strcmp(r->method, "POST") == 0)
        answer_post(s, r, a);
    else
        answer_text(a, 405, "GET and POST are all that is understood\n");
}

/* ---- the server ------------------------------------------------------------------------------ */

enum status server_open(struct server *s, const char *folder, const struct health_profile *profile,
                        int listening)
{
    s->profile = profile;
    s->folder = mem_strdup(folder);
    if (!s->folder)
        return FAIL(ERR_MEMORY, "%s: out of memory", folder);
    str_add(&s->state, "{\"state\":\"starting\"}");
    return http_open(&s->http, listening, handle, s);
}

void server_close(struct server *s)
{
    http_close(s->http);
    if (s->is_watching)
        watch_close(&s->watch);
    mem_free(s->folder);
    str_release(&s->text);
    str_release(&s->state);
    str_release(&s->remedies);
    s->http = NULL;
    s->folder = NULL;
    s->is_watching = false;
}

/* The run that is meant may not have begun: what lies in the folder is another's then. */
static void start_watching(struct server *s)
{
    struct live l;
    if (s->is_watching || live_read(s->folder, &l) != OK || (s->pid && l.run.pid != s->pid))
        return;
    s->is_watching = watch_open(&s->watch, s->folder, s->profile) == OK;
}

static enum status describe(struct server *s)
{
    struct str text = {0};
    json_t *o = watch_json(&s->watch);
    if (o && s->remedies.n > 0 &&
        json_object_set_new(o, "remedies", json_string(str_text(&s->remedies))) != 0) {
        json_decref(o);
        o = NULL;
    }
    enum status status = json_text_take(o, JSON_COMPACT, &text);
    str_clear(&s->state);
    if (status == OK)
        serve_hide_paths(str_text(&text), &s->state);
    str_release(&text);
    return status == OK ? str_status(&s->state) : status;
}

enum status server_tick(struct server *s)
{
    struct str event = {0};
    start_watching(s);
    if (!s->is_watching)
        return OK;
    TRY(watch_look(&s->watch));
    TRY(describe(s));
    str_addf(&event, "event: state\ndata: ");
    str_add_n(&event, str_text(&s->state), s->state.n);
    str_add(&event, "\n\n");
    enum status status = str_status(&event);
    if (status == OK)
        status = http_event(s->http, event.text, event.n);
    str_release(&event);
    return status;
}
