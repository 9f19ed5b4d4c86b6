#include "io/weights_coded.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "io/file_hash.h"

bool coded_tensor_is(const struct st_tensor *t)
{
    return t->dtype == ST_U8 || t->dtype == ST_I8;
}

/* <name>.<suffix>; NULL: there is none. */
static const struct st_tensor *find(const struct st_reader *r, const char *name, int n_name,
                                    const char *suffix)
{
    struct str path = {0};
    str_addf(&path, "%.*s.%s", n_name, name, suffix);
    const struct st_tensor *t = path.failed ? NULL : st_reader_find(r, path.text);
    str_release(&path);
    return t;
}

static enum status need(const struct st_tensor *whole, const struct st_tensor *t, const char *what,
                        enum st_dtype dtype, int64_t n_elems)
{
    if (!t)
        return FAIL(ERR_DATA, "%s: tensor '%s' is quantised, but its %s is missing", whole->file,
                    whole->name, what);
    if (t->dtype == dtype && t->n_elems == n_elems)
        return OK;
    return FAIL(ERR_DATA, "%s: tensor '%s': %s with %lld elements is due, not %s with %lld",
                t->file, t->name, st_dtype_name(dtype), (long long)n_elems, st_dtype_name(t->dtype),
                (long long)t->n_elems);
}

/* ---- 4 bits ---------------------------------------------------------------------------------- */

static int64_t integer_of(const json_t *state, const char *key, int64_t preset)
{
    const json_t *x = json_object_get(state, key);
    return json_is_integer(x) ? (int64_t)json_integer_value(x) : preset;
}

static bool has_shape(const json_t *state, const struct shape *matrix)
{
    const json_t *dims = json_object_get(state, "shape");
    bool same = json_array_size(dims) == (size_t)matrix->rank;
    for (int i = 0; same && i < matrix->rank; i++)
        same = json_integer_value(json_array_get(dims, (size_t)i)) == matrix->dim[i];
    return same;
}

static enum status check_state(struct coded_tensor *c, const json_t *state,
                               const struct shape *matrix)
{
    const struct st_tensor *t = c->codes;
    if (!has_shape(state, matrix)) {
        char want[SHAPE_TEXT];
        return FAIL(ERR_DATA,
                    "%s: tensor '%s' is quantised of another shape than %s, which the "
                    "model's config asks for",
                    t->file, t->name, shape_text(want, matrix));
    }
    if (integer_of(state, "blocksize", 0) != CODE4_BLOCK)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: tensor '%s' has blocks of %lld, only those of %d are read", t->file,
                    t->name, (long long)integer_of(state, "blocksize", 0), CODE4_BLOCK);
    if (c->q.nested && integer_of(state, "nested_blocksize", 0) != SCALE_GROUP)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: tensor '%s' has groups of %lld scales, only those of %d are read", t->file,
                    t->name, (long long)integer_of(state, "nested_blocksize", 0), SCALE_GROUP);
    c->offset = (float)json_number_value(json_object_get(state, "nested_offset"));
    return OK;
}

/* The map is the one that the name of the code stands for. */
static enum status check_map(const struct coded_tensor *c, const struct st_tensor *map)
{
    const float *due = code4_values(c->q.code);
    TRY(need(c->codes, map, "quant_map", ST_F32, CODE4_VALUES));
    for (int i = 0; i < CODE4_VALUES; i++) {
        float x;
        memcpy(&x, map->data + (size_t)i * sizeof(x), sizeof(x));
        if (fabsf(x - due[i]) > 1e-6f)
            return FAIL(ERR_UNSUPPORTED, "%s: tensor '%s' is not the map of %s", map->file,
                        map->name, block_code_name(c->q.code));
    }
    return OK;
}

static enum status find_state(struct coded_tensor *c, const struct st_reader *r)
{
    static const struct {
        const char *suffix;
        enum block_code code;
    } kinds[] = {{"quant_state.bitsandbytes__nf4", CODE_NF4},
                 {"quant_state.bitsandbytes__fp4", CODE_FP4}};
    int n_name = (int)strlen(c->codes->name);
    for (size_t i = 0; i < ARRAY_LEN(kinds) && !c->others[0]; i++) {
        c->others[0] = find(r, c->codes->name, n_name, kinds[i].suffix);
        c->q.code = kinds[i].code;
    }
    if (c->others[0] && c->others[0]->dtype == ST_U8)
        return OK;
    return FAIL(ERR_DATA,
                "%s: tensor '%s' is U8 and not quantised by bitsandbytes: there is no '%s."
                "quant_state.bitsandbytes__nf4'; weights must be F32, BF16, F16 or F64, or "
                "quantised by it",
                c->codes->file, c->codes->name, c->codes->name);
}

