#include "support/plan_record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/prospects.h"

/* ---- the lines ------------------------------------------------------------------------------- */

static void add_bytes(struct str *out, const char *name, int64_t total, int64_t lost,
                      const int64_t by_class[MEMORY_CLASS_COUNT])
{
    str_addf(out, "%-10s %lld", name, (long long)total);
    for (int c = 0; c < MEMORY_CLASS_COUNT; c++) {
        if (by_class[c] != 0)
            str_addf(out, ", %s %lld", memory_class_name((enum memory_class)c),
                     (long long)by_class[c]);
    }
    if (lost != 0)
        str_addf(out, ", gaps %lld", (long long)lost);
    str_add(out, "\n");
}

/* A letter for each place, from the embedding's to the head's: where its part of a class lives. */
static void add_homes(struct str *out, const struct decisions *d, int n_blocks)
{
    static const char *const names[HOME_CLASS_COUNT] = {"weights", "states", "gradients"};
    str_add(out, "homes     ");
    for (int c = 0; c < HOME_CLASS_COUNT; c++) {
        enum extent e = home_extent((enum home_class)c);
        str_addf(out, " %s ", names[c]);
        for (int p = 0; p < d->n_places; p++) {
            enum tier t = d->places[p].away[c] ? decisions_tier(d, e, p, n_blocks) : TIER_DEVICE;
            str_addf(out, "%c", t == TIER_DEVICE ? '.' : t == TIER_HOST ? 'h' : 'd');
        }
    }
    str_add(out, "\n");
}

static void add_extents(struct str *out, const struct decisions *d, int n_blocks)
{
    str_add(out, "extents   ");
    for (int e = 0; e < EXTENT_COUNT; e++) {
        str_addf(out, " %s %d", extent_name((enum extent)e), MIN(d->n[e], n_blocks + 1));
        if (d->disk[e] > 0)
            str_addf(out, " (disk %d)", MIN(d->disk[e], n_blocks + 1));
    }
    str_add(out, "\n");
}

static void add_decisions(struct str *out, const struct engine *e)
{
    const struct decisions *d = &e->settings.decisions;
    int n_blocks = e->work.stages[0].plan.n_blocks;
    size_t before = out->n;
    str_add(out, "plan       ");
    decisions_add_text(d, n_blocks, out);
    str_add(out, out->n == before + strlen("plan       ") ? "all on the device\n" : "\n");
    str_addf(out, "sizes      group %d, ring %lld, slices %lld, formed from %lld, small %lld%s%s\n",
             e->work.stages[0].group, (long long)d->ring_bytes, (long long)d->slice_bytes,
             (long long)d->form_bytes, (long long)d->small_bytes,
             d->recompute_cheap ? ", cheap recomputed" : "", d->defer_updates ? ", deferred" : "");
    add_extents(out, d, n_blocks);
    if (d->places)
        add_homes(out, d, n_blocks);
}

static void add_programs(struct str *out, const struct engine *e)
{
    str_add(out, "programs  ");
    for (int i = 0; i < e->work.n_stages; i++) {
        const struct program *p = e->work.stages[i].program;
        str_addf(out, "%s %zu instructions by %s, %lld above the bound", i ? ";" : "", p->instrs.n,
                 p->layout_method[TIER_DEVICE],
                 (long long)(p->n_bytes[TIER_DEVICE] - p->lower_bound[TIER_DEVICE]));
    }
    str_add(out, "\n");
}

static void add_search(struct str *out, const struct search_report *r)
{
    if (r->n_emitted == 0)
        return;
    str_addf(out, "search     %d estimates, %d programs\n", r->n_ranked, r->n_emitted);
    for (int i = 0; i < r->n_findings; i++) {
        str_addf(out, "found %d    ~%.9g s, device %lld, host %lld: ", i + 1,
                 r->findings[i].seconds, (long long)r->findings[i].n_bytes[TIER_DEVICE],
                 (long long)r->findings[i].n_bytes[TIER_HOST]);
        if (i == r->chosen)
            str_add(out, "taken");
        else
            finding_add_difference(&r->findings[i], &r->findings[r->chosen], out);
        str_add(out, "\n");
    }
}

/* Lines of a text, each after a word. */
static void add_text(struct str *out, const char *word, const char *text)
{
    for (const char *end; *text; text = end) {
        end = strchrnul(text, '\n');
        str_addf(out, "%-10s %.*s\n", word, (int)(end - text), text);
        end += *end == '\n';
    }
}

