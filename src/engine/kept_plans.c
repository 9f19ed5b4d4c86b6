/* kept_plans.c: a file per plan, under the hash of what it was made from.
 *
 *     snug-plan HASH-OF-THE-REST
 *     {"seconds": 2.65, "n_bytes": [...], "room": [...], "decisions": {...}, "findings": [...],
 * ...}
 *
 * The folder keeps so many; those that were needed longest ago go.
 */
#include "engine/kept_plans.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/build_id.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/log.h"
#include "search/decisions_json.h"

enum {
    MOST_KEPT = 256,        /* files, of some 10 KiB; then a quarter of them goes */
    MOST_BYTES = 4 << 20,   /* of one; what is larger is none of ours */
    MORE_ROOM = 64,         /* such a part more is worth a search */
    HASH_DIGITS = 16,       /* hexadecimal ones of 64 bits */
    MOST_COUNTED = 1 << 30, /* candidates of a search */
};

/* Kernels that were timed again say something else by less than this; it changes no choice that
 * matters. */
static const double SAME_TIME = 0.01;

static const char first_word[] = "snug-plan ", suffix[] = ".json";

/* ---- the name -------------------------------------------------------------------------------- */

static void add_rates(const struct device_rates *r, struct str *out)
{
    str_addf(out, "rates %a %a %a %a %a\n", r->matmul_flops, r->half_matmul_flops, r->memory_bytes,
             r->launch_s, r->wait_s);
    for (int from = 0; from < TIER_COUNT; from++) {
        for (int to = 0; to < TIER_COUNT; to++) {
            const struct link_rate *l = &r->links[from][to];
            str_addf(out, "link %a %a %a\n", l->alone, l->both, l->latency_s);
        }
    }
}

static void add_device(const struct device *d, struct str *out)
{
    str_addf(out, "device %s; %s; %s; threads %d\n", d->ops->name, d->identity, d->description,
             d->env.n_threads);
    str_addf(out, "cache %lld staging %lld beside %lld disk %d bf16 %d\n",
             (long long)d->cache_bytes, (long long)d->staging_bytes, (long long)d->beside_bytes,
             d->disk != NULL, !d->lacks_bf16);
    str_addf(out, "tuning %d %d %d\n", d->tuning.unrecorded, d->tuning.search, d->tuning.tf32);
    add_rates(&d->rates, out);
}

static enum status add_settings(const struct settings *s, struct str *out)
{
    const struct block_set *blocks = &s->decisions.recompute;
    for (int t = 0; t < TIER_COUNT; t++)
        str_addf(out, "limit %lld\n", (long long)s->limits.n_bytes[t]);
    for (int i = 0; i < EXTENT_COUNT; i++)
        str_addf(out, "fixed %d\n", s->bounds.fixed[i]);
    str_addf(out, "group %d rank %d\n", s->bounds.fixed_group, s->bounds.rank);
    str_addf(out, "blocks %d %d %u", blocks->all, blocks->is_open, blocks->modules);
    for (size_t i = 0; i < blocks->n_ranges; i++)
        str_addf(out, " %lld-%lld", (long long)blocks->ranges[i].first,
                 (long long)blocks->ranges[i].last);
    str_add(out, "\ndecisions ");
    return json_text_take(decisions_to_json(&s->decisions), JSON_COMPACT, out);
}

static enum status add_workload(const struct workload *w, struct str *out)
{
    str_addf(out, "\nbeside %lld %lld %lld %lld %lld\n", (long long)w->result_bytes,
             (long long)w->data_bytes, (long long)w->load_bytes, (long long)w->save_bytes,
             (long long)w->ahead_bytes);
    for (int i = 0; i < w->n_reserves; i++) {
        const struct reserve *r = &w->reserves[i];
        str_addf(out, "reserve %s %lld %lld %d\n", r->name, (long long)r->n_bytes,
                 (long long)r->n_copies, r->is_kept);
    }
    for (int i = 0; i < w->n_stages; i++) {
        const struct stage *s = &w->stages[i];
        str_addf(out, "stage %d %lld\n", (int)s->purpose, (long long)s->n_micro);
        TRY(graph_print(s->graph, out));
    }
    return str_status(out);
}

