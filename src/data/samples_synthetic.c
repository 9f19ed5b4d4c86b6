/* samples_synthetic.c: see samples.h.
 *
 * A sample has a few hidden numbers: one for each channel of an input, or for each element of a
 * vector. A vector is these numbers themselves; on the other axes of an image noise is added to its
 * channel's. An element of a target is the sum of N_TERMS hidden numbers, the same ones in every
 * sample; a label is the class whose sum is the largest.
 */
#include <math.h>

#include "base/rng.h"
#include "data/samples.h"

enum { N_TERMS = 4 };
enum { STREAM_HIDDEN = 1, STREAM_NOISE, STREAM_MIXTURE, STREAM_TARGET };

/* Words of element e of field f in sample i. */
static struct philox4 words(const struct synthetic_samples *s, int stream, int f, int64_t i,
                            int64_t e)
{
    uint64_t high = (uint64_t)stream << 56 | (uint64_t)f << 48 | (uint64_t)i;
    return philox(s->seed, high, (uint64_t)e);
}

static float draw(enum field_draw how, struct philox4 w)
{
    float x, y;
    if (how != DRAW_NORMAL)
        return rng_uniform(w.v[0]);
    rng_normal2(w.v[0], w.v[1], &x, &y);
    return x;
}

static float input_element(const struct synthetic_samples *s, int f, int64_t i, int64_t e)
{
    const struct model_field *field = &s->facts->fields[f];
    int64_t channel = e % shape_last(&field->shape);
    float hidden = draw(field->draw, words(s, STREAM_HIDDEN, f, i, channel));
    if (field->draw == DRAW_CODES)
        return floorf(1024.0f * hidden);
    if (field->shape.rank == 1)
        return hidden;
    float noise = draw(field->draw, words(s, STREAM_NOISE, f, i, e));
    return field->draw == DRAW_NORMAL ? (hidden + noise) * sqrtf(0.5f) : 0.5f * (hidden + noise);
}

/* A hidden number of an input, around 0, with the sign that it has in a target. */
static float term(const struct synthetic_samples *s, int f, int64_t i, int64_t e, int k)
{
    const struct model_field *fields = s->facts->fields;
    struct philox4 w = words(s, STREAM_MIXTURE, f, 0, e * N_TERMS + k);
    uint32_t n_inputs = 0;
    while (!fields[n_inputs].is_target && !fields[n_inputs].n_classes)
        n_inputs++; /* inputs that are classes come after those that are numbers */
    int input = (int)(w.v[0] % n_inputs);
    int64_t channel = (int64_t)(w.v[1] % (uint64_t)shape_last(&fields[input].shape));
    float x = draw(fields[input].draw, words(s, STREAM_HIDDEN, input, i, channel));
    if (fields[input].draw != DRAW_NORMAL)
        x = sqrtf(12.0f) * (x - 0.5f);
    return w.v[2] & 1 ? x : -x;
}

static float mixture(const struct synthetic_samples *s, int f, int64_t i, int64_t e)
{
    float sum = 0;
    for (int k = 0; k < N_TERMS; k++)
        sum += term(s, f, i, e, k);
    return sum / sqrtf((float)N_TERMS);
}

static int32_t label(const struct synthetic_samples *s, int f, int64_t i, int64_t e)
{
    int64_t n = s->facts->fields[f].n_classes, best = 0;
    float most = -INFINITY;
    if (s->is_noise)
        return (int32_t)(words(s, STREAM_TARGET, f, i, e).v[0] % (uint64_t)n);
    for (int64_t c = 0; c < n; c++) {
        float x = mixture(s, f, i, e * n + c);
        best = x > most ? c : best;
        most = x > most ? x : most;
    }
    return (int32_t)best;
}

static float target_element(const struct synthetic_samples *s, int f, int64_t i, int64_t e)
{
    float x =
        s->is_noise ? draw(DRAW_NORMAL, words(s, STREAM_TARGET, f, i, e)) : mixture(s, f, i, e);
    return s->facts->fields[f].draw == DRAW_BITS ? (x > 0 ? 1.0f : 0.0f) : x;
}

static enum status read(void *user, int f, int64_t i, void *out, bool *counts)
{
    const struct synthetic_samples *s = user;
    const struct model_field *field = &s->facts->fields[f];
    int64_t n = shape_elems(&field->shape);
    (void)counts;
    for (int64_t e = 0; e < n; e++) {
        if (field->n_classes)
            ((int32_t *)out)[e] = label(s, f, i, e);
        else
            ((float *)out)[e] =
                field->is_target ? target_element(s, f, i, e) : input_element(s, f, i, e);
    }
    return OK;
}

struct sample_source synthetic_samples(struct synthetic_samples *s, int64_t n_samples)
{
    return (struct sample_source){.user = s, .n_samples = n_samples, .read = read};
}
