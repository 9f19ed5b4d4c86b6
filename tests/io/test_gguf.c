/* GGUF files: the keys and tensors that llama.cpp's own converter makes, tokenizers it can use, and
 * clean errors for what has no form there. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "engine/parameter_stream.h"
#include "io/gguf_export.h"
#include "io/gguf_tokenizer.h"
#include "support/gguf_file.h"
#include "support/golden.h"
#include "support/scratch.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden"

static json_t *golden_listing(const char *part)
{
    json_t *root;
    expect_ok(json_read_file(&root, GOLDEN "/gguf/models.json", ERR_DATA));
    json_t *found = json_incref(json_object_get(root, part));
    json_decref(root);
    assert_non_null(found);
    return found;
}

/* ---- a model on its way into a file ---- */

struct fixture {
    struct scratch scratch;
    struct model *model;
    struct parameter_stream stream;
    struct gguf_content content;
    char path[SCRATCH_PATH];
};

/* folder NULL: weights of the seed. */
static void fixture_init(struct fixture *f, const json_t *config, const char *folder)
{
    memset(f, 0, sizeof(*f));
    scratch_init(&f->scratch);
    scratch_path(&f->scratch, "model.gguf", f->path);
    expect_ok(model_new(&f->model, config, &(struct key_origin){.where = "here"}));
    struct parameter_stream_options o = {.model = f->model, .seed = 5, .n_threads = 2};
    o.folders.model = folder;
    expect_ok(parameter_stream_open(&f->stream, &o));
    f->content = (struct gguf_content){.model = f->model,
                                       .params = f->stream.io.params,
                                       .n_params = f->stream.io.n_params,
                                       .tensors = f->stream.tensors,
                                       .stage = &f->stream.stage,
                                       .team = f->stream.team,
                                       .name = "test"};
}

static void fixture_golden(struct fixture *f, const char *name, const json_t *edits)
{
    char folder[SCRATCH_PATH], path[SCRATCH_PATH + 16];
    json_t *config;
    (void)snprintf(folder, sizeof(folder), GOLDEN "/%s", name);
    (void)snprintf(path, sizeof(path), "%s/config.json", folder);
    expect_ok(json_read_file(&config, path, ERR_DATA));
    if (edits)
        assert_int_equal(json_object_update(config, (json_t *)edits), 0);
    fixture_init(f, config, folder);
    json_decref(config);
}

static void fixture_release(struct fixture *f)
{
    parameter_stream_close(&f->stream);
    model_free(f->model);
    scratch_release(&f->scratch);
}

static enum status write_file(struct fixture *f, enum gguf_recipe recipe, bool force)
{
    struct gguf_export *e;
    f->content.recipe = recipe;
    TRY(gguf_export_new(&e, &f->content));
    enum status status = gguf_export_write(e, f->path, force);
    gguf_export_free(e);
    return status;
}

/* ---- models ---- */

static void expect_key(const char *key, const json_t *value, const json_t *due)
{
    bool equal = json_is_number(due) && !json_is_boolean(due)
                     ? fabs(json_number_value(value) - json_number_value(due)) <=
                           1e-6 * fabs(json_number_value(due))
                     : json_equal(value, due);
    if (!value || !equal)
        fail_msg("%s is not as it should be", key);
}

static void expect_tensor(const struct gguf_read *r, const json_t *due)
{
    const char *name = json_string_value(json_array_get(due, 0));
    const json_t *dims = json_array_get(due, 1);
    const struct gguf_read_tensor *t = gguf_read_find(r, name);
    assert_int_equal(t->rank, json_array_size(dims));
    for (int i = 0; i < t->rank; i++)
        assert_int_equal(t->dims[i], json_integer_value(json_array_get(dims, (size_t)i)));
    if (crc32_of(0, t->data, (size_t)t->n_bytes) !=
        (uint32_t)json_integer_value(json_array_get(due, 2)))
        fail_msg("%s holds other numbers", name);
}

