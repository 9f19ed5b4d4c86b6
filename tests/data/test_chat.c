/* Chat templates: recognised, rendered, encoded and masked as transformers does (tests/golden/chat,
 * made by tools/make_chat_golden.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "data/example.h"
#include "data/token_file.h"
#include "support/scratch.h"

static json_t *read_golden(void)
{
    json_t *golden;
    assert_int_equal(
        json_read_file(&golden, SNUG_SOURCE_DIR "/tests/golden/chat/cases.json", ERR_DATA), OK);
    return golden;
}

static struct tokenizer *open_tokenizer(const json_t *family)
{
    struct tokenizer *t;
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/%s", SNUG_SOURCE_DIR,
                   json_string_value(json_object_get(family, "tokenizer")));
    assert_int_equal(tokenizer_open(&t, path), OK);
    return t;
}

/* A template with the BOS and EOS of the family, which tokenizer.json does not name. */
static struct chat_template *parse(const json_t *family, const char *jinja, struct tokenizer *t)
{
    struct chat_template *c;
    const char *bos = json_string_value(json_object_get(family, "bos"));
    assert_int_equal(chat_template_parse(&c, jinja, "golden", t), OK);
    str_clear(&c->bos);
    str_clear(&c->eos);
    str_add(&c->bos, bos ? bos : "");
    str_add(&c->eos, json_string_value(json_object_get(family, "eos")));
    return c;
}

typedef void family_check(const json_t *golden, const json_t *family, struct tokenizer *t,
                          struct chat_template *c);

/* For every family of the golden file, with its template as models have it. */
static void for_families(family_check *check)
{
    json_t *golden = read_golden();
    const json_t *families = json_object_get(golden, "families");
    assert_true(json_array_size(families) > 0);
    for (size_t i = 0; i < json_array_size(families); i++) {
        const json_t *family = json_array_get(families, i);
        struct tokenizer *t = open_tokenizer(family);
        const json_t *templates = json_object_get(family, "templates");
        struct chat_template *c = parse(family, json_string_value(json_array_get(templates, 0)), t);
        check(golden, family, t, c);
        chat_template_free(c);
        tokenizer_free(t);
    }
    json_decref(golden);
}

static void expect_family(const json_t *golden, const json_t *family, struct tokenizer *t,
                          struct chat_template *c)
{
    (void)golden;
    (void)t;
    assert_string_equal(chat_template_name(c), json_string_value(json_object_get(family, "name")));
}

static void templates_are_recognised_by_their_structure(void **state)
{
    (void)state;
    for_families(expect_family);
}

/* ---- closed conversations: what training reads ----------------------------------------------- */

static void expect_tokens(const json_t *one, const struct token_list *ids)
{
    const json_t *expected = json_object_get(one, "ids");
    for (size_t i = 0; i < ids->n && i < json_array_size(expected); i++)
        assert_int_equal(ids->items[i], json_integer_value(json_array_get(expected, i)));
    assert_int_equal(ids->n, json_array_size(expected));
}

static void expect_mask(const json_t *one, const struct example *x)
{
    const char *mask = json_string_value(json_object_get(one, "mask"));
    for (size_t i = 1; i < x->ids.n; i++)
        assert_int_equal(x->labels.items[i] != LABEL_IGNORED, mask[i] == '1');
}

static void expect_examples(const json_t *golden, const json_t *family, struct tokenizer *t,
                            struct chat_template *c)
{
    const json_t *chats = json_object_get(golden, "conversations"),
                 *cases = json_object_get(family, "cases");
    const struct example_options o = {.chat = c};
    struct example x = {0};
    struct encoder *e;
    assert_int_equal(encoder_new(&e, t), OK);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        if (json_is_true(json_object_get(one, "open")))
            continue;
        json_int_t chat = json_integer_value(json_object_get(one, "conversation"));
        json_t *record = json_pack("{s:O}", "messages", json_array_get(chats, (size_t)chat));
        enum status status = example_make(&x, record, &o, t, e);
        assert_int_equal(status == OK, json_object_get(one, "ids") != NULL);
        if (status == OK) {
            expect_tokens(one, &x.ids);
            expect_mask(one, &x);
        }
        json_decref(record);
    }
    example_release(&x);
    encoder_free(e);
}

