#include "train/divergence.h"

#include <math.h>

#include "base/compiler.h"

#define DECAY 0.99

/* Turns among n numbers that are noise alone: two in three, with this variance times 1 / n; the
 * running mean is as good as one over so many. */
#define TURNS_EXPECTED (2.0 / 3.0)
#define TURNS_VARIANCE (16.0 / 90.0)
#define MEAN_OF        ((1.0 + DECAY) / (1.0 - DECAY))

/* A mean over all there is until that is more than the decay remembers. */
static double rate_of(const struct divergence *d)
{
    return fmax(1.0 - DECAY, 1.0 / (double)(d->n + 1));
}

static enum divergence_level higher(enum divergence_level a, enum divergence_level b)
{
    return a > b ? a : b;
}

static enum divergence_level grade(double x, double caution, double warning, double critical)
{
    return x > critical  ? DIVERGENCE_CRITICAL
           : x > warning ? DIVERGENCE_WARNING
           : x > caution ? DIVERGENCE_CAUTION
                         : DIVERGENCE_NONE;
}

static enum divergence_level level_of(const struct divergence *d, double sigma, double loss,
                                      double norm)
{
    const double never = (double)INFINITY;
    double deviation = sqrt(d->square);
    double z = deviation > 0 ? (loss - d->loss) / deviation : 0;
    double turns = (d->turns - TURNS_EXPECTED) / sqrt(TURNS_VARIANCE / fmin((double)d->n, MEAN_OF));
    enum divergence_level level = grade(z, 0.7 * sigma, sigma, 2 * sigma);
    if (d->norm > 0)
        level = higher(level, grade(norm / d->norm, never, 10, 100));
    return higher(level, grade(turns, 2, 4, never));
}

static void take(struct divergence *d, double loss, double norm)
{
    double rate = rate_of(d), off = loss - d->loss, rise = loss - d->last;
    if (d->n > 1) {
        double turn_rate = fmax(1.0 - DECAY, 1.0 / (double)(d->n - 1));
        d->turns += turn_rate * ((rise * d->rise < 0 ? 1 : 0) - d->turns);
    }
    d->rise = d->n > 0 ? rise : 0;
    d->last = loss;
    d->square = (1 - rate) * (d->square + rate * off * off);
    d->loss += rate * off;
    if (isfinite(norm)) /* of a step that overflowed there is none */
        d->norm += rate * (norm - d->norm);
    d->n++;
}

enum divergence_level divergence_step(struct divergence *d, double sigma, double loss, double norm)
{
    enum divergence_level level = DIVERGENCE_NONE;
    if (!isfinite(loss))
        return DIVERGENCE_CRITICAL;
    if (d->n >= DIVERGENCE_FIRST)
        level = level_of(d, sigma, loss, isfinite(norm) ? norm : 0);
    d->n_warnings = level >= DIVERGENCE_WARNING ? d->n_warnings + 1 : 0;
    take(d, loss, norm);
    return d->n_warnings >= 3 ? DIVERGENCE_CRITICAL : level;
}

void divergence_expect(struct divergence *d, double difference)
{
    d->loss += difference;
    d->last += difference;
}

/* ---- in checkpoints -------------------------------------------------------------------------- */

json_t *divergence_json(const struct divergence *d)
{
    return json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "n", (json_int_t)d->n, "warnings",
                     (json_int_t)d->n_warnings, "loss", d->loss, "square", d->square, "norm",
                     d->norm, "turns", d->turns, "last", d->last, "rise", d->rise);
}

enum status divergence_read(struct divergence *d, const json_t *o)
{
    const struct {
        const char *key;
        double *to;
    } numbers[] = {{"loss", &d->loss},   {"square", &d->square}, {"norm", &d->norm},
                   {"turns", &d->turns}, {"last", &d->last},     {"rise", &d->rise}};
    const json_t *n = json_object_get(o, "n"), *warnings = json_object_get(o, "warnings");
    if (!json_is_integer(n) || json_integer_value(n) < 0 || !json_is_integer(warnings))
        return FAIL(ERR_CHECKPOINT, "state.json: 'divergence' has no 'n' or no 'warnings'");
    d->n = json_integer_value(n);
    d->n_warnings = json_integer_value(warnings);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        const json_t *x = json_object_get(o, numbers[i].key);
        if (!json_is_number(x))
            return FAIL(ERR_CHECKPOINT, "state.json: 'divergence' has no '%s'", numbers[i].key);
        *numbers[i].to = json_number_value(x);
    }
    return OK;
}