static void expect_model(const char *name, const json_t *due)
{
    struct fixture f;
    struct gguf_read r;
    const char *key;
    json_t *value, *tensors = json_object_get(due, "tensors");
    fixture_golden(&f, name, json_object_get(due, "edits"));
    expect_ok(write_file(&f, GGUF_ALL_F32, false));
    gguf_read_open(&r, f.path);
    json_object_foreach(json_object_get(due, "keys"), key, value)
        expect_key(key, json_object_get(r.keys, key), value);
    assert_int_equal(r.n_tensors, json_array_size(tensors));
    for (size_t i = 0; i < r.n_tensors; i++)
        expect_tensor(&r, json_array_get(tensors, i));
    gguf_read_close(&r);
    fixture_release(&f);
}

static void models_are_what_llama_cpp_makes_of_them(void **state)
{
    const char *name;
    json_t *due, *models = golden_listing("models");
    (void)state;
    assert_int_equal(json_object_size(models), 14);
    json_object_foreach(models, name, due) expect_model(name, due);
    json_decref(models);
}

/* ---- types ---- */

static void wide_fixture(struct fixture *f, bool tied)
{
    json_t *config =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b}", "model_type", "llama",
                  "hidden_size", 256, "num_hidden_layers", 8, "num_attention_heads", 4,
                  "num_key_value_heads", 2, "intermediate_size", 256, "vocab_size", 64,
                  "max_position_embeddings", 32, "tie_word_embeddings", (int)tied);
    assert_non_null(config);
    fixture_init(f, config, NULL);
    json_decref(config);
}

static void expect_type(const struct gguf_read *r, const char *name, enum gguf_type type)
{
    const struct gguf_read_tensor *t = gguf_read_find(r, name);
    if (t->type != gguf_types[type].id)
        fail_msg("%s has type %u, not %s", name, t->type, gguf_types[type].name);
}

/* |a - b| / |b| of a tensor of two files. */
static double distance(const struct gguf_read *a, const struct gguf_read *b, const char *name)
{
    const struct gguf_read_tensor *ta = gguf_read_find(a, name), *tb = gguf_read_find(b, name);
    double far = 0, all = 0;
    assert_int_equal(ta->n_elems, tb->n_elems);
    float *x = mem_alloc((size_t)ta->n_elems * 2 * sizeof(*x)), *y = x + ta->n_elems;
    assert_non_null(x);
    gguf_read_decode(ta->type, ta->data, ta->n_elems, x);
    gguf_read_decode(tb->type, tb->data, tb->n_elems, y);
    for (int64_t i = 0; i < ta->n_elems; i++) {
        far += pow((double)x[i] - (double)y[i], 2);
        all += (double)y[i] * (double)y[i];
    }
    mem_free(x);
    return sqrt(far / all);
}

static void q4_k_m_gives_more_bits_to_some(void **state)
{
    static const bool more[8] = {true, false, false, true, false, false, true, true};
    struct fixture f;
    struct gguf_read r;
    (void)state;
    wide_fixture(&f, true);
    expect_ok(write_file(&f, GGUF_MOST_Q4_K, false));
    gguf_read_open(&r, f.path);
    for (int i = 0; i < 8; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "blk.%d.attn_v.weight", i);
        expect_type(&r, name, more[i] ? GGUF_Q6_K : GGUF_Q4_K);
        (void)snprintf(name, sizeof(name), "blk.%d.ffn_down.weight", i);
        expect_type(&r, name, more[i] ? GGUF_Q6_K : GGUF_Q4_K);
        (void)snprintf(name, sizeof(name), "blk.%d.attn_q.weight", i);
        expect_type(&r, name, GGUF_Q4_K);
    }
    expect_type(&r, "token_embd.weight", GGUF_Q6_K);
    expect_type(&r, "blk.0.attn_norm.weight", GGUF_F32);
    gguf_read_close(&r);
    fixture_release(&f);
}

