/* kernel_times.c: the table of what calls take, and which calls of a program are still to be timed.
 *
 * A time is kept as "SECONDS WRITTEN", or as "SECONDS WRITTEN disturbed" when other processes used
 * the device while it was measured: then it is used, and the next process measures again. WRITTEN,
 * in seconds since 1970, is when it was measured or, weeks after that, needed: a machine has times
 * for every build there ever was, and those that were written longest ago go (MOST_TIMES).
 */
#include "program/kernel_times.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/build_id.h"
#include "base/hash.h"
#include "base/kvfile.h"
#include "base/log.h"
#include "base/machine.h"
#include "program/benchmark.h"

static const char disturbed_mark[] = " disturbed";

enum { MOST_TIMES = 8192, WEEK_S = 7 * 24 * 3600 }; /* a MiB or so */

struct kernel_times {
    struct device *device;
    struct kvfile *file;
    bool kept;           /* the file has a path */
    char prefix[24];     /* of every key: what the times depend on beside the call */
    VEC(uint64_t) tried; /* hashes of calls that this process has measured, or could not */
    double spent_s;
    int n_measured;
};

/* ---- the table ------------------------------------------------------------------------------ */

/* What a value says. */
struct kept_time {
    struct call_time time;
    int64_t written; /* 0: it does not say */
};

/* Anybody may have written the file: what is no time is not there, and less than 0. */
static struct kept_time parse_time(const char *text)
{
    const struct kept_time none = {.time.seconds = -1};
    struct kept_time found = none;
    char number[40], *end;
    size_t n = text ? strcspn(text, " ") : 0;
    if (n == 0 || n >= sizeof(number))
        return none;
    memcpy(number, text, n);
    number[n] = '\0';
    text += n;
    if (text[0] == ' ' && text[1] >= '0' && text[1] <= '9') {
        found.written = strtoll(text + 1, &end, 10);
        text = end;
    }
    found.time.disturbed = strcmp(text, disturbed_mark) == 0;
    bool good = parse_double(number, &found.time.seconds) && found.time.seconds > 0 &&
                found.time.seconds < 1e4 && (text[0] == '\0' || found.time.disturbed);
    return good ? found : none;
}

/* A clock that once went wrong keeps nothing for ever. */
static int64_t written_at(const char *value)
{
    int64_t written = parse_time(value).written;
    return written <= (int64_t)time(NULL) ? written : 0;
}

enum status kernel_times_open(struct kernel_times **out, struct device *device,
                              const char *cache_folder)
{
    struct kernel_times *t = NULL;
    struct str path = {0}, identity = {0};
    char id[BUILD_ID_TEXT];
    enum status status;
    *out = NULL;
    TRY_GOTO(mem_try_array(&t, 1, sizeof(*t)), out);
    t->device = device;
    t->kept = cache_folder != NULL;
    if (cache_folder)
        str_addf(&path, "%s/kernel-times", cache_folder);
    /* Times that were measured with other tuning are not this device's. */
    str_addf(&identity, "%s; build %s%s%s", device->identity, build_id(id),
             device->tuning.search ? "; searched" : "", device->tuning.tf32 ? "; tf32" : "");
    TRY_GOTO(str_status(&path), out);
    TRY_GOTO(str_status(&identity), out);
    (void)snprintf(t->prefix, sizeof(t->prefix), "%016" PRIx64 " ", hash_text(str_text(&identity)));
    TRY_GOTO(kvfile_open(&t->file, str_text(&path)), out);
    kvfile_bound(t->file, MOST_TIMES, written_at);
    *out = t;
out:
    if (status != OK)
        kernel_times_free(t);
    str_release(&path);
    str_release(&identity);
    return status;
}

void kernel_times_free(struct kernel_times *t)
{
    if (!t)
        return;
    kvfile_free(t->file);
    vec_release(&t->tried);
    mem_free(t);
}

int kernel_times_n_measured(const struct kernel_times *t)
{
    return t->n_measured;
}

/* A call whose text is too long for a key goes by its beginning and a hash of all of it. */
static void make_key(const struct kernel_times *t, const char *signature, struct str *key)
{
    enum { TAIL = 20 };
    size_t most = KVFILE_KEY_MOST - sizeof(t->prefix) - TAIL, n = strlen(signature);
    str_clear(key);
    str_add(key, t->prefix);
    str_add_n(key, signature, MIN(n, most));
    if (n > most)
        str_addf(key, "...%016" PRIx64, hash_text(signature));
}

static struct kept_time look_up(const struct kernel_times *t, const char *signature)
{
    struct kept_time found = {.time.seconds = -1};
    struct str key = {0};
    make_key(t, signature, &key);
    if (str_status(&key) == OK)
        found = parse_time(kvfile_get(t->file, str_text(&key)));
    str_release(&key);
    return found;
}

double kernel_times_find(const struct kernel_times *t, const struct program *p, int32_t instr)
{
    struct str signature = {0};
    instr_signature(p, t->device, instr, &signature);
    double seconds =
        str_status(&signature) == OK ? look_up(t, str_text(&signature)).time.seconds : -1;
    str_release(&signature);
    return seconds;
}

/* Picoseconds as a whole number and an exponent: the same in every locale. Of two disturbed times
 * the shorter one is nearer the truth. */
