#include "watch/http.h"

#ifdef SNUG_HAS_MICROHTTPD
#include <dlfcn.h>
#include <microhttpd.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/str.h"

enum {
    MOST_CONNECTIONS = 256,
    MOST_STREAMS = 224,            /* of these: others are answered at once */
    MEMORY_PER_CONNECTION = 16384, /* for its request; more of it is refused (431) */
    SECONDS_TO_MOVE = 15,          /* nothing asked for or taken for so long: it is let go */
    STREAM_BLOCK = 16384,
};

/* ---- the library ----------------------------------------------------------------------------- */

#define FUNCTIONS(X)                     \
    X(MHD_start_daemon)                  \
    X(MHD_stop_daemon)                   \
    X(MHD_run_wait)                      \
    X(MHD_lookup_connection_value)       \
    X(MHD_create_response_from_buffer)   \
    X(MHD_create_response_from_callback) \
    X(MHD_add_response_header)           \
    X(MHD_queue_response)                \
    X(MHD_destroy_response)              \
    X(MHD_suspend_connection)            \
    X(MHD_resume_connection)

static struct {
    void *library;
#define X(name) __typeof__(name) *name;
    FUNCTIONS(X)
#undef X
} mhd;

/* dlsym gives a data pointer; ISO C wants function pointers copied out of it. */
static bool load_function(void *function, size_t n_bytes, const char *name)
{
    void *symbol = dlsym(mhd.library, name);
    memcpy(function, &symbol, n_bytes);
    return symbol != NULL;
}

static enum status load_library(void)
{
    bool all = true;
    if (mhd.library)
        return OK;
    mhd.library = dlopen(SNUG_MICROHTTPD_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!mhd.library)
        return FAIL(ERR_UNSUPPORTED, SNUG_MICROHTTPD_LIBRARY " is not on this machine: %s",
                    dlerror());
#define X(name) all = load_function(&mhd.name, sizeof(mhd.name), #name) && all;
    FUNCTIONS(X)
#undef X
    if (all)
        return OK;
    (void)dlclose(mhd.library);
    mhd.library = NULL;
    return FAIL(ERR_UNSUPPORTED, SNUG_MICROHTTPD_LIBRARY " lacks functions that this build needs");
}

bool http_is_built(void)
{
    return true;
}

/* ---- streams --------------------------------------------------------------------------------- */

/* A client that listens. What it is being sent is a copy: the next event may come meanwhile. */
struct stream {
    struct http *owner;
    struct MHD_Connection *connection;
    uint64_t seen; /* number of the event it was given last */
    struct str sending;
    size_t sent;
    bool is_suspended;
    struct stream *next;
};

struct http {
    struct MHD_Daemon *daemon;
    http_handler *handler;
    void *user;
    struct stream *streams;
    int n_streams;
    uint64_t number; /* of the newest event */
    struct str event;
};

static ssize_t next_piece(void *user, uint64_t position, char *buffer, size_t size)
{
    struct stream *s = user;
    (void)position;
    if (s->sent == s->sending.n && s->seen != s->owner->number) {
        str_clear(&s->sending);
        str_add_n(&s->sending, str_text(&s->owner->event), s->owner->event.n);
        if (str_status(&s->sending) != OK)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        s->seen = s->owner->number;
        s->sent = 0;
    }
    size_t n = s->sending.n - s->sent;
    if (n == 0) { /* until the next event */
        s->is_suspended = true;
        mhd.MHD_suspend_connection(s->connection);
        return 0;
    }
    n = n < size ? n : size;
    memcpy(buffer, str_text(&s->sending) + s->sent, n);
    s->sent += n;
    return (ssize_t)n;
}

static void forget_stream(void *user)
{
    struct stream *s = user, **at = &s->owner->streams;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    s->owner->n_streams--;
    str_release(&s->sending);
    mem_free(s);
}

static struct MHD_Response *make_stream(struct http *h, struct MHD_Connection *c)
{
    struct stream *s = h->n_streams < MOST_STREAMS ? mem_calloc(1, sizeof(*s)) : NULL;
    if (!s)
        return NULL;
    *s = (struct stream){.owner = h, .connection = c, .next = h->streams};
    struct MHD_Response *r = mhd.MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK,
                                                                   next_piece, s, forget_stream);
    if (!r) {
        mem_free(s);
        return NULL;
    }
    h->streams = s;
    h->n_streams++;
    return r;
}

static void wake(struct http *h)
{
    for (struct stream *s = h->streams; s; s = s->next) {
        if (s->is_suspended)
            mhd.MHD_resume_connection(s->connection);
        s->is_suspended = false;
    }
}

