/* gguf_quants_k.c: GGUF's blocks of 256: groups with a scale each, which is itself an integer.
 *
 * The integers of a group are found together with its scale (and minimum): rounding for a number of
 * scales around the one that spans the group, least squares for what those integers stand for, and
 * the best of all by weighted squared error. Large weights count more: they do in products.
 */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "base/half.h"
#include "io/gguf_types.h"

enum { BLOCK = 256, GROUP = 32, N_GROUPS = BLOCK / GROUP, SMALL = 16, N_SMALL = BLOCK / SMALL };

static void put_f16(uint8_t *out, uint16_t h)
{
    out[0] = (uint8_t)(h & 0xff);
    out[1] = (uint8_t)(h >> 8);
}

static int clamp(float x, int least, int most)
{
    return (int)fminf(fmaxf(rintf(x), (float)least), (float)most);
}

/* ---- groups with a minimum: x = scale q - low, q in 0 .. most ---------------------------------
 */

struct affine {
    float scale, low; /* both >= 0 */
};

/* Groups that span less than this are stored as zero, or as one number. */
#define LEAST_SPAN 1e-30f

static int round_affine(float x, struct affine a, float inverse, int most)
{
    float at = (x + a.low) * inverse + 0.5f;
    at = at > (float)most ? (float)most : at;
    return at > 0 ? (int)at : 0;
}

static void group_weights(const float *x, float *w)
{
    double squares = 0;
    for (int i = 0; i < GROUP; i++)
        squares += (double)x[i] * (double)x[i];
    float typical = (float)sqrt(squares / GROUP);
    for (int i = 0; i < GROUP; i++)
        w[i] = typical + fabsf(x[i]);
}

/* Weighted sums over a group. */
struct sums {
    double w, x, xx, q, qq, xq;
};

static struct sums sum_up(const float *x, const float *w, struct affine a, int most)
{
    struct sums s = {0};
    float inverse = 1.0f / a.scale;
    for (int i = 0; i < GROUP; i++) {
        double q = round_affine(x[i], a, inverse, most), wi = (double)w[i], xi = (double)x[i];
        s.w += wi;
        s.x += wi * xi;
        s.xx += wi * xi * xi;
        s.q += wi * q;
        s.qq += wi * q * q;
        s.xq += wi * xi * q;
    }
    return s;
}

/* What fits best where `a` rounds the elements to, and the error it makes there. */
static struct affine refit(const float *x, const float *w, struct affine a, int most, double *error)
{
    struct sums s = sum_up(x, w, a, most);
    double d = s.w * s.qq - s.q * s.q, scale = (double)a.scale, low = (double)a.low;
    if (d > 0) {
        scale = (s.w * s.xq - s.x * s.q) / d;
        low = (s.q * s.xq - s.qq * s.x) / d;
        if (low < 0) {
            low = 0;
            scale = s.xq / s.qq;
        }
    }
    *error = s.xx + scale * scale * s.qq + low * low * s.w - 2 * scale * s.xq + 2 * low * s.x -
             2 * scale * low * s.q;
    return (struct affine){(float)scale, (float)low};
}

static struct affine fit_affine(const float *x, int most)
{
    enum { TRIALS = 20 };
    float w[GROUP], least = 0, greatest = x[0];
    for (int i = 0; i < GROUP; i++) {
        least = fminf(least, x[i]);
        greatest = fmaxf(greatest, x[i]);
    }
    float span = greatest - least;
    struct affine best = {0, -least};
    double best_error = HUGE_VAL, error;
    if (!(span > LEAST_SPAN))
        return best;
    group_weights(x, w);
    for (int i = 0; i <= TRIALS; i++) {
        struct affine a = {span / ((float)most - 1.0f + 0.1f * (float)i), -least};
        a = refit(x, w, a, most, &error);
        if (error < best_error && a.scale * (float)most > LEAST_SPAN) {
            best = a;
            best_error = error;
        }
    }
    return best;
}

/* Eight scales and minima of 6 bits in 12 bytes: the low four pairs whole, the others split between
 * the last four bytes and the upper bits of the first eight. */
static void pack_scales(const uint8_t scale[N_GROUPS], const uint8_t low[N_GROUPS], uint8_t out[12])
{
    for (int j = 0; j < 4; j++) {
        out[j] = (uint8_t)(scale[j] | (scale[j + 4] >> 4) << 6);
        out[j + 4] = (uint8_t)(low[j] | (low[j + 4] >> 4) << 6);
        out[j + 8] = (uint8_t)((scale[j + 4] & 15) | (low[j + 4] & 15) << 4);
    }
}