static void quantised_tensors_are_near_the_weights(void **state)
{
    static const struct {
        enum gguf_recipe recipe;
        double most; /* relative error of a matrix drawn from a normal distribution */
    } cases[] = {{GGUF_ALL_F16, 3e-4},
                 {GGUF_ALL_BF16, 3e-3},
                 {GGUF_ALL_Q8_0, 6e-3},
                 {GGUF_MOST_Q4_0, 0.1},
                 {GGUF_MOST_Q4_K, 0.085}};
    struct fixture f;
    struct gguf_read exact, r;
    (void)state;
    wide_fixture(&f, false);
    expect_ok(write_file(&f, GGUF_ALL_F32, false));
    gguf_read_open(&exact, f.path);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        expect_ok(write_file(&f, cases[i].recipe, true));
        gguf_read_open(&r, f.path);
        assert_true(distance(&r, &exact, "blk.1.attn_q.weight") <= cases[i].most);
        assert_true(distance(&r, &exact, "output.weight") <= cases[i].most);
        gguf_read_close(&r);
    }
    gguf_read_close(&exact);
    fixture_release(&f);
}

/* Of BitNet: what products see is written, in types that hold it as it is. */
static void ternary_weights_are_written_as_they_are_computed_with(void **state)
{
    struct fixture f;
    struct gguf_read exact, r;
    json_t *config =
        json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:{s:s, s:s}}", "model_type",
                  "bitnet", "hidden_act", "silu", "hidden_size", 256, "num_hidden_layers", 1,
                  "num_attention_heads", 4, "intermediate_size", 512, "vocab_size", 64,
                  "max_position_embeddings", 32, "tie_word_embeddings", 1, "quantization_config",
                  "quant_method", "bitnet", "quantization_mode", "online");
    (void)state;
    fixture_init(&f, config, NULL);
    expect_ok(write_file(&f, GGUF_ALL_F32, false));
    gguf_read_open(&exact, f.path);
    const struct gguf_read_tensor *t = gguf_read_find(&exact, "blk.0.ffn_down.weight");
    const float *w = (const float *)t->data;
    float scale = 0.0f;
    int64_t n[3] = {0};
    for (int64_t i = 0; i < t->n_elems; i++)
        scale = fmaxf(scale, fabsf(w[i]));
    for (int64_t i = 0; i < t->n_elems; i++) {
        assert_true(w[i] == 0.0f || fabsf(w[i]) == scale);
        n[w[i] < 0.0f ? 0 : w[i] > 0.0f ? 2 : 1]++;
    }
    /* Of a normal distribution, a third is nearer to 0 than half of the mean size. */
    for (int i = 0; i < 3; i++)
        assert_in_range(n[i] * 100 / t->n_elems, 29, 36);
    expect_ok(write_file(&f, GGUF_MOST_TQ2, true));
    gguf_read_open(&r, f.path);
    expect_type(&r, "blk.0.attn_q.weight", GGUF_TQ2_0);
    expect_type(&r, "token_embd.weight", GGUF_F16);
    expect_type(&r, "blk.0.attn_sub_norm.weight", GGUF_F32);
    assert_true(distance(&r, &exact, "blk.0.attn_q.weight") < 5e-4); /* its scale is f16 */
    assert_true(distance(&r, &exact, "blk.0.ffn_down.weight") < 5e-4);
    assert_string_equal(json_string_value(json_object_get(r.keys, "general.architecture")),
                        "bitnet");
    gguf_read_close(&r);
    gguf_read_close(&exact);
    fixture_release(&f);
    json_decref(config);
    wide_fixture(&f, true);
    assert_int_equal(write_file(&f, GGUF_MOST_TQ2, true), ERR_USAGE);
    fixture_release(&f);
}

