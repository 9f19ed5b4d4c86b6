#include "api/remedies.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/api_internal.h"
#include "base/json.h"
#include "base/log.h"
#include "device/card/card.h"
#include "engine/numeric_changes.h"

/* ---- planning -------------------------------------------------------------------------------- */

/* A GPU is planned for as a card, without opening it: a context would take what is short. */
static bool choose_device(const struct watch *w, struct snug_settings *s, struct run_remedies *out)
{
    if (w->live.run.is_shared)
        return true;
    for (int i = 0; i < card_count(); i++) {
        const struct card *c = card_at(i);
        if (strstr(w->live.run.device, c->title)) {
            s->gpu = c->name;
            return true;
        }
    }
    (void)snprintf(out->note, sizeof(out->note),
                   "no plans are known for this GPU without opening it; snug plan CONFIG --what-if "
                   "finds them once the run has ended");
    return false;
}

enum { MOST_SETTINGS = 8 };

/* Settings as they are written, "bf16=true optim=adamw_8bit", one by one. */
static size_t split(char *text, const char *settings[MOST_SETTINGS])
{
    size_t n = 0;
    char *rest = NULL;
    for (char *at = strtok_r(text, " ", &rest); at && n < MOST_SETTINGS;
         at = strtok_r(NULL, " ", &rest))
        settings[n++] = at;
    return n;
}

struct trial {
    const char *path; /* of the run's config */
    const struct snug_settings *settings;
    int memory;
    int64_t now; /* bytes of the device tier as it is */
};

/* Plans with these settings; false: it cannot be, or does not fit. */
static bool try_setting(const struct trial *t, const char *setting, struct run_remedy *out)
{
    char text[512];
    const char *overrides[MOST_SETTINGS];
    struct snug_config *config;
    struct snug_run *run;
    struct snug_forecast f = {0};
    (void)snprintf(text, sizeof(text), "%s", setting);
    size_t n = split(text, overrides);
    if (snug_config_load(&config, t->path, overrides, n) != SNUG_OK)
        return false;
    bool opened = snug_run_open(&run, config, t->settings, SNUG_TRAIN) == SNUG_OK;
    if (opened) {
        snug_run_forecast(run, &f);
        *out = (struct run_remedy){.step_s = f.step_s, .n_bytes = f.device_needs};
        (void)snprintf(out->setting, sizeof(out->setting), "%s", setting);
        snug_run_close(run);
    }
    snug_config_free(config);
    return opened && f.fits;
}

static void add(const struct trial *t, const char *setting, bool same, struct run_remedies *out)
{
    struct run_remedy r;
    for (int i = 0; i < out->n; i++) {
        if (strcmp(out->items[i].setting, setting) == 0)
            return;
    }
    if (out->n == MOST_RUN_REMEDIES || !try_setting(t, setting, &r) ||
        r.n_bytes > t->now - t->now / 50)
        return;
    r.same_losses = same;
    out->items[out->n++] = r;
}

/* Bytes that the device tier may have: what the memory has left below its first alarm, without
 * what the process holds beside its arena; and less than now. */
static int64_t limit_of(const struct watch *w, int memory, const struct forecast *f)
{
    const struct health_input *in = &w->memory[memory].input;
    int64_t left = in->free == INT64_MAX ? in->need : in->free + MIN(in->own, in->need);
    int64_t whole = (int64_t)(w->profile->warning * (double)MIN(left, in->budget));
    int64_t beside = in->need - f->budget.needs[TIER_DEVICE];
    return MIN(whole - beside, f->budget.needs[TIER_DEVICE] / 10 * 9);
}

/* The numerics, one change at a time. */
static void add_changes(const struct trial *t, const struct engine *e, struct run_remedies *out)
{
    for (int i = 0; i < numeric_changes_count(); i++) {
        struct config c;
        struct str text = {0};
        if (numeric_change_alone(i, e, &c, &text) && str_status(&text) == OK)
            add(t, str_text(&text), false, out);
        str_release(&text);
    }
}

static void find(struct trial *t, const struct watch *w, const struct snug_run *run,
                 struct run_remedies *out)
{
    const struct engine *e = &run->session.engine;
    struct advice advice;
    char setting[64];
    t->now = e->forecast.budget.needs[TIER_DEVICE];
    int64_t limit = limit_of(w, t->memory, &e->forecast);
    out->step_s = e->forecast.step_s;
    if (limit > 0) {
        bool is_small = limit < (int64_t)64 << 20;
        (void)snprintf(setting, sizeof(setting), "device_memory=%lld%s",
                       (long long)(limit >> (is_small ? 10 : 20)), is_small ? "KiB" : "MiB");
        add(t, setting, true, out);
    }
    engine_advise(e, TIER_DEVICE, limit, &advice);
    for (int i = 0; i < advice.n; i++) {
        const struct variant *v = &advice.remedies[i].variant;
        add(t, advice.remedies[i].text, !v->changes && v->n_parts <= 1, out);
    }
    add_changes(t, e, out);
    if (out->n == 0)
        (void)snprintf(out->note, sizeof(out->note),
                       "no setting that was looked at makes it smaller: end what holds the rest");
}