enum status http_event(struct http *h, const char *data, size_t n_bytes)
{
    str_clear(&h->event);
    str_add_n(&h->event, data, n_bytes);
    h->number++;
    wake(h);
    return str_status(&h->event);
}

int http_n_streams(const struct http *h)
{
    return h->n_streams;
}

/* ---- answers --------------------------------------------------------------------------------- */

static const char *header(struct MHD_Connection *c, const char *name)
{
    return mhd.MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

/* Nothing foreign runs in the page, nobody puts it into a frame, nothing of it is kept. */
static const char *const headers[][2] = {
    {"Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; "
                                "connect-src 'self'; base-uri 'none'; "
                                "form-action 'none'; frame-ancestors 'none'"},
    {"X-Frame-Options", "DENY"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cache-Control", "no-store"},
};

static enum MHD_Result send_answer(struct MHD_Connection *c, const struct http_answer *a,
                                   struct MHD_Response *r)
{
    if (!r)
        return MHD_NO;
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
        (void)mhd.MHD_add_response_header(r, headers[i][0], headers[i][1]);
    (void)mhd.MHD_add_response_header(r, "Content-Type", a->type);
    enum MHD_Result queued = mhd.MHD_queue_response(c, (unsigned)a->code, r);
    mhd.MHD_destroy_response(r);
    return queued;
}

/* Called once when the headers are there, and again with the body of a request, which nothing here
 * wants. */
static enum MHD_Result answer(void *user, struct MHD_Connection *c, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *n_upload, void **state)
{
    static int seen;
    struct http *h = user;
    (void)version, (void)upload;
    if (!*state) {
        *state = &seen;
        return MHD_YES;
    }
    if (*n_upload > 0) {
        *n_upload = 0;
        return MHD_YES;
    }
    struct http_request request = {.method = method,
                                   .path = url,
                                   .host = header(c, "Host"),
                                   .origin = header(c, "Origin"),
                                   .token = header(c, "X-Snug-Token"),
                                   .budget = header(c, "X-Snug-Budget")};
    struct http_answer a = {.code = 404, .type = "text/plain; charset=utf-8", .body = ""};
    h->handler(h->user, &request, &a);
    struct MHD_Response *r =
        a.is_stream ? make_stream(h, c)
                    : mhd.MHD_create_response_from_buffer(a.n_bytes, (void *)(uintptr_t)a.body,
                                                          a.is_constant ? MHD_RESPMEM_PERSISTENT
                                                                        : MHD_RESPMEM_MUST_COPY);
    return send_answer(c, &a, r);
}

/* ---- the server ------------------------------------------------------------------------------ */

enum status http_open(struct http **out, int listening, http_handler *handler, void *user)
{
    *out = NULL;
    TRY(load_library());
    struct http *h = mem_calloc(1, sizeof(*h));
    if (!h)
        return FAIL(ERR_MEMORY, "out of memory for the page");
    h->handler = handler;
    h->user = user;
    h->daemon =
        mhd.MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, answer, h,
                             MHD_OPTION_LISTEN_SOCKET, listening, MHD_OPTION_CONNECTION_LIMIT,
                             (unsigned)MOST_CONNECTIONS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                             (size_t)MEMORY_PER_CONNECTION, MHD_OPTION_CONNECTION_TIMEOUT,
                             (unsigned)SECONDS_TO_MOVE, MHD_OPTION_END);
    if (!h->daemon) {
        mem_free(h);
        return FAIL(ERR_FAILED, "the page cannot be served: libmicrohttpd does not start");
    }
    *out = h;
    return OK;
}

void http_close(struct http *h)
{
    if (!h)
        return;
    wake(h);
    mhd.MHD_stop_daemon(h->daemon);
    str_release(&h->event);
    mem_free(h);
}

enum status http_wait(struct http *h, int milliseconds)
{
    if (mhd.MHD_run_wait(h->daemon, milliseconds) == MHD_YES)
        return OK;
    return FAIL(ERR_FAILED, "the page cannot be served any more");
}

#else

bool http_is_built(void)
{
    return false;
}

enum status http_open(struct http **out, int listening, http_handler *handler, void *user)
{
    (void)listening, (void)handler, (void)user;
    *out = NULL;
    return FAIL(ERR_UNSUPPORTED, "this build serves no page: libmicrohttpd was not there (`make "
                                 "deps` installs it, then build again)");
}

void http_close(struct http *h)
{
    (void)h;
}

enum status http_wait(struct http *h, int milliseconds)
{
    (void)h, (void)milliseconds;
    return OK;
}

enum status http_event(struct http *h, const char *data, size_t n_bytes)
{
    (void)h, (void)data, (void)n_bytes;
    return OK;
}

int http_n_streams(const struct http *h)
{
    (void)h;
    return 0;
}
#endif
