/* Fuzz target: any bytes as a file of records (the first byte says whether as CSV), each of which
 * is made into an example. What is learnt are tokens of it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "data/example.h"
#include "data/records.h"
#include "data/token_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static struct tokenizer *tokenizer;
static struct encoder *encoder;
static struct chat_template *chat;
static char folder[] = "/tmp/snug-fuzz-XXXXXX";

static void remove_folder(void)
{
    encoder_free(encoder);
    chat_template_free(chat);
    tokenizer_free(tokenizer);
    (void)!file_remove_tree(folder);
}

static void prepare(void)
{
    if (tokenizer)
        return;
    BUG_ON(!mkdtemp(folder));
    BUG_ON(tokenizer_open(&tokenizer, "bytes") != OK);
    BUG_ON(encoder_new(&encoder, tokenizer) != OK);
    BUG_ON(chat_template_open(&chat, "qwen3", "bytes", tokenizer) != OK);
    (void)atexit(remove_folder);
}

static void make(const json_t *record)
{
    const struct example_options o = {.chat = chat};
    struct example x = {0};
    if (example_make(&x, record, &o, tokenizer, encoder) == OK) {
        BUG_ON(x.ids.n != x.labels.n);
        for (size_t i = 0; i < x.ids.n; i++)
            BUG_ON(x.labels.items[i] != LABEL_IGNORED && x.labels.items[i] != x.ids.items[i]);
    }
    example_release(&x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    char path[64];
    struct records *r;
    json_t *record;
    prepare();
    if (n_bytes == 0)
        return 0;
    (void)snprintf(path, sizeof(path), "%s/r.%s", folder, data[0] % 2 ? "csv" : "jsonl");
    BUG_ON(file_write_atomic(path, data + 1, n_bytes - 1) != OK);
    if (records_open(&r, path, records_bytes(1 << 16)) != OK)
        return 0;
    while (records_next(r, &record) == OK && record) {
        make(record);
        json_decref(record);
    }
    records_close(r);
    return 0;
}