void remedies_find(const struct watch *w, int memory, const struct snug_settings *settings,
                   struct run_remedies *out)
{
    char path[4096];
    struct snug_settings s = settings_or_none(settings);
    struct trial t = {.path = path, .settings = &s, .memory = memory};
    struct snug_config *config;
    struct snug_run *run;
    enum log_level level = log_get_level();
    *out = (struct run_remedies){0};
    (void)snprintf(path, sizeof(path), "%s/config.yaml", w->folder);
    log_set_level(LOG_QUIET); /* what the run has said already */
    if (choose_device(w, &s, out) && snug_config_load(&config, path, NULL, 0) == SNUG_OK) {
        if (snug_run_open(&run, config, &s, SNUG_TRAIN) == SNUG_OK) {
            find(&t, w, run, out);
            snug_run_close(run);
        }
        snug_config_free(config);
    }
    log_set_level(level);
    if (out->n == 0 && !out->note[0])
        (void)snprintf(out->note, sizeof(out->note), "the run cannot be planned again: %.200s",
                       status_message());
}

/* ---- words ----------------------------------------------------------------------------------- */

void remedies_add_text(const struct run_remedies *r, struct str *out)
{
    char bytes[BYTES_TEXT], step[BYTES_TEXT], now[BYTES_TEXT];
    if (r->n == 0 && r->note[0])
        str_addf(out, "%s\n", r->note);
    if (r->n > 0)
        str_addf(out, "to resume with less memory (a step takes %s now):\n",
                 format_duration(now, r->step_s));
    for (int i = 0; i < r->n; i++)
        str_addf(out, "  %s: %s, %s a step, %s\n", r->items[i].setting,
                 format_bytes(bytes, r->items[i].n_bytes),
                 format_duration(step, r->items[i].step_s),
                 r->items[i].same_losses ? "the same losses" : "other numbers");
}

json_t *remedies_json(const struct run_remedies *r)
{
    json_t *all = json_array();
    for (int i = 0; all && i < r->n; i++) {
        const struct run_remedy *x = &r->items[i];
        if (json_array_append_new(all, json_pack("{s:s, s:I, s:o, s:b}", "setting", x->setting,
                                                 "bytes", (json_int_t)x->n_bytes, "step_ms",
                                                 json_finite(1e3 * x->step_s), "same_losses",
                                                 x->same_losses)) != 0) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

/* ---- beside ---------------------------------------------------------------------------------- */

static _Noreturn void search_in_child(int fd, const struct watch *w, int memory,
                                      const struct snug_settings *settings)
{
    static struct run_remedies r;
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
    (void)!nice(19);
    remedies_find(w, memory, settings, &r);
    _exit(write(fd, &r, sizeof(r)) == (ssize_t)sizeof(r) ? 0 : 1); /* fits into a pipe */
}

void remedy_search_start(struct remedy_search *s, const struct watch *w, int memory,
                         const struct snug_settings *settings)
{
    int ends[2];
    if (s->pid > 0 || s->has_run || pipe2(ends, O_CLOEXEC) != 0)
        return;
    pid_t pid = fork();
    if (pid == 0)
        search_in_child(ends[1], w, memory, settings);
    (void)close(ends[1]);
    if (pid < 0) {
        (void)close(ends[0]);
        return;
    }
    s->pid = (int)pid;
    s->fd = ends[0];
}

bool remedy_search_look(struct remedy_search *s)
{
    if (s->pid <= 0)
        return false;
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    if (poll(&p, 1, 0) <= 0)
        return false;
    s->has_run = read(s->fd, &s->result, sizeof(s->result)) == (ssize_t)sizeof(s->result);
    if (!s->has_run)
        (void)snprintf(s->result.note, sizeof(s->result.note), "planning remedies has failed");
    s->has_run = true;
    (void)close(s->fd);
    (void)waitpid(s->pid, NULL, 0);
    s->pid = 0;
    return true;
}

void remedy_search_end(struct remedy_search *s)
{
    if (s->pid <= 0)
        return;
    (void)kill(s->pid, SIGKILL);
    (void)waitpid(s->pid, NULL, 0);
    (void)close(s->fd);
    s->pid = 0;
}
