/* gguf_tokenizer.c: see gguf_tokenizer.h. */
#include "io/gguf_tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/pool.h"
#include "data/chat.h"
#include "io/gguf_pre.h"

/* Kinds of tokens, in the file. */
enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED, TOKEN_BYTE };

struct token {
    const char *text; /* NULL: no token has this id */
    size_t n;
    int32_t kind;
    float score;
};

struct listing {
    struct gguf *g;
    const char *path; /* of tokenizer.json */
    const json_t *root, *model, *vocabulary;
    bool byte_level;
    struct token *tokens; /* [n] */
    int64_t n;
    struct pool pool;
};

/* ---- tokens ---- */

static enum status set_token(struct listing *l, int64_t id, const char *text, size_t n, int kind)
{
    if (id < 0 || id >= l->n)
        return FAIL(ERR_DATA,
                    "%s: token '%.60s' has id %lld, but the model's vocabulary ends at %lld; "
                    "export with the tokenizer it was trained with",
                    l->path, text, (long long)id, (long long)l->n - 1);
    l->tokens[id] = (struct token){.text = text, .n = n, .kind = kind};
    return OK;
}

/* "<0x0A>" */
static bool is_byte_token(const char *text, size_t n)
{
    unsigned byte;
    int end = 0;
    return n == 6 && sscanf(text, "<0x%2X>%n", &byte, &end) == 1 && end == 6;
}

static enum status read_vocabulary(struct listing *l)
{
    const char *text;
    json_t *id;
    const char *unknown = json_text(json_object_get(l->model, "unk_token"));
    json_object_foreach((json_t *)l->vocabulary, text, id)
    {
        size_t n = strlen(text);
        int kind = l->byte_level                           ? TOKEN_NORMAL
                   : unknown && strcmp(text, unknown) == 0 ? TOKEN_UNKNOWN
                   : is_byte_token(text, n)                ? TOKEN_BYTE
                                                           : TOKEN_NORMAL;
        TRY(set_token(l, json_integer_value(id), text, n, kind));
    }
    return OK;
}

/* Texts that are found whole have their spaces as such. */
static enum status plain_spaces(struct listing *l, const char **text, size_t *n)
{
    static const char mark[] = "\xE2\x96\x81";
    char *out = pool_strndup(&l->pool, *text, *n);
    TRY(pool_status(&l->pool));
    size_t at = 0;
    for (size_t i = 0; i < *n; at++) {
        bool is_mark = *n - i >= 3 && memcmp(*text + i, mark, 3) == 0;
        out[at] = is_mark ? ' ' : (*text)[i];
        i += is_mark ? 3 : 1;
    }
    *text = out;
    *n = at;
    return OK;
}

static enum status read_added(struct listing *l)
{
    const json_t *added = json_object_get(l->root, "added_tokens"), *one;
    size_t i;
    json_array_foreach(added, i, one)
    {
        const json_t *content = json_object_get(one, "content");
        const char *text = json_string_value(content);
        size_t n = text ? json_string_length(content) : 0;
        int64_t id = json_integer_value(json_object_get(one, "id"));
        bool special = json_is_true(json_object_get(one, "special"));
        if (!text)
            continue;
        bool unknown = id >= 0 && id < l->n && l->tokens[id].kind == TOKEN_UNKNOWN;
        if (!special && !l->byte_level)
            TRY(plain_spaces(l, &text, &n));
        TRY(set_token(l, id, text, n,
                      unknown   ? TOKEN_UNKNOWN
                      : special ? TOKEN_CONTROL
                                : TOKEN_USER));
    }
    return OK;
}

/* The two sides of a merge, "a b" or ["a", "b"]. */
static bool merge_sides(const json_t *merge, const char *side[2], size_t n[2])
{
    const char *text = json_string_value(merge), *space = text ? strchr(text, ' ') : NULL;
    if (space) {
        side[0] = text;
        n[0] = (size_t)(space - text);
        side[1] = space + 1;
        n[1] = strlen(space + 1);
        return true;
    }
    for (size_t i = 0; i < 2; i++) {
        side[i] = json_string_value(json_array_get(merge, i));
        n[i] = side[i] ? strlen(side[i]) : 0;
    }
    return side[0] && side[1];
}

