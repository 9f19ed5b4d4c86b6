#include "watch/plan_table.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

/* ---- the file --------------------------------------------------------------------------------
 *
 * A header; then for storage and each program a struct block, followed by its rows: n_rows of
 * struct row, n_instrs times a part, n_instrs + 1 times a start. In this machine's byte order: it
 * is read where it was written.
 */

#define TABLE_MAGIC UINT64_C(0x314c504755534e) /* "NSUGPL1" */

struct header {
    uint64_t magic;
    int32_t n_tiers, n_classes, n_programs, reserved;
};

struct block {
    char name[32];
    int32_t n_instrs, n_rows;
};

struct row {
    int64_t n_bytes;
    int32_t first, last; /* instructions, closed */
    int32_t tier, kind;
};

enum { MOST_INSTRS = 1 << 24, MOST_ROWS = 1 << 26 };

static const char *const part_names[] = {"",          "begin",  "forward",   "backward", "norm",
                                         "recompute", "update", "computing", "in",       "out"};

const char *plan_part_name(int part)
{
    return part >= 0 && (size_t)part < ARRAY_LEN(part_names) ? part_names[part] : "";
}

static unsigned char part_number(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(part_names); i++) {
        if (strcmp(part_names[i], name) == 0)
            return (unsigned char)i;
    }
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool put(FILE *f, const void *data, size_t n_bytes)
{
    return fwrite(data, 1, n_bytes, f) == n_bytes;
}

static bool put_storage(FILE *f, const struct storage *s)
{
    struct block b = {.name = "storage", .n_instrs = 0, .n_rows = (int32_t)s->entries.n};
    bool ok = put(f, &b, sizeof(b));
    for (size_t i = 0; ok && i < s->entries.n; i++) {
        const struct storage_entry *e = &s->entries.items[i];
        struct row r = {.n_bytes = align_up(e->n_bytes, ARENA_ALIGN),
                        .tier = (int32_t)e->tier,
                        .kind = (int32_t)e->kind};
        ok = put(f, &r, sizeof(r));
    }
    return ok;
}

/* Storage is counted once for all programs, and what shares another's memory not at all. */
static bool is_counted(const struct buffer *b)
{
    return b->storage < 0 && b->merged_into < 0;
}

static bool put_buffers(FILE *f, const struct program *p)
{
    struct block b = {.n_instrs = (int32_t)p->instrs.n};
    (void)snprintf(b.name, sizeof(b.name), "%s", p->name);
    for (size_t i = 0; i < p->buffers.n; i++)
        b.n_rows += is_counted(&p->buffers.items[i]);
    bool ok = put(f, &b, sizeof(b));
    for (size_t i = 0; ok && i < p->buffers.n; i++) {
        const struct buffer *x = &p->buffers.items[i];
        struct row r = {.n_bytes = align_up(x->n_bytes, ARENA_ALIGN),
                        .first = x->first,
                        .last = x->last,
                        .tier = (int32_t)x->tier,
                        .kind = (int32_t)x->kind};
        if (is_counted(x))
            ok = put(f, &r, sizeof(r));
    }
    return ok;
}

static enum status put_program(FILE *f, const struct workload *w, const struct stage *s, bool *ok)
{
    const struct program *p = s->program;
    double *clock;
    *ok = *ok && put_buffers(f, p);
    for (size_t i = 0; *ok && i < p->instrs.n; i++) {
        unsigned char part = part_number(instr_part(p, &p->instrs.items[i]));
        *ok = put(f, &part, 1);
    }
    TRY(mem_try_array(&clock, p->instrs.n + 2, sizeof(*clock)));
    enum status status =
        s->prediction.seconds ? predict_clock(&s->prediction, p, w->device, clock) : OK;
    if (status == OK)
        *ok = *ok && put(f, clock, sizeof(*clock) * (p->instrs.n + 1));
    mem_free(clock);
    return status;
}

