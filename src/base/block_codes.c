#include "base/block_codes.h"

#include <math.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "base/half.h"

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

/* The largest magnitude. Bits of magnitudes are in the order of the numbers; what is none is passed
 * over. */
static float largest(const float *x, int64_t n)
{
    uint32_t most = 0;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) {
        uint32_t magnitude = f32_bits(x[i]) & 0x7fffffffu;
        magnitude = magnitude > 0x7f800000u ? 0 : magnitude;
        most = magnitude > most ? magnitude : most;
    }
    return f32_from_bits(most);
}

/* ---- 4 bits ---------------------------------------------------------------------------------- */

/* Codes by rank, and the borders of ranks: midway between neighbours; a number on a border gets the
 * lower one. */
struct code4_map {
    float borders[CODE4_VALUES]; /* the last is beyond all numbers */
    uint32_t codes[CODE4_VALUES];
};

static struct code4_map find_map(enum block_code k)
{
    const float *values = code4_values(k);
    const uint8_t *order = code4_order(k);
    struct code4_map m = {.borders = {[CODE4_VALUES - 1] = INFINITY}};
    for (int i = 0; i < CODE4_VALUES; i++) {
        m.codes[i] = order[i];
        if (i + 1 < CODE4_VALUES)
            m.borders[i] = (values[order[i]] + values[order[i + 1]]) / 2.0f;
    }
    return m;
}

#ifdef __AVX512F__
/* How many borders lie below each of 16 numbers: the table is a register, and four looks halve it.
 */
static inline __m512i rank_of(__m512 x, __m512 borders)
{
    __m512i rank = _mm512_setzero_si512();
    for (int half = CODE4_VALUES / 2; half > 0; half /= 2) {
        __m512i look = _mm512_add_epi32(rank, _mm512_set1_epi32(half - 1));
        __m512 border = _mm512_permutexvar_ps(look, borders);
        __mmask16 above = _mm512_cmp_ps_mask(x, border, _CMP_GT_OQ);
        rank = _mm512_mask_add_epi32(rank, above, rank, _mm512_set1_epi32(half));
    }
    return rank;
}

static void find_codes(const struct code4_map *m, const float share[CODE4_BLOCK],
                       uint8_t codes[CODE4_BLOCK / 2])
{
    const __m512 borders = _mm512_loadu_ps(m->borders);
    const __m512i by_rank = _mm512_loadu_si512(m->codes);
    for (int i = 0; i < CODE4_BLOCK; i += 16) {
        __m512i rank = rank_of(_mm512_loadu_ps(share + i), borders);
        __m512i code = _mm512_permutexvar_epi32(rank, by_rank);
        __m512i pairs = _mm512_or_si512(_mm512_slli_epi64(code, 4), _mm512_srli_epi64(code, 32));
        _mm_storel_epi64((__m128i *)(codes + i / 2), _mm512_cvtepi64_epi8(pairs));
    }
}
#else
static void find_codes(const struct code4_map *m, const float share[CODE4_BLOCK],
                       uint8_t codes[CODE4_BLOCK / 2])
{
    int32_t ranks[CODE4_BLOCK] = {0};
    for (int k = 0; k + 1 < CODE4_VALUES; k++) {
#pragma omp simd
        for (int i = 0; i < CODE4_BLOCK; i++)
            ranks[i] += share[i] > m->borders[k];
    }
    for (int i = 0; i < CODE4_BLOCK; i += 2)
        codes[i / 2] = (uint8_t)(m->codes[ranks[i]] << 4 | m->codes[ranks[i + 1]]);
}
#endif

static float encode_whole(const struct code4_map *m, const float x[CODE4_BLOCK], uint8_t *codes)
{
    float share[CODE4_BLOCK];
    float scale = largest(x, CODE4_BLOCK), inverse = 1.0f / fmaxf(scale, LEAST_SCALE);
#pragma omp simd
    for (int i = 0; i < CODE4_BLOCK; i++)
        share[i] = x[i] * inverse;
    find_codes(m, share, codes);
    return scale;
}

