#include "watch/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "report/observe.h"

enum status watch_open(struct watch *w, const char *folder, const struct health_profile *profile)
{
    *w = (struct watch){.folder = mem_strdup(folder), .profile = profile};
    if (!w->folder)
        return FAIL(ERR_MEMORY, "%s: out of memory", folder);
    enum status status = live_read(folder, &w->live);
    if (status != OK)
        watch_close(w);
    return status;
}

void watch_close(struct watch *w)
{
    mem_free(w->folder);
    if (w->table_of[0])
        plan_table_release(&w->table);
    poller_release(&w->poller);
    curve_release(&w->curve);
    *w = (struct watch){0};
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* A new run in the folder has a new plan. One that cannot be read leaves the drawing out. */
static void take_plan(struct watch *w)
{
    if (strcmp(w->table_of, w->live.run.id) == 0 && w->table_at == w->live.run.n_changes)
        return;
    if (w->table_of[0])
        plan_table_release(&w->table);
    w->table_of[0] = '\0';
    if (plan_table_read(&w->table, w->folder) == OK)
        (void)snprintf(w->table_of, sizeof(w->table_of), "%s", w->live.run.id);
    w->table_at = w->live.run.n_changes;
}

/* A GPU is given whole sections: where in it the run is, the clock has to say. */
static uint64_t estimate(const struct watch *w, uint64_t position)
{
    uint64_t handle = position >> 32;
    int32_t at = (int32_t)(uint32_t)position;
    if (handle >= (uint64_t)w->table.n_programs || at < 0 ||
        at >= w->table.programs[handle].n_instrs)
        return position;
    const struct plan_program *p = &w->table.programs[handle];
    double speed = w->live.now.seconds > 0 ? w->live.run.step_s / w->live.now.seconds : 1;
    double since = MAX(observe_wall_time() - w->live.now.time, 0.0) * speed;
    double when = p->starts[at] + since;
    int32_t low = at, high = p->n_instrs - 1;
    while (low < high) {
        int32_t middle = low + (high - low + 1) / 2;
        if (p->starts[middle] <= when)
            low = middle;
        else
            high = middle - 1;
    }
    return handle << 32 | (uint32_t)low;
}

static void find_position(struct watch *w)
{
    w->position = w->live.position;
    w->is_estimated = !w->live.run.follows;
    if (w->is_estimated)
        w->position = estimate(w, w->position);
    w->planned = *plan_table_at(&w->table, w->position);
}

enum status watch_glance(struct watch *w)
{
    TRY(live_read(w->folder, &w->live));
    w->is_running = live_is_running(&w->live.run);
    take_plan(w);
    find_position(w);
    return OK;
}

/* ---- memories -------------------------------------------------------------------------------- */

static void note_use(struct watch_memory *m)
{
    if (m->n_uses == WATCH_USES) {
        memmove(m->uses, m->uses + 1, sizeof(m->uses[0]) * (WATCH_USES - 1));
        m->n_uses--;
    }
    m->uses[m->n_uses++] = m->health.use;
}

/* How far u is on its way from what was planned to all there is, and how fast it goes there. */
static double risk_of(const struct watch_memory *m, const struct health_profile *p)
{
    enum { FEWEST = 5 };
    double from = MAX(p->target, m->health.planned), rise = 0;
    if (m->n_uses < FEWEST)
        return 0;
    rise = (m->uses[m->n_uses - 1] - m->uses[m->n_uses - FEWEST]) / (FEWEST - 1);
    double near = from < 1 ? MAX(m->health.use - from, 0.0) / (1 - from) : 0;
    return MIN(near + MAX(10 * rise, 0.0), 1.0);
}

static struct growth *growth_of(struct watch_memory *m, int64_t pid)
{
    struct growth *oldest = &m->processes[0];
    for (int i = 0; i < POLL_PROCESSES; i++) {
        struct growth *g = &m->processes[i];
        if (g->id == pid)
            return g;
        if (g->id == 0 || g->time[(g->next + GROWTH_SAMPLES - 1) % GROWTH_SAMPLES] <
                              oldest->time[(oldest->next + GROWTH_SAMPLES - 1) % GROWTH_SAMPLES])
            oldest = g;
    }
    *oldest = (struct growth){.id = pid};
    return oldest;
}

static void look_at_memory(struct watch *w, int i)
{
    struct watch_memory *m = &w->memory[i];
    const struct poll_memory *p = &w->poll.memory[i];
    const struct live_run *r = &w->live.run;
    m->is_there = i == MEMORY_HOST || !r->is_shared;
    if (!m->is_there || !w->is_running)
        return;
    m->input = (struct health_input){.need = r->needs[i],
                                     .own = p->own_bytes,
                                     .free = p->known ? p->free_bytes : INT64_MAX,
                                     .budget = r->budget[i],
                                     .room = r->room[i]};
    m->health = health_look(w->profile, &m->input);
    note_use(m);
    m->risk = risk_of(m, w->profile);
    growth_add(&m->others, w->poll.time, p->others_bytes);
    growth_add(&m->own, w->poll.time, p->own_bytes);
    for (int k = 0; k < p->n_processes; k++)
        growth_add(growth_of(m, p->processes[k].pid), w->poll.time, p->processes[k].n_bytes);
}

/* ---- alerts ---------------------------------------------------------------------------------- */

static struct watch_alert *add_alert(struct watch *w, enum health level, const char *about,
                                     int memory)
{
    struct watch_alert *a = &w->alerts[MIN(w->n_alerts, (int)WATCH_ALERTS - 1)];
    w->n_alerts = MIN(w->n_alerts + 1, (int)WATCH_ALERTS);
    *a = (struct watch_alert){.level = level, .about = about, .memory = memory};
    return a;
}

static void alert_room(struct watch *w, int i)
{
    const struct watch_memory *m = &w->memory[i];
    const struct poll_memory *p = &w->poll.memory[i];
    char held[BYTES_TEXT], plan[BYTES_TEXT], left[BYTES_TEXT], others[BYTES_TEXT];
    if (m->health.health < HEALTH_WARNING)
        return;
    bool over = m->input.own > m->input.need && m->input.own >= m->input.budget;
    struct watch_alert *a = add_alert(w, m->health.health, over ? "plan" : "room", i);
    if (over)
        (void)snprintf(a->text, sizeof(a->text),
                       "the run holds %s of %s, and %s were planned: its budget does not hold",
                       format_bytes(held, m->input.own), p->whose,
                       format_bytes(plan, m->input.need));
    else
        (void)snprintf(a->text, sizeof(a->text),
                       "%s of %s are left beside the run's %s; others hold %s",
                       format_bytes(left, p->free_bytes), p->whose,
                       format_bytes(plan, m->input.need), format_bytes(others, p->others_bytes));
}

static const struct device_holder *holder_of(const struct poll_memory *p, int64_t pid)
{
    for (int i = 0; i < p->n_processes; i++) {
        if (p->processes[i].pid == pid)
            return &p->processes[i];
    }
    return NULL;
}

/* The process that grows fastest among those that would fill the memory; else others as a whole,
 * where processes are not seen. */
static void alert_growth(struct watch *w, int i)
{
    struct watch_memory *m = &w->memory[i];
    const struct poll_memory *p = &w->poll.memory[i];
    const struct growth *worst = NULL;
    double soonest = GROWTH_HORIZON_S, seconds;
    for (int k = 0; k < POLL_PROCESSES; k++) {
        const struct growth *g = &m->processes[k];
        if (g->id && holder_of(p, g->id) && growth_is_leak(g, p->free_bytes, &seconds) &&
            seconds < soonest) {
            soonest = seconds;
            worst = g;
        }
    }
    if (!worst && p->n_processes == 0 && growth_is_leak(&m->others, p->free_bytes, &soonest))
        worst = &m->others;
    if (!worst)
        return;
    char grown[BYTES_TEXT], left[BYTES_TEXT], span[BYTES_TEXT], until[BYTES_TEXT], who[80];
    const struct device_holder *h = holder_of(p, worst->id);
    double over = worst->n_bytes[0] ? (double)growth_bytes(worst) / growth_rate(worst) : 0;
    (void)snprintf(who, sizeof(who), h ? "process %lld (%s)" : "others", h ? (long long)h->pid : 0,
                   h ? h->name : "");
    struct watch_alert *a =
        add_alert(w, soonest < 60 ? HEALTH_CRITICAL : HEALTH_WARNING, "growth", i);
    a->pid = h ? h->pid : 0;
    (void)snprintf(a->text, sizeof(a->text),
                   "%s grew by %s in %s: the %s that %s has left are gone in %s", who,
                   format_bytes(grown, growth_bytes(worst)), format_duration(span, over),
                   format_bytes(left, p->free_bytes), p->whose, format_duration(until, soonest));
}

/* The run itself is planned to the byte: it does not grow. */
static void alert_own(struct watch *w, int i)
{
    const struct watch_memory *m = &w->memory[i];
    char grown[BYTES_TEXT], plan[BYTES_TEXT];
    if (w->live.now.step < 2 || m->input.own <= m->input.need || growth_rate(&m->own) <= 0 ||
        m->health.health >= HEALTH_WARNING)
        return;
    struct watch_alert *a = add_alert(w, HEALTH_WARNING, "plan", i);
    (void)snprintf(a->text, sizeof(a->text),
                   "the run grew by %s, and holds more than the %s planned",
                   format_bytes(grown, growth_bytes(&m->own)), format_bytes(plan, m->input.need));
}

static void alert_pressure(struct watch *w)
{
    const double some = 20, full = 10; /* percent */
    if (w->poll.pressure_some < some && w->poll.pressure_full < full)
        return;
    struct watch_alert *a =
        add_alert(w, w->poll.pressure_full >= full ? HEALTH_CRITICAL : HEALTH_WARNING, "pressure",
                  MEMORY_HOST);
    (void)snprintf(a->text, sizeof(a->text),
                   "the machine waits for memory: some processes %.0f%%, all of them %.0f%% of the "
                   "last ten seconds",
                   w->poll.pressure_some, w->poll.pressure_full);
}

static void alert_run(struct watch *w)
{
    const struct live_now *n = &w->live.now;
    char text[BYTES_TEXT];
    double since = observe_wall_time() - n->time;
    bool stepping = n->state == LIVE_TRAINING && n->step > 0;
    if (n->state != LIVE_ENDED && !w->is_running) {
        struct watch_alert *a = add_alert(w, HEALTH_EMERGENCY, "end", -1);
        (void)snprintf(a->text, sizeof(a->text),
                       "process %lld is gone and has not said why: killed, or out of memory. snug "
                       "train CONFIG --resume goes on from its last checkpoint",
                       (long long)w->live.run.pid);
    } else if (n->state == LIVE_ENDED && n->exit_code != 0) {
        struct watch_alert *a = add_alert(w, HEALTH_CRITICAL, "end", -1);
        (void)snprintf(a->text, sizeof(a->text), "ended: %s", n->message);
    } else if (stepping && since > MAX(10 * n->seconds, 30.0)) {
        struct watch_alert *a = add_alert(w, HEALTH_WARNING, "stall", -1);
        (void)snprintf(a->text, sizeof(a->text), "no step for %s; they took %.1f s each",
                       format_duration(text, since), n->seconds);
    }
}

static void find_alerts(struct watch *w)
{
    w->n_alerts = 0;
    w->health = HEALTH_UNDERUTILISED;
    alert_run(w);
    for (int i = 0; i < MEMORY_VIEWS && w->is_running; i++) {
        if (!w->memory[i].is_there)
            continue;
        w->health = MAX(w->health, w->memory[i].health.health);
        alert_room(w, i);
        alert_growth(w, i);
        alert_own(w, i);
    }
    if (w->is_running)
        alert_pressure(w);
}

enum status watch_look(struct watch *w)
{
    enum { AT_ONCE = 1 << 30 };
    bool more = true;
    TRY(watch_glance(w));
    TRY(curve_read(&w->curve, w->folder, AT_ONCE, &more));
    if (w->is_running)
        poll_now(&w->poller, &w->live, &w->poll);
    for (int i = 0; i < MEMORY_VIEWS; i++)
        look_at_memory(w, i);
    find_alerts(w);
    return OK;
}

/* ---- words ----------------------------------------------------------------------------------- */

const char *watch_state(const struct watch *w)
{
    if (w->live.now.state != LIVE_ENDED && !w->is_running)
        return "gone";
    return live_state_name((enum live_state)w->live.now.state);
}

const char *watch_part(const struct watch *w)
{
    uint64_t handle = w->position >> 32;
    uint32_t at = (uint32_t)w->position;
    if (!w->is_running || handle >= (uint64_t)w->table.n_programs ||
        at >= (uint32_t)w->table.programs[handle].n_instrs)
        return "between steps";
    return plan_part_name(w->table.programs[handle].parts[at]);
}

int64_t watch_peak(const struct watch *w, enum tier t)
{
    int64_t peak = w->table.storage.total[t];
    for (int i = 0; i < w->table.n_programs; i++) {
        const struct plan_program *p = &w->table.programs[i];
        for (int32_t k = 0; k < p->n_instrs; k++)
            peak = MAX(peak, p->at[k].total[t]);
    }
    return peak;
}

/* ---- requests -------------------------------------------------------------------------------- */

static bool request_path(const struct watch *w, const char *name, char path[4096])
{
    return (size_t)snprintf(path, 4096, "%s/%s", w->folder, name) < 4096;
}

enum status watch_request(const struct watch *w, const char *name, bool on)
{
    char path[4096];
    if (!request_path(w, name, path))
        return FAIL(ERR_IO, "%s: the path is too long", w->folder);
    if (!on)
        return unlink(path) == 0 || errno == ENOENT
                   ? OK
                   : FAIL(ERR_IO, "%s: cannot remove: %s", path, strerror(errno));
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return FAIL(ERR_IO, "%s: cannot create: %s", path, strerror(errno));
    (void)close(fd);
    return OK;
}

bool watch_requested(const struct watch *w, const char *name)
{
    char path[4096];
    struct stat st;
    return request_path(w, name, path) && lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}
