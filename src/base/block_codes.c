#include "base/block_codes.h"

#include <math.h>

static const float nf4_values[CODE4_VALUES] = NF4_VALUES;
static const float fp4_values[CODE4_VALUES] = FP4_VALUES;
/* Codes by rising number. Of the two zeros the first stands for 0 and the numbers just below. */
static const uint8_t nf4_order[CODE4_VALUES] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                8, 9, 10, 11, 12, 13, 14, 15};
static const uint8_t fp4_order[CODE4_VALUES] = {11, 10, 13, 12, 15, 14, 9, 0,
                                                8,  1,  6,  7,  4,  5,  2, 3};

/* bitsandbytes' least scale: its inverse is finite. */
#define LEAST_SCALE 1e-38f

const char *block_code_name(enum block_code k)
{
    static const char *const names[CODE_COUNT] = {"none", "nf4", "fp4", "int8"};
    return names[k];
}

const float *code4_values(enum block_code k)
{
    return k == CODE_FP4 ? fp4_values : nf4_values;
}

static const uint8_t *code4_order(enum block_code k)
{
    return k == CODE_FP4 ? fp4_order : nf4_order;
}

static float largest(const float *x, int64_t n)
{
    float most = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        float magnitude = fabsf(x[i]);
        most = magnitude > most ? magnitude : most;
    }
    return most;
}

/* ---- 4 bits ---------------------------------------------------------------------------------- */

/* Midway between neighbours; a number on a border gets the lower one. */
static void find_borders(enum block_code k, float borders[CODE4_VALUES - 1])
{
    const float *values = code4_values(k);
    const uint8_t *order = code4_order(k);
    for (int i = 0; i + 1 < CODE4_VALUES; i++)
        borders[i] = (values[order[i]] + values[order[i + 1]]) / 2.0f;
}

static void find_ranks(const float *x, int64_t n, const float *borders, uint8_t *ranks)
{
    for (int64_t i = 0; i < n; i++) {
        int rank = 0;
        for (int k = 0; k + 1 < CODE4_VALUES; k++)
            rank += x[i] > borders[k];
        ranks[i] = (uint8_t)rank;
    }
}

float code4_encode(enum block_code k, const float *x, int64_t n, uint8_t *codes)
{
    float share[CODE4_BLOCK] = {0}, borders[CODE4_VALUES - 1];
    uint8_t ranks[CODE4_BLOCK];
    const uint8_t *order = code4_order(k);
    bool whole = n == CODE4_BLOCK;
    float scale = largest(x, n), divisor = fmaxf(scale, LEAST_SCALE), inverse = 1.0f / divisor;
    for (int64_t i = 0; i < n; i++)
        share[i] = whole ? x[i] * inverse : x[i] / divisor;
    find_borders(k, borders);
    find_ranks(share, n + n % 2, borders, ranks);
    for (int64_t i = 0; i < n; i += 2)
        codes[i / 2] = (uint8_t)(order[ranks[i]] << 4 | order[ranks[i + 1]]);
    return whole ? scale : divisor;
}

void code4_decode(enum block_code k, const uint8_t *codes, int64_t n, float scale, float *x)
{
    const float *values = code4_values(k);
    float scaled[CODE4_VALUES];
    for (int i = 0; i < CODE4_VALUES; i++)
        scaled[i] = values[i] * scale;
    for (int64_t i = 0; i < n / 2; i++) {
        x[2 * i] = scaled[codes[i] >> 4];
        x[2 * i + 1] = scaled[codes[i] & 15];
    }
    if (n % 2)
        x[n - 1] = scaled[codes[n / 2] >> 4];
}

/* ---- 8 bits ---------------------------------------------------------------------------------- */

float int8_encode(const float *x, int64_t n, uint8_t *codes)
{
    float scale = largest(x, n), inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    float factor = 127.0f * inverse; /* as PyTorch divides a number by a tensor */
    for (int64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)(int8_t)rintf(x[i] * factor);
    return scale;
}

void int8_decode(const uint8_t *codes, int64_t n, float scale, float *x)
{
    for (int64_t i = 0; i < n; i++) {
        float times = (float)(int8_t)codes[i] * scale;
        x[i] = times * INT8_UNIT;
    }
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* One decade of bitsandbytes' signed map (create_dynamic_map): the middles of n equal parts of
 * [0.1, 1], times a power of ten. PyTorch makes the ends of the parts from both sides, with sums
 * that are rounded once. */
static void fill_decade(int n, float unit, float *middles)
{
    float step = (1.0f - 0.1f) / (float)n, ends[SCALE_CODES];
    for (int i = 0; i <= n; i++)
        ends[i] = i < (n + 1) / 2 ? (float)((double)0.1f + (double)step * i)
                                  : (float)(1.0 - (double)step * (n - i));
    for (int i = 0; i < n; i++) {
        float middle = (ends[i] + ends[i + 1]) / 2.0f;
        middles[i] = unit * middle;
    }
}

static void fill_map(float map[SCALE_CODES])
{
    enum { DECADES = 7, ZERO = 127 };
    float magnitudes[SCALE_CODES], unit[DECADES] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
    int n = 0;
    for (int i = 0; i < DECADES; i++, n += 1 << (i - 1))
        fill_decade(1 << i, unit[i], magnitudes + n);
    map[ZERO] = 0.0f;
    for (int i = 0; i < n; i++) {
        map[ZERO + 1 + i] = magnitudes[i];
        map[ZERO - 1 - i] = -magnitudes[i];
    }
    map[SCALE_CODES - 1] = 1.0f;
}

/* How many borders lie below x. */
static uint8_t find_rank(const float map[SCALE_CODES], float x)
{
    int low = 0, high = SCALE_CODES - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        float border = (map[middle] + map[middle + 1]) / 2.0f;
        if (border < x)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint8_t)low;
}

static float mean(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    return n > 0 ? (float)(sum / (double)n) : 0.0f;
}

void scales_encode(const float *scales, int64_t n, uint8_t *codes, float *groups,
                   float table[SCALE_TABLE])
{
    float *map = table + 1, offset = mean(scales, n);
    table[0] = offset;
    fill_map(map);
    for (int64_t first = 0; first < n; first += SCALE_GROUP) {
        float part[SCALE_GROUP] = {0};
        int64_t n_here = MIN((int64_t)SCALE_GROUP, n - first);
        bool whole = n_here == SCALE_GROUP;
        for (int64_t i = 0; i < n_here; i++)
            part[i] = scales[first + i] - offset;
        float scale = largest(part, n_here), divisor = fmaxf(scale, LEAST_SCALE);
        float inverse = 1.0f / divisor;
        for (int64_t i = 0; i < n_here; i++)
            codes[first + i] = find_rank(map, whole ? part[i] * inverse : part[i] / divisor);
        groups[first / SCALE_GROUP] = whole ? scale : divisor;
    }
}