/* llama.cpp joins what makes the token of the highest score: the earliest merge. */
static enum status score_tokens(struct listing *l)
{
    const json_t *merges = json_object_get(l->model, "merges"), *merge;
    size_t n_merges = json_array_size(merges), i, n[2];
    const char *side[2];
    struct str joined = {0};
    for (int64_t id = 0; id < l->n; id++)
        l->tokens[id].score = l->tokens[id].kind == TOKEN_NORMAL ? -(float)n_merges : 0.0f;
    json_array_foreach(merges, i, merge)
    {
        if (!merge_sides(merge, side, n))
            continue;
        str_clear(&joined);
        str_add_n(&joined, side[0], n[0]);
        str_add_n(&joined, side[1], n[1]);
        const json_t *id = json_object_get(l->vocabulary, str_text(&joined));
        struct token *t = id ? &l->tokens[json_integer_value(id)] : NULL;
        if (t && t->kind == TOKEN_NORMAL && t->score <= -(float)n_merges)
            t->score = -(float)i;
    }
    enum status status = n_merges ? str_status(&joined) : OK;
    str_release(&joined);
    return status;
}

static void put_tokens(const struct listing *l)
{
    gguf_key_list(l->g, "tokenizer.ggml.tokens", GGUF_ITEM_TEXT, (uint64_t)l->n);
    for (int64_t id = 0; id < l->n; id++) {
        char unused[32];
        int n = snprintf(unused, sizeof(unused), "[PAD%lld]", (long long)id);
        const struct token *t = &l->tokens[id];
        gguf_item_text(l->g, t->text ? t->text : unused, t->text ? t->n : (size_t)n);
    }
    gguf_key_list(l->g, "tokenizer.ggml.token_type", GGUF_ITEM_I32, (uint64_t)l->n);
    for (int64_t id = 0; id < l->n; id++)
        gguf_item_i32(l->g, l->tokens[id].text ? l->tokens[id].kind : TOKEN_UNUSED);
}

static void put_scores(const struct listing *l)
{
    gguf_key_list(l->g, "tokenizer.ggml.scores", GGUF_ITEM_F32, (uint64_t)l->n);
    for (int64_t id = 0; id < l->n; id++)
        gguf_item_f32(l->g, l->tokens[id].text ? l->tokens[id].score : -10000.0f);
}

/* A space in a side would part it in two: it is written as the byte-level alphabet has it. */
static enum status put_merges(const struct listing *l)
{
    const json_t *merges = json_object_get(l->model, "merges"), *merge;
    size_t i, n[2];
    const char *side[2];
    struct str text = {0};
    gguf_key_list(l->g, "tokenizer.ggml.merges", GGUF_ITEM_TEXT, json_array_size(merges));
    json_array_foreach(merges, i, merge)
    {
        if (!merge_sides(merge, side, n))
            continue;
        str_clear(&text);
        for (int s = 0; s < 2; s++) {
            for (size_t k = 0; k < n[s]; k++)
                if (side[s][k] == ' ')
                    str_add(&text, "\xC4\xA0");
                else
                    str_add_n(&text, side[s] + k, 1);
            str_add(&text, s == 0 ? " " : "");
        }
        gguf_item_text(l->g, str_text(&text), text.n);
    }
    enum status status = json_array_size(merges) ? str_status(&text) : OK;
    str_release(&text);
    return status;
}

/* ---- what goes around texts ---- */

static void put_id(struct gguf *g, const char *key, int64_t id)
{
    if (id >= 0)
        gguf_key_u32(g, key, (uint32_t)id);
}

/* What an empty text becomes says what is added to texts. */
static enum status put_ends(struct gguf *g, const char *folder, const struct language_facts *model)
{
    struct tokenizer *t;
    struct token_list around = {0};
    enum status status;
    TRY(tokenizer_open(&t, folder));
    int64_t bos = tokenizer_bos(t) >= 0 ? tokenizer_bos(t) : model->bos_token;
    int64_t eos = tokenizer_eos(t) >= 0 ? tokenizer_eos(t) : model->eos_token;
    TRY_GOTO(tokenizer_encode(t, "", 0, ENCODE_TEMPLATE, &around), out);
    put_id(g, "tokenizer.ggml.bos_token_id", bos);
    put_id(g, "tokenizer.ggml.eos_token_id", eos);
    put_id(g, "tokenizer.ggml.padding_token_id", tokenizer_pad(t));
    gguf_key_bool(g, "tokenizer.ggml.add_bos_token", around.n > 0 && around.items[0] == bos);
    gguf_key_bool(g, "tokenizer.ggml.add_eos_token",
                  around.n > 0 && eos != bos && around.items[around.n - 1] == eos);
out:
    token_list_release(&around);
    tokenizer_free(t);
    return status;
}

