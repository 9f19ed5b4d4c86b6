#include "support/gguf_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/half.h"
#include "support/golden.h"

uint32_t crc32_of(uint32_t before, const void *data, size_t n_bytes)
{
    const uint8_t *at = data;
    uint32_t crc = ~before;
    for (size_t i = 0; i < n_bytes; i++) {
        crc ^= at[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/* ---- parsing ---- */

static const uint8_t *take(struct gguf_read *r, size_t n)
{
    assert_true(n <= r->n_bytes - r->at);
    r->at += n;
    return (const uint8_t *)r->text + r->at - n;
}

static uint64_t number(struct gguf_read *r, int n_bytes)
{
    const uint8_t *at = take(r, (size_t)n_bytes);
    uint64_t value = 0;
    for (int i = 0; i < n_bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static json_t *text(struct gguf_read *r)
{
    size_t n = (size_t)number(r, 8);
    return json_stringn((const char *)take(r, n), n);
}

static json_t *value(struct gguf_read *r, uint64_t type)
{
    if (type == 4)
        return json_integer((json_int_t)number(r, 4));
    if (type == 5)
        return json_integer((int32_t)(uint32_t)number(r, 4));
    if (type == 6)
        return json_real((double)f32_from_bits((uint32_t)number(r, 4)));
    if (type == 7)
        return json_boolean(number(r, 1));
    if (type == 8)
        return text(r);
    assert_int_equal(type, 9);
    uint64_t of = number(r, 4), n = number(r, 8);
    json_t *list = json_array();
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(json_array_append_new(list, value(r, of)), 0);
    return list;
}

static void read_key(struct gguf_read *r)
{
    json_t *key = text(r);
    assert_null(json_object_get(r->keys, json_string_value(key)));
    assert_int_equal(json_object_set_new(r->keys, json_string_value(key), value(r, number(r, 4))),
                     0);
    json_decref(key);
}

/* Elements and bytes of a block. */
static void block_size(uint32_t type, int64_t *elems, int64_t *bytes)
{
    static const struct {
        uint32_t type;
        int64_t elems, bytes;
    } sizes[] = {{0, 1, 4},      {1, 1, 2},      {30, 1, 2},     {8, 32, 34},  {2, 32, 18},
                 {12, 256, 144}, {13, 256, 176}, {14, 256, 210}, {35, 256, 66}};
    size_t i = 0;
    while (i + 1 < ARRAY_LEN(sizes) && sizes[i].type != type)
        i++;
    assert_int_equal(sizes[i].type, type);
    *elems = sizes[i].elems;
    *bytes = sizes[i].bytes;
}

static int64_t read_info(struct gguf_read *r, struct gguf_read_tensor *t)
{
    int64_t elems, bytes;
    json_t *name = text(r);
    assert_in_range(json_string_length(name), 1, 64);
    memcpy(t->name, json_string_value(name), json_string_length(name) + 1);
    json_decref(name);
    t->rank = (int)number(r, 4);
    assert_in_range(t->rank, 1, 4);
    t->n_elems = 1;
    for (int i = 0; i < t->rank; i++) {
        t->dims[i] = (int64_t)number(r, 8);
        t->n_elems *= t->dims[i];
    }
    t->type = (uint32_t)number(r, 4);
    block_size(t->type, &elems, &bytes);
    assert_int_equal(t->dims[0] % elems, 0);
    t->n_bytes = t->n_elems / elems * bytes;
    return (int64_t)number(r, 8);
}

static void expect_zeros(struct gguf_read *r, size_t n)
{
    const uint8_t *at = take(r, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(at[i], 0);
}

/* Each where the one before it ends, and what lies between is zero. */
static void read_data(struct gguf_read *r, const int64_t *offsets)
{
    expect_zeros(r, (32 - r->at % 32) % 32);
    size_t start = r->at;
    for (size_t i = 0; i < r->n_tensors; i++) {
        assert_int_equal(r->at - start, offsets[i]);
        r->tensors[i].data = take(r, (size_t)r->tensors[i].n_bytes);
        expect_zeros(r, (32 - r->at % 32) % 32);
    }
    assert_int_equal(r->at, r->n_bytes);
}

void gguf_read_open(struct gguf_read *r, const char *path)
{
    *r = (struct gguf_read){.keys = json_object()};
    expect_ok(file_read(path, &r->text, &r->n_bytes));
    assert_memory_equal(take(r, 4), "GGUF", 4);
    assert_int_equal(number(r, 4), 3);
    r->n_tensors = (size_t)number(r, 8);
    uint64_t n_keys = number(r, 8);
    for (uint64_t i = 0; i < n_keys; i++)
        read_key(r);
    r->tensors = mem_calloc(r->n_tensors + 1, sizeof(*r->tensors));
    int64_t *offsets = mem_calloc(r->n_tensors + 1, sizeof(*offsets));
    assert_non_null(r->tensors);
    assert_non_null(offsets);
    for (size_t i = 0; i < r->n_tensors; i++)
        offsets[i] = read_info(r, &r->tensors[i]);
    read_data(r, offsets);
    mem_free(offsets);
}

void gguf_read_close(struct gguf_read *r)
{
    mem_free(r->text);
    mem_free(r->tensors);
    json_decref(r->keys);
}

const struct gguf_read_tensor *gguf_read_find(const struct gguf_read *r, const char *name)
{
    for (size_t i = 0; i < r->n_tensors; i++)
        if (strcmp(r->tensors[i].name, name) == 0)
            return &r->tensors[i];
    fail_msg("there is no tensor %s", name);
    return NULL;
}

/* ---- numbers ---- */

static float half_at(const uint8_t *at)
{
    return f16_to_f32((uint16_t)(at[0] | at[1] << 8));
}

static float plain(uint32_t type, const uint8_t *at)
{
    if (type == 1)
        return half_at(at);
    uint32_t low = (uint32_t)(at[0] | at[1] << 8);
    return f32_from_bits(type == 30 ? low << 16 : low | (uint32_t)(at[2] | at[3] << 8) << 16);
}

/* Scale and minimum of group j, of 6 bits each. */
static void six_bits(const uint8_t *s, int j, int *scale, int *low)
{
    *scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    *low = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4;
}

static float of_affine(const uint8_t *block, int i, int has_fifth)
{
    int j = i / 32, scale, low;
    const uint8_t *q = block + (has_fifth ? 48 : 16);
    six_bits(block + 4, j, &scale, &low);
    int code = q[j / 2 * 32 + i % 32] >> (j % 2 ? 4 : 0) & 15;
    if (has_fifth)
        code |= (block[16 + i % 32] >> j & 1) << 4;
    float d = half_at(block) * (float)scale, m = half_at(block + 2) * (float)low;
    float product = d * (float)code;
    return product - m;
}

static float of_q6_k(const uint8_t *block, int i)
{
    int half = i / 128, in_half = i % 128, quarter = in_half / 32, at = in_half % 32;
    int low = block[half * 64 + at + quarter % 2 * 32] >> (quarter / 2 * 4) & 15;
    int high = block[128 + half * 32 + at] >> (2 * quarter) & 3;
    float d = half_at(block + 208) * (float)(int8_t)block[192 + i / 16];
    return d * (float)((low | high << 4) - 32);
}

static float element(uint32_t type, const uint8_t *block, int i)
{
    if (type == 8)
        return half_at(block) * (float)(int8_t)block[2 + i];
    if (type == 2)
        return half_at(block) * (float)((block[2 + i % 16] >> (i / 16 * 4) & 15) - 8);
    if (type == 14)
        return of_q6_k(block, i);
    if (type == 35) /* 2 bits each: elements that are 32 apart share a byte */
        return half_at(block + 64) *
               (float)((block[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 1);
    return type == 12 || type == 13 ? of_affine(block, i, type == 13) : plain(type, block);
}

void gguf_read_decode(uint32_t type, const uint8_t *data, int64_t n, float *out)
{
    int64_t elems, bytes;
    block_size(type, &elems, &bytes);
    for (int64_t i = 0; i < n; i++)
        out[i] = element(type, data + i / elems * bytes, (int)(i % elems));
}