static void rows_that_are_no_whole_blocks_are_stored_wider(void **state)
{
    struct fixture f;
    struct gguf_read r;
    struct gguf_export *e;
    (void)state;
    fixture_golden(&f, "llama", NULL);
    f.content.recipe = GGUF_MOST_Q4_0;
    expect_ok(gguf_export_new(&e, &f.content));
    assert_int_equal(gguf_export_n_wider(e), 3); /* the head, and a down projection per layer */
    expect_ok(gguf_export_write(e, f.path, false));
    gguf_export_free(e);
    gguf_read_open(&r, f.path);
    expect_type(&r, "blk.0.attn_q.weight", GGUF_Q4_0);
    expect_type(&r, "output.weight", GGUF_Q8_0);
    expect_type(&r, "blk.1.ffn_down.weight", GGUF_F16);
    gguf_read_close(&r);
    fixture_release(&f);
}

/* ---- tokenizers ---- */

static const char *family; /* of the chat template; NULL: the tokenizer's own */

static void read_tokenizer(struct gguf_read *r, const char *name, int64_t n, const char *config)
{
    struct scratch scratch;
    char from[SCRATCH_PATH], path[SCRATCH_PATH];
    char *text;
    size_t n_bytes;
    bool has_one;
    struct gguf g = {0};
    struct language_facts facts = {.vocab_size = n, .bos_token = -1, .eos_token = -1};
    scratch_init(&scratch);
    (void)snprintf(from, sizeof(from), GOLDEN "/tokenizer/%s.json", name);
    expect_ok(file_read(from, &text, &n_bytes));
    scratch_write(&scratch, "tokenizer.json", text, n_bytes);
    mem_free(text);
    scratch_write_text(&scratch, "tokenizer_config.json", config);
    expect_ok(gguf_tokenizer_keys(&g, scratch.folder, family, &facts, &has_one));
    assert_true(has_one);
    expect_ok(gguf_open(&g, scratch_path(&scratch, "tokenizer.gguf", path)));
    expect_ok(gguf_commit(&g));
    gguf_release(&g);
    gguf_read_open(r, path);
    scratch_release(&scratch);
}

static const json_t *list_of(const struct gguf_read *r, const char *key)
{
    const json_t *list = json_object_get(r->keys, key);
    assert_true(json_is_array(list));
    return list;
}

static uint32_t crc_of_texts(const json_t *list)
{
    uint32_t crc = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *text = json_array_get(list, i);
        crc = crc32_of(crc, "\n", i > 0);
        crc = crc32_of(crc, json_string_value(text), json_string_length(text));
    }
    return crc;
}

static uint32_t crc_of_numbers(const json_t *list)
{
    uint32_t crc = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        int32_t x = (int32_t)json_integer_value(json_array_get(list, i));
        crc = crc32_of(crc, &x, sizeof(x));
    }
    return crc;
}

static void byte_level_tokenizers_are_what_llama_cpp_makes_of_them(void **state)
{
    static const struct {
        const char *name, *pre, *config;
        bool adds_bos;
    } cases[] = {{"gpt2", "gpt-2", "{}", false},
                 {"llama3", "llama-bpe", "{\"bos_token\": \"<|begin_of_text|>\"}", true},
                 {"qwen2", "qwen2", "{}", false}};
    json_t *all = golden_listing("tokenizers");
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const json_t *due = json_object_get(all, cases[i].name);
        struct gguf_read r;
        read_tokenizer(&r, cases[i].name, json_integer_value(json_object_get(due, "vocab_size")),
                       cases[i].config);
        assert_string_equal(json_string_value(json_object_get(r.keys, "tokenizer.ggml.model")),
                            "gpt2");
        assert_string_equal(json_string_value(json_object_get(r.keys, "tokenizer.ggml.pre")),
                            cases[i].pre);
        assert_int_equal(crc_of_texts(list_of(&r, "tokenizer.ggml.tokens")),
                         json_integer_value(json_object_get(due, "tokens")));
        assert_int_equal(crc_of_numbers(list_of(&r, "tokenizer.ggml.token_type")),
                         json_integer_value(json_object_get(due, "kinds")));
        assert_int_equal(crc_of_texts(list_of(&r, "tokenizer.ggml.merges")),
                         json_integer_value(json_object_get(due, "merges")));
        assert_int_equal(json_is_true(json_object_get(r.keys, "tokenizer.ggml.add_bos_token")),
                         cases[i].adds_bos);
        gguf_read_close(&r);
    }
    json_decref(all);
}

