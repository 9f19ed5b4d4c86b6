#include "io/tokenizer_files.h"

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "io/hf_dir.h"
#include "io/json_file.h"

static const char end_of_text[] = "<|endoftext|>";

/* ---- the built-in one ---- */

/* The character that stands for a byte in byte-level vocabularies, as UTF-8: printable ones of
 * Latin-1 for themselves, the others from U+0100 on in their order. */
static void byte_character(int byte, int *next, char out[3])
{
    bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    int point = printable ? byte : 0x100 + (*next)++;
    int n = 0;
    if (point >= 0x80)
        out[n++] = (char)(0xC0 | point >> 6);
    out[n++] = (char)(point < 0x80 ? point : 0x80 | (point & 0x3F));
    out[n] = '\0';
}

static json_t *byte_vocabulary(void)
{
    json_t *vocabulary = json_object();
    int next = 0;
    for (int byte = 0; vocabulary && byte < 256; byte++) {
        char character[3];
        byte_character(byte, &next, character);
        if (json_object_set_new(vocabulary, character, json_integer(byte)) != 0) {
            json_decref(vocabulary);
            vocabulary = NULL;
        }
    }
    return vocabulary;
}

static json_t *byte_tokenizer(void)
{
    json_t *level = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                              "trim_offsets", 1, "use_regex", 1);
    json_t *added =
        json_pack("[{s:i, s:s, s:b, s:b, s:b, s:b, s:b}]", "id", 256, "content", end_of_text,
                  "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
    json_t *model = json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:o, s:[]}", "type", "BPE", "dropout",
                              "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                              "fuse_unk", 0, "vocab", byte_vocabulary(), "merges");
    json_t *root =
        json_pack("{s:s, s:n, s:n, s:O, s:n, s:O, s:n, s:O, s:O}", "version", "1.0", "truncation",
                  "padding", "added_tokens", added, "normalizer", "pre_tokenizer", level,
                  "post_processor", "decoder", level, "model", model);
    json_decref(level);
    json_decref(added);
    json_decref(model);
    return root;
}

static enum status write_bytes(const char *folder)
{
    json_t *tokenizer = byte_tokenizer();
    json_t *config = json_pack("{s:s, s:s, s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                               "eos_token", end_of_text, "clean_up_tokenization_spaces", 0);
    enum status status = json_file_write(folder, "tokenizer.json", tokenizer);
    if (status == OK)
        status = json_file_write(folder, "tokenizer_config.json", config);
    json_decref(tokenizer);
    json_decref(config);
    return status;
}

/* ---- files ---- */

static enum status copy(const char *from, const char *folder, const char *name)
{
    struct str to = {0};
    struct file_map map = {0};
    enum status status;
    str_addf(&to, "%s/%s", folder, name);
    TRY_GOTO(str_status(&to), out);
    TRY_GOTO(file_map_open(&map, from), out);
    TRY_GOTO(file_write_atomic(to.text, map.data, map.n_bytes), out);
out:
    file_map_close(&map);
    str_release(&to);
    return status;
}

/* A tokenizer.json of any name; the tokenizer_config.json beside it says which tokens are special.
 */
static enum status copy_file(const char *path, const char *folder)
{
    struct str config = {0};
    const char *slash = strrchr(path, '/');
    int n_folder = slash ? (int)(slash - path) : 1;
    str_addf(&config, "%.*s/tokenizer_config.json", n_folder, slash ? path : ".");
    enum status status = str_status(&config);
    if (status == OK)
        status = copy(path, folder, "tokenizer.json");
    if (status == OK && file_exists(config.text))
        status = copy(config.text, folder, "tokenizer_config.json");
    str_release(&config);
    return status;
}

enum status tokenizer_files_write(const char *name, const char *folder)
{
    if (strcmp(name, "bytes") == 0)
        return write_bytes(folder);
    return file_is_folder(name) ? hf_dir_copy_extras(name, folder) : copy_file(name, folder);
}
