/* Fuzz target: any bytes as a safetensors file. What opens must be readable to the last byte.
 *
 * Each input is tried as it is and with its header length set to end at the last '}': a fuzzer
 * that changes the text would otherwise have to find the matching length as well. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "io/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void read_everything(const struct st_reader *r, size_t n_bytes)
{
    unsigned sum = 0;
    int64_t total = 0;
    for (size_t i = 0; i < st_reader_count(r); i++) {
        const struct st_tensor *t = st_reader_at(r, i);
        for (int64_t k = 0; k < t->n_bytes; k++)
            sum += t->data[k];
        for (int k = 0; k < t->rank; k++)
            BUG_ON(t->dims[k] < 0);
        BUG_ON(st_reader_find(r, t->name) != t);
        total += t->n_bytes;
    }
    volatile unsigned used = sum; /* keeps the reads */
    (void)used;
    BUG_ON(total != st_reader_bytes(r) || total > (int64_t)n_bytes);
}

static void try_bytes(const uint8_t *data, size_t n_bytes)
{
    int64_t live = mem_live();
    struct st_reader *r;
    if (st_reader_open_memory(&r, data, n_bytes, "input") == OK)
        read_everything(r, n_bytes);
    else
        BUG_ON(r != NULL);
    st_reader_close(r);
    BUG_ON(mem_live() != live);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    try_bytes(data, n_bytes);
    size_t end = n_bytes;
    while (end > 8 && data[end - 1] != '}')
        end--;
    uint8_t *copy = end > 8 ? mem_alloc(n_bytes) : NULL;
    if (!copy)
        return 0;
    memcpy(copy, data, n_bytes);
    for (int i = 0; i < 8; i++)
        copy[i] = (uint8_t)((uint64_t)(end - 8) >> (8 * i) & 0xff);
    try_bytes(copy, n_bytes);
    mem_free(copy);
    return 0;
}