static int64_t count_kind(const struct gguf_read *r, int kind)
{
    const json_t *kinds = list_of(r, "tokenizer.ggml.token_type");
    int64_t n = 0;
    for (size_t i = 0; i < json_array_size(kinds); i++)
        n += json_integer_value(json_array_get(kinds, i)) == kind;
    return n;
}

/* The file's scores give the order of the merges. */
static void expect_scores(const struct gguf_read *r, const char *name)
{
    char path[SCRATCH_PATH];
    json_t *root;
    (void)snprintf(path, sizeof(path), GOLDEN "/tokenizer/%s.json", name);
    expect_ok(json_read_file(&root, path, ERR_DATA));
    const json_t *model = json_object_get(root, "model"),
                 *merges = json_object_get(model, "merges");
    double before = 1;
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const json_t *pair = json_array_get(merges, i);
        char joined[256];
        (void)snprintf(joined, sizeof(joined), "%s%s", json_string_value(json_array_get(pair, 0)),
                       json_string_value(json_array_get(pair, 1)));
        const json_t *id = json_object_get(json_object_get(model, "vocab"), joined);
        double score = json_number_value(
            json_array_get(list_of(r, "tokenizer.ggml.scores"), (size_t)json_integer_value(id)));
        assert_true(score < before || score > -(double)i);
        before = score > -(double)i ? before : score;
    }
    json_decref(root);
}

static void character_tokenizers_have_scores_for_merges(void **state)
{
    static const struct {
        const char *name, *config;
        bool adds_bos, adds_space;
    } cases[] = {
        {"llama2", "{\"bos_token\": \"<s>\", \"chat_template\": \"{{ x }}\"}", true, true},
        {"mistral", "{\"bos_token\": \"<s>\", \"chat_template\": \"{{ x }}\"}", true, true},
        {"gemma", "{\"bos_token\": \"<bos>\", \"chat_template\": \"{{ x }}\"}", false, false}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct gguf_read r;
        read_tokenizer(&r, cases[i].name, 910, cases[i].config);
        assert_string_equal(json_string_value(json_object_get(r.keys, "tokenizer.ggml.model")),
                            "llama");
        assert_string_equal(json_string_value(json_object_get(r.keys, "tokenizer.chat_template")),
                            "{{ x }}");
        assert_int_equal(count_kind(&r, 6), 256); /* bytes */
        assert_int_equal(count_kind(&r, 2), 1);   /* unknown */
        assert_true(count_kind(&r, 5) > 0);       /* up to the model's vocabulary */
        assert_int_equal(json_is_true(json_object_get(r.keys, "tokenizer.ggml.add_bos_token")),
                         cases[i].adds_bos);
        assert_int_equal(json_is_true(json_object_get(r.keys, "tokenizer.ggml.add_space_prefix")),
                         cases[i].adds_space);
        expect_scores(&r, cases[i].name);
        gguf_read_close(&r);
    }
}

static void a_chat_template_is_the_tokenizers_unless_one_is_named(void **state)
{
    static const char *const families[] = {NULL, "llama3"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        struct gguf_read r;
        family = families[i];
        read_tokenizer(&r, "llama3", 704, "{\"chat_template\": \"{{ its_own }}\"}");
        const char *text = json_string_value(json_object_get(r.keys, "tokenizer.chat_template"));
        assert_non_null(text);
        assert_true((strstr(text, "its_own") != NULL) == (i == 0));
        assert_true((strstr(text, "<|start_header_id|>user") != NULL) == (i == 1));
        gguf_read_close(&r);
    }
    family = NULL;
}

