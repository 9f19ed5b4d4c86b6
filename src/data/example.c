/* example.c: texts into tokens and labels. */
#include "data/example.h"

#include <inttypes.h>
#include <string.h>

#include "data/token_file.h"

void example_release(struct example *x)
{
    spanned_text_release(&x->text);
    vec_release(&x->cuts);
    vec_release(&x->messages);
    str_release(&x->joined);
    token_list_release(&x->ids);
    token_list_release(&x->labels);
    *x = (struct example){0};
}

static void clear(struct example *x)
{
    spanned_text_clear(&x->text);
    str_clear(&x->joined);
    x->cuts.n = x->messages.n = x->ids.n = x->labels.n = 0;
    x->is_document = 0;
}

enum example_form example_form_of(const json_t *record, const struct example_fields *f)
{
    if (example_member(record, f->messages, "messages", "conversations"))
        return EXAMPLE_CHAT;
    if (example_member(record, NULL, "input_ids", NULL))
        return EXAMPLE_IDS;
    if (example_member(record, f->instruction, "instruction", NULL))
        return EXAMPLE_ALPACA;
    if (example_member(record, f->prompt, "prompt", NULL) &&
        example_member(record, f->completion, "completion", NULL))
        return EXAMPLE_PROMPT_COMPLETION;
    if (example_member(record, NULL, "segments", NULL))
        return EXAMPLE_INPUT_OUTPUT;
    if (example_member(record, f->text, "text", NULL))
        return EXAMPLE_TEXT;
    return EXAMPLE_AUTO;
}

/* ---- tokens of a text ------------------------------------------------------------------------ */

static enum status label_all(struct example *x, int32_t label)
{
    while (x->labels.n < x->ids.n) {
        int32_t value = label == LABEL_IGNORED ? label : x->ids.items[x->labels.n];
        TRY(vec_push(&x->labels, value));
    }
    return OK;
}

static enum status add_ids(struct example *x, const int32_t *ids, size_t n, int32_t label)
{
    for (size_t i = 0; i < n; i++)
        TRY(vec_push(&x->ids, ids[i]));
    return label_all(x, label);
}

/* The part of the text that is encoded in one piece. */
struct stretch {
    size_t start, end;
};

/* First and last character of each span in a stretch, from its start. */
static enum status collect_marks(const struct example *x, struct stretch s, size_t *n_marks,
                                 size_t *marks)
{
    size_t n = 0;
    for (size_t i = 0; i < x->text.spans.n; i++) {
        struct text_span span = x->text.spans.items[i];
        if (span.start < s.start || span.end > s.end)
            continue;
        size_t last = span.end - 1;
        while (last > span.start && ((uint8_t)x->text.text.text[last] & 0xC0) == 0x80)
            last--;
        marks[n++] = span.start - s.start;
        marks[n++] = last - s.start;
    }
    *n_marks = n;
    return OK;
}

/* Labels are what spans of the text became. */
static void set_labels(struct example *x, const size_t *tokens, size_t n_marks)
{
    for (size_t i = 0; i + 1 < n_marks; i += 2) {
        for (size_t k = tokens[i]; k <= tokens[i + 1] && k < x->ids.n; k++)
            x->labels.items[k] = x->ids.items[k];
    }
}

static enum status encode_stretch(struct example *x, struct stretch s, struct encoder *e)
{
    size_t *marks = NULL, n_marks = 0, most = 2 * x->text.spans.n;
    enum status status;
    TRY(mem_try_array(&marks, 2 * most + 1, sizeof(*marks)));
    TRY_GOTO(collect_marks(x, s, &n_marks, marks), out);
    TRY_GOTO(encoder_encode_marked(e, str_text(&x->text.text) + s.start, s.end - s.start, marks,
                                   n_marks, marks + most, &x->ids),
             out);
    TRY_GOTO(label_all(x, LABEL_IGNORED), out);
    set_labels(x, marks + most, n_marks);
out:
    mem_free(marks);
    return status;
}

