#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/temporary.h"

/* ---- where a name leads ---------------------------------------------------------------------- */

/* Replaces the name of a link by what it points to, which may be another link, or nothing. */
static enum status follow_once(char path[PATH_MAX], const char *asked)
{
    char target[PATH_MAX], joined[2 * PATH_MAX];
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    if (n < 0)
        return FAIL(ERR_IO, "%s: cannot follow the link: %s", asked, strerror(errno));
    target[n] = '\0';
    const char *slash = strrchr(path, '/');
    int n_folder = slash && target[0] != '/' ? (int)(slash + 1 - path) : 0;
    (void)snprintf(joined, sizeof(joined), "%.*s%s", n_folder, path, target);
    if (strlen(joined) >= PATH_MAX)
        return FAIL(ERR_IO, "%s: the link leads to a path that is too long", asked);
    memcpy(path, joined, strlen(joined) + 1);
    return OK;
}

enum place { PLACE_FILE, PLACE_STREAM };

static enum status judge(const struct stat *st, const char *path, enum place *place)
{
    *place = S_ISREG(st->st_mode) ? PLACE_FILE : PLACE_STREAM;
    if (S_ISDIR(st->st_mode))
        return FAIL(ERR_IO, "%s: a folder, not a file to write; give the name of a file", path);
    return OK;
}

/* path in: as asked; out: without links. */
static enum status find_place(char path[PATH_MAX], const char *asked, enum place *place)
{
    enum { MOST_LINKS = 40 };
    struct stat st;
    *place = PLACE_FILE;
    for (int i = 0; i < MOST_LINKS; i++) {
        if (lstat(path, &st) != 0)
            return errno == ENOENT ? OK : FAIL(ERR_IO, "%s: %s", asked, strerror(errno));
        if (!S_ISLNK(st.st_mode))
            return judge(&st, asked, place);
        /* A link of /proc (/dev/stdout, /dev/fd/3) to a pipe names nothing that can be opened. */
        if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
            return judge(&st, asked, place);
        TRY(follow_once(path, asked));
    }
    return FAIL(ERR_IO, "%s: more than %d links, one after the other", asked, MOST_LINKS);
}

/* ---- writing --------------------------------------------------------------------------------- */

static enum status name_parts(struct output *o, const char *path, enum place *place)
{
    char final[PATH_MAX], temporary[PATH_MAX + 32];
    if (strlen(path) >= PATH_MAX - 32)
        return FAIL(ERR_IO, "%s: path too long", path);
    memcpy(final, path, strlen(path) + 1);
    TRY(find_place(final, path, place));
    /* Its own name for each process: two may write the same file, each its whole. */
    (void)snprintf(temporary, sizeof(temporary), "%s.tmp-%ld", final, (long)getpid());
    o->final = mem_strdup(final);
    o->temporary = *place == PLACE_FILE ? mem_strdup(temporary) : NULL;
    if (!o->final || (*place == PLACE_FILE && !o->temporary))
        return FAIL(ERR_MEMORY, "%s: out of memory", path);
    return OK;
}

enum status output_open(struct output *o, const char *path)
{
    enum place place;
    enum status status;
    *o = (struct output){.file.fd = -1};
    TRY_GOTO(name_parts(o, path, &place), out);
    if (place == PLACE_STREAM) {
        TRY_GOTO(file_out_open_existing(&o->file, o->final), out);
    } else {
        temporary_note(o->temporary);
        (void)unlink(o->temporary); /* of a dead process that had our number */
        TRY_GOTO(file_out_open_for(&o->file, o->temporary, o->final), out);
    }
out:
    if (status != OK)
        output_abandon(o);
    return status;
}

enum status output_check(const char *path)
{
    struct output o = {.file.fd = -1};
    enum place place;
    enum status status = name_parts(&o, path, &place);
    output_abandon(&o);
    if (status != OK || place == PLACE_STREAM)
        return status;
    TRY(output_open(&o, path));
    output_abandon(&o);
    return OK;
}

enum status output_commit(struct output *o)
{
    if (!o->temporary)
        return file_out_close(&o->file);
    TRY(file_out_sync(&o->file));
    TRY(file_out_close(&o->file));
    TRY(file_rename(o->temporary, o->final));
    temporary_forget(o->temporary);
    mem_free(o->temporary);
    o->temporary = NULL;
    return OK;
}

void output_abandon(struct output *o)
{
    if (o->file.fd >= 0)
        (void)!file_out_close(&o->file);
    if (o->temporary) {
        (void)unlink(o->temporary);
        temporary_forget(o->temporary);
    }
    mem_free(o->temporary);
    mem_free(o->final);
    *o = (struct output){.file.fd = -1};
}

enum status file_write_atomic(const char *path, const void *data, size_t n_bytes)
{
    struct output o;
    TRY(output_open(&o, path));
    enum status status = file_out_write(&o.file, data, n_bytes);
    if (status == OK)
        status = output_commit(&o);
    output_abandon(&o);
    return status;
}