static const struct stage *stage_of(const struct workload *w, int handle)
{
    for (int i = 0; i < w->n_stages; i++) {
        if (w->stages[i].handle == handle)
            return &w->stages[i];
    }
    return NULL;
}

static enum status put_all(FILE *f, const struct workload *w, bool *ok)
{
    struct header h = {.magic = TABLE_MAGIC,
                       .n_tiers = TIER_COUNT,
                       .n_classes = MEMORY_CLASS_COUNT,
                       .n_programs = MIN(w->n_stages, (int)PLAN_TABLE_PROGRAMS)};
    *ok = put(f, &h, sizeof(h)) && put_storage(f, &w->storage);
    for (int i = 0; i < h.n_programs; i++) {
        const struct stage *s = stage_of(w, i);
        if (!s || !s->program)
            return FAIL(ERR_INTERNAL, "a program is not loaded yet");
        TRY(put_program(f, w, s, ok));
    }
    return OK;
}

static enum status write_file(const char *path, const char *temporary, const struct workload *w)
{
    char buffer[4096]; /* a run's own memory is in the plan: no more of it than this */
    bool ok = false;
    FILE *f = fopen(temporary, "we");
    if (!f)
        return FAIL(ERR_IO, "%s: cannot create: %s", path, strerror(errno));
    (void)setvbuf(f, buffer, _IOFBF, sizeof(buffer));
    enum status status = put_all(f, w, &ok);
    ok = fclose(f) == 0 && ok;
    if (status == OK && (!ok || rename(temporary, path) != 0))
        status = FAIL(ERR_IO, "%s: cannot write: %s", path, strerror(errno));
    if (status != OK)
        (void)unlink(temporary);
    return status;
}

enum status plan_table_write(const char *folder, const struct workload *w)
{
    char path[4096], temporary[4096];
    if ((size_t)snprintf(path, sizeof(path), "%s/" PLAN_TABLE_NAME, folder) >= sizeof(path) ||
        (size_t)snprintf(temporary, sizeof(temporary), "%s/" PLAN_TABLE_NAME ".new", folder) >=
            sizeof(temporary))
        return FAIL(ERR_IO, "%s: the path is too long", folder);
    return write_file(path, temporary, w);
}

/* ---- reading --------------------------------------------------------------------------------- */

static enum status get(FILE *f, const char *path, void *out, size_t n_bytes)
{
    if (fread(out, 1, n_bytes, f) == n_bytes)
        return OK;
    return FAIL(ERR_DATA, "%s: cut short", path);
}

static enum status get_block(FILE *f, const char *path, struct block *b)
{
    TRY(get(f, path, b, sizeof(*b)));
    b->name[sizeof(b->name) - 1] = '\0';
    if (b->n_instrs < 0 || b->n_instrs > MOST_INSTRS || b->n_rows < 0 || b->n_rows > MOST_ROWS)
        return FAIL(ERR_DATA, "%s: not the plan of a run", path);
    return OK;
}

static enum status get_row(FILE *f, const char *path, const struct block *b, struct row *r)
{
    TRY(get(f, path, r, sizeof(*r)));
    if (r->n_bytes < 0 || r->tier < 0 || r->tier >= TIER_COUNT || r->kind < 0 ||
        r->kind >= MEMORY_CLASS_COUNT || r->first < 0 || r->last < r->first ||
        r->last >= MAX(b->n_instrs, 1))
        return FAIL(ERR_DATA, "%s: not the plan of a run", path);
    return OK;
}

static enum status get_storage(FILE *f, const char *path, struct plan_table *t)
{
    struct block b;
    TRY(get_block(f, path, &b));
    for (int32_t i = 0; i < b.n_rows; i++) {
        struct row r;
        TRY(get_row(f, path, &b, &r));
        t->storage.by_class[r.tier][r.kind] += r.n_bytes;
        t->storage.total[r.tier] += r.n_bytes;
    }
    return OK;
}

