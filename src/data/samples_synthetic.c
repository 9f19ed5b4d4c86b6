/* samples_synthetic.c: see samples.h.
 *
 * A sample has a few hidden numbers: one for each channel of an input, or for each element of a
 * vector. A vector is these numbers themselves; on the other axes of an image noise is added to its
 * channel's. An element of a target is the sum of N_TERMS hidden numbers, the same ones in every
 * sample; a label is the class whose sum is the largest.
 *
 * Images are large and must not keep a GPU waiting: noise is drawn once, and every run of
 * SYNTHETIC_NOISE elements has it from another place on; a target of more elements than that (the
 * mask of a clip) has those of its first run over and over.
 */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "base/rng.h"
#include "data/samples.h"

enum { N_TERMS = 4, DRAWS = 4 }; /* numbers that one draw of words is good for */
static const int64_t NO_SAMPLE = (INT64_C(1) << 48) - 1; /* what belongs to none */
enum { STREAM_HIDDEN = 1, STREAM_NOISE, STREAM_MIXTURE, STREAM_TARGET };

/* Words number e of field f in sample i. */
static struct philox4 words(const struct synthetic_samples *s, int stream, int f, int64_t i,
                            int64_t e)
{
    uint64_t high = (uint64_t)stream << 56 | (uint64_t)f << 48 | (uint64_t)i;
    return philox(s->seed, high, (uint64_t)e);
}

static void draw(enum field_draw how, struct philox4 w, float x[DRAWS])
{
    if (how == DRAW_NORMAL) {
        rng_normal2(w.v[0], w.v[1], &x[0], &x[1]);
        rng_normal2(w.v[2], w.v[3], &x[2], &x[3]);
        return;
    }
    for (int k = 0; k < DRAWS; k++)
        x[k] = rng_uniform(w.v[k]);
}

/* Hidden number e of input f in sample i. */
static float hidden(const struct synthetic_samples *s, int f, int64_t i, int64_t e)
{
    float x[DRAWS];
    draw(s->facts->fields[f].draw, words(s, STREAM_HIDDEN, f, i, e / DRAWS), x);
    return x[e % DRAWS];
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static void read_vector(const struct synthetic_samples *s, int f, int64_t i, float *out, int64_t n)
{
    const struct model_field *field = &s->facts->fields[f];
    for (int64_t e = 0; e < n; e += DRAWS) {
        float x[DRAWS];
        draw(field->draw, words(s, STREAM_HIDDEN, f, i, e / DRAWS), x);
        for (int64_t k = e; k < MIN(e + DRAWS, n); k++)
            out[k] = field->draw == DRAW_CODES ? floorf(1024.0f * x[k - e]) : x[k - e];
    }
}

/* The channels' numbers as they stand behind one another in elements [e, e + n). */
static void lay_numbers(const struct synthetic_samples *s, int f, int64_t i, int64_t e, int64_t n,
                        float *numbers)
{
    const int64_t n_channels = shape_last(&s->facts->fields[f].shape);
    for (int64_t k = 0; k < n; k++)
        numbers[k] =
            k < n_channels ? hidden(s, f, i, (e + k) % n_channels) : numbers[k - n_channels];
}

/* (number of the channel + noise) * factor, run by run. */
static void read_image(const struct synthetic_samples *s, int f, int64_t i, float *out, int64_t n)
{
    const struct model_field *field = &s->facts->fields[f];
    const float *normal = field->draw == DRAW_NORMAL ? s->normal : NULL;
    const float factor = normal ? sqrtf(0.5f) : 0.5f;
    const int64_t n_channels = shape_last(&field->shape);
    const bool wide = n_channels > SYNTHETIC_NOISE; /* every run has numbers of its own */
    float numbers[2 * SYNTHETIC_NOISE];
    if (!wide)
        lay_numbers(s, f, i, 0, SYNTHETIC_NOISE + n_channels, numbers);
    for (int64_t e = 0; e < n; e += SYNTHETIC_NOISE) {
        int64_t from = words(s, STREAM_NOISE, f, i, e / SYNTHETIC_NOISE).v[0] % SYNTHETIC_NOISE;
        const float *noise = (normal ? normal : s->uniform) + from;
        const float *number = numbers + (wide ? 0 : e % n_channels);
        const int64_t n_run = MIN((int64_t)SYNTHETIC_NOISE, n - e);
        if (wide)
            lay_numbers(s, f, i, e, n_run, numbers);
#pragma omp simd
        for (int64_t k = 0; k < n_run; k++)
            out[e + k] = (number[k] + noise[k]) * factor;
    }
}

static void read_input(const struct synthetic_samples *s, int f, int64_t i, float *out)
{
    const struct shape *shape = &s->facts->fields[f].shape;
    int64_t n = shape_elems(shape);
    if (shape->rank == 1 || s->facts->fields[f].draw == DRAW_CODES)
        read_vector(s, f, i, out, n);
    else
        read_image(s, f, i, out, n);
}

/* ---- targets --------------------------------------------------------------------------------- */

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
    float x = hidden(s, input, i, channel);
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
    float x[DRAWS];
    if (s->is_noise)
        draw(DRAW_NORMAL, words(s, STREAM_TARGET, f, i, e), x);
    else
        x[0] = mixture(s, f, i, e);
    return s->facts->fields[f].draw == DRAW_BITS ? (x[0] > 0 ? 1.0f : 0.0f) : x[0];
}

/* Elements [n_made, n) of four bytes: those before them, again. */
static void repeat(char *out, int64_t n_made, int64_t n)
{
    for (int64_t e = n_made; e < n; e += n_made)
        memcpy(out + 4 * e, out, (size_t)(4 * MIN(n_made, n - e)));
}

static void read_target(const struct synthetic_samples *s, int f, int64_t i, void *out)
{
    const struct model_field *field = &s->facts->fields[f];
    int64_t n = shape_elems(&field->shape), n_made = MIN(n, SYNTHETIC_NOISE);
    for (int64_t e = 0; e < n_made; e++) {
        if (field->n_classes)
            ((int32_t *)out)[e] = label(s, f, i, e);
        else
            ((float *)out)[e] = target_element(s, f, i, e);
    }
    repeat(out, n_made, n);
}

static enum status read(void *user, int f, int64_t i, void *out, bool *counts)
{
    const struct synthetic_samples *s = user;
    const struct model_field *field = &s->facts->fields[f];
    (void)counts;
    if (field->is_target || field->n_classes)
        read_target(s, f, i, out);
    else
        read_input(s, f, i, out);
    return OK;
}

struct sample_source synthetic_samples(struct synthetic_samples *s, int64_t n_samples)
{
    for (int64_t e = 0; e < SYNTHETIC_NOISE; e += DRAWS) {
        draw(DRAW_NORMAL, words(s, STREAM_NOISE, 0, NO_SAMPLE, e), &s->normal[e]);
        draw(DRAW_UNIFORM, words(s, STREAM_NOISE, 1, NO_SAMPLE, e), &s->uniform[e]);
    }
    for (int64_t e = 0; e < SYNTHETIC_NOISE; e++) {
        s->normal[SYNTHETIC_NOISE + e] = s->normal[e];
        s->uniform[SYNTHETIC_NOISE + e] = s->uniform[e];
    }
    return (struct sample_source){.user = s, .n_samples = n_samples, .read = read};
}
