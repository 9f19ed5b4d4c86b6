/* server.c: the page of a run, served by whoever watches it, or in a process beside the run. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/api_internal.h"
#include "api/remedies.h"
#include "base/alloc.h"
#include "base/machine.h"
#include "watch/serve.h"

struct snug_server {
    char *folder;
    const struct health_profile *profile;
    struct snug_settings settings;
    struct serve_address address;
    char token[SERVE_TOKEN];
    char url[160];
    int listening;
    pid_t child; /* 0: none */
};

enum snug_status snug_server_open(struct snug_server **out, const char *output_dir,
                                  const char *address, const struct snug_settings *settings,
                                  const char *thresholds)
{
    struct snug_server *s;
    *out = NULL;
    enum status status = mem_try_array(&s, 1, sizeof(*s));
    if (status != OK)
        return public_status(status);
    *s = (struct snug_server){.listening = -1, .settings = settings_or_none(settings)};
    s->folder = mem_strdup(output_dir);
    s->profile = thresholds ? health_profile_find(thresholds) : &health_profiles[0];
    TRY_GOTO(s->folder ? OK : FAIL(ERR_MEMORY, "%s: out of memory", output_dir), out);
    TRY_GOTO(s->profile ? OK : FAIL(ERR_USAGE, "there are no thresholds '%s'", thresholds), out);
    TRY_GOTO(http_is_built() ? OK : http_open(&(struct http *){NULL}, -1, NULL, NULL), out);
    TRY_GOTO(serve_parse(address ? address : "", &s->address), out);
    TRY_GOTO(serve_make_token(s->token), out);
    TRY_GOTO(serve_listen(&s->address, &s->listening), out);
    bool six = strchr(s->address.host, ':') != NULL;
    (void)snprintf(s->url, sizeof(s->url), "http://%s%s%s:%d/#token=%s", six ? "[" : "",
                   s->address.host, six ? "]" : "", s->address.port, s->token);
out:
    if (status == OK)
        *out = s;
    else
        snug_server_close(s);
    return public_status(status);
}

const char *snug_server_url(const struct snug_server *s)
{
    return s->url;
}

/* ---- serving --------------------------------------------------------------------------------- */

enum { TICK_MS = 1000, LAST_MS = 300 };

static void look_for_remedies(struct server *s, struct remedy_search *search,
                              const struct snug_settings *settings)
{
    for (int i = 0; s->is_watching && i < s->watch.n_alerts; i++) {
        if (s->watch.alerts[i].memory >= 0)
            remedy_search_start(search, &s->watch, s->watch.alerts[i].memory, settings);
    }
    if (remedy_search_look(search))
        remedies_add_text(&search->result, &s->remedies);
}

static enum status serve_for(struct server *s, double seconds)
{
    double end = now_s() + seconds;
    for (double left = seconds; left > 0; left = end - now_s())
        TRY(http_wait(s->http, (int)(1e3 * left) + 1));
    return OK;
}

/* `watched` (0: none): ends with that process. */
static enum status serve(struct snug_server *x, pid_t watched, const volatile sig_atomic_t *stop)
{
    struct server s = {.pid = watched, .token = x->token, .address = x->address};
    struct remedy_search search = {0};
    enum status status = server_open(&s, x->folder, x->profile, x->listening);
    if (status == OK)
        x->listening = -1; /* the server's now */
    while (status == OK && !*stop && (!watched || getppid() == watched)) {
        status = server_tick(&s);
        look_for_remedies(&s, &search, &x->settings);
        if (status == OK)
            status = serve_for(&s, 1e-3 * TICK_MS);
    }
    if (status == OK && *stop && server_tick(&s) == OK) /* how it ended */
        status = serve_for(&s, 1e-3 * LAST_MS);
    remedy_search_end(&search);
    server_close(&s);
    return status;
}

enum snug_status snug_server_run(struct snug_server *s, const volatile sig_atomic_t *stop)
{
    return public_status(serve(s, 0, stop));
}

/* ---- beside a run ---------------------------------------------------------------------------- */

static volatile sig_atomic_t child_stop;

static void on_term(int number)
{
    child_stop = number;
}

/* Nothing of the run's signals is for it: it ends when the run does. */
static _Noreturn void serve_in_child(struct snug_server *s, pid_t parent)
{
    struct sigaction end = {.sa_handler = on_term}, ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGTERM, &end, NULL);
    (void)sigaction(SIGINT, &ignore, NULL);
    (void)sigaction(SIGHUP, &ignore, NULL);
    (void)sigaction(SIGUSR1, &ignore, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)prctl(PR_SET_NAME, "snug-page");
    (void)!nice(5); /* the run comes first */
    _exit(serve(s, parent, &child_stop) == OK ? 0 : 1);
}

enum snug_status snug_server_start(struct snug_server *s)
{
    pid_t parent = getpid(), child = fork();
    if (child == 0)
        serve_in_child(s, parent);
    if (child < 0)
        return public_status(
            FAIL(ERR_FAILED, "no process for the page can be made: %s", strerror(errno)));
    s->child = child;
    (void)close(s->listening);
    s->listening = -1;
    return SNUG_OK;
}

void snug_server_close(struct snug_server *s)
{
    if (!s)
        return;
    if (s->child > 0) {
        (void)kill(s->child, SIGTERM);
        while (waitpid(s->child, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    if (s->listening >= 0)
        (void)close(s->listening);
    mem_free(s->folder);
    mem_free(s);
}