static enum status keep(struct kernel_times *t, const char *signature, struct call_time found)
{
    struct call_time before = look_up(t, signature).time;
    struct str key = {0};
    char text[80];
    if (found.disturbed && before.seconds > 0)
        found.seconds = MIN(found.seconds, before.seconds);
    make_key(t, signature, &key);
    (void)snprintf(text, sizeof(text), "%llde-12 %lld%s", llround(found.seconds * 1e12),
                   (long long)time(NULL), found.disturbed ? disturbed_mark : "");
    enum status status = str_status(&key);
    if (status == OK)
        status = kvfile_put(t->file, str_text(&key), text);
    str_release(&key);
    return status;
}

/* ---- what is still to be measured ------------------------------------------------------------ */

struct pending {
    int32_t instr;
    const char *signature;
};
struct pending_list {
    VEC(struct pending) items;
    struct pool pool;
    int64_t largest; /* bytes of a call */
};

static bool was_tried(const struct kernel_times *t, uint64_t hash)
{
    for (size_t i = 0; i < t->tried.n; i++) {
        if (t->tried.items[i] == hash)
            return true;
    }
    return false;
}

/* Calls beyond the device's limits go by its rates: large ones come near those. */
static enum status is_too_large(const struct kernel_times *t, const struct program *p,
                                int32_t instr, int64_t *n_bytes, bool *too_large)
{
    const struct timing_limits *l = &t->device->limits;
    struct program_cost cost;
    program_cost(p, instr, 1, t->device, &cost);
    TRY(benchmark_bytes(p, instr, n_bytes));
    *too_large =
        (l->call_s > 0 && cost.time_s > l->call_s) || (l->n_bytes > 0 && *n_bytes > l->n_bytes);
    return OK;
}

static enum status add_pending(struct kernel_times *t, const struct program *p, int32_t instr,
                               const char *signature, struct pending_list *list)
{
    struct kept_time known = look_up(t, signature);
    uint64_t hash = hash_text(signature);
    int64_t n_bytes;
    bool too_large;
    if (known.time.seconds > 0 && !known.time.disturbed)
        return time(NULL) - known.written > WEEK_S ? keep(t, signature, known.time) : OK;
    if (was_tried(t, hash))
        return OK;
    TRY(vec_push(&t->tried, hash));
    TRY(is_too_large(t, p, instr, &n_bytes, &too_large));
    if (too_large)
        return OK;
    struct pending x = {instr, pool_strdup(&list->pool, signature)};
    TRY(pool_status(&list->pool));
    list->largest = MAX(list->largest, n_bytes);
    return vec_push(&list->items, x);
}

static enum status find_pending(struct kernel_times *t, const struct program *p,
                                struct pending_list *list)
{
    struct str signature = {0};
    enum status status = OK;
    for (int32_t k = 0; (size_t)k < p->instrs.n && status == OK; k++) {
        if (p->instrs.items[k].kind != INSTR_COMPUTE)
            continue;
        str_clear(&signature);
        instr_signature(p, t->device, k, &signature);
        status = str_status(&signature);
        if (status == OK)
            status = add_pending(t, p, k, str_text(&signature), list);
    }
    str_release(&signature);
    return status;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static enum status measure_call(struct kernel_times *t, const struct program *p,
                                const struct pending *x, const struct scratch *scratch)
{
    struct call_time found;
    double start = now_s();
    enum status status = benchmark_call(scratch, p, x->instr, &found);
    t->spent_s += now_s() - start;
    if (status != OK) {
        log_debug("not timed: %s: %s", x->signature, status_message());
        return OK;
    }
    t->n_measured++;
    return keep(t, x->signature, found);
}

static enum status measure_pending(struct kernel_times *t, const struct program *p,
                                   const struct pending_list *list, int64_t most)
{
    const struct timing_limits *l = &t->device->limits;
    struct scratch scratch;
    enum status status = OK;
    scratch_take(&scratch, t->device, list->largest, l->n_bytes > 0 ? MIN(most, l->n_bytes) : most);
    for (size_t i = 0; scratch.data && i < list->items.n && status == OK; i++) {
        if (l->total_s > 0 && t->spent_s > l->total_s) {
            log_debug("%zu kernels are left for the next plan to time", list->items.n - i);
            break;
        }
        status = measure_call(t, p, &list->items.items[i], &scratch);
    }
    scratch_give_back(&scratch);
    return status;
}

enum status kernel_times_measure(struct kernel_times *t, const struct program *p,
                                 int64_t most_bytes)
{
    struct pending_list list = {0};
    enum status status = OK;
    if (!t->device->ops->time_calls || !t->device->ops->fill)
        return OK;
    pool_init(&list.pool);
    TRY_GOTO(find_pending(t, p, &list), out);
    if (list.items.n > 0) {
        log_info("timing %zu kernels%s", list.items.n,
                 t->kept ? "; the next plan of these shapes knows them" : "");
        TRY_GOTO(measure_pending(t, p, &list, most_bytes), out);
    }
    /* A cache that cannot be written costs time, not the run. */
    if (t->kept && kvfile_save(t->file) != OK)
        log_warn("times of kernels are not kept: %s", status_message());
out:
    vec_release(&list.items);
    pool_release(&list.pool);
    return status;
}