static enum status add_all(const struct engine *e, struct str *out)
{
    char id[BUILD_ID_TEXT];
    str_addf(out, "build %s timed %d\n", build_id(id), e->times != NULL);
    add_device(e->device, out);
    TRY(add_settings(&e->settings, out));
    return add_workload(&e->work, out);
}

enum status kept_plan_name(struct kept_plan *k, const struct engine *e)
{
    struct str all = {0};
    *k = (struct kept_plan){0};
    if (!e->cache_folder || !workload_stage(&e->work, STAGE_TRAIN))
        return OK;
    enum status status = add_all(e, &all);
    if (status == OK) {
        str_addf(&k->path, "%s/plans/%0*" PRIx64 "%s", e->cache_folder, (int)HASH_DIGITS,
                 hash_text(str_text(&all)), suffix);
        status = str_status(&k->path);
    }
    str_release(&all);
    return status;
}

void kept_plan_release(struct kept_plan *k)
{
    str_release(&k->path);
}

/* ---- reading --------------------------------------------------------------------------------- */

static enum status refuse(const char *what)
{
    return FAIL(ERR_DATA, "%s is not what it should be", what);
}

/* Whole, as it was written. */
static enum status read_json(const char *path, json_t **out)
{
    const size_t n_head = strlen(first_word) + HASH_DIGITS + 1;
    char *text, hash[HASH_DIGITS + 1];
    size_t n;
    TRY(file_read_stream(path, MOST_BYTES, &text, &n));
    if (!text)
        return refuse("a file without a byte");
    const char *rest = text + MIN(n_head, n);
    (void)snprintf(hash, sizeof(hash), "%0*" PRIx64, (int)HASH_DIGITS,
                   hash_bytes(rest, n - MIN(n_head, n)));
    bool whole = n > n_head && strncmp(text, first_word, strlen(first_word)) == 0 &&
                 strncmp(text + strlen(first_word), hash, HASH_DIGITS) == 0;
    enum status status =
        whole ? json_read_text(out, rest, n - n_head, path, ERR_DATA) : refuse("its first line");
    mem_free(text);
    return status;
}

static enum status read_tiers(const json_t *json, int64_t out[TIER_COUNT])
{
    bool ok = json_array_size(json) == TIER_COUNT;
    for (size_t t = 0; t < TIER_COUNT && ok; t++) {
        ok = json_is_integer(json_array_get(json, t));
        out[t] = (int64_t)json_integer_value(json_array_get(json, t));
    }
    return ok ? OK : refuse("bytes of the tiers");
}

static enum status read_seconds(const json_t *json, double *out)
{
    *out = json_number_value(json);
    return json_is_number(json) && *out > 0 && isfinite(*out) ? OK : refuse("a time");
}

static enum status read_count(const json_t *json, int most, int *out)
{
    json_int_t n = json_is_integer(json) ? json_integer_value(json) : -1;
    if (n < 0 || n > most)
        return refuse("a number");
    *out = (int)n;
    return OK;
}

static enum status read_finding(const json_t *json, int n_places, struct pool *pool,
                                const struct decisions *configured, struct finding *f)
{
    const char *text = json_text(json_object_get(json, "text"));
    *f = (struct finding){.decisions = *configured};
    TRY(read_seconds(json_object_get(json, "seconds"), &f->seconds));
    TRY(read_tiers(json_object_get(json, "n_bytes"), f->n_bytes));
    if (!text)
        return refuse("what a plan does");
    f->text = pool_strdup(pool, text);
    TRY(pool_status(pool));
    return decisions_from_json(json_object_get(json, "decisions"), n_places, pool, &f->decisions);
}

