/* monitor.c: a run watched from another process. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/api_internal.h"
#include "api/remedies.h"
#include "base/alloc.h"
#include "base/json_text.h"
#include "watch/screen.h"
#include "watch/view.h"

struct snug_monitor {
    struct watch watch;
    struct snug_settings settings;
    struct remedy_search search;
};

static enum status choose_profile(const char *name, const struct health_profile **out)
{
    *out = name ? health_profile_find(name) : &health_profiles[0];
    if (*out)
        return OK;
    return FAIL(ERR_USAGE,
                "there are no thresholds '%s'; there are balanced, aggressive and conservative",
                name);
}

enum snug_status snug_monitor_open(struct snug_monitor **out, const char *output_dir,
                                   const struct snug_settings *settings, const char *thresholds)
{
    struct snug_monitor *m;
    const struct health_profile *profile;
    *out = NULL;
    enum status status = choose_profile(thresholds, &profile);
    if (status == OK)
        status = mem_try_array(&m, 1, sizeof(*m));
    if (status != OK)
        return public_status(status);
    m->settings = settings_or_none(settings);
    status = watch_open(&m->watch, output_dir, profile);
    if (status == OK)
        status = watch_look(&m->watch);
    if (status == OK)
        *out = m;
    else
        snug_monitor_close(m);
    return public_status(status);
}

void snug_monitor_close(struct snug_monitor *m)
{
    if (!m)
        return;
    remedy_search_end(&m->search);
    watch_close(&m->watch);
    mem_free(m);
}

enum snug_status snug_monitor_look(struct snug_monitor *m)
{
    return public_status(watch_look(&m->watch));
}

/* The first alert that is about a memory; -1: none is. */
static int short_memory(const struct watch *w)
{
    for (int i = 0; i < w->n_alerts; i++) {
        if (w->alerts[i].memory >= 0 && w->is_running)
            return w->alerts[i].memory;
    }
    return -1;
}

enum snug_status snug_monitor_advise(struct snug_monitor *m)
{
    int memory = short_memory(&m->watch);
    if (m->search.has_run)
        return SNUG_OK;
    remedies_find(&m->watch, memory < 0 ? MEMORY_HOST : memory, &m->settings, &m->search.result);
    m->search.has_run = true;
    return SNUG_OK;
}

enum snug_status snug_monitor_json(const struct snug_monitor *m, char **text)
{
    struct str s = {0};
    json_t *root = watch_json(&m->watch);
    if (root && m->search.has_run &&
        json_object_set_new(root, "remedies", remedies_json(&m->search.result)) != 0) {
        json_decref(root);
        root = NULL;
    }
    return hand_out(&s, json_text_take(root, JSON_INDENT(2), &s), text);
}

/* ---- text ------------------------------------------------------------------------------------ */

static enum status draw(const struct snug_monitor *m, struct canvas *c, const char *note)
{
    struct str remedies = {0};
    if (m->search.has_run)
        remedies_add_text(&m->search.result, &remedies);
    enum status status = str_status(&remedies);
    if (status == OK)
        view_draw(c, &m->watch, str_text(&remedies), note);
    str_release(&remedies);
    return status;
}

enum snug_status snug_monitor_text(const struct snug_monitor *m, int n_columns, int n_rows,
                                   bool colour, char **text)
{
    struct canvas c;
    struct str s = {0};
    enum status status = canvas_init(&c, n_rows, n_columns);
    if (status == OK) {
        status = draw(m, &c, "");
        if (status == OK)
            status = canvas_print(&c, colour, &s);
        canvas_release(&c);
    }
    return hand_out(&s, status, text);
}

/* ---- the full screen ------------------------------------------------------------------------- */

enum { LOOK_MS = 1000, GLANCE_MS = 100 };

static enum status show(const struct snug_monitor *m)
{
    int n_rows, n_columns;
    struct canvas c;
    screen_size(&n_rows, &n_columns);
    TRY(canvas_init(&c, n_rows, n_columns));
    enum status status =
        draw(m, &c, "q quit   s save now   p pause or go on   x stop after the step");
    if (status == OK)
        screen_show(&c);
    canvas_release(&c);
    return status;
}

static enum status obey(struct watch *w, int key)
{
    if (!w->is_running)
        return OK;
    if (key == 's')
        return watch_request(w, "SAVE", true);
    if (key == 'x')
        return watch_request(w, "STOP", true);
    if (key == 'p')
        return watch_request(w, "PAUSE", !watch_requested(w, "PAUSE"));
    return OK;
}

/* What the run is at is looked at often, the machine once a second. */
static enum status watch_on(struct snug_monitor *m, const volatile sig_atomic_t *stop)
{
    int key = 0, since = 0;
    while (key != 'q' && !(stop && *stop)) {
        TRY(show(m));
        key = screen_key(GLANCE_MS);
        since += GLANCE_MS;
        TRY(obey(&m->watch, key));
        TRY(since < LOOK_MS ? watch_glance(&m->watch) : watch_look(&m->watch));
        since = since < LOOK_MS ? since : 0;
        if (short_memory(&m->watch) >= 0)
            remedy_search_start(&m->search, &m->watch, short_memory(&m->watch), &m->settings);
        (void)remedy_search_look(&m->search);
    }
    return OK;
}

enum snug_status snug_monitor_screen(struct snug_monitor *m, bool colour,
                                     const volatile sig_atomic_t *stop)
{
    enum status status = screen_open(colour);
    if (status == OK)
        status = watch_on(m, stop);
    screen_close();
    return public_status(status);
}