static void ids_and_masks_are_those_of_transformers(void **state)
{
    (void)state;
    for_families(expect_examples);
}

/* ---- open ones: what a chat goes on from ----------------------------------------------------- */

static size_t read_messages(const json_t *list, struct chat_message *out)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *m = json_array_get(list, i), *text = json_object_get(m, "content");
        const char *role = json_string_value(json_object_get(m, "role"));
        out[i] = (struct chat_message){.role = role[0] == 's'   ? CHAT_SYSTEM
                                               : role[0] == 'u' ? CHAT_USER
                                                                : CHAT_ASSISTANT,
                                       .text = json_string_value(text),
                                       .n = json_string_length(text)};
    }
    return json_array_size(list);
}

static void expect_prompts(const json_t *golden, const json_t *family, struct tokenizer *t,
                           struct chat_template *c)
{
    const json_t *chats = json_object_get(golden, "conversations"),
                 *cases = json_object_get(family, "cases");
    struct spanned_text text = {0};
    struct token_list ids = {0};
    struct chat_message messages[16];
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        if (!json_is_true(json_object_get(one, "open")))
            continue;
        json_int_t chat = json_integer_value(json_object_get(one, "conversation"));
        size_t n = read_messages(json_array_get(chats, (size_t)chat), messages);
        spanned_text_clear(&text);
        ids.n = 0;
        enum status status = chat_render(c, messages, n, 1, &text);
        assert_int_equal(status == OK, json_object_get(one, "ids") != NULL);
        if (status != OK)
            continue;
        assert_int_equal(tokenizer_encode(t, str_text(&text.text), text.text.n, 0, &ids), OK);
        expect_tokens(one, &ids);
    }
    spanned_text_release(&text);
    token_list_release(&ids);
}

static void open_conversations_end_where_the_assistant_begins(void **state)
{
    (void)state;
    for_families(expect_prompts);
}

/* ---- templates that are none ----------------------------------------------------------------- */

static void a_template_that_is_none_of_them_is_refused_with_how_to_name_one(void **state)
{
    static const char *const unknown[] = {
        "",
        "{% for message in messages %}{{ message['content'] }}{% endfor %}",
        /* ChatML but for a separator; trimmed; an end that is not closed */
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '<|im_sep|>\\n' + "
        "message['content'] + '<|im_end|>\\n' }}{% endfor %}",
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
        "message['content'] | trim + '<|im_end|>\\n' }}{% endfor %}",
        "{{ '<|im_start|>' + message['role",
        /* Zephyr's without its line breaks */
        "{% if user %}{{ '<|user|>\\n' + message['content'] + eos_token }}{% endif %}",
    };
    struct tokenizer *t;
    struct chat_template *c;
    (void)state;
    assert_int_equal(tokenizer_open(&t, "bytes"), OK);
    for (size_t i = 0; i < ARRAY_LEN(unknown); i++) {
        assert_int_equal(chat_template_parse(&c, unknown[i], "some.jinja", t), ERR_UNSUPPORTED);
        assert_null(c);
        assert_non_null(strstr(status_message(), "some.jinja"));
        assert_non_null(strstr(status_message(), "chat_template: chatml"));
    }
    tokenizer_free(t);
}

/* ---- where templates are found --------------------------------------------------------------- */

#define CHATML                                                                     \
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\\\n' + " \
    "message['content'] + '<|im_end|>' + '\\\\n'}}{% endfor %}"

static void expect_found(struct scratch *s, const char *config, const char *family)
{
    struct tokenizer *t;
    struct chat_template *c;
    scratch_write_text(s, "tokenizer_config.json", config);
    assert_int_equal(tokenizer_open(&t, "bytes"), OK);
    enum status status = chat_template_open(&c, NULL, s->folder, t);
    if (family) {
        assert_int_equal(status, OK);
        assert_string_equal(chat_template_name(c), family);
    } else {
        assert_int_equal(status, ERR_CONFIG);
        assert_non_null(strstr(status_message(), "has no chat template"));
    }
    chat_template_free(c);
    tokenizer_free(t);
}

