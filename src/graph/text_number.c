/* text_number.c: numbers that survive the way through text bit by bit.
 *
 * Floats print with the fewest digits (from six up) that read back as the same bits in their own
 * dtype. NaNs have no decimal form that keeps their payload, so they print as the bit pattern. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "graph/tensor.h"
#include "graph/text.h"

enum { NUMBER_TEXT = 64 };

/* The characters of the number that comes next, without consuming them. */
static enum status look_at_number(struct text *t, char out[NUMBER_TEXT], size_t *n_chars)
{
    struct text_place place = text_here(t);
    size_t n = 0;
    while (isalnum((unsigned char)t->at[n]) || (t->at[n] != '\0' && strchr("+-.", t->at[n])))
        n++;
    if (n == 0)
        return TEXT_FAIL_AT(place, "expected a number here");
    if (n >= NUMBER_TEXT)
        return TEXT_FAIL_AT(place, "a number of %zu characters is too long", n);
    memcpy(out, t->at, n);
    out[n] = '\0';
    *n_chars = n;
    return OK;
}

enum status text_int(struct text *t, int64_t *value)
{
    struct text_place place = text_here(t);
    char number[NUMBER_TEXT], *end;
    size_t n;
    TRY(look_at_number(t, number, &n));
    errno = 0;
    long long x = strtoll(number, &end, 10);
    if (*end != '\0')
        return TEXT_FAIL_AT(place, "'%s' is not an integer", number);
    if (errno == ERANGE)
        return TEXT_FAIL_AT(place, "%s does not fit 64 bits", number);
    *value = x;
    t->at += n;
    return OK;
}

/* A decimal number, or the bits of one (is_bits) for 0x. */
static enum status read_float(struct text *t, double *value, bool *is_bits, uint64_t *bits)
{
    struct text_place place = text_here(t);
    char number[NUMBER_TEXT], *end;
    size_t n;
    TRY(look_at_number(t, number, &n));
    *is_bits = str_starts_with(number, "0x");
    errno = 0;
    if (*is_bits)
        *bits = strtoull(number + 2, &end, 16);
    else
        *value = strtod(number, &end);
    if (end == number || *end != '\0' || (*is_bits && (n == 2 || n > 18 || number[2] == '-')) ||
        (!*is_bits && isnan(*value)))
        return TEXT_FAIL_AT(place, "'%s' is not a number", number);
    t->at += n;
    return OK;
}

enum status text_double(struct text *t, double *value)
{
    return text_element(t, DTYPE_F64, value);
}

void text_add_double(struct str *out, double x)
{
    text_add_element(out, DTYPE_F64, &x);
}

static void store_float(double x, enum dtype dtype, void *data)
{
    float narrow = (float)x;
    uint16_t half;
    switch (dtype) {
    case DTYPE_F64:
        memcpy(data, &x, sizeof(x));
        break;
    case DTYPE_F32:
        memcpy(data, &narrow, sizeof(narrow));
        break;
    default:
        half = dtype == DTYPE_BF16 ? bf16_from_f32(narrow) : f16_from_f32(narrow);
        memcpy(data, &half, sizeof(half));
        break;
    }
}

static double load_float(enum dtype dtype, const void *data)
{
    double x;
    float narrow;
    uint16_t half;
    switch (dtype) {
    case DTYPE_F64:
        memcpy(&x, data, sizeof(x));
        return x;
    case DTYPE_F32:
        memcpy(&narrow, data, sizeof(narrow));
        return (double)narrow;
    default:
        memcpy(&half, data, sizeof(half));
        return (double)(dtype == DTYPE_BF16 ? bf16_to_f32(half) : f16_to_f32(half));
    }
}

static void store_bits(uint64_t bits, int64_t n_bytes, void *data)
{
    uint32_t u32 = (uint32_t)bits;
    uint16_t u16 = (uint16_t)bits;
    if (n_bytes == 8)
        memcpy(data, &bits, sizeof(bits));
    else if (n_bytes == 4)
        memcpy(data, &u32, sizeof(u32));
    else
        memcpy(data, &u16, sizeof(u16));
}

static uint64_t load_bits(int64_t n_bytes, const void *data)
{
    uint64_t u64;
    uint32_t u32;
    uint16_t u16;
    if (n_bytes == 8) {
        memcpy(&u64, data, sizeof(u64));
        return u64;
    }
    if (n_bytes == 4) {
        memcpy(&u32, data, sizeof(u32));
        return u32;
    }
    memcpy(&u16, data, sizeof(u16));
    return u16;
}

static enum status read_float_element(struct text *t, enum dtype dtype, void *data)
{
    struct text_place place = text_here(t);
    double x = 0;
    uint64_t bits = 0;
    bool is_bits;
    TRY(read_float(t, &x, &is_bits, &bits));
    int64_t n_bytes = dtype_size(dtype);
    if (!is_bits) {
        store_float(x, dtype, data);
    } else if (n_bytes < 8 && bits >> (8 * n_bytes) != 0) {
        return TEXT_FAIL_AT(place, "the bit pattern does not fit %s", dtype_name(dtype));
    } else {
        store_bits(bits, n_bytes, data);
    }
    return OK;
}

static enum status read_int_element(struct text *t, enum dtype dtype, void *data)
{
    struct text_place place = text_here(t);
    int64_t x;
    TRY(text_int(t, &x));
    int32_t narrow = (int32_t)x;
    uint8_t byte = (uint8_t)x;
    if ((dtype == DTYPE_I32 && narrow != x) || (dtype == DTYPE_U8 && byte != x))
        return TEXT_FAIL_AT(place, "%lld does not fit %s", (long long)x, dtype_name(dtype));
    if (dtype == DTYPE_I32)
        memcpy(data, &narrow, sizeof(narrow));
    else if (dtype == DTYPE_U8)
        memcpy(data, &byte, sizeof(byte));
    else
        memcpy(data, &x, sizeof(x));
    return OK;
}

enum status text_element(struct text *t, enum dtype dtype, void *data)
{
    return dtype_is_float(dtype) ? read_float_element(t, dtype, data)
                                 : read_int_element(t, dtype, data);
}

static void add_int_element(struct str *out, enum dtype dtype, const void *data)
{
    int64_t x;
    int32_t narrow;
    if (dtype == DTYPE_I32) {
        memcpy(&narrow, data, sizeof(narrow));
        x = narrow;
    } else if (dtype == DTYPE_U8) {
        x = *(const uint8_t *)data;
    } else {
        memcpy(&x, data, sizeof(x));
    }
    str_addf(out, "%lld", (long long)x);
}

void text_add_element(struct str *out, enum dtype dtype, const void *data)
{
    if (!dtype_is_float(dtype)) {
        add_int_element(out, dtype, data);
        return;
    }
    size_t n_bytes = (size_t)dtype_size(dtype);
    double x = load_float(dtype, data);
    for (int digits = 6; digits <= 17 && !isnan(x); digits++) {
        char number[NUMBER_TEXT];
        uint8_t again[8];
        (void)snprintf(number, sizeof(number), "%.*g", digits, x);
        store_float(strtod(number, NULL), dtype, again);
        if (memcmp(again, data, n_bytes) == 0) {
            str_add(out, number);
            return;
        }
    }
    str_addf(out, "0x%llx", (unsigned long long)load_bits(dtype_size(dtype), data));
}
