#include "data/samples.h"

#include <string.h>

#include "base/alloc.h"
#include "base/half.h"

struct samples {
    const struct sample_facts *facts;
    struct sample_source source;
    float *scratch; /* the largest field of a sample, before it is rounded */
};

static bool is_feature(const struct model_field *f)
{
    return !f->is_target && f->n_classes == 0;
}

void samples_describe(struct batch *b, const struct sample_facts *facts, int64_t rows,
                      enum dtype weights)
{
    for (int i = 0; i < facts->n_fields; i++) {
        const struct model_field *f = &facts->fields[i];
        struct shape shape = {.rank = f->shape.rank + 1, .dim = {rows}};
        memcpy(shape.dim + 1, f->shape.dim, sizeof(shape.dim) - sizeof(shape.dim[0]));
        enum dtype dtype = f->n_classes ? DTYPE_I32 : is_feature(f) ? weights : DTYPE_F32;
        batch_add(b, f->name, dtype, shape);
    }
    batch_add(b, "valid", DTYPE_F32, shape_of(1, rows));
}

enum status samples_open(struct samples **out, const struct sample_facts *facts,
                         const struct sample_source *source)
{
    struct samples *s;
    int64_t most = 1;
    *out = NULL;
    for (int i = 0; i < facts->n_fields; i++)
        most = MAX(most, shape_elems(&facts->fields[i].shape));
    TRY(mem_try_array(&s, 1, sizeof(*s)));
    *s = (struct samples){.facts = facts, .source = *source};
    enum status status = mem_try_array(&s->scratch, (size_t)most, sizeof(*s->scratch));
    if (status != OK) {
        mem_free(s);
        return status;
    }
    *out = s;
    return OK;
}

void samples_free(struct samples *s)
{
    if (!s)
        return;
    mem_free(s->scratch);
    mem_free(s);
}

static void round_to(enum dtype dtype, const float *from, int64_t n, uint16_t *to)
{
    if (dtype == DTYPE_BF16) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            to[i] = bf16_from_f32(from[i]);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        to[i] = f16_from_f32(from[i]);
}

/* Targets may be no class; what the network looks up is one even where the sample does not count.
 */
static bool is_looked_up(const struct model_field *f)
{
    return !f->is_target && f->n_classes > 0;
}

static void make_classes(const struct model_field *f, int32_t *classes)
{
    for (int64_t e = 0; e < shape_elems(&f->shape); e++)
        classes[e] = MAX(classes[e], 0);
}

static enum status read_sample(void *user, int64_t i, struct batch *b, int64_t row)
{
    struct samples *s = user;
    bool counts = true;
    for (int f = 0; f < s->facts->n_fields; f++) {
        enum dtype dtype = b->items[f].tensor.dtype;
        bool narrow = dtype_size(dtype) == 2;
        void *to = narrow ? (void *)s->scratch : batch_row(b, f, row);
        TRY(s->source.read(s->source.user, f, i, to, &counts));
        if (narrow)
            round_to(dtype, s->scratch, shape_elems(&s->facts->fields[f].shape),
                     batch_row(b, f, row));
        if (is_looked_up(&s->facts->fields[f]))
            make_classes(&s->facts->fields[f], batch_row(b, f, row));
    }
    *(float *)batch_row(b, s->facts->n_fields, row) = counts ? 1.0f : 0.0f;
    b->n_valid += counts;
    return OK;
}

/* A row that does not count: zeros, and targets that are no class. */
static void blank_sample(void *user, struct batch *b, int64_t row)
{
    const struct samples *s = user;
    for (int f = 0; f < b->n_items; f++) {
        struct shape shape = b->items[f].tensor.shape;
        size_t n_bytes = (size_t)(shape_inner(&shape, 1) * dtype_size(b->items[f].tensor.dtype));
        bool labels = f < s->facts->n_fields && s->facts->fields[f].is_target &&
                      s->facts->fields[f].n_classes;
        memset(batch_row(b, f, row), labels ? 0xFF : 0, n_bytes);
    }
}

struct dataset samples_dataset(struct samples *s)
{
    return (struct dataset){
        .user = s,
        .n_samples = s->source.n_samples,
        .noun = "samples",
        .size = s->facts->n_fields,
        .size_noun = "tensors",
        .read = read_sample,
        .blank = blank_sample,
    };
}
