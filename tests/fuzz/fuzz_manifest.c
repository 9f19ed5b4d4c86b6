/* Fuzz target: any bytes as a list of samples; every record is read for a field of numbers and one
 * of images. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/file.h"
#include "task/sample_manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static char folder[] = "/tmp/snug-fuzz-XXXXXX";
static const struct model_field fields[] = {
    {.name = "x", .shape = {.rank = 2, .dim = {2, 2}}},
    {.name = "y", .is_target = true, .shape = {.rank = 4, .dim = {2, 1, 1, 3}}}};
static const struct sample_facts facts = {.fields = fields, .n_fields = 2};

static void remove_folder(void)
{
    (void)!file_remove_tree(folder);
}

static void prepare(void)
{
    static int is_ready;
    if (is_ready)
        return;
    BUG_ON(!mkdtemp(folder));
    (void)atexit(remove_folder);
    is_ready = 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    char path[64];
    double out[6];
    struct sample_manifest *s;
    prepare();
    (void)snprintf(path, sizeof(path), "%s/list.jsonl", folder);
    BUG_ON(file_write_atomic(path, data, n_bytes) != OK);
    if (sample_manifest_open(&s, path, &facts) != OK)
        return 0;
    BUG_ON(sample_manifest_count(s) < 1);
    for (int64_t i = 0; i < sample_manifest_count(s); i++) {
        for (int f = 0; f < facts.n_fields; f++)
            (void)!sample_manifest_read(s, &fields[f], i, out);
    }
    sample_manifest_close(s);
    return 0;
}
