/* serve.h: the page of a run: what is answered to whom.
 *
 *     GET /              the page, with /live.css and /live.js
 *     GET /state         what watch_json says, and remedies
 *     GET /curve         loss, learning rate and speed over the steps
 *     GET /samples       texts that the model has written, the last ones
 *     GET /timeline      planned memory over a step
 *     GET /config        the run's config, as text
 *     GET /events        the state whenever it is new (server-sent events)
 *     POST /save /stop /pause /resume   with the token in X-Snug-Token
 *
 * There is nothing else: no file of the machine is reached by a name from outside, and of paths in
 * texts the last part is shown. Requests that name another host than this one (a foreign page whose
 * name was pointed here) are refused, and so are those that other pages make.
 */
#ifndef SNUG_WATCH_SERVE_H
#define SNUG_WATCH_SERVE_H

#include "watch/http.h"
#include "watch/watch.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SERVE_TOKEN = 33, SERVE_PORT = 7007 };

struct serve_address {
    char host[64]; /* numbers, as they are bound */
    int port;      /* 0: any */
};

/* "PORT", "HOST:PORT", "[HOST]:PORT" or "" (127.0.0.1, SERVE_PORT). ERR_USAGE for all else. */
enum status serve_parse(const char *text, struct serve_address *out) MUST_CHECK;
/* A listening socket; the port becomes the one that it has. */
enum status serve_listen(struct serve_address *a, int *fd) MUST_CHECK;
/* 128 bits by chance, as text. */
enum status serve_make_token(char out[SERVE_TOKEN]) MUST_CHECK;

struct server {
    char *folder;
    const struct health_profile *profile;
    int64_t pid; /* whose run it is to be; 0: whichever is there */
    const char *token;
    struct serve_address address;
    struct http *http;
    struct watch watch;
    bool is_watching;
    struct str text; /* of the answer under way */
    struct str state, remedies;
};

enum status server_open(struct server *s, const char *folder, const struct health_profile *profile,
                        int listening) MUST_CHECK;
void server_close(struct server *s);
/* Looks at the run and tells who listens. */
enum status server_tick(struct server *s) MUST_CHECK;

/* Absolute paths inside of a text become "…/last part". */
void serve_hide_paths(const char *text, struct str *out);

#ifdef __cplusplus
}
#endif
#endif
