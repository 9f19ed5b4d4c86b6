/* source_synthetic.c: streams that are a function of (seed, position), so that they take no memory
 * and any part of them can be read at once.
 *
 * The chain: each id has four possible successors, taken with probability 1/2, 1/4, 1/8, 1/8. It
 * starts anew from a random id every BLOCK positions, so that reading in the middle costs at most
 * BLOCK steps. A model that has learned the table reaches 1.75 bits (1.21 nats) a token.
 */
#include "base/compiler.h"
#include "base/rng.h"
#include "data/source_internal.h"

enum { BLOCK = 256, ALPHABET = 256 };
enum { STREAM_START = 1, STREAM_SUCCESSOR, STREAM_CHOICE, STREAM_RANDOM };

static uint32_t draw(uint64_t seed, uint64_t stream, int64_t i)
{
    return philox(seed, stream, (uint64_t)i / 4).v[i % 4];
}

static uint32_t below(uint32_t bits, uint32_t n)
{
    return (uint32_t)(((uint64_t)bits * n) >> 32);
}

static uint32_t successor(uint64_t seed, uint32_t id, uint32_t bits, uint32_t alphabet)
{
    int choice = bits < 0x80000000u ? 0 : bits < 0xC0000000u ? 1 : bits < 0xE0000000u ? 2 : 3;
    return below(philox(seed, STREAM_SUCCESSOR, id).v[choice], alphabet);
}

void synthetic_read(uint64_t seed, int64_t vocab_size, int64_t first, int64_t n, int32_t *out)
{
    uint32_t alphabet = (uint32_t)MIN(vocab_size, ALPHABET), id = 0;
    for (int64_t i = first / BLOCK * BLOCK; i < first + n; i++) {
        if (i % BLOCK == 0)
            id = below(draw(seed, STREAM_START, i / BLOCK), alphabet);
        else
            id = successor(seed, id, draw(seed, STREAM_CHOICE, i), alphabet);
        if (i >= first)
            out[i - first] = (int32_t)id;
    }
}

void random_read(uint64_t seed, int64_t vocab_size, int64_t first, int64_t n, int32_t *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (int32_t)below(draw(seed, STREAM_RANDOM, first + i), (uint32_t)vocab_size);
}