static void the_tokenizers_own_template_is_found(void **state)
{
    struct scratch s;
    (void)state;
    scratch_init(&s);
    expect_found(&s, "{}", NULL);
    expect_found(&s, "{\"chat_template\":null}", NULL);
    expect_found(&s, "{\"chat_template\":\"" CHATML "\"}", "chatml");
    expect_found(&s,
                 "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"\"},"
                 "{\"name\":\"default\",\"template\":\"" CHATML "\"}]}",
                 "chatml");
    scratch_write_text(&s, "chat_template.jinja",
                       "{{ bos_token }}{% for message in messages %}"
                       "{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + "
                       "message.content | trim + '<|eot_id|>' }}{% endfor %}\n");
    expect_found(&s, "{\"chat_template\":\"" CHATML "\"}", "llama3");
    scratch_release(&s);
}

static void families_can_be_named(void **state)
{
    struct tokenizer *t;
    struct chat_template *c;
    (void)state;
    assert_int_equal(tokenizer_open(&t, "bytes"), OK);
    for (const struct chat_family *f = chat_families; f->name; f++) {
        assert_int_equal(chat_template_open(&c, f->name, "bytes", t), OK);
        assert_string_equal(chat_template_name(c), f->name);
        chat_template_free(c);
    }
    assert_int_equal(chat_template_open(&c, "klingon", "bytes", t), ERR_CONFIG);
    assert_int_equal(chat_template_open(&c, NULL, "bytes", t), ERR_CONFIG);
    tokenizer_free(t);
}

static void what_a_template_settles_is_in_its_hash(void **state)
{
    static const char plain[] = "{% for message in messages %}{{'<|im_start|>' + message['role'] + "
                                "'\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}";
    struct tokenizer *t;
    struct chat_template *a, *b;
    struct str told = {0};
    (void)state;
    str_addf(&told, "{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}%s", plain);
    assert_int_equal(tokenizer_open(&t, "bytes"), OK);
    assert_int_equal(chat_template_parse(&a, plain, "a", t), OK);
    assert_int_equal(chat_template_parse(&b, str_text(&told), "b", t), OK);
    assert_string_equal(str_text(&b->default_system), "Be kind.");
    assert_true(chat_template_hash(a) != chat_template_hash(b));
    chat_template_free(a);
    chat_template_free(b);
    str_release(&told);
    tokenizer_free(t);
}

/* Rendered by transformers they give the tokens of the models' own: tools/make_chat_jinja_golden.py
 * has seen to that. */
static void templates_that_are_written_are_those_that_were_tried(void **state)
{
    json_t *tried;
    size_t n = 0;
    (void)state;
    assert_int_equal(
        json_read_file(&tried, SNUG_SOURCE_DIR "/tests/golden/chat/jinja.json", ERR_DATA), OK);
    for (const struct chat_family *f = chat_families; f->name; f++) {
        struct str jinja = {0};
        if (chat_family_named(f->name) != f)
            continue; /* another row of the same */
        assert_int_equal(chat_family_jinja(f, &jinja), OK);
        assert_string_equal(jinja.text, json_string_value(json_object_get(tried, f->name)));
        str_release(&jinja);
        n++;
    }
    assert_int_equal(n, json_object_size(tried));
    json_decref(tried);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_are_recognised_by_their_structure),
        cmocka_unit_test(ids_and_masks_are_those_of_transformers),
        cmocka_unit_test(open_conversations_end_where_the_assistant_begins),
        cmocka_unit_test(a_template_that_is_none_of_them_is_refused_with_how_to_name_one),
        cmocka_unit_test(the_tokenizers_own_template_is_found),
        cmocka_unit_test(families_can_be_named),
        cmocka_unit_test(templates_that_are_written_are_those_that_were_tried),
        cmocka_unit_test(what_a_template_settles_is_in_its_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
