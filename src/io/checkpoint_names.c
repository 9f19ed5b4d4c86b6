/* checkpoint_names.c: how checkpoint folders are called, and which there are. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"
#include "base/vec.h"
#include "io/checkpoint_internal.h"

static const char *const prefixes[] = {
    [CHECKPOINT_FINISHED] = "checkpoint-",
    [CHECKPOINT_TEMPORARY] = ".tmp-checkpoint-",
    [CHECKPOINT_ASIDE] = ".old-checkpoint-",
};

/* A number without sign or leading zeros; *text moves past it. */
static bool parse_number(const char **text, int64_t *out)
{
    const char *at = *text;
    int64_t n = 0;
    if (at[0] == '0' && isdigit((unsigned char)at[1]))
        return false;
    for (; isdigit((unsigned char)*at); at++) {
        if (n > (INT64_MAX - 9) / 10)
            return false;
        n = n * 10 + (*at - '0');
    }
    bool any = at != *text;
    *text = at;
    *out = n;
    return any;
}

struct checkpoint_name checkpoint_parse_name(const char *name)
{
    struct checkpoint_name none = {.kind = CHECKPOINT_OTHER};
    for (int kind = CHECKPOINT_FINISHED; kind <= CHECKPOINT_ASIDE; kind++) {
        struct checkpoint_name found = {.kind = (enum checkpoint_kind)kind};
        if (!str_starts_with(name, prefixes[kind]))
            continue;
        const char *at = name + strlen(prefixes[kind]);
        if (!parse_number(&at, &found.step))
            return none;
        if (kind != CHECKPOINT_FINISHED && (*at++ != '-' || !parse_number(&at, &found.pid)))
            return none;
        return *at ? none : found;
    }
    return none;
}

const char *checkpoint_folder(struct pool *pool, const char *output_dir, enum checkpoint_kind kind,
                              int64_t step)
{
    if (kind == CHECKPOINT_FINISHED)
        return pool_printf(pool, "%s/%s%lld", output_dir, prefixes[kind], (long long)step);
    return pool_printf(pool, "%s/%s%lld-%ld", output_dir, prefixes[kind], (long long)step,
                       (long)getpid());
}

static int compare(const void *a, const void *b)
{
    const struct checkpoint_name *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return x->step < y->step ? -1 : x->step > y->step;
}

enum status checkpoint_list(struct pool *pool, const char *output_dir, struct checkpoint_list *out)
{
    *out = (struct checkpoint_list){0};
    VEC(struct checkpoint_name) found = {0};
    DIR *d = opendir(output_dir);
    if (!d && errno == ENOENT)
        return OK;
    if (!d)
        return file_fail("cannot open folder", output_dir);
    enum status status = OK;
    for (struct dirent *e = readdir(d); e && status == OK; e = readdir(d)) {
        struct checkpoint_name name = checkpoint_parse_name(e->d_name);
        if (name.kind != CHECKPOINT_OTHER)
            status = vec_push(&found, name);
    }
    (void)closedir(d);
    if (status == OK && found.n > 0) {
        status = pool_try(pool, &out->names, found.n * sizeof(*found.items));
        if (status == OK) {
            qsort(found.items, found.n, sizeof(*found.items), compare);
            memcpy(out->names, found.items, found.n * sizeof(*found.items));
            out->n = found.n;
        }
    }
    vec_release(&found);
    return status;
}

bool checkpoint_is_ours(const char *folder)
{
    char path[4096];
    int n = snprintf(path, sizeof(path), "%s/" CHECKPOINT_STATE_FILE, folder);
    return n > 0 && (size_t)n < sizeof(path) && file_exists(path);
}