/* From the differences at births and deaths to what is alive. */
static void sum_up(struct plan_program *p, const struct plan_memory *storage)
{
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const struct plan_memory *before = i ? &p->at[i - 1] : storage;
        for (int t = 0; t < TIER_COUNT; t++) {
            p->at[i].total[t] += before->total[t];
            for (int c = 0; c < MEMORY_CLASS_COUNT; c++)
                p->at[i].by_class[t][c] += before->by_class[t][c];
        }
    }
}

static void add_row(struct plan_program *p, const struct row *r)
{
    p->at[r->first].by_class[r->tier][r->kind] += r->n_bytes;
    p->at[r->first].total[r->tier] += r->n_bytes;
    if (r->last + 1 < p->n_instrs) {
        p->at[r->last + 1].by_class[r->tier][r->kind] -= r->n_bytes;
        p->at[r->last + 1].total[r->tier] -= r->n_bytes;
    }
}

static enum status get_program(FILE *f, const char *path, struct plan_table *t,
                               struct plan_program *p)
{
    struct block b;
    TRY(get_block(f, path, &b));
    memcpy(p->name, b.name, sizeof(p->name));
    size_t n = (size_t)b.n_instrs;
    TRY(pool_try(&t->pool, &p->at, sizeof(*p->at) * MAX(n, (size_t)1)));
    TRY(pool_try(&t->pool, &p->parts, MAX(n, (size_t)1)));
    TRY(pool_try(&t->pool, &p->starts, sizeof(*p->starts) * (n + 1)));
    memset(p->at, 0, sizeof(*p->at) * MAX(n, (size_t)1));
    p->n_instrs = b.n_instrs;
    for (int32_t i = 0; i < b.n_rows; i++) {
        struct row r;
        TRY(get_row(f, path, &b, &r));
        if (n > 0)
            add_row(p, &r);
    }
    sum_up(p, &t->storage);
    TRY(get(f, path, p->parts, n));
    return get(f, path, p->starts, sizeof(*p->starts) * (n + 1));
}

static enum status get_all(FILE *f, const char *path, struct plan_table *t)
{
    struct header h;
    TRY(get(f, path, &h, sizeof(h)));
    if (h.magic != TABLE_MAGIC || h.n_tiers != TIER_COUNT || h.n_classes != MEMORY_CLASS_COUNT ||
        h.n_programs < 0 || h.n_programs > PLAN_TABLE_PROGRAMS)
        return FAIL(ERR_DATA, "%s: not the plan of a run, or of another version of Snug", path);
    TRY(get_storage(f, path, t));
    for (int i = 0; i < h.n_programs; i++, t->n_programs++)
        TRY(get_program(f, path, t, &t->programs[i]));
    return OK;
}

enum status plan_table_read(struct plan_table *t, const char *folder)
{
    char path[4096];
    *t = (struct plan_table){0};
    if ((size_t)snprintf(path, sizeof(path), "%s/" PLAN_TABLE_NAME, folder) >= sizeof(path))
        return FAIL(ERR_IO, "%s: the path is too long", folder);
    FILE *f = fopen(path, "re");
    if (!f)
        return FAIL(ERR_IO, "%s: cannot read: %s", path, strerror(errno));
    pool_init(&t->pool);
    enum status status = get_all(f, path, t);
    (void)fclose(f);
    if (status != OK)
        plan_table_release(t);
    return status;
}

void plan_table_release(struct plan_table *t)
{
    pool_release(&t->pool);
    *t = (struct plan_table){0};
}

const struct plan_memory *plan_table_at(const struct plan_table *t, uint64_t position)
{
    uint64_t handle = position >> 32;
    uint32_t at = (uint32_t)position;
    if (handle >= (uint64_t)t->n_programs || at >= (uint32_t)t->programs[handle].n_instrs)
        return &t->storage;
    return &t->programs[handle].at[at];
}
