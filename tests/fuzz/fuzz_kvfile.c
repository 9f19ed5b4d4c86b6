/* Fuzz target: any bytes as a cache file. What parses prints as the same bytes. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/kvfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct kvfile *f;
    char *text = NULL;
    size_t n_text = 0;
    BUG_ON(kvfile_open(&f, "/nonexistent/cache") != OK);
    if (kvfile_parse(f, (const char *)data, n_bytes) == OK) {
        BUG_ON(kvfile_print(f, &text, &n_text) != OK);
        BUG_ON(n_text != n_bytes || memcmp(text, data, n_bytes) != 0);
    }
    mem_free(text);
    kvfile_free(f);
    return 0;
}