static enum status read_report(const json_t *json, int n_places, struct pool *pool,
                               const struct decisions *configured, struct search_report *r)
{
    const json_t *findings = json_object_get(json, "findings");
    const size_t n = json_array_size(findings);
    *r = (struct search_report){0};
    if (n == 0 || n > MAX_FINDINGS)
        return refuse("the list of plans");
    r->n_findings = (int)n;
    TRY(read_count(json_object_get(json, "chosen"), r->n_findings - 1, &r->chosen));
    TRY(read_count(json_object_get(json, "n_ranked"), MOST_COUNTED, &r->n_ranked));
    TRY(read_count(json_object_get(json, "n_emitted"), MOST_COUNTED, &r->n_emitted));
    for (int i = 0; i < r->n_findings; i++)
        TRY(read_finding(json_array_get(findings, (size_t)i), n_places, pool, configured,
                         &r->findings[i]));
    return OK;
}

/* What a plan came to when it was kept. */
struct outcome {
    double seconds;
    int64_t n_bytes[TIER_COUNT], room[TIER_COUNT];
};

static void outcome_of(const struct engine *e, struct outcome *x)
{
    x->seconds = e->forecast.step_s;
    memcpy(x->n_bytes, e->work.n_bytes, sizeof(x->n_bytes));
    forecast_room(&e->forecast, x->room);
}

/* Of the engine's graph, where nothing is planned yet. */
static int count_places(const struct engine *e)
{
    const struct graph *g = workload_stage(&e->work, STAGE_TRAIN)->graph;
    int n_blocks = 0;
    for (size_t k = 0; k < g->nodes.n; k++)
        n_blocks = MAX(n_blocks, graph_node(g, (node_id)k)->block + 1);
    return n_blocks + 2;
}