/* Writes d, m and the scales; q = the integers for what those came to be. */
static void encode_affine(const float *x, int most, uint8_t out[16], uint8_t q[BLOCK])
{
    struct affine fits[N_GROUPS];
    uint8_t scales[N_GROUPS], lows[N_GROUPS];
    float top_scale = 0, top_low = 0;
    for (int j = 0; j < N_GROUPS; j++) {
        fits[j] = fit_affine(x + j * GROUP, most);
        top_scale = fmaxf(top_scale, fits[j].scale);
        top_low = fmaxf(top_low, fits[j].low);
    }
    uint16_t d = f16_from_f32(top_scale / 63.0f), m = f16_from_f32(top_low / 63.0f);
    for (int j = 0; j < N_GROUPS; j++) {
        scales[j] = (uint8_t)(top_scale > 0 ? clamp(63.0f * fits[j].scale / top_scale, 0, 63) : 0);
        lows[j] = (uint8_t)(top_low > 0 ? clamp(63.0f * fits[j].low / top_low, 0, 63) : 0);
        float scale = f16_to_f32(d) * (float)scales[j], low = f16_to_f32(m) * (float)lows[j];
        for (int i = 0; i < GROUP; i++) {
            float at = scale > 0 ? (x[j * GROUP + i] + low) / scale : 0.0f;
            q[j * GROUP + i] = (uint8_t)clamp(at, 0, most);
        }
    }
    put_f16(out, d);
    put_f16(out + 2, m);
    pack_scales(scales, lows, out + 4);
}

/* Group 2 k in the lower halves of 32 bytes, group 2 k + 1 in the upper ones. */
static void pack_nibbles(const uint8_t q[BLOCK], uint8_t *out)
{
    for (int k = 0; k < N_GROUPS / 2; k++)
        for (int i = 0; i < GROUP; i++) {
            const uint8_t *pair = q + 2 * k * GROUP + i;
            out[k * GROUP + i] = (uint8_t)((pair[0] & 15) | (pair[GROUP] & 15) << 4);
        }
}

void gguf_block_q4_k(const float *x, uint8_t *out)
{
    uint8_t q[BLOCK];
    encode_affine(x, 15, out, q);
    pack_nibbles(q, out + 16);
}

/* The fifth bit of element i of group j is bit j of byte i. */
void gguf_block_q5_k(const float *x, uint8_t *out)
{
    uint8_t q[BLOCK];
    encode_affine(x, 31, out, q);
    memset(out + 16, 0, GROUP);
    for (int j = 0; j < BLOCK; j++)
        out[16 + j % GROUP] = (uint8_t)(out[16 + j % GROUP] | (q[j] >> 4) << (j / GROUP));
    pack_nibbles(q, out + 16 + GROUP);
}

/* ---- groups around zero: x = scale q, q in -32 .. 31 ------------------------------------------
 */

static float fit_linear(const float *x)
{
    enum { TRIALS = 9 };
    float extreme = 0, best = 0;
    double best_gain = 0;
    for (int i = 0; i < SMALL; i++)
        if (fabsf(x[i]) > fabsf(extreme))
            extreme = x[i];
    if (!(fabsf(extreme) > LEAST_SPAN))
        return 0;
    for (int k = -TRIALS; k <= TRIALS; k++) {
        float inverse = -(32.0f + 0.1f * (float)k) / extreme;
        double xq = 0, qq = 0;
        for (int i = 0; i < SMALL; i++) {
            double w = (double)x[i] * (double)x[i], q = clamp(x[i] * inverse, -32, 31);
            xq += w * (double)x[i] * q;
            qq += w * q * q;
        }
        if (qq > 0 && xq * xq > best_gain * qq) {
            best_gain = xq * xq / qq;
            best = (float)(xq / qq);
        }
    }
    return best;
}

/* Of 128 elements: the lower four bits of each, and two more of four elements in a byte. */
static void pack_sixes(const uint8_t q[128], uint8_t *low, uint8_t *high)
{
    for (int i = 0; i < 32; i++) {
        low[i] = (uint8_t)((q[i] & 15) | (q[i + 64] & 15) << 4);
        low[i + 32] = (uint8_t)((q[i + 32] & 15) | (q[i + 96] & 15) << 4);
        high[i] = (uint8_t)(q[i] >> 4 | (q[i + 32] >> 4) << 2 | (q[i + 64] >> 4) << 4 |
                            (q[i + 96] >> 4) << 6);
    }
}

void gguf_block_q6_k(const float *x, uint8_t *out)
{
    float fits[N_SMALL], top = 0;
    uint8_t q[BLOCK], *scales = out + 192;
    for (int j = 0; j < N_SMALL; j++) {
        fits[j] = fit_linear(x + j * SMALL);
        if (fabsf(fits[j]) > fabsf(top))
            top = fits[j];
    }
    uint16_t d = f16_from_f32(top / -128.0f);
    for (int j = 0; j < N_SMALL; j++) {
        int s = fabsf(top) > 0 ? clamp(-128.0f * fits[j] / top, -128, 127) : 0;
        float scale = f16_to_f32(d) * (float)s;
        scales[j] = (uint8_t)(int8_t)s;
        for (int i = 0; i < SMALL; i++) {
            float at = fabsf(scale) > 0 ? x[j * SMALL + i] / scale : 0.0f;
            q[j * SMALL + i] = (uint8_t)(clamp(at, -32, 31) + 32);
        }
    }
    for (int k = 0; k < 2; k++)
        pack_sixes(q + 128 * k, out + 64 * k, out + 128 + 32 * k);
    put_f16(out + 208, d);
}