static enum status put_named_template(struct gguf *g, const char *family)
{
    const struct chat_family *f = chat_family_named(family);
    struct str jinja = {0};
    enum status status = f ? chat_family_jinja(f, &jinja)
                           : FAIL(ERR_CONFIG, "there is no chat template '%s'", family);
    if (status == OK)
        gguf_key_text(g, "tokenizer.chat_template", jinja.text, jinja.n);
    str_release(&jinja);
    return status;
}

static enum status put_template(struct gguf *g, const char *folder)
{
    struct str path = {0};
    char *jinja = NULL;
    enum status status = chat_template_read(folder, &jinja, &path);
    if (jinja)
        gguf_key_text(g, "tokenizer.chat_template", jinja, strlen(jinja));
    mem_free(jinja);
    str_release(&path);
    return status;
}

/* ---- the tokenizer ---- */

static enum status put_byte_level(struct listing *l)
{
    const char *pre;
    TRY(gguf_pre_tokenizer(&pre, l->root, l->path));
    gguf_key_text(l->g, "tokenizer.ggml.model", "gpt2", 4);
    gguf_key_text(l->g, "tokenizer.ggml.pre", pre, strlen(pre));
    put_tokens(l);
    return put_merges(l);
}

static enum status put_characters(struct listing *l)
{
    const char *unknown = json_text(json_object_get(l->model, "unk_token"));
    const json_t *id = unknown ? json_object_get(l->vocabulary, unknown) : NULL;
    TRY(score_tokens(l));
    gguf_key_text(l->g, "tokenizer.ggml.model", "llama", 5);
    gguf_key_text(l->g, "tokenizer.ggml.pre", "default", 7);
    put_tokens(l);
    put_scores(l);
    gguf_key_bool(l->g, "tokenizer.ggml.add_space_prefix", gguf_adds_space(l->root));
    put_id(l->g, "tokenizer.ggml.unknown_token_id", id ? json_integer_value(id) : -1);
    return OK;
}

static enum status list_tokens(struct listing *l)
{
    l->model = json_object_get(l->root, "model");
    l->vocabulary = json_object_get(l->model, "vocab");
    l->byte_level = !json_is_true(json_object_get(l->model, "byte_fallback"));
    TRY(mem_try_array(&l->tokens, (size_t)l->n, sizeof(*l->tokens)));
    TRY(read_vocabulary(l));
    TRY(read_added(l));
    return l->byte_level ? put_byte_level(l) : put_characters(l);
}

static enum status put_all(struct gguf *g, const char *folder, const char *path, const char *family,
                           const struct language_facts *model)
{
    struct listing l = {.g = g, .path = path, .n = model->vocab_size};
    json_t *root = NULL;
    enum status status;
    pool_init(&l.pool);
    /* First of all: it refuses what it cannot read, so that the rest finds what it looks for. */
    TRY_GOTO(put_ends(g, folder, model), out);
    TRY_GOTO(json_read_file(&root, path, ERR_DATA), out);
    l.root = root;
    TRY_GOTO(list_tokens(&l), out);
    TRY_GOTO(family ? put_named_template(g, family) : put_template(g, folder), out);
out:
    json_decref(root);
    mem_free(l.tokens);
    pool_release(&l.pool);
    return status;
}

enum status gguf_tokenizer_keys(struct gguf *g, const char *folder, const char *family,
                                const struct language_facts *model, bool *has_one)
{
    struct str path = {0};
    str_addf(&path, "%s/tokenizer.json", folder ? folder : "");
    enum status status = str_status(&path);
    *has_one = status == OK && folder && file_is_regular(path.text);
    if (status == OK && *has_one)
        status = put_all(g, folder, path.text, family, model);
    else if (status == OK)
        gguf_key_text(g, "tokenizer.ggml.model", "no_vocab", 8);
    str_release(&path);
    return status;
}