/* The last block of a tensor: divided, as bitsandbytes does it there. */
static float encode_rest(const struct code4_map *m, const float *x, int64_t n, uint8_t *codes)
{
    float share[CODE4_BLOCK] = {0}, divisor = fmaxf(largest(x, n), LEAST_SCALE);
    uint8_t all[CODE4_BLOCK / 2];
    for (int64_t i = 0; i < n; i++)
        share[i] = x[i] / divisor;
    find_codes(m, share, all);
    memcpy(codes, all, (size_t)((n + 1) / 2));
    return divisor;
}

void code4_encode(enum block_code k, const float *x, int64_t n, uint8_t *codes, float *scales)
{
    const struct code4_map m = find_map(k);
    int64_t i = 0;
    for (; i + CODE4_BLOCK <= n; i += CODE4_BLOCK)
        scales[i / CODE4_BLOCK] = encode_whole(&m, x + i, codes + i / 2);
    if (i < n)
        scales[i / CODE4_BLOCK] = encode_rest(&m, x + i, n - i, codes + i / 2);
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

/* Whether sums of x are exact in double, in whatever order: from the last bit of the least to the
 * sum of all there are at most 53 bits. */
static bool sums_are_exact(const float *x, int64_t n)
{
    uint32_t most = 0, least = UINT32_MAX;
#pragma omp simd reduction(max : most) reduction(min : least)
    for (int64_t i = 0; i < n; i++) {
        uint32_t magnitude = f32_bits(x[i]) & 0x7fffffffu;
        most = magnitude > most ? magnitude : most;
        magnitude = magnitude == 0 ? UINT32_MAX : magnitude; /* adds nothing */
        least = magnitude < least ? magnitude : least;
    }
    int n_bits = 24 + (int)(most >> 23) - (int)(least >> 23);
    for (int64_t k = n; k > 0; k /= 2)
        n_bits++;
    return most < 0x7f800000u && least >= 0x00800000u && n_bits <= 53;
}

/* The sum is that of the order of the numbers. */
static float mean(const float *x, int64_t n)
{
    double sum = 0;
    if (sums_are_exact(x, n)) {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++)
            sum += (double)x[i];
    } else {
        for (int64_t i = 0; i < n; i++)
            sum += (double)x[i];
    }
    return n > 0 ? (float)(sum / (double)n) : 0.0f;
}

void scales_begin(const float *scales, int64_t n, float table[SCALE_TABLE])
{
    table[0] = mean(scales, n);
    fill_map(table + 1);
}

/* codes[i] = how many borders lie below x[i]. */
static void find_ranks(const float borders[SCALE_CODES], const float *x, int64_t n, uint8_t *codes)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        int32_t rank = 0;
        for (int32_t half = SCALE_CODES / 2; half > 0; half /= 2)
            rank += x[i] > borders[rank + half - 1] ? half : 0;
        codes[i] = (uint8_t)rank;
    }
}

void scales_encode(const float table[SCALE_TABLE], const float *scales, int64_t n, uint8_t *codes,
                   float *groups)
{
    float borders[SCALE_CODES] = {[SCALE_CODES - 1] = INFINITY};
    for (int i = 0; i + 1 < SCALE_CODES; i++)
        borders[i] = (table[1 + i] + table[2 + i]) / 2.0f;
    for (int64_t first = 0; first < n; first += SCALE_GROUP) {
        float part[SCALE_GROUP] = {0};
        int64_t n_here = MIN((int64_t)SCALE_GROUP, n - first);
        bool whole = n_here == SCALE_GROUP;
        for (int64_t i = 0; i < n_here; i++)
            part[i] = scales[first + i] - table[0];
        float scale = largest(part, n_here), divisor = fmaxf(scale, LEAST_SCALE);
        float inverse = 1.0f / divisor;
        for (int64_t i = 0; i < n_here; i++)
            part[i] = whole ? part[i] * inverse : part[i] / divisor;
        find_ranks(borders, part, n_here, codes + first);
        groups[first / SCALE_GROUP] = whole ? scale : divisor;
    }
}
