/* source_paths.c: folders and patterns into the files they name, in the order of their names. */
#include <dirent.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/vec.h"
#include "data/source_internal.h"

void path_list_release(struct path_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        mem_free(list->items[i]);
    vec_release(list);
}

static enum status add_path(struct path_list *out, const char *path)
{
    char *copy = mem_strdup(path);
    if (!copy)
        return FAIL(ERR_MEMORY, "%s: out of memory", path);
    enum status status = vec_push(out, copy);
    if (status != OK)
        mem_free(copy);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Without a kind, a folder gives only files whose ending says what they are: READMEs and
 * checksums that lie beside the data are not data. */
static int wanted(enum source_kind kind, const char *path)
{
    static const char *const text[] = {".txt", ".text", ".md"};
    static const char *const jsonl[] = {".jsonl", ".ndjson"};
    static const char *const records[] = {".jsonl", ".ndjson", ".json", ".csv"};
    static const char *const tokens[] = {".bin", ".npy"};
    int any = kind == SOURCE_TEXT;
    for (size_t i = 0; kind == SOURCE_AUTO && i < ARRAY_LEN(text); i++)
        any |= str_ends_with(path, text[i]);
    for (size_t i = 0; (kind == SOURCE_AUTO || kind == SOURCE_JSONL) && i < ARRAY_LEN(jsonl); i++)
        any |= str_ends_with(path, jsonl[i]);
    for (size_t i = 0; kind == SOURCE_EXAMPLES && i < ARRAY_LEN(records); i++)
        any |= str_ends_with(path, records[i]);
    for (size_t i = 0; (kind == SOURCE_AUTO || kind == SOURCE_TOKENS) && i < ARRAY_LEN(tokens); i++)
        any |= str_ends_with(path, tokens[i]);
    return any;
}

static enum status add_folder(struct path_list *out, const char *folder, enum source_kind kind)
{
    size_t first = out->n;
    enum status status = OK;
    DIR *d = opendir(folder);
    if (!d)
        return FAIL(ERR_DATA, "%s: cannot open the folder", folder);
    for (struct dirent *e = readdir(d); e && status == OK; e = readdir(d)) {
        char path[4096];
        struct stat st;
        if (e->d_name[0] == '.' || !wanted(kind, e->d_name))
            continue;
        if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, e->d_name) >= sizeof(path))
            status = FAIL(ERR_IO, "%s/%s: path too long", folder, e->d_name);
        else if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
            status = add_path(out, path);
    }
    (void)closedir(d);
    if (status == OK && out->n == first)
        return FAIL(ERR_DATA,
                    "%s: the folder has no data files (.txt, .md, .jsonl, .ndjson, .bin, .npy)",
                    folder);
    if (status == OK)
        qsort(out->items + first, out->n - first, sizeof(*out->items), by_name);
    return status;
}

static enum status add_pattern(struct path_list *out, const char *pattern)
{
    glob_t found = {0};
    enum status status = OK;
    int rc = glob(pattern, 0, NULL, &found);
    if (rc == GLOB_NOMATCH)
        status = FAIL(ERR_DATA, "%s: no file matches the pattern", pattern);
    else if (rc != 0)
        status = FAIL(ERR_DATA, "%s: cannot look for files that match", pattern);
    for (size_t i = 0; i < found.gl_pathc && status == OK; i++)
        if (!file_is_folder(found.gl_pathv[i]))
            status = add_path(out, found.gl_pathv[i]);
    globfree(&found);
    return status;
}

enum status source_expand_paths(const struct source_options *options, struct path_list *out)
{
    for (size_t i = 0; i < options->n_paths; i++) {
        const char *path = options->paths[i];
        if (file_is_folder(path))
            TRY(add_folder(out, path, options->kind));
        else if (!file_exists(path) && strpbrk(path, "*?["))
            TRY(add_pattern(out, path));
        else if (!file_exists(path))
            return FAIL(ERR_DATA, "%s: no such file; check the data path", path);
        else
            TRY(add_path(out, path));
    }
    if (out->n == 0)
        return FAIL(ERR_CONFIG,
                    "no data: name a file, a folder or a pattern, or use synthetic data");
    return OK;
}
