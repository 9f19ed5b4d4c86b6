/* metrics.c: see metrics.h. */
#include "report/metrics.h"

#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/log.h"

/* True when the file holds something that does not end in a newline. */
static enum status is_torn(const char *path, int *torn)
{
    *torn = 0;
    if (!file_exists(path))
        return OK;
    struct file_map map;
    TRY(file_map_open(&map, path));
    *torn = map.n_bytes > 0 && map.data[map.n_bytes - 1] != '\n';
    file_map_close(&map);
    return OK;
}

enum status metrics_open(struct metrics *m, const char *path)
{
    *m = (struct metrics){.file = {.fd = -1}};
    int torn;
    enum status status;
    m->path = mem_strdup(path);
    if (!m->path)
        return FAIL(ERR_MEMORY, "%s: out of memory", path);
    TRY_GOTO(is_torn(path, &torn), out);
    TRY_GOTO(file_out_append(&m->file, m->path), out);
    if (torn)
        TRY_GOTO(file_out_write(&m->file, "\n", 1), out);
    return OK;
out:
    (void)!metrics_close(m);
    return status;
}

static int dump_into_str(const char *text, size_t n, void *str)
{
    str_add_n(str, text, n);
    return ((struct str *)str)->failed;
}

static enum status open_again(struct metrics *m)
{
    char *folder = mem_strdup(m->path);
    if (!folder)
        return FAIL(ERR_MEMORY, "%s: out of memory", m->path);
    char *slash = strrchr(folder, '/');
    enum status status = OK;
    if (slash && slash > folder) {
        *slash = '\0';
        status = file_make_folders(folder);
    }
    mem_free(folder);
    TRY(status);
    (void)!file_out_close(&m->file); /* of a file that is gone */
    return file_out_append(&m->file, m->path);
}

/* Lines into a file without a name would be lost without a word. */
static enum status find_file(struct metrics *m)
{
    struct stat st;
    if (fstat(m->file.fd, &st) != 0 || st.st_nlink > 0)
        return OK;
    log_warn("%s was removed while the run was at work: what stood in it is gone, and it goes on "
             "from here",
             m->path);
    return open_again(m);
}

enum status metrics_write(struct metrics *m, const json_t *object)
{
    if (!json_is_object(object))
        return FAIL(ERR_INTERNAL, "%s: a line must be a JSON object", m->path);
    str_clear(&m->line);
    if (json_dump_callback(object, dump_into_str, &m->line, JSON_COMPACT) != 0)
        return FAIL(ERR_MEMORY, "%s: out of memory while writing a line", m->path);
    str_add(&m->line, "\n");
    TRY(str_status(&m->line));
    TRY(find_file(m));
    return file_out_write(&m->file, m->line.text, m->line.n);
}

enum status metrics_sync(struct metrics *m)
{
    return file_out_sync(&m->file);
}

enum status metrics_close(struct metrics *m)
{
    enum status status = file_out_close(&m->file);
    str_release(&m->line);
    mem_free(m->path);
    *m = (struct metrics){.file = {.fd = -1}};
    return status;
}
