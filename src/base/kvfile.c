#include "base/kvfile.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "base/vec.h"

static const char first_line[] = "snug-cache 1\n";

struct entry {
    char *key, *value;
};

struct kvfile {
    char *path;
    VEC(struct entry) entries; /* by key */
    bool changed;
    bool is_kept; /* false: what has its name is no file, and stays as it is */
    size_t most;  /* of kvfile_bound; 0: no bound but the file's */
    int64_t (*when)(const char *value);
};

/* ---- entries -------------------------------------------------------------------------------- */

/* The index of the key, or of the first one after it. */
static size_t position(const struct kvfile *f, const char *key, bool *there)
{
    size_t low = 0, high = f->entries.n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(f->entries.items[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *there = low < f->entries.n && strcmp(f->entries.items[low].key, key) == 0;
    return low;
}

static bool is_text(const char *s, size_t n, size_t most)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] < ' ' || s[i] > '~')
            return false;
    }
    return n > 0 && n <= most;
}

static enum status insert(struct kvfile *f, size_t at, const char *key, const char *value)
{
    struct entry e = {mem_strdup(key), mem_strdup(value)};
    enum status status = e.key && e.value ? vec_reserve(&f->entries, 1)
                                          : FAIL(ERR_MEMORY, "out of memory for a cache entry");
    if (status != OK) {
        mem_free(e.key);
        mem_free(e.value);
        return status;
    }
    memmove(&f->entries.items[at + 1], &f->entries.items[at], (f->entries.n - at) * sizeof(e));
    f->entries.items[at] = e;
    f->entries.n++;
    return OK;
}

static enum status replace(struct entry *e, const char *value)
{
    char *copy = mem_strdup(value);
    if (!copy)
        return FAIL(ERR_MEMORY, "out of memory for a cache entry");
    mem_free(e->value);
    e->value = copy;
    return OK;
}

const char *kvfile_get(const struct kvfile *f, const char *key)
{
    bool there;
    size_t at = position(f, key, &there);
    return there ? f->entries.items[at].value : NULL;
}

enum status kvfile_put(struct kvfile *f, const char *key, const char *value)
{
    bool there;
    size_t at = position(f, key, &there);
    if (!is_text(key, strlen(key), KVFILE_KEY_MOST) ||
        !is_text(value, strlen(value), KVFILE_VALUE_MOST))
        return FAIL(ERR_USAGE, "a cache file holds printable text of one line");
    if (there && strcmp(f->entries.items[at].value, value) == 0)
        return OK;
    if (!there && f->entries.n >= KVFILE_ENTRIES_MOST)
        return FAIL(ERR_USAGE, "the cache file %s is full: remove it", f->path);
    TRY(there ? replace(&f->entries.items[at], value) : insert(f, at, key, value));
    f->changed = true;
    return OK;
}

/* ---- the bound ------------------------------------------------------------------------------ */

void kvfile_bound(struct kvfile *f, size_t most, int64_t (*when)(const char *value))
{
    BUG_ON(most < 4);
    f->most = most;
    f->when = when;
}

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Drops those put before `since`, and so many of those put at it. */
static void drop(struct kvfile *f, int64_t since, size_t n_at)
{
    size_t n_left = 0;
    for (size_t i = 0; i < f->entries.n; i++) {
        struct entry *e = &f->entries.items[i];
        int64_t when = f->when(e->value);
        if (when < since || (when == since && n_at > 0)) {
            n_at -= when == since;
            mem_free(e->key);
            mem_free(e->value);
        } else {
            f->entries.items[n_left++] = *e;
        }
    }
    f->entries.n = n_left;
}

static enum status keep_bound(struct kvfile *f)
{
    size_t n = f->entries.n;
    int64_t *times = NULL;
    if (f->most == 0 || n <= f->most)
        return OK;
    TRY(mem_try_array(&times, n, sizeof(*times)));
    for (size_t i = 0; i < n; i++)
        times[i] = f->when(f->entries.items[i].value);
    qsort(times, n, sizeof(*times), by_time);
    size_t n_dropped = n - f->most * 3 / 4, n_before = 0;
    int64_t since = times[n_dropped - 1];
    while (times[n_before] < since)
        n_before++;
    mem_free(times);
    drop(f, since, n_dropped - n_before);
    return OK;
}

/* ---- text ----------------------------------------------------------------------------------- */

