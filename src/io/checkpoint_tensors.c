/* checkpoint_tensors.c: optimizer.safetensors: states by name, bit for bit. */
#include <string.h>

#include "base/str.h"
#include "io/checkpoint_internal.h"
#include "io/file_hash.h"

/* What a dtype is called in the file. */
static bool file_dtype(enum dtype dtype, enum st_dtype *out)
{
    static const struct {
        enum dtype ours;
        enum st_dtype file;
    } pairs[] = {
        {DTYPE_F32, ST_F32}, {DTYPE_F64, ST_F64}, {DTYPE_BF16, ST_BF16}, {DTYPE_F16, ST_F16},
        {DTYPE_I32, ST_I32}, {DTYPE_I64, ST_I64}, {DTYPE_U8, ST_U8},
    };
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        if (pairs[i].ours == dtype) {
            *out = pairs[i].file;
            return true;
        }
    }
    return false;
}

static enum status write_tensor(struct st_writer *w, const struct tensor *t,
                                const struct tensor_stage *stage)
{
    int64_t n = shape_elems(&t->shape), most = stage_elems(stage, t, 1);
    for (int64_t at = 0; at < n; at += most) {
        struct tensor part = tensor_part(t, at, MIN(most, n - at)), host;
        TRY(stage_fetch(stage, &part, &host));
        TRY(st_writer_append(w, host.data, (size_t)tensor_bytes(&host)));
    }
    return OK;
}

static enum status write_all(struct st_writer *w, const char *path,
                             const struct checkpoint_tensor *states, size_t n_states,
                             const struct tensor_stage *stage)
{
    for (size_t i = 0; i < n_states; i++) {
        const struct tensor *t = &states[i].tensor;
        enum st_dtype dtype;
        if (!file_dtype(t->dtype, &dtype))
            return FAIL(ERR_INTERNAL, "state '%s': dtype %s has no place in a file", states[i].name,
                        dtype_name(t->dtype));
        TRY(st_writer_add(w, states[i].name, dtype, t->shape.rank, t->shape.dim));
    }
    TRY(st_writer_open_file(w, path));
    for (int64_t i = st_writer_next(w); i >= 0; i = st_writer_next(w)) {
        TRY(write_tensor(w, &states[i].tensor, stage));
    }
    return st_writer_finish(w, 1);
}

enum status checkpoint_write_tensors(const char *folder, const struct checkpoint_tensor *states,
                                     size_t n_states, const struct tensor_stage *stage)
{
    struct str path = {0};
    struct st_writer *w = NULL;
    enum status status;
    str_addf(&path, "%s/" CHECKPOINT_OPTIMIZER_FILE, folder);
    TRY_GOTO(str_status(&path), out);
    TRY_GOTO(st_writer_new(&w), out);
    TRY_GOTO(write_all(w, path.text, states, n_states, stage), out);
out:
    st_writer_free(w);
    str_release(&path);
    return status;
}

static struct shape stored_shape(const struct st_tensor *t)
{
    struct shape shape = {.rank = MIN(t->rank, MAX_RANK)};
    for (int i = 0; i < shape.rank; i++)
        shape.dim[i] = t->dims[i];
    return shape;
}

static bool is_alike(const struct st_tensor *t, const struct tensor *dst)
{
    const struct shape shape = stored_shape(t);
    enum st_dtype dtype;
    return t->rank == shape.rank && shape_equal(&shape, &dst->shape) &&
           file_dtype(dst->dtype, &dtype) && dtype == t->dtype;
}

bool checkpoint_has_tensor(const struct st_reader *reader, const char *name,
                           const struct tensor *dst)
{
    const struct st_tensor *t = st_reader_find(reader, name);
    return t && is_alike(t, dst);
}

enum status checkpoint_read_tensor(const struct st_reader *reader, const char *name,
                                   const struct tensor *dst, const struct tensor_stage *stage)
{
    const struct st_tensor *t;
    TRY(st_reader_get(reader, name, &t));
    if (!is_alike(t, dst)) {
        const struct shape shape = stored_shape(t);
        char have[SHAPE_TEXT], want[SHAPE_TEXT];
        return FAIL(ERR_CHECKPOINT,
                    "%s: '%s' is %s %s, this run needs %s %s; the model, the optimizer or the "
                    "precision is not the one it was saved with, or the version of Snug that "
                    "saved it kept other numbers. A new run can start from its weights "
                    "(model_name_or_path)",
                    t->file, name, st_dtype_name(t->dtype), shape_text(have, &shape),
                    dtype_name(dst->dtype), shape_text(want, &dst->shape));
    }
    int64_t most = stage_elems(stage, dst, 1), size = dtype_size(dst->dtype);
    for (int64_t at = 0; at < t->n_elems; at += most) {
        struct tensor part = tensor_part(dst, at, MIN(most, t->n_elems - at));
        struct tensor host = stage_tensor(stage, &part);
        TRY(file_read_part(t->file, t->offset + at * size, host.data, (size_t)tensor_bytes(&part)));
        TRY(stage_store(stage, &part));
    }
    return OK;
}