static enum status read_plan(const struct kept_plan *k, struct engine *e, struct outcome *then)
{
    const struct decisions configured = e->settings.decisions;
    const int n_places = count_places(e);
    json_t *json = NULL;
    enum status status;
    TRY(read_json(str_text(&k->path), &json));
    TRY_GOTO(read_seconds(json_object_get(json, "seconds"), &then->seconds), out);
    TRY_GOTO(read_tiers(json_object_get(json, "n_bytes"), then->n_bytes), out);
    TRY_GOTO(read_tiers(json_object_get(json, "room"), then->room), out);
    TRY_GOTO(decisions_from_json(json_object_get(json, "decisions"), n_places, &e->work.pool,
                                 &e->settings.decisions),
             out);
    status = read_report(json, n_places, &e->work.pool, &configured, &e->report);
out:
    json_decref(json);
    return status;
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* The programs come to what they came to, and there is about the memory that there was: with more
 * of it another plan may be faster, and with less this one is the fastest still, if it fits. */
static bool is_as_then(const struct outcome *now, const struct outcome *then)
{
    bool is = fabs(now->seconds - then->seconds) <= SAME_TIME * then->seconds;
    for (int t = 0; t < TIER_COUNT; t++)
        is &= now->n_bytes[t] == then->n_bytes[t] &&
              now->room[t] - then->room[t] <= then->room[t] / MORE_ROOM;
    return is;
}

static enum status emit(struct engine *e)
{
    TRY(workload_decide(&e->work, &e->settings.decisions));
    TRY(forecast_place(&e->work, &e->settings.limits));
    forecast_memory(&e->forecast, &e->work, &e->settings.limits);
    return forecast_seconds(&e->work, e->times, &e->forecast.step_s);
}

static enum status take(const struct kept_plan *k, struct engine *e, bool *found)
{
    struct outcome then, now;
    TRY(read_plan(k, e, &then));
    TRY(emit(e));
    outcome_of(e, &now);
    if (!e->forecast.fits || !is_as_then(&now, &then))
        return FAIL(ERR_DATA, "it comes to something else by now");
    TRY(workload_check(&e->work));
    *found = true;
    (void)utimensat(AT_FDCWD, str_text(&k->path), NULL, 0); /* it was needed now */
    return OK;
}

enum status kept_plan_take(const struct kept_plan *k, struct engine *e, bool *found)
{
    const struct decisions configured = e->settings.decisions;
    *found = false;
    if (!k->path.n || !file_is_regular(str_text(&k->path)))
        return OK;
    enum status status = take(k, e, found);
    if (status == OK)
        return OK;
    log_debug("the plan that is kept is not taken: %s", status_message());
    e->settings.decisions = configured;
    e->report = (struct search_report){0};
    return status == ERR_MEMORY ? status : OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *tiers_to_json(const int64_t n[TIER_COUNT])
{
    return json_pack("[I, I, I]", (json_int_t)n[TIER_DEVICE], (json_int_t)n[TIER_HOST],
                     (json_int_t)n[TIER_DISK]);
}

static json_t *findings_to_json(const struct search_report *r)
{
    json_t *out = json_array();
    for (int i = 0; i < r->n_findings && out; i++) {
        const struct finding *f = &r->findings[i];
        json_t *one = json_pack("{s:f, s:o, s:s, s:o}", "seconds", f->seconds, "n_bytes",
                                tiers_to_json(f->n_bytes), "text", f->text, "decisions",
                                decisions_to_json(&f->decisions));
        if (json_array_append_new(out, one) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

static json_t *plan_to_json(const struct engine *e)
{
    const struct search_report *r = &e->report;
    struct outcome x;
    outcome_of(e, &x);
    return json_pack("{s:f, s:o, s:o, s:o, s:i, s:i, s:i, s:o}", "seconds", x.seconds, "n_bytes",
                     tiers_to_json(x.n_bytes), "room", tiers_to_json(x.room), "decisions",
                     decisions_to_json(&e->settings.decisions), "chosen", r->chosen, "n_ranked",
                     r->n_ranked, "n_emitted", r->n_emitted, "findings", findings_to_json(r));
}

struct kept_file {
    char name[HASH_DIGITS + sizeof(suffix)]; /* its end too */
    struct timespec needed;
};

static int by_age(const void *a, const void *b)
{
    const struct timespec *x = &((const struct kept_file *)a)->needed,
                          *y = &((const struct kept_file *)b)->needed;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* Files of plans and nothing else, the one needed longest ago first. */
static size_t list_files(int folder, DIR *d, struct kept_file *files, size_t most)
{
    size_t n = 0;
    for (struct dirent *entry = readdir(d); entry && n < most; entry = readdir(d)) {
        struct stat s;
        if (strlen(entry->d_name) != HASH_DIGITS + strlen(suffix) ||
            !str_ends_with(entry->d_name, suffix) ||
            fstatat(folder, entry->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        memcpy(files[n].name, entry->d_name, sizeof(files[n].name));
        files[n++].needed = s.st_mtim;
    }
    qsort(files, n, sizeof(*files), by_age);
    return n;
}

static void forget_oldest(const char *folder)
{
    struct kept_file files[MOST_KEPT + 1];
    DIR *d = opendir(folder);
    if (!d)
        return;
    size_t n = list_files(dirfd(d), d, files, ARRAY_LEN(files));
    for (size_t i = 0; n > MOST_KEPT && i < MOST_KEPT / 4; i++)
        (void)unlinkat(dirfd(d), files[i].name, 0);
    (void)closedir(d);
}

static enum status store(const char *path, const struct engine *e)
{
    struct str folder = {0}, body = {0}, all = {0};
    enum status status;
    str_add_n(&folder, path, (size_t)(strrchr(path, '/') - path));
    TRY_GOTO(str_status(&folder), out);
    TRY_GOTO(json_text_take(plan_to_json(e), JSON_COMPACT | JSON_REAL_PRECISION(17), &body), out);
    str_addf(&all, "%s%0*" PRIx64 "\n%s", first_word, (int)HASH_DIGITS,
             hash_bytes(body.text, body.n), body.text);
    TRY_GOTO(str_status(&all), out);
    TRY_GOTO(file_make_folders(folder.text), out);
    forget_oldest(folder.text);
    status = file_write_atomic(path, all.text, all.n);
out:
    str_release(&folder);
    str_release(&body);
    str_release(&all);
    return status;
}

void kept_plan_store(const struct kept_plan *k, const struct engine *e)
{
    if (!k->path.n || !e->forecast.fits || e->report.n_findings == 0)
        return; /* there was nothing to search for */
    if (store(str_text(&k->path), e) != OK)
        log_debug("the plan is not kept: %s", status_message());
}