static void add_memory(struct str *out, const struct forecast *f)
{
    static const int64_t nothing[MEMORY_CLASS_COUNT] = {0};
    add_bytes(out, "device", f->arena_bytes, f->fragmentation, f->breakdown);
    add_bytes(out, "host", f->host_bytes, 0, f->host_breakdown);
    if (f->disk_bytes > 0)
        add_bytes(out, "disk", f->disk_bytes, 0, f->disk_breakdown);
    if (f->disk_read > 0 || f->disk_written > 0)
        add_bytes(out, "disk read", f->disk_read, f->disk_written, nothing);
    str_addf(out, "needs      device %lld, host %lld, disk %lld\n",
             (long long)f->budget.needs[TIER_DEVICE], (long long)f->budget.needs[TIER_HOST],
             (long long)f->budget.needs[TIER_DISK]);
}

static enum status add_plan(struct str *out, const struct session *s, bool prospects)
{
    const struct engine *e = &s->engine;
    const struct forecast *f = &e->forecast;
    if (f->fits)
        str_addf(out, "step       ~%.9g s\n", f->step_s);
    else if (engine_require_fit(e) != ERR_FIT)
        return FAIL(ERR_INTERNAL, "it does not fit and is not refused");
    else
        add_text(out, "refused", status_message());
    if (s->n_batches_planned > 0)
        str_addf(out, "batch      %lld of %d that were planned\n",
                 (long long)s->config->per_device_train_batch_size, s->n_batches_planned);
    add_decisions(out, e);
    add_memory(out, f);
    add_programs(out, e);
    add_search(out, &e->report);
    if (!prospects)
        return OK;
    struct prospects p;
    struct str text = {0};
    TRY(engine_prospects(e, &p));
    prospects_add_text(&p, f, &text);
    add_text(out, "what if", str_text(&text));
    str_release(&text);
    return OK;
}

/* ---- planning -------------------------------------------------------------------------------- */

enum { MOST_SETTINGS = 32 };

/* Settings are words, in a text that they are cut from. */
static size_t cut_settings(char *text, const char *settings[MOST_SETTINGS])
{
    size_t n = 0;
    char *rest = text;
    for (char *word; n < MOST_SETTINGS && (word = strtok_r(rest, " ", &rest));)
        settings[n++] = word;
    return n;
}

static enum status load_config(const struct plan_case *c, const char *folder, struct config **out)
{
    struct str text = {0};
    const char *settings[MOST_SETTINGS], *at = strchrnul(c->settings, '@');
    str_addf(&text, "num_threads=1 %.*s%s%s", (int)(at - c->settings), c->settings,
             *at ? folder : "", *at ? at + 1 : "");
    char *words = str_take(&text);
    enum status status = config_load(out, c->config, settings, cut_settings(words, settings));
    mem_free(words);
    TRY(status);
    status = config_resolve(*out, 1);
    if (status != OK)
        config_free(*out);
    return status;
}

enum status plan_record(const struct plan_case *c, const char *folder, struct str *out)
{
    struct config *cfg;
    struct session s;
    str_addf(out, "case       %s\n", c->name);
    str_addf(out, "of         %s %s for %s\n", c->config, c->settings, c->gpu);
    TRY(load_config(c, folder, &cfg));
    const struct session_options o = {.train = c->kind != PLAN_EVALUATION,
                                      .evaluate = c->kind == PLAN_EVALUATION ||
                                                  cfg->eval_strategy != CONFIG_INTERVAL_NO,
                                      .gpu = c->gpu};
    enum status status = session_open(&s, cfg, &o);
    if (status == OK) {
        status = add_plan(out, &s, c->kind == PLAN_WHAT_IF);
        session_close(&s);
    }
    config_free(cfg);
    return status != OK ? status : str_status(out);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool words_agree(const char *a, size_t n_a, const char *b, size_t n_b)
{
    if (*a != '~' || *b != '~')
        return n_a == n_b && memcmp(a, b, n_a) == 0;
    double x = strtod(a + 1, NULL), y = strtod(b + 1, NULL);
    return fabs(x - y) <= 1e-6 * fabs(x);
}

bool plan_lines_agree(const char *a, const char *b)
{
    while (*a && *b && *a != '\n' && *b != '\n') {
        size_t n_a = strcspn(a, " \n"), n_b = strcspn(b, " \n");
        if (!words_agree(a, n_a, b, n_b))
            return false;
        a += n_a + strspn(a + n_a, " ");
        b += n_b + strspn(b + n_b, " ");
    }
    return (*a == 0 || *a == '\n') && (*b == 0 || *b == '\n');
}