static enum status open_4bit(struct coded_tensor *c, const struct st_reader *r,
                             const struct shape *matrix)
{
    const char *name = c->codes->name;
    int n_name = (int)strlen(name);
    struct quant_layout l = {.n_columns = matrix->dim[1], .n_pieces = 1, .rows = {matrix->dim[0]}};
    json_error_t error;
    TRY(find_state(c, r));
    c->absmax = find(r, name, n_name, "absmax");
    c->others[1] = find(r, name, n_name, "quant_map");
    c->q.nested = c->absmax && c->absmax->dtype == ST_U8;
    l.q = c->q;
    struct quant_piece p = quant_piece(&l, 0);
    TRY(need(c->codes, c->codes, "codes", ST_U8, p.n_bytes));
    TRY(need(c->codes, c->absmax, "absmax", c->q.nested ? ST_U8 : ST_F32, p.n_blocks));
    TRY(check_map(c, c->others[1]));
    if (c->q.nested) {
        c->groups = find(r, name, n_name, "nested_absmax");
        c->map = find(r, name, n_name, "nested_quant_map");
        TRY(need(c->codes, c->groups, "nested_absmax", ST_F32, p.n_groups));
        TRY(need(c->codes, c->map, "nested_quant_map", ST_F32, SCALE_CODES));
    }
    json_t *state =
        json_loadb((const char *)c->others[0]->data, (size_t)c->others[0]->n_bytes, 0, &error);
    if (!state)
        return FAIL(ERR_DATA, "%s: tensor '%s' is no JSON: %s", c->others[0]->file,
                    c->others[0]->name, error.text);
    enum status status = check_state(c, state, matrix);
    json_decref(state);
    return status;
}

/* ---- 8 bits ---------------------------------------------------------------------------------- */

static enum status open_8bit(struct coded_tensor *c, const struct st_reader *r,
                             const struct shape *matrix)
{
    const char *name = c->codes->name, *leaf = strrchr(name, '.');
    int n_module = leaf ? (int)(leaf - name) : 0;
    c->q.code = CODE_INT8;
    c->absmax = find(r, name, n_module, "SCB");
    c->others[0] = find(r, name, n_module, "weight_format");
    TRY(need(c->codes, c->codes, "codes", ST_I8, matrix->dim[0] * matrix->dim[1]));
    TRY(need(c->codes, c->absmax, "SCB", ST_F32, matrix->dim[0]));
    if (c->others[0] && c->others[0]->n_bytes > 0 && c->others[0]->data[0] != 0)
        return FAIL(ERR_UNSUPPORTED, "%s: tensor '%s': rows are not one after the other",
                    c->codes->file, c->others[0]->name);
    return OK;
}

/* ---- both ------------------------------------------------------------------------------------ */

enum status coded_tensor_open(struct coded_tensor *c, const struct st_reader *r,
                              const struct st_tensor *t, const struct shape *matrix)
{
    *c = (struct coded_tensor){.codes = t};
    if (matrix->rank != 2)
        return FAIL(ERR_DATA,
                    "%s: tensor '%s' is %s and no matrix; weights must be F32, BF16, F16 "
                    "or F64",
                    t->file, t->name, st_dtype_name(t->dtype));
    return t->dtype == ST_I8 ? open_8bit(c, r, matrix) : open_4bit(c, r, matrix);
}

static enum status read_whole(const struct st_tensor *t, void *to)
{
    return file_read_part(t->file, t->offset, to, (size_t)t->n_bytes);
}

enum status coded_tensor_read(const struct coded_tensor *c, struct coded_matrix *m, int i)
{
    struct quant_piece p = quant_piece(&m->layout, i);
    float *table = m->data.tables + (int64_t)i * SCALE_TABLE;
    int64_t scale_size = c->q.nested ? 1 : (int64_t)sizeof(float);
    TRY(read_whole(c->codes, m->data.codes + p.first_byte));
    TRY(read_whole(c->absmax, (unsigned char *)m->data.absmax + p.first_block * scale_size));
    if (!c->q.nested)
        return OK;
    table[0] = c->offset;
    TRY(read_whole(c->map, table + 1));
    return read_whole(c->groups, m->data.groups + p.first_group);
}