/* One entry per line, in the order of the keys; the last line is whole. */
static enum status check_text(const char *text, size_t n_bytes)
{
    const size_t head = sizeof(first_line) - 1;
    const char *at = text + head, *end = text + n_bytes, *before = NULL;
    size_t n_before = 0;
    if (n_bytes < head || memcmp(text, first_line, head) != 0)
        return FAIL(ERR_DATA, "it does not begin as a cache file");
    for (size_t n = 0; at < end; n++) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        const char *tab = line_end ? memchr(at, '\t', (size_t)(line_end - at)) : NULL;
        if (!tab || !is_text(at, (size_t)(tab - at), KVFILE_KEY_MOST) ||
            !is_text(tab + 1, (size_t)(line_end - tab - 1), KVFILE_VALUE_MOST))
            return FAIL(ERR_DATA, "entry %zu is not a key and a value", n + 1);
        size_t n_key = (size_t)(tab - at), n_both = n_key < n_before ? n_key : n_before;
        int order = before ? memcmp(before, at, n_both) : -1;
        if (order > 0 || (order == 0 && n_before >= n_key))
            return FAIL(ERR_DATA, "entry %zu is out of order", n + 1);
        if (n >= KVFILE_ENTRIES_MOST)
            return FAIL(ERR_DATA, "it has more than %d entries", KVFILE_ENTRIES_MOST);
        before = at;
        n_before = n_key;
        at = line_end + 1;
    }
    return OK;
}

/* `copy` is the text after its first line, checked. */
static enum status add_lines(struct kvfile *f, char *copy)
{
    for (char *at = copy, *next; *at; at = next) {
        char *tab = strchr(at, '\t'), *line_end = strchr(at, '\n');
        bool there;
        next = line_end + 1;
        *tab = *line_end = '\0';
        size_t place = position(f, at, &there);
        if (!there && f->entries.n < KVFILE_ENTRIES_MOST)
            TRY(insert(f, place, at, tab + 1));
    }
    return OK;
}

enum status kvfile_parse(struct kvfile *f, const char *text, size_t n_bytes)
{
    TRY(check_text(text, n_bytes));
    size_t head = sizeof(first_line) - 1, n = n_bytes - head;
    char *copy = mem_alloc(n + 1);
    if (!copy)
        return FAIL(ERR_MEMORY, "out of memory for a cache file");
    memcpy(copy, text + head, n);
    copy[n] = '\0';
    enum status status = add_lines(f, copy);
    mem_free(copy);
    return status;
}

enum status kvfile_print(const struct kvfile *f, char **text, size_t *n_bytes)
{
    struct str s = {0};
    str_add(&s, first_line);
    for (size_t i = 0; i < f->entries.n; i++)
        str_addf(&s, "%s\t%s\n", f->entries.items[i].key, f->entries.items[i].value);
    enum status status = str_status(&s);
    if (status != OK) {
        str_release(&s);
        return status;
    }
    *n_bytes = s.n;
    *text = str_take(&s);
    return OK;
}

/* ---- the file ------------------------------------------------------------------------------- */

/* Adds what the file holds; what cannot be read is left where it is until the next save. */
static enum status merge(struct kvfile *f)
{
    char *text = NULL;
    size_t n_bytes = 0;
    f->is_kept = !file_exists(f->path) || file_is_regular(f->path);
    if (!f->is_kept)
        log_warn("%s is not a regular file: nothing is read from it or kept in it", f->path);
    if (!file_is_regular(f->path))
        return OK;
    enum status status = file_read(f->path, &text, &n_bytes);
    if (status == OK)
        status = kvfile_parse(f, text, n_bytes);
    mem_free(text);
    if (status == OK || status == ERR_MEMORY)
        return status;
    log_warn("%s is not used and will be written anew: %s", f->path, status_message());
    return OK;
}

enum status kvfile_open(struct kvfile **out, const char *path)
{
    *out = NULL;
    struct kvfile *f = mem_calloc(1, sizeof(*f));
    if (f)
        f->path = mem_strdup(path);
    if (!f || !f->path) {
        kvfile_free(f);
        return FAIL(ERR_MEMORY, "out of memory for a cache file");
    }
    enum status status = merge(f);
    if (status != OK) {
        kvfile_free(f);
        return status;
    }
    *out = f;
    return OK;
}

enum status kvfile_open_in(struct kvfile **out, const char *folder, const char *name)
{
    struct str path = {0};
    *out = NULL;
    str_addf(&path, "%s/%s", folder, name);
    enum status status = str_status(&path);
    if (status == OK)
        status = kvfile_open(out, str_text(&path));
    str_release(&path);
    return status;
}

static enum status make_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    struct str folder = {0};
    if (!slash || slash == path)
        return OK;
    str_add_n(&folder, path, (size_t)(slash - path));
    enum status status = str_status(&folder);
    if (status == OK)
        status = file_make_folders(folder.text);
    str_release(&folder);
    return status;
}

enum status kvfile_save(struct kvfile *f)
{
    char *text = NULL;
    size_t n_bytes = 0;
    if (!f->changed || !f->is_kept)
        return OK;
    TRY(make_parent(f->path));
    TRY(merge(f));
    if (!f->is_kept)
        return OK;
    TRY(keep_bound(f));
    TRY(kvfile_print(f, &text, &n_bytes));
    enum status status = file_write_atomic(f->path, text, n_bytes);
    mem_free(text);
    if (status == OK)
        f->changed = false;
    return status;
}

void kvfile_free(struct kvfile *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->entries.n; i++) {
        mem_free(f->entries.items[i].key);
        mem_free(f->entries.items[i].value);
    }
    vec_release(&f->entries);
    mem_free(f->path);
    mem_free(f);
}