static void a_way_to_split_without_a_name_is_refused(void **state)
{
    struct gguf g = {0};
    struct scratch scratch;
    struct language_facts facts = {.vocab_size = 1000, .bos_token = -1, .eos_token = -1};
    char *text;
    size_t n_bytes;
    bool has_one;
    (void)state;
    scratch_init(&scratch);
    expect_ok(file_read(GOLDEN "/tokenizer/words.json", &text, &n_bytes));
    scratch_write(&scratch, "tokenizer.json", text, n_bytes);
    mem_free(text);
    assert_int_equal(gguf_tokenizer_keys(&g, scratch.folder, NULL, &facts, &has_one),
                     ERR_UNSUPPORTED);
    expect_message("pre_tokenizer");
    gguf_release(&g);
    scratch_release(&scratch);
}

/* ---- what goes wrong ---- */

static void models_without_a_form_are_refused_by_name(void **state)
{
    static const struct {
        const char *name, *edit, *message;
    } cases[] = {{"moe", "{}", "type 'moe'"},
                 {"gemma2", "{}", "query_pre_attn_scalar"},
                 {"qwen2_moe", "{}", "some layers have no experts"},
                 {"qwen3_moe", "{\"norm_topk_prob\": false}", "norm_topk_prob"},
                 {"smollm3", "{}", "rotary"},
                 {"olmo2", "{\"tie_word_embeddings\": true}", "tied"},
                 {"gpt2", "{\"activation_function\": \"gelu\"}", "gelu_new"}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[SCRATCH_PATH];
        json_t *config, *edit = json_loads(cases[i].edit, 0, NULL);
        struct fixture f;
        (void)snprintf(path, sizeof(path), GOLDEN "/%s/config.json", cases[i].name);
        expect_ok(json_read_file(&config, path, ERR_DATA));
        assert_int_equal(json_object_update(config, edit), 0);
        fixture_init(&f, config, NULL);
        assert_int_equal(write_file(&f, GGUF_ALL_F32, false), ERR_UNSUPPORTED);
        expect_message(cases[i].message);
        assert_false(file_exists(f.path));
        fixture_release(&f);
        json_decref(config);
        json_decref(edit);
    }
}

static void a_tokenizer_that_is_larger_than_the_model_is_refused(void **state)
{
    struct fixture f;
    char *text;
    size_t n_bytes;
    (void)state;
    fixture_golden(&f, "llama", NULL);
    expect_ok(file_read(GOLDEN "/tokenizer/gpt2.json", &text, &n_bytes));
    scratch_write(&f.scratch, "tokenizer.json", text, n_bytes);
    mem_free(text);
    f.content.extras_folder = f.scratch.folder;
    assert_int_equal(write_file(&f, GGUF_ALL_F32, false), ERR_DATA);
    expect_message("vocabulary ends at 96");
    fixture_release(&f);
}

static void a_file_is_replaced_only_when_forced(void **state)
{
    struct fixture f;
    (void)state;
    fixture_golden(&f, "llama", NULL);
    scratch_write_text(&f.scratch, "model.gguf", "mine");
    assert_int_equal(write_file(&f, GGUF_ALL_F32, false), ERR_USAGE);
    expect_message("--force");
    expect_ok(write_file(&f, GGUF_ALL_F32, true));
    scratch_path(&f.scratch, "no/such/folder/model.gguf", f.path);
    assert_int_equal(write_file(&f, GGUF_ALL_F32, false), ERR_IO);
    expect_message("no/such/folder");
    fixture_release(&f);
}

static void a_full_disk_leaves_nothing_behind(void **state)
{
    struct fixture f;
    int n_failed = 0;
    (void)state;
    fixture_golden(&f, "llama", NULL);
    for (int n = 1; n < 200; n += n < 6 ? 1 : 7) {
        file_fail_after(n);
        enum status status = write_file(&f, GGUF_ALL_Q8_0, false);
        file_fail_after(0);
        if (status == OK)
            break;
        assert_int_equal(status, ERR_IO);
        assert_int_equal(rmdir(f.scratch.folder), 0); /* it is empty */
        scratch_write_text(&f.scratch, "x", "");
        assert_int_equal(unlink(scratch_path(&f.scratch, "x", (char[SCRATCH_PATH]){0})), 0);
        n_failed++;
    }
    assert_true(n_failed > 5);
    assert_true(file_exists(f.path));
    fixture_release(&f);
}

