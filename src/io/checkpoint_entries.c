/* checkpoint_entries.c: the finished checkpoints of a folder in the order in which they came. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "io/checkpoint_internal.h"

/* *run = the id in a checkpoint's state, in the pool; NULL when the state cannot be read. */
static enum status read_run(struct pool *pool, const char *folder, const char **run)
{
    json_t *root;
    *run = NULL;
    enum status status = checkpoint_read_state_file(&root, folder);
    if (status == ERR_CHECKPOINT)
        return OK;
    TRY(status);
    const char *id = json_string_value(json_object_get(root, "run"));
    *run = pool_strdup(pool, id ? id : "");
    json_decref(root);
    return pool_status(pool);
}

static int compare(const void *a, const void *b)
{
    const struct checkpoint_entry *x = a, *y = b;
    int by_run = strcmp(x->run, y->run);
    return by_run ? by_run : (x->step > y->step) - (x->step < y->step);
}

/* Unreadable ones belong to the newest run, as far as anyone can tell. */
static void sort(struct checkpoint_entries *list)
{
    const char *newest = "";
    for (size_t i = 0; i < list->n; i++) {
        const char *run = list->items[i].run;
        if (run && strcmp(run, newest) > 0)
            newest = run;
    }
    for (size_t i = 0; i < list->n; i++) {
        if (!list->items[i].run)
            list->items[i].run = newest;
    }
    if (list->n > 0)
        qsort(list->items, list->n, sizeof(*list->items), compare);
}

enum status checkpoint_entries(struct pool *pool, const char *output_dir,
                               struct checkpoint_entries *out)
{
    struct checkpoint_list names;
    *out = (struct checkpoint_entries){0};
    TRY(checkpoint_list(pool, output_dir, &names));
    TRY(pool_try(pool, &out->items, (names.n + 1) * sizeof(*out->items)));
    for (size_t i = 0; i < names.n; i++) {
        if (names.names[i].kind != CHECKPOINT_FINISHED)
            continue;
        struct checkpoint_entry *e = &out->items[out->n++];
        e->step = names.names[i].step;
        const char *folder = checkpoint_folder(pool, output_dir, CHECKPOINT_FINISHED, e->step);
        TRY(pool_status(pool));
        e->ours = checkpoint_is_ours(folder);
        TRY(read_run(pool, folder, &e->run));
    }
    sort(out);
    return OK;
}