static enum status encode_text(struct example *x, struct encoder *e)
{
    struct stretch s = {0, 0};
    for (size_t i = 0; i <= x->cuts.n; i++) {
        s.end = i < x->cuts.n ? x->cuts.items[i] : x->text.text.n;
        if (s.end > s.start)
            TRY(encode_stretch(x, s, e));
        s.start = s.end;
    }
    return OK;
}

static enum status make_text(struct example *x, const json_t *record,
                             const struct example_options *o, enum example_form form,
                             const struct tokenizer *t, struct encoder *e)
{
    int32_t ends[DOCUMENT_IDS];
    TRY(example_text(x, record, o, form));
    if (x->is_document)
        TRY(add_ids(x, ends, tokenizer_document_begin(t, ends), LABEL_IGNORED));
    TRY(encode_text(x, e));
    if (x->is_document)
        TRY(add_ids(x, ends, tokenizer_document_end(t, ends), 0));
    return OK;
}

/* ---- ids as they are ------------------------------------------------------------------------- */

static enum status check_array(const json_t *record, const char *key, size_t n, const json_t **out)
{
    *out = json_object_get(record, key);
    if (!*out || json_is_null(*out)) {
        *out = NULL;
        return OK;
    }
    if (!json_is_array(*out) || json_array_size(*out) != n)
        return FAIL(ERR_DATA, "%s is not a list of as many elements as input_ids, %zu", key, n);
    return OK;
}

static enum status make_ids(struct example *x, const json_t *record, const struct tokenizer *t)
{
    const json_t *ids = json_object_get(record, "input_ids"), *labels, *attention;
    size_t n = json_array_size(ids);
    if (!json_is_array(ids))
        return FAIL(ERR_DATA, "input_ids is not an array");
    TRY(check_array(record, "labels", n, &labels));
    TRY(check_array(record, "attention_mask", n, &attention));
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(ids, i), *label = labels ? json_array_get(labels, i) : id;
        if (attention && json_integer_value(json_array_get(attention, i)) == 0)
            continue;
        json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (value < 0 || value >= tokenizer_vocab_size(t))
            return FAIL(ERR_DATA,
                        "input_ids[%zu] is not a token of the tokenizer, which has %" PRId64, i,
                        tokenizer_vocab_size(t));
        if (!json_is_integer(label) ||
            (json_integer_value(label) != LABEL_IGNORED && json_integer_value(label) != value))
            return FAIL(ERR_DATA, "labels[%zu] is neither input_ids[%zu] nor %d", i, i,
                        (int)LABEL_IGNORED);
        TRY(vec_push(&x->ids, (int32_t)value));
        TRY(vec_push(&x->labels, (int32_t)json_integer_value(label)));
    }
    return OK;
}

static const char *first_key(const json_t *record)
{
    const char *key = json_object_iter_key(json_object_iter((json_t *)(uintptr_t)record));
    return key ? key : "";
}

enum status example_make(struct example *x, const json_t *record, const struct example_options *o,
                         const struct tokenizer *t, struct encoder *e)
{
    enum example_form form = o->form ? o->form : example_form_of(record, &o->fields);
    clear(x);
    if (form == EXAMPLE_AUTO && json_object_get(record, "chosen"))
        return FAIL(ERR_DATA, "is a preference (\"chosen\"): those are trained on with rl: dpo");
    if (form == EXAMPLE_AUTO)
        return FAIL(ERR_DATA,
                    "is none of the forms known (its first key is \"%.80s\"): messages, "
                    "conversations, instruction and output, prompt and completion, segments, text; "
                    "or name its fields, as with field_messages",
                    first_key(record));
    TRY(form == EXAMPLE_IDS ? make_ids(x, record, t) : make_text(x, record, o, form, t, e));
    for (size_t i = 0; o->train_on_inputs && i < x->ids.n; i++)
        x->labels.items[i] = x->ids.items[i];
    if (x->ids.n > 0)
        x->labels.items[0] = LABEL_IGNORED; /* nothing comes before it */
    return OK;
}