static void numbers_that_a_type_cannot_hold_are_named(void **state)
{
    float bad[32] = {NAN};
    static const struct hf_piece piece = {"lm_head.weight", 1};
    struct model_param param = {
        .name = "x", .shape = shape_of(2, 1, 32), .pieces = &piece, .n_pieces = 1};
    struct tensor tensor = {.dtype = DTYPE_F32, .shape = param.shape, .data = bad};
    struct fixture f;
    (void)state;
    fixture_golden(&f, "llama", NULL);
    f.content.params = &param;
    f.content.n_params = 1;
    f.content.tensors = &tensor;
    f.content.stage = &host_stage;
    assert_int_equal(write_file(&f, GGUF_ALL_Q8_0, false), ERR_CONFIG);
    expect_message("output.weight");
    bad[0] = 70000;
    assert_int_equal(write_file(&f, GGUF_ALL_F16, false), ERR_CONFIG);
    expect_message("70000");
    expect_ok(write_file(&f, GGUF_ALL_BF16, false));
    fixture_release(&f);
}

static enum status list_tokenizer(const char *folder)
{
    struct gguf g = {0};
    struct language_facts facts = {.vocab_size = 1000, .bos_token = -1, .eos_token = -1};
    bool has_one;
    enum status status = gguf_tokenizer_keys(&g, folder, NULL, &facts, &has_one);
    if (status == OK)
        status = str_status(&g.keys);
    gguf_release(&g);
    return status;
}

static void running_out_of_memory_is_reported_and_leaks_nothing(void **state)
{
    struct fixture f;
    char *text;
    size_t n_bytes;
    (void)state;
    fixture_golden(&f, "llama", NULL);
    expect_ok(file_read(GOLDEN "/tokenizer/llama2.json", &text, &n_bytes));
    scratch_write(&f.scratch, "t/tokenizer.json", text, n_bytes);
    mem_free(text);
    for (int of_tokenizer = 0; of_tokenizer < 2; of_tokenizer++) {
        char folder[SCRATCH_PATH];
        enum status status = ERR_MEMORY;
        int64_t live = mem_live(), n_failed = 0;
        scratch_path(&f.scratch, "t", folder);
        for (int64_t n = 1; status != OK; n += 1 + n / 8) {
            mem_fail_after(n, n % 2 == 0);
            status = of_tokenizer ? list_tokenizer(folder) : write_file(&f, GGUF_ALL_Q8_0, true);
            mem_fail_after(0, 0);
            assert_int_equal(mem_live(), live);
            assert_true(status == OK || status == ERR_MEMORY);
            n_failed += status != OK;
        }
        assert_true(n_failed > 5);
    }
    fixture_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_are_what_llama_cpp_makes_of_them),
        cmocka_unit_test(q4_k_m_gives_more_bits_to_some),
        cmocka_unit_test(quantised_tensors_are_near_the_weights),
        cmocka_unit_test(ternary_weights_are_written_as_they_are_computed_with),
        cmocka_unit_test(rows_that_are_no_whole_blocks_are_stored_wider),
        cmocka_unit_test(byte_level_tokenizers_are_what_llama_cpp_makes_of_them),
        cmocka_unit_test(character_tokenizers_have_scores_for_merges),
        cmocka_unit_test(a_chat_template_is_the_tokenizers_unless_one_is_named),
        cmocka_unit_test(a_way_to_split_without_a_name_is_refused),
        cmocka_unit_test(models_without_a_form_are_refused_by_name),
        cmocka_unit_test(a_tokenizer_that_is_larger_than_the_model_is_refused),
        cmocka_unit_test(a_file_is_replaced_only_when_forced),
        cmocka_unit_test(a_full_disk_leaves_nothing_behind),
        cmocka_unit_test(numbers_that_a_type_cannot_hold_are_named),
        cmocka_unit_test(running_out_of_memory_is_reported_and_leaks_nothing),
    };
    log_set_level(LOG_QUIET);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
