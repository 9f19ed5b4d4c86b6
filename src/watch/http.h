/* http.h: answers to a browser, by libmicrohttpd, which is loaded when somebody asks for a page.
 *
 * One thread: whoever owns the server calls http_wait() in a loop, and everything is answered in
 * there. Nothing of a client is kept but what it is being sent: an event stream gets the newest
 * event when it is ready for one, and misses those in between. Clients that take too long to ask or
 * to read are let go.
 */
#ifndef SNUG_WATCH_HTTP_H
#define SNUG_WATCH_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct http_request {
    const char *method, *path;
    const char *host, *origin, *token, *budget; /* headers; NULL: not there */
};

/* What to send. `body` is copied, unless it is constant. */
struct http_answer {
    int code;
    const char *type; /* "application/json" */
    const void *body;
    size_t n_bytes;
    bool is_constant; /* it outlives the server */
    bool is_stream;   /* events (http_event) instead of a body */
};

/* The body is copied before it returns to the loop: it may lie in memory of the owner's. */
typedef void http_handler(void *user, const struct http_request *request,
                          struct http_answer *answer);

struct http;

bool http_is_built(void);
/* Takes over the listening socket. */
enum status http_open(struct http **out, int listening, http_handler *handler,
                      void *user) MUST_CHECK;
void http_close(struct http *h); /* NULL is fine */
/* Answers whoever is there for so long. */
enum status http_wait(struct http *h, int milliseconds) MUST_CHECK;
/* The newest event of streams: text that the browser gets as it is. */
enum status http_event(struct http *h, const char *data, size_t n_bytes) MUST_CHECK;
int http_n_streams(const struct http *h);

#ifdef __cplusplus
}
#endif
#endif
