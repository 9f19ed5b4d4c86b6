/* samples_synthetic.c: see samples.h. Element e of field f of sample i is drawn at
 * philox(seed, stream of f, i * 2^32 + e / 4); a target's is made of N_TERMS elements of the
 * inputs, the same ones in every sample. */
#include <math.h>

#include "base/rng.h"
#include "data/samples.h"

enum { N_TERMS = 4, STREAM_FIELD = 16, STREAM_MIXTURE = 1 };

static float draw(const struct synthetic_samples *s, int f, int64_t i, int64_t e)
{
    struct philox4 w = philox(s->seed, (uint64_t)(STREAM_FIELD + f) << 32 | (uint64_t)(e / 4 >> 32),
                              (uint64_t)i << 32 ^ (uint64_t)(e / 4));
    if (s->facts->fields[f].draw == DRAW_NORMAL) {
        float x, y;
        rng_normal2(w.v[e % 4 / 2 * 2], w.v[e % 4 / 2 * 2 + 1], &x, &y);
        return e % 2 ? y : x;
    }
    return rng_uniform(w.v[e % 4]);
}

/* The element of the inputs, and with which sign, that term k of element e of target f is. */
static float term(const struct synthetic_samples *s, int f, int64_t i, int64_t e, int k)
{
    const struct sample_facts *facts = s->facts;
    struct philox4 w =
        philox(s->seed, STREAM_MIXTURE + (uint64_t)f, (uint64_t)e * N_TERMS + (uint64_t)k);
    int n_inputs = 0, input;
    for (int j = 0; j < facts->n_fields; j++)
        n_inputs += !facts->fields[j].is_target;
    input = (int)(w.v[0] % (uint32_t)n_inputs);
    int64_t n = shape_elems(&facts->fields[input].shape);
    float x = draw(s, input, i, (int64_t)(((uint64_t)w.v[1] << 32 | w.v[2]) % (uint64_t)n));
    if (facts->fields[input].draw == DRAW_UNIFORM)
        x = 2.0f * x - 1.0f;
    return w.v[3] & 1 ? x : -x;
}

static float mixture(const struct synthetic_samples *s, int f, int64_t i, int64_t e)
{
    float sum = 0;
    for (int k = 0; k < N_TERMS; k++)
        sum += term(s, f, i, e, k);
    return sum / sqrtf((float)N_TERMS);
}

static int32_t draw_label(const struct synthetic_samples *s, int f, int64_t i, int64_t e)
{
    int64_t n = s->facts->fields[f].n_classes, best = 0;
    float most = -INFINITY;
    if (s->is_noise || !s->facts->fields[f].is_target)
        return (int32_t)((int64_t)(rng_uniform(philox(s->seed, (uint64_t)(STREAM_FIELD + f) << 32,
                                                      (uint64_t)i << 32 ^ (uint64_t)e)
                                                   .v[0]) *
                                   (float)n) %
                         n);
    for (int64_t c = 0; c < n; c++) {
        float x = mixture(s, f, i, e * n + c);
        best = x > most ? c : best;
        most = x > most ? x : most;
    }
    return (int32_t)best;
}

static float draw_number(const struct synthetic_samples *s, int f, int64_t i, int64_t e)
{
    const struct model_field *field = &s->facts->fields[f];
    float x = field->is_target && !s->is_noise ? mixture(s, f, i, e) : draw(s, f, i, e);
    bool made = field->is_target && !s->is_noise;
    if (field->draw == DRAW_BITS)
        return made ? (x > 0 ? 1.0f : 0.0f) : roundf(x);
    if (field->draw == DRAW_UNIFORM && made)
        return 1.0f / (1.0f + expf(-x));
    return x;
}

static enum status read(void *user, int f, int64_t i, void *out, bool *counts)
{
    const struct synthetic_samples *s = user;
    const struct model_field *field = &s->facts->fields[f];
    int64_t n = shape_elems(&field->shape);
    (void)counts;
    for (int64_t e = 0; e < n; e++) {
        if (field->n_classes)
            ((int32_t *)out)[e] = draw_label(s, f, i, e);
        else
            ((float *)out)[e] = draw_number(s, f, i, e);
    }
    return OK;
}

struct sample_source synthetic_samples(struct synthetic_samples *s, int64_t n_samples)
{
    return (struct sample_source){.user = s, .n_samples = n_samples, .read = read};
}
